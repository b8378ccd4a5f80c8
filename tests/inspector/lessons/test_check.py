"""Lessons with one fault each: the check names its rule and its line, and says what would mend it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.settings import LoadSettings
from inspector.cli.main import main
from inspector.lessons.actions import VERBS
from inspector.lessons.catalogue import new_lesson
from inspector.lessons.check import examine, find_seed, read_checked
from inspector.lessons.errors import LessonError
from inspector.lessons.headless import HeadlessSession, live_session
from inspector.lessons.kinds import number
from inspector.lessons.lesson import PANELS, SCREENS, option
from inspector.lessons.reading import lesson as lesson_of
from inspector.main import key_table as tables
from inspector.main.key_table import key_table
from inspector.views import TOOLS

GOOD = """\
+++
title = "Draws"
minutes = 7
prompt = "Once upon a time, there was a little"
settings = {temp = 1.0, seed = 1}
+++

## First

The draw is {next.draw:.3}; the entropy is {next.entropy}.

```toml
show = "candidates"
act = "step"
answer = "last.text"
look = "last"
hint = "The shares are ranked."
```

? Which token is taken?

- girl
- boy
- house

> It is {last.text}, at {last.prob}.

## Second

One step back, and it is hotter.

```toml
begin = "back"
hide = ["sampler"]
keep = {before = "next.entropy"}
act = "set temp=1.5"
answer = "next.sampler_entropy / before"
number = "next.sampler_entropy"
```

? How many times the entropy?

- fewer than 1.5 {..1.5}
- more {1.5..}

> It is {next.sampler_entropy}, after {before}.
"""


@dataclass(frozen=True)
class Fault:
    """One fault put into the lesson that has none."""

    rule: str
    old: str
    new: str
    needle: str = ""
    """What stands in the line that is to be named; the new text itself, where empty."""
    down: int = 0
    """Lines from there to the one that is to be named."""

    @property
    def text(self) -> str:
        """The lesson with it."""
        assert GOOD.count(self.old) >= 1, self.old
        return GOOD.replace(self.old, self.new, 1)

    @property
    def line(self) -> int:
        """Where it is."""
        lines = self.text.split("\n")
        needle = self.needle or self.new
        return next(number for number, line in enumerate(lines, 1) if needle in line) + self.down


LONG = "This is a sentence of many words that goes on and on. " * 3
STATIC = (
    Fault("format", "+++\ntitle", "title", 'title = "Draws"'),
    Fault("format", "{next.draw:.3}", "{next.draw", "{next.draw"),
    Fault("format", "{next.draw:.3}", "{__import__('os').system('x')}"),
    Fault("toml", 'act = "step"', "act = step"),
    Fault("entry", "minutes = 7", "minuts = 7"),
    Fault("entry", "minutes = 7", 'minutes = "seven"'),
    Fault("setting", "temp = 1.0, seed = 1", "temp = 1000"),
    Fault("action", "temp=1.5", "temp=-2"),
    Fault("setting", "{next.draw:.3}", "{whatif(warmth=2).picked}"),
    Fault("action", 'act = "step"', 'act = "jump"'),
    Fault("action", 'act = "step"', 'act = "step many"'),
    Fault("show", 'show = "candidates"', 'show = "engine"'),
    Fault("show", 'show = "candidates"', 'show = "delete"'),  # a key, but none that a lesson may press
    Fault("hide", 'hide = ["sampler"]', 'hide = ["samplr"]'),
    Fault("look", 'look = "last"', 'look = "the end"'),
    Fault("look", 'look = "last"', 'look = "next"', "> It is {last.text}"),
    Fault("look", "{last.text}, at {last.prob}", "{step(1).text}", "{step(1).text}"),
    Fault("form", "{next.draw:.3}", "{next.draw:.9}"),
    Fault("form", "The draw is {next.draw:.3};", "It is\n{last.text} and\n{next.draw:.9}", "{next.draw:.9}"),
    Fault("quantity", "{next.draw:.3}", "{future.draw}"),
    Fault("quantity", "{next.draw:.3}", "{system('x')}"),
    Fault("field", "{next.draw:.3}", "{next.drawn}"),
    Fault("field", "{before}.", "{before.bits}.", "{before.bits}"),
    Fault("argument", "{last.text}, at", "{step('one', 2).text}, at"),
    Fault("options", "- boy\n- house\n", "", "? Which token"),
    Fault("options", "- boy\n", "- girl\n", "- girl", 1),
    Fault("options", "{..1.5}", "{..one}"),
    Fault("answer", "{1.5..}", "{1.2..}"),
    Fault("question", "? Which token is taken?", "Which token is taken?", "- girl"),
    Fault("question", 'answer = "last.text"\n', "", "? Which token"),
    Fault("keep", "{before = ", "{next = "),
    Fault("keep", "{before = ", '{other = "kv.bytes", before = '),
    Fault("keep", "The draw is {next.draw:.3}", "The draw is {before}"),
    Fault("beat", "\n## Second", "\n## Empty\n\n## Second", "## Empty"),
    Fault("caption", "The draw is", LONG + "The draw is", "The draw is"),
    Fault("caption", "? Which token is taken?", "? " + LONG),
    Fault("caption", "> It is {last.text}", "> " + 2 * LONG + "{last.text}", "{last.text}"),
    Fault("caption", "The shares are ranked.", LONG, "## First"),
    Fault("hidden", "it is hotter.", "keeps {next.kept}."),
    Fault("prompt", 'prompt = "Once upon a time, there was a little"\n', "", "{next.draw:.3}"),
    Fault("timed", '"last.text"', '"last.ms"'),
)  # fmt: skip
RUN = (
    Fault("answer", "- girl\n", "- dragon\n", "answer = "),
    Fault("fragile", "temp = 1.0, seed = 1", "temp = 1.5, seed = 3", "answer = "),
    Fault("fragile", "1.5}\n- more {1.5..}", "RATIO}\n- more {RATIO..}", "- fewer"),
    Fault("hidden", "The draw is", "It is {next.picked}. The draw is"),
    Fault("caption", "The draw is", 30 * "{prompt.first}" + " The draw is"),
    Fault("look", 'look = "last"', 'look = "step 2"', "> It is"),
    Fault("fingerprint", "minutes = 7", 'fingerprint = "0"', "+++"),
    Fault("action", 'begin = "back"', 'begin = "back 9"'),
    Fault("action", 'act = "step"', 'act = "choose dragon"'),
    Fault("quantity", "it is hotter.", "dragon has {candidate('dragon').prob}."),
    Fault("quantity", "The draw is", "It was {step(7).text}. The draw is"),
)  # fmt: skip


def ids(fault: Fault) -> str:
    return f"{fault.rule}: {fault.new[:24]}"


def assert_fault(fault: Fault, found: list[LessonError], line: int) -> None:
    """See that it is there, at its line, and that it is the only one of its rule there."""
    said = [each.at("FILE") for each in found]
    assert (fault.rule, line) in [(each.rule, each.line) for each in found], said
    assert all(len(each.message.split("\n")) == 1 and each.message for each in found)


@pytest.mark.parametrize("fault", STATIC, ids=ids)
def test_a_fault_that_needs_no_model(fault: Fault) -> None:
    _, found = read_checked(fault.text, "faulty")
    assert_fault(fault, found, fault.line)
    assert len({(each.rule, each.line) for each in found}) <= 2, [each.at("FILE") for each in found]


def test_all_faults_are_told_at_once() -> None:
    text = GOOD.replace('act = "step"', 'act = "jump"').replace("{next.draw:.3}", "{next.draw:.9}")
    text = text.replace('hide = ["sampler"]', 'hide = ["samplr"]').replace("minutes = 7", "minutes = -1")
    _, found = read_checked(text, "faulty")
    assert [each.rule for each in found] == ["entry", "form", "action", "hide"]


def test_a_run_that_may_not_end() -> None:
    text = GOOD.replace("seed = 1}", "seed = 1, max_tokens = 5000}").replace('act = "step"', 'act = "run"')
    _, found = read_checked(text, "faulty")
    assert [(each.rule, each.line) for each in found] == [("run", 14)]


@pytest.mark.parametrize(
    ("test", "value", "told"),
    [
        ("1.5..", 3.0, "50 % from a border"),
        ("..1.5", 1.2, "20 % from a border"),
        ("1..4", 3.0, "25 % from a border"),
        ("..", 3.0, ""),
        ("girl", 3.0, ""),
    ],
)
def test_how_far_an_answer_is_from_a_border_is_told(test: str, value: float, told: str) -> None:
    assert option(f"it is so {{{test}}}", 1).margin(number(value)) == told


@pytest.fixture(scope="module")
def session() -> Iterator[HeadlessSession]:
    """A model that is loaded once."""
    with live_session(LoadSettings("pocket"), lesson_of(GOOD, "good")) as live:
        yield live


def faults_of(session: HeadlessSession, text: str) -> list[LessonError]:
    """All that is wrong with a lesson."""
    lesson, found = read_checked(text, "faulty")
    assert lesson is not None
    assert not found, [each.at("FILE") for each in found]
    return examine(session, lesson).faults.found


def test_the_lesson_without_faults_has_none(session: HeadlessSession) -> None:
    assert [each.at("FILE") for each in faults_of(session, GOOD)] == []


@pytest.mark.parametrize("fault", RUN, ids=ids)
def test_a_fault_that_a_run_shows(session: HeadlessSession, fault: Fault) -> None:
    text = fault.text
    if "RATIO" in text:  # a border where the value is
        lesson = lesson_of(GOOD, "good")
        value = examine(session, lesson).findings[1].answer
        assert value is not None
        text = text.replace("RATIO", f"{1.001 * float(value.raw):.4f}")
    assert_fault(fault, faults_of(session, text), fault.line)


def test_an_action_of_which_nothing_comes(session: HeadlessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner would wait for ever."""
    monkeypatch.setitem(VERBS, "set", replace(VERBS["set"], done=lambda *_: False, missed=lambda *_: ""))
    found = faults_of(session, GOOD)
    line = GOOD.split("\n").index('act = "set temp=1.5"') + 1
    assert [(each.rule, each.line) for each in found] == [("ends", line)], [each.at("") for each in found]


def test_an_answer_that_rests_on_a_fragile_token_is_fragile(session: HeadlessSession) -> None:
    """The rank of a token that a draw near a border took."""
    text = GOOD.replace("temp = 1.0, seed = 1", "temp = 1.5, seed = 3").replace('"last.text"', '"last.rank"')
    text = text.replace("- girl\n- boy\n- house", "- low {2..}\n- the first {1..2}")
    found = faults_of(session, text)
    assert [(each.rule, each.line) for each in found][:1] == [("fragile", 15)], [
        each.at("") for each in found
    ]


def test_what_a_new_lesson_is_written_as_has_no_fault() -> None:
    """In a session of its own: its prompt is the beginning of the other one, whose tokens would be its steps."""
    text = new_lesson('A "quoted" title')
    with live_session(LoadSettings("pocket"), lesson_of(text, "new")) as live:
        assert [each.at("FILE") for each in faults_of(live, text)] == []


def test_a_seed_is_found_that_is_safe() -> None:
    """Seed 0 is none: see above."""
    tried: list[tuple[int, int]] = []
    seed, examined = find_seed(
        lesson_of(GOOD, "good"), LoadSettings("pocket"), range(3), lambda *each: tried.append(each)
    )
    assert seed == 1
    assert examined is not None
    assert tried[0][0] == 0
    assert tried[0][1] > 0
    assert tried[-1] == (1, 0)


def test_what_may_be_shown_is_on_the_screen() -> None:
    """The tables of names are those of the real registry."""
    assert tuple(PANELS) == tuple(each.id for each in (*tables.PANELS, *tables.panels_of(TOOLS)))
    keys = {action.id for action in key_table(TOOLS).actions}
    assert set(SCREENS) <= keys


def test_a_look_at_another_step_than_the_reveal_speaks_of(session: HeadlessSession) -> None:
    """Which step that is depends on the run."""
    text = GOOD.replace('act = "step"', 'act = "step 3"').replace('look = "last"', 'look = "step 2"')
    text = text.replace("> It is {last.text}, at {last.prob}.", "> It was {least_sure.text}.")
    text = text.replace('begin = "back"', 'begin = "back 3"').replace('"last.text"', '"step(1).text"')
    found = faults_of(session, text)
    line = text.split("\n").index("> It was {least_sure.text}.") + 1
    assert [(each.rule, each.line) for each in found] == [("look", line)], [each.at("") for each in found]
    assert found[0].hint == 'Write look = "step 3".'
    assert faults_of(session, text.replace("step 2", "step 3")) == []


def test_a_completion_with_a_text_is_how_often_the_text_occurs(session: HeadlessSession) -> None:
    text = GOOD.replace('"last.text"', "\"completion('boy')\"").replace(
        "- girl\n- boy\n- house", "- never {0}\n- once {1}"
    )
    found = examine(session, lesson_of(text, "good")).findings[0]
    assert found.answer is not None
    assert found.right is not None
    assert (found.answer.raw, found.right.text) == (0, "never")


def test_a_check_without_the_model_says_that_the_answers_are_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "good.md"
    path.write_text(GOOD, encoding="utf-8")
    assert main(["lesson", "check", "--static", str(path)]) == 0
    assert capsys.readouterr().out.endswith("Check the answers, too: leave --static out.\n")

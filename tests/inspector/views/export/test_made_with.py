"""Whatever a text was made with beside the model and its sampler is named wherever the text leaves the program."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from engine.grammar_settings import Grammar
from engine.protocol import GrammarReading, Intervention, InterventionsHeld, PromptOpened, PromptToken, Step
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.cli.screen import picture
from inspector.export.documents import FORMATS
from inspector.export.recording import Recording, line, read, snapshot
from inspector.recordings import sessions
from inspector.state.conditions import TextCondition, conditions, made_with
from inspector.views.copy import copyables
from inspector.views.export import KINDS, LESSON, PICTURE
from tests.inspector.fakes import Session
from tests.inspector.fakes import session as session_of
from tests.inspector.views.drafts.made import draft_round

FIRST = Settings(temp=0.8, seed=7)
OFF = (Intervention("head", 5, 0), Intervention("mlp", 2))
OPEN = GrammarReading(12, 0.5, "open")


class Case:
    """A session of four steps, the last two of which were made with something."""

    def __init__(self) -> None:
        self.session: Session = session_of(2)
        self.session.records.insert(0, FIRST)  # type: ignore[arg-type]

    def change(self, settings: Settings) -> None:
        self.session.records.append(settings)  # type: ignore[arg-type]

    def steps(self, **changes: object) -> None:
        """Two steps, some fields changed."""
        for _ in range(2):
            self.session.step()
            self.session.records[-1] = replace(self.session.records[-1], **self._read(changes))  # type: ignore[type-var]

    def _read(self, changes: dict[str, object]) -> dict[str, object]:
        step = self.session.records[-1]
        assert isinstance(step, Step)
        return {name: value(step) if callable(value) else value for name, value in changes.items()}


def interventions(case: Case) -> None:
    own = case.session.step()
    case.session.move(own.parent)
    case.session.step(next(each.id for each in own.choice.candidates if each.id != own.id), "intervened")
    case.session.records.append(InterventionsHeld(case.session.node, own.node, OFF, 1.0))
    case.session.step(origin="intervened")


def grammar(case: Case) -> None:
    case.change(replace(FIRST, grammar=Grammar("regex", "[a-z]+ (yes|no)")))
    case.steps(choice=lambda step: replace(step.choice, grammar=OPEN))


def draft(case: Case) -> None:
    begin = case.session.node
    case.steps(ms=lambda step: replace(step.ms, shared=2))
    case.session.records.append(draft_round(begin, case.session.node, "A"))


def no_cache(case: Case) -> None:
    case.steps(kv=lambda step: replace(step.kv, passed_tokens=9))


def order(case: Case) -> None:
    case.change(replace(FIRST, sampler_order="transformers"))
    case.steps()


def temperature(case: Case) -> None:
    case.change(replace(FIRST, temp=1.5))
    case.steps()


CASES: dict[Callable[[Case], None], tuple[str, str]] = {
    interventions: ("interventions", "L6 h1 and L3 MLP off"),
    grammar: ("grammar", "regex [a-z]+ (yes|no)"),
    draft: ("draft", "self-4bit"),
    no_cache: ("KV cache", "off"),
    order: ("sampler", "order transformers"),
    temperature: ("temperature", "1.5"),
}


def made(change: Callable[[Case], None], path) -> Recording:
    """A recorded session, read again."""
    case = Case()
    change(case)
    save_as(path, [Entry(value, 0.1 * n) for n, value in enumerate(case.session.records)], "test 1")
    return read(path)


def plainly(document: str) -> str:
    """A document without what its kind of file escapes."""
    for mark, text in {"\\": "", "&#x27;": "'", "&#160;": " ", "\u00a0": " "}.items():
        document = document.replace(mark, text)
    return document


@pytest.mark.wide(10)
@pytest.mark.parametrize("change", CASES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", [each.name for each in KINDS if each.name != LESSON])
def test_every_document_names_it(name, change, tmp_path):
    recording = made(change, tmp_path / "a.trace")
    condition, words = CASES[change]
    document = picture(recording, (120, 40)) if name == PICTURE else FORMATS[name](recording)
    assert words in plainly(document)
    if name != "csv":  # which has it in the row of each token
        assert f"Made with {condition}: {words} (steps 3 to 4)" in plainly(document)
    if name == "md" and change is grammar:
        assert document.count("| grammar |") == 1


@pytest.mark.parametrize("change", CASES, ids=lambda change: change.__name__)
def test_what_is_copied_names_it_or_the_answer_does(change, tmp_path):
    recording = made(change, tmp_path / "a.trace")
    words = CASES[change][1]
    listed = copyables(recording.timeline, None, recording.settings, LoadSettings())
    assert {each.key for each in listed if each.complete} == {"r", "j"}
    whole = {each.key: each.text() for each in listed}
    assert words in whole["r"].splitlines()[-1]
    assert words not in whole["r"].splitlines()[1]
    copied = json.loads(whole["j"])
    assert any(words in sentence for sentence in copied["made_with"])
    assert [words in " ".join(token["made_with"]) for token in copied["tokens"][-4:]] == [0, 0, 1, 1]
    assert copied["settings"]["temp"] == (1.5 if change is temperature else 0.8)


@pytest.mark.parametrize("change", CASES, ids=lambda change: change.__name__)
def test_nothing_is_said_of_a_text_that_the_model_and_its_sampler_made(change, tmp_path):
    case = Case()
    case.steps()
    save_as(tmp_path / "a.trace", [Entry(value, 0.1) for value in case.session.records], "test 1")
    recording = read(tmp_path / "a.trace")
    assert recording.made == []
    assert FORMATS["txt"](recording) == "Once upon a time, there was a little\n"
    assert "Made with" not in FORMATS["html"](recording)
    assert sessions.made_with(tmp_path / "a.trace") == ""


@pytest.mark.parametrize("change", [interventions, grammar, draft, order], ids=lambda change: change.__name__)
def test_the_list_of_sessions_names_it(change, tmp_path):
    made(change, tmp_path / "a.trace")
    (found,) = sessions.saved_sessions(tmp_path)
    assert CASES[change][1] in found.made
    assert found.tokens == (5 if change is interventions else 4)


def test_another_branch_than_the_current_one_says_what_it_was_made_with_itself(tmp_path):
    recording = made(interventions, tmp_path / "a.trace")
    first = next(iter(recording.timeline.tree.interventions))
    assert "L6 h1" in FORMATS["md"](recording)
    siblings = recording.timeline.tree.children[recording.timeline.tree.parent[first]]
    other = line(recording, next(node for node in siblings if node != first))
    assert other.made == []
    assert "Made with" not in FORMATS["txt"](other)
    assert "as it stands" in FORMATS["md"](other)
    assert "L6 h1 and L3 MLP off" in plainly(FORMATS["md"](other)), "its branch in the list does"


def test_a_branch_names_its_own_settings_and_not_those_at_the_end_of_the_session(tmp_path):
    case = Case()
    case.steps()
    fork = case.session.node
    case.change(replace(FIRST, temp=1.5))
    case.steps()
    save_as(tmp_path / "a.trace", [Entry(value, 0.1) for value in case.session.records], "test 1")
    recording = read(tmp_path / "a.trace")
    recording.timeline.visit(fork)
    recording.timeline.tree.children.pop(fork)
    assert "| temperature | 0.8 |" in FORMATS["md"](line(recording, fork))


def test_interventions_that_were_not_recorded_are_said_to_be_unknown(tmp_path):
    case = Case()
    case.session.step(origin="intervened")
    timeline = case.session.timeline()
    (only,) = made_with(timeline.tree, timeline.items)
    assert only.sentence == "Made with interventions: which was not recorded (step 3)"


def test_a_prompt_after_such_a_branch_is_under_its_interventions_too():
    case = Case()
    interventions(case)
    timeline = case.session.timeline()
    token = PromptToken(99, len(timeline.items), 5, " hi", b" hi", False)
    timeline.apply(PromptOpened(" hi", True, (token,), False, parent=timeline.tip, new_tree=False))
    assert timeline.under == OFF
    assert conditions(timeline.tree, timeline.items[-1]) == (
        TextCondition("interventions", *["L6 h1 and L3 MLP off"] * 2),
    )


def test_a_running_session_that_goes_on_changes_nothing_in_what_is_exported():
    case = Case()
    interventions(case)
    timeline = case.session.timeline()
    recording = snapshot(timeline, FIRST, None, "test 1")
    timeline.tree.interventions.clear()
    assert "L6 h1" in FORMATS["txt"](recording)

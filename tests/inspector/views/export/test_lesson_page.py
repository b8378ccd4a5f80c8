"""The page of a lesson: what it says, what it leaves out, and how the command takes lessons."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from engine.protocol import Candidates, RaceStep
from engine.recording import RecordingReader, save_as
from engine.settings import LoadSettings
from inspector.blocks.page import element, row, written
from inspector.cli.main import main
from inspector.demo import DEMONSTRATION
from inspector.documents.exports import EXPORTS
from inspector.documents.race import RACE_PART
from inspector.export.lesson_page import done, page, shown
from inspector.lessons.catalogue import Listed, of_recording, recording_of, shipped
from inspector.lessons.headless import record
from inspector.lessons.lesson import Beat
from inspector.lessons.reading import read
from inspector.state.timeline import Timeline
from tests.inspector.views.export.test_documents import BLOCKED, command

IMAGE = "<img src=x onerror=pwned=1>"
SCRIPT = "</script><script>pwned=1</script>"
TOKENS = {" girl": IMAGE, " little": SCRIPT, " dog": "\u202e\x1b[31m\u2028{{script}}"}
"""By what the model has: what the recording says in its place."""
SECRET = "nobody but the presenter"
LESSON = f"""+++
title = "{SCRIPT}"
about = "</p>{IMAGE}"
minutes = 3
prompt = "Once upon a time, there was a little"
settings = {{temp = 1.0, seed = 3}}
+++

## Begin {IMAGE}

Only a text, with {{next.entropy}} bits.

## The draw

All shares are laid end to end. </div>{SCRIPT}

```toml
show = "candidates"
look = "step 1"
act = "step"
answer = "last.text"
hide = ["picked", "text"]
number = "last.draw"
```

? Which token </p>{IMAGE}?

- girl
- boy
- {IMAGE}

> It fell on {{last.text}}. {SCRIPT}

Note: {SECRET}

## Without doing

```toml
show = "steps"
look = "step 1"
hide = ["probabilities"]
answer = "step(1).rank"
```

? Which rank had it?

- the first {{1}}
- another one {{2..}}

> It was number {{step(1).rank}}.

## Two beams

```toml
show = "beams"
act = "beams width=2 max_tokens=8"
answer = "beams.length"
```

? How long is the best?

- eight tokens {{8}}
- another length {{..8}}

> {{beams.length}} tokens, and greedy has {{beams.greedy_logprob:.2}}.

## Only doing

One more step.

```toml
show = "kv"
act = "step"
```

> The cache holds {{kv.tokens}} tokens now.
"""


def recorded(folder: Path) -> Listed:
    """The lesson, recorded live with the bundled model; then its tokens get other texts."""
    path = folder / "hostile.md"
    path.write_text(LESSON, encoding="utf-8")
    lesson, trace = read(path), recording_of(path)
    record(lesson, trace, LoadSettings("pocket"))
    with RecordingReader(trace) as reader:
        entries = [replace(entry, value=_poisoned(entry.value)) for entry in reader]
    save_as(trace, entries, "test", force=True)
    return Listed(0, path, lesson)


def _poisoned(value: Any) -> Any:
    if isinstance(value, str):
        return TOKENS.get(value, value)
    if isinstance(value, tuple):
        return tuple(map(_poisoned, value))
    if isinstance(value, Candidates):
        return Candidates(_poisoned(tuple(value)))
    if isinstance(value, Struct):
        return replace(value, **{each.name: _poisoned(getattr(value, each.name)) for each in fields(value)})
    return value


VOID = {"meta", "img", "br", "link", "input"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Listed:
    return recorded(tmp_path_factory.mktemp("lesson"))


class Outline(HTMLParser):
    """Names of a page's elements, and the texts in them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.mark.wide(5)
@pytest.mark.parametrize("listed", shipped(), ids=lambda listed: listed.lesson.id)
def test_the_page_has_each_beat_and_its_one_answer(listed: Listed) -> None:
    beats = shown(listed.lesson, listed.trace, EXPORTS)
    html = page(listed.lesson, listed.trace, EXPORTS)
    text = "".join(Outline(html).texts)
    assert len(beats) == len(listed.lesson.beats) == html.count('class="beat"')
    assert [int(each) for each in re.findall(r'data-right="(\d)"', html)] == [
        each.card.right for each in beats if each.beat.question is not None
    ]
    for number, each in enumerate(beats, 1):
        assert f"{number}/{len(beats)} {each.beat.title}" in text
        assert all(said in text for said in (*each.card.text, *each.card.why, each.card.question))
        for note in each.beat.notes:
            assert note not in text
    assert not re.search(
        r"""(\b(src|href|action)=|url\(|@import|https?:)""", html.replace("http://www.w3.org/2000/svg", "")
    )


def test_no_text_becomes_markup(hostile: Listed) -> None:
    html = page(hostile.lesson, hostile.trace, EXPORTS)
    outline = Outline(html)
    assert outline.open == []
    assert outline.names.count("script") == outline.names.count("style") == 1
    assert {"img", "iframe", "a", "link", "b>"}.isdisjoint(outline.names)
    assert {"src", "href", "style", "onerror", "onclick"}.isdisjoint(outline.attributes)
    text = "".join(outline.texts)
    assert text.count(IMAGE) > 5
    assert text.count(SCRIPT) > 5
    assert "{{script}}" in text  # of a token: what is put in is not looked through for slots
    assert not set("\u202e\x1b\u2028") & set(html)
    assert SECRET not in html


def test_what_is_to_be_predicted_is_not_in_the_view_before(hostile: Listed) -> None:
    _, draw, rank, beams, doing = shown(hostile.lesson, hostile.trace, EXPORTS)
    before = written(draw.before)
    assert "The text is hidden" in before
    assert "▶" not in before
    assert "fell on" not in before
    assert draw.after is not None
    assert "▶" in written(draw.after)
    assert "where ␣boy was taken" in written(draw.after)
    assert "%" not in written(rank.before)  # the steps have probabilities, the text has heat
    assert not re.search(r"\bh[1-5]\b", written(rank.before))
    assert "Beam search" not in written(beams.before)
    assert beams.after is not None
    assert "Beam search" in written(beams.after)
    assert not re.search(r">-\d", written(beams.after)), "true minus signs alone"
    assert doing.after is not None
    assert "KV cache" in written(doing.before)


def test_a_race_is_drawn_and_told() -> None:
    steps = [
        RaceStep(
            tokens, 5, " a", 2.0, float(tokens), 2.0 * tokens, 10.0 * tokens, 7, 7, 0.0, tokens * 1024, 0
        )
        for tokens in range(17, 33)
    ]
    html = "".join(map(written, RACE_PART.beat(Timeline(), steps, Beat("", 1))))
    assert ("<path" in html, "17.0 ms" in html, "32.0 ms" in html, "The same tokens" in html) == (True,) * 4
    assert list(RACE_PART.beat(Timeline(), [], Beat("", 1))) == []


def test_an_element_keeps_the_order_of_texts_and_elements() -> None:
    made = element("p", "a<", element("b", '"'), None, "&", "c", class_="x", aria_label='"<', hidden=False)
    assert written(made) == '<p class="x" aria-label="&quot;<">a&lt;<b>"</b>&amp;c</p>'
    assert written(row("1", element("i"))) == "<tr><td>1</td><td><i></i></td></tr>"


def test_what_is_done_is_told_in_words() -> None:
    for listed in shipped():
        for beat in listed.lesson.beats:
            if beat.act:
                assert re.fullmatch(r"[A-Z].+[^.]", done(beat.act), re.DOTALL)


# ---- the command ------------------------------------------------------------------------------


def test_the_command_takes_number_name_file_and_recording(hostile: Listed, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    first = shipped()[0]
    own = page(first.lesson, first.trace, EXPORTS)
    for arguments in ([first.lesson.id], ["1"], [str(first.path)], [str(first.trace)], ["--lesson", "1"]):
        assert main(["export", *arguments, "--force", "-o", str(out)]) == 0
        assert out.read_text(encoding="utf-8") == own
    moved = tmp_path / "elsewhere.trace.zst"
    shutil.copy(hostile.trace, moved)
    assert main(["export", str(moved), "--force", "-o", str(out)]) == 0
    assert 'class="beat"' not in out.read_text(encoding="utf-8")  # the usual page: its lesson isn't known
    assert main(["export", str(moved), "--lesson", str(hostile.path), "--force", "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8").count('class="beat"') == len(hostile.lesson.beats)


def test_another_format_says_that_the_cards_are_in_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "1", "--to", "txt", "-o", "-"]) == 0
    assert "Only --to html has the lesson's cards" in capsys.readouterr().err


@pytest.mark.slow
def test_it_needs_no_mlx_and_no_screen(tmp_path: Path) -> None:
    code = BLOCKED.replace('"numpy"', '"numpy", "textual"')
    done = command("export", "1", "--to", "html", cwd=tmp_path, code=code)
    assert (done.returncode, done.stdout) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [f"{shipped()[0].lesson.id}.html"]


def test_other_markdown_beside_a_trace_is_no_lesson(hostile: Listed, tmp_path: Path) -> None:
    trace = tmp_path / "session.trace.zst"
    shutil.copy(hostile.trace, trace)
    (tmp_path / "session.md").write_text("# A report\n")
    assert of_recording(trace) is None
    assert of_recording(Path("session.trace")) is None
    beside = of_recording(shipped()[0].trace)
    assert beside is not None
    assert (beside.number, beside.path) == (1, shipped()[0].path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch.md", "--to", "html"], "nosuch.md"),
        (["{faulty}", "--to", "html"], "faulty.md:4: There is no card."),
        (["{alone}", "--to", "html"], "no recording"),
        (["1", "--node", "3", "--to", "html"], "--node is for sessions"),
        (["--lesson", "1", "--to", "md"], "--lesson is for web pages"),
        (["--lesson", "none", "--to", "html"], "No lesson is called “none”"),
        ([str(DEMONSTRATION), "--lesson", "1", "--to", "html"], "another version"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    said: str,
    hostile: Listed,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.md").write_text('+++\ntitle = "x"\n+++\n')
    shutil.copy(hostile.path, tmp_path / "alone.md")
    given = [each.format(faulty="faulty.md", alone="alone.md") for each in arguments]
    assert main(["export", *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))

"""A tool from outside: what a person would write to add one, and that nothing else has to be touched for it.

The tool is the part between the two lines of dashes; of the program's own files only the table of keys knows of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace
from rich.segment import Segment
from textual.content import Content

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.blocks.page import row, table
from inspector.display import visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.keys import KEYS, TABS_OF, with_keys
from inspector.main.dialogs.help import HelpDialog
from inspector.main.key_table import available
from inspector.main.tool import Tool, ToolActions
from inspector.session.playback import Opening
from inspector.session.replay_backend import REFUSED
from inspector.views import TOOLS
from inspector.widgets.actions import Action, Needs
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.inks import panel_css
from tests.inspector.fakes import Session
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig
from tests.inspector.views.recordings.test_replay_screen import trace

# ---- the tool ---------------------------------------------------------------------------------


class WordsPanel(Canvas, can_focus=True):
    """How often each word was said."""

    DEFAULT_CSS = panel_css("WordsPanel")

    def draw(self, width: int, height: int) -> list[Row]:
        words = Counter("".join(item.text for item in self.timeline.items).split()) if self.timeline else {}
        self.title(Content("Words"), Content(f"{len(words)} different"))
        ranked = sorted(words.items(), key=lambda item: -item[1])
        return [[Segment(f"{count:4} {word}")] for word, count in ranked[:height]]


class WordsActions(ToolActions):
    """Counts words."""

    def show(self) -> None:
        self.host.panel(WordsPanel).show(self.timeline)


TRIAL = Tool(
    "words", "Words", WordsActions,
    actions=(Action("words", "Count words", "Show how often each word was said.", lambda own: own.host.go_to("words"),
                    Needs.DISTRIBUTION, hint="words", worth=20, place=190, looks=True, view="words"),),
    panel=WordsPanel,
    situation="Counting words. Press {words} or esc to go back",
)  # fmt: skip
# ---- the tests --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key and its tab, as `inspector/keys.py` would have them."""
    monkeypatch.setitem(cast("dict[str, str]", KEYS), "words", ")")
    monkeypatch.setitem(cast("dict[str, str]", TABS_OF), "words", "1")


def run(
    test: Callable[[Rig], Awaitable[None]],
    size: tuple[int, int] = (120, 40),
    trace: Path | None = None,
    tools: Sequence[Tool] = (*TOOLS, TRIAL),
) -> None:
    """Run a test in an application with the tool, on a fake engine or on a recording."""
    engine, opening = FakeEngine(), Opening(trace) if trace is not None else None
    app = InspectorApp(
        LoadSettings(), Settings(), Prefill("Once upon", False), engine=engine, trace=opening, tools=tools
    )

    async def body() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            while opening is not None and (app.playback.player is None or not app.playback.player.settled):
                await pilot.pause(0.02)
            await test(Rig(pilot, engine, Session()))

    run_quickly(body())


def panel(rig: Rig) -> WordsPanel:
    return rig.app.main.query_one(WordsPanel)


def drawn(rig: Rig) -> bool:
    """Whether the panel is on screen, with a line of it."""
    found = panel(rig)
    [text] = {item.text for item in rig.timeline.items[:1]}
    return bool(found.display and found.size.area) and f"   1 {text.strip()}" in rig.screen_text()


IMPORTS = {"Counter", "Segment", "Content", "Canvas", "Row", "panel_css", "Tool", "Action"}
"""One of each line that the tool needs at the top of its file."""


def test_it_takes_less_than_forty_lines() -> None:
    lines = Path(__file__).read_text().splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("# ---- the tool --"))
    last = next(place for place, line in enumerate(lines) if line.startswith("# ---- the tests --"))
    imports = [
        line for line in lines[:first] if " import " in line and IMPORTS & set(re.findall(r"\w+", line))
    ]
    assert len(imports) == len(IMPORTS) - 1  # Canvas and Row come in one
    assert len([*imports, *lines[first + 1 : last]]) < 40


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
def test_its_key_shows_its_panel_at_every_size(size: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        assert not panel(rig).display
        await rig.press(")")
        assert drawn(rig)
        assert panel(rig).has_focus
        assert rig.status == "Counting words. Press ) or esc to go back"
        await rig.press("escape")
        assert not panel(rig).display

    run(test, size)


def test_it_follows_the_steps() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready(2)
        await rig.press(")")
        before = rig.screen_text()
        await rig.push(rig.session.steps(3))
        assert rig.screen_text() != before
        assert f"{len(''.join(item.text for item in rig.timeline.items).split())}" in rig.screen_text()

    run(test)


def test_the_finder_the_help_and_the_line_of_keys_know_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        views, *_, footer = rig.screen_text().splitlines()[2:]
        assert ") words" in views
        assert ") words" in footer
        await rig.press("question_mark")
        assert isinstance(rig.app.top, HelpDialog)
        await rig.until(lambda: "Count words." in rig.screen_text())
        assert "Count words. Show how often each word was said." in rig.screen_text()
        await rig.press("escape")
        await rig.from_finder("count words", "Count words")
        await rig.until(lambda: drawn(rig))

    run(test, (140, 220))


def test_it_is_grey_and_refused_before_there_is_a_prompt() -> None:
    async def test(rig: Rig) -> None:
        key = rig.app.main.table["words"]
        assert not available(key, rig.app.controller)
        await rig.press(")")
        assert not panel(rig).display
        assert rig.status == "The model is still loading: ) works once the prompt has gone through it"
        await rig.ready()
        assert available(key, rig.app.controller)

    run(test)


def test_a_recording_has_it_unless_it_needs_an_engine(tmp_path: Path) -> None:
    trace(tmp_path / "a.trace")
    [action] = TRIAL.actions
    engine_needed = replace(TRIAL, actions=(replace(action, needs=Needs.DISTRIBUTION | Needs.ENGINE),))

    async def shown(rig: Rig) -> None:
        await rig.press(")")
        assert drawn(rig)

    async def refused(rig: Rig) -> None:
        await rig.press(")")
        assert rig.status == with_keys(REFUSED)
        assert not panel(rig).display

    run(shown, trace=tmp_path / "a.trace")
    run(refused, trace=tmp_path / "a.trace", tools=(*TOOLS, engine_needed))


def exhibits(of: Exported) -> Iterator[Exhibit]:
    """The whole of its part of an export."""
    words = Counter("".join(item.text for item in of.items).split()).most_common(20)
    rows = [row(visible(word), str(count)) for word, count in words]
    yield Exhibit("words", "The words", lambda: [table("", ("word", "times"), rows)])


PART = ExportPart("words", exhibits)


def test_it_brings_its_part_of_an_export_in_four_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def test(rig: Rig) -> None:
        await rig.ready(3)
        await rig.do("export")
        assert "✓ words" in rig.screen_text()
        await rig.press("right", "ctrl+s")
        await rig.until(lambda: rig.status.startswith("Exported"))
        [report] = tmp_path.glob("*.md")
        assert "### The words\n\n| word | times |" in report.read_text()

    run(test, tools=(*TOOLS, replace(TRIAL, exports=(f"{__name__}:PART",))))

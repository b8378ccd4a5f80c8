"""Screens and dialogs are left once, whatever is pressed meanwhile, and what comes after that ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.events import Click, Key

from engine import protocol
from engine.grammar_settings import Grammar
from engine.protocol import (
    Ended,
    Failure,
    Measuring,
    ReadGrammar,
    Recalled,
    Received,
    Record,
    Tokenized,
    TokensFound,
)
from engine.settings import LoadSettings
from inspector.main.dialogs.field import JumpDialog
from inspector.main.dialogs.finder import FinderDialog
from inspector.main.panels.candidates import CandidatesPanel
from inspector.recordings.sessions import SavedSession
from inspector.views import recordings as dialog
from inspector.views.find import FindDialog
from inspector.views.grammar_dialog import GrammarDialog
from inspector.views.recordings import SessionsDialog
from inspector.views.tree import TreePanel
from inspector.widgets.fields import SafeTextArea
from inspector.widgets.lists import SafeOptionList
from tests.inspector.rig import Rig, run

OVERLAYS = [
    "prompt", "open", "facts", "jump", "sampling", "own_text", "find", "breakpoints", "name", "export", "save_as",
    "sessions", "help", "finder", "profile", "compare_kv", "race", "beams", "compare", "modules",
]  # fmt: skip
"""Actions of the main screen that open a screen or a dialog."""
BURSTS = [
    ("enter", "enter", "enter"),
    ("escape", "escape", "ctrl+s", "ctrl+s", "space"),
    ("question_mark", "question_mark", "right", "escape", "escape"),
    ("ctrl+p", "ctrl+p", "down", "enter", "enter", "enter"),
]


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a dialog saves goes nowhere else."""
    monkeypatch.chdir(tmp_path)


def burst(rig: Rig, *keys: str) -> None:
    """Keys that lie in the terminal's buffer together: nothing happens between them."""
    for key in keys:
        rig.app.post_message(Key(key, key if len(key) == 1 else None))


async def branched(rig: Rig) -> None:
    """A session with two branches, so that every key opens something."""
    await rig.ready()
    node = rig.session.node
    first = min(rig.session.tips)
    tip = rig.session.tips[first]
    await rig.push(rig.session.choose(first, next(c.id for c in tip.candidates if c.id != tip.picked)))
    await rig.push([rig.session.move(node)])


def late() -> Iterator[Record]:
    """What the engine may have been about to answer: of every kind that a screen or a dialog waits for."""
    yield TokensFound(0, "", (), 0, 0.0)
    yield Tokenized("x", ())
    yield Recalled((0,), ())
    for command in (protocol.FindTokens, protocol.Tokenize, protocol.Profile, protocol.Race):
        kind = command.kind
        yield Measuring(kind, 1, 2, "detail")
        yield Failure(kind, "It failed.", "Try again.")
        yield Ended(kind)


async def gone(rig: Rig, records: Iterable[Record] = ()) -> None:
    """Let what was left go, with records in every turn of it."""
    waiting = list(records)
    for _ in range(40):
        await asyncio.sleep(0)
        if waiting:
            for record in waiting:
                rig.app.inbox.emit(Received(record))
            rig.app.inbox.drain()


@pytest.mark.parametrize(
    "bursts", [BURSTS[1:2], pytest.param(BURSTS, marks=pytest.mark.slow)], ids=["one", "all"]
)
async def test_keys_pressed_twice_close_no_other_screen(rig: Rig, bursts: list[tuple[str, ...]]) -> None:
    async def twice(case: tuple[str, tuple[str, ...]]) -> None:
        action, keys = case
        await rig.do(action)
        assert rig.app.top is not rig.app.main
        burst(rig, *keys)
        await rig.pilot.pause()
        kinds = [
            type(screen) for screen in (*rig.app.screen_stack, rig.app.main.open_view) if screen is not None
        ]
        assert kinds[0] is type(rig.app.main)
        assert len(kinds) == len({*kinds})

    await branched(rig)
    await rig.through([(action, keys) for action in OVERLAYS for keys in bursts], twice)


@pytest.mark.wide(1)
@pytest.mark.parametrize(("tab", "key"), [("5", "P"), ("4", "c"), ("6", "W")])
@pytest.mark.screen(size=(120, 40))
async def test_what_changes_while_a_screen_opens_is_shown_though_that_is_left_before_it_is_painted(
    rig: Rig, tab: str, key: str
) -> None:
    await branched(rig)
    await rig.press(tab)
    burst(rig, key)
    rig.resize(80, 24)
    burst(rig, "escape")
    await rig.until(lambda: rig.app.top is rig.app.main)
    await rig.pilot.pause()
    widths = {panel.region.width for panel in rig.app.main.query("#panels > .panel") if panel.display}
    assert widths == {80}


async def test_a_dialog_asks_nothing_of_its_widgets_while_the_program_shuts_down(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timers may go on after they have gone: a search that follows the selected token asked for its frame."""
    await rig.ready()
    await rig.do("find")
    found = rig.app.top
    assert isinstance(found, FindDialog)
    await rig.push([rig.session.step()])
    with monkeypatch.context() as patched:  # its own timer may come while they go
        patched.setattr(found, "_ask", lambda: None)
        await found.query_one("#dialog").remove()
    monkeypatch.setattr(rig.app, "_running", False)
    found._follow()
    monkeypatch.undo()
    found.dismiss()


@pytest.mark.parametrize("action", ["candidates", "compare"])
async def test_q_quits_from_every_view(rig: Rig, action: str) -> None:
    await branched(rig)
    await rig.do(action)
    burst(rig, "q")
    await rig.until(lambda: rig.app.leaving)


@pytest.mark.parametrize("way", ["finder", "click"])
async def test_quitting_by_finder_and_click_asks_nothing(rig: Rig, way: str) -> None:
    await branched(rig)
    await rig.press("question_mark")
    burst(rig, "escape")
    await rig.until(lambda: rig.app.top is rig.app.main)
    if way == "finder":
        await rig.from_finder("quit", "Quit")
    else:
        keys = rig.screen_text().splitlines()
        await rig.pilot.click(offset=(keys[-1].index("q quit"), len(keys) - 1))
        await rig.pilot.pause()
    assert rig.app.leaving


@pytest.mark.parametrize(
    "actions", [OVERLAYS[::4], pytest.param(OVERLAYS, marks=pytest.mark.slow)], ids=["some", "all"]
)
async def test_answers_that_come_after_a_screen_was_left_are_nobodys(rig: Rig, actions: list[str]) -> None:
    async def left(action: str) -> None:
        await rig.do(action)
        assert rig.app.top is not rig.app.main
        rig.app.top.dismiss()
        await gone(rig, [*late(), rig.session.step()])
        await rig.pilot.pause()
        assert rig.app.top is rig.app.main

    await branched(rig)
    await rig.through(actions, left)


def test_what_is_done_under_another_screen_waits_until_that_has_gone() -> None:
    results: list[int | None] = []

    async def test(rig: Rig) -> None:
        await rig.ready()
        asking = JumpDialog(1, 6)
        rig.app.push_screen(asking, results.append)
        await rig.pilot.pause()
        await rig.press("ctrl+p")
        asking.dismiss(4)
        await rig.pilot.pause()
        assert isinstance(rig.app.top, FinderDialog)
        await rig.press("escape")
        assert rig.app.top is rig.app.main

    run(test)
    assert results == [4]


async def test_a_search_goes_on_where_its_logits_come_under_the_finder(rig: Rig) -> None:
    await rig.ready()
    await rig.press("left", "slash")
    assert isinstance(rig.app.top, FindDialog)
    await rig.push([Failure("FindTokens", "Not kept.", "Compute them again."), Ended("FindTokens")])
    await rig.press("ctrl+r", "ctrl+p")
    asked = len(rig.engine.asked)
    await rig.push([Recalled((rig.timeline.before,), ()), Ended("Recall")])
    assert len(rig.engine.asked) == asked + 1


# ---- lists of options -------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["page_down", "page_up", "select", "cursor_down", "last"])
async def test_a_list_takes_keys_before_it_is_laid_out(action: str) -> None:
    class Lists(App[None]):
        def compose(self) -> ComposeResult:
            options = SafeOptionList("one", "two")
            options.display = False
            yield options

    async with Lists().run_test() as pilot:
        options = pilot.app.query_one(SafeOptionList)
        options.highlighted = 0
        getattr(options, f"action_{action}")()
        options._options.clear()  # as while the list is filled again
        getattr(options, f"action_{action}")()


async def test_the_sessions_take_keys_while_they_are_listed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = [SavedSession(tmp_path / str(n), 0.0, 100, None, 0, "damaged") for n in range(30)]
    monkeypatch.setattr(dialog, "saved_sessions", lambda: listed)

    await rig.ready()
    await rig.press("6")
    for _ in range(5):
        burst(rig, "ctrl+o", "pagedown", "pagedown", "enter", "pageup")
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, SessionsDialog)
        await rig.press("escape")


# ---- clicks on what is no longer there --------------------------------------------------------


async def test_a_click_on_a_candidate_after_a_failed_load_is_nobodys(rig: Rig) -> None:
    await rig.ready()
    panel = rig.app.main.panel(CandidatesPanel)
    rig.app.controller.setup.open(LoadSettings("other"))
    await rig.push([rig.session.fail("No such model.", "Check the name."), Ended("Load")])
    await rig.pilot.click(panel, offset=(4, 2))
    assert rig.app.screen is rig.app.main
    assert panel.candidate is None


async def test_a_click_on_a_branch_that_went_meanwhile_is_nobodys(rig: Rig) -> None:
    await branched(rig)
    await rig.do("tree")
    panel = rig.app.main.query_one(TreePanel)
    row = panel.view.row
    for chain, meta in ((1, {"row": 99, "knot": True}), (2, {"row": 99})):
        panel.on_click(
            Click(panel, 4, 4, 0, 0, 1, False, False, False, style=Style.from_meta(meta), chain=chain)
        )
    await rig.pilot.pause()
    assert panel.view.row == row


@pytest.mark.screen(size=(120, 40))
async def test_what_a_screen_moved_is_shown_when_that_is_left(rig: Rig) -> None:
    """A screen may move the cursor, as a step with the second model does: the panels below follow."""
    await branched(rig)
    await rig.do("profile")
    timeline = rig.app.controller.timeline
    timeline.select(timeline.step_slots[0])
    await rig.press("escape")
    await rig.until(lambda: "at step 1 " in rig.screen_text())


async def test_what_a_dialog_is_told_while_the_program_ends_is_nobodys(rig: Rig) -> None:
    """Its widgets go one by one then, and nobody says that they do."""
    await rig.ready()
    await rig.press("J")
    dialog = rig.app.top
    rig.app.exit()
    await dialog.query_one("#grammar-remark").remove()
    dialog.post_message(SafeTextArea.Changed(dialog.query_one("#grammar-text", SafeTextArea)))
    await rig.pilot.pause()
    assert rig.app._exception is None


async def test_a_dialog_that_was_left_asks_nothing_more(rig: Rig) -> None:
    """Its widgets go a moment later: an answer would find none of them."""
    await rig.ready()
    await rig.press("J")
    dialog = rig.app.top
    called: list[str] = []
    dialog.set_timer(0.001, lambda: called.append("before"))
    await rig.until(lambda: called)
    dialog._dismissed = True
    dialog.set_timer(0.001, lambda: called.append("left"))
    rig.app.set_timer(0.05, lambda: called.append("after"))
    await rig.until(lambda: "after" in called)
    assert called == ["before", "after"]


async def test_what_a_dialog_asked_is_not_answered_while_the_program_ends(rig: Rig) -> None:
    await rig.ready()
    await rig.press("J")
    dialog = rig.app.top
    assert isinstance(dialog, GrammarDialog)
    called: list[object] = []
    dialog._lookup.ask(ReadGrammar(0, Grammar("regex", "a")), called.append)
    rig.app._exit = True  # the program ends, and its widgets go one by one
    await dialog.query_one("#grammar-remark").remove()
    client = rig.app.controller.client
    (asked,) = [each for each in client.requests if client.requests[each].command.kind == "ReadGrammar"]
    rig.app.inbox.emit(Received(Ended("ReadGrammar"), asked))
    rig.app.inbox.drain()
    assert called == []

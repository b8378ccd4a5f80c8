"""What is typed behind a key that opens or leaves something goes where it would have gone a second later."""

from __future__ import annotations

import time

import pytest
from textual.app import App, ComposeResult
from textual.events import Event, Key, Paste
from textual.widgets import Input, Static, TextArea

from inspector.main.dialogs.field import JumpDialog
from inspector.main.dialogs.prompt import PromptDialog
from inspector.main.screen import MainScreen
from inspector.views.find import FindDialog
from inspector.widgets.keys_in_order import KeysInOrder
from tests.inspector.rig import Rig

NAMES = {"/": "slash", "?": "question_mark"}


def typed(rig: Rig, *keys: str) -> None:
    """Keys that lie in the terminal's buffer together: nothing happens between them."""
    for key in keys:
        rig.app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))


def field(rig: Rig) -> str:
    """The text of the field that has the focus."""
    focused = rig.app.focused
    assert isinstance(focused, Input | TextArea)
    return focused.value if isinstance(focused, Input) else focused.text


async def calm(rig: Rig) -> None:
    """Wait until all keys were dealt with, and what follows from them."""
    await rig.until(lambda: not rig.app.keys.busy)
    await rig.pilot.pause()
    await rig.until(lambda: not rig.app.keys.busy)


async def test_a_text_behind_the_key_of_a_dialog_is_in_its_field(rig: Rig) -> None:
    await rig.ready()
    for turn in range(3):  # the first builds the dialog, the others show it again
        typed(rig, "p", "X", "q", "r", "backspace", "Z")
        await calm(rig)
        assert isinstance(rig.app.screen, PromptDialog)
        assert field(rig).endswith("XqZ" * (turn + 1))
        typed(rig, "escape", "g", "2")
        await calm(rig)
        assert isinstance(rig.app.screen, JumpDialog)
        assert field(rig) == "2"
        await rig.press("escape")
    assert "TakeStep" not in rig.engine.names


async def test_what_is_pasted_behind_a_key_arrives_in_its_place(rig: Rig) -> None:
    await rig.ready()
    typed(rig, "/", "a")
    rig.app.post_message(Paste("bc"))
    typed(rig, "d")
    await calm(rig)
    assert isinstance(rig.app.screen, FindDialog)
    assert field(rig) == "abcd"


async def test_a_key_that_leaves_is_followed_by_those_of_the_screen_below(rig: Rig) -> None:
    await rig.ready()
    typed(rig, "w", "escape", "t", "t", "?", "escape", "space")
    await calm(rig)
    assert isinstance(rig.app.screen, MainScreen)
    assert rig.engine.names.count("TakeStep") == 1


class Vanishing(Static, can_focus=True):
    """Goes with the first key."""

    async def on_key(self, event: Key) -> None:
        await self.remove()


class Small(App[None]):
    """Notes the keys that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = KeysInOrder(self, super().on_event, lambda: self.screen)
        self.seen: list[str] = []

    def compose(self) -> ComposeResult:
        yield Vanishing()
        yield Static("another")

    def on_mount(self) -> None:
        self.query_one(Vanishing).focus()

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key) and not event.is_forwarded:
            await self.keys.take(event)
        else:
            await super().on_event(event)

    def on_key(self, event: Key) -> None:
        self.seen.append(event.key)


async def test_a_widget_that_goes_with_the_key_holds_up_no_other() -> None:
    app = Small()
    async with app.run_test() as pilot:
        begun = time.monotonic()
        for key in "xyz":
            app.post_message(Key(key, key))
        while app.seen[-2:] != ["y", "z"]:
            await pilot.pause(0.01)
            assert time.monotonic() - begun < 30, app.seen
        assert not app.query(Vanishing)


@pytest.mark.wide(2)
@pytest.mark.parametrize("key", "posigabwyzBcWPQ/?NE")
async def test_whatever_is_opened_and_left_at_once_takes_none_of_the_keys_behind(rig: Rig, key: str) -> None:
    await rig.ready()
    typed(rig, key, "escape", "escape", "g", "2")
    await calm(rig)
    assert isinstance(rig.app.screen, JumpDialog)
    assert field(rig) == "2"

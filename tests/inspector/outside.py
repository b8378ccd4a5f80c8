"""The program as its user has it: started by a command line, given keys, and read as painted lines.

What this module knows of the program's inside stands under "What it knows of the inside"; a test that uses it knows
nothing, so that it says the same of a program that is built another way.
"""

from __future__ import annotations

import asyncio
import gc
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any
from unittest.mock import patch

from rich.segment import Segment
from textual import events
from textual.app import App
from textual.geometry import Size
from textual.keys import KEY_NAME_REPLACEMENTS
from textual.pilot import Pilot

from inspector.cli import main

PATIENCE = 60.0
"""Seconds for what should take one: machines are busy."""
FRAMES = re.compile(r"[│┃╭╮╰╯─━┏┓┗┛▌▐]")
TITLE = re.compile(r"[╭┏][─━] (.+?) [─━]")
KEYS: Mapping[str, str] = {
    "⏎": "enter", "⌫": "backspace", "esc": "escape", "del": "delete", "pgup": "pageup", "pgdn": "pagedown",
    "↑": "up", "↓": "down", "←": "left", "→": "right", " ": "space",
}  # fmt: skip
"""What the help and the line of keys call keys, and Textual's names for them."""


def textual_key(key: str) -> str:
    """A key as Textual names it.

    Args:
        key: As it is typed (`?`), as the help writes it (`⏎`, `shift+←`), or as Textual names it.
    """
    modifiers, plus, last = key.rpartition("+") if len(key) > 1 else ("", "", key)
    name = KEYS.get(last, last)
    if len(name) == 1 and not name.isalnum():
        name = unicodedata.name(name).lower().replace("-", "_").replace(" ", "_")
    return f"{modifiers}{plus}{KEY_NAME_REPLACEMENTS.get(name, name)}"


def typed(key: str) -> str | None:
    """The character that a key types."""
    return " " if key == "space" else key if len(key) == 1 else None


# ---- What it knows of the inside ----------------------------------------------------------------


def painted(app: App[Any]) -> list[list[Segment]]:
    """The lines of the terminal, in segments. `App.export_screenshot` has the same, and takes 20 times as long
    (`test_what_is_read_is_what_a_picture_of_the_screen_shows`)."""
    return [[*strip] for strip in app.screen._compositor.render_strips()]


def busy(app: Any) -> bool:
    """Whether anything is under way that a user would wait for."""
    if not app.is_running or app.main is None or not app.main.is_attached:
        return False
    working = app.controller.client.outstanding or app.inbox.waiting or app.keys.busy
    screen = app.screen
    stale = app.main._stale or getattr(app.top, "_stale", False) or not getattr(app.top, "takes_keys", True)
    stale = (
        stale
        or screen._layout_required
        or (screen._update_timer is not None and screen._update_timer._active.is_set())
    )
    lesson = app.main.own("lessons").play
    return bool(working or stale or (lesson is not None and lesson.stage.busy))


async def handled() -> None:
    """Let all messages be handled that widgets have: `Pilot.pause` has each widget handle one more, three times."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:
        await asyncio.sleep(0)


def began(app: Any) -> bool:
    """Whether the model is loaded and the prompt is read, or the recording is open."""
    return app.controller.timeline.prompts.prefilled


def give_key(app: App[Any], key: str) -> None:
    """A key, as the terminal's driver hands it over."""
    app.post_message(events.Key(textual_key(key), typed(key)))


def give_size(app: App[Any], columns: int, rows: int) -> None:
    """Another size, as the terminal's driver hands it over."""
    size = Size(columns, rows)
    if app._driver is not None:
        app._driver._size = size  # type: ignore[attr-defined]
    app.post_message(events.Resize(size, size))


def failure(app: App[Any]) -> BaseException | None:
    """What has ended the program."""
    return app._exception


# ---- The rest knows what a user knows -----------------------------------------------------------


class Outside:
    """Somebody at the keyboard.

    Args:
        pilot: Of the running program.
    """

    def __init__(self, pilot: Pilot[Any]) -> None:
        self.app, self._pilot = pilot.app, pilot

    @property
    def lines(self) -> list[str]:
        """The painted lines."""
        return ["".join(part.text for part in line).rstrip() for line in painted(self.app)]

    @property
    def text(self) -> str:
        """The painted lines as one text."""
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """The text without frames, with single spaces."""
        return " ".join(FRAMES.sub(" ", self.text).split())

    @property
    def titles(self) -> list[str]:
        """What the frames are called."""
        return [found.strip() for line in self.lines for found in TITLE.findall(line)]

    @property
    def looks(self) -> list[list[Segment]]:
        """The painted lines with their colours: a highlight is nothing else."""
        return painted(self.app)

    @property
    def running(self) -> bool:
        """Whether the program runs; what ended it is raised."""
        if (error := failure(self.app)) is not None:
            raise AssertionError(f"the program ended: {error!r}") from error
        return self.app.is_running and self.app.return_code is None

    async def pause(self) -> None:
        """Let what was begun go on."""
        await asyncio.sleep(0.005)

    async def press(self, *keys: str) -> None:
        """Press keys, and wait after each until nothing is under way."""
        for key in keys:
            await self.burst(key)

    async def burst(self, *keys: str) -> None:
        """Press keys faster than anything can answer, and wait until nothing is under way."""
        for key in keys:
            give_key(self.app, key)
        await self.idle()

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        end, quiet = monotonic() + PATIENCE, 0
        while quiet < 2 and self.running:
            assert monotonic() < end, f"it never came to rest:\n{self.text}"
            await self.pause()
            await handled()
            quiet = 0 if busy(self.app) else quiet + 1

    async def until(self, wanted: str | Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait for words, or for what can be seen."""
        end = monotonic() + seconds
        while not (wanted in self.words if isinstance(wanted, str) else wanted()):
            assert self.running, "the program ended"
            assert monotonic() < end, f"{wanted!r} never came:\n{self.text}"
            await self.pause()

    async def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        give_size(self.app, columns, rows)
        await self.until(lambda: len(self.lines) == rows)  # it is laid out some turns later
        await self.idle()


def program(arguments: Sequence[str]) -> App[Any]:
    """The program that a command line begins, about to run."""
    found: list[App[Any]] = []

    def run(app: App[Any], *_: object, **__: object) -> None:
        found.append(app)
        raise KeyboardInterrupt  # which leaves the command as ctrl+c does

    thresholds = gc.get_threshold()
    with patch.object(App, "run", run), patch.dict("os.environ", {"TEXTUAL_DRIVER": "none"}):
        status = main.main([*arguments])
    gc.set_threshold(*thresholds)
    assert found, f"it opened no screen, and ended with {status}"
    return found[0]


@asynccontextmanager
async def outside(*arguments: str, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Outside]:
    """The running program, once it has begun.

    Args:
        arguments: As on the command line, after `inspector`.
        size: Of the terminal.
    """
    app = program(arguments)
    async with app.run_test(size=size, notifications=True) as pilot:
        user = Outside(pilot)
        await user.until(lambda: began(app))
        await user.until(lambda: "Reading the recording" not in user.words)
        await user.idle()
        yield user
    assert failure(app) is None

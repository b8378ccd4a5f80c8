"""A bare app around one panel, and how to read what it drew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rich.color import ColorSystem
from rich.style import Style
from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widget import Widget

from tests.inspector.quick_clock import run_quickly

Arguments = ParamSpec("Arguments")
Panel = TypeVar("Panel", bound=Widget)
Said = TypeVar("Said", bound=Message)


class PanelApp(App[None]):
    """Holds one panel, on a terminal with or without colours."""

    CSS = "PanelApp #panel { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, panel: Widget, colours: bool, theme: str) -> None:
        super().__init__()
        self.panel = panel
        self.panel.id = "panel"
        self.heard: list[Message] = []
        self.console._color_system = ColorSystem.TRUECOLOR if colours else None
        self.theme = theme

    def compose(self) -> ComposeResult:
        yield self.panel

    def hear(self, message: Message) -> None:
        """Keep a message, once."""
        if not any(message is known for known in self.heard):
            self.heard.append(message)


@asynccontextmanager
async def shown(
    panel: Panel, size: tuple[int, int] = (60, 20), colours: bool = True, theme: str = "textual-dark"
) -> AsyncIterator[tuple[Panel, Pilot[None]]]:
    """The panel on a screen of this size."""
    app = PanelApp(panel, colours, theme)
    async with app.run_test(size=size, message_hook=app.hear) as pilot:
        await pilot.pause()
        yield panel, pilot


def on_screen(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Run an async test to its end."""

    @wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_quickly(test(*args, **kwargs))

    return run


def heard(pilot: Pilot[None], kind: type[Said]) -> list[Said]:
    """The messages of a kind that were posted, oldest first."""
    app = pilot.app
    assert isinstance(app, PanelApp)
    return [message for message in app.heard if isinstance(message, kind)]


def lines(pilot: Pilot[None]) -> list[str]:
    """The screen as lines of text."""
    return [strip.text.rstrip() for strip in pilot.app.screen._compositor.render_strips()]


def screen(pilot: Pilot[None]) -> str:
    """The screen as one text."""
    return "\n".join(lines(pilot))


def find(pilot: Pilot[None], text: str) -> tuple[int, int]:
    """Column and line of a text on the screen."""
    for y, line in enumerate(lines(pilot)):
        if (x := line.find(text)) >= 0:
            return x, y
    raise AssertionError(f"{text!r} is not on the screen:\n{screen(pilot)}")


def style_at(pilot: Pilot[None], text: str) -> Style:
    """The style of the first character of a text on the screen."""
    x, y = find(pilot, text)
    at = 0
    for segment in pilot.app.screen._compositor.render_strips()[y]:
        at += len(segment.text)
        if x < at:
            return segment.style or Style()
    raise AssertionError(text)

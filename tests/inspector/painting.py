"""Applications that are painted when a test looks at them, or once when they are left.

A terminal is painted up to sixty times a second, several times for one key of a pilot. A test reads the screen by
itself where it wants to know what stands there, from the same widgets, and nobody reads the rest: a third of what a
test of the screen computed. Everything else (layouts, styles, what a panel draws for what it is shown) goes on as in
a terminal; what is painted without a look is the business of tests/fuzz, and of what runs within `painting`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from rich.cells import cell_len
from textual._compositor import Compositor, CompositorUpdate
from textual._context import visible_screen_stack
from textual.app import App
from textual.dom import DOMNode
from textual.strip import Strip

_toolkits_update, _toolkits_strips = Compositor.render_update, Compositor.render_strips
_toolkits_shutdown = App._shutdown
_seen: WeakSet[DOMNode] = WeakSet()
"""Screens that a test has looked at."""


def _no_update(compositor: Compositor, full: bool = False, **how: Any) -> Any:
    if full:  # a picture of the screen
        return _toolkits_update(compositor, full, **how)
    compositor._dirty_regions.clear()
    return None


def _strips(compositor: Compositor, size: Any = None) -> list[Strip]:
    if compositor.root is not None:  # what lies under a dialog is known where the toolkit paints
        visible_screen_stack.set(compositor.root.app._background_screens)
        _seen.add(compositor.root)
    return _toolkits_strips(compositor, size)


async def _shutdown(app: App[Any]) -> None:
    left = app.is_running and app._exception is None and app._screen_stacks[app._current_mode]
    if left and app.screen not in _seen:  # it can be painted, too, where nobody has looked
        app.screen._compositor.render_strips()
    await _toolkits_shutdown(app)


def paint_when_looked_at() -> None:
    """Have no application of this process painted but where somebody reads its screen, or as a screen is left that
    nobody has read."""
    App._shutdown = _shutdown  # type: ignore[method-assign]
    Compositor.render_update = _no_update  # type: ignore[method-assign]
    Compositor.render_strips = _strips  # type: ignore[method-assign]


@contextmanager
def painting() -> Iterator[None]:
    """Paint as in a terminal."""
    before, Compositor.render_update = Compositor.render_update, _toolkits_update  # type: ignore[method-assign]
    try:
        yield
    finally:
        Compositor.render_update = before  # type: ignore[method-assign]


class Terminal:
    """The cells that an application paints: what a person sees, also of what was changed and not painted again.

    Args:
        app: Is painted within `painting`.
    """

    def __init__(self, app: App[Any]) -> None:
        self._app, self._cells = app, dict[tuple[int, int], str]()
        app._display = self._take  # type: ignore[assignment, method-assign]

    def _take(self, screen: object, update: Any) -> None:
        if not isinstance(update, CompositorUpdate):
            return
        x = y = 0
        last = (0, 0)
        for match in _SEQUENCE.finditer(update.render_segments(self._app.console)):
            if match["row"]:
                y, x = int(match["row"]) - 1, int(match["column"]) - 1
                last = (max(0, x - 1), y)
            elif (character := match["character"]) == "\n":
                x, y = 0, y + 1
            elif character and (width := cell_len(character)):
                last = (x, y)
                self._cells[last] = character
                x += width
            elif character:  # a mark joins what stands before it, and takes no cell
                self._cells[last] = self._cells.get(last, " ") + character

    @property
    def text(self) -> str:
        """What is on it."""
        return "\n".join(self._line(y) for y in range(self._app.size.height))

    def line(self, y: int) -> str:
        """One line, a character a cell: what is two cells wide is followed by a blank, and marks are left out."""
        line = ""
        while len(line) < self._app.size.width:
            character = self._cells.get((len(line), y), " ")[0]
            line += character.ljust(max(1, cell_len(character)))
        return line

    def _line(self, y: int) -> str:
        line, x = "", 0
        while x < self._app.size.width:
            line += (character := self._cells.get((x, y), " "))
            x += max(1, cell_len(character))
        return line.rstrip()


_SEQUENCE = re.compile(
    r"\x1b\[(?P<row>\d+);(?P<column>\d+)H|\x1b\[[\d;?]*[a-zA-Z]|\x1b\][^\x1b]*\x1b\\|(?P<character>[\s\S])"
)
"""What paints: where to go on, styles and links, and characters."""

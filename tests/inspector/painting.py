"""Applications that are painted when a test looks at them, and once when they are left.

A terminal is painted up to sixty times a second, several times for one key of a pilot. A test reads the screen by
itself where it wants to know what stands there, from the same widgets, and nobody reads the rest: a third of what a
test of the screen computed. Everything else (layouts, styles, what a panel draws for what it is shown) goes on as in
a terminal; what is painted without a look is the business of tests/fuzz, and of what runs within `painting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.strip import Strip

_toolkits_update, _toolkits_strips = Compositor.render_update, Compositor.render_strips
_toolkits_shutdown = App._shutdown


def _no_update(compositor: Compositor, full: bool = False, **how: Any) -> Any:
    if full:  # a picture of the screen
        return _toolkits_update(compositor, full, **how)
    compositor._dirty_regions.clear()
    return None


def _strips(compositor: Compositor, size: Any = None) -> list[Strip]:
    if compositor.root is not None:  # what lies under a dialog is known where the toolkit paints
        visible_screen_stack.set(compositor.root.app._background_screens)
    return _toolkits_strips(compositor, size)


async def _shutdown(app: App[Any]) -> None:
    if app.is_running and app._exception is None and app._screen_stacks[app._current_mode]:
        app.screen._compositor.render_strips()
    await _toolkits_shutdown(app)


def paint_when_looked_at() -> None:
    """Have no application of this process painted but where somebody reads its screen, and as it is left."""
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

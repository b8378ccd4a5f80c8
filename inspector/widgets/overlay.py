"""What every screen over the main one has in common: it is left once, and nothing reaches it after that.

The toolkit's `dismiss` closes whatever is on top, so a second one, from a key that was pressed twice, closed the screen
below. Its widgets go one by one after that, while keys, messages and answers are still on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.message import Message
from textual.messages import Prune
from textual.screen import Screen

Result = TypeVar("Result")


class Overlay(Screen[Result]):
    """A screen or a dialog over the main screen."""

    _dismissed: bool = False
    _settled: bool = False
    """Whether it was laid out with its widgets at their sizes: what is painted before that is painted twice."""
    _styled: str = ""
    """The theme that its widgets were styled in."""
    _held: tuple[Result | None] | None = None
    """The result of a dismissal that waits until what lies over this one has gone."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        self.add_class(*self._size_classes(), update=False)

    def _size_classes(self) -> Iterable[str]:
        """The classes of the screen's size. The toolkit sets them after the first layout, and then styles and lays out
        everything again."""
        width, height = self.app.size
        yield from self._get_breakpoint_classes(width, self.app.HORIZONTAL_BREAKPOINTS or [])
        yield from self._get_breakpoint_classes(height, self.app.VERTICAL_BREAKPOINTS or [])

    @property
    def left(self) -> bool:
        """Whether it was dismissed, or the program ends: its widgets are going, and nothing may be asked of them."""
        return self._dismissed or self._pruning

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Leave, once, and only this one: where something lies over it, as soon as that has gone.

        Args:
            result: For whoever opened it.
        """
        if self.left:
            return AwaitComplete()
        if self.app.screen is not self:
            self._held = (result,)
            return AwaitComplete()
        self._dismissed = True
        self.let_go()
        return super().dismiss(result)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Leave, where that was asked for under another screen. The toolkit would style all widgets again, each time."""
        event.refresh_styles, self._styled = self._styled not in ("", self.app.theme), self.app.theme
        if not self._settled:
            self.call_later(self.call_later, self._settle)
        if self._held is not None:
            self.dismiss(self._held[0])

    def _settle(self) -> None:
        """The widgets know their sizes: paint."""
        self._settled = True
        self.refresh()

    def _compositor_refresh(self) -> None:
        """Paint, once there is something whole to paint."""
        if self._settled:
            super()._compositor_refresh()

    def _screen_resized(self, size: Size) -> None:
        """Lay out for another size: after the first layout the toolkit sends the size that was laid out for."""
        if size != self._compositor.size:
            super()._screen_resized(size)

    def from_thread(self, callback: Callable[..., object], *args: object) -> None:
        """Have the screen's thread call something, unless this is left by then; called in another thread."""
        self.app.call_from_thread(lambda: None if self.left else callback(*args))

    async def on_prune(self, event: Prune) -> None:
        """The widgets go next: nothing may work for them any more. Let go, where nothing was dismissed."""
        self.workers.cancel_node(self)
        if not self._dismissed:
            self.let_go()

    def let_go(self) -> None:
        """Wait for nothing any more: called once, when this is left."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys mean something while the widgets are there."""
        return self.is_mounted and not self.left

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch a message, unless a widget or the terminal sent it to a screen that was left."""
        if self.left and message.bubble:
            return
        try:
            await super()._dispatch_message(message)
        except NoMatches:
            if not self.left:
                raise

"""What every screen over the main one has in common: it is left once, and nothing reaches it after that.

The toolkit's `dismiss` closes whatever is on top, so a second one, from a key that was pressed twice, closed the screen
below. Its widgets go one by one after that, while keys, messages and answers are still on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.css.query import NoMatches
from textual.message import Message
from textual.messages import Prune
from textual.screen import Screen

Result = TypeVar("Result")


class Overlay(Screen[Result]):
    """A screen or a dialog over the main screen."""

    _dismissed: bool = False
    _held: tuple[Result | None] | None = None
    """The result of a dismissal that waits until what lies over this one has gone."""

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

    def on_screen_resume(self) -> None:
        """Leave, where that was asked for under another screen."""
        if self._held is not None:
            self.dismiss(self._held[0])

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

"""Screens that are laid out as often as there is need for it."""

from __future__ import annotations

from typing import TypeVar

from textual.geometry import Size
from textual.message import Message
from textual.messages import Layout
from textual.screen import Screen
from textual.widget import Widget

Result = TypeVar("Result")


class LaidOutOnce(Screen[Result]):
    """A screen that a layout is enough for.

    The toolkit has each widget that got another size in a layout ask for the next one, and follows what was asked for
    before a layout after it. Only where a scroll bar came or went is there less room, or more, than was laid out for.
    """

    _laid_out: float = 0
    """When it was laid out last."""

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lay out, and paint."""
        bars = self._bars()
        scrolled = scroll and not self._layout_widgets  # what moved is placed, and nothing else is laid out
        if not scrolled:
            self._take_in()
        super()._refresh_layout(size, scroll)
        if scrolled or not (self.outer_size if size is None else size):
            return
        self._laid_out = Message().time
        if self._bars() == bars:
            for each in self.walk_children(Widget, with_self=True):
                each._layout_required = False

    def _on_timer_update(self) -> None:
        """Paint. Where a part of the screen below changed, too, Textual forgets which widgets of this one did."""
        if self._repaint_required and self.is_current:
            self._compositor.update_widgets(self._dirty_widgets)
        super()._on_timer_update()

    def _take_in(self) -> None:
        """Have the coming layout be that of all that was asked for: the toolkit forgets old arrangements later only."""
        for each in self.walk_children(Widget):
            if not each._layout_required:
                continue
            for ancestor in each.ancestors:
                if not isinstance(ancestor, Widget):
                    break
                ancestor._clear_arrangement_cache()
                ancestor._layout_updates += 1
                if not ancestor.styles.auto_dimensions:
                    break

    def _bars(self) -> list[tuple[Widget, bool, bool]]:
        """The scroll bars that are shown."""
        return [
            (each, each.show_vertical_scrollbar, each.show_horizontal_scrollbar)
            for each in self.walk_children(Widget, with_self=True)
            if each.show_vertical_scrollbar or each.show_horizontal_scrollbar
        ]

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch a message, unless it asks for a layout that there was."""
        if not isinstance(message, Layout) or message.time >= self._laid_out:
            await super()._dispatch_message(message)

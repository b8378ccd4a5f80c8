"""Screens that are laid out as often as there is need for it."""

from __future__ import annotations

from typing import TypeVar

from textual._compositor import CompositorMap
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
    _placed: CompositorMap | None = None
    """Where everything was then."""

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lay out, and paint."""
        bars = self._bars()
        scrolled = scroll and not self._layout_widgets  # what moved is placed, and nothing else is laid out
        if not scrolled:
            self._take_in()
        self._paint_over_what_went()
        super()._refresh_layout(size, scroll)
        self._placed = self._compositor._full_map
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

    def _paint_over_what_went(self) -> None:
        """Have the places painted of what went since the last layout: a notice that has expired, for one.

        A layout paints what differs from Textual's map of the screen. Whoever asks for a place, as the mouse does, may
        have that map made anew before, and then what went stands in neither of the two and stays on the terminal.
        """
        now = self._compositor._full_map
        if self._placed is not None and now is not self._placed:
            places = (
                place.clip.intersection(place.region) for _, place in self._placed.items() ^ now.items()
            )
            self._compositor._dirty_regions.update(place for place in places if place)

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

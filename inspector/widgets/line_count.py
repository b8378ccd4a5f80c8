"""The number of lines of a view that grows a line at a time while it is shown."""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widget import Widget


def set_line_count(view: ScrollView, lines: int) -> None:
    """Set how many lines a view holds.

    Setting `virtual_size` lays out the whole screen each time, a seventh of what a frame of a run costs. While lines
    are only added and no scroll bar appears, nothing else on the screen moves: updating the bar is enough.

    Args:
        view: As wide as its lines.
        lines: How many there are now.
    """
    before, now = view.virtual_size, Size(view.size.width, lines)
    if now == before:
        return
    room = view.container_size.height
    if now.width != before.width or lines < before.height or (lines > room) != (before.height > room):
        view.virtual_size = now
        return
    view.set_reactive(Widget.virtual_size, now)
    if view.show_vertical_scrollbar:
        view.vertical_scrollbar.window_virtual_size = lines

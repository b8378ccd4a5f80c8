"""A page of rows that can be scrolled, where it is longer than its panel."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.inks import panel_css

Page = Callable[[Canvas, int, int], list[Row]]
"""Rows on a canvas, for its width in cells and its height in lines."""


class PageView(Canvas, can_focus=True):
    """Shows one page."""

    DEFAULT_CSS = panel_css("PageView")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-10)", "Page up", show=False),
        Binding("pagedown", "move(10)", "Page down", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._page: Page | None = None
        self._top = 0

    def put(self, title: str, page: Page) -> None:
        """Show a page, from its top where it is another one than before.

        Args:
            title: Printable.
            page: Draws it.
        """
        if self._titles[0] is None or self._titles[0].plain != title:
            self._top = 0
        self._page = page
        self.title(Content(title), self._titles[1])
        self.redraw()

    def action_move(self, by: int) -> None:
        """Scroll by `by` lines."""
        self._top = max(0, self._top + by)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        rows = self._page(self, width, height) if self._page is not None else []
        self._top = max(0, min(self._top, len(rows) - height))
        below = len(rows) - height - self._top
        more = f"{below} lines more ↓" if below > 0 else "↑" if self._top else ""
        self.title(self._titles[0], Content(more) if more else None)
        return rows[self._top :]

"""The toolkit's list of options, safe from keys and clicks while its options aren't laid out, and at any width."""

from __future__ import annotations

from typing import Literal

from textual import events
from textual.geometry import Size
from textual.widgets import OptionList


class SafeOptionList(OptionList):
    """A list whose highlighted option may be gone, or not be laid out: not yet, or for want of room."""

    @property
    def _least(self) -> int:
        """Cells that an option needs: the toolkit wraps its text at what is left beside its padding."""
        return self.get_component_styles("option-list--option").padding.width + 1

    def _update_lines(self) -> None:
        """Lay out new options, where there is room for any."""
        if self.scrollable_content_region.width >= self._least:
            super()._update_lines()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as the options need at this width; of more than the screen has, not how many.

        Each has a line at least. Wrapping a hundred at each width that a layout tries took a palette 30 ms.
        """
        if len(self.options) >= viewport.height:
            return len(self.options)
        return super().get_content_height(container, viewport, max(width, self._least))

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        """Move the highlight by a page. The toolkit's own takes for granted that the list was laid out."""
        if (self.highlighted or 0) in self._index_to_line:
            super()._move_page(direction)

    def action_select(self) -> None:
        """Select the highlighted option, where there is one."""
        if self.highlighted is not None and self.highlighted < len(self.options):
            super().action_select()

    async def _on_click(self, event: events.Click) -> None:
        """Select what was clicked, where it is still there."""
        option = event.style.meta.get("option")
        if option is None or option >= len(self.options):
            event.prevent_default()

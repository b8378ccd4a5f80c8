"""The line that speaks to an audience: under the panels of the main screen, and at the foot of a tool's own screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class CaptionLine(Static):
    """A few lines; where there is room on the main screen they stay, so that nothing jumps as captions come and go."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown = ""

    def put(self, text: str, held: bool = False) -> None:
        """Show a text.

        Args:
            text: Printable; empty for none.
            held: Whether room is kept where there is no text.
        """
        self.set_class(held, "-held")
        self.set_class(bool(text), "-told")
        if text != self._shown:
            self._shown = text
            self.update(Content.assemble(("▌ ", "bold $primary"), text) if text else "")

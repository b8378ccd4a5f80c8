"""The author's caption at the token where a replay has arrived."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from inspector.display import visible
from inspector.session.transport import Transport
from inspector.state.timeline import Timeline


class CaptionLine(Static):
    """A few lines under the panels; where there is room they stay, so that nothing jumps as captions come and go."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown = ""

    def show(self, transport: Transport, timeline: Timeline) -> None:
        """Show the caption of the token that is looked at, or of the last one while the tip is followed."""
        item = timeline.selected or (timeline.items[-1] if timeline.items else None)
        shown = item is not None and not timeline.conceals("captions")
        text = visible(transport.caption(item.node)) if item is not None and shown else ""
        self.set_class(transport.captioned, "-held")
        self.set_class(bool(text), "-told")
        if text != self._shown:
            self._shown = text
            self.update(Content.assemble(("▌ ", "bold $primary"), text) if text else "")

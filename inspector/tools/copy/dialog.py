"""The menu of what can be copied: a letter or enter takes a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.widget import Widget

from inspector.display import pad
from inspector.keys import with_keys
from inspector.tools.copy import COPY_KEYS, Copyable
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Row
from inspector.widgets.dialog import Remark
from inspector.widgets.lists import PickDialog, PickList

WHERE = (
    "To this terminal's clipboard (OSC 52), and to the Mac's if its Terminal has none. If that has no effect, "
    "as in tmux without set-clipboard on, {export} writes files."
)
_KEY, _NAME = 3, 29
"""Cells of the letter and of the name."""
_ROOMY = 44
"""Cells from which there is room for previews."""


class CopyDialog(PickDialog[Copyable]):
    """Asks what to copy.

    Args:
        copyables: What there is.
    """

    ACTIONS: ClassVar[ActionTable] = COPY_KEYS
    HEADING: ClassVar[str] = "Copy"
    APPLY: ClassVar[str] = "Copy"
    AUTO_FOCUS = ""

    def __init__(self, copyables: Sequence[Copyable]) -> None:
        super().__init__()
        self._copyables = copyables

    def body(self) -> Iterable[Widget]:
        yield PickList(id="copy-list")
        yield Remark(with_keys(WHERE))

    def on_mount(self) -> None:
        """All rows, from the start."""
        self.picks.lay(len(self._copyables))

    def head(self, width: int) -> Row:
        titles = pad("", _KEY + 1) + pad("what", _NAME)
        return [Segment(titles + "preview" * (width >= _ROOMY), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each, ink = self._copyables[place], self.picks.ink
        preview = pad(each.preview, width - _KEY - _NAME) if width + 1 >= _ROOMY else ""
        return [
            Segment(pad(each.key, _KEY), ink("accent")),
            Segment(pad(each.name, _NAME), self.picks.rich_style),
            Segment(preview, ink("muted")),
        ]

    def on_key(self, event: events.Key) -> None:
        """A letter takes its row."""
        found = next((each for each in self._copyables if each.key == event.character), None)
        if found is not None:
            event.stop()
            self.dismiss(found)

    def apply(self) -> None:
        """Take the highlighted row."""
        if self._copyables:
            self.dismiss(self._copyables[self.picks.highlighted])

"""The dialog that lists all marks: enter goes to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.widget import Widget

from inspector.display import pad
from inspector.keys import with_keys
from inspector.tools.marks import MARKS_KEYS, MarkedPlace
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Row, around
from inspector.widgets.dialog import Remark
from inspector.widgets.lists import PickDialog, PickList

NONE = (
    "No marks yet: {bookmark} sets a bookmark, {name} writes a note "
    "or a caption, ⏎ on another candidate makes a branch."
)
SIGNS = (
    "★ bookmark · ✎ name or note · ❝ caption · ├2 two branches part. "
    "{previous_mark} and {next_mark} walk those of the path."
)
_SIGNS, _POSITION, _LEAST, _MORE = 7, 8, 24, 22
"""Cells of the signs, the position, of the text at least, and of branch and writing each if they have room."""


class MarksDialog(PickDialog[int]):
    """Lists marks; returns the node of the one to go to.

    Args:
        places: The marks, in their order.
        at: The selected node: the list begins there, if it is in it.
    """

    ACTIONS: ClassVar[ActionTable] = MARKS_KEYS
    HEADING: ClassVar[str] = "Marks"
    APPLY: ClassVar[str] = "Go there"
    AUTO_FOCUS = ""

    def __init__(self, places: Sequence[MarkedPlace], at: int) -> None:
        super().__init__()
        self._places, self._at = places, at

    def body(self) -> Iterable[Widget]:
        yield PickList(id="marks-list")
        yield Remark(with_keys(SIGNS if self._places else NONE))

    def on_mount(self) -> None:
        """All rows; the selected token's is highlighted, if it has a mark."""
        here = (place for place, each in enumerate(self._places) if each.node == self._at)
        self.picks.lay(len(self._places), next(here, 0))

    def _columns(self, width: int) -> tuple[int, int, int]:
        """Cells of the text, the branch and what is written."""
        free = width - _SIGNS - _POSITION
        more = (free - _LEAST) // _MORE
        branch = _MORE if more >= 2 else 0
        note = min(free - _LEAST - branch, free // 3) if more >= 1 else 0
        return free - branch - note, branch, note

    def head(self, width: int) -> Row:
        text, branch, note = self._columns(width - 1)
        titles = pad("", _SIGNS + 1) + pad("position", _POSITION, right=True) + pad("  text", text)
        return [Segment(titles + pad("branch", branch) + pad("written", note), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each, muted = self._places[place], self.picks.ink("muted")
        text, branch, note = self._columns(width)
        return [
            Segment(pad(each.signs, _SIGNS), self.picks.ink("warn")),
            Segment(pad(f"{each.position:,}", _POSITION, right=True) + "  ", muted),
            *around(each.before, each.token, each.after, text - 3, muted, self.picks.ink("accent")),
            Segment(" "),
            Segment(pad(each.branch or "this path", branch), muted),
            Segment(pad(each.written, note), self.picks.rich_style),
        ]

    def apply(self) -> None:
        """Go to the highlighted mark."""
        if self._places:
            self.dismiss(self._places[self.picks.highlighted].node)

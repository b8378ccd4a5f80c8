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
"""Cells of the signs, the position, of the text at least, and of branch and writing each where they have room."""


class MarksList(PickList):
    """One row for each mark."""

    def __init__(self, places: Sequence[MarkedPlace], at: int) -> None:
        super().__init__(id="marks-list")
        self.places, self._at = places, at

    def on_mount(self) -> None:
        """All rows; where the person looks at a marked token, it is the one that is highlighted."""
        here = (place for place, each in enumerate(self.places) if each.node == self._at)
        self.lay(len(self.places), next(here, 0))

    def _columns(self, width: int) -> tuple[int, int, int]:
        """Cells of the text, the branch and what is written."""
        free = width - _SIGNS - _POSITION
        more = (free - _LEAST) // _MORE
        branch = _MORE if more >= 2 else 0
        note = (free - _LEAST - branch) if more >= 1 else 0
        note = min(note, free // 3) if note else 0
        return free - branch - note, branch, note

    def head(self, width: int) -> Row:
        text, branch, note = self._columns(width - 1)
        titles = pad("", _SIGNS + 1) + pad("position", _POSITION, right=True) + pad("  text", text)
        return [Segment(titles + pad("branch", branch) + pad("written", note), self.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each = self.places[place]
        text, branch, note = self._columns(width)
        return [
            Segment(pad(each.signs, _SIGNS), self.ink("warn")),
            Segment(pad(f"{each.position:,}", _POSITION, right=True) + "  ", self.ink("muted")),
            *around(each.before, each.token, each.after, text - 3, self.ink("muted"), self.ink("accent")),
            Segment(" "),
            Segment(pad(each.branch or "this path", branch), self.ink("muted")),
            Segment(pad(each.written, note), self.rich_style),
        ]


class MarksDialog(PickDialog[int]):
    """Lists marks; returns the node of the one to go to.

    Args:
        places: The marks, in their order.
        at: Node that the person looks at: the list begins there, if it is in it.
    """

    ACTIONS: ClassVar[ActionTable] = MARKS_KEYS
    HEADING: ClassVar[str] = "Marks"
    APPLY: ClassVar[str] = "Go there"
    AUTO_FOCUS = ""

    def __init__(self, places: Sequence[MarkedPlace], at: int) -> None:
        super().__init__()
        self._places, self._at = places, at

    def body(self) -> Iterable[Widget]:
        yield MarksList(self._places, self._at)
        yield Remark(with_keys(SIGNS if self._places else NONE))

    def apply(self) -> None:
        """Go to the highlighted mark."""
        if self._places:
            self.dismiss(self._places[self.picks.highlighted].node)

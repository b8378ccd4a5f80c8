"""The dialog that opens a request: a file's name, and the list of what it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError
from inspector.display import pad, truncate, visible
from inspector.served.listing import asked, outcome
from inspector.served.opening import ServedFile, exchanges_of
from inspector.served.replies import Exchange
from inspector.tools.served import REQUESTS_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Row
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickDialog, PickList

HELP = "A HAR file, or a file with the body of a request. ⏎ reads it, then opens the chosen one."
InBackground = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does what takes long in a thread, then calls the second with what came of it."""
_NUMBER, _TIME, _KIND, _OUTCOME = 6, 10, 12, 18
"""Cells of the columns."""


class RequestsList(PickList):
    """One row for each request."""

    exchanges: tuple[Exchange, ...] = ()

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._outcomes: dict[int, str] = {}
        """Of the rows that were in sight: a long reply takes milliseconds to read."""

    def put(self, exchanges: tuple[Exchange, ...], at: int) -> None:
        """List requests.

        Args:
            exchanges: All.
            at: Number of the one to begin with.
        """
        self.exchanges, self._outcomes = exchanges, {}
        here = (place for place, each in enumerate(exchanges) if each.number == at)
        self.lay(len(exchanges), next(here, max(0, len(exchanges) - 1)))

    def head(self, width: int) -> Row:
        titles = (
            pad("", _NUMBER + 1) + pad("at", _TIME) + pad("kind", _KIND) + pad("reply", _OUTCOME) + "asked"
        )
        return [Segment(truncate(titles, width), self.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each = self.exchanges[place]
        words, kind = asked(each)
        if place not in self._outcomes:
            self._outcomes[place] = outcome(each)
        when = datetime.fromtimestamp(each.at).strftime("%H:%M:%S") if each.at else ""
        before = (
            pad(f"{each.number:>4}", _NUMBER)
            + pad(when, _TIME)
            + pad(kind, _KIND)
            + pad(self._outcomes[place], _OUTCOME)
        )
        room = max(0, width - _NUMBER - _TIME - _KIND - _OUTCOME)
        return [
            Segment(before, self.ink("muted")),
            Segment(pad(truncate(visible(words), room), room), self.ink("base")),
        ]


class RequestsDialog(PickDialog[tuple[ServedFile, Exchange]]):
    """Asks for a file, and which of its requests to open.

    Args:
        file: The one that was read last; None for none.
        at: Number of the request that is open.
        in_background: Reads a file aside.
    """

    ACTIONS: ClassVar[ActionTable] = REQUESTS_KEYS
    HEADING: ClassVar[str] = "Recorded requests"
    APPLY: ClassVar[str] = "Open"

    def __init__(self, file: ServedFile | None, at: int, in_background: InBackground) -> None:
        super().__init__()
        self._file, self._at, self._in_background = file, at, in_background

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self._file.name if self._file is not None else "", "requests.har", id="requests-file")
        yield Remark(HELP, id="requests-remark")
        yield RequestsList(id="requests-list")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#requests-file", SafeInput).focus()
        if self._file is not None:
            self.query_one(RequestsList).put(self._file.exchanges, self._at)

    @property
    def _typed(self) -> str:
        return self.query_one("#requests-file", SafeInput).value.strip()

    @on(Input.Submitted, "#requests-file")
    def apply(self) -> None:
        """Open the chosen request; where another file is named, read that first."""
        name = self._typed
        if self._file is None or name != self._file.name:
            if name:
                self._say("Reading it …")
                self._in_background(lambda: _read(name), self._take)
            return
        picked = self.query_one(RequestsList)
        if picked.exchanges:
            self.dismiss((self._file, picked.exchanges[picked.highlighted]))

    def _take(self, read: ServedFile | str) -> None:
        if not self.is_current:
            return
        if isinstance(read, str):
            self._say(read, wrong=True)
            return
        self._file = read
        self._say(HELP)
        self.query_one(RequestsList).put(read.exchanges, 0)

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#requests-remark", Remark).say(visible(text), wrong)


def _read(name: str) -> ServedFile | str:
    """The file of a name, or why it can't be read."""
    try:
        return ServedFile(name, tuple(exchanges_of(name)))
    except EngineError as error:
        return str(error)

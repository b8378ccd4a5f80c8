"""Recorded requests to a server: one opens as a session, its reply as a branch that a panel compares token by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError
from engine.files import shorter
from engine.protocol import Command, ModelFacts, Prefilled, PromptOpened, Record
from inspector.display import pad, token_label, truncate, visible
from inspector.keys import key_for
from inspector.main.tool import Host, ToolActions
from inspector.scales import counted
from inspector.served.listing import asked, outcome, verdict_words
from inspector.served.opening import OpenedRequest, ServedFile, exchanges_of, opened_request
from inspector.served.replies import Exchange, ServedReply
from inspector.served.rescoring import SOURCES, VERDICTS, Rescored, Rescoring, ServedStep
from inspector.session.client import Request
from inspector.session.requests import failure_words
from inspector.state.branches import ROOT
from inspector.widgets.actions import ActionTable, dialog_table, picking, taking
from inspector.widgets.canvas import Canvas, DrawnPanel, Row
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickDialog, PickList

PANEL = "served"
NAME = "Recorded reply"


class ServedActions(ToolActions):
    """Opens requests, and computes their replies again.

    Args:
        host: The main screen.
        first: The request that the program was started with; None for none.
    """

    def __init__(self, host: Host, first: OpenedRequest | None = None) -> None:
        super().__init__(host)
        self.file: ServedFile | None = first.file if first is not None else None
        """The file that was read last."""
        self.opened: OpenedRequest | None = first
        """The request whose reply is shown; None for none."""
        self._rescoring = Rescoring(first.request, first.reply) if first is not None else None
        """Computes the reply again; None if that has ended, or there is no request."""
        self._result: Rescored | None = None
        self._facts: list[tuple[str, str]] = []
        """Facts of the result, above the table of its tokens."""
        self._places: Mapping[int, int] = {}
        """Indices of these tokens in the reply, by node."""
        self._commands: Iterator[Command] = iter(())
        self._why = ""
        """Why there is no result, printable; empty if there is one, or will be."""
        self.controller.client.listen(self._heard, ModelFacts, PromptOpened, Prefilled)

    # ---- opening ----------------------------------------------------------------------------

    def requests(self) -> None:
        """List the requests of a file, and open one."""
        self.controller.client.pause()
        self.host.answer()
        self.host.open(RequestsDialog(self), self._chosen)

    def _chosen(self, chosen: tuple[ServedFile, Exchange] | None) -> None:
        if chosen is None:
            return
        try:
            opened = self._fitting(opened_request(*chosen), self.timeline.facts)
        except EngineError as error:
            self.host.answer(visible(str(error)))
            return
        self.file, self.opened, self._result, self._why = opened.file, opened, None, ""
        self._rescoring = Rescoring(opened.request, opened.reply)
        self.controller.setup.configure(opened.request.settings)
        self.controller.setup.give(opened.request.prompted())
        self.host.answer()

    def _fitting(self, opened: OpenedRequest, facts: ModelFacts | None) -> OpenedRequest:
        """A request without biases of token ids that the model doesn't have."""
        request = opened.request.within(facts.vocabulary) if facts is not None else opened.request
        return opened if request is opened.request else replace(opened, request=request)

    # ---- computing again --------------------------------------------------------------------

    def _heard(self, record: Record) -> None:
        """Begin once the prompt was read; forget the reply if another prompt takes its place."""
        opened = self.opened
        if isinstance(record, ModelFacts) and opened is not None:
            if (fitting := self._fitting(opened, record)) is not opened:
                self.opened, self._rescoring = fitting, Rescoring(fitting.request, fitting.reply)
                self.controller.setup.configure(fitting.request.settings)
        elif isinstance(record, PromptOpened) and opened is not None and record.parent == ROOT:
            request = opened.request
            its_own = record.messages == request.messages if request.chat else record.text == request.prompt
            if self._rescoring is None or not its_own:
                self.opened = self._result = self._rescoring = None
        elif isinstance(record, Prefilled) and self._rescoring is not None and not self.timeline.recorded:
            if self.timeline.facts is not None:
                self._rescoring.take(self.timeline.facts)
            self._rescoring.take(record)
            self._commands = self._rescoring.commands()
            self.host.go_to(PANEL)
            self._next(self._rescoring)

    def _next(self, rescoring: Rescoring) -> None:
        """Send the next command, or take the result if there is none."""
        if (command := next(self._commands, None)) is not None:
            self.controller.client.request(command, self._ended, each=rescoring.take)
            return
        result = rescoring.result()
        self._result, self._rescoring = result, None
        self._facts = list(facts_of(result, self.opened.reply if self.opened is not None else None))
        self._places = {each.step.node: place for place, each in enumerate(result.steps)}
        self.host.changed()

    def _ended(self, request: Request[Any]) -> None:
        if request.cancelled or request.failure is not None:
            self._why = failure_words(request.failure) if request.failure is not None else "It was stopped."
            self._rescoring = None
            self.host.changed()
        elif self._rescoring is not None:
            self._next(self._rescoring)

    # ---- the panel --------------------------------------------------------------------------

    def open(self) -> None:
        """Show the panel, or go back if it is on show."""
        arrangement = self.host.arrangement
        if self.opened is None:
            self.host.answer(f"No request of a server is open: {key_for('requests')} opens one")
            return
        if arrangement.answer == PANEL and arrangement.current == PANEL:
            arrangement.close()
        else:
            self.host.go_to(PANEL)
        self.host.answer()

    def show(self) -> None:
        """Show the panel, if it is on screen."""
        if PANEL in self.host.shown:
            opened = self.opened
            file = visible(shorter(opened.file.name)) if opened is not None else ""
            where = f"request {opened.exchange.number} of {file}" if opened is not None else ""
            self.host.query_one(f"#{PANEL}", DrawnPanel).put(NAME, self._page, where)

    def _page(self, on: Canvas, width: int, height: int) -> list[Row]:
        result = self._result
        if self.opened is None:
            advice = f"{key_for('requests')} opens one: a HAR file of mitmdump, or a request's body."
            return on.centred(("No request of a server is open.", advice), width, height)
        if result is None:
            waits = self._why or "The prompt is read first."
            if self._rescoring is not None:
                waits = f"The reply is computed again: {counted(self._rescoring.done, 'token')} so far."
            return on.centred((waits,), width, height)
        rows = on.facts(self._facts, width)[: max(1, height - _LEAST_ROWS - 2)]
        selected, last = self.timeline.selected, len(result.steps) - 1
        at = self._places.get(selected.node, last) if selected is not None else last
        return [*rows, [], *token_rows(on, result, at, width, height - len(rows) - 1)]


# ---- what the panel says ------------------------------------------------------------------------

_TOKEN, _FIGURE = 20, 9
"""Maximum cells of a token, and cells of a figure."""
_INKS = {"equal": "muted", "rounding": "warn", "differs": "bad", "drawn": "muted"}
_SIGNS = {"equal": "=", "rounding": "≈", "differs": "≠", "drawn": "·"}
_LEAST_ROWS = 5
"""Minimum rows of the table, however many facts are above it."""


def facts_of(result: Rescored, reply: ServedReply | None) -> Iterator[tuple[str, str]]:
    """The comparison of a reply, as names and sentences."""
    tokens = counted(len(result.steps), "token")
    if result.source is not None:
        yield "here", f"{tokens}, {verdict_words(result)}"
        yield "known by", SOURCES[result.source]
    if result.misnamed:
        yield "named", f"{result.misnamed:,} of {tokens} wrongly by the reply's logprobs"
    if (largest := result.largest) is not None:
        yield "logprobs", f"within {largest:.3f} nats of the server's, after its penalties and biases"
    served = reply.prompt_tokens if reply is not None else None
    if served is not None:
        same = "as many as" if served == result.prompt_tokens else f"{served:,}"
        yield "prompt", f"{counted(result.prompt_tokens, 'token')}, {same} at the server"
    if not result.same_text:
        yield "text", "the served text differs from that of these tokens"
    yield from (("note", each) for each in result.notes)


def token_rows(on: Canvas, result: Rescored, at: int, width: int, height: int) -> Iterator[Row]:
    """A table of the served tokens around one of them, as many as fit."""
    if not result.steps or height < 2:
        return
    figures = any(each.served is not None for each in result.steps)  # the server sent logprobs
    cells = max(6, min(_TOKEN, width - 8 - 2 * _FIGURE * figures - 16))
    head = pad("", 6) + pad("token", cells + 2)
    head += pad("server", _FIGURE, right=True) + pad("here", _FIGURE, right=True) if figures else ""
    yield [Segment(head, on.ink("muted"))]
    top = max(0, min(at - (height - 1) // 2, len(result.steps) - height + 1))
    for place, each in enumerate(result.steps[top : top + height - 1], top):
        ink, base, said = on.ink(_INKS[each.verdict]), on.ink("row" if place == at else "base"), _said(each)
        label = pad(truncate(token_label(each.step.text, each.step.raw), cells), cells + 2)
        if figures:
            for value in (each.served, each.computed):
                label += pad("" if value is None else f"{value:.3f}", _FIGURE, right=True)
        yield [
            Segment(f"{place + 1:>4} ", on.ink("muted")),
            Segment(f"{_SIGNS[each.verdict]} ", ink),
            Segment(label, base),
            Segment(f"  {said}", ink if said else Style()),
        ]


def _said(each: ServedStep) -> str:
    if each.verdict in ("rounding", "differs"):
        return VERDICTS[each.verdict]
    if each.named is None:
        return ""
    return f"named {token_label(each.named.decode('utf-8', 'replace'), each.named)}"


# ---- the dialog that opens a request ------------------------------------------------------------

REQUESTS_KEYS = dialog_table(
    "In the list of requests",
    *picking("Choose a request.", "choose"),
    taking("Read the named file, or open the chosen request.", "open"),
)
HELP = "A HAR file, or a file with the body of a request. ⏎ reads it, then opens the chosen one."
_NUMBER, _TIME, _KIND, _OUTCOME = 6, 10, 12, 18
"""Cells of the columns."""


class RequestsDialog(PickDialog[tuple[ServedFile, Exchange]]):
    """Asks for a file, and which of its requests to open.

    Args:
        own: Provides the file that was read last, and the open request.
    """

    ACTIONS: ClassVar[ActionTable] = REQUESTS_KEYS
    HEADING: ClassVar[str] = "Requests"
    APPLY: ClassVar[str] = "Open"
    FIRST: ClassVar[str] = "#requests-file"

    def __init__(self, own: ServedActions) -> None:
        super().__init__()
        self._own, self._file = own, own.file
        self._outcomes: dict[int, str] = {}
        """Outcomes of the rows that were in sight: a long reply takes milliseconds to read."""

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self._file.name if self._file is not None else "", "requests.har", id="requests-file")
        yield Remark(HELP, id="requests-remark")
        yield PickList(id="requests-list")

    def begin(self) -> None:
        """Begin in the field, with the requests of the file that was read last."""
        super().begin()
        if self._file is not None:
            self._list(self._file, self._own.opened.exchange.number if self._own.opened is not None else 0)

    @on(Input.Submitted, "#requests-file")
    def apply(self) -> None:
        """Open the chosen request; if another file is named, read that first."""
        name = self.typed.strip()
        if self._file is not None and name == self._file.name:
            super().apply()
        elif name:
            self.say("Reading it …")
            self._own.host.in_background(lambda: _read(name), self._take)

    def _take(self, read: ServedFile | str) -> None:
        if not self.is_current:
            return
        if isinstance(read, str):
            self.say(read, wrong=True)
            return
        self.say(HELP)
        self._list(read)

    def _list(self, file: ServedFile, at: int = 0) -> None:
        """List the requests of a file; highlight the one with number `at`, or else the last one."""
        self._file, self._outcomes = file, {}
        here = (place for place, each in enumerate(file.exchanges) if each.number == at)
        self.put([(file, each) for each in file.exchanges], next(here, max(0, len(file.exchanges) - 1)))

    def head(self, width: int) -> Row:
        columns = (("", _NUMBER + 1), ("at", _TIME), ("kind", _KIND), ("reply", _OUTCOME), ("asked", 5))
        titles = "".join(pad(title, cells) for title, cells in columns)
        return [Segment(truncate(titles, width), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        each = self.choices[place][1]
        words, kind = asked(each)
        if place not in self._outcomes:
            self._outcomes[place] = outcome(each)
        when = datetime.fromtimestamp(each.at).strftime("%H:%M:%S") if each.at else ""
        before = pad(f"{each.number:>4}", _NUMBER) + pad(when, _TIME)
        before += pad(kind, _KIND) + pad(self._outcomes[place], _OUTCOME)
        room = max(0, width - _NUMBER - _TIME - _KIND - _OUTCOME)
        said = pad(truncate(visible(words), room), room)
        return [Segment(before, self.picks.ink("muted")), Segment(said, self.picks.ink("base"))]


def _read(name: str) -> ServedFile | str:
    """The file, or why it can't be read."""
    try:
        return ServedFile(name, tuple(exchanges_of(name)))
    except EngineError as error:
        return str(error)

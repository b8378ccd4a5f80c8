"""Requests of a server as a tool: one is opened as a session, its reply becomes a branch, judged token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from engine.errors import EngineError
from engine.files import shorter
from engine.protocol import (
    Command,
    ModelFacts,
    Prefilled,
    PromptOpened,
    Record,
)
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import PanelSpec, Tool, ToolActions
from inspector.session.client import Request
from inspector.state.branches import ROOT
from inspector.tools.served import REQUESTS_KEYS
from inspector.tools.served.panel import ServedPanel, ServedView
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:  # the first screen needs none of it
    from inspector.main.screen import MainScreen
    from inspector.served.opening import OpenedRequest, ServedFile
    from inspector.served.replies import Exchange
    from inspector.served.rescoring import Rescored, Rescoring


class ServedActions(ToolActions):
    """Opens requests, and has their replies computed again.

    Args:
        host: The main screen.
        first: What the program was started with; None for nothing.
    """

    def __init__(self, host: MainScreen, first: OpenedRequest | None = None) -> None:
        super().__init__(host)
        self._file: ServedFile | None = first.file if first is not None else None
        self.opened: OpenedRequest | None = first
        """The request whose reply is told; None for none."""
        self._rescoring: Rescoring | None = None
        self._result: Rescored | None = None
        self._commands: Iterator[Command] = iter(())
        self._why = ""
        """Why there is no result, printable; empty where there is one or it is on its way."""
        self._facts: ModelFacts | None = None
        if first is not None:
            self._rescore(first)
        self.controller.client.listen(self._hear, ModelFacts, PromptOpened, Prefilled)

    # ---- opening ----------------------------------------------------------------------------

    def requests(self) -> None:
        """List the requests of a file, and open one."""
        from inspector.tools.served.dialog import RequestsDialog

        self.controller.client.pause()
        self.host.answer()
        at = self.opened.exchange.number if self.opened is not None else 0
        self.host.open(RequestsDialog(self._file, at, self.host.in_background), self._chosen)

    def _chosen(self, chosen: tuple[ServedFile, Exchange] | None) -> None:
        from inspector.served.opening import opened_request

        if chosen is None:
            return
        try:
            opened = self._fitting(opened_request(*chosen))
        except EngineError as error:
            self.host.answer(visible(str(error)))
            return
        self._file, self.opened, self._result, self._why = opened.file, opened, None, ""
        self._rescore(opened)
        self.controller.setup.configure(opened.request.settings)
        self.controller.setup.give(opened.request.prompted())
        self.host.answer()

    def _fitting(self, opened: OpenedRequest) -> OpenedRequest:
        """A request without what the model can't take."""
        if self._facts is None:
            return opened
        request = opened.request.within(self._facts.vocabulary)
        return opened if request is opened.request else replace(opened, request=request)

    # ---- computing again --------------------------------------------------------------------

    def _rescore(self, opened: OpenedRequest) -> None:
        """Have a reply computed again, once the prompt was read."""
        from inspector.served.rescoring import Rescoring

        self._rescoring = Rescoring(opened.request, opened.reply)

    def _hear(self, record: Record) -> None:
        """Begin once the prompt was read; forget the reply where another prompt takes its place."""
        if isinstance(record, ModelFacts):
            self._facts = record
            if self.opened is not None and (fitting := self._fitting(self.opened)) is not self.opened:
                self.opened = fitting
                self._rescore(fitting)
                self.controller.setup.configure(fitting.request.settings)
        elif isinstance(record, PromptOpened) and self.opened is not None and record.parent == ROOT:
            request = self.opened.request
            its_own = record.messages == request.messages if request.chat else record.text == request.prompt
            if self._rescoring is None or not its_own:
                self.opened = self._result = self._rescoring = None
        elif isinstance(record, Prefilled) and self._rescoring is not None and not self.timeline.recorded:
            if self._facts is not None:
                self._rescoring.take(self._facts)
            self._rescoring.take(record)
            self._commands = self._rescoring.commands()
            self.host.go_to(SERVED_ID)
            self._next()

    def _next(self) -> None:
        """Send the next command, or take the result where there is none."""
        assert self._rescoring is not None
        command = next(self._commands, None)
        if command is None:
            self._result, self._rescoring = self._rescoring.result(), None
            self.host.changed()
            return
        self.controller.client.request(command, self._ended, each=self._rescoring.take)

    def _ended(self, request: Request[Any]) -> None:
        if request.cancelled or request.failure is not None:
            failure = request.failure
            why = f"{failure.message} {failure.hint}".rstrip() if failure is not None else "It was stopped."
            self._why, self._rescoring = visible(why), None
            self.host.changed()
        elif self._rescoring is not None:
            self._next()

    # ---- what is shown ----------------------------------------------------------------------

    def open(self) -> None:
        """Show the panel, or go back where it is on show."""
        arrangement = self.host.arrangement
        if self.opened is None:
            self.host.answer(f"No request of a server is open: {key_for('requests')} opens one")
            return
        if arrangement.answer == SERVED_ID and arrangement.current == SERVED_ID:
            arrangement.close()
        else:
            self.host.go_to(SERVED_ID)
        self.host.answer()

    def show(self) -> None:
        """Show what is known of the reply."""
        if SERVED_ID in self.host.shown:
            self.host.panel(ServedPanel).show_served(self.timeline, self._view())

    def _view(self) -> ServedView:
        opened = self.opened
        if opened is None:
            return ServedView("", "", None, None)
        where = f"request {opened.exchange.number} of {visible(shorter(opened.file.name))}"
        done = self._rescoring.done if self._rescoring is not None else 0
        waits = f"The reply is computed again: {done:,} tokens so far." if self._rescoring is not None else ""
        return ServedView(where, waits or self._why, opened.reply, self._result)


SERVED_ID = "served"


def served(first: OpenedRequest | None) -> Tool:
    """The tool of a program that begins with a request.

    Args:
        first: The request; None for none.
    """
    make: Callable[[MainScreen], ToolActions] = lambda host: ServedActions(host, first)  # noqa: E731
    return Tool(
        SERVED_ID,
        "Recorded reply",
        make,
        actions=(
            Action("served", "Recorded reply",
                "Show a server's reply to the open request beside what the program computes: where they begin to "
                "differ, which tokens the server named wrongly, how it changed the text.", ServedActions.open,
                synonyms="served tokens, mlx_lm.server, openai, logprobs that were served, what was answered",
                view="recorded reply", looks=True, offered=attrgetter("opened")),
            Action("requests", "Recorded requests",
                "Open a recorded request to a server as a session: from a HAR file, or from a file with one request.",
                ServedActions.requests, Needs.ENGINE,
                synonyms="open request, request.json, api call, har, mitmdump, replay a request, chat completions",
                view="requests…"),
        ),
        panel=PanelSpec(ServedPanel, "Recorded reply", "Recorded reply"),
        owners=(REQUESTS_KEYS,),
    )  # fmt: skip


SERVED = served(None)

"""Look-ahead: asked for while the engine has nothing else to do, shown after the candidates, and taken."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from engine.protocol import Ended, LookAhead, LookedAhead, Record, Take
from inspector.keys import key_for, with_keys
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.tool import Host, ToolActions
from inspector.state.lookahead import LookAheadLines
from inspector.state.timeline import Phase

PART_SECONDS = 0.1
"""Seconds between two drawings of lines that still grow. The engine shares the interpreter: drawing each record when
it came made a look-ahead of 180 ms take 210 ms."""
ON = "Look-ahead on: {take_ahead} takes it, {look_ahead} hides it. Dim is what greedy decoding would bring"
"""Fits into 80 columns, and begins with what matters if there are fewer."""
RECORDED = "Look-ahead on, as far as it was recorded. {look_ahead} hides it"


class LookAheadActions(ToolActions):
    """Asks one question at a time, the latest that is needed; every other command goes first."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.lines = LookAheadLines()
        self._client = host.controller.client
        self._client.listen(self.lines.receive, *LookAheadLines.TAKES)
        self._due = 0.0

    # ---- asking -----------------------------------------------------------------------------

    def shown(self) -> None:
        """Ask what would follow the candidates, if they are on screen."""
        panel = self.host.panel(CandidatesPanel)
        panel.ahead = self.lines
        self.awake = self.lines.on or bool(self._client.of(LookAhead))
        if self.ask(panel.wanted if self.lines.on and panel.display else ()):
            panel.redraw()

    def ask(self, ids: Sequence[int]) -> bool:
        """Ask about candidates of the selected slot, unless all are known or the engine is busy.

        Args:
            ids: The candidates; empty if they are not on screen.

        Returns:
            Whether a question was sent.
        """
        client, node = self._client, self.timeline.before
        for each in client.of(LookAhead):
            if not ids or each.command.node != node:
                each.cancel()  # the next is asked when it has ended
        if not ids or client.outstanding or self.timeline.phase is not Phase.READY:
            return False
        question = self.lines.question(node, ids)
        if question is not None:
            client.do(question, lambda ended: self.lines.ended(ended.command, ended.cancelled))
        return question is not None

    def takes_alone(self, records: Sequence[Record]) -> bool:
        """Redraw the candidates alone if all records are of look-ahead; returns whether they are."""
        if not records or not all(map(tells_ahead, records)):
            return False
        if all(isinstance(record, LookedAhead) and not record.last for record in records):
            if monotonic() < self._due:
                return True
            self._due = monotonic() + PART_SECONDS
        self.host.panel(CandidatesPanel).show(self.timeline)
        self.shown()
        return True

    # ---- keys -------------------------------------------------------------------------------

    def switch(self) -> None:
        """Turn look-ahead on or off."""
        self.lines.switch()
        self.awake = True
        answer = "Look-ahead off"
        if self.lines.on:
            answer = with_keys(RECORDED if self.controller.transport.recorded else ON)
            if not self.host.panel(CandidatesPanel).display:
                answer = f"Press {key_for('candidates')} to see it. {answer}"
        self.host.answer(answer)

    def stop(self) -> bool:
        """Turn look-ahead off if the engine is computing it; returns whether it was."""
        if self.lines.on and self._client.under_way(LookAhead):
            self.switch()
            return True
        return False

    def take(self) -> None:
        """Take the highlighted candidate and the tokens that look-ahead shows after it."""
        node, candidate = self.timeline.before, self.host.candidate
        if candidate is None:
            answer = "No candidates were recorded here. End returns to the last token"
        elif (line := self.lines.lines(node).get(candidate.id)) is not None:
            self._client.do(Take(node, (candidate.id, *line.ids)))
            answer = ""
        elif self.lines.on:
            answer = "Nothing is known yet of what follows this candidate. Wait a moment, or press ⏎ to take it alone"
        else:
            answer = (
                f"Look-ahead is off. Press {key_for('look_ahead')} for it, then {key_for('take_ahead')} "
                "takes the tokens after a candidate"
            )
        self.host.answer(answer)


def tells_ahead(record: Record) -> bool:
    """True if a record belongs to look-ahead."""
    return isinstance(record, LookedAhead) or (isinstance(record, Ended) and record.command == LookAhead.kind)

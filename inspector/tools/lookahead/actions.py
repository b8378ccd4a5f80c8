"""Looking ahead: what might come after the candidates on show is asked for while the engine has nothing else to do."""

from __future__ import annotations

from collections.abc import Sequence

from engine import records
from engine.commands import LookAhead, Take
from inspector.main.acting import PanelScreen
from inspector.session.controller import Controller
from inspector.state.lookahead import LookAheadLines
from inspector.state.timeline import Phase

ON = "Look-ahead on: L takes it, l hides it. Dim is what greedy decoding would bring"
"""Fits into 80 columns, and begins with what matters where there are fewer."""


def tells_ahead(record: records.Record) -> bool:
    """Whether a record tells of a look ahead and of nothing else."""
    return isinstance(record, records.LookedAhead) or (
        isinstance(record, records.Ended) and record.command == "LookAhead"
    )


class Asker:
    """Asks one question at a time, the latest that is wanted; every other command goes first.

    Args:
        controller: Sends the questions, and cancels them before whatever else it sends.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.ahead = LookAheadLines()
        controller.listeners.append(self.ahead.receive)

    def ask(self, ids: Sequence[int]) -> bool:
        """Ask about candidates of the selected slot, unless all is known or the engine is busy.

        Args:
            ids: The candidates; none where they are not on screen.

        Returns:
            Whether a question was sent.
        """
        controller, node = self._controller, self._controller.timeline.before
        for command in controller.outstanding:
            if isinstance(command, LookAhead) and (not self.ahead.on or not ids or command.node != node):
                command.cancel.set()  # the next is asked when it has ended
        if controller.outstanding or controller.timeline.phase is not Phase.READY:
            return False
        question = self.ahead.question(node, ids)
        if question is not None:
            controller.do(question)
        return question is not None

    @property
    def waits(self) -> bool:
        """Whether a question is out that was not taken back."""
        return any(
            isinstance(command, LookAhead) and not command.cancel.is_set()
            for command in self._controller.outstanding
        )

    def take(self, id: int) -> str:
        """Take a candidate of the selected slot and the tokens after it, as far as they are known.

        Returns:
            What to tell the person; nothing where the tokens are on their way.
        """
        node = self._controller.timeline.before
        line = self.ahead.lines(node).get(id)
        if line is None:
            return (
                "Nothing is known ahead of this candidate yet. Wait a moment, or press ⏎ to take it alone"
                if self.ahead.on
                else "Look-ahead is off. Press l for it, then L takes what stands at a candidate"
            )
        self._controller.do(Take(node, (id, *line.ids)))
        return ""


class LookingAhead(PanelScreen):
    """Shows what might come, and takes it."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.asker = Asker(controller)

    def ask_ahead(self) -> None:
        """Ask what might come after the candidates, where they are on screen."""
        panel = self.candidates
        panel.ahead = self.asker.ahead
        if self.asker.ask(panel.wanted if panel.display else ()):
            panel.redraw()

    def show_ahead(self) -> None:
        """Show what was told of a look ahead, and nothing else: nothing else has changed."""
        self.candidates.show(self.controller.timeline)
        self.ask_ahead()

    def action_look_ahead(self) -> None:
        """Show what might come, or don't any more."""
        self.asker.ahead.switch()
        there = "" if self.candidates.display else "Press 2 to see it. "
        self.answer(there + ON if self.asker.ahead.on else "Look-ahead off")

    def stop_looking(self) -> bool:
        """Switch look-ahead off while the engine is at it; returns whether it was."""
        if self.asker.ahead.on and self.asker.waits:
            self.action_look_ahead()
            return True
        return False

    def action_take_ahead(self) -> None:
        """Take the highlighted candidate and what stands behind it."""
        candidate = self.candidates.candidate
        if candidate is None:
            self.answer("No candidates were recorded here. Press end for the tip")
        else:
            self.answer(self.asker.take(candidate.id))

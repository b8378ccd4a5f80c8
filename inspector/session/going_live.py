"""From a recording to a live session: load the model, see that it is the same, build the tree, compare, go on."""

from __future__ import annotations

from collections.abc import Callable

from engine import records
from engine.commands import Command, Configure, Load, Restore
from engine.records import Failure, ModelFacts, Record, Restored
from engine.settings import LoadSettings
from inspector.display import visible
from inspector.session.controller import Controller
from inspector.session.replay_backend import Engine, ReplayBackend
from inspector.session.restore import differs, largest_difference, restore_of

NOTICEABLE = 0.01
"""Nats: other hardware, or a prompt cut into other chunks, makes smaller differences than this."""


class GoingLive:
    """The way from a recording to a live session, and back where it fails.

    Args:
        controller: Shows the recording.
        recorded: Stands in the engine's place.
        make: Gives a live engine that was started.
        answer: Tells the person something.
        arrived: Called before the first live record is shown.
        there: The model that the engine has already, and how it was loaded.
    """

    def __init__(
        self,
        controller: Controller,
        recorded: ReplayBackend,
        make: Callable[[], Engine],
        answer: Callable[[str], None],
        arrived: Callable[[], None],
        there: tuple[LoadSettings, ModelFacts | None] | None = None,
    ) -> None:
        self._controller, self._recorded, self._make = controller, recorded, make
        self._answer, self._arrived = answer, arrived
        self._there = (there[0], there[1]) if there is not None and there[1] is not None else None
        """The model that the engine has."""
        self._refused: LoadSettings | None = None
        """Those of the model that is not the recorded one, until something else is asked for."""
        self._load, self._force = LoadSettings(), False
        controller.takes = self.takes

    @property
    def under_way(self) -> bool:
        """Whether the way is being gone."""
        return bool(self._controller.timeline.returning)

    # ---- the person -------------------------------------------------------------------------

    def begin(self, load: LoadSettings | None = None) -> str:
        """Set out; asked again after a refusal, go on with the other model all the same.

        Args:
            load: Where the model is, None for where it was when it was recorded.

        Returns:
            What to tell the person.
        """
        controller = self._controller
        if self.under_way or controller.replay is None:
            return ""
        if controller.timeline.prefilled is None:
            return "There is nothing to go on from yet: space or r plays on to the first token"
        controller.replay.pause()
        self._load = load or self._refused or controller.load
        self._force, self._refused = self._load == self._refused, None
        self._set_out()
        return ""

    def _set_out(self) -> None:
        self._tell_progress(f"loading {self._load.model}")
        self._recorded.live = self._make()
        if self._there is not None and self._there[0] == self._load:
            self._loaded(self._there[1])
            return
        self._there = None
        self._controller.do(Load(self._load))

    def stop(self) -> bool:
        """Give it up; returns whether there was anything to give up."""
        for command in self._controller.outstanding:
            if self.under_way and isinstance(command, Load | Configure | Restore):
                command.cancel.set()
        return self.under_way

    # ---- the engine -------------------------------------------------------------------------

    def takes(self, record: Record) -> bool:
        """Take in one record of the live engine while the way is being gone; those taken go no further."""
        if not self.under_way:
            return False
        match record:
            case records.Loading():
                share = f" {record.done / record.total:.0%}" if record.total else ""
                self._tell_progress(f"loading {self._load.model}: {record.stage}{share}")
            case ModelFacts():
                self._there = (self._load, record)
                self._loaded(record)
            case records.Restoring():
                self._tell_progress(f"reading the path {record.done:,}/{record.total:,}")
            case Restored():
                self._restored(record)
                return False
            case Failure(command="Load" | "Configure" | "Restore"):
                self._failed(record)
            case records.Ended(command="Load" | "Configure" | "Restore"):
                if record.cancelled:
                    self._give_up("Stopped: the recording is as it was. G tries again")
                return False
            case _:
                return False
        return True

    def _tell_progress(self, text: str) -> None:
        self._controller.timeline.returning = text

    def _loaded(self, facts: ModelFacts) -> None:
        recorded = self._controller.timeline.facts
        assert recorded is not None  # there is a prompt
        difference = differs(recorded, facts)
        if difference and (not self._force or recorded.vocabulary != facts.vocabulary):
            self._refuse(recorded, facts, difference)
            return
        self._tell_progress("building the tree")
        for command in self._commands():
            self._controller.do(command)

    def _commands(self) -> list[Command]:
        controller = self._controller
        assert controller.replay is not None
        restore = restore_of(controller.timeline, controller.replay.rerolls)
        assert restore is not None
        return [Configure(controller.settings), restore]

    def _refuse(self, recorded: ModelFacts, facts: ModelFacts, difference: str) -> None:
        told = f"{visible(facts.name)} is not the recorded {visible(recorded.name)}: it {difference}. "
        if recorded.vocabulary != facts.vocabulary:
            self._give_up(f"{told}Its token ids mean others. o names another model")
        else:
            self._refused = self._load
            self._give_up(f"{told}G again goes on with it and compares, o names another")

    def _failed(self, failure: Failure) -> None:
        self._give_up(
            f"Not live: {visible(f'{failure.message} {failure.hint}'.strip())} o names another model"
        )

    def _give_up(self, why: str) -> None:
        """Back to the recording."""
        self._controller.timeline.returning = ""
        self._recorded.live = None
        self._answer(why)

    def _restored(self, restored: Restored) -> None:
        """The session is live from here on."""
        controller = self._controller
        difference = largest_difference(controller.timeline, restored)
        assert self._there is not None
        self._arrived()
        controller.load, controller.timeline.facts = self._there
        controller.timeline.returning, controller.timeline.recorded = "", False
        self._answer(_told(difference, len(restored.logprobs)))


def _told(difference: float | None, count: int) -> str:
    """How well the model agrees with the record."""
    if difference is None:
        return "Live. No step was recorded on this path to compare with: space takes the first"
    steps = f"the last {count} steps" if count > 1 else "the last step"
    if difference == 0:
        return f"Live. The logprobs of {steps} are the recorded ones, to the last bit"
    said = f"the logprobs of {steps} differ by {difference:.3g} at most from the recorded ones"
    return f"Live. {said.capitalize()}" if difference < NOTICEABLE else f"Live, and it differs: {said}"

"""From a recording to a live session: load the model, see that it is the same, build the tree, compare, go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine import protocol
from engine.protocol import Command, Configure, Failure, Load, ModelFacts, Record, Restore, Restored
from engine.settings import DTYPES, LoadSettings
from inspector.display import visible
from inspector.keys import key_for
from inspector.session.backend import Backend
from inspector.session.controller import Controller
from inspector.session.replay.player import Player
from inspector.session.restore import differs, largest_difference, restore_of

ROUNDING = 1e-4
"""Nats: a path in float32 that is read in other chunks than those of the recording makes smaller differences."""
NOTICEABLE = 0.01
"""Nats: other hardware, or a prompt cut into other chunks, makes smaller differences than this."""
_KINDS = (Load.kind, Configure.kind, Restore.kind)
LoadedModel = tuple[LoadSettings, ModelFacts]
"""How a model was loaded, and what is known of it."""


class GoingLive:
    """The way from a recording to a live session, and back where it fails.

    Args:
        controller: Shows the recording.
        player: The recording.
        live: Gives the live engine, started.
        answer: Tells the person something.
        arrived: Called before the first live record is shown.
        there: The model that the engine has already.
        own: How the same person loaded it, with what no recording may ask for; None for as it was recorded.
    """

    def __init__(
        self,
        controller: Controller,
        player: Player,
        live: Callable[[], Backend],
        answer: Callable[[str], None],
        arrived: Callable[[], None],
        there: LoadedModel | None = None,
        own: LoadSettings | None = None,
    ) -> None:
        self._controller, self._client, self._player = controller, controller.client, player
        self._live, self._answer, self._arrived = live, answer, arrived
        self._recorded = controller.client.backend
        self._there, self._own = there, own
        self._refused: LoadSettings | None = None
        """Those of the model that is not the recorded one, until something else is asked for."""
        self._load, self._force = LoadSettings(), False
        self._client.intercept = self._take

    @property
    def under_way(self) -> bool:
        """Whether the way is being gone."""
        return bool(self._client.timeline.returning)

    # ---- the person -------------------------------------------------------------------------

    def begin(self, load: LoadSettings | None = None) -> str:
        """Set out; asked again after a refusal, go on with the other model all the same.

        Args:
            load: Where the model is, None for where it was when it was recorded.

        Returns:
            The answer for the person.
        """
        if self.under_way:
            return ""
        if restore_of(self._client.timeline, {}) is None:
            return (
                f"There is nothing to go on from yet: {key_for('step')} or {key_for('run')} plays on to "
                "the first token"
            )
        self._player.pause()
        self._load = load or self._refused or self._as_recorded()
        self._force, self._refused = self._load == self._refused, None
        self._set_out()
        return ""

    def _as_recorded(self) -> LoadSettings:
        """The recorded settings; the dtype is what they came to then, which may be another one on this machine."""
        load, facts = self._own or self._controller.setup.load, self._client.timeline.facts
        if load.dtype != "auto" or facts is None or facts.quantization or facts.dtype not in DTYPES:
            return load
        if self._there is not None and self._there[0] == load and self._there[1].dtype == facts.dtype:
            return load  # it need not be loaded again
        return replace(load, dtype=facts.dtype)

    def _set_out(self) -> None:
        self._progress(f"loading {self._load.model}")
        self._client.backend = self._live()
        if self._there is not None and self._there[0] == self._load:
            self._loaded(self._there[1])
        else:
            self._there = None
            self._client.do(Load(self._load))

    def forget_model(self) -> None:
        """The engine has no model any more: it is loaded again."""
        self._there = None

    def stop(self) -> bool:
        """Give it up; returns whether there was anything to give up."""
        if self.under_way:
            client = self._client
            client.cancel(*client.of(Load), *client.of(Configure), *client.of(Restore))
        return self.under_way

    # ---- the engine -------------------------------------------------------------------------

    def _take(self, record: Record) -> bool:
        """Take in one record of the live engine while the way is being gone; those taken go no further."""
        if not self.under_way:
            return False
        match record:
            case protocol.Loading():
                share = f" {record.done / record.total:.0%}" if record.total else ""
                self._progress(f"loading {self._load.model}: {record.stage}{share}")
            case ModelFacts():
                self._there = (self._load, record)
                self._loaded(record)
            case protocol.Restoring():
                self._progress(f"reading the path {record.done:,}/{record.total:,}")
            case Restored():
                self._restored(record)
                return False
            case Failure(command=kind) if kind in _KINDS:
                self._failed(record)
            case protocol.Ended(command=kind) if kind in _KINDS:
                if record.cancelled:
                    self._give_up(f"Stopped: the recording is as it was. {key_for('go_live')} tries again")
                return False
            case _:
                return False
        return True

    def _progress(self, text: str) -> None:
        self._client.timeline.returning = text

    def _loaded(self, facts: ModelFacts) -> None:
        recorded = self._client.timeline.facts
        assert recorded is not None  # there is a prompt
        difference = differs(recorded, facts)
        if difference and (not self._force or recorded.vocabulary != facts.vocabulary):
            self._refuse(recorded, facts, difference)
            return
        self._progress("building the tree")
        for command in self._commands():
            self._client.do(command)

    def _commands(self) -> list[Command]:
        restore = restore_of(self._client.timeline, self._player.rerolls)
        assert restore is not None  # there is a prompt
        return [Configure(self._controller.setup.settings), restore]

    def _refuse(self, recorded: ModelFacts, facts: ModelFacts, difference: str) -> None:
        told = f"{visible(facts.name)} is not the recorded {visible(recorded.name)}: it {difference}. "
        if recorded.vocabulary != facts.vocabulary:
            self._give_up(f"{told}Its token ids mean others. {key_for('open')} names another model")
        else:
            self._refused = self._load
            self._give_up(
                f"{told}{key_for('go_live')} again goes on with it and compares, {key_for('open')} names another"
            )

    def _failed(self, failure: Failure) -> None:
        self._give_up(
            f"Not live: {visible(f'{failure.message} {failure.hint}'.strip())} {key_for('open')} names another model"
        )

    def _give_up(self, why: str) -> None:
        """Back to the recording."""
        self._progress("")
        self._client.backend = self._recorded
        self._answer(why)

    def _restored(self, restored: Restored) -> None:
        """The session is live from here on."""
        timeline = self._client.timeline
        difference = largest_difference(timeline, restored)
        assert self._there is not None  # the engine has a model
        self._arrived()
        self._client.intercept = lambda record: False
        self._controller.setup.load, timeline.facts = self._there
        timeline.returning, timeline.recorded = "", False
        self._answer(_told(difference, len(restored.logprobs)))


def _told(difference: float | None, count: int) -> str:
    """How well the model agrees with the record."""
    if difference is None:
        return f"Live. No step was recorded on this path to compare with: {key_for('step')} takes the first"
    steps = f"the last {count} steps" if count > 1 else "the last step"
    if difference == 0:
        return f"Live. The logprobs of {steps} are the recorded ones, to the last bit"
    if difference <= ROUNDING:
        return (
            f"Live. The logprobs of {steps} are the recorded ones but for rounding ({difference:.2g} at most)"
        )
    differing = f"the logprobs of {steps} differ by {difference:.3g} at most from the recorded ones"
    if difference < NOTICEABLE:
        return f"Live. {differing.capitalize()}"
    return f"Live, and it differs: {differing}"

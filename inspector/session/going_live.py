"""The way from a recording to a live session: load the model, check that it is the same, build the tree, compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from engine import protocol
from engine.protocol import ModelFacts, Record, Restore, Restored, Step
from engine.settings import DTYPES, LoadSettings
from inspector.display import visible
from inspector.keys import key_for
from inspector.session.client import Backend, EngineClient, Request
from inspector.session.player import Player
from inspector.session.setup import Setup
from inspector.state.beams import BeamHistory
from inspector.state.timeline import Timeline

ROUNDING = 1e-4
"""Nats: a path in float32 that is read in other chunks than those of the recording makes smaller differences."""
NOTICEABLE = 0.01
"""Nats: other hardware, or a prompt cut into other chunks, makes smaller differences than this."""
_HIDDEN = (protocol.Loading, ModelFacts, protocol.Restoring, Restored, protocol.Failure)
"""Records of the live engine that don't concern the recording, which is shown until the session is there."""
LoadedModel = tuple[LoadSettings, ModelFacts]
"""Settings that a model was loaded with, and its facts."""


class GoingLive:
    """The way from a recording to a live session, and back where it fails.

    Args:
        client: Shows the recording.
        setup: Has the recorded settings, then those of the live session.
        player: The recording.
        live: Gives the live engine, started.
        answer: Shows an answer to the user.
        arrived: Called before the first live record is shown.
        there: The model that the engine has already.
        own: How the same person loaded it, with what no recording may ask for; None for as it was recorded.
    """

    def __init__(
        self,
        client: EngineClient,
        setup: Setup,
        player: Player,
        live: Callable[[], Backend],
        answer: Callable[[str], None],
        arrived: Callable[[], None],
        there: LoadedModel | None = None,
        own: LoadSettings | None = None,
    ) -> None:
        self._client, self._setup, self._player = client, setup, player
        self._live, self._answer, self._arrived = live, answer, arrived
        self._recorded = client.backend
        self._there, self._own = there, own
        self._refused: LoadSettings | None = None
        """Settings of a model that is not the recorded one, until something else is asked for."""
        self._load, self._force = LoadSettings(), False
        self._sent: list[Request[Any]] = []
        """Requests of the live engine."""

    @property
    def under_way(self) -> bool:
        """True if the way is being gone."""
        return bool(self._client.timeline.returning)

    # ---- keys -------------------------------------------------------------------------------

    def begin(self, load: LoadSettings | None = None) -> str:
        """Set out; asked again after a refusal, continue with the other model all the same.

        Args:
            load: Settings of the model; None for the recorded ones.

        Returns:
            The answer for the user.
        """
        if self.under_way:
            return ""
        if restore_of(self._client.timeline, {}) is None:
            keys = f"{key_for('step')} or {key_for('run')}"
            return f"There is nothing to continue from yet: {keys} plays on to the first token"
        self._player.pause()
        self._client.note_running()
        self._load = load or self._refused or self._as_recorded()
        self._force, self._refused = self._load == self._refused, None
        self._client.timeline.returning = f"loading {self._load.model}"
        self._client.backend, self._sent = self._live(), []
        if self._there is not None and self._there[0] == self._load:
            self._loaded(self._there[1])
        else:
            self._there = None
            self._sent = [self._client.do(protocol.Load(self._load), self._ended, self._loading, _HIDDEN)]
        return ""

    def _as_recorded(self) -> LoadSettings:
        """The recorded settings; the dtype is what they came to then, which may differ on this machine."""
        load, facts = self._own or self._setup.load, self._client.timeline.facts
        if load.dtype != "auto" or facts is None or facts.dtype not in DTYPES:
            return load
        there = self._there[1] if self._there is not None and self._there[0] == load else None
        if there is not None and (there.dtype, there.quantization) == (facts.dtype, facts.quantization):
            return load  # it need not be loaded again
        plain = "dequantized" if facts.quantized else facts.dtype
        return replace(load, dtype="file" if facts.quantization else plain)

    def forget_model(self) -> None:
        """The engine has no model any more: it is loaded again."""
        self._there = None

    def stop(self) -> bool:
        """Give it up; returns whether there was anything to give up."""
        if self.under_way:
            self._client.cancel(*self._sent)
        return self.under_way

    def leave(self) -> None:
        """The recording goes elsewhere: what was sent is about another place."""
        if self.under_way:
            for request in self._sent:
                request.leave()
            self._give_up(f"Not live: the recording went back. {key_for('go_live')} tries again")

    # ---- the engine -------------------------------------------------------------------------

    def _loading(self, record: Record) -> None:
        if isinstance(record, protocol.Loading):
            share = f" {record.done / record.total:.0%}" if record.total else ""
            self._client.timeline.returning = f"loading {self._load.model}: {record.stage}{share}"
        elif isinstance(record, ModelFacts):
            self._there = (self._load, record)
            self._loaded(record)

    def _restoring(self, record: Record) -> None:
        if isinstance(record, protocol.Restoring):
            self._client.timeline.returning = f"reading the path {record.done:,}/{record.total:,}"
        elif isinstance(record, Restored):  # the session is live from here on
            timeline = self._client.timeline
            difference = largest_difference(timeline, record)
            assert self._there is not None  # the engine has a model
            self._arrived()
            self._setup.load, timeline.facts = self._there
            timeline.returning, timeline.recorded = "", False
            self._answer(_comparison(difference, len(record.logprobs)))
            self._client.receive(record)

    def _ended(self, request: Request[Any]) -> None:
        """The way ends if a command has failed, or was cancelled."""
        if not self.under_way or not (request.failure or request.cancelled):
            return
        for other in self._sent:
            other.leave()
        if request.failure is not None:
            why = f"{request.failure.message} {request.failure.hint}".strip()
            self._give_up(f"Not live: {visible(why)} {key_for('open')} names another model")
        else:
            self._give_up(f"Stopped: the recording is as it was. {key_for('go_live')} tries again")

    def _loaded(self, facts: ModelFacts) -> None:
        recorded = self._client.timeline.facts
        assert recorded is not None  # there is a prompt
        difference = differs(recorded, facts)
        words = f"{visible(facts.name)} is not the recorded {visible(recorded.name)}: it {difference}. "
        if difference and recorded.vocabulary != facts.vocabulary:
            self._give_up(
                f"{words}Its token ids stand for other tokens. {key_for('open')} names another model"
            )
            return
        if difference and not self._force:
            self._refused = self._load
            self._give_up(
                f"{words}{key_for('go_live')} again continues with it and compares, {key_for('open')} names another"
            )
            return
        self._client.timeline.returning = "building the tree"
        restore = restore_of(self._client.timeline, self._player.rerolls)
        assert restore is not None  # there is a prompt
        configure = protocol.Configure(self._setup.settings)
        self._sent += [
            self._client.do(configure, partial(self._setup.configured, then=self._ended), hides=_HIDDEN),
            self._client.do(restore, self._ended, self._restoring, _HIDDEN),
        ]

    def _give_up(self, why: str) -> None:
        """Back to the recording."""
        self._client.timeline.returning = ""
        self._client.backend = self._recorded
        self._answer(why)


def _comparison(difference: float | None, count: int) -> str:
    """The agreement of the model with the recording, in words."""
    if difference is None:
        return f"Live. No step was recorded on this path to compare with: {key_for('step')} takes the first"
    steps = f"the last {count} steps" if count > 1 else "the last step"
    if difference > ROUNDING:
        differing = f"the logprobs of {steps} differ by {difference:.3g} at most from the recorded ones"
        slight = difference < NOTICEABLE
        return f"Live. {differing.capitalize()}" if slight else f"Live, and it differs: {differing}"
    how = f" but for rounding ({difference:.2g} at most)" if difference else ", to the last bit"
    return f"Live. The logprobs of {steps} are the recorded ones{how}"


# ---- the tree that is built -------------------------------------------------------------------


def restore_of(timeline: Timeline, rerolls: dict[int, int]) -> Restore | None:
    """The command that brings the engine to the state of a timeline.

    Args:
        timeline: Its tree, with beams, and its path.
        rerolls: How often was drawn again after a node, if it was.

    Returns:
        None if no prompt was read to its end yet.
    """
    reads = timeline.prompts.by_end
    if all(read.prefilled is None for read in reads.values()):
        return None
    grown = tuple(sorted(_grown(timeline), key=lambda each: each.node))
    again = tuple(sorted((node, count) for node, count in rerolls.items() if count))
    replies = ((end, read.opened.segments.reply) for end, read in reads.items())
    marked = tuple((end, reply) for end, reply in replies if reply.marks)  # else as the template has it
    return Restore(grown, timeline.tip, again, marked)


def _grown(timeline: Timeline) -> Iterator[protocol.Grown]:
    begins = {
        token.node: read.opened.tokens[0].position
        for read in timeline.prompts.by_end.values()
        for token in read.opened.tokens
    }
    tree = timeline.tree
    for node, item in tree.nodes.items():
        of = protocol.Grown(node, tree.parent[node], item.id, "prompt", has_step=isinstance(item, Step))
        if isinstance(item, Step):
            yield replace(of, origin=item.origin, interventions=tree.interventions.get(node, ()))
        else:
            yield replace(of, prompt_begin=begins[node])
    for beam in timeline.of(BeamHistory).nodes.values():
        if beam.node not in tree.nodes:
            yield protocol.Grown(beam.node, beam.parent, beam.id, "beam", has_step=False)


def differs(recorded: ModelFacts, loaded: ModelFacts) -> str:
    """Why a model is not the one of a recording, as the end of a sentence; empty if it is the same."""
    if recorded.vocabulary != loaded.vocabulary:
        return f"has {loaded.vocabulary:,} tokens in its vocabulary, not {recorded.vocabulary:,}"
    if not recorded.fingerprint or not loaded.fingerprint:
        return "may be another one: its files could not be compared"
    if recorded.fingerprint != loaded.fingerprint:
        return "has other weights or another configuration"
    return ""


def largest_difference(timeline: Timeline, restored: Restored) -> float | None:
    """The largest difference between a recorded logprob and that of the model now.

    Returns:
        Difference in nats; None if no step was compared.
    """
    if not restored.logprobs:
        return None
    steps = timeline.items[len(timeline.items) - len(restored.logprobs) :]
    differences = [0.0]
    for item, now in zip(steps, restored.logprobs, strict=True):
        if item.logprob is not None and item.logprob != now:
            difference = abs(item.logprob - now)
            differences.append(math.inf if math.isnan(difference) else difference)
    return max(differences)

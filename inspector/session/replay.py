"""A recording on the screen: the keys that move through it, and going live from it.

Going live means: load the model, check that it is the same, build the tree, compare. Every method that a key calls
returns the answer for the user, or an empty string.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from engine import protocol
from engine.protocol import ModelFacts, Record, Restore, Restored, Step
from engine.settings import DTYPES, LoadSettings
from inspector.display import visible
from inspector.keys import key_for, with_keys
from inspector.session.client import Request
from inspector.session.player import Caption, Player, Telling
from inspector.session.prompts import prompt_of
from inspector.state.beams import BeamHistory
from inspector.state.timeline import STATES, Timeline

if TYPE_CHECKING:
    from inspector.session.playback import Opening, Playback

ROUNDING = 1e-4
"""Nats; differences in float32 from reading a path in different chunks than the recording's are smaller."""
NOTICEABLE = 0.01
"""Nats; differences from different hardware or chunks are smaller."""
BOUND = "This screen only follows the session: do that where the session runs"
_HIDDEN = (protocol.Loading, ModelFacts, protocol.Resampled, protocol.Restoring, Restored, protocol.Failure)
"""Records of the live engine that are kept from the screen, which shows the recording until the session is live."""
_SHOWN_BY: dict[type, str] = {of: shown for state in STATES for of, (_, shown) in state.STOPS.items()}
"""Sentences for records that only a tool shows, with the key that opens it."""


class ReplayTransport:
    """Plays one recording, and continues it live.

    Args:
        playback: Shows the recording.
        player: Reads and plays the recording.
        opening: How the recording was opened.
        loaded: Settings and facts of the model that the engine already has; None if it has none.
    """

    recorded: ClassVar[bool] = True
    whereabouts = ""

    def __init__(
        self,
        playback: Playback,
        player: Player,
        opening: Opening,
        loaded: tuple[LoadSettings, ModelFacts] | None,
    ) -> None:
        self._playback, self.player, self.opening = playback, player, opening
        self.loaded = loaded
        """Settings and facts of the model in the engine; None if it has none."""
        self._client, self._setup = playback.controller.client, playback.controller.setup
        self._recorded = self._client.backend
        self.bound = BOUND if opening.follow else ""
        """Why it can't be continued live; empty if it can."""
        self._selected: Caption | None = None
        """The caption whose token was selected."""
        self._refused: LoadSettings | None = None
        """Settings of a model that was refused because it isn't the recorded one; asking again accepts it."""
        self._load, self._force = LoadSettings(), False
        self._sent: list[Request[Any]] = []
        """Requests to the live engine while going live."""

    @property
    def running(self) -> bool:
        """True if the recording plays."""
        return self.player.playing

    @property
    def ready(self) -> frozenset[str]:
        """The directions that keys can move in, even if nothing is on show yet; none while going live."""
        return frozenset(() if self.under_way else ("on", "back"))

    def step(self, telling: Telling = ()) -> str:
        """Pause, show the next change of the picture, or walk forward at an older token."""
        timeline = self._client.timeline
        if self.player.playing:
            return self._do(self.player.pause)
        if timeline.returning:
            return ""  # while going live the place stays the same
        if telling or timeline.following or not timeline.items or self._at_caption:
            self.player.step(telling)
        else:
            timeline.walk(1)
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Play, from the start if it is at its end, or pause."""
        if self.player.playing:
            return self._do(self.player.pause)
        if not (self._at_caption or self._client.timeline.returning):
            self._client.timeline.select(None)
        return self._do(self.player.play)

    def back(self, telling: Telling = ()) -> str:
        """Go back by one change of the picture."""
        if not self._client.timeline.returning:
            self._client.timeline.select(None)
        return self._do(lambda: self.player.back(telling))

    # ---- captions ---------------------------------------------------------------------------

    @property
    def telling(self) -> Caption | None:
        """The caption on show."""
        return self.player.telling

    @property
    def _at_caption(self) -> bool:
        """True if the caption on show is about the selected token."""
        caption, selected = self.player.telling, self._client.timeline.selected
        return caption is not None and selected is not None and selected.node == caption.node

    def look(self) -> None:
        """Select the token that the caption on show is about; follow the token to come again once it is gone."""
        caption, before, timeline = self.player.telling, self._selected, self._client.timeline
        if caption is before:
            return
        self._selected, selected = caption, timeline.selected
        if before is not None and selected is not None and selected.node == before.node:
            timeline.select(None)
        for slot, item in enumerate(timeline.items if caption is not None else ()):
            if caption is not None and item.node == caption.node:
                timeline.select(slot)
                break

    def change_pace(self, by: int) -> str:
        """Play faster or slower."""
        self._do(lambda: self.player.change_speed(by))
        return "" if self.player.playing else f"Plays {speed_text(self.player.speed)}"

    def _do(self, what: Callable[[], None]) -> str:
        """Do something with the recording, unless the session is going live."""
        if not self._client.timeline.returning:
            what()
            self._client.note_running()
        return ""

    def stop(self) -> bool:
        """Pause, leave the rest of the file unread, or give up going live."""
        if self.under_way:
            self._client.cancel(*self._sent)
            return True
        if self.player.file.stop():
            return True
        if not self.player.playing:
            return self._client.stop()
        self._do(self.player.pause)
        return True

    def to_end(self) -> str:
        """Follow new entries again, if another program may append them."""
        if self.player.file.following:
            self._do(self.player.end)
        return ""

    def describe(self) -> str:
        """A sentence on the place in the recording and the current keys; printable, empty at an older token."""
        timeline = self._client.timeline
        if not (timeline.following or timeline.running or not timeline.items or self._at_caption):
            return ""
        player = self.player
        if player.file.failure is not None:
            return f"Cut off: {visible(str(player.file.failure))}"
        shown, there = player.stop
        where = f"{shown:,} of {there:,}"
        at_end, following = player.position == len(player.file.entries), player.file.following
        live = "" if self.bound else f", {with_keys('{go_live} continues live')}"
        step, run, back = key_for("step"), key_for("run"), f"{key_for('take_back')} goes back"
        if player.file.reading:
            read = f"{player.file.reader.progress:.0%}"
            return f"Reading the recording: {read}. Esc stops it; you can look at what was read"
        if player.file.stopped and at_end:
            return f"The rest was not read. You can look at the part before: ← → walk{live}"
        if not player.settled and not player.playing:
            return f"Going through the recording: {where}"
        if player.playing:
            keys = f"{step.capitalize()} pauses, {key_for('faster')} and {key_for('slower')} change the speed"
            return f"Playing {speed_text(player.speed)}, {where}. {keys}"
        if following and not player.behind:
            if player.file.left:
                return f"The session ended: its program has left. ← → walk, {back}, {key_for('quit')} quits"
            return f"Following a session as it goes. ← → walk, {back}, end follows again"
        if at_end and not following:
            return f"Recorded, at its end. {run} plays it, ← → walk, {back}{live}"
        if elsewhere := _SHOWN_BY.get(type(player.last)):
            return f"Recorded, {where}. {with_keys(elsewhere)}, {step} continues"
        keys = f"{step.capitalize()} shows the next step, {run} plays, {back}"
        if following:
            many = f"{player.behind:,} changes" if player.behind > 1 else "One change"
            return f"{many} behind. {keys}, end follows again"
        return f"Recorded, {where}. {keys}{live}"

    def caption(self, node: int) -> str:
        """The author's caption of a token of the tree on show."""
        return self.player.caption(node)

    @property
    def captioned(self) -> bool:
        """True if the recording has any captions."""
        return bool(self.player.file.captions.at)

    # ---- going live -------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """True while going live."""
        return bool(self._client.timeline.returning)

    def begin(self, load: LoadSettings | None = None) -> str:
        """Go live; when asked again after a different model was refused, continue with it.

        Args:
            load: Settings of the model; None for the recorded ones.

        Returns:
            The answer for the user.
        """
        if self.bound or self.under_way:
            return self.bound
        if restore_of(self._client.timeline, {}) is None:
            keys = f"{key_for('step')} or {key_for('run')}"
            return f"There is nothing to continue from yet: {keys} plays on to the first token"
        self.player.pause()
        self._client.note_running()
        self._load = load or self._refused or self._as_recorded()
        self._force, self._refused = self._load == self._refused, None
        self._client.timeline.returning = f"loading {self._load.model}"
        self._client.backend, self._sent = self._playback.live(), []
        if self.loaded is not None and self.loaded[0] == self._load:
            self._compare(self.loaded[1])
        else:
            self.loaded = None
            self._sent = [self._client.do(protocol.Load(self._load), self._ended, self._loading, _HIDDEN)]
        return ""

    def _as_recorded(self) -> LoadSettings:
        """The recorded settings, with the dtype that `auto` resolved to then, since it may differ on this machine."""
        load, facts = self.opening.own or self._setup.load, self._client.timeline.facts
        if load.dtype != "auto" or facts is None or facts.dtype not in DTYPES:
            return load
        there = self.loaded[1] if self.loaded is not None and self.loaded[0] == load else None
        if there is not None and (there.dtype, there.quantization) == (facts.dtype, facts.quantization):
            return load  # no need to load it again
        plain = "dequantized" if facts.quantized else facts.dtype
        return replace(load, dtype="file" if facts.quantization else plain)

    def leave(self) -> None:
        """Give up going live, because the recording moves to a different place."""
        if self.under_way:
            for request in self._sent:
                request.leave()
            self._give_up(f"Not live: the recording went back. {key_for('go_live')} tries again")

    def _loading(self, record: Record) -> None:
        if isinstance(record, protocol.Loading):
            share = f" {record.done / record.total:.0%}" if record.total else ""
            self._client.timeline.returning = f"loading {self._load.model}: {record.stage}{share}"
        elif isinstance(record, ModelFacts):
            self.loaded = (self._load, record)
            self._compare(record)

    def _restoring(self, record: Record) -> None:
        if isinstance(record, protocol.Restoring):
            self._client.timeline.returning = f"reading the path {record.done:,}/{record.total:,}"
        elif isinstance(record, Restored):  # from now on the session is live
            timeline = self._client.timeline
            difference = largest_difference(timeline, record)
            assert self.loaded is not None  # the engine has a model
            self._playback.arrived(self.player)
            self._setup.load, timeline.facts = self.loaded
            timeline.returning, timeline.recorded = "", False
            if timeline.prompts.opened is not None:
                prompt = prompt_of(timeline.prompts.opened)
                self._setup.prompt = replace(prompt, echo=self._setup.prompt.echo)
            self._playback.host.say(_comparison(difference, len(record.logprobs)))
            self._client.receive(record)

    def _ended(self, request: Request[Any]) -> None:
        """Give up going live if a command has failed or was cancelled."""
        if not self.under_way or not (request.failure or request.cancelled):
            return
        for other in self._sent:
            other.leave()
        if request.failure is not None:
            why = f"{request.failure.message} {request.failure.hint}".strip()
            self._give_up(f"Not live: {visible(why)} {key_for('open')} names another model")
        else:
            self._give_up(f"Stopped: the recording is as it was. {key_for('go_live')} tries again")

    def _compare(self, facts: ModelFacts) -> None:
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
        restore = restore_of(self._client.timeline, self._playback.controller.history.draws)
        assert restore is not None  # there is a prompt
        configure = protocol.Configure(self._setup.settings)
        self._sent += [
            self._client.do(configure, partial(self._setup.configured, then=self._ended), hides=_HIDDEN),
            self._client.do(restore, self._ended, self._restoring, _HIDDEN),
        ]

    def _give_up(self, why: str) -> None:
        """Go back to the recording, with a sentence for the user."""
        self._client.timeline.returning = ""
        self._client.backend = self._recorded
        self._playback.host.say(why)


def speed_text(speed: float) -> str:
    return "as fast as possible" if math.isinf(speed) else f"×{speed:g}"


def _comparison(difference: float | None, count: int) -> str:
    """A sentence on how well the live model agrees with the recording."""
    if difference is None:
        return f"Live. No step was recorded on this path to compare with: {key_for('step')} takes the first"
    steps = f"the last {count} steps" if count > 1 else "the last step"
    if difference > ROUNDING:
        differing = f"the logprobs of {steps} differ by {difference:.3g} at most from the recorded ones"
        slight = difference < NOTICEABLE
        return f"Live. {differing.capitalize()}" if slight else f"Live, and it differs: {differing}"
    how = f" but for rounding ({difference:.2g})" if difference else ", to the last bit"
    are = "are" if count > 1 else "is"
    return f"Live. {steps.capitalize()} {are} as recorded{how}"


# ---- the tree that is built -------------------------------------------------------------------


def restore_of(timeline: Timeline, rerolls: dict[int, int]) -> Restore | None:
    """The command that brings the engine to the state of a timeline.

    Args:
        timeline: Has the tree, the beams and the path.
        rerolls: Number of times that the token after a node was drawn again, by node.

    Returns:
        The command; None if no prefill has finished yet.
    """
    reads = timeline.prompts.by_end
    if all(read.prefilled is None for read in reads.values()):
        return None
    grown = tuple(sorted(_grown(timeline), key=lambda each: each.node))
    again = tuple(sorted((node, count) for node, count in rerolls.items() if count))
    replies = ((end, read.opened.segments.reply) for end, read in reads.items())
    marked = tuple(
        (end, reply) for end, reply in replies if reply.marks
    )  # the others follow from the template
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
            begins_branch = tree.parent[node] not in tree.interventions
            interventions = tree.interventions.get(node, ()) if begins_branch else ()
            yield replace(of, origin=item.origin, interventions=interventions)
        else:
            yield replace(of, prompt_begin=begins[node])
    for beam in timeline.of(BeamHistory).nodes.values():
        if beam.node not in tree.nodes:
            yield protocol.Grown(beam.node, beam.parent, beam.id, "beam", has_step=False)


def differs(recorded: ModelFacts, loaded: ModelFacts) -> str:
    """The differences of a model from the recorded one, as the end of a sentence; empty if it is the same."""
    if recorded.vocabulary != loaded.vocabulary:
        return f"has {loaded.vocabulary:,} tokens in its vocabulary, not {recorded.vocabulary:,}"
    if not recorded.fingerprint or not loaded.fingerprint:
        return "may be another one: its files could not be compared"
    if recorded.fingerprint != loaded.fingerprint:
        return "has other weights or another configuration"
    return ""


def largest_difference(timeline: Timeline, restored: Restored) -> float | None:
    """The largest difference between a recorded logprob and the live model's, in nats; None if no step was compared."""
    if not restored.logprobs:
        return None
    steps = timeline.items[len(timeline.items) - len(restored.logprobs) :]
    pairs = ((item.logprob, now) for item, now in zip(steps, restored.logprobs, strict=True))
    differences = (abs(before - now) for before, now in pairs if before is not None and before != now)
    return max((math.inf if math.isnan(each) else each for each in differences), default=0.0)

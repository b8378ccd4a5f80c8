"""The session on show: the tokens of the current path, the selected slot, and what follows from them.

A path of n tokens has n + 1 slots: slot i < n is token i, slot n is the token to come. Every panel shows the
selected slot, from records that were handed out already: looking never asks the engine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate, pairwise
from typing import TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Distribution, PromptToken, Step, WhatIfStep
from engine.settings import Settings
from inspector.state.batch import Batches
from inspector.state.beams import BeamHistory
from inspector.state.branches import ROOT
from inspector.state.capability import CapabilityState
from inspector.state.inside import KEYS, Answers
from inspector.state.measured import Measured
from inspector.state.second_model import SecondModelSoFar
from inspector.state.segments import PathSegments, Segments
from inspector.state.session_tree import Item, SessionTree
from inspector.state.speculation import Speculation

STATES: tuple[type[CapabilityState], ...] = (
    BeamHistory, Batches, Answers, Measured, Speculation, SecondModelSoFar, Segments,
)  # fmt: skip
"""The states of all capabilities that come with the program."""
ELSEWHERE = tuple(record for state in STATES for record in state.changing())
"""Entries that change a view and not the main screen."""

_UNSHOWN = {protocol.PromptPreview, protocol.TokensFound, *KEYS} - {protocol.TakenApart}
"""Answers that no panel of records shows: those of dialogs, and of the views that look inside the model."""
_SHOWN_ENDS = {kind for state in STATES for kind in state.ENDS}
"""Kinds of commands whose end changes what is shown."""


# ---- prompts ------------------------------------------------------------------------------------

_PACE = 20
"""Number of last chunks of a prefill whose pace counts: chunks grow slower with the context."""
_SHORT_MS = 3000.0
"""Below this the time that is left is not shown."""


class PromptRead(Struct):
    """One prompt of the tree, and what is known of its prefill."""

    opened: protocol.PromptOpened
    chunks: list[protocol.PrefillChunk] = field(default_factory=list)
    prefilled: protocol.Prefilled | None = None
    """The end of its prefill; None until it is reached."""
    readings_ms: float = 0.0
    """Milliseconds of its prompt logprobs so far, in the prefill and after it."""


class Prompts(Struct):
    """The prompts of one tree, of its records."""

    by_end: dict[int, PromptRead] = field(default_factory=dict)
    """Prompts by their last nodes, in the order in which they were given last."""
    current: PromptRead | None = None
    """The path's last prompt; where the path leaves inside one, the prompt on show before."""
    reading: bool = False
    """True if a prompt's prefill is under way, or was stopped on its way."""
    failure: protocol.Failure | None = None
    """Why the last prompt was refused, until one is taken."""
    kv: dict[int, protocol.KVReading] = field(default_factory=dict)
    """The KV cache after the chunk of its own prompt that a prompt's token of the path was in, or was reused by."""

    @property
    def opened(self) -> protocol.PromptOpened | None:
        """The path's last prompt as it was given."""
        return self.current.opened if self.current is not None else None

    @property
    def chunks(self) -> list[protocol.PrefillChunk]:
        """The chunks of its prefill so far."""
        return self.current.chunks if self.current is not None else []

    @property
    def prefilled(self) -> protocol.Prefilled | None:
        """The end of its prefill, once it was reached."""
        return self.current.prefilled if self.current is not None else None

    @property
    def readings_ms(self) -> float:
        """The milliseconds that its prompt logprobs took so far; 0 without any."""
        return self.current.readings_ms if self.current is not None else 0.0

    @property
    def tps(self) -> float:
        """Tokens a second of the chunks so far that are no cold start; 0 where there is none."""
        ends = [self.opened.held if self.opened else 0, *(chunk.done for chunk in self.chunks)]
        warm = [
            (end - begin, chunk.ms)
            for (begin, end), chunk in zip(pairwise(ends), self.chunks, strict=True)
            if not chunk.cold
        ]
        ms = sum(ms for _, ms in warm)
        return sum(tokens for tokens, _ in warm) / ms * 1000 if ms else 0.0

    @property
    def left_ms(self) -> float | None:
        """Time until the prefill ends at the pace of its last chunks; None if it is short, or not known."""
        latest = self.chunks[-_PACE - 1 :]
        if not self.reading or len(latest) < 2 or latest[-1].cold:
            return None
        ms = sum(chunk.ms for chunk in latest[1:])
        left = (latest[-1].total - latest[-1].done) * ms / (latest[-1].done - latest[0].done)
        return left if left >= _SHORT_MS else None

    def held(self, tokens: int) -> int:
        """Number of tokens of a path that the model has run: all but in a prefill.

        Args:
            tokens: Length of the path on show.
        """
        if not self.reading or self.current is None:
            return tokens
        return self.current.chunks[-1].done if self.current.chunks else self.current.opened.held

    # ---- records as they come ---------------------------------------------------------------

    def apply(self, record: protocol.Record, path: Sequence[Item]) -> None:
        """Take in a record of the prompt that is being read, which the path ends with."""
        match record:
            case protocol.PromptOpened():
                end = record.tokens[-1].node if record.tokens else record.parent
                self.by_end.pop(end, None)
                self.by_end[end] = PromptRead(record)
                self.reading, self.failure = True, None
            case protocol.PrefillChunk():
                if self.current is not None:
                    self.current.chunks.append(record)
                    self._read_kv(self.current, path, since=-1)
            case protocol.PromptReadings() if self.current is not None:
                self.current.readings_ms += record.ms
            case protocol.Prefilled():
                if self.current is not None:
                    self.current.prefilled = record
                    self._read_kv(self.current, path, since=-1)
                self.reading = False

    def _read_kv(self, read: PromptRead, path: Sequence[Item], since: int = 0) -> None:
        """Take the cache's readings of a prompt of the path, from one of its chunks on."""
        first = read.opened.tokens[:1]
        begins = [*(token.position for token in first), *(chunk.done for chunk in read.chunks)]
        for begin, chunk in [*zip(begins, read.chunks, strict=False)][since:]:
            for item in path[begin : chunk.done]:
                self.kv[item.node] = chunk.kv
        if read.prefilled is not None:
            end = read.prefilled.next.position
            # without a chunk, the cache held all tokens but the last one
            for item in path[min((*begins[-1:], end - 1)) : end]:
                self.kv[item.node] = read.prefilled.kv

    def follow(self, path: Sequence[Item]) -> None:
        """Another path is on show: find its prompts."""
        self.kv = {}
        for _, read in self._on(path):
            self.current = read
            self._read_kv(read, path)

    def _on(self, path: Sequence[Item]) -> Iterator[tuple[int, PromptRead]]:
        """The prompts of a path, each with the slot after it; none whose tokens were decoded under a shorter one."""
        for slot, item in enumerate(path, 1):
            if isinstance(item, PromptToken) and (read := self.by_end.get(item.node)) is not None:
                yield slot, read

    def roles(self, path: Sequence[Item]) -> dict[int, str]:
        """The role of each message of a path by the slot of its first token; empty for raw text.

        A message that the template leaves out, or writes in another way, has no slot.
        """
        starts: dict[int, str] = {}
        for slot, read in self._on(path):
            if read.opened.messages:
                starts |= {**_roles_of(read.opened), slot: "assistant"}
        return starts

    # ---- at one moment ----------------------------------------------------------------------

    def snapshot(self) -> Prompts:
        """The prompts as they are: what comes later changes nothing in it."""
        reads = {end: replace(read, chunks=list(read.chunks)) for end, read in self.by_end.items()}
        current = next((reads[end] for end, read in self.by_end.items() if read is self.current), None)
        return replace(self, by_end=reads, current=current, kv=dict(self.kv))


def _roles_of(opened: protocol.PromptOpened) -> dict[int, str]:
    """The messages that are in a prompt's own text: of a turn the last one alone."""
    if opened.segments.runs:
        first = {run.message: run.begin for run in reversed(opened.segments.runs)}
        return {
            opened.tokens[place].position: opened.messages[number].role
            for number, place in sorted(first.items(), key=lambda each: each[1])
            if 0 <= number < len(opened.messages) and 0 <= place < len(opened.tokens)
        }
    ends = list(accumulate(len(token.text) for token in opened.tokens))
    places = _only_places(opened)
    return {
        opened.tokens[bisect_right(ends, at)].position: message.role
        for message, at in zip(opened.messages, places, strict=False)
        if 0 <= at < ends[-1]
    }


def _only_places(opened: protocol.PromptOpened) -> list[int]:
    """Places of messages that occur once in the text, if the segments don't say; -1 for others."""
    contents = [message.content.strip() for message in opened.messages]
    if opened.parent != ROOT:
        contents[:-1] = [""] * (len(contents) - 1)
    return [opened.text.find(each) if each and opened.text.count(each) == 1 else -1 for each in contents]


# ---- settings that are tried ---------------------------------------------------------------------


class StageExplanation(Struct, frozen=True):
    """The engine's explanation of the sampler's work on one distribution."""

    of: Distribution
    """The distribution shown that the request was for."""
    settings: Settings | None
    """The sampler settings that it explains; None if they aren't known."""
    explained: protocol.Explained | None
    """The explanation; None if the engine has none."""
    failure: protocol.Failure | None = None
    """The reason why it could not."""


class Trial(Struct):
    """Settings that are tried, and what the same draws make of them."""

    settings: Settings
    last_explanation: StageExplanation | None = None
    """The one that came last."""
    answers: dict[int, WhatIfStep] = field(default_factory=dict)
    """Answers by the step's node."""
    dropped: tuple[int, ...] = ()
    """Nodes of steps that can't be answered: their logits were dropped."""
    answered: int | None = None
    """Tip of the path that was answered for."""


def other(trial: Trial | None, item: PromptToken | Step) -> WhatIfStep | None:
    """The pick of the settings that are tried in a step's place, if that is another token.

    A token that was chosen by hand doesn't depend on the settings.
    """
    if trial is None or not isinstance(item, Step) or item.origin not in ("sampled", "greedy"):
        return None
    answer = trial.answers.get(item.node)
    return answer if answer is not None and not answer.same else None


# ---- the session --------------------------------------------------------------------------------

State = TypeVar("State", bound=CapabilityState)
States = dict[type[CapabilityState], CapabilityState]
TO_PREDICT = "hidden until you predict"


class Phase(Enum):
    """The engine's activity, for the header."""

    LOADING = "loading"
    EMPTY = "empty"
    """A model is there, a prompt isn't."""
    PREFILL = "prefill"
    READY = "ready"
    """The session is at a node: a step may be requested."""
    RUNNING = "running"
    RETURNING = "returning"
    """A recording is shown while a live session is being restored from it."""
    FAILED = "failed"
    """The model could not be loaded."""


class Timeline(Struct):
    """The steps of the current path and the tree they are part of, built from the records as they come."""

    facts: protocol.ModelFacts | None = None
    loading: protocol.Loading | None = None
    prompts: Prompts = field(default_factory=Prompts)
    """The prompts of the tree, and how far they were read."""
    moved: protocol.Moved | None = None
    """The last move's bill, until the next step."""
    finished: dict[int, protocol.Finished] = field(default_factory=dict)
    """Ends by node."""
    running: bool = False
    load_failure: protocol.Failure | None = None
    recorded: bool = False
    """True if the session on show was recorded: there is no engine."""
    returning: str = ""
    """Progress of restoring a live session from a recording; empty if none is restored."""
    last_explanation: StageExplanation | None = None
    """The sampler's explanation of the distribution on show, or of the one before it."""
    trial: Trial | None = None
    """Settings that are tried; None while there are none."""
    rows: set[int] = field(default_factory=set)
    """Nodes whose row of logits was recorded: questions about the sampler there need no engine."""
    trials: int = 0
    """Grows with each other trial, and whenever another step is marked as one that would differ, so that a view knows
    what to redraw."""

    items: list[Item] = field(default_factory=list)
    """The current path: a prompt first, then steps; turns of a conversation follow with prompts of their own."""
    tip: int = ROOT
    """Node of the last token of the path."""
    held: int = 0
    """Number of tokens of the path that the model has run: all but in a prefill."""
    under: tuple[protocol.Intervention, ...] = ()
    """The interventions that the path's end was computed under; empty for the model's own."""
    step_slots: list[int] = field(default_factory=list)
    """Slots of the steps among them."""
    generation: int = 0
    """Grows whenever the path is rebuilt rather than appended to, so that a view knows what to redraw."""
    changes: int = 0
    """Grows with each record but those that dialogs alone show, with each token of a recording that is visited, and
    with each segment that is folded."""
    readings: int = 0
    """Grows whenever known tokens get new readings (prompt logprobs arriving)."""
    next: protocol.Distribution | None = None
    """Distribution after the last token."""
    kv: protocol.KVReading | None = None
    """The KV cache at the tip."""
    memory: protocol.Memory | None = None

    states: States = field(default_factory=lambda: {kind: kind() for kind in STATES})
    """The state of each capability: see `of`."""

    tree: SessionTree = field(default_factory=SessionTree)
    """All tokens, of which the path is one way through."""

    concealed: frozenset[str] = frozenset()
    """Things that are hidden for now, since they must be predicted: ids of panels; `picked`, the token that the sampler
    picked; `probabilities`, what the model expected; `captions`."""
    narrated: bool = False
    """True while a card under the panels says what to do."""
    concealed_as: str = TO_PREDICT
    """The reason, for the frames of the panels."""

    slot: int = 0
    """The selected slot, 0 to len(items); len(items) is the token to come. What follows is of it: see `_look`."""
    following: bool = True
    """True while it is the token to come, and stays so as tokens come."""
    selected: Item | None = None
    """The selected token, None at the token to come."""
    before: int = ROOT
    """Node before the selected slot: a choice there is a child of it."""
    step: Step | None = None
    """The step whose readings are shown: the selected one, or the last one while following."""
    older: int | None = None
    """Number of the selected step, counted from 1: other settings apply from there on; None at the tip and in the
    prompt."""
    distribution: protocol.Distribution | None = None
    """Distribution that the selected slot was, or will be, taken from; None in the prompt."""
    candidates: Sequence[protocol.Candidate] = ()
    """Candidates of the selected slot, in the prompt too; empty if none were recorded."""
    _slot: int | None = None
    """The slot that was asked for, which may come with the next path; None for that of the token to come."""

    def of(self, kind: type[State]) -> State:
        """The state of a capability, by its class."""
        return cast(State, self.states[kind])

    @property
    def place(self) -> tuple[object, ...]:
        """All that panels of records show, and the settings that are tried: while it is equal, none of them changes."""
        return (
            self.changes, self.generation, self.slot, self.tip, self.phase, self.running, self.concealed,
            self.concealed_as, self.narrated, self.load_failure, self.tree.marks.version, self.trials,
            self.tried if self.trial is not None else None,
        )  # fmt: skip

    @property
    def segments(self) -> PathSegments:
        """Segments of the current path."""
        return self.of(Segments).path(self.items, self.readings, over=self.tip in self.finished)

    # ---- the selected slot ------------------------------------------------------------------

    def select(self, slot: int | None) -> None:
        """Select a slot; None or one past the end follows the tip."""
        self._slot = None if slot is None or slot >= len(self.items) else max(0, slot)
        self._look()

    def walk(self, by: int) -> None:
        """Select the slot `by` slots away, as far as the path goes."""
        self.select(max(0, self.slot + by))

    def expect(self, slot: int) -> None:
        """Select a slot of the path that a move is about to bring; until then, and without it, follow the tip."""
        self._slot = slot
        self._look()

    def _look(self) -> None:
        """Read the state of the selected slot from the path, once for all views."""
        items, end = self.items, len(self.items)
        last = items[-1] if items else None
        self.tip = last.node if last is not None else ROOT
        self.held = self.prompts.held(end)
        self.under = self.tree.interventions.get(self.tip, ())
        self.slot = end if self._slot is None else min(self._slot, end)
        self.following = self.slot == end
        item = self.selected = None if self.following else items[self.slot]
        self.before = items[self.slot - 1].node if self.slot else ROOT
        read = last if self.following else item
        self.step = read if isinstance(read, Step) else None
        self.older = item.index + 1 if isinstance(item, Step) else None
        choice = item.choice if isinstance(item, Step) else None
        self.distribution = self.next if self.following else choice
        if self.distribution is not None:
            self.candidates = self.distribution.candidates
        else:
            self.candidates = item.candidates if isinstance(item, PromptToken) else ()

    def conceals(self, *what: str) -> bool:
        """True if any of some things is not to be seen for now: each panel asks before it shows it."""
        return not self.concealed.isdisjoint(what)

    @property
    def taken(self) -> int | None:
        """Token id of the selected slot, or the one that a step would put there, unless that is concealed."""
        if self.selected is not None:
            return self.selected.id
        return None if self.next is None or self.conceals("picked", "candidates") else self.next.picked

    @property
    def phase(self) -> Phase:
        if self.returning:
            return Phase.RETURNING
        if self.facts is None:
            return Phase.FAILED if self.load_failure else Phase.LOADING
        if self.prompts.current is None:
            return Phase.EMPTY
        if self.prompts.reading:
            return Phase.PREFILL
        return Phase.RUNNING if self.running else Phase.READY

    @property
    def steps(self) -> list[Step]:
        """The steps of the current path."""
        return [item for item in self.items if isinstance(item, Step)]

    @property
    def completion_slots(self) -> list[int]:
        """Slots of the steps after the path's last prompt."""
        slots = range(len(self.items))
        begin = next((slot + 1 for slot in reversed(slots) if not isinstance(self.items[slot], Step)), 0)
        return [*slots[begin:]]

    @property
    def completion(self) -> list[Step]:
        """The steps after the path's last prompt."""
        return [item for slot in self.completion_slots if isinstance(item := self.items[slot], Step)]

    def steps_before(self, slot: int) -> int:
        """Number of steps of the path before a slot."""
        return bisect_left(self.step_slots, slot)

    def explanation(self) -> StageExplanation | None:
        """The explanation of the sampler's work at the selected slot, under the settings tried if there are any."""
        explanation = self.trial.last_explanation if self.trial else self.last_explanation
        return explanation if explanation is not None and explanation.of is self.distribution else None

    @property
    def tried(self) -> Distribution | None:
        """The distribution of the settings that are tried at the selected slot, once the engine answered; None if they
        are those that were used."""
        explanation = self.explanation() if self.trial is not None else None
        explained = explanation.explained if explanation is not None else None
        return explained.next if explained is not None and not explained.used else None

    def siblings(self, slot: int) -> list[int]:
        """The token of a slot and its siblings, as nodes, oldest first."""
        return self.tree.siblings(self.items[slot].node) if 0 <= slot < len(self.items) else []

    def visit(self, node: int) -> None:
        """Show the path to a token with its readings as recorded; for a recording, where no engine moves."""
        item, self.moved, self.next, self.kv = self.tree.nodes[node], None, None, None
        self.changes += 1
        if isinstance(item, Step):
            self.next, self.kv, self.memory = item.next, item.kv, item.memory
        elif (read := self.prompts.by_end.get(node)) is not None and (end := read.prefilled) is not None:
            self.next, self.kv, self.memory = end.next, end.kv, end.memory
        if node != self.tip:
            self._rebuild(node)
        self._look()

    # ---- records as they come ---------------------------------------------------------------

    def apply(self, record: protocol.Record) -> None:
        """Take in one record."""
        kind = type(record)
        for state in self.states.values():
            state.apply(record)
        if kind in _UNSHOWN or (isinstance(record, protocol.Ended) and record.command not in _SHOWN_ENDS):
            return
        self.changes += 1
        match record:
            case protocol.ModelFacts():
                self.facts, self.loading, self.load_failure, self.prompts.failure = record, None, None, None
            case protocol.Loading():
                self.loading = record
            case protocol.PromptOpened():
                self._open(record)
            case protocol.PrefillChunk():
                self.prompts.apply(record, self.items)
                self.kv = record.kv
            case protocol.PromptReadings():
                self.prompts.apply(record, self.items)
                for item in filter(self.tree.add_readings, record.tokens):
                    if item.position < len(self.items) and self.items[item.position].node == item.node:
                        self.items[item.position] = item
                self.readings += bool(record.tokens)
            case protocol.Prefilled():
                self.prompts.apply(record, self.items)
                self.next, self.kv, self.memory = record.next, record.kv, record.memory
            case Step():
                self._step(record)
            case protocol.Resampled():
                self._stand(record.next.node)
                self.next = record.next
            case protocol.Moved():
                self.moved, self.next, self.kv, self.prompts.reading = record, record.next, record.kv, False
                self.tree.marks.reveal(record.node, self.tree)
                if record.node != self.tip:
                    self._rebuild(record.node)
            case protocol.Restored():
                self._stand(record.node)
                self.next, self.kv, self.memory, self.moved = record.next, record.kv, record.memory, None
                self.prompts.reading = False
            case protocol.Marked() | protocol.Deleted() | protocol.Undeleted():
                self.tree.marks.apply(record, self.tree, self.tip)
            case protocol.InterventionsHeld(interventions=(_, *_)):
                self.tree.interventions[record.node] = record.interventions
            case protocol.DraftRound(stage="taken"):
                self.tree.drafted(record)
            case protocol.BeamStep() | protocol.BeamEnded():
                for token in self.of(BeamHistory).reached(record):
                    self.tree.marks.grown(token, self.tree)
            case protocol.LogitsRow():
                self.rows.add(record.node)
            case protocol.Finished():
                self.finished[record.node] = record
            case protocol.Failure(command="Load"):
                self.load_failure = record
            case protocol.Failure(command="Prefill"):
                self.prompts.failure = record
        self._look()

    def _open(self, record: protocol.PromptOpened) -> None:
        if record.new_tree:
            self.tree, self.items, self.prompts = SessionTree(), [], Prompts()
            self.finished, self.rows = {}, set()
        self.next = self.moved = self._slot = None
        end = self.tree.open(record)
        self.prompts.apply(record, self.items)
        self._rebuild(end)

    def _step(self, record: Step) -> None:
        if self.following:
            self._slot = None
        self.tree.add(record, record.parent)
        if record.parent == self.tip:
            self.step_slots.append(len(self.items))
            self.items.append(record)
        else:
            self._rebuild(record.node)
        self.next, self.kv, self.memory, self.moved = record.next, record.kv, record.memory, None

    def _stand(self, node: int) -> None:
        """Go where a record belongs that leads nowhere by itself: the user of a recording may have gone elsewhere."""
        if node != self.tip and node in self.tree.nodes:
            self.visit(node)

    def _rebuild(self, node: int) -> None:
        before, self.items = self.items, self.tree.path(node)
        self.tree.go(before, self.items)
        self.prompts.follow(self.items)
        self.step_slots = [slot for slot, item in enumerate(self.items) if isinstance(item, Step)]
        self.generation += 1

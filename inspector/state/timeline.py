"""The session on show: the tokens of the current path, the selected slot, and everything derived from them.

A path of n tokens has n + 1 slots: slot i < n is token i, slot n is the token to come. Every panel shows the
selected slot from records that have already arrived: selecting a slot never asks the engine.
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
"""The states of all capabilities."""
ELSEWHERE = tuple(record for state in STATES for record in state.changing())
"""Records that change a tool's screen but not the main one."""

_UNSHOWN = {protocol.PromptPreview, protocol.TokensFound, *KEYS} - {protocol.TakenApart}
"""Answers that no panel of the main screen shows: those for dialogs and for views of the model's internals."""
_SHOWN_ENDS = {kind for state in STATES for kind in state.ENDS}
"""Kinds of commands whose end changes the screen."""


# ---- prompts ------------------------------------------------------------------------------------

_PACE = 20
"""Number of last chunks of a prefill that its pace is computed from: chunks get slower as the context grows."""
_SHORT_MS = 3000.0
"""A shorter remaining time isn't shown."""


class PromptRead(Struct):
    """One prompt of the tree and the progress of its prefill."""

    opened: protocol.PromptOpened
    chunks: list[protocol.PrefillChunk] = field(default_factory=list)
    prefilled: protocol.Prefilled | None = None
    """The record that ends its prefill; None until it arrives."""
    readings_ms: float = 0.0
    """Milliseconds spent on its prompt logprobs so far, during the prefill and after it."""


class Prompts(Struct):
    """The prompts of one tree, built from its records."""

    by_end: dict[int, PromptRead] = field(default_factory=dict)
    """Prompts by their last nodes, the most recently opened last."""
    current: PromptRead | None = None
    """The path's last prompt; if no prompt ends on the path, the one shown before."""
    reading: bool = False
    """True while a prompt's prefill runs, or after it was stopped before its end."""
    failure: protocol.Failure | None = None
    """Why the last prompt was refused, until a prompt is accepted."""
    kv: dict[int, protocol.KVReading] = field(default_factory=dict)
    """The KV cache after the chunk that read or reused a token of the path's prompts, by the token's node."""

    @property
    def opened(self) -> protocol.PromptOpened | None:
        """The record that opened the path's last prompt."""
        return self.current.opened if self.current is not None else None

    @property
    def chunks(self) -> list[protocol.PrefillChunk]:
        """The chunks of the last prompt's prefill so far."""
        return self.current.chunks if self.current is not None else []

    @property
    def prefilled(self) -> protocol.Prefilled | None:
        """The record that ended the last prompt's prefill; None until it arrives."""
        return self.current.prefilled if self.current is not None else None

    @property
    def readings_ms(self) -> float:
        """The milliseconds spent on the last prompt's logprobs so far."""
        return self.current.readings_ms if self.current is not None else 0.0

    @property
    def tps(self) -> float:
        """Tokens per second over the chunks so far, without cold ones; 0 if there are none."""
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
        """Milliseconds until the prefill ends at the pace of its last chunks; None if it is short or not known."""
        latest = self.chunks[-_PACE - 1 :]
        if not self.reading or len(latest) < 2 or latest[-1].cold:
            return None
        ms = sum(chunk.ms for chunk in latest[1:])
        left = (latest[-1].total - latest[-1].done) * ms / (latest[-1].done - latest[0].done)
        return left if left >= _SHORT_MS else None

    def held(self, tokens: int) -> int:
        """Number of tokens of the path that the model has run: all of them, except during a prefill.

        Args:
            tokens: Length of the path.
        """
        if not self.reading or self.current is None:
            return tokens
        return self.current.chunks[-1].done if self.current.chunks else self.current.opened.held

    # ---- records as they come ---------------------------------------------------------------

    def apply(self, record: protocol.Record, path: Sequence[Item]) -> None:
        """Apply a record of the prompt in prefill, which the path ends with."""
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
        """Store the cache readings for a prompt of the path, from chunk `since` on."""
        first = read.opened.tokens[:1]
        begins = [*(token.position for token in first), *(chunk.done for chunk in read.chunks)]
        for begin, chunk in [*zip(begins, read.chunks, strict=False)][since:]:
            for item in path[begin : chunk.done]:
                self.kv[item.node] = chunk.kv
        if read.prefilled is not None:
            end = read.prefilled.next.position
            # without a chunk, the cache already contained all tokens but the last one
            for item in path[min((*begins[-1:], end - 1)) : end]:
                self.kv[item.node] = read.prefilled.kv

    def follow(self, path: Sequence[Item]) -> None:
        """Find the prompts of a new path."""
        self.kv = {}
        for _, read in self._on(path):
            self.current = read
            self._read_kv(read, path)

    def _on(self, path: Sequence[Item]) -> Iterator[tuple[int, PromptRead]]:
        """The prompts of a path, each with the slot after it, without any that the path decoded after a shorter one."""
        for slot, item in enumerate(path, 1):
            if isinstance(item, PromptToken) and (read := self.by_end.get(item.node)) is not None:
                yield slot, read

    def roles(self, path: Sequence[Item]) -> dict[int, str]:
        """The role of each message of a path by the slot of its first token; empty for raw text.

        A message that the template leaves out or rewrites has no slot.
        """
        starts: dict[int, str] = {}
        for slot, read in self._on(path):
            if read.opened.messages:
                starts |= {**_roles_of(read.opened), slot: "assistant"}
        return starts

    # ---- at one moment ----------------------------------------------------------------------

    def snapshot(self) -> Prompts:
        """A copy that later records don't change."""
        reads = {end: replace(read, chunks=list(read.chunks)) for end, read in self.by_end.items()}
        current = next((reads[end] for end, read in self.by_end.items() if read is self.current), None)
        return replace(self, by_end=reads, current=current, kv=dict(self.kv))


def _roles_of(opened: protocol.PromptOpened) -> dict[int, str]:
    """Roles of the messages in a prompt's own text, by slot; a later turn contains only its last message."""
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
    """The offset in the text of each message that occurs exactly once, for prompts without segments; -1 for others."""
    contents = [message.content.strip() for message in opened.messages]
    if opened.parent != ROOT:
        contents[:-1] = [""] * (len(contents) - 1)
    return [opened.text.find(each) if each and opened.text.count(each) == 1 else -1 for each in contents]


# ---- trial settings ------------------------------------------------------------------------------


class StageExplanation(Struct, frozen=True):
    """The engine's explanation of the sampler's work on one distribution."""

    of: Distribution
    """The distribution on show that was explained."""
    settings: Settings | None
    """The sampler settings of the explanation; None if they aren't known."""
    explained: protocol.Explained | None
    """The explanation; None if the engine has none."""
    failure: protocol.Failure | None = None
    """The reason why it has none."""


class Trial(Struct):
    """Trial settings, and the tokens that the same draws pick under them."""

    settings: Settings
    last_explanation: StageExplanation | None = None
    """The latest explanation under these settings."""
    answers: dict[int, WhatIfStep] = field(default_factory=dict)
    """Answers by the step's node."""
    dropped: tuple[int, ...] = ()
    """Nodes of steps without an answer, because their logits were dropped."""
    answered: int | None = None
    """Last node of the path that the answers are for."""


def other(trial: Trial | None, item: PromptToken | Step) -> WhatIfStep | None:
    """The token that the trial settings pick in place of a step, if it is a different one.

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
    """The activity shown in the header."""

    LOADING = "loading"
    EMPTY = "empty"
    """A model is loaded, but there is no prompt."""
    PREFILL = "prefill"
    READY = "ready"
    """The session is at a node: a step may be requested."""
    RUNNING = "running"
    RETURNING = "returning"
    """A recording is shown while a live session is being restored from it."""
    FAILED = "failed"
    """The model could not be loaded."""


class Timeline(Struct):
    """The current path, its tree, and the selected slot, built from live or recorded records."""

    facts: protocol.ModelFacts | None = None
    loading: protocol.Loading | None = None
    prompts: Prompts = field(default_factory=Prompts)
    """The prompts of the tree and the progress of their prefills."""
    moved: protocol.Moved | None = None
    """The last move and its cost, until the next step."""
    finished: dict[int, protocol.Finished] = field(default_factory=dict)
    """The records that ended a text, by the node of the last token."""
    running: bool = False
    load_failure: protocol.Failure | None = None
    recorded: bool = False
    """True if the session on show is a recording, without an engine."""
    returning: str = ""
    """Progress of restoring a live session from a recording; empty if none is being restored."""
    last_explanation: StageExplanation | None = None
    """The sampler's explanation of the distribution on show, or of the one before it."""
    trial: Trial | None = None
    rows: set[int] = field(default_factory=set)
    """Nodes with a recorded row of logits: questions about the sampler there need no engine."""
    trials: int = 0
    """Grows with each new trial, and whenever more steps are marked as different under it, so that a view knows when to
    redraw."""

    items: list[Item] = field(default_factory=list)
    """The current path: a prompt, then steps, then further turns of a conversation, each with its prompt and steps."""
    tip: int = ROOT
    """Node of the path's last token."""
    held: int = 0
    """Number of tokens of the path that the model has run: all of them, except during a prefill."""
    under: tuple[protocol.Intervention, ...] = ()
    """The interventions that the path's last token was computed under; empty for the unmodified model."""
    step_slots: list[int] = field(default_factory=list)
    """Slots of the steps in `items`."""
    generation: int = 0
    """Grows whenever the path is rebuilt instead of appended to, so that a view knows what to redraw."""
    changes: int = 0
    """Grows with each record that a panel of the main screen may show, with each visited token of a recording, and with
    each folded segment."""
    readings: int = 0
    """Grows whenever known tokens get new readings (prompt logprobs arriving)."""
    next: protocol.Distribution | None = None
    """Distribution after the last token."""
    kv: protocol.KVReading | None = None
    """The KV cache at the last token."""
    memory: protocol.Memory | None = None

    states: States = field(default_factory=lambda: {kind: kind() for kind in STATES})
    """The state of each capability; read with `of`."""

    tree: SessionTree = field(default_factory=SessionTree)
    """All tokens; `items` is one path through them."""

    concealed: frozenset[str] = frozenset()
    """The things that are hidden because the user must predict them: ids of panels, `picked` for the sampler's token,
    `probabilities` for the model's, `captions`."""
    narrated: bool = False
    """True while a card under the panels says what to do."""
    concealed_as: str = TO_PREDICT
    """The reason, shown in the frames of the hidden panels."""

    slot: int = 0
    """The selected slot, 0 to len(items); len(items) is the token to come. `_look` derives the fields below from it."""
    following: bool = True
    """True while the token to come is selected, and stays selected as tokens are added."""
    selected: Item | None = None
    """The selected token; None for the token to come."""
    before: int = ROOT
    """Node before the selected slot, the parent of tokens chosen there."""
    step: Step | None = None
    """The step with the readings on show: the selected one, or the last one while following."""
    older: int | None = None
    """Number of the selected step, from 1; changed settings apply from it on. None at the token to come and in the
    prompt."""
    distribution: protocol.Distribution | None = None
    """Distribution that the token of the selected slot was or will be taken from; None in the prompt."""
    candidates: Sequence[protocol.Candidate] = ()
    """Candidates of the selected slot, also in the prompt; empty if none were recorded."""
    _slot: int | None = None
    """The requested slot, which may only exist on the next path; None for the token to come."""

    def of(self, kind: type[State]) -> State:
        """The state of a capability, by its class."""
        return cast(State, self.states[kind])

    @property
    def place(self) -> tuple[object, ...]:
        """Everything that the panels of the main screen depend on: if it is equal, no redraw is needed."""
        return (
            self.changes, self.generation, self.slot, self.tip, self.phase, self.running, self.concealed,
            self.concealed_as, self.narrated, self.load_failure, self.tree.marks.version, self.trials,
            self.tried if self.trial is not None else None,
        )  # fmt: skip

    @property
    def segments(self) -> PathSegments:
        return self.of(Segments).path(self.items, self.readings, over=self.tip in self.finished)

    # ---- the selected slot ------------------------------------------------------------------

    def select(self, slot: int | None) -> None:
        """Select a slot; None, or a slot past the end, follows the token to come."""
        self._slot = None if slot is None or slot >= len(self.items) else max(0, slot)
        self._look()

    def walk(self, by: int) -> None:
        """Move the selection by some slots, to the ends of the path at most."""
        self.select(max(0, self.slot + by))

    def expect(self, slot: int) -> None:
        """Select a slot of the path that a move will bring; until it arrives, follow the token to come."""
        self._slot = slot
        self._look()

    def _look(self) -> None:
        """Derive the state of the selected slot, once for all views."""
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
        """True if any of these is hidden; each panel asks before it shows something."""
        return not self.concealed.isdisjoint(what)

    @property
    def taken(self) -> int | None:
        """Token id of the selected slot; at the token to come the sampler's pick, unless that is hidden."""
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
        """The explanation of the sampler at the selected slot, under the trial settings if there are any."""
        explanation = self.trial.last_explanation if self.trial else self.last_explanation
        return explanation if explanation is not None and explanation.of is self.distribution else None

    @property
    def tried(self) -> Distribution | None:
        """The distribution at the selected slot under the trial settings; None before the engine answers, or if the
        slot has the same settings anyway."""
        explanation = self.explanation() if self.trial is not None else None
        explained = explanation.explained if explanation is not None else None
        return explained.next if explained is not None and not explained.used else None

    def siblings(self, slot: int) -> list[int]:
        """Nodes of a slot's token and its siblings, oldest first."""
        return self.tree.siblings(self.items[slot].node) if 0 <= slot < len(self.items) else []

    def visit(self, node: int) -> None:
        """Show the path to a token with its recorded readings; for a recording, which has no engine to move."""
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
        """Go to the node of a record that doesn't move there itself: the user of a recording may be elsewhere."""
        if node != self.tip and node in self.tree.nodes:
            self.visit(node)

    def _rebuild(self, node: int) -> None:
        before, self.items = self.items, self.tree.path(node)
        self.tree.go(before, self.items)
        self.prompts.follow(self.items)
        self.step_slots = [slot for slot, item in enumerate(self.items) if isinstance(item, Step)]
        self.generation += 1

"""The bookkeeping of a session against a plain list of paths: walks over all that can be done to its tree.

The engine is known by its commands and records alone, and those by the first part of this file. `Book` keeps for each
token of the tree what is plain to say of it. What has to be computed, a session of its own says that was never
anywhere else: it reads the prompt, takes the tokens of the path, and is asked for nothing more.
"""

from __future__ import annotations

import math
from codecs import getincrementaldecoder
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine import protocol
from engine.beam_settings import BeamSettings
from engine.breakpoints import Breakpoints
from engine.grammar_settings import Grammar
from engine.logits.packing import unpack_row
from engine.settings import LoadSettings, Settings
from engine.speculation_settings import SpeculationSettings
from engine.thread import EngineThread
from tests.zoo import Zoo

# ---- the engine, by its commands and records ---------------------------------------------------
# All names of the program's commands, records and fields are in this part.

MIB = 2**20
PATIENCE = 60.0
"""Seconds after which a command that has not ended is a fault."""
COUNTED = ("greedy", "sampled")
"""Origins of tokens that the sampler picked."""
PROMPT, INTERVENED = "prompt", "intervened"
Row = np.ndarray[Any, np.dtype[np.float32]]
Units = tuple[protocol.Intervention, ...]


class Seen(NamedTuple):
    """The distribution after a token."""

    node: int
    position: int
    candidates: tuple[tuple[int, float, int, float, str | None], ...]
    """Of each id, logprob, rank, the sampler's probability, and the stage that cut it."""
    entropies: tuple[float, float]
    others: tuple[int, float, float]
    stages: tuple[tuple[str, int, float], ...]
    picked: int
    draw: float | None
    share: tuple[float, float] | None
    """Where the picked token's part of the draw begins and ends."""
    reroll: int
    grammar: str | None
    """The state of the grammar."""
    grammar_figures: tuple[int, float, bytes] | None


class Held(NamedTuple):
    """The KV cache."""

    offset: int
    used: int
    kept: int
    budget: int
    passed: int


class Taken(NamedTuple):
    """A token that was taken."""

    node: int
    parent: int
    id: int
    said: tuple[str, bytes, bytes, bool]
    """Its text, its bytes, those that it leaves unfinished, and whether it is special."""
    places: tuple[int, int]
    """In the completion and in the context."""
    origin: str
    figures: tuple[float, float, float]
    """Logprob, probability, surprisal."""
    rank: int
    drawn: float
    """The sampler's probability."""
    choice: Seen
    next: Seen
    kv: Held


class Went(NamedTuple):
    """A move."""

    node: int
    kept: int
    restored: int
    recomputed: int
    bytes: int
    next: Seen
    kv: Held
    note: str


class Given(NamedTuple):
    """A token of a prompt."""

    node: int
    position: int
    id: int
    said: tuple[str, bytes, bool]


class Read(NamedTuple):
    """What the model made of a token of a prompt."""

    given: Given
    figures: tuple[float, float, float, float]
    """Logprob, probability, entropy, and the probability of what is no candidate."""
    rank: int
    candidates: tuple[tuple[int, float, int, float, str | None], ...]


class Opened(NamedTuple):
    """A prompt came into the tree."""

    tokens: tuple[Given, ...]
    parent: int
    held: int
    new: bool
    echo: bool


class Ready(NamedTuple):
    """A prompt was read to its end."""

    kept: int
    restored: int
    bytes: int
    unread: int
    next: Seen
    kv: Held


class Ended(NamedTuple):
    """A stop that a token reached."""

    node: int
    reason: str
    detail: str


class Chunk(NamedTuple):
    """A part of a prompt was read."""

    done: int
    total: int
    kv: Held


class Hit(NamedTuple):
    """A run stopped at breakpoints."""

    node: int
    sentences: tuple[str, ...]


class Grew(NamedTuple):
    """A token that a beam search added, or found in the tree."""

    node: int


class Found(NamedTuple):
    """A continuation that a beam search found."""

    node: int
    ids: tuple[int, ...]


def seen(record: protocol.Distribution) -> Seen:
    grammar = record.grammar
    return Seen(
        record.node,
        record.position,
        _candidates(record.candidates),
        (record.entropy_bits, record.sampler_entropy_bits),
        (record.others, record.others_prob, record.others_sampler_prob),
        tuple((stage.name, stage.kept, stage.removed_mass) for stage in record.stages),
        record.picked,
        record.draw,
        None if record.draw_from is None or record.draw_to is None else (record.draw_from, record.draw_to),
        record.reroll,
        None if grammar is None else grammar.state,
        None if grammar is None else (grammar.allowed, grammar.mass, grammar.forced),
    )


def _candidates(found: Sequence[protocol.Candidate]) -> tuple[tuple[int, float, int, float, str | None], ...]:
    return tuple((each.id, each.logprob, each.rank, each.sampler_prob, each.cut_by) for each in found)


def _held(kv: protocol.KVReading) -> Held:
    return Held(kv.offset, kv.used_bytes, kv.kept_bytes, kv.kept_budget, kv.passed_tokens)


def _given(token: protocol.PromptToken) -> Given:
    return Given(token.node, token.position, token.id, (token.text, token.raw, token.special))


def _read(token: protocol.PromptToken) -> Read:
    figures = token.logprob, token.prob, token.entropy_bits, token.others_prob
    assert token.rank is not None
    return Read(_given(token), figures, token.rank, _candidates(token.candidates))  # type: ignore[arg-type]


def _plain(record: protocol.Record) -> Iterable[Any]:
    """What a record says, without times and memory."""
    match record:
        case protocol.Step():
            yield Taken(
                record.node,
                record.parent,
                record.id,
                (record.text, record.raw, record.pending, record.special),
                (record.index, record.position),
                record.origin,
                (record.logprob, record.prob, record.surprisal_bits),
                record.rank,
                record.sampler_prob,
                seen(record.choice),
                seen(record.next),
                _held(record.kv),
            )
        case protocol.Moved():
            counts = record.kept, record.restored, record.recomputed, record.restored_bytes
            yield Went(record.node, *counts, seen(record.next), _held(record.kv), record.note)
        case protocol.PromptOpened():
            tokens = tuple(map(_given, record.tokens))
            yield Opened(tokens, record.parent, record.held, record.new_tree, record.echo)
        case protocol.PromptReadings():
            yield from map(_read, record.tokens)
        case protocol.Prefilled():
            counts = record.kept, record.restored, record.restored_bytes, record.unread
            yield Ready(*counts, seen(record.next), _held(record.kv))
        case protocol.Finished():
            yield Ended(record.node, record.reason, record.detail)
        case protocol.PrefillChunk():
            yield Chunk(record.done, record.total, _held(record.kv))
        case protocol.BreakpointHit():
            yield Hit(record.node, record.conditions)
        case protocol.BeamStep():
            grown = [*record.live, *record.finished, *([record.greedy] if record.greedy else [])]
            yield from (Grew(each.node) for each in grown)
        case protocol.BeamEnded():
            yield from (Found(each.node, each.ids) for each in (*record.ranking, record.greedy))
        case protocol.Resampled() | protocol.Restored():
            yield seen(record.next)
        case _:
            yield record


class Answer:
    """What came of a command.

    Args:
        records: All of them, without the last.
        cancelled: Whether it was cancelled.
    """

    def __init__(self, records: Sequence[protocol.Record], cancelled: bool) -> None:
        self.cancelled = cancelled
        self.refusal = next((each.message for each in records if isinstance(each, protocol.Failure)), "")
        faults = [each for each in records if isinstance(each, protocol.Failure) and not each.expected]
        assert not faults, faults[0].trace
        self.said = [plain for record in records for plain in _plain(record)]

    def all(self, kind: Any) -> list[Any]:
        """What of it is of a kind, in order."""
        return [each for each in self.said if isinstance(each, kind)]

    def one(self, kind: Any) -> Any:
        """The one thing of a kind in it."""
        (found,) = self.all(kind)
        return found


class Talk:
    """A session of an engine's thread: a command goes in, and all that came of it comes back.

    Args:
        thread: Not started.
        beside: Whether it is a session beside the thread's first.
    """

    def __init__(self, thread: EngineThread | None = None) -> None:
        self._came: SimpleQueue[protocol.Record] = SimpleQueue()
        self.thread = EngineThread(self._emit) if thread is None else thread
        self._session = self.thread if thread is None else thread.beside(self._emit)
        self._cancel: tuple[type[protocol.Record], int] | None = None
        self.idle: list[Any] = []
        """What the engine said in idle time."""
        if thread is None:
            self.thread.start()

    def _emit(self, record: protocol.Record) -> None:
        self._came.put(record)
        if self._cancel is not None and isinstance(record, self._cancel[0]):
            kind, left = self._cancel
            self._cancel = (kind, left - 1)
            if left == 1:
                self.thread.send(protocol.Cancel(record.request))

    def close(self) -> None:
        """End the session, and with the first one the thread."""
        assert self._session.close()

    def do(
        self, command: protocol.Command, cancel: tuple[type[protocol.Record], int] | None = None
    ) -> Answer:
        """Carry out a command; with `cancel` it is cancelled at so many records of a class."""
        self._cancel = cancel
        self._session.send(command)
        records: list[protocol.Record] = []
        while True:
            record = self._came.get(timeout=PATIENCE)
            if record.request != command.id:
                self.idle += _plain(record)
            elif isinstance(record, protocol.Ended):
                self._cancel = None
                return Answer(records, record.cancelled)
            else:
                records.append(record)

    def overheard(self) -> list[Any]:
        """What was said in idle time since the last time that this was asked."""
        while True:
            try:
                self.idle += _plain(self._came.get_nowait())
            except Empty:
                break
        found, self.idle = self.idle, []
        return found

    # what is done

    def load(self, options: LoadSettings) -> protocol.ModelFacts:
        found: protocol.ModelFacts = self.do(protocol.Load(options)).one(protocol.ModelFacts)
        return found

    def configure(self, sampling: Settings) -> Answer:
        return self.do(protocol.Configure(sampling))

    def prompt(
        self, text: str, echo: bool | None = None, chunk: int | None = None, cancel_after: int = 0
    ) -> Answer:
        command = protocol.Prefill(text, chat=False, echo=echo, step_size=chunk)
        return self.do(command, (protocol.PrefillChunk, cancel_after))

    def go_on(self, chunk: int | None = None) -> Answer:
        return self.do(protocol.GoOnPrefill(chunk))

    def turn(self, text: str, echo: bool) -> Answer:
        before = (protocol.Message("user", "Hello."),)
        return self.do(protocol.AddTurn(text, before, echo=echo, differing="path"))

    def step(self) -> Answer:
        return self.do(protocol.TakeStep())

    def choose(self, node: int, token: int, leave: bool = True) -> Answer:
        return self.do(protocol.Choose(node, token, leave_grammar=leave))

    def take(self, node: int, ids: Sequence[int]) -> Answer:
        return self.do(protocol.Take(node, tuple(ids), leave_grammar=True))

    def insert(self, node: int, text: str) -> Answer:
        return self.do(protocol.Insert(node, text, leave_grammar=True))

    def move(self, node: int) -> Answer:
        return self.do(protocol.MoveTo(node))

    def reroll(self, count: int | None) -> Answer:
        return self.do(protocol.Reroll(count))

    def run(self, until: dict[str, Any], cancel_after: int = 0) -> Answer:
        points = Breakpoints(**until) if until else None
        return self.do(protocol.Run(until=points), (protocol.Step, cancel_after))

    def round(self, drafts: int) -> Answer:
        return self.do(protocol.TakeRound(SpeculationSettings(num_draft_tokens=drafts)))

    def beams(self, width: int, tokens: int) -> Answer:
        return self.do(protocol.SearchBeams(BeamSettings(width=width, max_tokens=tokens)))

    def hold(self, node: int, units: Units) -> Answer:
        return self.do(protocol.HoldInterventions(node, units))

    def recall(self, nodes: Sequence[int]) -> Answer:
        return self.do(protocol.Recall(tuple(nodes)))

    def verify(self) -> tuple[int, int, float]:
        """The token, those of its path, and how far its logits are from those of the path that ran again."""
        found = self.do(protocol.Verify()).one(protocol.Verified)
        return found.node, found.tokens, found.largest_difference

    def what_if(self, node: int, sampling: Settings) -> tuple[dict[int, int], list[int]]:
        """By the path's tokens what their draws would have picked, and those that nobody can say of any more."""
        found = self.do(protocol.WhatIf(sampling, node)).one(protocol.WhatIfAnswered)
        return {step.node: step.picked for step in found.steps}, list(found.dropped)

    def look_ahead(self, node: int, ids: Sequence[int]) -> list[tuple[int, tuple[int, ...], float]]:
        *_, last = self.do(protocol.LookAhead(node, tuple(ids), 3)).all(protocol.LookedAhead)
        return [(line.id, line.ids, line.logprob) for line in last.lines]

    def restore(self, path: Sequence[tuple[int, str, int, Units]]) -> Answer:
        """Rebuild one path, of each token its id, its origin, the tokens before its prompt, and what begins at it."""
        grown = [
            protocol.Grown(place + 1, place, id, origin, origin != PROMPT, begin, units)  # type: ignore[arg-type]
            for place, (id, origin, begin, units) in enumerate(path)
        ]
        return self.do(protocol.Restore(tuple(grown), len(grown)))

    def rows(self, *nodes: int) -> dict[int, Row]:
        """The kept logits of some nodes, or all that are kept."""
        found = self.do(protocol.ReadLogits(nodes)).all(protocol.LogitsRow)
        return {each.node: unpack_row(each) for each in found}

    def explained(self, node: int, reroll: int) -> tuple[Seen, bool] | None:
        """The distribution after a node again, and whether that is under the settings that it was under; None where its
        logits aren't kept."""
        answer = self.do(protocol.Explain(node, reroll=reroll))
        if answer.refusal:
            return None
        found = answer.one(protocol.Explained)
        return seen(found.next), found.used


UNITS: tuple[Units, ...] = (
    (protocol.Intervention("mlp", 0),),
    (protocol.Intervention("layer", 1, scale=0.5),),
)
STOP = 512
"""The token of ` cat`."""
SAMPLING: dict[str, Settings] = {
    "drawn": Settings(temp=1.0, seed=7, candidates=8, max_tokens=6),
    "greedy": Settings(temp=0.0, candidates=3, max_tokens=4),
    "filtered": Settings(temp=0.7, top_p=0.9, top_k=40, min_p=0.01, seed=1, candidates=5, max_tokens=9),
    "penalties": Settings(
        temp=1.2,
        seed=2,
        repetition_penalty=1.3,
        repetition_context_size=5,
        frequency_penalty=0.5,
        presence_penalty=0.2,
        presence_context_size=3,
        candidates=4,
        max_tokens=5,
    ),
    "no early end": Settings(temp=1.0, seed=7, min_tokens=4, logit_bias=((2, 60.0),), candidates=6),
    "excluding": Settings(temp=1.0, seed=3, xtc_probability=0.5, xtc_threshold=0.05, candidates=8),
    "stops": Settings(temp=0.9, seed=5, stop=(" cat", "he"), logit_bias=((STOP, 30.0),), candidates=8),
    "another order": Settings(temp=0.8, top_p=0.8, seed=9, sampler_order="transformers", candidates=7),
}
WITH_GRAMMAR = Settings(temp=1.0, seed=4, candidates=6, grammar=Grammar("regex", "( [a-z]+){2,5}"))

# ---- the plain model ---------------------------------------------------------------------------

WORDS = (" the", " cat", " dog", " ran", " home", " and")
"""Each of them is one token, whatever stands before it: so a prompt may have the same tokens as another path."""
ROWS = 64
"""Rows of 4,096 logits that fit into the one MiB that the sessions here have for them."""


class Spot:
    """A token of the tree, as the person who put it there knows it.

    Args:
        number: Of its node.
        id: Of the token.
        parent: None for the place before the first token.
        origin: How it was taken first.
        units: The interventions that it was computed under.
    """

    def __init__(self, number: int, id: int, parent: Spot | None, origin: str, units: Units) -> None:
        self.number, self.id, self.parent, self.origin, self.units = number, id, parent, origin, units
        self.depth = 0 if parent is None else parent.depth + 1
        self.path: list[Spot] = [] if parent is None else [*parent.path, self]
        self.start = self.begin = self.decoded = 0
        """Tokens up to the end of the prompt that it follows or is in, those before that prompt, and those of the path
        that belong to no prompt."""
        self.reroll = 0
        self.drawn = 0
        """How often the draw was repeated that took it last."""
        self.stepped = self.ran = False
        """Whether it has a record of its step, and whether the session has computed it."""
        self.under: Settings | None = None
        """The settings of that distribution."""
        self.shown: Seen | None = None
        """The distribution that was last shown after it."""
        self.row: Row | None = None
        """The logits after it, as they were first seen."""
        self.cut: Any = None
        """The prompts of its path then."""

    def follow(self) -> None:
        """Belong to the completion that its parent is in."""
        assert self.parent is not None
        self.start, self.begin = self.parent.start, self.parent.begin
        self.decoded, self.drawn = self.parent.decoded + 1, self.parent.reroll

    @property
    def prompts(self) -> tuple[tuple[int, int], ...]:
        """Beginning and end of the prompts of its path."""
        found: list[tuple[int, int]] = []
        path, end = self.path, self.depth
        while end:
            at = path[end - 1]
            found.append((at.begin, at.start))
            end = at.begin
        return tuple(reversed(found))

    @property
    def ids(self) -> list[int]:
        return [spot.id for spot in self.path]


class KeptRows:
    """Which rows of logits are kept: those that were shown or asked for last."""

    def __init__(self, most: int) -> None:
        self._most, self._nodes = most, OrderedDict[int, None]()

    def __contains__(self, node: int) -> bool:
        return node in self._nodes

    @property
    def nodes(self) -> list[int]:
        return sorted(self._nodes)

    def put(self, node: int) -> None:
        self._nodes.pop(node, None)
        self._nodes[node] = None
        while len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def use(self, node: int) -> None:
        if node in self._nodes:
            self._nodes.move_to_end(node)

    def replace(self, nodes: Iterable[int]) -> None:
        self._nodes = OrderedDict.fromkeys(nodes)


class Fresh:
    """What a session says that has read one prompt and taken the tokens of one path, and was nowhere else.

    Args:
        engine: Has the model loaded; the sessions are beside its own.
        options: How the model is loaded.
        words: The texts of tokens that a prompt can be made of, by their ids.
    """

    def __init__(self, engine: Talk, options: LoadSettings, words: dict[int, str]) -> None:
        self._engine, self._options, self._words = engine, options, words
        self._talk: Talk | None = None
        self._at: tuple[Any, ...] = ()
        self._numbers: list[int] = []
        self._now: Seen | None = None
        self._settings: Settings | None = None
        self.rows: dict[Any, Row] = {}
        self.distributions: dict[Any, Seen] = {}
        self.steps: dict[Any, Taken] = {}
        self.readings: dict[Any, dict[int, Read]] = {}

    @staticmethod
    def key(spot: Spot) -> tuple[Any, ...]:
        return tuple((each.id, each.units) for each in spot.path), spot.prompts

    def row(self, spot: Spot, sampling: Settings) -> Row:
        """The logits after a path."""
        key = self.key(spot)
        if key not in self.rows:
            self.distribution(spot, sampling)
        return self.rows[key]

    def distribution(self, spot: Spot, sampling: Settings) -> Seen:
        """The distribution after a path, as it is drawn from now."""
        known = (*self.key(spot), sampling, spot.reroll)
        if known not in self.distributions:
            self.distributions[known] = self._ask(spot, sampling)
        return self.distributions[known]

    def _ask(self, spot: Spot, sampling: Settings) -> Seen:
        self._go(spot, sampling)
        assert self._talk is not None
        assert self._now is not None
        if self._now.reroll != spot.reroll:
            self._now = self._talk.reroll(spot.reroll).one(Seen)
        key = self.key(spot)
        if key not in self.rows:
            (self.rows[key],) = self._talk.rows(self._numbers[-1]).values()
        return self._now

    def step(self, spot: Spot) -> Taken | None:
        """The record of a path's last token, where it was taken."""
        return self.steps.get(self.key(spot))

    def new(self, sampling: Settings) -> Talk:
        """A session that has no prompt."""
        self.leave()
        self._talk = talk = Talk(self._engine.thread)
        talk.load(self._options)
        talk.configure(sampling)
        self._settings = sampling
        return talk

    def leave(self) -> None:
        """End the session."""
        if self._talk is not None:
            self._talk.close()
        self._talk, self._at, self._numbers, self._now = None, (), [], None

    def _go(self, spot: Spot, sampling: Settings) -> None:
        """Have a session at the end of a path, which goes on from what it has of it, if it has no more than that."""
        path, prompts = self.key(spot)
        known = self._at[0] if self._at else ()
        goes_on = (
            self._talk is not None
            and bool(known)
            and self._at[1] == prompts
            and path[: len(known)] == known
            and len({units for _, units in path[len(known) - 1 :]}) == 1
        )
        if not goes_on:
            self._begin(spot, sampling)
        assert self._talk is not None
        if self._settings != sampling:
            (self._now,) = self._talk.configure(sampling).all(Seen)
            self._settings = sampling
        rest = path[len(self._at[0]) :]
        if rest:
            taken = self._talk.take(self._numbers[-1], [id for id, _ in rest]).all(Taken)
            for step in taken:
                self._numbers.append(step.node)
                self.steps[path[: len(self._numbers)], prompts] = step
            self._now = taken[-1].next
        self._at = path, prompts

    def _begin(self, spot: Spot, sampling: Settings) -> None:
        talk, path, prompts = self.new(sampling), spot.path, spot.prompts
        own = next((place for place, each in enumerate(path) if each.units), len(path))
        first = path[: prompts[0][1]] if prompts and prompts[0][0] == 0 else []
        if len(prompts) == 1 and own == len(path) and all(each.id in self._words for each in first):
            answer = talk.prompt("".join(self._words[each.id] for each in first), echo=False)
            tokens = answer.one(Opened).tokens
            assert [token.id for token in tokens] == [each.id for each in first]
            self._numbers, self._now = [token.node for token in tokens], answer.one(Ready).next
            self._at = self.key(spot)[0][: len(first)], prompts
            return
        tokens = []
        for place, each in enumerate(path):
            begin = next((begin for begin, end in prompts if begin <= place < end), None)
            beginning = each.units if place == own else ()
            origin = PROMPT if begin is not None else INTERVENED if each.units else "chosen"
            tokens.append((each.id, origin, begin or 0, beginning))
        self._now = talk.restore(tokens).one(Seen)
        self._numbers, self._at = list(range(1, len(path) + 1)), self.key(spot)

    def turn(self, spot: Spot, text: str, sampling: Settings) -> dict[int, Read]:
        """What the model makes of the tokens of a turn after a path, by their places."""
        self.leave()
        self._begin(spot, sampling)
        self._go(spot, sampling)
        assert self._talk is not None
        found = {each.given.position: each for each in self._talk.turn(text, True).all(Read)}
        self.leave()
        return found

    def read(self, ids: Sequence[int], sampling: Settings) -> dict[int, Read]:
        """What the model makes of the tokens of a text that is the first prompt of all, by their places."""
        key = tuple(ids), min(sampling.candidates, 20)
        if key not in self.readings:
            answer = self.new(sampling).prompt("".join(self._words[id] for id in ids), echo=True)
            self.readings[key] = {each.given.position: each for each in answer.all(Read)}
            self.leave()
        return self.readings[key]


class Book:
    """A session, and beside it what is to be said of its tree.

    Args:
        engine: Has the model loaded.
        fresh: Says what has to be computed.
        options: How the model is loaded.
        facts: About the model.
        tolerance: The largest difference of a logit that rounding explains.
    """

    def __init__(
        self,
        engine: Talk,
        fresh: Fresh,
        options: LoadSettings,
        facts: protocol.ModelFacts,
        tolerance: float,
    ) -> None:
        self.fresh, self.options, self.facts, self.tolerance = fresh, options, facts, tolerance
        self.cut_matters = options.kv_bits is not None or options.max_kv_size is not None
        kept = options.kept_kv_mib > 0 and not options.no_kv_cache and not self.cut_matters
        self.plain = set(facts.cache_kinds) == {"plain"} and kept
        """Whether a cache can be cut anywhere and all of its tokens are kept: then each figure of a move is known."""
        self.talk = Talk(engine.thread)
        self.talk.load(options)
        root = Spot(0, -1, None, PROMPT, ())
        self.spots: dict[int, Spot] = {0: root}
        self.children: dict[tuple[int, int, Units], Spot] = {}
        self.kept = KeptRows(0 if options.kept_logits_mib == 0 else ROWS)
        self.sampling = SAMPLING["drawn"]
        self.at: Spot | None = None
        """Where the session stands; None before a prompt, and while one is half read."""
        self.now: Seen | None = None
        """What was shown last."""
        self.cached, self.offset = root, 0
        """The path that the cache holds, and how many of its tokens."""
        self.half: Spot | None = None
        """The end of a prompt that is half read."""
        self.unsure: set[Spot] = set()
        """Tokens that the cache held when such a prompt was left: nobody knows whether they are kept elsewhere."""
        self.unread: Counter[int] = Counter()
        """Tokens of prompts whose readings are to come."""
        self.later: list[Spot] = []
        """Those that come once more of a prompt has been read."""
        self.of_another_cut: set[int] = set()
        """Tokens whose readings come from logits that were kept, of a path that was cut into other chunks."""
        self.sources: dict[int, Callable[[], Read]] = {}
        """What is to be read of the tokens of prompts."""
        self.raws: dict[int, bytes] = {}
        """The bytes of the tokens that were seen."""
        self.talk.configure(self.sampling)

    # ---- the tree -----------------------------------------------------------------------------

    def add(
        self, parent: Spot, id: int, number: int, origin: str, units: Units | None = None, begin: int = -1
    ) -> Spot:
        """A token after another one: the node that is there, or one of a number that no token has had."""
        units = parent.units if units is None else units
        key = parent.number, id, units
        if key not in self.children:
            assert number not in self.spots, f"node {number} is two tokens"
            shown = INTERVENED if units and origin != PROMPT else origin
            self.children[key] = self.spots[number] = Spot(number, id, parent, shown, units)
        spot = self.children[key]
        assert spot.number == number, f"{spot.ids} is node {spot.number} and node {number}"
        if origin != PROMPT:
            spot.follow()
            spot.origin = spot.origin if spot.origin != PROMPT else INTERVENED if units else origin
            return spot
        spot.origin, spot.start, spot.begin = PROMPT, spot.depth, begin
        spot.decoded, spot.drawn = parent.decoded, parent.reroll
        return spot

    def shared(self, one: Spot, other: Spot) -> int:
        """Tokens that two paths have in common at their beginning."""
        pairs = zip(one.path, other.path, strict=False)
        return next((place for place, (a, b) in enumerate(pairs) if a is not b), min(one.depth, other.depth))

    def ran(self, spot: Spot) -> int:
        """Tokens at the beginning of a path that were computed."""
        return next((place for place, each in enumerate(spot.path) if not each.ran), spot.depth)

    def leave(self) -> None:
        """Leave a prompt that is half read, if there is one: what the cache has of it is not kept as a branch is."""
        if self.half is not None:
            self.unsure |= set(self.half.path[: self.offset])
        self.half = None

    def restored(self, end: Spot, want: int, kept: int, found: int) -> int:
        """Tokens of a path that a move restores behind those that stay in the cache.

        Args:
            end: Of the path.
            want: Tokens to hold at most.
            kept: Those that stay.
            found: What the engine says, which is taken where nobody else knows.
        """
        most = max(0, min(want, self.ran(end)) - kept)
        return min(found, most) if self.unsure & set(end.path[kept:]) else most

    def unstepped(self, spot: Spot) -> list[Spot]:
        """The tokens at the end of a path that only a beam search took."""
        found: list[Spot] = []
        for each in reversed(spot.path):
            if each.stepped or each.origin == PROMPT:
                break
            found.append(each)
        return found[::-1]

    @property
    def here(self) -> Spot:
        assert self.at is not None
        return self.at

    # ---- what is checked ------------------------------------------------------------------------

    def stand(self, spot: Spot, shown: Seen, kv: Held | None, last: bool = True) -> None:
        """Stand at a token, and check all that is shown there; its logits only where the session still is."""
        spot.ran = True
        self.at, self.half, self.cached = spot, None, spot
        self.kept.put(spot.number)
        if kv is not None:
            self.cache(kv, spot)
        self.show(shown, last)

    def cache(self, kv: Held, spot: Spot) -> None:
        """Check what is said of the cache when it holds a path."""
        self.offset = kv.offset
        if self.options.no_kv_cache:
            assert kv.offset == 0
            return
        assert kv.kept <= kv.budget == self.options.kept_kv_mib * MIB
        assert kv.offset == spot.depth
        if self.plain:
            assert kv.used == spot.depth * (self.facts.kv_bytes_per_token or 0)

    def show(self, shown: Seen, last: bool = True) -> None:
        """Check a distribution, and the logits behind it, by what a fresh session has there."""
        spot = self.here
        assert (shown.node, shown.position, shown.reroll) == (spot.number, spot.depth, spot.reroll)
        spot.shown, spot.under, self.now = shown, self.sampling, shown
        wanted = self.fresh.distribution(spot, self.sampling)
        fresh = self.fresh.row(spot, self.sampling)
        row = fresh
        COUNTS["paths"].add((self.fresh, self.fresh.key(spot)))
        if last:
            ((node, row),) = self.talk.rows(spot.number).items()
            assert node == spot.number
            self.check_row(spot, row)
        if shown == wanted._replace(node=spot.number):
            COUNTS["equal"].append(1)
            return
        COUNTS["near"].append(1)
        assert not (last and np.array_equal(row, fresh)), f"{shown} is not {wanted}"
        self.alike(shown, wanted, fresh)

    def check_row(self, spot: Spot, row: Row) -> None:
        """Check the logits after a token by those of a fresh session, and by what was seen there before."""
        away = float(np.abs(row - self.fresh.row(spot, self.sampling)).max())
        assert away <= self.tolerance, f"the logits after {spot.ids} are {away:.3g} away"
        if spot.row is None or spot.cut != spot.prompts:
            spot.row, spot.cut = row, spot.prompts
        assert np.abs(row - spot.row).max() <= self.tolerance

    def alike(self, shown: Seen, wanted: Seen, row: Row) -> None:
        """Check that two distributions differ by rounding alone."""
        room = self.tolerance
        assert (shown.draw, shown.grammar) == (wanted.draw, wanted.grammar)
        assert [name for name, *_ in shown.stages] == [name for name, *_ in wanted.stages]
        assert abs(len(shown.candidates) - len(wanted.candidates)) <= 1
        assert shown.entropies[0] == pytest.approx(wanted.entropies[0], abs=20 * room, rel=10 * room)
        for id, logprob, rank, *_ in shown.candidates:
            self.ranked(id, logprob, rank, row)
        if shown.picked == wanted.picked or room > 1e-3:
            return
        if shown.draw is not None and shown.share is not None and wanted.share is not None:
            edges = (*shown.share, *wanted.share)
            assert min(abs(shown.draw - edge) for edge in edges) < 100 * room
        else:  # greedy: two that are as large, but for what penalties do
            assert self.sampling.repetition_penalty or abs(row[shown.picked] - row[wanted.picked]) < 2 * room

    def ranked(self, id: int, logprob: float, rank: int, row: Row) -> None:
        """Check a token's logprob and rank by a row of logits."""
        wide, room = row.astype(np.float64), 2 * self.tolerance
        total = float(wide.max()) + math.log(float(np.exp(wide - wide.max()).sum()))
        assert abs(logprob - (float(row[id]) - total)) <= room + 1e-5
        assert 1 + int((row > row[id] + room).sum()) <= rank <= 1 + int((row >= row[id] - room).sum())

    # ---- steps and moves ------------------------------------------------------------------------

    def hear(self, answer: Answer, units: Units | None = None, caches: bool = True) -> list[Taken]:
        """Take in the moves and steps of an answer, in their order; returns the steps.

        Args:
            answer: To whatever steps and moves.
            units: Interventions that begin with its first step.
            caches: Whether the steps say what the cache holds at them, rather than after them.
        """
        COUNTS["moves"].append(1)
        assert not answer.refusal
        told = [each for each in answer.said if isinstance(each, Went | Taken)]
        for place, each in enumerate(told):
            last = place == len(told) - 1
            if isinstance(each, Went):
                self.went(each, last)
            else:
                self.took(each, last, units, caches or last)
                units = None
        return [each for each in told if isinstance(each, Taken)]

    def went(self, moved: Went, last: bool) -> None:
        """Take in a move."""
        spot, per_token = self.spots[moved.node], self.facts.kv_bytes_per_token or 0
        counts = moved.kept, moved.restored, moved.recomputed
        self.leave()
        assert min(counts) >= 0
        assert bool(moved.note) == bool(moved.recomputed)
        if self.options.no_kv_cache:
            assert counts == (0, 0, 0 if spot.number in self.kept else spot.depth)
        else:
            assert sum(counts) == spot.depth
            assert moved.recomputed >= (spot.number not in self.kept)
            assert moved.kept <= min(self.shared(self.cached, spot), self.offset)
        if self.plain:
            want = spot.depth - (spot.number not in self.kept)
            kept = min(self.shared(self.cached, spot), want, self.offset)
            restored = self.restored(spot, want, kept, moved.restored)
            assert counts == (kept, restored, spot.depth - kept - restored)
            assert moved.bytes == restored * per_token
        for each in spot.path:
            each.ran = True
        self.unsure -= set(spot.path)
        self.kept.use(spot.number)
        self.stand(spot, moved.next, moved.kv, last)

    def took(self, step: Taken, last: bool, units: Units | None, caches: bool) -> None:
        """Take in a step from where the session stands."""
        before, parent = self.now, self.here
        assert before is not None
        assert step.parent == parent.number
        assert step.choice == before
        spot = self.add(parent, step.id, step.node, step.origin, units)
        self.raws[step.id] = step.said[1]
        assert step.places == (parent.decoded, parent.depth)
        assert (step.origin == INTERVENED) == bool(spot.units)
        if step.origin in COUNTED:
            assert step.id == before.picked
            assert (step.origin == "greedy") == (before.draw is None)
        for id, logprob, rank, drawn, _ in before.candidates:
            if id == step.id:
                assert (step.figures[0], step.rank, step.drawn) == (logprob, rank, drawn)
        self.ranked(step.id, step.figures[0], step.rank, self.fresh.row(parent, self.sampling))
        assert step.figures[1:] == (math.exp(step.figures[0]), max(0.0, -step.figures[0] / math.log(2)))
        spot.stepped = True
        self.stand(spot, step.next, step.kv if caches else None, last)
        if (alone := self.fresh.step(spot)) is not None:
            assert (step.said, step.places) == (alone.said, alone.places)

    # ---- stops ------------------------------------------------------------------------------------

    def stop(self, spot: Spot, shown: Seen, most: float) -> str | None:
        """Why a completion ends at a token; None where it goes on."""
        if spot.id in self.facts.eos_ids:
            return "eos"
        if shown.grammar == "complete":
            return "grammar"
        if self.sampling.stop and self.completes(spot, self.sampling.stop):
            return "stop"
        return "length" if spot.depth - spot.start == most else None

    def completes(self, spot: Spot, stops: Sequence[str]) -> bool:
        """Whether a token completes one of some texts in its completion."""
        raws = [self.raws[each.id] for each in spot.path[spot.start :]]
        if not raws[-1]:
            return False
        before = getincrementaldecoder("utf-8")("replace").decode(b"".join(raws[:-1]))
        text = b"".join(raws).decode("utf-8", "replace")
        return any(text.find(stop, max(0, len(before) - len(stop) + 1)) >= 0 for stop in stops)

    def check_stops(self, answer: Answer, most: float | None = None) -> list[str | None]:
        """Check that each step of an answer is followed by the stop that it reached; returns these."""
        limit = self.sampling.max_tokens if most is None else most
        reached = [self.stop(self.spots[step.node], step.next, limit) for step in answer.all(Taken)]
        nodes = [step.node for step in answer.all(Taken)]
        wanted = [(node, reason) for node, reason in zip(nodes, reached, strict=True) if reason]
        assert [(ended.node, ended.reason) for ended in answer.all(Ended)] == wanted
        return reached

    def end_of_run(self, start: Spot) -> int:
        """Tokens of the completion at which a run ends that begins at a token."""
        taken, most = start.depth - start.start, self.sampling.max_tokens
        return most if taken < most else taken + most

    def check_run(self, answer: Answer, start: Spot, until: dict[str, Any]) -> None:
        """Check that a run ended where it has to, and said so."""
        most = math.inf if "tokens" in until else self.end_of_run(start)
        reached = self.check_stops(answer, most)
        steps = answer.all(Taken)
        held = [holds(step.next, place + 1, until) for place, step in enumerate(steps)]
        ends = [bool(reason) or hit for reason, hit in zip(reached, held, strict=True)]
        assert not any(ends[:-1])
        assert answer.cancelled == (not any(ends[-1:]))
        hits = answer.all(Hit)
        assert [hit.node for hit in hits] == ([steps[-1].node] if held[-1:] == [True] else [])
        assert all(hit.sentences for hit in hits)

    # ---- prompts ----------------------------------------------------------------------------------

    def prompt(
        self,
        ask: Callable[[], Answer],
        parent: Spot,
        ids: Sequence[int] | None,
        alone: Callable[[], dict[int, Read]],
        at_once: bool = True,
    ) -> Answer:
        """Give a prompt, and check what comes of it.

        Args:
            ask: Gives it.
            parent: The token that it is behind.
            ids: Its tokens; None where only the engine knows them.
            alone: What a fresh session makes of them.
            at_once: Whether all of it is read then: one that is cancelled behind its last chunk is read in idle time.
        """
        COUNTS["moves"].append(1)
        first, answer = len(self.spots) == 1, ask()
        opened = answer.one(Opened)
        assert ids is None or [token.id for token in opened.tokens] == list(ids)
        assert (opened.new, opened.parent) == (first, parent.number)
        at, known, made = parent, parent.depth, False
        for token in opened.tokens:
            made = made or (at.number, token.id, at.units) not in self.children
            known += not made
            at = self.add(at, token.id, token.node, PROMPT, begin=parent.depth)
            assert token.position == at.depth - 1
            self.raws[token.id] = token.said[1]
        end, path = at, at.path
        self.leave()
        row = known > 0 and path[known - 1].number in self.kept
        want = end.depth - 1 if row or self.cut_matters else max(0, known - 1)
        kept = min(self.shared(self.cached, end), want, self.offset)
        restored = self.restored(end, want, kept, opened.held - kept)
        assert opened.held < end.depth
        if self.plain:
            assert opened.held == kept + restored
        if known:
            self.kept.use(path[known - 1].number)
        self.cached, self.at = path[-2] if len(path) > 1 else self.spots[0], None
        self.later = []
        if opened.echo:
            begin = opened.held + (not (row and opened.held == known))
            places = [each.depth - 1 for each in path[parent.depth :] if each.depth - 1 >= begin]
            if self.cut_matters and known == opened.held < end.depth:
                self.of_another_cut.add(path[known].number)
            table: list[dict[int, Read]] = []

            def read(place: int) -> Read:
                if not table:
                    table.append(alone())
                return table[0][place]

            for place in places:
                self.sources[path[place].number] = partial(read, place)
            self.later = [path[place] for place in places]
        self.chunks(answer, end, at_once)
        if not answer.cancelled:
            ready = answer.one(Ready)
            assert (opened.held, self.plain) in ((ready.kept + ready.restored, self.plain),)
            if self.plain:
                assert (ready.kept, ready.restored) == (kept, restored)
                assert ready.bytes == restored * (self.facts.kv_bytes_per_token or 0)
        return answer

    def chunks(self, answer: Answer, end: Spot, at_once: bool = True) -> None:
        """Take in the chunks of a prompt, and its end where it came to that."""
        done = self.offset if not (found := answer.all(Chunk)) else found[-1].done
        for chunk in found:
            assert chunk.total == end.depth
            assert chunk.kv.offset == chunk.done
        if answer.cancelled:
            self.half, self.offset = end, found[-1].kv.offset
            self.expect(done)
            for each in end.path[:done]:
                each.ran = True
            self.readings([*answer.all(Read), *self.overheard()])
            return
        ready = answer.one(Ready)
        self.expect(end.depth)
        for each in end.path:
            each.ran = True
        self.unsure -= set(end.path)
        self.stand(end, ready.next, ready.kv)
        self.readings([*self.overheard(), *answer.all(Read)])
        assert not (at_once and +self.unread), "some tokens of a prompt were not read"

    def expect(self, done: int) -> None:
        """Expect the readings of a prompt's tokens that follow the first ones of its path that ran."""
        self.unread.update(spot.number for spot in self.later if spot.depth - 1 <= done)
        self.later = [spot for spot in self.later if spot.depth - 1 > done]

    def overheard(self) -> list[Read]:
        found = self.talk.overheard()
        assert all(isinstance(each, Read) for each in found)
        return found

    def readings(self, found: Sequence[Read]) -> None:
        """Check what the model makes of tokens of prompts."""
        for each in found:
            spot = self.spots[each.given.node]
            assert self.unread[spot.number] > 0, (
                f"token {each.given.position} was read twice, or not asked for"
            )
            self.unread[spot.number] -= 1
            assert (each.given.position, each.given.id) == (spot.depth - 1, spot.id)
            wanted = self.sources[spot.number]()
            assert each.given.said == wanted.given.said
            room = 20 * self.tolerance
            if spot.number in self.of_another_cut:
                continue
            assert each.figures == pytest.approx(wanted.figures, abs=room, rel=room)
            if self.tolerance <= EXACT:
                assert abs(each.rank - wanted.rank) <= 2 + wanted.rank // 50
                assert [one[0] for one in each.candidates[:1]] == [one[0] for one in wanted.candidates[:1]]

    # ---- what changes nothing ---------------------------------------------------------------------

    def same(self) -> None:
        """Check that nothing has changed where the session stands: it draws the same again."""
        COUNTS["moves"].append(1)
        shown = self.talk.configure(self.sampling).one(Seen)
        assert shown == self.now
        self.kept.put(self.here.number)

    def check_kept(self, exactly: bool = True) -> None:
        """Check which rows of logits are kept, and that they are those that were seen there."""
        rows = self.talk.rows() if self.kept.nodes else {}
        if exactly:
            assert sorted(rows) == self.kept.nodes
        assert len(rows) == len(self.kept.nodes)
        for node, row in rows.items():
            spot = self.spots[node]
            if spot.row is not None and spot.cut == spot.prompts:
                assert np.abs(row - spot.row).max() <= self.tolerance, f"the row of node {node} is another"
        if not exactly:
            self.kept.replace(rows)
        for node in sorted(rows):
            if self.at is None or node != self.at.number:
                self.kept.use(node)


def holds(shown: Seen, count: int, until: dict[str, Any]) -> bool:
    """Whether one of some breakpoints holds at a distribution, after so many tokens of the run."""
    ((_, logprob, rank, *_),) = [each for each in shown.candidates if each[0] == shown.picked]
    return (
        count >= until.get("tokens", math.inf)
        or shown.entropies[0] > until.get("entropy_above", math.inf)
        or math.exp(logprob) < until.get("prob_below", 0.0)
        or rank > until.get("rank_above", math.inf)
    )


COUNTS: dict[str, Any] = {"moves": [], "equal": [], "near": [], "paths": set()}
"""Of all walks of this process."""
EXACT = 1e-4
"""Where logits are as near as that, so are ranks."""

# ---- walks ---------------------------------------------------------------------------------------


class Ground:
    """A loaded model, and what fresh sessions said of its paths.

    Args:
        zoo: Has the model.
        name: Of the model.
        tolerance: As for `Book`.
        options: How it is loaded.
    """

    def __init__(self, zoo: Zoo, name: str, tolerance: float = 1e-4, **options: Any) -> None:
        model = "pocket" if name == "pocket" else str(zoo.path(name))
        if ":" in name:
            options.setdefault("dtype", "file")
        self.options = LoadSettings(**{"model": model, "kept_logits_mib": 1, "blas": "bundled", **options})
        self.tolerance = tolerance
        self.engine = Talk()
        self.facts = self.engine.load(self.options)
        opened = self.engine.prompt("".join(WORDS)).one(Opened)
        assert len(opened.tokens) == len(WORDS)
        self.words = {token.id: word for token, word in zip(opened.tokens, WORDS, strict=True)}
        self.ids = list(self.words)
        self.fresh = Fresh(self.engine, self.options, self.words)

    def book(self) -> Book:
        return Book(self.engine, self.fresh, self.options, self.facts, self.tolerance)

    def close(self) -> None:
        self.fresh.leave()
        self.engine.close()


def walk(ground: Ground, grammar: bool = False) -> type[RuleBasedStateMachine]:
    """All that can be done to a session, in any order."""
    some_words = st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=6)
    ready = precondition(lambda self: self.book.at is not None)
    room = precondition(lambda self: self.book.at is not None and self.book.at.depth < 60)
    names = [*SAMPLING, *(["grammar"] if grammar else [])]

    class Walk(RuleBasedStateMachine):
        @initialize(words=some_words)
        def begin(self, words: list[int]) -> None:
            self.book = ground.book()
            self.talk = self.book.talk
            self.give(words)

        def teardown(self) -> None:
            if hasattr(self, "book"):
                self.talk.close()

        def give(self, words: list[int], **more: Any) -> Answer:
            ids = [ground.ids[word] for word in words]
            text, sampling = "".join(WORDS[word] for word in words), self.book.sampling
            return self.book.prompt(
                lambda: self.talk.prompt(text, **more),
                self.book.spots[0],
                ids,
                lambda: ground.fresh.read(ids, sampling),
                at_once="cancel_after" not in more,
            )

        def any_spot(self, data: st.DataObject) -> Spot:
            numbers = sorted(self.book.spots)[1:]
            return self.book.spots[numbers[data.draw(st.integers(0, len(numbers) - 1))]]

        # steps

        @rule()
        @room
        def step(self) -> None:
            answer = self.talk.step()
            (step,) = self.book.hear(answer)
            assert step.origin in COUNTED or self.book.here.units
            self.book.check_stops(answer)

        @rule(
            until=st.sampled_from(
                [
                    {"tokens": 1},
                    {"tokens": 4},
                    {"entropy_above": 6.0},
                    {"prob_below": 0.05},
                    {"rank_above": 3},
                    {},
                ]
            )
        )
        @room
        def run(self, until: dict[str, Any]) -> None:
            start, answer = self.book.here, self.talk.run(until)
            self.book.hear(answer)
            self.book.check_run(answer, start, until)
            assert not answer.cancelled

        @rule(after=st.integers(1, 3))
        @room
        def run_and_break_off(self, after: int) -> None:
            start, answer = self.book.here, self.talk.run({"tokens": 9}, cancel_after=after)
            assert after <= len(self.book.hear(answer)) <= after + 2 or not answer.cancelled
            self.book.check_run(answer, start, {"tokens": 9})

        @rule(drafts=st.integers(1, 4))
        @room
        def speculate(self, drafts: int) -> None:
            answer = self.talk.round(drafts)
            if ground.options.no_kv_cache:
                assert answer.refusal
                self.book.same()
                return
            assert 1 <= len(self.book.hear(answer, caches=False)) <= drafts + 1
            self.book.check_stops(answer)

        @rule(place=st.integers(0, 7), data=st.data(), elsewhere=st.booleans())
        @room
        def choose(self, place: int, data: st.DataObject, elsewhere: bool) -> None:
            spot = self.any_spot(data) if elsewhere else self.book.here
            shown = spot.shown or self.book.now
            assert shown is not None
            id = shown.candidates[place % len(shown.candidates)][0]
            moves = spot is not self.book.here
            answer = self.talk.choose(spot.number, id)
            assert len(answer.all(Went)) == moves
            step = self.book.hear(answer)[-1]
            assert (step.parent, step.id) == (spot.number, id)
            assert step.origin == (INTERVENED if spot.units else "chosen")
            self.book.check_stops(answer)

        @rule(ids=st.lists(st.integers(0, 4095), min_size=1, max_size=4))
        @room
        def take(self, ids: list[int]) -> None:
            answer = self.talk.take(self.book.here.number, ids)
            assert [step.id for step in self.book.hear(answer)] == ids
            self.book.check_stops(answer)

        @rule(words=some_words, data=st.data(), elsewhere=st.booleans())
        @room
        def insert(self, words: list[int], data: st.DataObject, elsewhere: bool) -> None:
            spot = self.any_spot(data) if elsewhere else self.book.here
            answer = self.talk.insert(spot.number, "".join(WORDS[word] for word in words))
            steps = self.book.hear(answer)[-len(words) :]
            assert [step.id for step in steps] == [ground.ids[word] for word in words]
            assert {step.origin for step in steps} == {INTERVENED if spot.units else "inserted"}
            self.book.check_stops(answer)

        # moves

        def go(self, spot: Spot) -> None:
            unstepped = self.book.unstepped(spot)
            answer = self.talk.move(spot.number)
            steps = self.book.hear(answer)
            assert [step.node for step in steps] == [each.number for each in unstepped]
            moved = answer.one(Went)
            parent = unstepped[0].parent if unstepped else spot
            assert parent is not None
            assert moved.node == parent.number
            assert self.book.here is spot
            self.book.check_stops(answer)

        @rule(data=st.data())
        def move(self, data: st.DataObject) -> None:
            self.go(self.any_spot(data))

        @rule(count=st.integers(1, 6))
        @ready
        def back(self, count: int) -> None:
            path = self.book.here.path
            self.go(path[max(0, len(path) - 1 - count)])

        @rule(data=st.data())
        @ready
        def to_the_end_of_a_branch(self, data: st.DataObject) -> None:
            parents = {spot.parent.number for spot in self.book.spots.values() if spot.parent is not None}
            ends = [spot for spot in self.book.spots.values() if spot.number not in parents]
            self.go(data.draw(st.sampled_from(ends)))

        # prompts

        @rule(words=some_words, echo=st.booleans(), chunk=st.sampled_from([None, 1, 2]))
        def another_prompt(self, words: list[int], echo: bool, chunk: int | None) -> None:
            self.give(words, echo=echo, chunk=chunk)

        @rule(cut=st.integers(0, 3), words=some_words)
        @ready
        def a_prompt_that_begins_as_the_path(self, cut: int, words: list[int]) -> None:
            ids = self.book.here.ids
            own = next((place for place, id in enumerate(ids) if id not in ground.words), len(ids))
            shared = [ground.ids.index(id) for id in ids[: max(0, own - cut)]]
            self.give([*shared, *words[: 3 * (cut > 0)]] or words, echo=True)

        @rule(words=st.lists(st.integers(0, len(WORDS) - 1), min_size=4, max_size=9), on=st.booleans())
        def a_prompt_that_is_broken_off(self, words: list[int], on: bool) -> None:
            answer = self.give(words, echo=True, chunk=1, cancel_after=1)
            if not answer.cancelled:
                return
            end = self.book.half
            assert end is not None
            assert self.talk.step().refusal
            if on:
                self.book.chunks(self.talk.go_on(), end)

        @rule()
        @precondition(lambda self: self.book.half is not None)
        def go_on_with_it(self) -> None:
            self.book.chunks(self.talk.go_on(2), self.book.half)

        @rule(words=some_words)
        @precondition(lambda self: self.book.at is not None and self.book.at.depth < 30)
        def turn(self, words: list[int]) -> None:
            text, spot, sampling = "".join(WORDS[word] for word in words), self.book.here, self.book.sampling
            alone = ground.fresh.turn(spot, text, sampling)
            self.book.prompt(lambda: self.talk.turn(text, True), spot, None, lambda: alone)

        # settings

        @rule(name=st.sampled_from(names))
        def configure(self, name: str) -> None:
            self.book.sampling = SAMPLING.get(name, WITH_GRAMMAR)
            answer = self.talk.configure(self.book.sampling)
            if self.book.at is None:
                assert not answer.said
            else:
                self.book.kept.put(self.book.at.number)
                self.book.show(answer.one(Seen))

        @rule(count=st.sampled_from([None, None, 0, 2]))
        @ready
        def reroll(self, count: int | None) -> None:
            spot = self.book.here
            spot.reroll = spot.reroll + 1 if count is None else count
            shown = self.talk.reroll(count).one(Seen)
            self.book.kept.put(spot.number)
            self.book.show(shown)

        @rule(data=st.data(), units=st.sampled_from(UNITS))
        @room
        def hold(self, data: st.DataObject, units: Units) -> None:
            spots = [
                spot
                for spot in self.book.spots.values()
                if spot.depth > 1 and not spot.units and not self.book.unstepped(spot)
            ]
            if not spots:
                return
            spot = data.draw(st.sampled_from(spots))
            self.book.check_kept()
            answer = self.talk.hold(spot.number, units)
            if answer.refusal:  # the model has no such part
                self.book.check_kept(exactly=False)
                self.book.same()
                return
            (step,) = self.book.hear(answer, units)
            assert spot.parent is not None
            assert (step.id, step.parent, self.book.here.units) == (spot.id, spot.parent.number, units)
            self.book.check_kept(exactly=False)

        @rule()
        @precondition(lambda self: self.book.at is not None and self.book.at.units)
        def let_go(self) -> None:
            first = next(spot for spot in self.book.here.path if spot.units)
            assert first.parent is not None
            own = self.book.children.get((first.parent.number, first.id, ()), first.parent)
            unstepped = self.book.unstepped(own)
            answer = self.talk.hold(self.book.here.number, ())
            assert [step.node for step in self.book.hear(answer)] == [each.number for each in unstepped]
            assert self.book.here is own

        # what changes nothing where the session stands

        @rule(width=st.integers(1, 3), tokens=st.integers(1, 3), go=st.booleans(), place=st.integers(0, 3))
        @room
        def search(self, width: int, tokens: int, go: bool, place: int) -> None:
            self.book.check_kept()
            answer = self.talk.beams(width, tokens)
            for each in answer.all(Grew):
                if (spot := self.book.spots.get(each.node)) is not None:
                    spot.follow()
                    spot.origin = "beam" if spot.origin == PROMPT else spot.origin
            self.book.check_kept(exactly=False)
            self.book.same()
            if go:
                found = answer.all(Found)
                self.go_to_what_was_found(found[place % len(found)])

        def go_to_what_was_found(self, grown: Found) -> None:
            """Go to what a search found: its tokens are stepped on the way."""
            known, spot = 0, self.book.here
            for id in grown.ids:
                if (
                    child := self.book.children.get((spot.number, id, spot.units))
                ) is None or not child.stepped:
                    break
                known, spot = known + 1, child
            answer = self.talk.move(grown.node)
            assert answer.one(Went).node == spot.number
            steps = self.book.hear(answer)
            assert [step.id for step in steps] == list(grown.ids[known:])
            assert {step.origin for step in steps} <= {INTERVENED if spot.units else "beam", PROMPT}
            assert self.book.here.number == grown.node
            self.book.check_stops(answer)

        @rule(data=st.data())
        @ready
        def explain(self, data: st.DataObject) -> None:
            spot = self.any_spot(data)
            found = self.talk.explained(spot.number, spot.reroll)
            here = spot is self.book.here
            assert (found is not None) == (here or spot.number in self.book.kept)
            if found is None:
                self.recalled(spot)
                found = self.talk.explained(spot.number, spot.reroll)
            if not here:
                self.book.kept.use(spot.number)
            if found is not None:
                shown, used = found
                assert used
                if spot.shown is None:
                    wanted = ground.fresh.distribution(spot, self.book.sampling)._replace(node=spot.number)
                else:
                    wanted = spot.shown
                if shown != wanted:
                    assert spot.cut is None or self.book.tolerance > 0
                    self.book.alike(shown, wanted, ground.fresh.row(spot, self.book.sampling))
            self.book.same()

        def recalled(self, spot: Spot) -> None:
            assert not self.talk.recall([spot.number]).refusal
            self.book.kept.put(spot.number)

        @rule(data=st.data())
        @ready
        def recall(self, data: st.DataObject) -> None:
            path = self.any_spot(data).path
            spots = path[:: data.draw(st.integers(1, 3))]
            assert not self.talk.recall([spot.number for spot in spots]).refusal
            here = self.book.here
            lost = [spot for spot in spots if spot.number not in self.book.kept and spot is not here]
            for spot in spots:
                if spot is not here:
                    self.book.kept.use(spot.number)
            for spot in lost:
                self.book.kept.put(spot.number)
            for spot in lost[-1:]:
                if spot.number in self.book.kept:
                    self.book.check_row(spot, self.talk.rows(spot.number)[spot.number])
                    self.book.kept.use(spot.number)
            self.book.same()

        @rule(name=st.sampled_from(list(SAMPLING)))
        @ready
        def what_if(self, name: str) -> None:
            here, sampling = self.book.here, SAMPLING[name]
            picks, dropped = self.talk.what_if(here.number, sampling)
            stepped = [spot for spot in here.path if spot.stepped]
            lost = []
            for spot in stepped:
                parent = spot.parent
                assert parent is not None
                if parent.number not in self.book.kept:
                    lost.append(spot.number)
                    continue
                self.book.kept.use(parent.number)
                if parent.shown is not None and (parent.under, parent.reroll) == (sampling, spot.drawn):
                    assert picks[spot.number] == parent.shown.picked
            assert dropped == lost
            assert list(picks) == [spot.number for spot in stepped if spot.number not in lost]
            self.book.same()

        @rule()
        @ready
        def verify(self) -> None:
            here = self.book.here
            node, tokens, away = self.talk.verify()
            assert (node, tokens) == (here.number, here.depth)
            assert away <= self.book.tolerance
            self.book.same()

        @rule()
        @ready
        def look_ahead(self) -> None:
            assert self.book.now is not None
            ids = [each[0] for each in self.book.now.candidates[:2]]
            lines = self.talk.look_ahead(self.book.here.number, ids)
            assert [line[0] for line in lines] == ids
            self.book.same()

        @rule()
        @ready
        def what_is_refused_changes_nothing(self) -> None:
            here = self.book.here.number
            for answer in (
                self.talk.move(10**6),
                self.talk.move(0),
                self.talk.take(here, [5, 10**6]),
                self.talk.prompt(""),
                self.talk.go_on(),
                self.talk.recall([10**6]),
            ):
                assert answer.refusal
            self.book.same()

        @rule()
        @ready
        def which_rows_are_kept(self) -> None:
            self.book.check_kept()

    return Walk


def run_walk(machine: type[RuleBasedStateMachine], examples: int, rules: int) -> None:
    """Run a machine so many times, with at most so many rules each."""
    how = settings(
        max_examples=examples,
        stateful_step_count=rules,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=how)


QUANTIZED = {"kv_group_size": 32, "quantized_kv_start": 0}
KINDS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "plain": ("llama", 1e-4, {}),
    "hybrid, with little room": ("qwen3-next", 1e-4, {"kept_kv_mib": 1}),
    "sliding beside global": ("gemma3", 1e-4, {}),
    "recurrent": ("mamba2", 1e-4, {}),
    "convolution": ("lfm2", 1e-4, {}),
    "rotating": ("phi3", 1e-4, {"max_kv_size": 16}),
    "quantized 8 bits": ("llama", 1e-4, {"kv_bits": 8, **QUANTIZED}),
    "no kept logits": ("llama", 1e-4, {"kept_logits_mib": 0}),
    "no kept KV": ("llama", 1e-4, {"kept_kv_mib": 0}),
    "no cache": ("llama", 1e-4, {"no_kv_cache": True}),
    "plain bfloat16": ("llama:bfloat16", 0.25, {}),
    "the bundled model": ("pocket", 1e-4, {"dtype": "float32"}),
}
QUICK = ("plain", "hybrid, with little room", "quantized 8 bits")


@pytest.fixture
def grounds(zoo: Zoo) -> Iterator[Callable[[str], Ground]]:
    """Makes the ground of a kind of cache."""
    made: list[Ground] = []

    def make(kind: str) -> Ground:
        name, tolerance, options = KINDS[kind]
        made.append(Ground(zoo, name, tolerance, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("kind", QUICK)
def test_a_walk_keeps_its_books_as_a_list_of_paths_does(grounds: Callable[[str], Ground], kind: str) -> None:
    run_walk(walk(grounds(kind)), 2, 60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_walk_keeps_its_books_as_a_list_of_paths_does(
    grounds: Callable[[str], Ground], kind: str
) -> None:
    run_walk(walk(grounds(kind), grammar=True), 15, 100)
    print({name: len(found) for name, found in COUNTS.items()})


# ---- some of it by itself ------------------------------------------------------------------------

FIRST = [0, 1, 2, 3]
"""Words of a first prompt."""


@pytest.mark.parametrize(
    "second",
    [
        pytest.param([0, 1, 4, 5], id="shares a beginning"),
        pytest.param([0, 1, 2, 3], id="is equal"),
        pytest.param([0, 1], id="is its beginning"),
        pytest.param([0, 1, 2, 3, 5], id="goes on"),
        pytest.param([4], id="one other token"),
        pytest.param([0], id="its first token"),
    ],
)
@pytest.mark.parametrize("steps", [0, 3])
def test_the_logprobs_of_a_second_prompt_are_those_of_a_fresh_session(
    plain: Ground, second: list[int], steps: int
) -> None:
    """Each token that is new has some, the first of them too; so has the one after the prompt."""
    book, ids = plain.book(), [plain.ids[word] for word in second]
    book.talk.prompt("".join(WORDS[word] for word in FIRST), echo=True)
    for _ in range(steps):
        book.talk.step()
    answer = book.talk.prompt("".join(WORDS[word] for word in second), echo=True)
    found = {each.given.position: each for each in answer.all(Read)}
    alone = plain.fresh.read(ids, book.sampling)
    shared = next((at for at, (a, b) in enumerate(zip(FIRST, second, strict=False)) if a != b), 4)
    assert sorted(found) == [place for place in range(len(second)) if place >= max(1, shared)]
    for place, each in found.items():
        wanted = alone[place]
        assert each.figures == pytest.approx(wanted.figures, abs=1e-3, rel=1e-3)
        assert [candidate[0] for candidate in each.candidates[:2]] == [
            candidate[0] for candidate in wanted.candidates[:2]
        ]
    ready, fresh = answer.one(Ready), plain.fresh.new(book.sampling)
    wanted = fresh.prompt("".join(WORDS[word] for word in second)).one(Ready).next
    assert (ready.next.picked, ready.next.draw) == (wanted.picked, wanted.draw)
    book.talk.close()


@pytest.fixture
def plain(grounds: Callable[[str], Ground]) -> Ground:
    """The plain cache."""
    return grounds("plain")


def test_without_a_cache_nothing_goes_on_from_a_prompt_that_was_stopped(
    grounds: Callable[[str], Ground],
) -> None:
    ground = grounds("no cache")
    book, alone = ground.book(), ground.fresh.new(SAMPLING["drawn"])
    for talk in (book.talk, alone):
        talk.prompt(" the cat")
    end = book.talk.step().one(Taken).node
    alone.step()
    assert book.talk.prompt(" dog ran home and", chunk=1, cancel_after=1).cancelled
    moved, step, wanted = book.talk.move(end).one(Went), book.talk.step().one(Taken), alone.step().one(Taken)
    assert (moved.kv.offset, step.id, step.next) == (0, wanted.id, wanted.next._replace(node=step.node))
    book.talk.close()

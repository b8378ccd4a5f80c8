"""Steering: directions made of texts or branches, and what they do at one strength after another, beside random ones.

Contrastive activation addition (Rimsky et al. 2024): the difference of the mean residual streams of two kinds of text
is added to the stream of another. What that does says little by itself, since adding any vector of that length changes
what the model predicts: so every strength is tried with random directions of the same norm, too, as rows of the same
forwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import Cancelled, StepError
from engine.inside.capture import (
    bounds,
    capture,
    largest_difference,
    relative_error,
    runner_before,
)
from engine.inside.interventions import (
    GROUND_RUNS,
    Ground,
    Scaling,
    changed_masses,
    check_direction,
    check_directions,
    check_interventions,
    edited,
    finite,
    first_changed,
    ground,
    kl_bits,
    vector_of,
)
from engine.inside.patching import Kept, forward_rows, rows_at_once
from engine.inside.taps import Edits
from engine.model.forward import Runner
from engine.model.layers import decoder_layers
from engine.protocol import (
    LONGEST_NAME,
    RANDOM_DIRECTIONS,
    CaptureFacts,
    Check,
    Direction,
    DirectionMade,
    Floats,
    Intervention,
    MakeDirection,
    Measuring,
    SteeredStrength,
    StrengthsSwept,
    SweepStrengths,
)
from engine.sampling.ranking import Row, checked_logprobs, ranked
from engine.session.session import Session
from engine.task import Stopped, never
from engine.tree import prompt_chunks

# ---- directions --------------------------------------------------------------------------------

MOST_TEXTS = 64
"""Texts of each kind at most."""
LONGEST = 2048
"""Tokens of one at most."""


def make_direction(
    session: Session, asked: MakeDirection, stopped: Stopped = never
) -> Iterator[Measuring | DirectionMade]:
    """Make a direction after a layer of texts, or of two nodes of the tree.

    Args:
        session: Has read a prompt; not changed.
        asked: Of what.
        stopped: Polled before each text and chunk.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such layer or node, the texts or nodes are missing, too many or too long, both kinds give
            the same stream, or the architecture's layers aren't called.
        PromptError: A text is empty, or the model has no embedding for a token of it.
        Cancelled: `stopped` returned True.
    """
    begun, model = time.perf_counter(), session.runner.model
    depth = len(decoder_layers(model))
    if not 0 <= asked.layer < depth:
        raise StepError(
            f"There is no L{asked.layer + 1}: this model has {depth} layers.", f"Choose L1 to L{depth}."
        )
    if asked.nodes:
        if len(asked.nodes) != 2 or asked.nodes[0] == asked.nodes[1]:
            raise StepError("A direction is made of two nodes.", "Give two that differ.")
        sides = [[partial(_of_node, session, node, asked.layer, stopped)] for node in asked.nodes]
    else:
        texts = [_cut(session, side) for side in (asked.toward, asked.away)]
        sides = [[partial(_of_text, session, ids, asked.layer, stopped) for ids in side] for side in texts]
    streams: list[_Stream] = []
    for read in chain(*sides):
        count = len(streams)
        yield Measuring(asked.kind, count, sum(map(len, sides)), f"text {count + 1}")
        streams.append(read())
    both = streams[: len(sides[0])], streams[len(sides[0]) :]
    vector = np.subtract(*(np.mean([stream.state for stream in side], axis=0) for side in both))
    facts = session.facts
    direction = Direction(
        name=asked.name[:LONGEST_NAME] or "direction",
        layer=asked.layer,
        vector=_packed(vector),
        model=facts.name,
        fingerprint=facts.fingerprint,
    )
    if not vector.any():
        raise StepError("Both kinds of text give the same stream.", "Give texts that end in other words.")
    check_direction(direction)
    check = Check("forward", max(stream.error for stream in streams), 0.0)
    ms, step_ms = (time.perf_counter() - begun) * 1000, streams[0].step_ms
    yield DirectionMade(
        direction=direction,
        toward=asked.toward,
        away=asked.away,
        nodes=asked.nodes,
        norm=_norm(vector),
        stream_norm=float(np.mean([_norm(stream.state) for stream in streams])),
        tokens_run=sum(stream.tokens for stream in streams),
        facts=CaptureFacts((check,), ms, step_ms, facts.family),
    )


class _Stream(Struct, frozen=True):
    """The residual stream after a layer at the last token of a text."""

    state: Row
    """Shape (width,)."""
    error: float
    """How far the logits of the tapped forward are from those of a plain one."""
    tokens: int
    step_ms: float


def _cut(session: Session, texts: Sequence[str]) -> list[list[int]]:
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise StepError(
            f"A direction was to be made of {len(texts)} texts of one kind.",
            f"Give 1 to {MOST_TEXTS} of each.",
        )
    window = min(LONGEST, session.facts.context_window or LONGEST)
    cut = [session.tokens.encode(text) for text in texts]
    if (longest := max(map(len, cut))) > window:
        raise StepError(
            f"A text has {longest:,} tokens.",
            f"Give shorter ones, of {window:,} tokens at most: the last counts.",
        )
    return cut


def _of_text(session: Session, ids: list[int], layer: int, stopped: Stopped) -> _Stream:
    if stopped():
        raise Cancelled
    runner = session.runner.fresh()
    if len(ids) > 1:
        runner.forward_path(ids[:-1], prompt_chunks(len(ids)), stopped)
    begun = time.perf_counter()
    plain: Row = np.array(runner.copy().forward_logits(ids[-1:])[0])
    step_ms = (time.perf_counter() - begun) * 1000
    kept = Kept(session.runner.model, "layer")
    with edited(session.runner.model, kept).set():
        tapped: Row = np.array(runner.forward_logits(ids[-1:])[0])
    return _Stream(_state(kept, layer), largest_difference(tapped, plain), len(ids) + 1, step_ms)


def _of_node(session: Session, node: int, layer: int, stopped: Stopped) -> _Stream:
    session.check_node(node)
    kept = Kept(session.runner.model, "layer")
    read = capture(session, node, edits=kept, stopped=stopped)
    changed = largest_difference(np.array(read.logits), np.array(read.plain))
    return _Stream(_state(kept, layer), changed, 2, read.step_ms)


def _state(kept: Kept, layer: int) -> Row:
    """The stream after a layer where one token ran; the mean of the streams of a family that has several."""
    if (state := kept.states.get((layer, ""))) is None:
        raise StepError(
            f"L{layer + 1} isn't called as a module of its own in this architecture: its stream can't be read.",
            "Steer another model.",
        )
    found: npt.NDArray[np.float32] = np.array(state.astype(mx.float32)).reshape(-1, state.shape[-1])
    mean: Row = found.mean(axis=0)
    return mean


def _packed(vector: Row) -> Floats:
    return Floats(vector.shape, np.ascontiguousarray(vector, "<f4").tobytes())


def _norm(vector: Row) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def controls(direction: Direction, count: int = RANDOM_DIRECTIONS, seed: int = 0) -> list[Direction]:
    """Random directions of a direction's norm, each way equally probable.

    Args:
        direction: Theirs is the norm.
        count: How many.
        seed: Of the draws.
    """
    vector = vector_of(direction)
    drawn = np.random.default_rng(seed).normal(size=(count, vector.size))
    drawn *= _norm(vector) / np.linalg.norm(drawn, axis=1, keepdims=True)
    return [replace(direction, name="random", vector=_packed(each.astype(np.float32))) for each in drawn]


# ---- one strength after another ----------------------------------------------------------------

SEED = 0
BAND = (5, 95)
"""Percentiles of the random directions that the band lies between."""
MOST_STRENGTHS = 64
CHUNK = 64
"""Tokens of one forward of several rows at most."""
_STREAMS = 24
"""Copies of a residual stream that a layer of a forward takes, those of its MLP among them."""


class _Steered(Struct, frozen=True):
    """The forwards of one sweep: those from the first steered position on, as rows."""

    model: Any
    runner: Runner
    """Its cache holds what is before that position."""
    pieces: list[list[int]]
    rows: int

    def plain(self) -> Row:
        """The model's own logits, in a forward of as many rows."""
        return self._run(Edits(), self.rows)[0]

    def logits(self, batch: Sequence[Intervention]) -> list[Row]:
        """The logits with each of some directions added; the batch is filled up: forwards of another shape would have
        other last bits."""
        filled = [*batch, *[batch[-1]] * (self.rows - len(batch))]
        return self._run(Scaling(self.model, *([each] for each in filled)), self.rows)[: len(batch)]

    def alone(self, each: Intervention) -> Row:
        """The logits with one direction added, in a forward of one row."""
        return self._run(Scaling(self.model, [each]), 1)[0]

    def _run(self, edits: Edits, rows: int) -> list[Row]:
        return list(forward_rows(self.runner, self.pieces, rows, [edits] * len(self.pieces)))


class _Effect(Struct, frozen=True):
    """What adding one direction with one strength did."""

    kl_bits: float
    change: float
    prob: float
    other_prob: float
    top: int
    top_prob: float


class _Followed(Struct, frozen=True):
    """The two tokens whose logits are followed, and the model's own logits."""

    own: Row
    logprobs: Row
    token: int
    other: int

    def difference(self, row: Row) -> float:
        """The logit of the one less that of the other."""
        return float(row[self.token]) - float(row[self.other])

    def effect(self, row: Row) -> _Effect:
        """What a row of changed logits has become; infinitely far away where they are no numbers any more."""
        if not np.isfinite(row.max()):
            return _Effect(math.inf, math.nan, 0.0, 0.0, self.token, 0.0)
        changed, top = changed_masses(row).logprobs, int(row.argmax())
        prob, other_prob, top_prob = (math.exp(changed[each]) for each in (self.token, self.other, top))
        change = self.difference(row) - self.difference(self.own)
        return _Effect(kl_bits(self.logprobs, changed), change, prob, other_prob, top, top_prob)


def sweep_strengths(
    session: Session, asked: SweepStrengths, stopped: Stopped = never
) -> Iterator[Measuring | StrengthsSwept]:
    """Add a direction with one strength after another, and random ones of the same norm.

    Args:
        session: Has read a prompt; not changed.
        asked: Where, and which logits are followed.
        stopped: Polled before each forward.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such node, layer or position; the direction is another model's; a strength is out of
            range; the logits are not numbers.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    strengths = sorted({*asked.strengths, 0.0})
    if len(strengths) > MOST_STRENGTHS:
        raise StepError(f"{len(strengths)} strengths were given.", f"Give {MOST_STRENGTHS} at most.")
    units = [Intervention("direction", asked.layer, None, each, asked.direction) for each in strengths]
    check_interventions(session.runner.model, units)
    check_directions(session, units[:1])
    session.tokens.check([each for each in (asked.token, asked.other) if each is not None])
    at = ground(session, asked.node, stopped)
    at.survey.check(units[:1])
    begin = first_changed(session, asked.node, asked.scope, asked.begin)
    forwards, recomputed, note = _forwards(at, asked, begin, stopped)
    own = forwards.plain()
    zero = forwards.logits([replace(units[0], scale=0.0)])[0]
    followed = _Followed(own, checked_logprobs(own), *_followed(own, asked))
    compared = asked.direction, *controls(asked.direction, RANDOM_DIRECTIONS, SEED)
    jobs = [replace(unit, direction=each) for unit in units if unit.scale for each in compared]
    effects, error = [followed.effect(own)], 0.0
    for done in range(0, len(jobs), forwards.rows):
        batch = jobs[done : done + forwards.rows]
        yield Measuring("SweepStrengths", done, len(jobs), f"x{batch[0].scale:g}")
        if stopped():
            raise Cancelled
        found = forwards.logits(batch)
        effects += map(followed.effect, found)
        if not done and forwards.rows > 1:
            error = relative_error(forwards.alone(batch[0]), found[0])
    by_strength = dict(zip((each.scale for each in units if each.scale), _groups(effects[1:]), strict=True))
    kept = Kept(session.runner.model, "layer")
    at.row(kept)
    checks = (
        Check("zero", largest_difference(zero, own), 0.0),
        Check("single", finite(error), bounds(session).twice, f"{forwards.rows} rows"),
    )
    batches = 2 + math.ceil(len(jobs) / forwards.rows)
    of_row = sum(map(len, forwards.pieces))
    yield StrengthsSwept(
        node=asked.node,
        direction=asked.direction,
        layer=asked.layer,
        scope=asked.scope,
        begin=begin,
        steered=session.tree[asked.node].depth - begin,
        token=followed.token,
        text=_text(session, followed.token),
        other=followed.other,
        other_text=_text(session, followed.other),
        difference=followed.difference(own),
        prob=effects[0].prob,
        other_prob=effects[0].other_prob,
        norm=_norm(vector_of(asked.direction)),
        stream_norm=_norm(_state(kept, asked.layer)),
        strengths=tuple(_strength(session, each, by_strength.get(each, effects[:1])) for each in strengths),
        random=RANDOM_DIRECTIONS,
        seed=SEED,
        rows=forwards.rows,
        tokens_run=recomputed + GROUND_RUNS + 1 + batches * forwards.rows * of_row,
        note=note,
        facts=at.facts(*checks),
    )


def _forwards(at: Ground, asked: SweepStrengths, begin: int, stopped: Stopped) -> tuple[_Steered, int, str]:
    """What runs from a position on; the tokens that ran again for it, and why they run one by one, if they do."""
    session, runner, recomputed = at.session, at.runner, at.recomputed
    path = session.tree.nodes(asked.node)[begin:]
    if asked.scope == "context":
        runner, more, _ = runner_before(session, path[0], stopped)
        recomputed += more
    ids = [session.tree[each].token for each in path]
    size = 1 if runner.kv.chunks_matter else CHUNK
    before = ids[:-1]
    pieces = [*(before[place : place + size] for place in range(0, len(before), size)), ids[-1:]]
    kept = len(ids) * (session.facts.kv_bytes_per_token or 0) + 4 * _STREAMS * at.survey.width * min(
        size, len(ids)
    )
    rows = min(1 + RANDOM_DIRECTIONS, rows_at_once(runner, 1, at.plain.size, at.survey.rows, kept))
    note = "" if rows > 1 else "They ran one by one: the cache or the memory doesn't hold several rows."
    return _Steered(session.runner.model, runner, pieces, rows), recomputed, note


def _followed(own: Row, asked: SweepStrengths) -> tuple[int, int]:
    """The two tokens: those that were asked for, or else the most probable ones."""
    best = [int(each) for each in ranked(own, 3)]
    token = asked.token if asked.token is not None else next(each for each in best if each != asked.other)
    other = asked.other if asked.other is not None else next(each for each in best if each != token)
    return token, other


def _groups(effects: Sequence[_Effect]) -> Iterator[Sequence[_Effect]]:
    """Those of each strength: the direction's, then the random ones'."""
    for place in range(0, len(effects), 1 + RANDOM_DIRECTIONS):
        yield effects[place : place + 1 + RANDOM_DIRECTIONS]


def _strength(session: Session, strength: float, effects: Sequence[_Effect]) -> SteeredStrength:
    """One strength: what the direction did, and the band; at strength 0 there is one effect, of none."""
    own, *random = effects
    kls, changes = ([getattr(each, name) for each in random or effects] for name in ("kl_bits", "change"))
    with np.errstate(invalid="ignore"):  # of infinite ones
        (kl_low, kl_high), (low, high) = (map(float, np.percentile(each, BAND)) for each in (kls, changes))
    return SteeredStrength(
        strength=strength,
        kl_bits=own.kl_bits,
        kl_low=kl_low,
        kl_high=kl_high,
        change=own.change,
        change_low=low,
        change_high=high,
        prob=own.prob,
        other_prob=own.other_prob,
        top=own.top,
        top_text=_text(session, own.top),
        top_prob=own.top_prob,
    )


def _text(session: Session, token: int) -> str:
    return session.tokens.text(token, b"")[0]

"""Steering: directions made from texts or branches, and their effect at several strengths, next to random directions.

Contrastive activation addition (Rimsky et al. 2024): the difference of the mean residual streams of two kinds of text
is added to the stream of another text. The effect alone says little, since any vector of that norm changes the
prediction: so every strength is also tried with random directions of the same norm, as rows of the same forward passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from engine.errors import StepError
from engine.inside import view
from engine.inside.interventions import (
    BASELINE_RUNS,
    Baseline,
    baseline,
    changed_masses,
    check_direction,
    check_interventions,
    edited,
    first_changed,
    vector_of,
)
from engine.inside.patching import ONE_BY_ONE, ActivationCache, Batch, rows_at_once
from engine.protocol import (
    LONGEST_NAME,
    RANDOM_DIRECTIONS,
    Check,
    Direction,
    DirectionMade,
    Intervention,
    MakeDirection,
    Measuring,
    Record,
    SteeredStrength,
    StrengthsSwept,
    SweepStrengths,
    named_places,
)
from engine.sampling.ranking import Row, checked_logprobs, ranked
from engine.session.session import Session
from engine.task import Stopped, never, poll
from engine.tree import prompt_chunks

# ---- directions --------------------------------------------------------------------------------

MOST_TEXTS = 64
"""Largest number of texts of each kind."""
LONGEST = 2048
"""Largest number of tokens of a text."""


Stream = tuple[Row, float, int, float]
"""The residual stream after a layer at the last token of a text, shape (width,); the difference of the logits of the
tapped forward pass from those of a plain one; the number of tokens that ran; the time of a plain forward pass in ms."""


def make_direction(session: Session, command: MakeDirection, stopped: Stopped = never) -> Iterator[Record]:
    """Make a direction for the stream after a layer, from texts or from two nodes of the tree.

    Raises:
        StepError: There is no such layer or node, the texts or nodes are missing, too many or too long, both kinds give
            the same stream, or the architecture's layers aren't called.
        PromptError: A text is empty, or the model has no embedding for a token of it.
        Cancelled: `stopped` returned True.
    """
    begun, facts = time.perf_counter(), session.facts
    view.check_layer(session.runner.model, command.layer)
    if command.nodes:
        if len(command.nodes) != 2 or command.nodes[0] == command.nodes[1]:
            raise StepError("A direction is made of two nodes.", "Give two that differ.")
        first = 1
        reads = [partial(_of_node, session, node, command.layer, stopped) for node in command.nodes]
    else:
        toward, away = (_encode(session, texts) for texts in (command.toward, command.away))
        first = len(toward)
        reads = [partial(_of_text, session, ids, command.layer, stopped) for ids in (*toward, *away)]
    streams: list[Stream] = []
    for count, read in enumerate(reads):
        yield Measuring(command.kind, count, len(reads), f"text {count + 1}")
        streams.append(read())
    states, errors, tokens, times = zip(*streams, strict=True)
    vector = np.subtract(*(np.mean(side, axis=0) for side in (states[:first], states[first:])))
    if not vector.any():
        raise StepError("Both kinds of text give the same stream.", "Give texts that end in other words.")
    name = command.name[:LONGEST_NAME] or "direction"
    direction = Direction(name, command.layer, view.packed(vector), facts.name, facts.fingerprint)
    check_direction(direction)
    check = Check("forward", max(errors), 0.0)
    yield DirectionMade(
        direction=direction,
        toward=command.toward,
        away=command.away,
        nodes=command.nodes,
        norm=_norm(vector),
        stream_norm=float(np.mean(list(map(_norm, states)))),
        tokens_run=sum(tokens),
        facts=view.facts_of(session, begun, times[0], [check]),
    )


def _encode(session: Session, texts: Sequence[str]) -> list[list[int]]:
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise StepError(
            f"A direction was to be made of {len(texts)} texts of one kind.",
            f"Give 1 to {MOST_TEXTS} of each.",
        )
    window = min(LONGEST, session.facts.context_window or LONGEST)
    encoded = [session.tokens.encode(text) for text in texts]
    if (longest := max(map(len, encoded))) > window:
        raise StepError(
            f"A text has {longest:,} tokens.",
            f"Give shorter ones, of {window:,} tokens at most: the last counts.",
        )
    return encoded


def _of_text(session: Session, ids: list[int], layer: int, stopped: Stopped) -> Stream:
    poll(stopped)
    runner = session.runner.fresh()
    if len(ids) > 1:
        runner.forward_path(ids[:-1], prompt_chunks(len(ids)), stopped)
    plain, step_ms = view.plain_step(runner, ids[-1])
    cache = ActivationCache(session.runner.model, "layer")
    with edited(session.runner.model, cache).set():
        tapped = view.logits_after(runner, ids[-1])
    return _state(cache, layer), view.largest_difference(tapped, plain), len(ids) + 1, step_ms


def _of_node(session: Session, node: int, layer: int, stopped: Stopped) -> Stream:
    session.check_node(node)
    cache = ActivationCache(session.runner.model, "layer")
    read = view.capture(session, node, edits=cache, stopped=stopped)
    error = view.largest_difference(np.array(read.logits), np.array(read.plain))
    return _state(cache, layer), error, read.tokens_run, read.step_ms


def _state(cache: ActivationCache, layer: int) -> Row:
    """The stream after a layer for the only token that ran; their mean if the family has several streams."""
    if (state := cache.states.get((layer, ""))) is None:
        raise StepError(
            f"L{layer + 1} isn't called as a module of its own in this architecture: its stream can't be read.",
            "Steer another model.",
        )
    found: npt.NDArray[np.float32] = np.array(state.astype(mx.float32)).reshape(-1, state.shape[-1])
    mean: Row = found.mean(axis=0)
    return mean


def _norm(vector: Row) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def controls(direction: Direction, count: int = RANDOM_DIRECTIONS, seed: int = 0) -> list[Direction]:
    """Random directions of the same norm as a direction, uniform over the sphere."""
    vector = vector_of(direction)
    drawn = np.random.default_rng(seed).normal(size=(count, vector.size))
    drawn *= _norm(vector) / np.linalg.norm(drawn, axis=1, keepdims=True)
    return [replace(direction, name="random", vector=view.packed(each.astype(np.float32))) for each in drawn]


# ---- one strength after another ----------------------------------------------------------------

SEED = 0
BAND = (5, 95)
"""Percentiles of the random directions that bound the band."""
MOST_STRENGTHS = 64
CHUNK = 64
"""Largest number of tokens of one forward pass of several rows."""
_STREAMS = 24
"""Memory of one layer of a forward pass, its MLP included, in copies of the residual stream."""


def sweep_strengths(session: Session, command: SweepStrengths, stopped: Stopped = never) -> Iterator[Record]:
    """Add a direction at one strength after another, and random directions of the same norm.

    Raises:
        StepError: There is no such node, layer or position; the direction is another model's; a strength is out of
            range; the logits are not numbers.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    strengths, model, layer = sorted({*command.strengths, 0.0}), session.runner.model, command.layer
    if len(strengths) > MOST_STRENGTHS:
        raise StepError(f"{len(strengths)} strengths were given.", f"Give {MOST_STRENGTHS} at most.")
    units = [Intervention("direction", layer, None, each, command.direction) for each in strengths]
    check_interventions(model, units, session.facts.fingerprint)
    view.check_tokens(session, command.token, command.other)
    at = baseline(session, command.node, stopped)
    at.trace.check(units[:1])
    begin = first_changed(session, command.node, command.scope, command.begin)

    batch, recomputed = _batch(at, command, begin, stopped)

    def steered(units: Sequence[Intervention]) -> list[Row]:
        # padded: forward passes of another shape would differ in the last bits
        return batch.under(*units, *[units[-1]] * (batch.rows - len(units)))[: len(units)]

    own = batch.plain()
    zero = steered([replace(units[0], scale=0.0)])[0]
    logprobs, (token, other) = checked_logprobs(own), _followed(session, own, command)

    def difference(row: Row) -> float:
        return float(row[token]) - float(row[other])

    def effect(strength: float, row: Row) -> SteeredStrength:
        """The effect of one direction, with a band of that single effect."""
        kl, change, top, prob, other_prob, top_prob = math.inf, math.nan, token, 0.0, 0.0, 0.0
        if np.isfinite(row.max()):  # else the KL divergence stays infinite
            changed, top = changed_masses(row).logprobs, int(row.argmax())
            kl, change = view.kl_bits(logprobs, changed), difference(row) - difference(own)
            prob, other_prob, top_prob = (math.exp(changed[each]) for each in (token, other, top))
        bands, text = (kl, kl, change, change, change), view.token_text(session, top)
        return SteeredStrength(strength, kl, *bands, prob, other_prob, top, text, top_prob)

    tried = command.direction, *controls(command.direction, RANDOM_DIRECTIONS, SEED)
    jobs = [replace(unit, direction=each) for unit in units if unit.scale for each in tried]
    effects, error = list[SteeredStrength](), 0.0
    for done in range(0, len(jobs), batch.rows):
        some = jobs[done : done + batch.rows]
        yield Measuring(command.kind, done, len(jobs), f"x{some[0].scale:g}")
        poll(stopped)
        found = steered(some)
        effects += map(effect, [unit.scale for unit in some], found)
        if not done and batch.rows > 1:
            error = view.relative_error(batch.under(some[0])[0], found[0])
    unsteered = effect(0.0, own)
    swept = [_banded(effects[first : first + len(tried)]) for first in range(0, len(effects), len(tried))]
    cache = ActivationCache(model, "layer")
    at.edited_logits(cache)
    checks = (
        Check("zero", view.largest_difference(zero, own), 0.0),
        Check("single", error, view.bounds(session).twice, f"{batch.rows} rows"),
    )
    steps = session.tree[command.node].depth - begin
    rows = batch.rows * (2 + math.ceil(len(jobs) / batch.rows)) + (batch.rows > 1)
    yield StrengthsSwept(
        node=command.node,
        direction=command.direction,
        layer=layer,
        scope=command.scope,
        begin=begin,
        steered=steps,
        token=token,
        text=view.token_text(session, token),
        other=other,
        other_text=view.token_text(session, other),
        difference=difference(own),
        prob=unsteered.prob,
        other_prob=unsteered.other_prob,
        norm=_norm(vector_of(command.direction)),
        stream_norm=_norm(_state(cache, layer)),
        strengths=tuple(sorted([unsteered, *swept], key=attrgetter("strength"))),
        random=RANDOM_DIRECTIONS,
        seed=SEED,
        rows=batch.rows,
        tokens_run=recomputed + BASELINE_RUNS + 1 + rows * steps,
        note="" if batch.rows > 1 else ONE_BY_ONE,
        facts=at.facts(*checks),
    )


def _batch(at: Baseline, command: SweepStrengths, begin: int, stopped: Stopped) -> tuple[Batch, int]:
    """The forward passes from the first steered position on, and the number of tokens that ran again for them."""
    session, runner, recomputed = at.session, at.runner, at.recomputed
    path = session.tree.nodes(command.node)[begin:]
    if command.scope == "context":
        runner, more, _ = view.runner_before(session, path[0], stopped)
        recomputed += more
    ids = [session.tree[each].token for each in path]
    size = 1 if runner.kv.chunks_matter else CHUNK
    stored = len(ids) * (session.facts.kv_bytes_per_token or 0)
    stored += 4 * _STREAMS * at.trace.width * min(size, len(ids))
    most = rows_at_once(runner, 1, at.logits.size, at.trace.batchable, stored)
    return Batch.of_tokens(runner, ids, CHUNK, min(1 + RANDOM_DIRECTIONS, most), stopped), recomputed


def _followed(session: Session, own: Row, command: SweepStrengths) -> tuple[int, int]:
    """The two tokens whose logits are followed: those of the command, or else those that the direction is named after,
    or else the most probable ones."""
    best = [int(each) for each in ranked(own, max(3, session.settings.candidates))]
    if command.token is None and command.other is None:
        texts = [view.token_text(session, each) for each in best]
        first, second = named_places(command.direction.name, texts)
        return best[first], best[second]
    token = (
        command.token if command.token is not None else next(each for each in best if each != command.other)
    )
    other = command.other if command.other is not None else next(each for each in best if each != token)
    return token, other


def _banded(effects: Sequence[SteeredStrength]) -> SteeredStrength:
    """The direction's effect at one strength, which is the first, with the band of the random directions' effects."""
    own, *random = effects
    kls, changes = [each.kl_bits for each in random], [each.change for each in random]
    with np.errstate(invalid="ignore"):  # infinite effects
        (kl_low, kl_high), (low, high) = (map(float, np.percentile(each, BAND)) for each in (kls, changes))
    return replace(own, kl_low=kl_low, kl_high=kl_high, change_low=low, change_high=high)

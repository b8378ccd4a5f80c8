"""Interventions: units of the model switched off, scaled or replaced, for a look or for a branch under them."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.errors import Cancelled, StepError
from engine.inside.capture import refuse, runner_before
from engine.inside.taps import Edits, Taps
from engine.model.forward import Compute, Runner, rounding_of
from engine.model.layers import decoder_layers, hidden, parts_of, role_of, with_hidden
from engine.protocol import (
    LONGEST_NAME,
    CandidateChange,
    CaptureFacts,
    Check,
    Direction,
    Intervened,
    Intervention,
    InterventionKind,
    InterventionsHeld,
    Moved,
    Role,
    Scope,
    Step,
)
from engine.sampling.ranking import (
    LN2,
    Masses,
    Row,
    absolute_difference,
    checked_masses,
    ranked,
    sum_of_products,
)
from engine.session.session import Session
from engine.task import Stopped, never
from engine.tree import ROOT

# ---- what of a model can be scaled, and scaling it ---------------------------------------------

MOST = 64
"""Interventions at once at most."""
LARGEST = 100.0
"""Of a scale: beyond it float16 has no numbers left for what is scaled."""
KINDS: tuple[InterventionKind, ...] = ("head", "attention", "mlp", "recurrence", "layer")
"""What is scaled."""
WIDEST = 2**20
"""Numbers of a direction at most."""


def edited(model: Any, edits: Edits) -> Taps:
    """Taps that record nothing: the forwards of the model in `with edited(...).set():` are changed."""
    return Taps(model, attention=False, parts=True, edits=edits, keep=False)


def roles_of(model: Any) -> dict[tuple[int, str], Role]:
    """The role of each direct child of each layer, by the layer and the child's attribute."""
    layers = enumerate(decoder_layers(model))
    return {(index, name): role_of(part, name) for index, layer in layers for name, part in parts_of(layer)}


class Scaling(Edits):
    """Multiplies what units write; with several rows, in each row what its own interventions say.

    Args:
        model: As mlx_lm loads it.
        rows: The interventions of each row of the forward; those of a single row apply to all rows.
    """

    def __init__(self, model: Any, *rows: Sequence[Intervention]) -> None:
        self._roles = roles_of(model)
        self._rows = len(rows)
        self._units: dict[tuple[str, int], list[tuple[int, Intervention]]] = defaultdict(list)
        for row, interventions in enumerate(rows):
            for each in interventions:
                self._units[each.kind, each.layer].append((row, each))
        layers = {layer for kind, layer in self._units if kind == "direction"}
        self._added = {layer: _added(self._units["direction", layer], len(rows)) for layer in layers}

    def heads(self, layer: int, output: mx.array) -> mx.array:
        """See `Edits`."""
        if not (units := self._units.get(("head", layer))):
            return output
        factors = np.ones((self._rows, output.shape[1], 1, 1), np.float32)
        for row, each in units:
            if (head := each.head or 0) >= output.shape[1]:
                raise StepError(f"{each.label} isn't there: this attention has {output.shape[1]} heads.")
            factors[row, head] *= each.scale
        return output * mx.array(factors).astype(output.dtype)

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        if not (units := self._units.get((self._roles[layer, name], layer))):
            return result
        state = hidden(result)
        return with_hidden(result, state * self._factors(units).astype(state.dtype))

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`; at scale 0 the stream before the layer goes on bit for bit, at 1 the one after it."""
        scaled = self._scaled(layer, given, result)
        return self._steered(layer, scaled) if layer in self._added else scaled

    def _steered(self, layer: int, result: Any) -> Any:
        """The stream with directions added to it; that of a row of strength 0 goes on bit for bit."""
        state, (vectors, on) = hidden(result), self._added[layer]
        if state.shape[-1] != vectors.shape[-1]:
            raise StepError(*_other_width(layer, vectors.shape[-1], state.shape[-1]))
        if self._rows == 1:  # whatever axes the family's streams have
            vectors, on = vectors[0], on[0]
        else:
            vectors, on = vectors[:, None], on[:, None, None]
        steered = (state.astype(mx.float32) + vectors).astype(state.dtype)
        return with_hidden(result, mx.where(on, steered, state))

    def _scaled(self, layer: int, given: mx.array, result: Any) -> Any:
        if not (units := self._units.get(("layer", layer))):
            return result
        state, factors = hidden(result), self._factors(units).astype(given.dtype)
        if given.shape != state.shape:
            raise StepError(
                f"L{layer + 1} returns another shape than it is given: it can't be scaled.",
                "Choose its attention or its MLP.",
            )
        partly = mx.where(factors == 1, state, given + factors * (state - given))
        return with_hidden(result, mx.where(factors == 0, given, partly).astype(state.dtype))

    def _factors(self, units: list[tuple[int, Intervention]]) -> mx.array:
        factors = np.ones(self._rows, np.float32)
        for row, each in units:
            factors[row] *= each.scale
        # a single row's is a scalar: some parts return their tokens without an axis of rows
        return mx.array(factors).reshape(-1, 1, 1) if self._rows > 1 else mx.array(factors[0])


def _added(units: Sequence[tuple[int, Intervention]], rows: int) -> tuple[mx.array, mx.array]:
    """What directions after one layer add in each row, in float32, shape (rows, width), and whether they add any."""
    width = max(vector_of(each.direction).size for _, each in units if each.direction is not None)
    added, on = np.zeros((rows, width), np.float32), np.zeros(rows, bool)
    for row, each in units:
        if each.scale and each.direction is not None:
            added[row] += np.float32(each.scale) * vector_of(each.direction)
            on[row] = True
    return mx.array(added), mx.array(on)


def vector_of(direction: Direction) -> Row:
    """The numbers of a direction, float32, shape (width,)."""
    kind = np.dtype(f"<f{direction.vector.bits // 8}")
    return np.frombuffer(direction.vector.packed, kind).astype(np.float32)


class Survey(Edits):
    """Changes nothing, and notes what of the model a forward of one token went through.

    Args:
        model: As mlx_lm loads it.
    """

    def __init__(self, model: Any) -> None:
        self._roles = roles_of(model)
        self._depth = len(decoder_layers(model))
        self._heads: dict[int, list[int]] = defaultdict(list)
        self._calls: Counter[tuple[int, str]] = Counter()
        self._layers: set[int] = set()
        self.rows = True
        """True if all that was seen has its rows along the first axis, so that each can be changed in its own way."""
        self.width = 0
        """Of the residual stream."""

    def heads(self, layer: int, output: mx.array) -> mx.array:
        """See `Edits`."""
        self._heads[layer].append(output.shape[1])
        self.rows &= output.shape[0] == 1
        return output

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        self._calls[layer, name] += 1
        if self._roles[layer, name] in KINDS:
            self._see(hidden(result))
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`."""
        self._see(hidden(result))
        self._layers.add(layer)
        self.width = given.shape[-1]
        return result

    def _see(self, state: mx.array) -> None:
        self.rows &= state.ndim == 3 and state.shape[0] == 1

    def heads_of(self, layer: int) -> int:
        """The number of heads of a layer; 0 where it has none, or attentions of several sizes."""
        counts = set(self._heads.get(layer, ()))
        return counts.pop() if len(counts) == 1 else 0

    def has(self, layer: int, role: str) -> bool:
        """True if a layer has parts of a role, each of which ran once: one that layers share can't be told apart."""
        found = [name for (index, name), each in self._roles.items() if (index, each) == (layer, role)]
        return bool(found) and all(self._calls[layer, name] == 1 for name in found)

    def units(self) -> Iterator[Intervention]:
        """Everything that can be switched off alone: of each layer the heads, the parts, then the layer."""
        for layer in range(self._depth):
            yield from (Intervention("head", layer, head) for head in range(self.heads_of(layer)))
            yield from (Intervention(kind, layer) for kind in KINDS[1:-1] if self.has(layer, kind))
            yield Intervention("layer", layer)

    def missing(self) -> tuple[str, ...]:
        """What can't be switched off alone, a sentence each."""
        layers = range(self._depth)
        heads = [layer for layer in layers if not self.heads_of(layer)]
        parts = [layer for layer in layers if not any(self.has(layer, kind) for kind in KINDS[1:-1])]
        return (
            *([f"{_named(heads)}: no heads that could be told apart."] if heads else []),
            *([f"{_named(parts)}: no attention or MLP that is a module of its own."] if parts else []),
        )

    def check(self, interventions: Iterable[Intervention]) -> None:
        """Refuse what this model doesn't have.

        Raises:
            StepError: A layer has no such head or part.
        """
        for each in interventions:
            place = f"L{each.layer + 1}"
            if each.kind == "head":
                count, head = self.heads_of(each.layer), each.head or 0
                if not count:
                    raise StepError(
                        f"{place} has no heads that could be told apart.", "Choose the whole layer."
                    )
                if head >= count:
                    raise StepError(
                        f"{place} has {count} heads: there is no h{head + 1}.", f"Choose h1 to h{count}."
                    )
            elif each.direction is not None:
                if each.layer not in self._layers:
                    raise StepError(
                        f"{place} isn't called as a module of its own in this architecture: nothing can be added "
                        "after it.",
                        "Steer another model.",
                    )
                if (width := math.prod(each.direction.vector.shape)) != self.width:
                    raise StepError(*_other_width(each.layer, width, self.width))
            elif each.kind != "layer" and not self.has(each.layer, each.kind):
                has = [kind for kind in KINDS[1:-1] if self.has(each.layer, kind)]
                raise StepError(
                    f"{place} has no {each.kind} that is a module of its own.",
                    f"Choose {' or '.join([f'its {kind}' for kind in has] + ['the whole layer'])}.",
                )


def check_interventions(model: Any, interventions: Sequence[Intervention]) -> None:
    """Refuse what can be refused before anything runs.

    Args:
        model: As mlx_lm loads it.
        interventions: As a person or a file gave them.

    Raises:
        StepError: There are none or too many, or one has a layer, head or scale that can't be.
    """
    depth = len(decoder_layers(model))
    if not 1 <= len(interventions) <= MOST:
        raise StepError(f"{len(interventions)} interventions were given.", f"Give 1 to {MOST}.")
    for each in interventions:
        if each.kind not in (*KINDS, "direction"):
            raise StepError(f"There is no kind of unit {each.kind!r}.", f"Choose one of {', '.join(KINDS)}.")
        if (each.kind == "direction") != (each.direction is not None):
            raise StepError(
                "The direction is missing, or there is one for another unit.", "Give one, for itself."
            )
        if not 0 <= each.layer < depth:
            raise StepError(
                f"There is no L{each.layer + 1}: this model has {depth} layers.", f"Choose L1 to L{depth}."
            )
        if (each.kind == "head") != (each.head is not None):
            what = "is missing" if each.kind == "head" else f"makes no sense for a unit of kind {each.kind}"
            raise StepError(f"The number of a head {what}.", "A head needs a number; other units have none.")
        if each.head is not None and each.head < 0:
            raise StepError(f"There is no h{each.head + 1}: heads count from h1.", "Choose another head.")
        if not (math.isfinite(each.scale) and abs(each.scale) <= LARGEST):
            raise StepError(
                f"The scale {each.scale:g} is out of range.",
                f"Give -{LARGEST:g} to {LARGEST:g}: 0 switches off, 1 changes nothing.",
            )
        if each.direction is not None:
            check_direction(each.direction)


def check_direction(direction: Direction, fingerprint: str = "") -> None:
    """Refuse a direction that is none, or that another model's streams gave.

    Args:
        direction: As a file gave it.
        fingerprint: Of the model; empty where it isn't known.

    Raises:
        StepError: It is refused.
    """
    vector = direction.vector
    if len(vector.shape) != 1 or not 1 <= vector.shape[0] <= WIDEST or not vector.fits:
        raise StepError("The direction is not a vector.", "Make it again, or give another file.")
    numbers = vector_of(direction)
    most = float(np.abs(numbers).max())
    if not 0 < most < np.finfo(np.float32).max / (LARGEST * len(numbers)):  # NaN isn't, either
        what = "has numbers that are NaN, or too large" if most else "is 0 everywhere"
        raise StepError(f"The direction {direction.label} {what}.", "Make it of texts that differ.")
    if fingerprint and direction.fingerprint not in ("", fingerprint):
        of = "".join(each for each in direction.model[:LONGEST_NAME] if each.isprintable())
        raise StepError(
            f"The direction {direction.label} was made with another model{f' ({of})' if of else ''}: its numbers mean "
            "nothing in this one.",
            "Make it again from its texts, or open that model.",
        )


def check_directions(session: Session, interventions: Iterable[Intervention]) -> None:
    """Refuse directions of another model than the session's.

    Raises:
        StepError: One is of another.
    """
    for each in interventions:
        if each.direction is not None:
            check_direction(each.direction, session.facts.fingerprint)


def _other_width(layer: int, width: int, own: int) -> tuple[str, str]:
    return (
        f"The direction has {width:,} numbers, the stream after L{layer + 1} has {own:,}: it is another model's.",
        "Make it again with this model.",
    )


def _named(layers: Sequence[int]) -> str:
    return ", ".join(f"L{layer + 1}" for layer in layers)


# ---- what the model predicts then, at one token or in the whole context ------------------------

MOST_LISTED = 100
"""Candidates of each side at most."""


class Ground(Struct, frozen=True):
    """A token that is about to go through the model, and what the model itself makes of it."""

    session: Session
    node: int
    token: int
    runner: Runner
    """Its cache holds the path without the token; copies of it run."""
    survey: Survey
    """What the token's forward went through."""
    plain: Row
    """The model's own logits after it."""
    check: Check
    """Of taps that change nothing: the logits stay as they are."""
    recomputed: int
    """Tokens of the path that went through the model again."""
    note: str
    begun: float
    step_ms: float

    def row(self, edits: Edits) -> Row:
        """The logits after the token where its forward is changed."""
        with edited(self.session.runner.model, edits).set():
            return _row(self.runner.copy(), self.token)

    def facts(self, *checks: Check) -> CaptureFacts:
        """What accompanies a view."""
        ms, family = (time.perf_counter() - self.begun) * 1000, self.session.facts.family
        return CaptureFacts((self.check, *checks), ms, self.step_ms, family, self.note)


GROUND_RUNS = 2
"""Forwards of the token that `ground` takes: one plain, one under taps that change nothing."""


def ground(session: Session, node: int, stopped: Stopped = never) -> Ground:
    """Prepare a token for interventions; the session doesn't change.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    runner, recomputed, note = runner_before(session, node, stopped)
    if stopped():
        raise Cancelled
    token, survey = session.tree[node].token, Survey(session.runner.model)
    step_begun = time.perf_counter()
    plain = _row(runner.copy(), token)
    step_ms = (time.perf_counter() - step_begun) * 1000
    with edited(session.runner.model, survey).set():
        tapped = _row(runner.copy(), token)
    check = Check("forward", finite(absolute_difference(plain, tapped).max()), 0.0)
    return Ground(session, node, token, runner, survey, plain, check, recomputed, note, begun, step_ms)


def intervene(
    session: Session,
    node: int,
    interventions: Sequence[Intervention],
    scope: Scope = "token",
    top: int = 10,
    stopped: Stopped = never,
    begin: int = 0,
) -> Intervened:
    """Run a token again under interventions, and compare what comes after it.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        interventions: What is scaled or added.
        scope: In this token's forward, or in the path's.
        top: Tokens that are listed of each side.
        stopped: Polled before each chunk and forward.
        begin: The first position of the path that is changed.

    Raises:
        StepError: There is no such node, layer, head or part, a scale is out of range, or the changed model's logits
            are not numbers.
        Cancelled: `stopped` returned True.
    """
    check_interventions(session.runner.model, interventions)
    check_directions(session, interventions)
    at = ground(session, node, stopped)
    at.survey.check(interventions)
    begin = first_changed(session, node, scope, begin)
    if scope == "token":
        row, run, rounding = at.row(Scaling(session.runner.model, interventions)), 1, 0.0
    else:
        tree, compute = session.tree, changed(session.runner.model, interventions)
        row = session.runner.fresh().forward_path(
            tree.tokens(node), tree.chunks(node), stopped, (begin, compute)
        )
        run, rounding = tree[node].depth, rounding_of(at.plain, session.facts.dtype)
    whole = at.recomputed + GROUND_RUNS + run
    return _compared(at, row, tuple(interventions), scope, top, rounding, whole, begin)


def first_changed(session: Session, node: int, scope: Scope, begin: int) -> int:
    """The first position of a node's path that goes through the changed model.

    Raises:
        StepError: The path has no such position.
    """
    last = session.tree[node].depth - 1
    if scope == "token":
        return last
    if not 0 <= begin <= last:
        raise StepError(
            f"There is no token {begin + 1} up to here.", f"Begin at one of the tokens 1 to {last + 1}."
        )
    return begin


def _compared(
    at: Ground,
    row: Row,
    interventions: tuple[Intervention, ...],
    scope: Scope,
    top: int,
    rounding: float,
    run: int,
    begin: int,
) -> Intervened:
    own, changed = checked_masses(at.plain), changed_masses(row)
    difference = absolute_difference(at.plain, row)
    largest = int(difference.argmax())
    return Intervened(
        node=at.node,
        interventions=interventions,
        scope=scope,
        candidates=_candidates(at, own, changed, top),
        kl_bits=kl_bits(own.logprobs, changed.logprobs),
        largest_change=float(difference[largest]),
        largest_change_id=largest,
        largest_change_text=at.session.tokens.text(largest, b"")[0],
        entropy_before_bits=own.entropy_bits,
        entropy_after_bits=changed.entropy_bits,
        rounding=rounding,
        tokens_run=run,
        note=_note(interventions, float(difference[largest]), rounding_of(at.plain, at.session.facts.dtype)),
        facts=at.facts(),
        begin=begin if scope == "context" else 0,
    )


def _candidates(at: Ground, own: Masses, changed: Masses, top: int) -> tuple[CandidateChange, ...]:
    count = max(1, min(top, MOST_LISTED))
    first, then = ranked(own.logits, count), ranked(changed.logits, count)
    ids = np.array([*first, *(id for id in then if id not in first)])
    read, pending = at.session.node_reader.row_reader.chosen, at.session.pending.get(at.node, b"")
    before, after = (read(each, ids, pending, None) for each in (own, changed))
    return tuple(
        CandidateChange(one, other, float(own.logits[one.id]), float(changed.logits[other.id]))
        for one, other in zip(before, after, strict=True)
    )


def _note(interventions: tuple[Intervention, ...], change: float, rounding: float) -> str:
    """Why a scale had no effect where an effect was to be expected."""
    scaled = [each for each in interventions if each.scale != 1 and each.direction is None]
    if not scaled or change > rounding or any(each.scale == 0 for each in scaled):
        return ""
    return (
        "Nothing changed: where a norm follows a part before it is added, as in some families, its scale is lost."
        " Scale 0 and the whole layer act there too."
    )


def changed_masses(row: Row) -> Masses:
    """The logits of a changed model and their probabilities.

    Raises:
        StepError: They are not numbers.
    """
    masses = Masses(row)
    if not np.isfinite(masses.top):
        raise StepError(
            "With this intervention the logits are not numbers.",
            "Use a scale nearer to 1, or 0; for a direction a smaller strength.",
        )
    return masses


def kl_bits(own: Row, changed: Row) -> float:
    """KL divergence of a changed distribution from the model's own, both as log-probabilities, in bits."""
    live = own > -np.inf
    wide, other = own[live].astype(np.float64), changed[live].astype(np.float64)
    return max(0.0, sum_of_products(np.exp(wide), wide - other) / LN2)


def finite(value: float) -> float:
    """An error of a check: infinite where it is not a number."""
    return float(value) if np.isfinite(value) else float("inf")


def _row(runner: Runner, token: int) -> Row:
    row: Row = np.array(runner.forward_logits([token])[0])
    return row


# ---- a branch whose tokens a changed model computes, from one token on -------------------------


def changed(model: Any, interventions: Sequence[Intervention]) -> Compute:
    """What is called in a model's place: it computes what the model does under interventions.

    Args:
        model: As mlx_lm loads it; it is changed during each call alone.
        interventions: As a file gave them, or a person.

    Raises:
        StepError: The model can't have one of them.
    """
    check_interventions(model, interventions)
    taps = edited(model, Scaling(model, interventions))

    def compute(tokens: Any, cache: Any = None) -> Any:
        with taps.set():
            return model(tokens, cache=cache)

    return compute


def hold(
    session: Session, node: int, interventions: tuple[Intervention, ...], stopped: Stopped = never
) -> Iterator[Moved | Step | InterventionsHeld]:
    """Run a token again under interventions, as the first of a branch that stays under them.

    Args:
        session: It moves to the branch.
        node: The token; one of the model's own.
        interventions: None to go back to the token that the current branch began with, as the model computes it.
        stopped: Polled before each chunk and forward.

    Yields:
        The move to the token before, the step, and what is held from here on.

    Raises:
        StepError: The session keeps no KV cache; the node isn't there, is the first token, or is under interventions
            already; the model has no such unit.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    if not interventions:
        yield from _release(session, stopped, begun)
        return
    if not session.cached:
        raise StepError(
            "Without a KV cache interventions can't be held: each step runs its whole path again.",
            "Load the model with its KV cache.",
        )
    session.check_node(node)
    session.held.refuse(node, "a new intervention is")
    check_interventions(session.runner.model, interventions)
    check_directions(session, interventions)
    token, parent = session.tree[node].token, session.tree[node].parent
    if parent == ROOT:
        raise StepError("The first token has nothing before it to branch from.", "Hold at a later token.")
    at = ground(session, node, stopped)
    at.survey.check(interventions)
    if not at.check.passed:
        raise refuse(at.check, session.facts.family)
    model = session.runner.model
    if session.node != parent:
        yield from session.move_and_step(parent, stopped)
    held = session.held.add(interventions, changed(model, interventions))
    session.runner.compute = session.held.computes[held]
    try:
        step = session.step(token, "intervened", held)
    finally:
        session.make_current(session.node)  # and with it what computes the token after it
    yield step
    yield InterventionsHeld(session.node, node, interventions, (time.perf_counter() - begun) * 1000)


def _release(session: Session, stopped: Stopped, begun: float) -> Iterator[Moved | Step | InterventionsHeld]:
    if not session.tree[session.node].held:
        raise StepError("No intervention is held here.", "Go to a branch under interventions, or hold some.")
    first = session.tree[session.held.first(session.node)]
    own = session.tree.child(first.parent, first.token)
    own = first.parent if own is None else own
    yield from session.move_and_step(own, stopped)
    yield InterventionsHeld(own, own, (), (time.perf_counter() - begun) * 1000)

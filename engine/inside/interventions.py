"""Interventions: units of the model switched off, scaled or steered, for one view or for a whole branch."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.errors import StepError
from engine.inside import view
from engine.inside.taps import Edits, Taps
from engine.logits.node_sampler import chosen_candidates
from engine.model.forward import Compute, Runner, rounding_of
from engine.model.layers import decoder_layers, hidden, parts_of, role_of, with_hidden
from engine.protocol import (
    LONGEST_NAME,
    CandidateChange,
    CaptureFacts,
    Check,
    Direction,
    HoldInterventions,
    Intervene,
    Intervened,
    Intervention,
    InterventionKind,
    InterventionsHeld,
    Moved,
    Record,
    Role,
    Scope,
    Step,
)
from engine.sampling.ranking import Masses, Row, absolute_difference, checked_masses, ranked
from engine.session.context import Context, with_stops
from engine.session.session import Session
from engine.task import Stopped, Task, never, poll
from engine.tree import ROOT

# ---- units of a model, scaled ------------------------------------------------------------------

MOST = 64
"""Largest number of interventions at once."""
LARGEST = 100.0
"""Largest scale: with a larger one, float16 may overflow."""
PARTS: tuple[InterventionKind, ...] = ("attention", "mlp", "recurrence")
KINDS: tuple[InterventionKind, ...] = ("head", *PARTS, "layer")
"""Kinds of units that are scaled."""
WIDEST = 2**20
"""Largest number of components of a direction."""


def edited(model: Any, edits: Edits) -> Taps:
    """Taps that record nothing: the forward passes of the model in `with edited(...).set():` are changed."""
    return Taps(model, attention=False, parts=True, edits=edits, keep=False)


def roles_of(model: Any) -> dict[tuple[int, str], Role]:
    """The role of each direct child of each layer, by the layer and the child's attribute."""
    layers = enumerate(decoder_layers(model))
    return {(index, name): role_of(part, name) for index, layer in layers for name, part in parts_of(layer)}


class Scaling(Edits):
    """Scales the output of units and adds directions to the stream, in each row by its own interventions.

    Args:
        model: The model as mlx_lm loads it.
        rows: Interventions of each row of the forward pass; those of a single row apply to all rows.
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
        if not (units := self._units.get(("head", layer))):
            return output
        factors = np.ones((self._rows, output.shape[1], 1, 1), np.float32)
        for row, each in units:
            if (head := each.head or 0) >= output.shape[1]:
                raise StepError(f"{each.label} isn't there: this attention has {output.shape[1]} heads.")
            factors[row, head] *= each.scale
        return output * mx.array(factors).astype(output.dtype)

    def part(self, layer: int, name: str, result: Any) -> Any:
        if not (units := self._units.get((self._roles[layer, name], layer))):
            return result
        state = hidden(result)
        return with_hidden(result, state * self._factors(units).astype(state.dtype))

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`; at scale 0 the stream before the layer continues bit for bit, at 1 the one after it."""
        if units := self._units.get(("layer", layer)):
            state, factors = hidden(result), self._factors(units).astype(given.dtype)
            if given.shape != state.shape:
                raise StepError(
                    f"L{layer + 1} returns another shape than it is given: it can't be scaled.",
                    "Choose its attention or its MLP.",
                )
            partly = mx.where(factors == 1, state, given + factors * (state - given))
            result = with_hidden(result, mx.where(factors == 0, given, partly).astype(state.dtype))
        return self._steered(layer, result) if layer in self._added else result

    def _steered(self, layer: int, result: Any) -> Any:
        """The stream with directions added; in rows of strength 0 it stays the same bit for bit."""
        state, (vectors, on) = hidden(result), self._added[layer]
        if state.shape[-1] != vectors.shape[-1]:
            raise StepError(*_other_width(layer, vectors.shape[-1], state.shape[-1]))
        if self._rows == 1:  # the family's streams may have any axes
            vectors, on = vectors[0], on[0]
        else:
            vectors, on = vectors[:, None], on[:, None, None]
        steered = (state.astype(mx.float32) + vectors).astype(state.dtype)
        return with_hidden(result, mx.where(on, steered, state))

    def _factors(self, units: list[tuple[int, Intervention]]) -> mx.array:
        factors = np.ones(self._rows, np.float32)
        for row, each in units:
            factors[row] *= each.scale
        # a scalar for a single row: some parts return their tokens without a row axis
        return mx.array(factors).reshape(-1, 1, 1) if self._rows > 1 else mx.array(factors[0])


def _added(units: Sequence[tuple[int, Intervention]], rows: int) -> tuple[mx.array, mx.array]:
    """The sum of the directions after one layer in each row, float32, shape (rows, width), and True for each row that
    has any."""
    width = max(vector_of(each.direction).size for _, each in units if each.direction is not None)
    added, on = np.zeros((rows, width), np.float32), np.zeros(rows, bool)
    for row, each in units:
        if each.scale and each.direction is not None:
            added[row] += np.float32(each.scale) * vector_of(each.direction)
            on[row] = True
    return mx.array(added), mx.array(on)


def vector_of(direction: Direction) -> Row:
    """The components of a direction, float32, shape (width,)."""
    kind = np.dtype(f"<f{direction.vector.bits // 8}")
    return np.frombuffer(direction.vector.packed, kind).astype(np.float32)


class ModuleTrace(Edits):
    """Changes nothing, and records which modules a forward pass of one token went through."""

    def __init__(self, model: Any) -> None:
        self._roles = roles_of(model)
        self._depth = len(decoder_layers(model))
        self._heads: dict[int, list[int]] = defaultdict(list)
        self._calls: Counter[tuple[int, str]] = Counter()
        self._layers: set[int] = set()
        self.batchable = True
        """True if all outputs have their rows along the first axis, so that each row can be changed in its own way."""
        self.width = 0
        """Width of the residual stream."""

    def heads(self, layer: int, output: mx.array) -> mx.array:
        self._heads[layer].append(output.shape[1])
        self.batchable &= output.shape[0] == 1
        return output

    def part(self, layer: int, name: str, result: Any) -> Any:
        self._calls[layer, name] += 1
        if self._roles[layer, name] in KINDS:
            self._record(hidden(result))
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        self._record(hidden(result))
        self._layers.add(layer)
        self.width = given.shape[-1]
        return result

    def _record(self, state: mx.array) -> None:
        self.batchable &= state.ndim == 3 and state.shape[0] == 1

    def heads_of(self, layer: int) -> int:
        """The number of heads of a layer; 0 if it has none, or attentions of several sizes."""
        counts = set(self._heads.get(layer, ()))
        return counts.pop() if len(counts) == 1 else 0

    def separate_parts(self, layer: int) -> list[InterventionKind]:
        """The kinds of a layer's parts that ran exactly once each: a part that layers share can't be told apart."""
        names: dict[str, list[str]] = defaultdict(list)
        for (index, name), role in self._roles.items():
            if index == layer:
                names[role].append(name)
        once = {kind: [self._calls[layer, name] == 1 for name in names[kind]] for kind in PARTS}
        return [kind for kind in PARTS if once[kind] and all(once[kind])]

    def units(self) -> Iterator[Intervention]:
        """All units that can be switched off alone: for each layer its heads, its parts, then the whole layer."""
        for layer in range(self._depth):
            yield from (Intervention("head", layer, head) for head in range(self.heads_of(layer)))
            yield from (Intervention(kind, layer) for kind in self.separate_parts(layer))
            yield Intervention("layer", layer)

    def missing(self) -> Iterator[str]:
        """Sentences about layers whose heads or parts can't be switched off alone."""
        for found, what in (
            (self.heads_of, "no heads that could be told apart"),
            (self.separate_parts, "no attention or MLP that is a module of its own"),
        ):
            if without := [f"L{layer + 1}" for layer in range(self._depth) if not found(layer)]:
                yield f"{', '.join(without)}: {what}."

    def check(self, interventions: Sequence[Intervention]) -> None:
        """Refuse units that this model doesn't have.

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
            elif each.kind != "layer" and each.kind not in (parts := self.separate_parts(each.layer)):
                raise StepError(
                    f"{place} has no {each.kind} that is a module of its own.",
                    f"Choose {' or '.join([*(f'its {kind}' for kind in parts), 'the whole layer'])}.",
                )


def check_interventions(model: Any, interventions: Sequence[Intervention], fingerprint: str = "") -> None:
    """Reject invalid interventions before anything runs.

    Args:
        model: The model as mlx_lm loads it.
        interventions: Interventions of the user or of a file.
        fingerprint: The model's fingerprint, to refuse directions of another model; empty to accept them.

    Raises:
        StepError: There are none or too many, or one has an invalid layer, head, scale or direction.
    """
    if not 1 <= len(interventions) <= MOST:
        raise StepError(f"{len(interventions)} interventions were given.", f"Give 1 to {MOST}.")
    for each in interventions:
        if each.kind not in (*KINDS, "direction"):
            raise StepError(f"There is no kind of unit {each.kind!r}.", f"Choose one of {', '.join(KINDS)}.")
        if (each.kind == "direction") != (each.direction is not None):
            raise StepError(
                "The direction is missing, or there is one for another unit.", "Give one, for itself."
            )
        view.check_layer(model, each.layer)
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
    for each in interventions:
        if each.direction is not None:
            check_direction(each.direction, fingerprint)


def check_direction(direction: Direction, fingerprint: str = "") -> None:
    """Reject a direction that is not a valid vector, or that was made with another model.

    Args:
        direction: Direction of a file.
        fingerprint: Fingerprint of the model; empty if it isn't known.

    Raises:
        StepError: The direction is rejected.
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


def _other_width(layer: int, width: int, own: int) -> tuple[str, str]:
    return (
        f"The direction has {width:,} numbers, the stream after L{layer + 1} has {own:,}: it is another model's.",
        "Make it again with this model.",
    )


# ---- the prediction under interventions, at one token or in the whole context ------------------

MOST_LISTED = 100
"""Largest number of candidates listed from each of the two predictions, without and with the interventions."""


class Baseline(Struct, frozen=True):
    """The unmodified run of one token, with which runs under interventions are compared."""

    session: Session
    node: int
    token: int
    runner: Runner
    """Runner whose cache contains the path without the token; copies of it run."""
    trace: ModuleTrace
    """Modules that the token went through."""
    logits: Row
    """The model's own logits after the token."""
    check: Check
    """The check that taps which change nothing leave the logits as they are."""
    recomputed: int
    """Number of tokens of the path that ran again."""
    note: str
    begun: float
    step_ms: float

    def edited_logits(self, edits: Edits) -> Row:
        """The logits after the token with changes to its forward pass."""
        with edited(self.session.runner.model, edits).set():
            return view.logits_after(self.runner.copy(), self.token)

    def facts(self, *checks: Check) -> CaptureFacts:
        """The facts of a view, with these checks after the baseline's."""
        return view.facts_of(self.session, self.begun, self.step_ms, (self.check, *checks), self.note)


BASELINE_RUNS = 2
"""Forward passes of the token for a `Baseline`: a plain one, and one under taps that change nothing."""


def baseline(session: Session, node: int, stopped: Stopped = never) -> Baseline:
    """Run a token without changes; the session doesn't change.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    runner, recomputed, note = view.runner_before(session, node, stopped)
    poll(stopped)
    token, trace = session.tree[node].token, ModuleTrace(session.runner.model)
    plain, step_ms = view.plain_step(runner, token)
    with edited(session.runner.model, trace).set():
        tapped = view.logits_after(runner.copy(), token)
    check = Check("forward", view.largest_difference(plain, tapped), 0.0)
    return Baseline(session, node, token, runner, trace, plain, check, recomputed, note, begun, step_ms)


def intervene(session: Session, command: Intervene, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token again under interventions, and compare the prediction after it.

    Raises:
        StepError: There is no such node, layer, head or part, a scale is out of range, or the changed model's logits
            are not numbers.
        Cancelled: `stopped` returned True.
    """
    node, interventions, tree = command.node, command.interventions, session.tree
    check_interventions(session.runner.model, interventions, session.facts.fingerprint)
    session.tokens.check(list(command.also))
    at = baseline(session, node, stopped)
    at.trace.check(interventions)
    begin = first_changed(session, node, command.scope, command.begin)
    usual_rounding = rounding_of(at.logits, session.facts.dtype)
    if command.scope == "token":
        logits, run, rounding = at.edited_logits(Scaling(session.runner.model, interventions)), 1, 0.0
    else:
        compute = changed(session.runner.model, interventions)
        logits = session.runner.fresh().forward_path(
            tree.tokens(node), tree.chunks(node), stopped, (begin, compute)
        )
        run, rounding = tree[node].depth, usual_rounding
    before, after = checked_masses(at.logits), changed_masses(logits)
    difference = absolute_difference(at.logits, logits)
    largest = int(difference.argmax())
    yield Intervened(
        node=node,
        interventions=interventions,
        scope=command.scope,
        candidates=_candidates(at, before, after, command),
        kl_bits=view.kl_bits(before.logprobs, after.logprobs),
        largest_change=float(difference[largest]),
        largest_change_id=largest,
        largest_change_text=view.token_text(session, largest),
        entropy_before_bits=before.entropy_bits,
        entropy_after_bits=after.entropy_bits,
        rounding=rounding,
        tokens_run=at.recomputed + BASELINE_RUNS + run,
        note=_note(interventions, float(difference[largest]), usual_rounding),
        facts=at.facts(),
        begin=begin if command.scope == "context" else 0,
    )


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


def _candidates(
    at: Baseline, own: Masses, changed: Masses, command: Intervene
) -> tuple[CandidateChange, ...]:
    count = max(1, min(command.top, MOST_LISTED))
    listed = *ranked(own.logits, count), *ranked(changed.logits, count), *command.also
    ids = np.array([*dict.fromkeys(listed)])
    tokens, pending = at.session.tokens, at.session.pending.get(at.node, b"")
    before, after = (chosen_candidates(tokens, each, ids, pending, None) for each in (own, changed))
    return tuple(
        CandidateChange(one, other, float(own.logits[one.id]), float(changed.logits[other.id]))
        for one, other in zip(before, after, strict=True)
    )


def _note(interventions: Sequence[Intervention], change: float, rounding: float) -> str:
    """The reason why a scale had no effect, if one was expected."""
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


# ---- a branch whose tokens a changed model computes, from one token on -------------------------


def changed(model: Any, interventions: Sequence[Intervention]) -> Compute:
    """Return a function that replaces the model: it computes the model's forward pass under interventions.

    Args:
        model: The model as mlx_lm loads it; it is changed only during each call.
        interventions: Interventions of the user or of a file.

    Raises:
        StepError: One of them is invalid for this model.
    """
    check_interventions(model, interventions)
    taps = edited(model, Scaling(model, interventions))

    def compute(tokens: Any, cache: Any = None) -> Any:
        with taps.set():
            return model(tokens, cache=cache)

    return compute


def hold_interventions(context: Context, command: HoldInterventions, task: Task) -> Iterator[Record]:
    """Continue under interventions, or without those of the current branch; see `hold`."""
    session = context.session
    yield from with_stops(session, hold(session, command, task.cancel.is_set))


def hold(session: Session, command: HoldInterventions, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token again under interventions, and start a branch that stays under them. Without interventions, return to
    the token that the current branch was made from, as the unmodified model computes it.

    Yields:
        The move to the token before, the step, and the interventions now held.

    Raises:
        StepError: The session has no KV cache; the node isn't there, is the first token, or is under interventions
            already; the model has no such unit; no intervention is held.
        Cancelled: `stopped` returned True.
    """
    begun, node, interventions = time.perf_counter(), command.node, command.interventions
    if not interventions:
        yield from _release(session, stopped)
        return
    if not session.cached:
        raise StepError(
            "Without a KV cache interventions can't be held: each step runs its whole path again.",
            "Load the model with its KV cache.",
        )
    session.check_node(node)
    session.interventions.refuse(node, "a new intervention is")
    model = session.runner.model
    check_interventions(model, interventions, session.facts.fingerprint)
    token, parent = session.tree[node].token, session.tree[node].parent
    if parent == ROOT:
        raise StepError("The first token has nothing before it to branch from.", "Hold at a later token.")
    at = baseline(session, node, stopped)
    at.trace.check(interventions)
    if not at.check.passed:
        raise view.failed_check(at.check, session.facts.family)
    if session.node != parent:
        yield from session.move_and_step(parent, stopped)
    held = session.interventions.add(interventions, changed(model, interventions))
    session.runner.compute = session.interventions.computes[held]
    try:
        step = session.step(token, "intervened", held)
    finally:
        session.make_current(session.node)  # also sets the function that computes the next token
    yield step
    yield InterventionsHeld(session.node, node, interventions, (time.perf_counter() - begun) * 1000)


def _release(session: Session, stopped: Stopped) -> Iterator[Moved | Step | InterventionsHeld]:
    """Move to the unmodified token that the branch was made from; if there is none, to the token before the branch."""
    begun = time.perf_counter()
    if not session.tree[session.node].intervention_set:
        raise StepError("No intervention is held here.", "Go to a branch under interventions, or hold some.")
    first = session.tree[session.interventions.first(session.node)]
    own = session.tree.child(first.parent, first.token)
    own = first.parent if own is None else own
    yield from session.move_and_step(own, stopped)
    yield InterventionsHeld(own, own, (), (time.perf_counter() - begun) * 1000)

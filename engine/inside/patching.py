"""Many changed forwards as rows of a batch: activation patching, and every head, part and layer switched off alone.

Patching puts what the model computed for one path into another, place by place (Meng et al. 2022). All positions of one
layer go through the model as rows of one forward. What is put in comes from a forward of as many rows, so that equal
activations are equal bit for bit and their effect is exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.cache.kinds import kind_of
from engine.errors import Cancelled, StepError
from engine.inside.capture import bounds, runner_before
from engine.inside.interventions import (
    GROUND_RUNS,
    Ground,
    Scaling,
    changed_masses,
    edited,
    finite,
    ground,
    kl_bits,
    roles_of,
)
from engine.inside.taps import Edits
from engine.model.forward import Runner
from engine.model.layers import decoder_layers, hidden, kept, with_hidden
from engine.protocol import (
    ActivationsPatched,
    Check,
    Facing,
    Floats,
    HeadsSwept,
    Intervention,
    Measuring,
    PatchColumn,
    PatchKind,
    Scope,
    SweptUnit,
)
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs
from engine.session.session import Session
from engine.task import Stopped, never
from engine.tree import aligned, facing, prompt_chunks

BYTES = 256 * 2**20
"""That the rows of one forward may take: copies of the KV, and logits."""
MOST_ROWS = 64
"""On two cores a forward of more rows than this takes no less time a row."""
_LOGITS = 3
"""Copies of a row's logits: the model's own, in float32, in host memory."""


def row_bytes(runner: Runner, tokens: int, vocabulary: int) -> int:
    """What one row of a forward over copies of a runner's cache takes, in bytes.

    Args:
        runner: Its cache is copied for each row.
        tokens: Of the row.
        vocabulary: Of the model.
    """
    return runner.kv.reading().allocated_bytes + 4 * _LOGITS * tokens * vocabulary


def rows_at_once(runner: Runner, tokens: int, vocabulary: int, alike: bool, kept: int = 0) -> int:
    """How many rows go through the model in one forward; 1 where a cache can't hold several.

    Args:
        runner: Its cache is copied for each row.
        tokens: Of each row.
        vocabulary: Of the model.
        alike: Whether all of the model has its rows along the first axis.
        kept: Bytes that are kept of each token.
    """
    if not alike or runner.kv.without_snapshots() is not None:
        return 1
    return max(1, min(MOST_ROWS, BYTES // (row_bytes(runner, tokens, vocabulary) + kept * tokens)))


def forward_rows(
    runner: Runner, pieces: list[list[int]], count: int, edits: list[Edits], stopped: Stopped = never
) -> npt.NDArray[np.float32]:
    """Run the same tokens in each row, changed.

    Args:
        runner: Its cache holds what is before the tokens; not written.
        pieces: The tokens, cut into forwards.
        count: Rows.
        edits: One for each forward.
        stopped: Polled before each forward.

    Returns:
        The logits after the last token, shape (rows, vocabulary), in host memory.

    Raises:
        StepError: The memory doesn't suffice.
        Cancelled: `stopped` returned True.
    """
    copied = runner.copy()
    if count > 1 and runner.kv.offset:
        copied.kv.caches = [kind_of(cache).repeat(cache, count) for cache in runner.kv.caches]
    logits: Any = None
    try:
        for piece, each in zip(pieces, edits, strict=True):
            if stopped():
                raise Cancelled
            with edited(runner.model, each).set():
                logits = copied.kv.run(runner.model, mx.array([piece] * count), chunk=len(piece) > 1)
                mx.eval(copied.kv.state())  # the logits of all but the last piece cost nothing
        logits = logits[:, -1].astype(mx.float32)
        mx.eval(logits)
    except (RuntimeError, MemoryError) as error:
        if "alloc" not in str(error).lower():
            raise
        raise StepError("There is not enough memory for the batch.", "Use a shorter context.") from error
    found = np.array(logits)
    mx.clear_cache()
    return found


# ---- activation patching -----------------------------------------------------------------------

MOST_POSITIONS = 256
"""That are replaced in turn at most: the time grows with their square."""
_SMALLEST = 1e-3
"""Of the difference of both logit differences: below it a share of it would be rounding."""

Place = tuple[int, str]
"""A layer, and the attribute of its part; empty for the layer itself."""


class Kept(Edits):
    """Changes nothing, and keeps what the layers, or their parts of one role, return.

    Args:
        model: As mlx_lm loads it.
        kind: What is kept.
    """

    def __init__(self, model: Any, kind: PatchKind) -> None:
        self._kind = kind
        self._roles = roles_of(model)
        self.states: dict[Place, mx.array] = {}

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        if self._roles[layer, name] == self._kind:
            self.states[layer, name] = kept(hidden(result))
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`."""
        if self._kind == "layer":
            self.states[layer, ""] = kept(hidden(result))
        return result


class Patch(Edits):
    """Puts kept activations into one layer, in each row at one position.

    Args:
        layer: The layer.
        source: What is put in, from a forward of as many rows.
        positions: The token of the forward in each row; none where it is beyond its end.
        partners: The source's token for each token of the forward; None where each has that of its own place.
    """

    def __init__(
        self, layer: int, source: Kept, positions: Sequence[int], partners: Sequence[int] | None = None
    ) -> None:
        self._layer, self._source, self._positions = layer, source, positions
        self._partners = partners

    def part(self, layer: int, name: str, result: Any) -> Any:
        """See `Edits`."""
        return self._put(layer, name, result)

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        """See `Edits`."""
        return self._put(layer, "", result)

    def _put(self, layer: int, name: str, result: Any) -> Any:
        state = self._source.states.get((layer, name)) if layer == self._layer else None
        if state is None:
            return result
        if self._partners is not None:
            state = mx.take(state, mx.array(list(self._partners)), axis=-2)
        own = hidden(result)
        rows, tokens = len(self._positions), own.shape[-2]
        if own.shape != state.shape or own.ndim < 3 or own.shape[-3] != rows:
            raise StepError(
                f"L{layer + 1} returns {own.shape} for {rows} rows: single positions of it can't be replaced.",
                "Choose another kind of place.",
            )
        here = mx.array(list(self._positions))[:, None, None] == mx.arange(tokens)[None, :, None]
        return with_hidden(result, mx.where(here, state, own))


class _Sweep(Struct):
    """The forwards of one patching sweep."""

    model: Any
    kind: PatchKind
    token: int
    other: int
    runner: Runner
    """Its cache holds what both paths have before the first replaced position."""
    ids: list[int]
    """The tokens of the changed path from there on."""
    source_ids: list[int]
    partners: list[int | None]
    """For each of the changed path's tokens the source's that it faces, None for none."""
    rows: int
    stopped: Stopped
    forwards: int = 0
    sources: list[Kept] = field(default_factory=list)

    def baselines(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The logit differences of both paths, in as many rows as patched; keeps the source's activations."""
        self.sources = [Kept(self.model, self.kind) for _ in self._pieces(self.source_ids)]
        from_source = self._run(self.source_ids, list(self.sources))
        own = self._run(self.ids, [Edits() for _ in self._pieces(self.ids)])
        return own, from_source

    def layers(self) -> list[int]:
        """The layers that have such a place."""
        return sorted({layer for layer, _ in self.sources[0].states})

    def patched(self, layer: int, positions: Sequence[int]) -> npt.NDArray[np.float64]:
        """The logit differences with one position of a layer replaced in each row."""
        taken = [partner or 0 for partner in self.partners]  # what faces none is replaced in no row
        edits: list[Edits]
        if self.runner.kv.chunks_matter:
            edits = [
                Patch(layer, self.sources[partner], [position - place for position in positions])
                for place, partner in enumerate(taken)
            ]
        else:
            alike = len(self.ids) == len(self.source_ids) and taken == list(range(len(taken)))
            edits = [Patch(layer, self.sources[0], positions, None if alike else taken)]
        return self._run(self.ids, edits)

    def _pieces(self, ids: list[int]) -> list[list[int]]:
        """The forwards: one, or one a token where a chunk would change the numbers."""
        return [[id] for id in ids] if self.runner.kv.chunks_matter else [ids]

    def _run(self, ids: list[int], edits: list[Edits]) -> npt.NDArray[np.float64]:
        if self.stopped():
            raise Cancelled
        self.forwards += 1
        logits = forward_rows(self.runner, self._pieces(ids), self.rows, edits).astype(np.float64)
        return logits[:, self.token] - logits[:, self.other]


def patch_activations(
    session: Session,
    node: int,
    source: int,
    token: int,
    other: int,
    kind: PatchKind = "layer",
    stopped: Stopped = never,
    alignment: Facing | None = None,
) -> Iterator[Measuring | ActivationsPatched]:
    """Replace activations of one path by those of another, layer by layer and position by position.

    Args:
        session: Has both paths in its tree; not changed.
        node: The last token of the path that is changed.
        source: The last token of the path that the activations come from.
        token: Its logit ...
        other: ... less that of this one is what the replacement moves.
        kind: The residual stream after each layer, or what each layer's attention or MLP returns.
        stopped: Polled before each forward.
        alignment: Which tokens of the paths face each other; None for `aligned`.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such node; the paths are the same, or differ in too many tokens; the alignment isn't one;
            both have the same logit difference; no layer has such a part.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    session.tokens.check([token, other])
    for each in (node, source):
        session.check_node(each)
    first, faced = _faced(session.tree.tokens(node), session.tree.tokens(source), alignment)
    begin = max(0, first - 1)
    at = ground(session, node, stopped)
    path, giver = (session.tree.nodes(last)[begin:] for last in (node, source))
    partners = [faced[place] - begin if place in faced else None for place in range(begin, begin + len(path))]
    paired = [place for place, partner in enumerate(partners) if partner is not None]
    ids, source_ids = ([session.tree[each].token for each in nodes] for nodes in (path, giver))
    runner, recomputed, note = runner_before(session, path[0], stopped)
    model = session.runner.model
    kept = 4 * at.survey.width * len(decoder_layers(model))  # of the source's activations, a token
    most = rows_at_once(runner, max(len(ids), len(source_ids)), at.plain.size, at.survey.rows, kept)
    count = min(len(paired), most)
    sweep = _Sweep(model, kind, token, other, runner, ids, source_ids, partners, count, stopped)
    own, given = sweep.baselines()
    _check_baselines(sweep, own, given)
    layers, columns = sweep.layers(), len(paired)
    shares = np.zeros((len(layers), columns))
    for row, layer in enumerate(layers):
        for start in range(0, columns, count):
            yield Measuring("PatchActivations", row * columns + start, len(layers) * columns, f"L{layer + 1}")
            # the last batch is filled up: forwards of another shape would have other last bits
            positions = [paired[min(start + place, columns - 1)] for place in range(count)]
            found = (sweep.patched(layer, positions) - own) / (given - own)
            new = min(count, columns - start)
            shares[row, start : start + new] = found[:new]
    whole = partners[-1] == len(giver) - 1
    before = sum(begin + place < first for place in paired)
    checks = _checks(session, shares, before, kind, len(path) == len(giver), whole)
    run = at.recomputed + GROUND_RUNS + recomputed + count * (len(giver) + (sweep.forwards - 1) * len(path))
    moved, more = _floor(session, node, len(giver) - len(path), stopped)
    floor = None if moved is None else finite(abs(float(moved[token]) - float(moved[other]) - float(own[0])))
    text = session.tokens.text
    yield ActivationsPatched(
        node=node,
        source=source,
        part=kind,
        token=token,
        text=text(token, b"")[0],
        other=other,
        other_text=text(other, b"")[0],
        difference=float(own[0]),
        source_difference=float(given[0]),
        first=first,
        columns=_columns(session, begin, path, giver, partners),
        shift=len(giver) - len(path),
        layers=tuple(layers),
        shares=Floats(shares.shape, shares.astype("<f4").tobytes()),
        rows=count,
        tokens_run=run + more,
        note=note,
        facts=at.facts(*checks),
        aligned=alignment is not None,
        floor=floor,
    )


MOST_AGAIN = 2048
"""Tokens of a path that runs once more at other places, at most."""


def _floor(session: Session, node: int, shift: int, stopped: Stopped) -> tuple[Row | None, int]:
    """The logits after a path at later places, and the tokens that ran for it; None where none is needed.

    Args:
        session: Has the path.
        node: Its last token.
        shift: Tokens that the source has more; as many stand before the path, or as many as it has fewer.
        stopped: Polled before each chunk.
    """
    ids = session.tree.tokens(node)
    if not shift or len(ids) + abs(shift) > MOST_AGAIN:
        return None, 0
    again = [*(ids * (abs(shift) // len(ids) + 1))[: abs(shift)], *ids]
    return session.runner.fresh().forward_path(again, prompt_chunks(len(again)), stopped), len(again)


def _columns(
    session: Session, begin: int, path: Sequence[int], giver: Sequence[int], partners: Sequence[int | None]
) -> tuple[PatchColumn, ...]:
    def token(node: int) -> tuple[int, int, str]:
        id = session.tree[node].token
        return node, id, session.tokens.text(id, b"")[0]

    return tuple(
        PatchColumn(begin + place, *token(node), *token(giver[partner]), begin + partner)
        for place, (node, partner) in enumerate(zip(path, partners, strict=True))
        if partner is not None
    )


def _faced(one: Sequence[int], other: Sequence[int], alignment: Facing | None) -> tuple[int, dict[int, int]]:
    """How two paths face each other.

    Args:
        one: The tokens of the path that is changed.
        other: Those of the source.
        alignment: As a person gave it; None for `aligned`.

    Returns:
        The first position where they differ, or where an alignment has another place of the source; and for each place
        of the path that of the source that it faces.

    Raises:
        StepError: There is nothing to put in, or too much; the alignment isn't one.
    """
    first, _ = facing(one, other)
    if first == len(one) == len(other):
        raise StepError("Both paths have the same tokens.", "Choose another prompt or branch as the source.")
    pairs = aligned(one, other) if alignment is None else alignment
    _check_alignment(pairs, len(one), len(other))
    first = min([first, *(min(pair) for pair in pairs if pair[0] != pair[1])])
    count = sum(place >= first for place, _ in pairs)
    if count > MOST_POSITIONS:
        raise StepError(
            f"The paths differ from token {first + 1:,} on: {count:,} positions.",
            f"At most {MOST_POSITIONS} are replaced in turn: choose nodes nearer to the first difference.",
        )
    if not count:
        raise StepError("No token from the difference on faces one of the source.", "Align one at least.")
    return first, dict(pairs)


def _check_alignment(pairs: Sequence[tuple[int, int]], own: int, source: int) -> None:
    """Refuse pairs that are no alignment.

    Raises:
        StepError: A place isn't there, or the pairs don't rise on both sides.
    """
    last = -1, -1
    for place, partner in pairs:
        if not (0 <= place < own and 0 <= partner < source):
            raise StepError(
                f"Token {place + 1} can't face token {partner + 1} of the source.",
                f"This path has {own:,} tokens, the source {source:,}.",
            )
        if place <= last[0] or partner <= last[1]:
            raise StepError(
                f"Token {place + 1} faces token {partner + 1} of the source, and token {last[0] + 1} before it faces "
                f"token {last[1] + 1}.",
                "Each token faces at most one, and both sides keep their order.",
            )
        last = place, partner


def _check_baselines(sweep: _Sweep, own: npt.NDArray[np.float64], given: npt.NDArray[np.float64]) -> None:
    if not sweep.layers():
        article = "a" if sweep.kind == "layer" else "an"
        raise StepError(
            f"No layer of this model has {article} {sweep.kind} of its own.", "Replace whole layers."
        )
    if not np.isfinite(given - own).all() or np.abs(given - own).min() < _SMALLEST:
        raise StepError(
            f"Both paths have the same difference of these two logits ({own[0]:.2f} and {given[0]:.2f}).",
            "Choose two tokens: one that this path prefers, and one that the source prefers.",
        )


def _checks(
    session: Session, shares: npt.NDArray[np.float64], before: int, kind: PatchKind, alike: bool, whole: bool
) -> tuple[Check, ...]:
    """What must be so: nothing before the first difference, and all of it at the last layer's last position."""
    bound = 10 * bounds(session).own  # of a difference of two logits, not of the largest logit
    nothing = finite(np.abs(shares[:, :before]).max(initial=0.0))
    if alike:  # forwards of another number of tokens may have other last bits, those of as many have none
        bound = 0.0
    same = Check("same", nothing, bound, "before the first difference")
    end = Check("restored", finite(abs(shares[-1, -1] - 1)), bound, "the last layer at the last position")
    return (same, end) if kind == "layer" and whole else (same,)


# ---- sweeps ------------------------------------------------------------------------------------


class _Target(Struct, frozen=True):
    """What a sweep looks at: the logit of a token, and its difference from that of another."""

    session: Session
    plain: Row
    """The model's own logits."""
    own: Row
    """Its log-probabilities."""
    token: int
    other: int | None

    def difference(self, row: Row) -> float | None:
        return None if self.other is None else float(row[self.token] - row[self.other])

    def unit(self, intervention: Intervention, row: Row) -> SweptUnit:
        """What switching off one unit did."""
        changed, top = changed_masses(row).logprobs, int(row.argmax())
        before, after = self.difference(self.plain), self.difference(row)
        return SweptUnit(
            intervention,
            kl_bits(self.own, changed),
            float(row[self.token] - self.plain[self.token]),
            None if before is None or after is None else after - before,
            math.exp(changed[self.token]),
            top,
            _text(self.session, top),
            math.exp(changed[top]),
        )


def sweep_heads(
    session: Session,
    node: int,
    token: int | None = None,
    other: int | None = None,
    stopped: Stopped = never,
    heads: Collection[int] | None = None,
    parts: bool = True,
    scope: Scope = "token",
) -> Iterator[Measuring | HeadsSwept]:
    """Switch off every head, part and layer alone, or some of them.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        token: Whose logit is followed; None for the most probable one.
        other: Whose logit is taken off.
        stopped: Polled before each forward.
        heads: The layers whose heads are switched off; None for all layers.
        parts: Whether parts and layers are.
        scope: In this token's forward, or in the whole path's.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There is no such node, or it is the root; the logits are not numbers; nothing was left to switch off.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    session.tokens.check([each for each in (token, other) if each is not None])
    at = ground(session, node, stopped)
    units, vocabulary = [each for each in at.survey.units() if _wanted(each, heads, parts)], at.plain.size
    if not units:
        layers = ", ".join(f"L{layer + 1}" for layer in sorted(heads or ()))
        raise StepError(
            f"{layers}: no heads that could be told apart.", "Switch off the attention as a whole."
        )
    count = min(len(units), rows_at_once(at.runner, 1, vocabulary, at.survey.rows))
    forwards = _TokenRows(at) if scope == "token" else _PathRows(at, count, stopped)
    plain = forwards.plain()
    followed = int(at.plain.argmax()) if token is None else token
    target = _Target(session, plain, checked_logprobs(plain), followed, other)
    swept: list[SweptUnit] = []
    errors = [0.0]
    run = 0
    while len(swept) < len(units):
        batch = units[len(swept) : len(swept) + count]
        yield Measuring("SweepHeads", len(swept), len(units), batch[0].label)
        if stopped():
            raise Cancelled
        found = forwards.rows(batch)
        swept += map(target.unit, batch, found)
        run += len(batch)
        if len(batch) > 1:
            errors.append(_error(forwards, plain, batch, found))
            run += 1
    check = Check("single", max(errors), bounds(session).twice, f"{count} rows")
    yield HeadsSwept(
        node=node,
        token=target.token,
        text=_text(session, target.token),
        prob=math.exp(target.own[target.token]),
        logit=float(plain[target.token]),
        other=other,
        other_text="" if other is None else _text(session, other),
        difference=target.difference(plain),
        top=int(plain.argmax()),
        top_text=_text(session, int(plain.argmax())),
        units=tuple(swept),
        missing=at.survey.missing(),
        rows=count,
        row_bytes=row_bytes(at.runner, 1, vocabulary),
        tokens_run=at.recomputed + GROUND_RUNS + run * forwards.tokens + forwards.before,
        note="" if count > 1 else "They ran one by one: the cache or the memory doesn't hold several rows.",
        facts=at.facts(check),
        scope=scope,
    )


def _wanted(unit: Intervention, heads: Collection[int] | None, parts: bool) -> bool:
    """True if a unit is one of those that are switched off."""
    return (heads is None or unit.layer in heads) if unit.kind == "head" else parts


class _TokenRows:
    """Units switched off in one token's forward.

    Args:
        at: The token.
    """

    tokens = 1
    """The forwards that run for a unit."""
    before = 0
    """The forwards that ran for the model's own prediction, besides those of the ground."""

    def __init__(self, at: Ground) -> None:
        self._at = at

    def plain(self) -> Row:
        """What the model itself predicts."""
        return self._at.plain

    def rows(self, batch: Sequence[Intervention]) -> list[Row]:
        """The logits with each of some units switched off."""
        at, model = self._at, self._at.session.runner.model
        if len(batch) == 1:
            return [at.row(Scaling(model, batch))]
        scaled = Scaling(model, *([each] for each in batch))
        return list(forward_rows(at.runner, [[at.token]], len(batch), [scaled]))


AT_ONCE = 2048
"""Tokens of all rows in one forward, at most: as many as in a usual chunk of a prefill."""


class _PathRows:
    """Units switched off in the whole path, which runs from nothing in each row.

    Args:
        at: The path's last token.
        count: Rows at once, at most.
        stopped: Polled before each forward.
    """

    def __init__(self, at: Ground, count: int, stopped: Stopped) -> None:
        ids = at.session.tree.tokens(at.node)
        size = 1 if at.runner.kv.chunks_matter else max(1, AT_ONCE // count)
        self._pieces = [
            ids[first : min(first + size, len(ids) - 1)] for first in range(0, len(ids) - 1, size)
        ]
        self._pieces.append(ids[-1:])
        self._runner, self._count, self._stopped = at.session.runner, count, stopped
        self.tokens, self.before = len(ids), count * len(ids)

    def plain(self) -> Row:
        """What the model itself predicts, in as many rows and the same pieces: what changes nothing is 0 then."""
        return self._run(self._count, Edits())[0]

    def rows(self, batch: Sequence[Intervention]) -> list[Row]:
        """The logits with each of some units switched off."""
        return self._run(len(batch), Scaling(self._runner.model, *([each] for each in batch)))

    def _run(self, count: int, edits: Edits) -> list[Row]:
        changed = [edits] * len(self._pieces)
        return list(forward_rows(self._runner.fresh(), self._pieces, count, changed, self._stopped))


def _error(
    forwards: _TokenRows | _PathRows, plain: Row, batch: Sequence[Intervention], found: Sequence[Row]
) -> float:
    """How far the row that changed most is from the same unit switched off alone, as a share of the largest logit."""
    most = max(range(len(batch)), key=lambda row: float(absolute_difference(found[row], plain).max()))
    (alone,) = forwards.rows([batch[most]])
    return finite(absolute_difference(found[most], alone).max() / max(float(np.abs(alone).max()), 1e-9))


def _text(session: Session, token: int) -> str:
    return session.tokens.text(token, b"")[0]


# ---- commands ----------------------------------------------------------------------------------

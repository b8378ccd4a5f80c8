"""Many changed forward passes as rows of a batch: heads, parts and layers switched off one at a time, and activation
patching, between two paths and over a set of pairs of texts.

Patching replaces activations of one path by those of another, position by position (Meng et al. 2022). All positions of
one layer go through the model as rows of one forward pass. The replacements come from a forward pass with the same
number of rows, so that equal activations are equal bit for bit and their effect is exactly 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any, get_args

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import kind_of
from engine.errors import Cancelled, EngineError, PromptError, StepError
from engine.inside import view
from engine.inside.interventions import (
    BASELINE_RUNS,
    ModuleTrace,
    Scaling,
    baseline,
    changed_masses,
    edited,
    roles_of,
)
from engine.inside.taps import Edits
from engine.model.forward import Runner
from engine.model.layers import decoder_layers, hidden, kept, with_hidden
from engine.model.load import Loaded
from engine.protocol import (
    MOST_PAIRS,
    PAIR_TOKENS,
    ActivationsPatched,
    Check,
    Facing,
    HeadsSwept,
    Intervention,
    Measuring,
    PairPatched,
    PairsPatched,
    PatchActivations,
    PatchColumn,
    PatchKind,
    PatchPair,
    PatchPairs,
    PatchPlace,
    PlaceShares,
    Record,
    SweepHeads,
    SweptUnit,
)
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs
from engine.session.session import Session
from engine.settings import Settings
from engine.task import Stopped, never, poll
from engine.tree import aligned, facing, prompt_chunks

Numbers = npt.NDArray[np.float64]

# ---- rows of a batch ---------------------------------------------------------------------------

BYTES = 256 * 2**20
"""Largest size in bytes of the rows of one forward pass: copies of the KV cache, and logits."""
MOST_ROWS = 64
"""Largest number of rows: on two cores, more rows take no less time per row."""
_LOGITS = 3
"""Number of copies of a row's logits: in the model's dtype, in float32, and in host memory."""
ONE_BY_ONE = "They ran one by one: the cache or the memory doesn't hold several rows."


def row_bytes(runner: Runner, tokens: int, vocabulary: int) -> int:
    """The bytes of one row of a forward pass over copies of a runner's cache."""
    return runner.kv.reading().allocated_bytes + 4 * _LOGITS * tokens * vocabulary


def rows_at_once(runner: Runner, tokens: int, vocabulary: int, batchable: bool, stored: int = 0) -> int:
    """The number of rows that go through the model in one forward pass; 1 if a cache can't hold several.

    Args:
        runner: Runner whose cache is copied for each row.
        tokens: Number of tokens of each row.
        vocabulary: Number of tokens of the vocabulary.
        batchable: True if the whole model has its rows along the first axis.
        stored: Bytes stored per token.
    """
    if not batchable or runner.kv.without_snapshots() is not None:
        return 1
    return max(1, min(MOST_ROWS, BYTES // (row_bytes(runner, tokens, vocabulary) + stored * tokens)))


def forward_rows(
    runner: Runner, pieces: list[list[int]], count: int, edits: Sequence[Edits], stopped: Stopped = never
) -> npt.NDArray[np.float32]:
    """Run the same tokens in each row, with changes.

    Args:
        runner: Runner whose cache contains the tokens before these; not changed.
        pieces: The tokens of each forward pass.
        count: Number of rows.
        edits: The changes to each forward pass.
        stopped: Polled before each forward pass.

    Returns:
        The logits after the last token, shape (rows, vocabulary), in host memory.

    Raises:
        StepError: There is not enough memory.
        Cancelled: `stopped` returned True.
    """
    copied = runner.copy()
    if count > 1 and runner.kv.offset:
        copied.kv.caches = [kind_of(cache).repeat(cache, count) for cache in runner.kv.caches]
    logits: Any = None
    try:
        for piece, each in zip(pieces, edits, strict=True):
            poll(stopped)
            with edited(runner.model, each).set():
                logits = copied.kv.run(runner.model, mx.array([piece] * count), chunk=len(piece) > 1)
                mx.eval(copied.kv.state())  # logits are only computed for the last piece
        logits = logits[:, -1].astype(mx.float32)
        mx.eval(logits)
    except (RuntimeError, MemoryError) as error:
        if "alloc" not in str(error).lower():
            raise
        raise StepError("There is not enough memory for the batch.", "Use a shorter context.") from error
    found = np.array(logits)
    mx.clear_cache()
    return found


class Batch(Struct, frozen=True):
    """The same tokens in several rows, each row with its own interventions."""

    runner: Runner
    """Runner whose cache contains the tokens before these; not changed."""
    pieces: list[list[int]]
    rows: int
    """Largest number of rows."""
    stopped: Stopped = never

    @classmethod
    def of_tokens(
        cls, runner: Runner, ids: list[int], size: int, rows: int, stopped: Stopped = never
    ) -> Batch:
        """Split tokens into pieces of a size, and the last token; into single tokens if pieces change the numbers."""
        size = 1 if runner.kv.chunks_matter else size
        pieces = [ids[first : min(first + size, len(ids) - 1)] for first in range(0, len(ids) - 1, size)]
        return cls(runner, [*pieces, ids[-1:]], rows, stopped)

    def plain(self) -> Row:
        """The model's own logits, from a forward pass with all rows: with fewer, the last bits would differ."""
        return self._run(Edits(), self.rows)[0]

    def under(self, *interventions: Intervention) -> list[Row]:
        """The logits with one intervention in each row."""
        edits = Scaling(self.runner.model, *([each] for each in interventions))
        return self._run(edits, len(interventions))

    def _run(self, edits: Edits, rows: int) -> list[Row]:
        return list(forward_rows(self.runner, self.pieces, rows, [edits] * len(self.pieces), self.stopped))


# ---- heads, parts and layers switched off one at a time ----------------------------------------

AT_ONCE = 2048
"""Largest number of tokens of one forward pass, over all rows: that of a usual prefill chunk."""


def sweep_heads(session: Session, command: SweepHeads, stopped: Stopped = never) -> Iterator[Record]:
    """Switch off every head, part and layer alone, or some of them.

    Raises:
        StepError: There is no such node, or it is the root; the logits are not numbers; there is nothing to switch off.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    view.check_tokens(session, command.token, command.other)
    at = baseline(session, command.node, stopped)
    units = _units(at.trace, command)
    vocabulary, in_context = at.logits.size, command.scope == "context"
    count = min(len(units), rows_at_once(at.runner, 1, vocabulary, at.trace.batchable))
    ids = session.tree.tokens(command.node) if in_context else [at.token]
    if in_context:
        batch = Batch.of_tokens(session.runner.fresh(), ids, max(1, AT_ONCE // count), count, stopped)
    else:
        batch = Batch(at.runner, [ids], count)
    plain = batch.plain() if in_context else at.logits
    token, other = int(at.logits.argmax()) if command.token is None else command.token, command.other
    own, top = checked_logprobs(plain), int(plain.argmax())

    def switched_off(*units: Intervention) -> list[Row]:
        alone = len(units) == 1 and not in_context
        return [at.edited_logits(Scaling(session.runner.model, units))] if alone else batch.under(*units)

    def difference(row: Row) -> float | None:
        return None if other is None else float(row[token] - row[other])

    def effect(unit: Intervention, row: Row) -> SweptUnit:
        changed, best = changed_masses(row).logprobs, int(row.argmax())
        before, after = difference(plain), difference(row)
        return SweptUnit(
            unit,
            view.kl_bits(own, changed),
            float(row[token] - plain[token]),
            None if before is None or after is None else after - before,
            math.exp(changed[token]),
            best,
            view.token_text(session, best),
            math.exp(changed[best]),
        )

    swept: list[SweptUnit] = []
    error, ran = 0.0, 0
    while len(swept) < len(units):
        some = units[len(swept) : len(swept) + count]
        yield Measuring(command.kind, len(swept), len(units), some[0].label)
        poll(stopped)
        rows = switched_off(*some)
        swept += map(effect, some, rows)
        ran += len(some)
        if len(some) > 1:  # check the row that changed most: switch the same unit off alone
            most = max(range(len(some)), key=lambda row: float(absolute_difference(rows[row], plain).max()))
            (alone,) = switched_off(some[most])
            largest = max(float(np.abs(alone).max()), 1e-9)
            error = max(error, view.finite(absolute_difference(rows[most], alone).max() / largest))
            ran += 1
    check = Check("single", error, view.bounds(session).twice, f"{count} rows")
    yield HeadsSwept(
        node=command.node,
        token=token,
        text=view.token_text(session, token),
        prob=math.exp(own[token]),
        logit=float(plain[token]),
        other=other,
        other_text="" if other is None else view.token_text(session, other),
        difference=difference(plain),
        top=top,
        top_text=view.token_text(session, top),
        units=tuple(swept),
        missing=tuple(at.trace.missing()),
        rows=count,
        row_bytes=row_bytes(at.runner, 1, vocabulary),
        tokens_run=at.recomputed + BASELINE_RUNS + ran * len(ids) + (count * len(ids) if in_context else 0),
        note="" if count > 1 else ONE_BY_ONE,
        facts=at.facts(check),
        scope=command.scope,
    )


def _units(trace: ModuleTrace, command: SweepHeads) -> list[Intervention]:
    """The units that are switched off in turn.

    Raises:
        StepError: There are no such units.
    """
    heads = command.heads

    def wanted(unit: Intervention) -> bool:
        return (heads is None or unit.layer in heads) if unit.kind == "head" else command.parts

    units = list(filter(wanted, trace.units()))
    if not units:
        layers = ", ".join(f"L{layer + 1}" for layer in sorted(heads or ()))
        raise StepError(
            f"{layers}: no heads that could be told apart.", "Switch off the attention as a whole."
        )
    return units


# ---- activation patching -----------------------------------------------------------------------

MOST_POSITIONS = 256
"""Largest number of positions that are replaced in turn: the time grows with their square."""
_SMALLEST = 1e-3
"""Smallest distance of the two paths' logit differences: shares of a smaller one would be rounding."""


class ActivationCache(Edits):
    """Changes nothing, and stores the output of the layers, or of their parts of one role."""

    def __init__(self, model: Any, kind: PatchKind) -> None:
        self._kind = kind
        self._roles = roles_of(model)
        self.states: dict[tuple[int, str], mx.array] = {}
        """Activations by the layer and the attribute of its part; the attribute is empty for the layer itself."""

    def part(self, layer: int, name: str, result: Any) -> Any:
        if self._roles[layer, name] == self._kind:
            self.states[layer, name] = kept(hidden(result))
        return result

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        if self._kind == "layer":
            self.states[layer, ""] = kept(hidden(result))
        return result


class ActivationPatch(Edits):
    """Replaces activations of one layer, in each row at one position.

    Args:
        layer: Index of the layer.
        source: Replacements, from a forward pass with the same number of rows.
        positions: Position to replace in each row of the forward pass; one out of range replaces nothing.
        partners: Position in the source for each token of the forward pass; None if the positions are the same.
    """

    def __init__(
        self,
        layer: int,
        source: ActivationCache,
        positions: Sequence[int],
        partners: Sequence[int] | None = None,
    ) -> None:
        self._layer, self._source, self._positions = layer, source, positions
        self._partners = partners

    def part(self, layer: int, name: str, result: Any) -> Any:
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

    def layer(self, layer: int, given: mx.array, result: Any) -> Any:
        return self.part(layer, "", result)


def _patched_shares(
    command: PatchActivations,
    runner: Runner,
    ids: list[int],
    source_ids: list[int],
    partners: list[int | None],
    rows: int,
    stopped: Stopped,
) -> Generator[Measuring, None, tuple[list[int], Numbers, Numbers, Numbers]]:
    """Run both paths, then the changed one with each position replaced in each layer in turn.

    Args:
        command: The command.
        runner: Runner whose cache contains the tokens that both paths have before the first replaced position.
        ids: Tokens of the changed path from there on.
        source_ids: Tokens of the source from there on.
        partners: Place in `source_ids` that each of `ids` faces; None if it faces none.
        rows: Number of rows of each forward pass.
        stopped: Polled before each forward pass.

    Returns:
        Indices of the layers that have such a part; the logit differences of the changed path and of the source, shape
        (rows,); and the share of the difference between both that each replacement moves, shape (layers, positions).
    """
    kind, model, one_by_one = command.part, runner.model, runner.kv.chunks_matter

    def run(tokens: list[int], edits: Sequence[Edits]) -> Numbers:
        """The logit differences of the rows after tokens that run together, or one by one."""
        poll(stopped)
        pieces = [[token] for token in tokens] if one_by_one else [tokens]
        logits = forward_rows(runner, pieces, rows, edits).astype(np.float64)
        return logits[:, command.token] - logits[:, command.other]

    sources = [ActivationCache(model, kind) for _ in (source_ids if one_by_one else [0])]
    given = run(source_ids, sources)
    own = run(ids, [Edits() for _ in (ids if one_by_one else [0])])
    layers = sorted({layer for layer, _ in sources[0].states})
    _check_baselines(kind, layers, own, given)
    positions = [place for place, partner in enumerate(partners) if partner is not None]
    facing = [partner or 0 for partner in partners]  # a token that faces none is replaced in no row
    moved = None if len(ids) == len(source_ids) and facing == list(range(len(ids))) else facing
    count, shares = len(positions), np.zeros((len(layers), len(positions)))
    for row, layer in enumerate(layers):
        for start in range(0, count, rows):
            yield Measuring(command.kind, row * count + start, len(layers) * count, f"L{layer + 1}")
            # the last batch is padded: forward passes of another shape would differ in the last bits
            some = [positions[min(start + place, count - 1)] for place in range(rows)]
            edits = [ActivationPatch(layer, sources[0], some, moved)]
            if one_by_one:
                edits = [
                    ActivationPatch(layer, sources[partner], [position - place for position in some])
                    for place, partner in enumerate(facing)
                ]
            found = (run(ids, edits) - own) / (given - own)
            new = min(rows, count - start)
            shares[row, start : start + new] = found[:new]
    return layers, own, given, shares


def patch_activations(
    session: Session, command: PatchActivations, stopped: Stopped = never
) -> Iterator[Record]:
    """Replace activations of one path by those of another, layer by layer and position by position.

    Raises:
        StepError: There is no such node; the paths are the same, or differ in too many tokens; the alignment is
            invalid; both have the same logit difference; no layer has such a part.
        PromptError: The model has no embedding for a token.
        Cancelled: `stopped` returned True.
    """
    node, token, other, kind = command.node, command.token, command.other, command.part
    view.check_tokens(session, token, other)
    session.check_node(node)
    session.check_node(command.source)
    tree = session.tree
    first, facing_places = _facing(tree.tokens(node), tree.tokens(command.source), command.alignment)
    begin = max(0, first - 1)
    at = baseline(session, node, stopped)
    path, source = tree.nodes(node)[begin:], tree.nodes(command.source)[begin:]
    partners = [
        facing_places[place] - begin if place in facing_places else None
        for place in range(begin, begin + len(path))
    ]
    paired = [place for place, partner in enumerate(partners) if partner is not None]
    ids, source_ids = ([tree[each].token for each in nodes] for nodes in (path, source))
    runner, recomputed, note = view.runner_before(session, path[0], stopped)
    # bytes per token of the source's activations
    stored = 4 * at.trace.width * len(decoder_layers(runner.model))
    longest = max(len(path), len(source))
    count = min(len(paired), rows_at_once(runner, longest, at.logits.size, at.trace.batchable, stored))
    layers, own, given, shares = yield from _patched_shares(
        command, runner, ids, source_ids, partners, count, stopped
    )
    shift = len(source) - len(path)
    # relative to a difference of two logits, not to the largest logit; exact if both paths have the same length
    bound = 10 * view.bounds(session).own if shift else 0.0
    before = sum(begin + place < first for place in paired)
    unmoved = view.finite(np.abs(shares[:, :before]).max(initial=0.0))
    checks = [Check("same", unmoved, bound, "before the first difference")]
    if kind == "layer" and partners[-1] == len(source) - 1:
        restored = view.finite(abs(shares[-1, -1] - 1))
        checks.append(Check("restored", restored, bound, "the last layer at the last position"))
    forwards = 1 + len(layers) * math.ceil(len(paired) / count)  # passes of the changed path
    run = at.recomputed + BASELINE_RUNS + recomputed + count * (len(source) + forwards * len(path))
    moved, more = _logits_later(session, node, shift, stopped)
    floor = (
        None if moved is None else view.finite(abs(float(moved[token]) - float(moved[other]) - float(own[0])))
    )
    yield ActivationsPatched(
        node=node,
        source=command.source,
        part=kind,
        token=token,
        text=view.token_text(session, token),
        other=other,
        other_text=view.token_text(session, other),
        difference=float(own[0]),
        source_difference=float(given[0]),
        first=first,
        columns=tuple(
            PatchColumn(
                begin + place, path[place], ids[place], view.token_text(session, ids[place]),
                source[partner], source_ids[partner], view.token_text(session, source_ids[partner]), begin + partner,
            )
            for place, partner in enumerate(partners)
            if partner is not None
        ),
        shift=shift,
        layers=tuple(layers),
        shares=view.packed(shares),
        rows=count,
        tokens_run=run + more,
        note=note,
        facts=at.facts(*checks),
        aligned=command.alignment is not None,
        floor=floor,
    )  # fmt: skip


MOST_AGAIN = 2048
"""Largest number of tokens of a path that runs again at later positions."""


def _logits_later(session: Session, node: int, shift: int, stopped: Stopped) -> tuple[Row | None, int]:
    """The logits after a path at later positions, and the number of tokens that ran; None if the source has the same
    length, or the path is too long.

    Args:
        session: Session of the path.
        node: Node of its last token.
        shift: Number of tokens by which the source is longer, or shorter if negative; as many tokens are put before the
            path.
        stopped: Polled before each chunk.
    """
    ids = session.tree.tokens(node)
    if not shift or len(ids) + abs(shift) > MOST_AGAIN:
        return None, 0
    again = [*(ids * (abs(shift) // len(ids) + 1))[: abs(shift)], *ids]
    return session.runner.fresh().forward_path(again, prompt_chunks(len(again)), stopped), len(again)


def _facing(one: Sequence[int], other: Sequence[int], alignment: Facing | None) -> tuple[int, dict[int, int]]:
    """The positions of two paths that face each other.

    Args:
        one: Tokens of the path that is changed.
        other: Tokens of the source.
        alignment: Pairs of positions given by the user; None for `aligned`.

    Returns:
        The first position at which the paths differ or face another position; and the position of the source that each
        position of the path faces.

    Raises:
        StepError: There is nothing to replace, or too much; the alignment has a position that doesn't exist, or isn't
            increasing on both sides.
    """
    first, _ = facing(one, other)
    if first == len(one) == len(other):
        raise StepError("Both paths have the same tokens.", "Choose another prompt or branch as the source.")
    pairs = aligned(one, other) if alignment is None else alignment
    last = -1, -1
    for place, partner in pairs:
        if not (0 <= place < len(one) and 0 <= partner < len(other)):
            raise StepError(
                f"Token {place + 1} can't face token {partner + 1} of the source.",
                f"This path has {len(one):,} tokens, the source {len(other):,}.",
            )
        if place <= last[0] or partner <= last[1]:
            raise StepError(
                f"Token {place + 1} faces token {partner + 1} of the source, and token {last[0] + 1} before it faces "
                f"token {last[1] + 1}.",
                "Each token faces at most one, and both sides keep their order.",
            )
        last = place, partner
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


def _check_baselines(kind: PatchKind, layers: Sequence[int], own: Numbers, given: Numbers) -> None:
    if not layers:
        article = "a" if kind == "layer" else "an"
        raise StepError(f"No layer of this model has {article} {kind} of its own.", "Replace whole layers.")
    if not np.isfinite(given - own).all() or np.abs(given - own).min() < _SMALLEST:
        raise StepError(
            f"Both paths have the same difference of these two logits ({own[0]:.2f} and {given[0]:.2f}).",
            "Choose two tokens: one that this path prefers, and one that the source prefers.",
        )


# ---- a set of pairs of texts, and the means over them ------------------------------------------

LIKELY = 5
"""Number of most probable tokens after each text from which two are chosen if no answers are given."""
PLACES: tuple[PatchPlace, ...] = get_args(PatchPlace)


def patch_pairs(session: Session, command: PatchPairs, stopped: Stopped = never) -> Iterator[Record]:
    """Patch each pair of texts in a separate session, and take the mean share of each layer at each class of positions;
    a pair that can't be patched is left out, with the reason.

    Raises:
        StepError: There are no pairs, or too many; or no pair could be patched.
        Cancelled: `stopped` returned True.
    """
    pairs = command.pairs
    if not 1 <= len(pairs) <= MOST_PAIRS:
        raise StepError(f"{len(pairs):,} pairs were given.", f"Give 1 to {MOST_PAIRS}.")
    begun = time.perf_counter()
    reports: list[PairPatched] = []
    found: list[ActivationsPatched] = []
    for place, pair in enumerate(pairs):
        yield (now := Measuring(command.kind, place, len(pairs), f"pair {place + 1}"))
        try:
            patched, report = yield from _patch_pair(session.loaded, pair, command.part, stopped, now)
            found.append(patched)
            reports.append(report)
        except Cancelled:
            raise
        except EngineError as error:
            reports.append(PairPatched(pair, "", "", 0.0, 0.0, 0, 0, str(error)))
    if not found:
        raise StepError(f"No pair could be patched. The first: {reports[0].failure}", "Give other texts.")
    layers = found[0].layers
    means = (_means(place, layers, found) for place in PLACES)
    ms = (time.perf_counter() - begun) * 1000
    facts = replace(view.combined_facts([each.facts for each in found]), ms=ms, note="")
    yield PairsPatched(
        command.part, tuple(reports), layers, tuple(each for each in means if each.pairs), facts
    )


def _patch_pair(
    loaded: Loaded, pair: PatchPair, part: PatchKind, stopped: Stopped, now: Measuring
) -> Generator[Measuring, None, tuple[ActivationsPatched, PairPatched]]:
    """Patch one pair; `now` is the progress up to it."""
    session = Session(loaded, Settings())
    node, own, tokens = _read(session, pair.text, stopped)
    source, given, source_tokens = _read(session, pair.source, stopped)
    if bool(pair.token) != bool(pair.other):
        raise PromptError("Only one of the two answers was given.", "Give both, or none.")
    if pair.token:
        token, other = (_single(session, text) for text in (pair.token, pair.other))
    else:  # of the likeliest tokens, those that the source raises most and lowers most
        likely = {int(id) for row in (own, given) for id in row.argsort()[-LIKELY:]}
        gains = {id: float(given[id]) - float(own[id]) for id in sorted(likely)}
        token, other = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
    for last in patch_activations(session, PatchActivations(node, source, token, other, part), stopped):
        if isinstance(last, Measuring):
            yield replace(now, detail=f"{now.detail}, {last.detail}")
    assert isinstance(last, ActivationsPatched)
    answers, differences = (last.text, last.other_text), (last.difference, last.source_difference)
    return last, PairPatched(pair, *answers, *differences, tokens, source_tokens)


def _read(session: Session, text: str, stopped: Stopped) -> tuple[int, Row, int]:
    """The node of a text's last token, the log-probabilities after it, and the number of tokens."""
    ids = session.tokens.encode(text)
    if not 1 <= len(ids) <= PAIR_TOKENS:
        raise PromptError(f"A text has {len(ids):,} tokens.", f"Give one of 1 to {PAIR_TOKENS}.")
    for _ in session.prefill(text, ids, echo=False, stopped=stopped):
        pass
    return session.node, checked_logprobs(session.logits), len(ids)


def _single(session: Session, text: str) -> int:
    """The id of a text that is one token."""
    ids = session.tokens.encode(text, bare=True)
    if len(ids) != 1:
        raise PromptError(
            f"{text!r} is {len(ids)} tokens, not one.", "Give an answer that is a single token."
        )
    return ids[0]


def places_of(patched: ActivationsPatched) -> dict[PatchPlace, list[int]]:
    """The columns of each class of positions; those before the first difference belong to no class."""
    columns = [at for at, column in enumerate(patched.columns) if column.position >= patched.first]
    last = columns[-1:]
    changed = [at for at in columns[:-1] if patched.columns[at].id != patched.columns[at].source_id]
    same = [at for at in columns[:-1] if at not in changed]
    return {"changed": changed[:-1], "last changed": changed[-1:], "after": same, "last": last}


def _means(place: PatchPlace, layers: Sequence[int], found: Sequence[ActivationsPatched]) -> PlaceShares:
    """The means of one class over all pairs that have such a position."""
    shares = [
        [fmean(each.shares.row(row)[at] for at in columns) for row in range(len(layers))]
        for each in found
        if (columns := places_of(each)[place])
    ]
    by_layer = list(zip(*shares, strict=True))
    spreads = tuple(stdev(each) if len(each) > 1 else 0.0 for each in by_layer)
    return PlaceShares(place, len(shares), tuple(map(fmean, by_layer)), spreads)

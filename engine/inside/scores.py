"""Scores q·k of one head at one token, divided among the writers of the query and of the keys.

What each writer wrote goes through the layer's own code as a row of a batch, up to the attention, with the norms held
at the scale of the real stream (those of queries and keys too) and each token at its position. Queries and keys are
then linear in the writers. If a part of a score is not q·k (MLA adds its rotary part as a mask, gemma2 softcaps its
scores), one side is the real stream and the other the writers: a score is linear in each side, but there are no pairs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.inside.attention import OF_PATH, check_attention, forward_piece, path_sizer, pieces_of
from engine.inside.lens import LayerWriter, for_rows, held_norms, split_layer
from engine.inside.taps import AttentionRun, LayerRun, Taps, token_axis, with_stream
from engine.inside.view import Capture, capture, check_layer, layer_check, layer_notes, packed, refusal
from engine.model.forward import FIXED_CHUNK
from engine.model.layers import Patch, decoder_layers, kept
from engine.protocol import (
    MOST_KEYS,
    Check,
    CheckName,
    Measuring,
    ReadScore,
    Record,
    ScoreRead,
    ScoreWriter,
    WriterKind,
)
from engine.session.session import Session
from engine.task import Stopped, never, poll

Numbers = npt.NDArray[np.float64]

KEYS, LEAST_KEYS, NEAR = 128, 16, 8
"""Largest number of keys shown; the number shown even if their streams take more than `STREAM_BYTES`; and the number of
last keys, which are shown whatever their weights."""
STREAM_BYTES = 512 * 2**20
"""Largest size in bytes of the shown tokens' streams and parts, in all layers before the head's."""
WRITERS = 512
"""Largest number of writers: beyond it, heads are folded into their attention, in early layers first."""
ROW_BYTES = 64 * 2**20
"""Largest size in bytes of the streams of one batch through the layer, and of the heads of one attention."""
BARRED = 1e9
"""Larger than any score: only a mask that hides a key adds so much."""
PAIRS, MOST_PAIRS = 6, 256
"""Largest number of pairs shown for each key, and in total."""

_refused = partial(
    refusal,
    "A score of the architecture {} can't be taken apart",
    "Choose a head of another layer, or look at where the heads look.",
)


def read_score(session: Session, command: ReadScore, stopped: Stopped = never) -> Iterator[Record]:
    """Divide the scores of one head at one token among the writers of the stream before its layer.

    Raises:
        StepError: There is no such node, layer, head or key; the head's queries and keys can't be computed from other
            streams than the model's own.
        Cancelled: `stopped` returned True.
    """
    node = command.node
    captured = capture(session, node, attention=True, stopped=stopped)
    run, head = _choose_head(session, captured, command)
    seen = _seen(run, head)
    if len(command.keys) > MOST_KEYS:
        raise StepError(f"{len(command.keys)} keys are named, {MOST_KEYS} at most can be.", "Name fewer.")
    if (unseen := next((key for key in command.keys if key not in seen), None)) is not None:
        raise StepError(
            f"The head doesn't see token {unseen + 1} of the path, counted from 1.",
            "Choose one that it has a weight on.",
        )
    if len(seen) < 2:
        raise StepError(
            "The head sees only one token: there is nothing to compare.", "Look at a later token."
        )
    keys, query = _shown_keys(session, seen, command.keys), captured.depth - 1
    places = sorted({*keys, query})
    chunks: list[Taps] = []
    yield from _store_streams(session, node, places, chunks, stopped)
    _check_layers(session, chunks, run.layer)
    layer = _ScoringLayer(session, chunks, run.layer, head, places)
    shares, notes = _Shares(session, layer), Notes(list)
    for number, (writers, streams) in enumerate(_writers(session, chunks, run.layer, captured.bound, notes)):
        yield Measuring(command.kind, number, run.layer + 1, "layers before the head's")
        shares.add(writers, streams, stopped)
    if not shares.streams_error <= captured.again:
        why = f"what was written before layer {run.layer + 1} does not sum to what it is given"
        raise _refused(session, why)
    shown = [each for each in keys if each != query or layer.pairs]
    real, by_key, by_query, pairs, pair_scores = shares.scores([places.index(each) for each in shown])
    weights = np.array([seen[each] for each in shown])
    sentences = layer_notes(*((notes[text], text) for text in (UNSPLIT, FUSED, FOLDED)))
    checks: dict[CheckName, Check] = {}
    check_attention(checks, run, captured.bound)
    yield ScoreRead(
        node, run.layer, head, captured.depth, len(seen), tuple(shown), packed(real), packed(weights),
        tuple(shares.writers), packed(by_key), packed(by_query), pairs, packed(pair_scores),
        session.facts.layers, layer.cap is not None, sentences if layer.pairs else (*sentences, NO_PAIRS),
        captured.facts(*checks.values(), *_checks(captured, run, real, (by_key, by_query), weights, layer.cap)),
    )  # fmt: skip


# ---- the head, and the keys that are shown -------------------------------------------------------


def _choose_head(session: Session, captured: Capture, command: ReadScore) -> tuple[AttentionRun, int]:
    """The first attention of the head's layer, and the head; if the command leaves them open, the most focused head."""
    layer, head = command.layer, command.head
    if layer is not None:
        check_layer(session.runner.model, layer)
    if not captured.taps[-1].layers:
        raise _refused(session, "it runs the parts of its layers itself")
    first: dict[int, AttentionRun] = {}
    for run in captured.taps[-1].attended:
        first.setdefault(run.layer, run)
    wanted = [run for run in first.values() if layer in (None, run.layer)]
    where = "any layer" if layer is None else f"layer {layer + 1}"
    if not wanted:
        raise _refused(session, f"{where} has no attention over keys")
    known = [run for run in wanted if run.weights.ndim == 3 and run.positions is not None]
    if not known:
        raise _refused(session, f"which tokens the keys of {where} belong to isn't known")
    heads = [(run, each) for run in known for each in range(run.weights.shape[0]) if head in (None, each)]
    if not heads:
        most = max(run.weights.shape[0] for run in known)
        of = "Its layers have" if layer is None else f"L{layer + 1} has"
        raise StepError(f"{of} {most} heads: there is no h{(head or 0) + 1}.", f"Choose h1 to h{most}.")

    def focus(each: tuple[AttentionRun, int]) -> float:
        """The head's largest weight on a token that is neither the first nor one of the last two; heads of the first
        layer come last, as only the embedding is written before it."""
        weights = (weight for place, weight in _seen(*each).items() if 0 < place < captured.depth - 2)
        return max(weights, default=0.0) - (each[0].layer == 0)

    return heads[0] if len(heads) == 1 else max(heads, key=focus)


def _seen(run: AttentionRun, head: int) -> dict[int, float]:
    """The head's weights, by the positions of the keys that it sees."""
    weights = np.array(run.weights[head, -1]).astype(np.float64).tolist()
    return {place: weight for place, weight in zip(run.positions or (), weights, strict=True) if weight > 0}


def _shown_keys(session: Session, seen: dict[int, float], wanted: Sequence[int]) -> list[int]:
    """The positions of the first key, the last ones, the wanted ones, and the heaviest of the others."""
    # eight arrays per layer, with 4 bytes per number
    model = session.facts.layers * (session.facts.hidden_size or 1) * 32
    most = max(LEAST_KEYS, min(KEYS, STREAM_BYTES // max(1, model)))
    places = sorted(seen)
    always = {*places[:1], *places[-NEAR:], *wanted}
    others = sorted((place for place in places if place not in always), key=lambda place: -seen[place])
    return sorted([*always, *others[: max(0, most - len(always))]])


# ---- the path, run again under taps --------------------------------------------------------------


def _store_streams(
    session: Session, node: int, places: Sequence[int], chunks: list[Taps], stopped: Stopped
) -> Iterator[Measuring]:
    """Run the path on a new cache and store the streams at some places, in a `Taps` for each chunk that has any."""
    ids, runner, done = session.tree.tokens(node), session.runner.fresh(), 0
    sizer, _ = path_sizer(session, FIXED_CHUNK)
    for piece in pieces_of(session, ids, session.tree.chunks(node), sizer, FIXED_CHUNK):
        poll(stopped)
        yield Measuring(ReadScore.kind, done, len(ids), OF_PATH)
        begun, end = time.perf_counter(), done + len(piece)
        own = [place - done for place in places if done <= place < end]
        some = bool(own)
        taps = Taps(
            session.runner.model, runner.kv.caches, attention=False, parts=some, keep=some, places=own
        )
        with taps.set():
            forward_piece(runner, piece, end == len(ids))
        if own:
            chunks.append(taps)
        sizer.learn(len(piece), (time.perf_counter() - begun) * 1000)
        done = end
        mx.clear_cache()


def _check_layers(session: Session, chunks: Sequence[Taps], layer: int) -> None:
    """Refuse a model that does not pass a single stream through its layers once, one after another."""
    for taps in chunks:
        calls = Counter((part.layer, part.name) for part in taps.written)
        if not taps.layers.keys() >= set(range(layer + 1)) or min(calls.values(), default=1) > 1:
            raise _refused(session, "it does not go through its layers once, one after another")
        shapes = (taps.layers[index].given.shape for index in range(layer + 1))
        if any(len(shape) != 3 or shape[:2] != (1, len(taps.places or ())) for shape in shapes):
            raise _refused(session, "its layers hand on several streams")


# ---- the writers before the layer ----------------------------------------------------------------


UNSPLIT = ": attention and MLP can't be told apart here, a layer is one writer."
FUSED = ": the heads can't be told apart here, the attention is one writer."
FOLDED = ": the heads are folded into their attention: they would be too many writers."
NO_PAIRS = (
    "A part of these scores is not a product q·k: pairs, and the token's own key, can't be told apart here."
)
Notes = defaultdict[str, list[int]]
"""Indices of the layers that were not split completely, by the sentence about them."""


def _writers(
    session: Session, chunks: Sequence[Taps], layer: int, bound: float, notes: Notes
) -> Iterator[tuple[list[ScoreWriter], mx.array]]:
    """The writers before a layer and their streams, float32, shape (writers, places, size): a layer at a time."""
    layers = decoder_layers(session.runner.model)
    first = [taps.layers[0].given.astype(mx.float32) for taps in chunks]
    yield [ScoreWriter("embedding", None, "")], mx.concatenate(first, axis=1)
    by_head = _layers_by_head(chunks, layer, notes)
    for index in range(layer):
        runs = [taps.layers[index] for taps in chunks]
        parts = [[part for part in taps.written if part.layer == index] for taps in chunks]
        splits = [
            split_layer(layers[index], run, written, bound, index in by_head)
            for run, written in zip(runs, parts, strict=True)
        ]
        known = [split for split in splits if split is not None]
        names = {tuple((writer.kind, writer.name) for writer in split) for split in known}
        if len(known) < len(splits) or len(names) > 1:
            notes[UNSPLIT].append(index)
            adds = [run.state.astype(mx.float32) - run.given.astype(mx.float32) for run in runs]
            yield [ScoreWriter("layer", index, "")], mx.concatenate(adds, axis=1)
        else:
            yield _of_layer(index, known, runs, notes if index in by_head else Notes(list))


def _layers_by_head(chunks: Sequence[Taps], layer: int, notes: Notes) -> set[int]:
    """The layers whose heads are writers: the last ones, as many as there is room for."""
    room, found = WRITERS, set()
    heads: Counter[int] = Counter()
    for part in chunks[-1].written:
        heads[part.layer] += sum(run.output.shape[1] for run in part.attention if run.output is not None)
    tokens, size = sum(len(taps.places or ()) for taps in chunks), chunks[0].layers[0].given.shape[-1]
    for index in reversed(range(layer)):
        room -= heads[index] + 3
        if room >= 2 * index and 4 * heads[index] * tokens * size <= ROW_BYTES:
            found.add(index)
        else:
            room += heads[index]
            notes[FOLDED].append(index)
    return found


MAYBE_EMPTY: tuple[WriterKind, ...] = ("residual", "other")
"""Kinds of writers that are left out if they wrote nothing."""


def _of_layer(
    index: int, splits: Sequence[list[LayerWriter]], runs: Sequence[LayerRun], notes: Notes
) -> tuple[list[ScoreWriter], mx.array]:
    """The writers of a layer, and their streams, joined over the chunks."""
    writers: list[ScoreWriter] = []
    streams: list[mx.array] = []

    def add(kind: WriterKind, name: str, pieces: Sequence[mx.array], head: int | None = None) -> None:
        shaped = [piece.reshape(-1, *run.given.shape[1:]) for piece, run in zip(pieces, runs, strict=True)]
        joined = mx.concatenate(shaped, axis=1)
        if kind in MAYBE_EMPTY and not np.array(joined).any():
            return
        count = joined.shape[0]
        heads = [head] if count == 1 else range(count)
        writers.extend(ScoreWriter(kind, index, name, each) for each in heads)
        streams.append(joined)

    for parts in zip(*splits, strict=True):
        kind, name = parts[0].kind, parts[0].name
        heads = [part.heads for part in parts if part.heads is not None]
        rests = [part.rest for part in parts if part.rest is not None]
        if len(heads) == len(rests) == len(parts) and len({each.shape[0] for each in heads}) == 1:
            add(kind, name, heads, 0)
            add("other", f"{name} without its heads", rests)
        else:
            if kind == "attention":
                notes[FUSED].append(index)
            add(kind, name, [part.adds for part in parts])
    return writers, mx.concatenate(streams)


# ---- from streams to scores, by the layer's own code ---------------------------------------------


class _AttentionReached(Exception):
    """Raised to leave a layer at its attention."""


class _AttentionCall(NamedTuple):
    """Queries, keys, scale and mask of an attention; or scores that the model computed itself."""

    queries: Any = None
    keys: Any = None
    scale: float = 1.0
    mask: Any = None
    scores: Any = None


class _ScoringLayer:
    """Runs a layer on other streams, up to its attention.

    Args:
        session: Session of the model.
        chunks: Taps of the path's chunks.
        layer: Index of the layer.
        head: Index of the head.
        places: Positions of the tokens with stored streams; the last one is the query's.
    """

    def __init__(
        self, session: Session, chunks: Sequence[Taps], layer: int, head: int, places: Sequence[int]
    ) -> None:
        self._session, self._layer = session, decoder_layers(session.runner.model)[layer]
        runs = [taps.layers[layer] for taps in chunks]
        counts = [len(taps.places or ()) for taps in chunks]
        args, kwargs = [run.args for run in runs], [run.kwargs for run in runs]
        self._run = LayerRun(_joined(args, counts), _joined(kwargs, counts), None)
        self._head, self._places = head, list(places)
        self.cap: float | None = None
        """Bound of the softcap of the scores; None without one."""
        self.given = mx.concatenate([run.given for run in runs], axis=1).astype(mx.float32)
        call = self._call(mx.concatenate([self.given, mx.zeros_like(self.given)]))
        added = isinstance(call.mask, mx.array) and call.mask.dtype != mx.bool_
        self.pairs = call.queries is not None and not added
        """True if the scores are q·k and nothing else."""

    def queries_and_keys(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """The head's query and keys for some streams, shapes (rows, size) and (rows, places, size).

        Args:
            rows: Shape (rows, places, size); the first row is the real stream.
        """
        call = self._call(rows)
        group = call.queries.shape[1] // call.keys.shape[1]
        query = call.queries[:, self._head, -1].astype(mx.float32) * call.scale
        return _wide(query), _wide(call.keys[:, self._head // group].astype(mx.float32))

    def scores(self, rows: mx.array) -> Numbers:
        """The head's scores at the last place for some streams, before a softcap; shape (rows, places)."""
        call = self._call(rows)
        if call.scores is not None:
            shape = call.scores.shape
            each = call.scores.reshape(shape[0], -1, *shape[-2:])[:, self._head, -1]
            return _wide(each.astype(mx.float32))
        group = call.queries.shape[1] // call.keys.shape[1]
        query = call.queries[:, self._head, -1:].astype(mx.float32)
        score = call.scale * (query * call.keys[:, self._head // group].astype(mx.float32)).sum(axis=-1)
        if (mask := call.mask) is not None:
            score = score + mask[:, self._head if mask.shape[1] > 1 else 0, -1].astype(mx.float32)
        found = _wide(score)
        if np.abs(found).max() > BARRED:
            raise _refused(self._session, "it chooses its keys separately for each stream")
        return found

    def _call(self, rows: mx.array) -> _AttentionCall:
        """The arguments of the attention for some streams.

        Raises:
            StepError: The layer can't be run on them, or does not compute queries and keys from them.
        """
        count, calls, bent = rows.shape[0], [], []

        def fused(
            q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: Any = None, **_: Any
        ) -> mx.array:
            calls.append(_AttentionCall(q, k, scale, mask))
            raise _AttentionReached

        def softmax(x: mx.array, *_: Any, **__: Any) -> mx.array:
            calls.append(_AttentionCall(scores=x))
            raise _AttentionReached

        def tanh(x: mx.array) -> mx.array:
            bent.append(x)
            return kept(x)  # a copy, which the model may change in place

        args, kwargs = with_stream(self._run, rows)
        first = 0 if args else next(iter(kwargs))
        args = tuple(each if at == first else for_rows(each, count) for at, each in enumerate(args))
        kwargs = {name: each if name == first else for_rows(each, count) for name, each in kwargs.items()}
        patches: list[Patch] = [
            (mx.fast, "scaled_dot_product_attention", fused), (mx, "softmax", softmax), (mx, "tanh", tanh),
            *([(mx.fast, "rope", _rope_at(self._places))] if self._places != list(range(len(self._places))) else []),
        ]  # fmt: skip
        try:
            with held_norms(count, *patches):
                self._layer(*args, **kwargs)
        except _AttentionReached:
            pass
        except Exception as error:  # a family's own code, given other rows and no cache, may fail in any way
            raise _refused(self._session, "its layer can't be run on other streams") from error
        if not calls:
            raise _refused(self._session, "its layer computes no attention that can be read")
        call: _AttentionCall = calls[0]
        shape = count, len(self._places)
        arrays = [call.scores] if call.scores is not None else [call.queries, call.keys]
        if any(each is None or (each.shape[0], each.shape[-2]) != shape for each in arrays):
            raise _refused(self._session, "its keys are another layer's, or a choice of them")
        if call.scores is not None and bent:
            x = bent[-1].astype(mx.float32)
            self.cap = float(np.array((call.scores.astype(mx.float32) * x).sum() / mx.square(x).sum()))
        return call


def _wide(array: mx.array) -> Numbers:
    """An MLX array in host memory, float64."""
    return np.array(array).astype(np.float64)


def _joined(values: Sequence[Any], counts: Sequence[int]) -> Any:
    """One argument of a layer for all chunks: hidden states are concatenated, and a mask becomes None, since all stored
    keys are seen."""
    last = values[-1]
    if type(last) in (tuple, list):
        return type(last)(_joined(each, counts) for each in zip(*values, strict=False))
    if type(last) is dict:
        return {name: _joined([value[name] for value in values if name in value], counts) for name in last}
    if isinstance(last, str):
        return None
    if not isinstance(last, mx.array):
        return last
    axis = token_axis(last, counts[-1])
    if axis is not None and last.ndim < 4 and last.dtype != mx.bool_ and len(values) == len(counts):
        return mx.concatenate(list(values), axis=axis)
    return None if last.dtype == mx.bool_ or last.ndim in (2, 4) else last


def _rope_at(places: Sequence[int]) -> Any:
    """`mx.fast.rope` for tokens at these positions; the layer's offset is ignored."""
    original = mx.fast.rope

    def rope(x: mx.array, *args: Any, offset: Any = 0, **kwargs: Any) -> mx.array:
        by_place = mx.moveaxis(x, -2, 0)
        flat = by_place.reshape(len(places), -1, 1, x.shape[-1])
        rotated = original(flat, *args, offset=mx.array(list(places)), **kwargs)
        return mx.moveaxis(rotated.reshape(by_place.shape), 0, -2)

    return rope


# ---- shares of the writers -----------------------------------------------------------------------


Pairs = tuple[tuple[int, int], ...]
"""Indices of a writer of the query and a writer of the key."""


class _Shares:
    """The head's queries and keys, or scores, of each writer; the writers' streams may be large, and aren't stored."""

    def __init__(self, session: Session, layer: _ScoringLayer) -> None:
        self._layer = layer
        self.writers: list[ScoreWriter] = []
        self._rows: list[tuple[Numbers, Numbers]] = []
        """Queries and keys of each batch; without pairs the scores with a writer's keys, and with its query."""
        self._none: tuple[Numbers, ...] = ()
        """The same for a stream of zeros, without an axis of writers."""
        self._real: tuple[Numbers, ...] = ()
        """The same for the real stream."""
        self._sum = mx.zeros_like(layer.given)
        tokens, size = layer.given.shape[1:]
        wide = max(size, tokens * (session.facts.heads or 1) if not layer.pairs else 0)
        self._batch = max(1, ROW_BYTES // (4 * tokens * wide))

    def add(self, writers: Sequence[ScoreWriter], streams: mx.array, stopped: Stopped) -> None:
        """Add some writers.

        Args:
            writers: The writers.
            streams: Their streams, float32, shape (writers, places, size).
            stopped: Polled before each batch.
        """
        self.writers += writers
        self._sum = self._sum + streams.sum(axis=0, keepdims=True)
        mx.eval(self._sum)
        for first in range(0, len(writers), self._batch):
            poll(stopped)
            batch = mx.concatenate([mx.zeros_like(self._layer.given), streams[first : first + self._batch]])
            one, other = self._of(batch)
            self._real, self._none = (one[0], other[0]), (one[1], other[1])
            self._rows.append((one[2:] - one[1], other[2:] - other[1]))
        mx.clear_cache()

    def _of(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """Queries and keys, or scores, of the real stream and of these rows."""
        given, layer = self._layer.given, self._layer
        if layer.pairs:
            return layer.queries_and_keys(mx.concatenate([given, rows]))
        here = (mx.arange(given.shape[1]) == given.shape[1] - 1)[None, :, None]
        keys, queries = mx.where(here, given, rows), mx.where(here, rows, given)
        return layer.scores(mx.concatenate([given, keys])), layer.scores(mx.concatenate([given, queries]))

    @property
    def streams_error(self) -> float:
        """Relative error of the sum of the writers' streams against the stream before the layer."""
        given = self._layer.given
        largest = mx.maximum(mx.abs(given).max(), 1e-9)
        return float(np.array(mx.abs(self._sum - given).max() / largest))

    def scores(self, places: list[int]) -> tuple[Numbers, Numbers, Numbers, Pairs, Numbers]:
        """The scores at some places, and the shares of all writers in them; the last writer is the constant.

        Returns:
            The scores, shape (places,); the writers' shares with their keys and with their queries, shape (writers,
            places); the pairs, and their scores, shape (pairs, places).
        """
        self.writers.append(ScoreWriter("constant", None, ""))
        one, other = (
            np.concatenate([*(rows[side] for rows in self._rows), self._none[side][None]]) for side in (0, 1)
        )
        other = other[:, places]
        if not self._layer.pairs:
            real = self._real[0][places]
            return real, one[:, places], other, (), np.zeros((0, len(places)))
        query, key = self._real[0], self._real[1][places]
        return key @ query, other @ query, one @ key.T, *_pairs(one, other)


def _pairs(queries: Numbers, keys: Numbers) -> tuple[Pairs, Numbers]:
    """The pairs with the largest scores at any key, relative to their mean over the keys; and their scores.

    Args:
        queries: Query of each writer, shape (writers, size).
        keys: Keys of each writer, shape (writers, keys, size).
    """
    centred = keys - keys.mean(axis=1, keepdims=True)
    largest: dict[tuple[int, int], float] = {}
    for key in range(keys.shape[1]):
        scores = np.abs(queries @ centred[:, key].T)
        for flat in np.argsort(scores, axis=None)[-PAIRS:].tolist():
            pair = divmod(flat, len(keys))
            largest[pair] = max(largest.get(pair, 0.0), float(scores[pair]))
    pairs = sorted(largest, key=lambda pair: -largest[pair])[:MOST_PAIRS]
    of_query, of_key = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    scores = np.einsum("pd,pkd->pk", queries[of_query], keys[of_key])
    return tuple(pairs), scores


def _checks(
    captured: Capture,
    run: AttentionRun,
    real: Numbers,
    parts: tuple[Numbers, Numbers],
    weights: Numbers,
    cap: float | None,
) -> tuple[Check, Check]:
    """The checks that the parts sum to the scores, and that these sums give the head's weights.

    Only the weights of the shown keys are compared; those of other keys and of a sink are taken as they are.
    """
    by_key = parts[0].sum(axis=0)
    largest = np.abs(np.stack([by_key, parts[1].sum(axis=0)]) - real).max()
    wrong = float(largest) / max(float(np.abs(real).max()), 1e-9)
    bent = by_key if cap is None else cap * np.tanh(by_key / cap)
    shares = np.exp(bent - bent.max())
    made = shares * weights.sum() / shares.sum()
    return (
        layer_check("scores", wrong, captured.again, run.layer),
        layer_check(
            "weights", float(np.abs(made - weights).max()), max(captured.again, run.rounding), run.layer
        ),
    )

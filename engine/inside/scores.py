"""Why a head looks there: one head's scores q·k from one token, divided among what wrote the query and the keys.

What each writer wrote goes through the layer's own code as a row of a batch, up to the attention, with the norms held
at the scale of the real stream (those of queries and keys too) and each token at its position. Queries and keys are
then linear in the writers. Where a part of a score is not q·k (MLA adds its rotary part as a mask, gemma2 bends its
scores), one side has the real stream and the other the writers: a score is linear in each side, but tells no pairs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from engine.errors import Cancelled, StepError
from engine.inside.attention import Pieces, attention_checks
from engine.inside.capture import Capture, capture
from engine.inside.split import LayerSplit, for_rows, held_norms, split_layer, with_given
from engine.inside.taps import AttentionRun, LayerRun, Taps, token_axis
from engine.model.forward import FIXED_CHUNK
from engine.model.layers import Patch, decoder_layers, kept, layers_in_words
from engine.protocol import (
    MOST_KEYS,
    Check,
    CheckName,
    Floats,
    Measuring,
    ReadScore,
    ScoreRead,
    ScoreWriter,
    WriterKind,
)
from engine.session.session import Session
from engine.task import Stopped, never

Numbers = npt.NDArray[np.float64]

KEYS, LEAST_KEYS, NEAR = 128, 16, 8
"""Keys that are kept at most; of a model so large that their streams would take more than `STREAM_BYTES`; and how many
of them are the last ones, whatever their weights."""
STREAM_BYTES = 512 * 2**20
"""For the streams and parts of the kept tokens in all layers before the head's."""
WRITERS = 512
"""Beyond that, heads are folded into their attention, those of early layers first."""
ROW_BYTES = 64 * 2**20
"""For the streams of one batch through the layer, and for the heads of one attention."""
BARRED = 1e9
"""Beyond any score: what a mask adds that hides a key."""
PAIRS, MOST_PAIRS = 6, 256
"""Pairs that are kept for each key, and of all."""


def read_score(
    session: Session,
    node: int,
    layer: int | None = None,
    head: int | None = None,
    keys: Sequence[int] = (),
    stopped: Stopped = never,
) -> Iterator[Measuring | ScoreRead]:
    """Divide the scores of one head from one token among what wrote to the stream before its layer.

    Args:
        session: Has read a prompt; not changed.
        node: The token that looks.
        layer: From 0; None for that of the head that looks most at one token, neither the first nor the last two.
        head: From 0; None for the one that does so.
        keys: Places in the path that are kept whatever their weights, from 0.
        stopped: Polled before each chunk, forward, layer and batch.

    Yields:
        The progress, then the scores.

    Raises:
        StepError: There is no such node, layer, head or key; the head's queries and keys can't be computed from other
            streams than the model's own.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    taken = capture(session, node, attention=True, stopped=stopped)
    run, head = _attention(session, taken, layer, head)
    layer = run.layer
    seen = _seen(run, head)
    if len(keys) > MOST_KEYS:
        raise StepError(f"{len(keys)} keys are named, {MOST_KEYS} at most can be.", "Name fewer.")
    if (unseen := next((key for key in keys if key not in seen), None)) is not None:
        raise StepError(
            f"The head doesn't see token {unseen + 1} of the path, counted from 1.",
            "Choose one that it has a weight on.",
        )
    kept_keys, query = _kept(session, seen, keys), taken.depth - 1
    if len(seen) < 2:
        raise StepError(
            "The head sees only one token: there is nothing to compare.", "Look at a later token."
        )
    places = sorted({*kept_keys, query})
    chunks: list[Taps] = []
    yield from _run_path(session, node, places, chunks, stopped)
    _check_layers(session, chunks, layer)
    shares, notes = _Shares(session, _Look(session, chunks, layer, head, places)), _Notes()
    for number, (writers, streams) in enumerate(_writers(session, chunks, layer, taken.bound, notes)):
        yield Measuring(ReadScore.kind, number, layer + 1, "layers before the head's")
        shares.take(writers, streams, stopped)
    if not shares.streams_error <= taken.again:
        raise _refused(session, f"what was written before layer {layer + 1} does not sum to what it is given")
    shown = [each for each in kept_keys if each != query or shares.look.pairs]
    found = shares.found([places.index(each) for each in shown])
    weights = np.array([seen[each] for each in shown])
    checks = _checks(taken, run, found, weights)
    yield ScoreRead(
        node, layer, head, taken.depth, len(seen), tuple(shown), _packed(found.real), _packed(weights),
        tuple(shares.writers), _packed(found.by_key), _packed(found.by_query), found.pairs,
        _packed(found.pair_scores), session.facts.layers, shares.look.cap is not None, notes.said(shares.look),
        taken.facts(begun, session, *attention_checks(taken, [run]), *checks),
    )  # fmt: skip


def _packed(numbers: npt.NDArray[Any]) -> Floats:
    return Floats(numbers.shape, numbers.astype("<f4").tobytes())


def _refused(session: Session, why: str) -> StepError:
    return StepError(
        f"A score of the architecture {session.facts.family} can't be taken apart: {why}.",
        "Choose a head of another layer, or look at where the heads look.",
    )


# ---- what the head sees, and which of it is kept -------------------------------------------------


def _attention(
    session: Session, taken: Capture, layer: int | None, head: int | None
) -> tuple[AttentionRun, int]:
    """The attention of a head, of a layer that has several the first; and the head."""
    depth = len(decoder_layers(session.runner.model))
    if layer is not None and not 0 <= layer < depth:
        raise StepError(
            f"There is no L{layer + 1}: this model has {depth} layers.", f"Choose L1 to L{depth}."
        )
    if not taken.taps[-1].layers:
        raise _refused(session, "it runs the parts of its layers itself")
    first: dict[int, AttentionRun] = {}
    for run in taken.taps[-1].attended:
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
    return heads[0] if len(heads) == 1 else max(heads, key=lambda each: _focus(each[0], each[1], taken.depth))


def _focus(run: AttentionRun, head: int, tokens: int) -> float:
    """The head's largest weight on a token that is neither the first nor one of the last two; the first layer, before
    which the embedding alone wrote, comes last."""
    weights = (weight for place, weight in _seen(run, head).items() if 0 < place < tokens - 2)
    return max(weights, default=0.0) - (run.layer == 0)


def _seen(run: AttentionRun, head: int) -> dict[int, float]:
    """The head's weights by the places of the keys that it sees."""
    weights = np.array(run.weights[head, -1]).astype(np.float64).tolist()
    return {place: weight for place, weight in zip(run.positions or (), weights, strict=True) if weight > 0}


def _kept(session: Session, seen: dict[int, float], wanted: Sequence[int]) -> list[int]:
    """The keys that are kept: the first, the last ones, and the heaviest of the others."""
    model = session.facts.layers * (session.facts.hidden_size or 1) * 32  # eight arrays a layer, of 4 bytes
    most = max(LEAST_KEYS, min(KEYS, STREAM_BYTES // max(1, model)))
    places = sorted(seen)
    always = {*places[:1], *places[-NEAR:], *wanted}
    others = sorted((place for place in places if place not in always), key=lambda place: -seen[place])
    return sorted([*always, *others[: max(0, most - len(always))]])


# ---- the path, run again under taps --------------------------------------------------------------


def _run_path(
    session: Session, node: int, places: Sequence[int], chunks: list[Taps], stopped: Stopped
) -> Iterator[Measuring]:
    """Run the path on a new cache and keep the streams at some places, a `Taps` for each chunk that has any."""
    ids = session.tree.tokens(node)
    runner, pieces = session.runner.fresh(), Pieces(session, len(ids), session.tree.chunks(node), FIXED_CHUNK)
    while (done := runner.kv.offset) < len(ids):
        if stopped():
            raise Cancelled
        yield Measuring(ReadScore.kind, done, len(ids), "tokens of the path")
        begun = time.perf_counter()
        end = pieces.end(done)
        own = [place - done for place in places if done <= place < end]
        taps = Taps(
            session.runner.model,
            runner.kv.caches,
            attention=False,
            parts=bool(own),
            keep=bool(own),
            places=own,
        )
        with taps.set():
            if end == len(ids):
                runner.forward_logits(ids[done:])
            else:
                runner.forward_chunk(ids[done:end])
        if own:
            chunks.append(taps)
        pieces.learn(end - done, (time.perf_counter() - begun) * 1000)
        mx.clear_cache()


def _check_layers(session: Session, chunks: Sequence[Taps], layer: int) -> None:
    """Refuse a model that does not hand one stream through its layers once, one after another."""
    for taps in chunks:
        calls = Counter((part.layer, part.name) for part in taps.written)
        if not taps.layers.keys() >= set(range(layer + 1)) or min(calls.values(), default=1) > 1:
            raise _refused(session, "it does not go through its layers once, one after another")
        shapes = (taps.layers[index].given.shape for index in range(layer + 1))
        if any(len(shape) != 3 or shape[:2] != (1, len(taps.places or ())) for shape in shapes):
            raise _refused(session, "its layers hand on several streams")


# ---- what wrote to the stream --------------------------------------------------------------------


class _Notes(Struct):
    """The layers of which something was not told apart."""

    whole: list[int] = field(default_factory=list)
    fused: list[int] = field(default_factory=list)
    folded: list[int] = field(default_factory=list)

    def said(self, look: _Look) -> tuple[str, ...]:
        """A sentence for each kind of thing."""
        said = (
            (self.whole, "attention and MLP can't be told apart here, a layer is one writer."),
            (self.fused, "the heads can't be told apart here, the attention is one writer."),
            (self.folded, "the heads are folded into their attention: they would be too many writers."),
        )
        notes = [f"{layers_in_words(layers)}: {text}" for layers, text in said if layers]
        if not look.pairs:
            notes.append(
                "A part of these scores is not a product q·k: pairs, and the token's own key, can't be told apart here."
            )
        return tuple(notes)


def _writers(
    session: Session, chunks: Sequence[Taps], layer: int, bound: float, notes: _Notes
) -> Iterator[tuple[list[ScoreWriter], mx.array]]:
    """The writers before a layer and their streams, float32, shape (writers, places, size): a layer at a time."""
    own = decoder_layers(session.runner.model)
    first = [taps.layers[0].given.astype(mx.float32) for taps in chunks]
    yield [ScoreWriter("embedding", None, "")], mx.concatenate(first, axis=1)
    told = _told(chunks, layer, notes)
    for index in range(layer):
        runs = [taps.layers[index] for taps in chunks]
        splits = [
            split_layer(
                own[index],
                run,
                [part for part in taps.written if part.layer == index],
                bound,
                index in told,
            )
            for run, taps in zip(runs, chunks, strict=True)
        ]
        known = [split for split in splits if split is not None]
        names = {tuple((writer.kind, writer.name) for writer in split.writers) for split in known}
        if len(known) < len(splits) or len(names) > 1:
            notes.whole.append(index)
            adds = [run.state.astype(mx.float32) - run.given.astype(mx.float32) for run in runs]
            yield [ScoreWriter("layer", index, "")], mx.concatenate(adds, axis=1)
        else:
            yield _of_layer(index, known, runs, notes if index in told else _Notes())


def _told(chunks: Sequence[Taps], layer: int, notes: _Notes) -> set[int]:
    """The layers whose heads are told apart: the last ones, as many as there is room for."""
    room, told = WRITERS, set()
    heads: Counter[int] = Counter()
    for part in chunks[-1].written:
        heads[part.layer] += sum(run.output.shape[1] for run in part.attention if run.output is not None)
    tokens, size = sum(len(taps.places or ()) for taps in chunks), chunks[0].layers[0].given.shape[-1]
    for index in reversed(range(layer)):
        room -= heads[index] + 3
        if room >= 2 * index and 4 * heads[index] * tokens * size <= ROW_BYTES:
            told.add(index)
        else:
            room += heads[index]
            notes.folded.append(index)
    return told


MAYBE_EMPTY: tuple[WriterKind, ...] = ("residual", "other")
"""Writers that are left out where they wrote nothing."""


def _of_layer(
    index: int, splits: Sequence[LayerSplit], runs: Sequence[LayerRun], notes: _Notes
) -> tuple[list[ScoreWriter], mx.array]:
    """The writers of a layer, their streams in each chunk put together."""
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

    add("residual", "", [split.residual for split in splits])
    for parts in zip(*(split.writers for split in splits), strict=True):
        kind, name = parts[0].kind, parts[0].name
        heads = [part.heads for part in parts if part.heads is not None]
        rests = [part.rest for part in parts if part.rest is not None]
        if len(heads) == len(rests) == len(parts) and len({each.shape[0] for each in heads}) == 1:
            add(kind, name, heads, 0)
            add("other", f"{name} without its heads", rests)
        else:
            if kind == "attention":
                notes.fused.append(index)
            add(kind, name, [part.adds for part in parts])
    return writers, mx.concatenate(streams)


# ---- the layer's own way from a stream to its scores ---------------------------------------------


class _Stop(Exception):
    """The layer got as far as its attention."""


class _Caught(NamedTuple):
    """What an attention was given: queries, keys, scale and mask; or scores that the model computed itself."""

    queries: mx.array | None = None
    keys: mx.array | None = None
    scale: float = 1.0
    mask: Any = None
    scores: mx.array | None = None


class _Look:
    """Runs a layer on other streams, up to its attention.

    Args:
        session: Has the model.
        chunks: Of the path, under taps.
        layer: The layer.
        head: One of its heads.
        places: Of the tokens that are kept, the last one looks.
    """

    def __init__(
        self, session: Session, chunks: Sequence[Taps], layer: int, head: int, places: Sequence[int]
    ) -> None:
        self._session, self._layer = session, decoder_layers(session.runner.model)[layer]
        runs = [taps.layers[layer] for taps in chunks]
        counts = [len(taps.places or ()) for taps in chunks]
        self._run = LayerRun(
            _joined([run.args for run in runs], counts), _joined([run.kwargs for run in runs], counts), None
        )
        self._head, self._places = head, list(places)
        self.cap: float | None = None
        """The bound of a softcap."""
        self.given = mx.concatenate([run.given for run in runs], axis=1).astype(mx.float32)
        caught = self._caught(mx.concatenate([self.given, mx.zeros_like(self.given)]))
        added = isinstance(caught.mask, mx.array) and caught.mask.dtype != mx.bool_
        self.pairs = caught.queries is not None and not added
        """True if the scores are q·k and nothing else."""

    def queries_and_keys(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """The head's query and keys of some streams, shapes (rows, size) and (rows, places, size).

        Args:
            rows: Shape (rows, places, size); the first is the real one.
        """
        caught = self._caught(rows)
        assert caught.queries is not None
        assert caught.keys is not None
        group = caught.queries.shape[1] // caught.keys.shape[1]
        query = caught.queries[:, self._head, -1].astype(mx.float32) * caught.scale
        keys = caught.keys[:, self._head // group].astype(mx.float32)
        return np.array(query).astype(np.float64), np.array(keys).astype(np.float64)

    def scores(self, rows: mx.array) -> Numbers:
        """The head's scores of some streams from the last place, before a softcap; shape (rows, places)."""
        caught = self._caught(rows)
        if caught.scores is not None:
            shape = caught.scores.shape
            each = caught.scores.reshape(shape[0], -1, *shape[-2:])[:, self._head, -1]
            return np.array(each.astype(mx.float32)).astype(np.float64)
        assert caught.queries is not None
        assert caught.keys is not None
        group = caught.queries.shape[1] // caught.keys.shape[1]
        query = caught.queries[:, self._head, -1:].astype(mx.float32)
        score = caught.scale * (query * caught.keys[:, self._head // group].astype(mx.float32)).sum(axis=-1)
        if (mask := caught.mask) is not None:
            score = score + mask[:, self._head if mask.shape[1] > 1 else 0, -1].astype(mx.float32)
        found = np.array(score).astype(np.float64)
        if np.abs(found).max() > BARRED:
            raise _refused(self._session, "it chooses its keys anew for each stream")
        return found

    def _caught(self, rows: mx.array) -> _Caught:
        """What the attention is given for some streams.

        Raises:
            StepError: The layer can't be run on them, or does not make queries and keys of them.
        """
        count, caught, bent = rows.shape[0], [], []

        def fused(
            q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: Any = None, **_: Any
        ) -> mx.array:
            caught.append(_Caught(q, k, scale, mask))
            raise _Stop

        def softmax(x: mx.array, *_: Any, **__: Any) -> mx.array:
            caught.append(_Caught(scores=x))
            raise _Stop

        def tanh(x: mx.array) -> mx.array:
            bent.append(x)
            return kept(x)  # which the model may change in place

        args, kwargs = with_given(self._run, rows)
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
        except _Stop:
            pass
        except Exception as error:  # a family's own code, given other rows and no cache, may fail in any way
            raise _refused(self._session, "its layer can't be run on other streams") from error
        if not caught:
            raise _refused(self._session, "its layer computes no attention that can be read")
        found: _Caught = caught[0]
        arrays = [found.scores] if found.scores is not None else [found.queries, found.keys]
        if any(
            each is None or each.shape[0] != count or each.shape[-2] != len(self._places) for each in arrays
        ):
            raise _refused(self._session, "its keys are another layer's, or a choice of them")
        if found.scores is not None and bent:
            x = bent[-1].astype(mx.float32)
            self.cap = float(np.array((found.scores.astype(mx.float32) * x).sum() / mx.square(x).sum()))
        return found


def _joined(values: Sequence[Any], counts: Sequence[int]) -> Any:
    """One argument of a layer for all chunks: hidden states one after another, and no mask, since all keys that are
    kept are seen."""
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
    """`mx.fast.rope` for tokens at these places, whatever offset the layer gives."""
    original = mx.fast.rope

    def rope(x: mx.array, *args: Any, offset: Any = 0, **kwargs: Any) -> mx.array:
        apart = mx.moveaxis(x, -2, 0)
        flat = apart.reshape(len(places), -1, 1, x.shape[-1])
        turned = original(flat, *args, offset=mx.array(list(places)), **kwargs)
        return mx.moveaxis(turned.reshape(apart.shape), 0, -2)

    return rope


# ---- shares --------------------------------------------------------------------------------------


class _Found(Struct, frozen=True):
    """The scores of the kept keys and what they are made of; the last writer is the constant."""

    real: Numbers
    by_key: Numbers
    by_query: Numbers
    pairs: tuple[tuple[int, int], ...]
    pair_scores: Numbers
    cap: float | None


class _Shares:
    """Takes the writers in, some at a time: of their streams, which may be large, what the head makes of them stays.

    Args:
        session: Has the model.
        look: Runs the layer.
    """

    def __init__(self, session: Session, look: _Look) -> None:
        self.look = look
        self.writers: list[ScoreWriter] = []
        self._rows: list[tuple[Numbers, Numbers]] = []
        """Queries and keys of each batch; without pairs the scores with a writer's keys, and with its query."""
        self._none: tuple[Numbers, Numbers] | None = None
        self._real: tuple[Numbers, Numbers] | None = None
        self._sum = mx.zeros_like(look.given)
        tokens, size = look.given.shape[1:]
        wide = max(size, tokens * (session.facts.heads or 1) if not look.pairs else 0)
        self._batch = max(1, ROW_BYTES // (4 * tokens * wide))

    def take(self, writers: Sequence[ScoreWriter], streams: mx.array, stopped: Stopped) -> None:
        """Take some writers in.

        Args:
            writers: What they are.
            streams: Float32, shape (writers, places, size).
            stopped: Polled before each batch.
        """
        self.writers += writers
        self._sum = self._sum + streams.sum(axis=0, keepdims=True)
        mx.eval(self._sum)
        for first in range(0, len(writers), self._batch):
            if stopped():
                raise Cancelled
            batch = mx.concatenate([mx.zeros_like(self.look.given), streams[first : first + self._batch]])
            one, other = self._of(batch)
            self._real, self._none = (one[0], other[0]), (one[1], other[1])
            self._rows.append((one[2:] - one[1], other[2:] - other[1]))
        mx.clear_cache()

    def _of(self, rows: mx.array) -> tuple[Numbers, Numbers]:
        """What the layer makes of the real stream and of these rows."""
        given, look = self.look.given, self.look
        if look.pairs:
            return look.queries_and_keys(mx.concatenate([given, rows]))
        here = (mx.arange(given.shape[1]) == given.shape[1] - 1)[None, :, None]
        keys, queries = mx.where(here, given, rows), mx.where(here, rows, given)
        return look.scores(mx.concatenate([given, keys])), look.scores(mx.concatenate([given, queries]))

    @property
    def streams_error(self) -> float:
        """How far the writers' streams are from summing to the one before the layer, relative."""
        largest = mx.maximum(mx.abs(self.look.given).max(), 1e-9)
        return float(np.array(mx.abs(self._sum - self.look.given).max() / largest))

    def found(self, kept: Sequence[int]) -> _Found:
        """The shares of all writers in the scores of some of the places."""
        assert self._none is not None
        assert self._real is not None
        self.writers.append(ScoreWriter("constant", None, ""))
        one, other = (
            np.concatenate([*(rows[side] for rows in self._rows), self._none[side][None]]) for side in (0, 1)
        )
        keys = list(kept)
        if not self.look.pairs:
            real = self._real[0][keys]
            return _Found(real, one[:, keys], other[:, keys], (), np.zeros((0, len(keys))), self.look.cap)
        query, key = self._real[0], self._real[1][keys]
        other = other[:, keys]
        pairs, scores = _pairs(one, other)
        return _Found(key @ query, other @ query, one @ key.T, pairs, scores, None)


def _pairs(queries: Numbers, keys: Numbers) -> tuple[tuple[tuple[int, int], ...], Numbers]:
    """The pairs that are largest at some key against the mean over the keys, and their scores.

    Args:
        queries: Of each writer, shape (writers, size).
        keys: Shape (writers, keys, size).
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


def _checks(taken: Capture, run: AttentionRun, found: _Found, weights: Numbers) -> tuple[Check, Check]:
    """The checks that the parts sum to the scores, and that the sums make the head's weights.

    Of the weights only those among the kept keys are compared: all others, and a sink, take what they take.
    """
    sums = found.by_key.sum(axis=0)
    apart = np.abs(np.stack([sums, found.by_query.sum(axis=0)]) - found.real).max()
    parts = float(apart) / max(float(np.abs(found.real).max()), 1e-9)
    bent = sums if found.cap is None else found.cap * np.tanh(sums / found.cap)
    shares = np.exp(bent - bent.max())
    made = shares * weights.sum() / shares.sum()
    return (
        _check("scores", parts, taken.again, run.layer),
        _check("weights", float(np.abs(made - weights).max()), max(taken.again, run.rounding), run.layer),
    )


def _check(name: CheckName, error: float, bound: float, layer: int) -> Check:
    return Check(name, error if np.isfinite(error) else float("inf"), bound, f"layer {layer + 1}")

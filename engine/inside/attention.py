"""Attention of each head of each layer: of one token, of all of a path as a triangle, and scores of what heads do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from engine.errors import Cancelled, StepError
from engine.inside.capture import Capture, bounds, capture, largest_difference, together
from engine.inside.taps import AttentionRun, Taps
from engine.model.forward import ChunkSizer, Runner
from engine.model.layers import decoder_layers, layers_in_words, parts_of, role_of
from engine.protocol import (
    HALF_TOKENS,
    MOST_TEXTS,
    TRIANGLE_TOKENS,
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    CheckName,
    Floats,
    HeadScore,
    HeadsScored,
    Measuring,
    ReadTriangle,
    RepeatedTexts,
    ScoreHeads,
    TriangleRead,
)
from engine.session.session import Session
from engine.task import Stopped, never
from engine.tree import Chunks, chunk_end, prompt_chunks

WIDE = 2**20
"""Bytes of all weights of a token up to which they are handed out in 32 bits, beyond that in 16."""
ROWS = 1e-5
"""Bound of the difference of a row's sum from 1: 4e-7 was seen over 101 models."""


FIRST_RUN = "A head's triangle, its scores and what it does are those of the first."


def read_attention(session: Session, node: int, stopped: Stopped = never) -> AttentionRead:
    """Run a token again and read the weights of all heads.

    Args:
        session: Has read a prompt; not changed.
        node: The token that looks.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    taken = capture(session, node, attention=True, streams=False, stopped=stopped)
    own = decoder_layers(session.runner.model)
    runs: list[AttentionRun] = []
    numbers = 0
    for taps in taken.taps:
        for run in taps.attended:
            runs.append(run)
            numbers += run.weights[:, -1].size
    dtype = "<f4" if 4 * numbers <= WIDE else "<f2"
    checks, ran, there = AttentionChecks(taken.bound), list[int](), list[int]()
    layers: list[AttentionLayer] = []
    for run in runs:
        checks.take(run)
        ran.append(run.layer)
        if (layer := _layer(run, taken.depth, dtype)) is not None:
            layers.append(layer)
            there.append(run.layer)
    facts = taken.facts(begun, session, *checks.worst.values())
    missing: tuple[str, ...] = ()
    if not ran or ran != there or ran != list(range(len(own))):  # not one for each layer
        missing = _missing(own, taken, ran, there)
    return AttentionRead(node, taken.depth, tuple(layers), len(own), missing, facts)


def _layer(run: AttentionRun, depth: int, dtype: str) -> AttentionLayer | None:
    """What a record has of the attention of the last token; None where it isn't known whose keys it saw."""
    if run.positions is None:
        return None
    weights, positions, keep = run.weights[:, -1, :], sorted(run.positions), 0
    while keep < len(positions) and positions[keep] == keep:
        keep += 1
    if positions[keep:] == list(
        range(depth - len(positions) + keep, depth)
    ):  # the path's first tokens and its last
        order = sorted(range(len(positions)), key=run.positions.__getitem__)
        weights = weights[:, mx.array(order)]
    else:  # a choice of keys from anywhere in the path
        whole = mx.zeros((weights.shape[0], depth))
        whole[:, mx.array(run.positions)] = weights
        weights, keep = whole, depth
    packed = np.array(weights).astype(dtype)
    sinks = tuple(float(share) for share in np.array(run.sinks[:, -1])) if run.sinks is not None else ()
    return AttentionLayer(
        run.layer,
        run.kind,
        run.kv_heads,
        Floats(packed.shape, packed.tobytes(), 8 * packed.itemsize),
        keep,
        sinks,
    )


def attention_checks(taken: Capture, runs: list[AttentionRun]) -> tuple[Check, ...]:
    """How far the recomputed weights are from what the model's attention used, and their sums from 1."""
    checks = AttentionChecks(taken.bound)
    for run in runs:
        checks.take(run)
    return tuple(checks.worst.values())


class AttentionChecks(Struct):
    """The worst errors of attentions that come one after another."""

    bound: float
    """For relative errors in the dtype that the model computes in."""
    worst: dict[CheckName, Check] = field(default_factory=dict)
    """By name, and in their order."""

    def take(self, run: AttentionRun) -> None:
        """Check one attention."""
        found: list[tuple[CheckName, float, float]] = []
        if run.error is not None:
            found.append(("attention", run.error, max(self.bound, run.rounding)))
        if run.weights.ndim == 3:
            sums = run.weights.sum(axis=-1)
            if run.sinks is not None:
                sums = sums + run.sinks
            off = float(np.array(mx.abs(sums - 1).max()))
            own = run.kind == "softmax"  # the model's own weights, rounded to its dtype
            found.append(("rows", off, max(ROWS, self.bound) if own else ROWS))
        for name, error, bound in found:  # the worst is that whose error is more of its bound
            check = Check(
                name, error if np.isfinite(error) else float("inf"), bound, f"layer {run.layer + 1}"
            )
            known = self.worst.get(name)
            if known is None:
                self.worst = dict(sorted([*self.worst.items(), (name, check)]))
            elif check.error / bound > known.error / known.bound:
                self.worst[name] = check


def _missing(own: Sequence[Any], taken: Capture, runs: list[int], there: list[int]) -> tuple[str, ...]:
    """Why some layers have no weights to show, and of which there are several.

    Args:
        own: The layers.
        taken: What was captured.
        runs: The layer of each attention.
        there: The layer of each whose weights are shown.
    """
    if not taken.taps[-1].called:
        return (
            "This architecture runs the parts of its layers itself, so its attentions can't be read one by one.",
        )
    ran = set(runs)
    without = [index for index in range(len(own)) if index not in ran]
    states = [index for index in without if _recurs(own[index])]
    if len(states) == len(own):
        return ("No layer of this model has an attention: it keeps states instead of keys and values.",)
    bare, unknown = sorted(set(without) - set(states)), sorted(ran.difference(there))
    several = sorted(layer for layer, count in Counter(runs).items() if count > 1)
    return (
        *(
            [f"{layers_in_words(states)} {_verb(states, 'keep')} a state instead of keys and values."]
            if states
            else []
        ),
        *([f"{layers_in_words(bare)} {_verb(bare, 'have')} no attention."] if bare else []),
        *([f"{layers_in_words(unknown)}: which tokens the keys belong to isn't known."] if unknown else []),
        *(
            [f"{layers_in_words(several)}: attention runs several times for a token. {FIRST_RUN}"]
            if several
            else []
        ),
    )


def _recurs(layer: Any) -> bool:
    return any(role_of(part, name) == "recurrence" for name, part in parts_of(layer))


def _verb(numbers: list[int], plural: Literal["keep", "have"]) -> str:
    return {"keep": "keeps", "have": "has"}[plural] if len(numbers) == 1 else plural


# ---- a whole path run again from nothing under taps, chunk by chunk ----------------------------

CHUNK_BYTES = 32 * 2**20
"""Weights of one layer's heads over a chunk, at most: a few arrays of this size exist at once."""

Weights = npt.NDArray[np.float32]


class ChunkAttention(Struct, frozen=True):
    """One attention over one chunk of the path."""

    run: AttentionRun
    first: int
    """The chunk's first token in the path."""

    @property
    def weights(self) -> Weights | None:
        """Shape (heads, tokens of the chunk, tokens of the path up to its end); None where positions are unknown."""
        if self.run.positions is None:
            return None
        found: Weights = np.array(self.run.weights, dtype=np.float32)
        heads, tokens, _ = found.shape
        placed = np.zeros((heads, tokens, self.first + tokens), dtype=np.float32)
        placed[:, :, self.run.positions] = found
        return placed

    @property
    def sinks(self) -> Weights | None:
        """What the sinks take, shape (heads, tokens of the chunk); None without sinks."""
        return None if self.run.sinks is None else np.array(self.run.sinks, dtype=np.float32)


def run_whole_path(
    session: Session,
    ids: list[int],
    chunks: Chunks,
    command: str,
    take: Callable[[ChunkAttention], None],
    stopped: Stopped,
) -> Iterator[Measuring | CaptureFacts]:
    """Run a path on a new cache, beside a run without taps: the logits after both must be the same.

    Args:
        session: Has read a prompt; not changed.
        ids: The tokens of the path.
        chunks: Which of them ran in chunks in the session.
        command: Kind of the command that the progress is about.
        take: Is given each attention of each chunk, in their order.
        stopped: Polled before each chunk.

    Yields:
        The progress; at the end the checks of all that was taken.

    Raises:
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    tapped, plain = session.runner.fresh(), session.runner.fresh()
    limit = max(1, CHUNK_BYTES // (4 * max(1, session.facts.heads or 1) * len(ids)))
    pieces = Pieces(session, len(ids), chunks, limit)
    checks = AttentionChecks(bounds(session).own)
    rows: list[mx.array] = []
    step_ms = 0.0
    while (done := tapped.kv.offset) < len(ids):
        if stopped():
            raise Cancelled
        yield Measuring(command, done, len(ids), "tokens of the path")
        piece = ids[done : pieces.end(done)]
        last = done + len(piece) == len(ids)
        start = time.perf_counter()
        before = _forward(plain, piece, last)
        step_ms = (time.perf_counter() - start) * 1000
        after = _tapped(session, tapped, piece, last, checks, take)
        pieces.learn(len(piece), (time.perf_counter() - start) * 1000)
        rows = [before, after]
        mx.clear_cache()
    forward = Check("forward", largest_difference(np.array(rows[1]), np.array(rows[0])), 0.0)
    ms = (time.perf_counter() - begun) * 1000
    yield CaptureFacts(
        (forward, *checks.worst.values()), ms, step_ms, session.facts.family, pieces.note, session.title
    )


def _tapped(
    session: Session,
    runner: Runner,
    piece: list[int],
    last: bool,
    checks: AttentionChecks,
    take: Callable[[ChunkAttention], None],
) -> mx.array:
    """Run a chunk under taps."""
    first = runner.kv.offset

    def taken(run: AttentionRun) -> None:
        checks.take(run)
        take(ChunkAttention(run, first))

    with Taps(session.runner.model, runner.kv.caches, take=taken, streams=False).set():
        return _forward(runner, piece, last)


def _forward(runner: Runner, piece: list[int], last: bool) -> mx.array:
    """Run a chunk; its logits are computed after the path's last token alone, which is a chunk of its own."""
    return runner.forward_logits(piece) if last else runner.forward_chunk(piece)


class Pieces:
    """Where a path is cut: into chunks of bounded length, and its last token; as the session ran it where the cut
    changes the numbers.

    Args:
        session: Has the model.
        depth: Tokens of the path.
        chunks: Which of them ran in chunks in the session.
        limit: Tokens of a chunk at most.
    """

    def __init__(self, session: Session, depth: int, chunks: Chunks, limit: int) -> None:
        self.note = ""
        self._depth = depth
        self._chunks = chunks if session.runner.kv.chunks_matter else prompt_chunks(depth)
        sizer = session.runner.chunk_sizer(limit)
        if sizer.size > limit:
            sizer = ChunkSizer(limit)
            self.note = f"The path ran in chunks of {limit} tokens, the session's are larger."
        self._sizer, self._limit = sizer, limit

    def end(self, done: int) -> int:
        """End of the piece that begins after `done` tokens."""
        end = min(chunk_end(self._chunks, done), self._depth - 1)
        return min(done + min(self._sizer.size, self._limit), end) if end > done else done + 1

    def learn(self, tokens: int, ms: float) -> None:
        """Adapt to the time of a piece."""
        self._sizer.learn(tokens, ms)


# ---- heads over a whole path -------------------------------------------------------------------

LEAST = 2.0**-24
"""The smallest number of 16 bits: 0 is left for what is hidden."""


def read_triangle(
    session: Session, node: int, layer: int, head: int, stopped: Stopped = never
) -> Iterator[Measuring | TriangleRead]:
    """Run a path again and keep the weights of one head, from each token.

    Args:
        session: Has read a prompt; not changed.
        node: The path's last token.
        layer: From 0.
        head: From 0.
        stopped: Polled before each chunk.

    Yields:
        The progress, then the triangle.

    Raises:
        StepError: There is no such node, layer or head; the path is too long; the positions of its keys are not known.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    tokens = session.tree[node].depth
    if tokens > TRIANGLE_TOKENS:
        raise StepError(
            f"The path has {tokens:,} tokens: a head is drawn from each token of {TRIANGLE_TOKENS:,} at most.",
            "Look at an earlier token.",
        )
    kept = _TriangleRows(layer, head)
    path = session.tree.tokens(node), session.tree.chunks(node)
    for result in run_whole_path(session, *path, ReadTriangle.kind, kept.take, stopped):
        if isinstance(result, CaptureFacts):
            yield TriangleRead(node, layer, head, tokens, kept.weights(tokens), kept.sinks(), result)
        else:
            yield result


class _TriangleRows:
    """The rows of one head, each up to its own token."""

    def __init__(self, layer: int, head: int) -> None:
        self._layer, self._head = layer, head
        self._rows: list[Weights] = []
        self._sinks: list[Weights] = []

    def take(self, attention: ChunkAttention) -> None:
        """Keep the head's rows of a chunk."""
        if attention.run.layer != self._layer or len(self._rows) > attention.first:
            return  # another layer, or a second attention of this one
        weights = attention.weights
        if weights is None or not 0 <= self._head < weights.shape[0]:
            return
        rows = weights[self._head]
        self._rows += [rows[place, : attention.first + place + 1] for place in range(len(rows))]
        if (sinks := attention.sinks) is not None:
            self._sinks.append(sinks[self._head])

    def weights(self, tokens: int) -> Floats:
        """All rows, packed."""
        if len(self._rows) != tokens:
            raise StepError(
                f"Layer {self._layer + 1} has no head {self._head + 1} whose weights are known over the whole path.",
                "Choose another head.",
            )
        joined = np.concatenate(self._rows)
        packed = np.where(joined > 0, np.maximum(joined, LEAST), 0).astype("<f2")
        return Floats((len(packed),), packed.tobytes(), 16)

    def sinks(self) -> Floats:
        """The share of each row that the sink takes."""
        packed = np.concatenate([np.zeros(0), *self._sinks]).astype("<f2")
        return Floats((len(packed),), packed.tobytes(), 16)


def score_heads(
    session: Session, node: int, texts: RepeatedTexts | None = None, stopped: Stopped = never
) -> Iterator[Measuring | HeadsScored]:
    """Run a path again, or texts that all models are measured on, and score each head on it.

    Args:
        session: Has read a prompt; not changed.
        node: The path's last token.
        texts: In the place of the path.
        stopped: Polled before each chunk.

    Yields:
        The progress, then the scores; `HeadScore` defines them.

    Raises:
        StepError: There is no such node, or it is the root; there can be no such texts; of no head the weights are
            known.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    if texts is not None:
        yield from _score_texts(session, node, texts, stopped)
        return
    ids = session.tree.tokens(node)
    sums = _ScoreSums(ids)
    for result in run_whole_path(
        session, ids, session.tree.chunks(node), ScoreHeads.kind, sums.take, stopped
    ):
        if isinstance(result, CaptureFacts):
            yield HeadsScored(node, len(ids), _scores(session, node, sums), sums.repeats, result)
        else:
            yield result


def _score_texts(
    session: Session, node: int, texts: RepeatedTexts, stopped: Stopped
) -> Iterator[Measuring | HeadsScored]:
    """The means over repeated texts, which run one after another."""
    _check_texts(texts)
    random = np.random.default_rng(texts.seed)
    each = 2 * texts.length
    scores: list[tuple[HeadScore, ...]] = []
    facts: list[CaptureFacts] = []
    for place in range(texts.count):
        half = random.integers(0, session.facts.vocabulary, texts.length).tolist()
        session.tokens.check(half)
        sums = _ScoreSums(half * 2, texts.length)
        for result in run_whole_path(
            session, half * 2, prompt_chunks(each), ScoreHeads.kind, sums.take, stopped
        ):
            if isinstance(result, CaptureFacts):
                facts.append(result)
            else:
                done, total = place * each + result.done, texts.count * each
                yield replace(result, done=done, total=total, detail="random tokens, repeated")
        scores.append(_scores(session, node, sums))
    heads = tuple(map(_mean, zip(*scores, strict=True)))
    repeats = texts.count * texts.length
    yield HeadsScored(node, texts.count * each, heads, repeats, together(facts), texts)


def _scores(session: Session, node: int, sums: _ScoreSums) -> tuple[HeadScore, ...]:
    """The scores that are there.

    Raises:
        StepError: There are none; with the reason.
    """
    if not (scores := sums.scores()):
        why = " ".join(read_attention(session, node).missing)
        raise StepError(why, "Switch parts off instead to see what they do.")
    return scores


def _check_texts(texts: RepeatedTexts) -> None:
    if not (2 <= texts.length <= HALF_TOKENS and 1 <= texts.count <= MOST_TEXTS and texts.seed >= 0):
        raise StepError(
            f"{texts.count:,} texts of twice {texts.length:,} tokens from seed {texts.seed} can't be drawn.",
            f"Give 1 to {MOST_TEXTS} texts of twice 2 to {HALF_TOKENS} tokens, and a seed of 0 or more.",
        )


def _mean(scores: Sequence[HeadScore]) -> HeadScore:
    """One head over several texts."""
    first = scores[0]
    return HeadScore(
        first.layer,
        first.head,
        fmean(each.previous for each in scores),
        fmean(each.induction or 0.0 for each in scores),
        fmean(each.first for each in scores),
        fmean(each.entropy_bits for each in scores),
        fmean(each.duplicate or 0.0 for each in scores),
    )


class _ScoreSums:
    """Sums of each score over the rows, by layer and score; no weights are kept.

    Args:
        ids: The tokens.
        half: Where these are some tokens and the same ones again, how many; then places alone count, and not which
            tokens happen to be the same.
    """

    def __init__(self, ids: Sequence[int], half: int | None = None) -> None:
        self.ids, self._half = np.array(ids), half
        places = range(len(ids))
        self.repeats = sum(bool(self._after(at, at + 1).any()) for at in places)
        self._duplicates = sum(bool(self._same(at, at + 1).any()) for at in places)
        self._sums: dict[int, npt.NDArray[np.float64]] = {}
        self._rows: dict[int, int] = {}

    def take(self, attention: ChunkAttention) -> None:
        """Add a chunk of a layer."""
        layer, first = attention.run.layer, attention.first
        weights = attention.weights
        if weights is None or self._rows.get(layer, 0) != first:
            return  # positions unknown, or a second attention of the layer
        heads, tokens, end = weights.shape
        self._rows[layer] = first + tokens
        sums = self._sums.setdefault(layer, np.zeros((5, heads)))
        rows = np.arange(max(1 - first, 0), tokens)  # without the first token, which sees itself alone
        early = rows if self._half is None else rows[first + rows <= self._half]
        sums[0] += weights[:, early, first + early - 1].sum(axis=1, dtype=np.float64)
        sums[1] += (weights * self._after(first, end)).sum(axis=(1, 2), dtype=np.float64)
        sums[2] += weights[:, rows, 0].sum(axis=1, dtype=np.float64)
        sums[3] += _entropy(weights).sum(axis=(1, 2), dtype=np.float64)
        if (sinks := attention.sinks) is not None:
            sums[3] += _entropy(sinks).sum(axis=1, dtype=np.float64)
        sums[4] += (weights * self._same(first, end)).sum(axis=(1, 2), dtype=np.float64)

    def _same(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """For each token of a chunk, which tokens before it are the same token."""
        if self._half is not None:
            return self._back(self._half, first, end)
        same = self.ids[first:end, None] == self.ids[None, :end]
        found: npt.NDArray[np.bool_] = same & (np.arange(end) < np.arange(first, end)[:, None])
        return found

    def _back(self, by: int, first: int, end: int) -> npt.NDArray[np.bool_]:
        """For each token of a chunk that is in the second half, the one so many places before it."""
        rows = np.arange(first, end)[:, None]
        found: npt.NDArray[np.bool_] = (np.arange(end) == rows - by) & (rows >= (self._half or 0))
        return found

    def _after(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """For each token of a chunk, which tokens before it followed an earlier occurrence of the same token."""
        if self._half is not None:
            return self._back(self._half - 1, first, end)
        same = self.ids[first:end, None] == np.concatenate([[-1], self.ids[: end - 1]])
        found: npt.NDArray[np.bool_] = same & (np.arange(end) < np.arange(first, end)[:, None])
        return found

    def scores(self) -> tuple[HeadScore, ...]:
        """The means, of the layers that were taken to the end of the path."""
        count = len(self.ids)
        return tuple(
            HeadScore(
                layer,
                head,
                float(sums[0, head]) / (self._half or max(count - 1, 1)),
                float(sums[1, head]) / self.repeats if self.repeats else None,
                float(sums[2, head]) / max(count - 1, 1),
                float(sums[3, head]) / count,
                float(sums[4, head]) / self._duplicates if self._duplicates else None,
            )
            for layer, sums in sorted(self._sums.items())
            if self._rows[layer] == count
            for head in range(sums.shape[1])
        )


def _entropy(shares: Weights) -> Weights:
    """What each share adds to the entropy, in bits."""
    logs: Weights = np.log2(shares, where=shares > 0, out=np.zeros_like(shares))
    return -shares * logs

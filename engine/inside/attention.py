"""Attention weights of every head, for one token or for a whole path (a triangle), and scores of each head."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from statistics import fmean
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from engine.errors import StepError
from engine.inside import view
from engine.inside.taps import AttentionRun, Taps
from engine.model.forward import ChunkSizer, Runner
from engine.model.layers import decoder_layers, parts_of, role_of
from engine.protocol import (
    HALF_TOKENS,
    MOST_TEXTS,
    TRIANGLE_TOKENS,
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    CheckName,
    HeadScore,
    HeadsScored,
    Measuring,
    ReadAttention,
    ReadTriangle,
    Record,
    RepeatedTexts,
    ScoreHeads,
    TriangleRead,
)
from engine.session.session import Session
from engine.task import Stopped, never, poll
from engine.tree import Chunks, chunk_end, prompt_chunks

Weights = npt.NDArray[np.float32]

# ---- one token ---------------------------------------------------------------------------------

WIDE = 2**20
"""Largest size in bytes at which a token's weights are packed in 32 bits; more are packed in 16."""
ROWS = 1e-5
"""Bound of the difference of a row's sum from 1; the largest over 101 models was 4e-7."""
FIRST_RUN = "A head's triangle, its scores and what it does are those of the first."


def read_attention(
    session: Session, command: ReadAttention, stopped: Stopped = never
) -> Iterator[AttentionRead]:
    """Run a token again and read the weights of all heads.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    captured = view.capture(session, command.node, attention=True, streams=False, stopped=stopped)
    model_layers = decoder_layers(session.runner.model)
    runs = [run for taps in captured.taps for run in taps.attended]
    bits = 32 if 4 * sum(run.weights[:, -1].size for run in runs) <= WIDE else 16
    checks: dict[CheckName, Check] = {}
    layers: list[AttentionLayer] = []
    for run in runs:
        check_attention(checks, run, captured.bound)
        if (layer := _layer(run, captured.depth, bits)) is not None:
            layers.append(layer)
    ran, shown = [run.layer for run in runs], [layer.layer for layer in layers]
    missing: tuple[str, ...] = ()
    if not ran or ran != shown or ran != list(range(len(model_layers))):  # not one for each layer
        missing = _missing(model_layers, captured.taps[-1].called, ran, shown)
    facts = captured.facts(*checks.values())
    yield AttentionRead(command.node, captured.depth, tuple(layers), len(model_layers), missing, facts)


def _layer(run: AttentionRun, depth: int, bits: int) -> AttentionLayer | None:
    """The attention of the last token, packed; None if the positions of its keys are unknown."""
    if run.positions is None:
        return None
    weights, positions, keep = run.weights[:, -1, :], sorted(run.positions), 0
    while keep < len(positions) and positions[keep] == keep:
        keep += 1
    if positions[keep:] == list(range(depth - len(positions) + keep, depth)):  # the first tokens and the last
        order = sorted(range(len(positions)), key=run.positions.__getitem__)
        weights = weights[:, mx.array(order)]
    else:  # keys selected from anywhere in the path
        spread = mx.zeros((weights.shape[0], depth))
        spread[:, mx.array(run.positions)] = weights
        weights, keep = spread, depth
    sinks = tuple(np.array(run.sinks[:, -1]).tolist()) if run.sinks is not None else ()
    numbers = view.packed(np.array(weights), bits)
    return AttentionLayer(run.layer, run.kind, run.kv_heads, numbers, keep, sinks)


def check_attention(worst: dict[CheckName, Check], run: AttentionRun, bound: float) -> None:
    """Check that an attention's weights give its output, and that they sum to 1.

    Args:
        worst: The worst check of each name so far, sorted by name; updated in place.
        run: The attention.
        bound: Bound of relative errors in the dtype that the model computes in.
    """
    found: list[Check] = []
    if run.error is not None:
        found.append(view.layer_check("attention", run.error, max(bound, run.rounding), run.layer))
    if run.weights.ndim == 3:
        sums = run.weights.sum(axis=-1)
        if run.sinks is not None:
            sums = sums + run.sinks
        own = run.kind == "softmax"  # the model's own weights, rounded to its dtype
        error = float(np.array(mx.abs(sums - 1).max()))
        found.append(view.layer_check("rows", error, max(ROWS, bound) if own else ROWS, run.layer))
    for check in found:  # the worst check has the largest error in proportion to its bound
        known = worst.get(check.name)
        if known is None or check.error / check.bound > known.error / known.bound:
            worst[check.name] = check
    for name in sorted(worst):
        worst[name] = worst.pop(name)


def _missing(layers: Sequence[Any], called: bool, ran: list[int], shown: list[int]) -> tuple[str, ...]:
    """Sentences about the layers without weights to show, and about those with several attentions.

    Args:
        layers: The model's layers.
        called: True if a layer was called as a whole.
        ran: Layer of each attention that ran.
        shown: Layer of each attention with weights to show.
    """
    if not called:
        return (
            "This architecture runs the parts of its layers itself, so its attentions can't be read one by one.",
        )
    without = sorted(set(range(len(layers))) - set(ran))
    recurrent = [
        index
        for index in without
        if any(role_of(part, name) == "recurrence" for name, part in parts_of(layers[index]))
    ]
    if len(recurrent) == len(layers):
        return ("No layer of this model has an attention: it keeps states instead of keys and values.",)
    bare = sorted(set(without) - set(recurrent))
    several = sorted(layer for layer, count in Counter(ran).items() if count > 1)
    return view.layer_notes(
        (recurrent, f" {'keeps' if len(recurrent) == 1 else 'keep'} a state instead of keys and values."),
        (bare, f" {'has' if len(bare) == 1 else 'have'} no attention."),
        (sorted(set(ran) - set(shown)), ": which tokens the keys belong to isn't known."),
        (several, f": attention runs several times for a token. {FIRST_RUN}"),
    )


# ---- a whole path, run again on an empty cache under taps, chunk by chunk ----------------------

CHUNK_BYTES = 32 * 2**20
"""Largest size in bytes of the weights of one layer's heads over a chunk; a few such arrays exist at once."""

Take = Callable[[AttentionRun, int], None]
"""Receives each attention of each chunk, and the position of the chunk's first token."""


def path_sizer(session: Session, limit: int) -> tuple[ChunkSizer, str]:
    """The sizes of a path's chunks, of `limit` tokens at most; and a note if the session's chunks are larger."""
    sizer = session.runner.chunk_sizer(limit)
    if sizer.size <= limit:
        return sizer, ""
    return ChunkSizer(limit), f"The path ran in chunks of {limit} tokens, the session's are larger."


def pieces_of(
    session: Session, ids: list[int], chunks: Chunks, sizer: ChunkSizer, limit: int
) -> Iterator[list[int]]:
    """Split a path into chunks and its last token; if the chunks' sizes change the numbers, the session's are used.

    Args:
        session: Session of the model.
        ids: Tokens of the path.
        chunks: Chunks that the session ran.
        sizer: Sizes of the chunks; the caller reports their times to it.
        limit: Largest number of tokens of a chunk.
    """
    chunks = chunks if session.runner.kv.chunks_matter else prompt_chunks(len(ids))
    done = 0
    while done < len(ids):
        end = min(chunk_end(chunks, done), len(ids) - 1)
        end = min(done + min(sizer.size, limit), end) if end > done else done + 1
        yield ids[done:end]
        done = end


def forward_piece(runner: Runner, piece: list[int], last: bool) -> mx.array:
    """Run a piece; logits are only computed after the path's last token."""
    return runner.forward_logits(piece) if last else runner.forward_chunk(piece)


def run_path(
    session: Session, ids: list[int], chunks: Chunks, take: Take, stopped: Stopped, progress: Measuring
) -> Generator[Measuring, None, CaptureFacts]:
    """Run a path under taps on a new cache, and without taps on another: the logits after both must be the same.

    Args:
        session: Session of the model; not changed.
        ids: Tokens of the path.
        chunks: Chunks that the session ran.
        take: Receives each attention.
        stopped: Polled before each chunk.
        progress: Progress before the path.

    Returns:
        The facts of the run, with the checks of all attentions.

    Raises:
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    tapped, plain = session.runner.fresh(), session.runner.fresh()
    limit = max(1, CHUNK_BYTES // (4 * max(1, session.facts.heads or 1) * len(ids)))
    checks: dict[CheckName, Check] = {}
    bound, step_ms, done = view.bounds(session).own, 0.0, 0

    def checked(run: AttentionRun) -> None:
        check_attention(checks, run, bound)
        take(run, done)

    sizer, note = path_sizer(session, limit)
    for piece in pieces_of(session, ids, chunks, sizer, limit):
        poll(stopped)
        yield replace(progress, done=progress.done + done)
        last = done + len(piece) == len(ids)
        start = time.perf_counter()
        before = forward_piece(plain, piece, last)
        step_ms = (time.perf_counter() - start) * 1000
        with Taps(session.runner.model, tapped.kv.caches, take=checked, streams=False).set():
            after = forward_piece(tapped, piece, last)
        sizer.learn(len(piece), (time.perf_counter() - start) * 1000)
        done += len(piece)
        mx.clear_cache()
    forward = Check("forward", view.largest_difference(np.array(after), np.array(before)), 0.0)
    return view.facts_of(session, begun, step_ms, (forward, *checks.values()), note)


def placed_weights(run: AttentionRun, first: int) -> Weights | None:
    """The weights of an attention over one chunk, each at the position of its key.

    Args:
        run: The attention.
        first: Position of the chunk's first token.

    Returns:
        Shape (heads, tokens of the chunk, tokens of the path up to its end); None if the positions are unknown.
    """
    if run.positions is None:
        return None
    found: Weights = np.array(run.weights, dtype=np.float32)
    heads, tokens, _ = found.shape
    placed = np.zeros((heads, tokens, first + tokens), dtype=np.float32)
    placed[:, :, run.positions] = found
    return placed


OF_PATH = "tokens of the path"
LEAST = 2.0**-24
"""Smallest positive number in 16 bits, for visible keys with less weight: 0 means that a key is hidden."""


def read_triangle(session: Session, command: ReadTriangle, stopped: Stopped = never) -> Iterator[Record]:
    """Run a path again and read the weights of one head at each token.

    Raises:
        StepError: There is no such node, layer or head; the path is too long; the positions of its keys are not known.
        Cancelled: `stopped` returned True.
    """
    session.check_node(command.node)
    tokens, layer, head = session.tree[command.node].depth, command.layer, command.head
    if tokens > TRIANGLE_TOKENS:
        raise StepError(
            f"The path has {tokens:,} tokens: a head is drawn from each token of {TRIANGLE_TOKENS:,} at most.",
            "Look at an earlier token.",
        )
    rows: list[Weights] = []
    sinks = [np.zeros(0)]

    def take(run: AttentionRun, first: int) -> None:
        if run.layer != layer or len(rows) > first:
            return  # another layer, or a second attention of this one
        weights = placed_weights(run, first)
        if weights is None or not 0 <= head < weights.shape[0]:
            return
        rows.extend(row[: first + place + 1] for place, row in enumerate(weights[head]))
        if run.sinks is not None:
            sinks.append(np.array(run.sinks, dtype=np.float32)[head])

    ids, chunks = session.tree.tokens(command.node), session.tree.chunks(command.node)
    begin = Measuring(command.kind, 0, tokens, OF_PATH)
    facts = yield from run_path(session, ids, chunks, take, stopped, begin)
    if len(rows) != tokens:
        raise StepError(
            f"Layer {layer + 1} has no head {head + 1} whose weights are known over the whole path.",
            "Choose another head.",
        )
    joined = np.concatenate(rows)
    visible = np.where(joined > 0, np.maximum(joined, LEAST), 0)
    halves = view.packed(visible, 16), view.packed(np.concatenate(sinks), 16)
    yield TriangleRead(command.node, layer, head, tokens, *halves, facts)


# ---- scores of heads ---------------------------------------------------------------------------


def score_heads(session: Session, command: ScoreHeads, stopped: Stopped = never) -> Iterator[Record]:
    """Score each head on a path, or on texts of repeated random tokens; `HeadScore` defines the scores.

    Raises:
        StepError: There is no such node, or it is the root; the number, length or seed of the texts is out of range; no
            head's weights are known.
        Cancelled: `stopped` returned True.
    """
    session.check_node(command.node)
    if command.texts is not None:
        yield from _score_texts(session, command, command.texts, stopped)
        return
    ids, chunks = session.tree.tokens(command.node), session.tree.chunks(command.node)
    sums = _ScoreSums(ids)
    begin = Measuring(command.kind, 0, len(ids), OF_PATH)
    facts = yield from run_path(session, ids, chunks, sums.take, stopped, begin)
    heads = _scores(session, command.node, sums)
    yield HeadsScored(command.node, len(ids), heads, sums.repeats, facts)


def _score_texts(
    session: Session, command: ScoreHeads, texts: RepeatedTexts, stopped: Stopped
) -> Iterator[Measuring | HeadsScored]:
    """The mean scores of each head over several texts; each text is a row of random tokens, written twice."""
    if not (2 <= texts.length <= HALF_TOKENS and 1 <= texts.count <= MOST_TEXTS and texts.seed >= 0):
        raise StepError(
            f"{texts.count:,} texts of twice {texts.length:,} tokens from seed {texts.seed} can't be drawn.",
            f"Give 1 to {MOST_TEXTS} texts of twice 2 to {HALF_TOKENS} tokens, and a seed of 0 or more.",
        )
    random = np.random.default_rng(texts.seed)
    size, total = 2 * texts.length, 2 * texts.length * texts.count
    scores: list[tuple[HeadScore, ...]] = []
    facts: list[CaptureFacts] = []

    for done in range(0, total, size):
        progress = Measuring(command.kind, done, total, "random tokens, repeated")
        half = random.integers(0, session.facts.vocabulary, texts.length).tolist()
        session.tokens.check(half)
        sums = _ScoreSums(half * 2, texts.length)
        facts.append(
            (yield from run_path(session, half * 2, prompt_chunks(size), sums.take, stopped, progress))
        )
        scores.append(_scores(session, command.node, sums))
    heads = tuple(map(_mean, zip(*scores, strict=True)))
    yield HeadsScored(
        command.node, total, heads, texts.count * texts.length, view.combined_facts(facts), texts
    )


def _scores(session: Session, node: int, sums: _ScoreSums) -> tuple[HeadScore, ...]:
    """The scores of all heads.

    Raises:
        StepError: No head has scores; the message gives the reason.
    """
    if not (scores := sums.scores()):
        (read,) = read_attention(session, ReadAttention(node=node))
        raise StepError(" ".join(read.missing), "Switch parts off instead to see what they do.")
    return scores


def _mean(scores: Sequence[HeadScore]) -> HeadScore:
    """The mean scores of one head over several texts."""
    first, *_ = scores
    names = [name for name in HeadScore.__struct_fields__ if name not in ("layer", "head")]
    return replace(first, **{name: fmean(getattr(each, name) or 0.0 for each in scores) for name in names})


class _ScoreSums:
    """Sums of each score over the rows, by layer; no weights are stored.

    Args:
        ids: Tokens of the text.
        half: Number of tokens of the first half, if the text is the same tokens twice; repeats are then found by their
            positions, and tokens that are the same by chance don't count.
    """

    def __init__(self, ids: Sequence[int], half: int | None = None) -> None:
        self.ids, self._half = np.array(ids), half
        places = range(len(ids))
        self.repeats = sum(bool(self._after(at, at + 1).any()) for at in places)
        self._duplicates = sum(bool(self._same(at, at + 1).any()) for at in places)
        self._sums: dict[int, npt.NDArray[np.float64]] = {}
        self._rows: dict[int, int] = {}

    def take(self, run: AttentionRun, first: int) -> None:
        """Add a chunk of a layer."""
        weights = placed_weights(run, first)
        if weights is None or self._rows.get(run.layer, 0) != first:
            return  # positions unknown, or a second attention of the layer
        heads, tokens, end = weights.shape
        self._rows[run.layer] = first + tokens
        sums = self._sums.setdefault(run.layer, np.zeros((5, heads)))
        rows = np.arange(max(1 - first, 0), tokens)  # without the first token, which only sees itself
        early = rows if self._half is None else rows[first + rows <= self._half]
        sums[0] += weights[:, early, first + early - 1].sum(axis=1, dtype=np.float64)
        sums[1] += (weights * self._after(first, end)).sum(axis=(1, 2), dtype=np.float64)
        sums[2] += weights[:, rows, 0].sum(axis=1, dtype=np.float64)
        sums[3] += _entropy(weights).sum(axis=(1, 2), dtype=np.float64)
        if run.sinks is not None:
            sums[3] += _entropy(np.array(run.sinks, dtype=np.float32)).sum(axis=1, dtype=np.float64)
        sums[4] += (weights * self._same(first, end)).sum(axis=(1, 2), dtype=np.float64)

    def _same(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Mask of the earlier occurrences of each token of a chunk."""
        return self._equal(first, self.ids[:end], self._half)

    def _after(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Mask of the tokens that followed an earlier occurrence of each token of a chunk."""
        previous = np.concatenate([[-1], self.ids[: end - 1]])
        return self._equal(first, previous, None if self._half is None else self._half - 1)

    def _equal(self, first: int, keys: npt.NDArray[Any], back: int | None) -> npt.NDArray[np.bool_]:
        """Mask of the earlier keys that equal each token of a chunk; with `back`, of the key at that distance before
        each token of the second half."""
        end = len(keys)
        rows, columns = np.arange(first, end)[:, None], np.arange(end)
        found: npt.NDArray[np.bool_] = (
            (self.ids[first:end, None] == keys) & (columns < rows)
            if back is None
            else (columns == rows - back) & (rows >= (self._half or 0))
        )
        return found

    def scores(self) -> tuple[HeadScore, ...]:
        """The mean scores of the heads of all layers that ran to the end of the text."""
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
    """The term of each share in the entropy, in bits."""
    logs: Weights = np.log2(shares, where=shares > 0, out=np.zeros_like(shares))
    return -shares * logs

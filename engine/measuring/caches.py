"""The gain and the cost of KV caches: decoding with and without one, and quantized caches compared with the model's own
dtype."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence, Set

import mlx.core as mx
import numpy as np
from msgspec.structs import replace

from engine.cache.kinds import group_size_problem, kind_of, valid_group_sizes
from engine.errors import SettingsError, StepError, first_line
from engine.measuring.profile import measured_session, timed
from engine.model.forward import FIXED_CHUNK, Runner
from engine.protocol import (
    CompareKV,
    KVCompared,
    KVCost,
    Measuring,
    Race,
    RaceEnded,
    RaceOpened,
    RaceStep,
    Record,
)
from engine.sampling.ranking import Row, absolute_difference
from engine.session.context import Context
from engine.session.node_records import NodeReader
from engine.settings import KV_BITS, KV_GROUP_SIZES
from engine.task import Stopped, Task, poll
from engine.tree import ROOT, Chunks, TokenTree, chunk_end, cut_chunks, prompt_chunks

# ---- the race ----------------------------------------------------------------------------------

WARM_UP_TOKENS = 16
WARM_UP_ROUNDS = 3
RACE_HOW = (
    "Each step is one forward pass, timed until its logits are in host memory: the last token over the cache, against"
    " the whole sequence in fresh caches, with the logits of all its tokens; sampling isn't in it. The lanes take turns"
    " at every length, and the one that goes first changes. Both were warmed up."
)


def race(context: Context, command: Race, task: Task) -> Iterator[Record]:
    """Race decoding with a KV cache against decoding without one: the same tokens in alternating steps, both measured.

    Both lanes have their own caches, separate from the session's. They follow the session's path to its end; then the
    cached lane picks the tokens, with the session's settings and draws, and the uncached lane's picks are compared with
    them. If the path is shorter than the first length, the cached lane continues to it without measuring.
    End-of-sequence tokens are treated as any other: a race continues to its length.

    Raises:
        StepError: There is no prompt, or the lengths are out of range.
        Cancelled: The task was cancelled.
    """
    loaded, session, stopped = context.model, measured_session(context), task.cancel.is_set
    first, last = command.first, command.last
    session.position  # noqa: B018 - raises if there is no prompt
    if not 1 <= first < last:
        raise StepError(
            f"A race can't go from {first} to {last} tokens.",
            "Begin at 1 or later, and end beyond the beginning.",
        )
    window = session.facts.context_window
    if window is not None and last > window:
        raise StepError(
            f"A race to {last} tokens exceeds the model's context window of {window}.",
            f"Race to {window} tokens or fewer.",
        )
    path = session.tree.tokens(session.node)
    cached = session.runner.fresh()
    plain = replace(loaded.settings, kv_bits=None, max_kv_size=None, prefill_step_size=None)
    uncached = Runner(loaded.model, plain, make_kv=loaded.make_kv)
    tree, pending = TokenTree(), dict[int, bytes]()
    reader = NodeReader(session.tokens, tree, pending)

    def pick(node: int, row: Row) -> int:
        return reader.sample(node, row, session.settings).sampled.picked

    yield RaceOpened(session.node, first, last, len(path), RACE_HOW)
    yield Measuring("Race", 0, first, "warm-up")
    warm, ids = cached.fresh(), path[:WARM_UP_TOKENS]
    warm.forward_path(ids, prompt_chunks(len(ids)), stopped)
    for _ in range(WARM_UP_ROUNDS):
        poll(stopped)
        warm.forward(ids[-1])
        uncached.forward_uncached(ids, stopped)
    ids = path[:first]
    row = cached.forward_path(ids, cut_chunks(session.tree.chunks(session.node), len(ids) - 1), stopped)
    node = tree.add_prompt(ROOT, ids)[-1]
    picked = pick(node, row)
    while (depth := tree[node].depth) < first:
        poll(stopped)
        yield Measuring("Race", depth, first, "to the first length")
        token = path[depth] if depth < len(path) else picked
        row = cached.forward(token)
        node = reader.add_token(node, token, "sampled")
        picked = pick(node, row)

    cached_total = uncached_total = largest = 0.0
    differences: list[int] = []
    for length in range(first + 1, last + 1):
        poll(stopped)
        token = path[length - 1] if length <= len(path) else picked
        ids = [*tree.tokens(node), token]
        if length % 2:
            row, cached_ms = timed(cached.forward, token)
            other, uncached_ms = timed(uncached.forward_uncached, ids, stopped)
        else:
            other, uncached_ms = timed(uncached.forward_uncached, ids, stopped)
            row, cached_ms = timed(cached.forward, token)
        text = session.tokens.text(token, pending.get(node, b""))[0]
        node = reader.add_token(node, token, "sampled")
        picked, other_picked = pick(node, row), pick(node, other)
        difference = float(absolute_difference(row, other).max())
        cached_total, uncached_total = cached_total + cached_ms, uncached_total + uncached_ms
        largest = max(largest, difference)
        if other_picked != picked:
            differences.append(length)
        yield RaceStep(
            tokens=length,
            id=token,
            text=text,
            cached_ms=cached_ms,
            uncached_ms=uncached_ms,
            cached_total_ms=cached_total,
            uncached_total_ms=uncached_total,
            cached_pick=picked,
            uncached_pick=other_picked,
            largest_difference=difference,
            kv_bytes=cached.kv.reading().used_bytes,
            passed_bytes=uncached.kv.last_pass[1],
        )
    yield RaceEnded(last - first, cached_total, uncached_total, tuple(differences), largest)


# ---- quantized KV caches -----------------------------------------------------------------------

REPORT_SECONDS = 0.2
GROUPS_TRIED = (64, 32)
"""mlx_lm's default group size, then the one for smaller heads."""
FORMULA = (
    "tokens held x KV heads x (head size x bits / 8), for keys and for values of each layer; quantized also a scale"
    " and a bias in the model's own type for each group: tokens held x KV heads x (head size / group) x 2 x bytes"
)


def compare_kv(context: Context, command: CompareKV, task: Task) -> Iterator[Record]:
    """Compute the path with caches of several precisions, and compare bytes and logits.

    At every precision the path runs as in mlx_lm: the prompt in chunks except its last token, quantized after each
    chunk, then token by token. The path in the model's own type runs in the same way, so that only the precision
    differs.

    Yields:
        Progress records, and after each precision all results so far.

    Raises:
        SettingsError: The bits or the group size are out of their range.
        StepError: There is no prompt.
        Cancelled: The task was cancelled.
    """
    loaded, session, stopped = context.model, measured_session(context), task.cancel.is_set
    bits, group_size = command.bits, command.group_size
    for precision in bits:
        if precision not in KV_BITS:
            known = ", ".join(map(str, KV_BITS))
            raise SettingsError("kv_bits", f"KV bits must be one of {known}, not {precision}.")
    if group_size is not None and group_size not in KV_GROUP_SIZES:
        known = ", ".join(map(str, KV_GROUP_SIZES))
        raise SettingsError("kv_group_size", f"KV group size must be one of {known}, not {group_size}.")
    session.position  # noqa: B018 - raises if there is no prompt
    node, ids, chunks = session.node, session.tree.tokens(session.node), session.tree.chunks(session.node)
    own_type = replace(loaded.settings, kv_bits=None, quantized_kv_start=0)
    costs: list[KVCost] = []

    runner = Runner(loaded.model, own_type)
    own_row, ms = yield from _run(runner, ids, chunks, "the model's own type", stopped)
    layers = [(kind_of(cache), cache) for cache in runner.kv.caches]
    arrays = [array for kind, cache in layers if kind.quantizable for array in kind.buffers(cache)]
    shapes = [(array.shape[1], array.shape[3], array.itemsize) for array in arrays]
    """KV heads, head size and bytes per number of each array that can be quantized."""
    rest = sum(kind.read(cache)[3] for kind, cache in layers if not kind.quantizable)
    """Bytes of the caches that can't be quantized."""

    def cost(precision: int, group: int | None, runner: Runner, row: Row, ms: float, note: str) -> KVCost:
        total, change = rest, absolute_difference(row, own_row)
        for heads, size, itemsize in shapes:
            total += len(ids) * heads * (size * precision) // 8
            total += len(ids) * heads * (size // group) * 2 * itemsize if group is not None else 0
        reading = runner.kv.reading()
        return KVCost(
            bits=precision,
            group_size=group,
            formula_bytes=total,
            used_bytes=reading.used_bytes,
            allocated_bytes=reading.allocated_bytes,
            largest_change=float(change.max()),
            mean_change=float(change.mean()),
            same_top=int(row.argmax()) == int(own_row.argmax()),
            ms=ms,
            note=note,
        )

    itemsize = shapes[0][2] if shapes else getattr(mx, loaded.facts.dtype).size
    costs.append(cost(8 * itemsize, None, runner, own_row, ms, ""))
    yield KVCompared(node, len(ids), tuple(costs), FORMULA, last=not bits)

    others = sorted({kind.name for kind, _ in layers if not kind.quantizable})
    note = f"Caches of kind {', '.join(others)} stay as they are: mlx-lm quantizes only plain ones."
    group, refusal = _group({kind.name for kind, _ in layers}, {size for _, size, _ in shapes}, group_size)
    for precision in bits:
        if group is None:
            costs.append(_refused(precision, group_size, refusal))
        else:
            settings = replace(own_type, kv_bits=precision, kv_group_size=group, max_kv_size=None)
            runner = Runner(loaded.model, settings)
            try:
                row, ms = yield from _run(runner, ids, chunks, f"{precision} bits", stopped)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                # RuntimeError if a backend lacks the packed matrix product: MLX 0.32 on CUDA
                why = f"This model's attention can't use a quantized KV cache ({first_line(error)})."
                costs.append(_refused(precision, group, why))
            else:
                costs.append(cost(precision, group, runner, row, ms, note if others else ""))
        yield KVCompared(node, len(ids), tuple(costs), FORMULA, last=precision == bits[-1])


def _run(
    runner: Runner, ids: Sequence[int], chunks: Chunks, detail: str, stopped: Stopped
) -> Generator[Measuring, None, tuple[Row, float]]:
    """Run a path over an empty cache, with a progress record every `REPORT_SECONDS`.

    Args:
        runner: A runner with an empty cache.
        ids: The path.
        chunks: Parts of the path that run in chunks.
        detail: Description for the progress records.
        stopped: Polled before each chunk and token.

    Returns:
        The logits after the path, and the ms that it took.
    """
    row: Row = np.empty(0, dtype=np.float32)
    begun, reported, kv = time.perf_counter(), 0.0, runner.kv
    while (offset := kv.offset) < len(ids):
        poll(stopped)
        if time.perf_counter() - reported > REPORT_SECONDS:
            reported = time.perf_counter()
            yield Measuring("CompareKV", offset, len(ids), detail)
        if (end := chunk_end(chunks, offset)) > offset:
            runner.forward_chunk(ids[offset : min(offset + FIXED_CHUNK, end)])
            mx.clear_cache()
        else:
            row = runner.forward(ids[offset])
    return row, (time.perf_counter() - begun) * 1000


def _group(kinds: Set[str], sizes: Set[int], wanted: int | None) -> tuple[int | None, str]:
    """The group size, and the reason if there is none.

    Args:
        kinds: Names of the kinds of cache.
        sizes: Head sizes of those that can be quantized.
        wanted: The requested group size; None for the first that divides the head sizes.
    """
    if not sizes:
        names = ", ".join(sorted(kinds))
        return None, f"Caches of kind {names} can't be quantized in mlx-lm: only plain ones can."
    tried = GROUPS_TRIED if wanted is None else (wanted,)
    group = next((size for size in tried if size in valid_group_sizes(sizes)), None)
    return group, "" if group is not None else group_size_problem(sizes, tried[0])


def _refused(bits: int, group: int | None, why: str) -> KVCost:
    return KVCost(
        bits=bits, group_size=group, formula_bytes=0, used_bytes=0, allocated_bytes=0, largest_change=0.0,
        mean_change=0.0, same_top=False, ms=0.0, refused=why,
    )  # fmt: skip

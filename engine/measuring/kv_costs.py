"""Bytes saved by a quantized KV cache, and the change of the logits: the session's path at each precision.

At every precision the path runs as in mlx_lm: the prompt in chunks except its last token, quantized after each chunk,
then token by token. The path in the model's own type runs in the same way, so that only the precision differs.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence, Set

import mlx.core as mx
import numpy as np
from msgspec.structs import replace

from engine.cache.kinds import group_size_problem, kind_of, valid_group_sizes
from engine.errors import Cancelled, SettingsError, first_line
from engine.model.forward import FIXED_CHUNK, Runner
from engine.model.load import Loaded
from engine.protocol import KVCompared, KVCost, Measuring
from engine.sampling.ranking import Row, absolute_difference
from engine.session.session import Session
from engine.settings import KV_BITS, KV_GROUP_SIZES
from engine.task import Stopped, never
from engine.tree import Chunks, chunk_end

REPORT_SECONDS = 0.2
GROUPS_TRIED = (64, 32)
"""mlx_lm's default group size, then the one for smaller heads."""
FORMULA = (
    "tokens held x KV heads x (head size x bits / 8), for keys and for values of each layer; quantized also a scale"
    " and a bias in the model's own type for each group: tokens held x KV heads x (head size / group) x 2 x bytes"
)


def compare(
    loaded: Loaded,
    session: Session,
    bits: Sequence[int] = (8, 4),
    group_size: int | None = None,
    stopped: Stopped = never,
) -> Iterator[Measuring | KVCompared]:
    """Compute the path with caches of several precisions; the session and its cache don't change.

    Args:
        loaded: The session's model.
        session: A session with a prompt.
        bits: Bits of the quantized caches, which are compared with a cache in the model's own type.
        group_size: Group size: numbers that share a scale. None for the first of 64 and 32 that divides the head sizes.
        stopped: Polled before each chunk and token.

    Yields:
        Progress records, and after each precision all results so far.

    Raises:
        SettingsError: `bits` or `group_size` is out of its range.
        StepError: There is no prompt.
        Cancelled: `stopped` returned True.
    """
    _check(bits, group_size)
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


def _check(bits: Sequence[int], group_size: int | None) -> None:
    for precision in bits:
        if precision not in KV_BITS:
            raise SettingsError("kv_bits", f"KV bits must be one of {_list(KV_BITS)}, not {precision}.")
    if group_size is not None and group_size not in KV_GROUP_SIZES:
        message = f"KV group size must be one of {_list(KV_GROUP_SIZES)}, not {group_size}."
        raise SettingsError("kv_group_size", message)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _run(
    runner: Runner, ids: Sequence[int], chunks: Chunks, detail: str, stopped: Stopped
) -> Generator[Measuring, None, tuple[Row, float]]:
    """Run a path over an empty cache, with a progress record every `REPORT_SECONDS`.

    Args:
        runner: A runner with an empty cache.
        ids: The path.
        chunks: The stretches of it that run in chunks.
        detail: Words for the progress.
        stopped: Polled before each chunk and token.

    Returns:
        The logits after the path, and the ms that it took.
    """
    row: Row = np.empty(0, dtype=np.float32)
    begun, reported, kv = time.perf_counter(), 0.0, runner.kv
    while (offset := kv.offset) < len(ids):
        if stopped():
            raise Cancelled
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
        wanted: See `compare`.
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

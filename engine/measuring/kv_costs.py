"""What a quantized KV cache saves, and how it changes the logits: the session's path, recomputed at each precision.

Every precision runs the path as mlx_lm would: the prompt in chunks but for its last token, quantized after each chunk,
then token by token. The model's own type runs the same way, so that only the precision differs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kind import Kind
from engine.cache.kinds import group_size_problem, kind_of, valid_group_sizes
from engine.errors import Cancelled, SettingsError, first_line
from engine.model.forward import FIXED_CHUNK, Runner
from engine.model.load import Loaded
from engine.protocol import KVCompared, KVCost, Measuring
from engine.sampling.ranking import Row, absolute_difference
from engine.session.session import Session
from engine.settings import KV_BITS, KV_GROUP_SIZES, LoadSettings
from engine.task import Stopped, never
from engine.tree import Chunks, chunk_end

REPORT_SECONDS = 0.2
GROUPS_TRIED = (64, 32)
"""mlx_lm's default, then the size for smaller heads."""
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
    """Compute the path in caches of several precisions; the session and its cache don't change.

    Args:
        loaded: The session's model.
        session: Has read a prompt.
        bits: Of the quantized caches, in addition to the model's own type.
        group_size: Numbers that share a scale; None for the first of 64 and 32 that divides the heads.
        stopped: Polled before each chunk and token.

    Yields:
        The progress, and after each precision all results so far.

    Raises:
        SettingsError: `bits` or `group_size` is out of its range.
        StepError: There is no prompt.
        Cancelled: `stopped` returned True.
    """
    _check(bits, group_size)
    session.position  # noqa: B018 - raises where there is no prompt
    run = PrecisionComparison(loaded, session, stopped)
    yield from run.own()
    yield run.record(last=not bits)
    for precision in bits:
        yield from run.quantized(precision, group_size)
        yield run.record(last=precision == bits[-1])


def _check(bits: Sequence[int], group_size: int | None) -> None:
    for precision in bits:
        if precision not in KV_BITS:
            raise SettingsError("kv_bits", f"KV bits must be one of {_list(KV_BITS)}, not {precision}.")
    if group_size is not None and group_size not in KV_GROUP_SIZES:
        raise SettingsError(
            "kv_group_size", f"KV group size must be one of {_list(KV_GROUP_SIZES)}, not {group_size}."
        )


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


class _Base(Struct, frozen=True):
    """The path in the model's own type."""

    row: Row
    bits: int
    shapes: tuple[tuple[int, int, int, int], ...]
    """Of the arrays that can be quantized: tokens held, heads, head size, bytes of a number."""
    rest: int
    """Bytes of the caches that can't."""


class PrecisionComparison:
    """One path in several precisions; see `compare`."""

    def __init__(self, loaded: Loaded, session: Session, stopped: Stopped) -> None:
        self._loaded = loaded
        self._stopped = stopped
        self._node = session.node
        self._ids = session.tree.tokens(session.node)
        self._chunks = session.tree.chunks(session.node)
        self._settings = replace(loaded.settings, kv_bits=None, quantized_kv_start=0)
        self._costs: list[KVCost] = []
        self._base: _Base | None = None

    def record(self, last: bool) -> KVCompared:
        """All results so far."""
        return KVCompared(self._node, len(self._ids), tuple(self._costs), FORMULA, last)

    def own(self) -> Iterator[Measuring]:
        """The path in the model's own type, which the others are compared with."""
        run = self._run(self._settings, "the model's own type")
        yield from run.go()
        base = self._base = _base(run, getattr(mx, self._loaded.facts.dtype).size)
        reading = run.runner.kv.reading()
        self._costs.append(
            KVCost(
                bits=base.bits, group_size=None, formula_bytes=_formula(base, base.bits, None),
                used_bytes=reading.used_bytes, allocated_bytes=reading.allocated_bytes, largest_change=0.0,
                mean_change=0.0, same_top=True, ms=run.ms,
            )
        )  # fmt: skip

    def quantized(self, bits: int, group_size: int | None) -> Iterator[Measuring]:
        """The path in a quantized cache, or why there is none."""
        base, kinds = self._base, self._kinds()
        assert base is not None
        group, refused = _group(base, kinds, group_size)
        if refused:
            self._costs.append(_refused(bits, group_size, refused))
            return
        settings = replace(self._settings, kv_bits=bits, kv_group_size=group, max_kv_size=None)
        run = self._run(settings, f"{bits} bits")
        try:
            yield from run.go()
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            # a RuntimeError where a backend multiplies no such packed matrix: MLX 0.32 on CUDA
            refusal = f"This model's attention can't use a quantized KV cache ({first_line(error)})."
            self._costs.append(_refused(bits, group, refusal))
            return
        self._costs.append(_cost(run, base, bits, group, kinds))

    def _run(self, settings: LoadSettings, detail: str) -> _Path:
        runner = Runner(self._loaded.model, settings)
        return _Path(runner, self._ids, self._chunks, detail, self._stopped)

    def _kinds(self) -> list[Kind]:
        return [kind_of(cache) for cache in Runner(self._loaded.model, self._settings).kv.caches]


class _Path:
    """One run of a path over a cache.

    Args:
        runner: With an empty cache.
        ids: The path.
        chunks: Which of them run in chunks.
        detail: What is computed, for the progress.
        stopped: Polled before each chunk and token.
    """

    def __init__(
        self, runner: Runner, ids: Sequence[int], chunks: Chunks, detail: str, stopped: Stopped
    ) -> None:
        self.runner = runner
        self.ids = ids
        self.row: Row = np.empty(0, dtype=np.float32)
        self.ms = 0.0
        self._chunks = chunks
        self._detail = detail
        self._stopped = stopped

    def go(self) -> Iterator[Measuring]:
        """Run it, with a progress record every `REPORT_SECONDS`."""
        begun, reported, kv = time.perf_counter(), 0.0, self.runner.kv
        while kv.offset < len(self.ids):
            if self._stopped():
                raise Cancelled
            if time.perf_counter() - reported > REPORT_SECONDS:
                reported = time.perf_counter()
                yield Measuring("CompareKV", kv.offset, len(self.ids), self._detail)
            self._on()
        self.ms = (time.perf_counter() - begun) * 1000

    def _on(self) -> None:
        offset = self.runner.kv.offset
        if (end := chunk_end(self._chunks, offset)) > offset:
            self.runner.forward_chunk(self.ids[offset : min(offset + FIXED_CHUNK, end)])
            mx.clear_cache()
        else:
            self.row = self.runner.forward(self.ids[offset])


def _base(run: _Path, itemsize: int) -> _Base:
    layers = [(kind_of(cache), cache) for cache in run.runner.kv.caches]
    arrays = [array for kind, cache in layers if kind.quantizable for array in kind.buffers(cache)]
    held = len(run.ids)
    shapes = tuple((held, array.shape[1], array.shape[3], array.itemsize) for array in arrays)
    rest = sum(kind.read(cache)[3] for kind, cache in layers if not kind.quantizable)
    return _Base(run.row, 8 * (shapes[0][3] if shapes else itemsize), shapes, rest)


def _formula(base: _Base, bits: int, group: int | None) -> int:
    """Bytes of the tokens held, from the shapes alone."""
    total = base.rest
    for held, heads, size, itemsize in base.shapes:
        total += held * heads * (size * (itemsize * 8 if group is None else bits)) // 8
        total += held * heads * (size // group) * 2 * itemsize if group is not None else 0
    return total


def _group(base: _Base, kinds: Sequence[Kind], wanted: int | None) -> tuple[int, str]:
    """The group size, and why there is no quantized cache and what to use instead, empty if there is one."""
    if not base.shapes:
        names = ", ".join(sorted({kind.name for kind in kinds}))
        return 0, f"Caches of kind {names} can't be quantized in mlx-lm: only plain ones can."
    sizes = {size for _, _, size, _ in base.shapes}
    tried = GROUPS_TRIED if wanted is None else (wanted,)
    chosen = next((size for size in tried if size in valid_group_sizes(sizes)), 0)
    return chosen, "" if chosen else group_size_problem(sizes, tried[0])


def _refused(bits: int, group: int | None, why: str) -> KVCost:
    return KVCost(
        bits=bits, group_size=group, formula_bytes=0, used_bytes=0, allocated_bytes=0, largest_change=0.0,
        mean_change=0.0, same_top=False, ms=0.0, refused=why,
    )  # fmt: skip


def _cost(run: _Path, base: _Base, bits: int, group: int, kinds: Sequence[Kind]) -> KVCost:
    reading, change = run.runner.kv.reading(), absolute_difference(run.row, base.row)
    others = sorted({kind.name for kind in kinds if not kind.quantizable})
    return KVCost(
        bits=bits,
        group_size=group,
        formula_bytes=_formula(base, bits, group),
        used_bytes=reading.used_bytes,
        allocated_bytes=reading.allocated_bytes,
        largest_change=float(change.max()),
        mean_change=float(change.mean()),
        same_top=int(run.row.argmax()) == int(base.row.argmax()),
        ms=run.ms,
        note=f"Caches of kind {', '.join(others)} stay as they are: mlx-lm quantizes only plain ones."
        if others
        else "",
    )

"""KV caches of a model over ranks.

Every rank has the caches of its part of the model. Ranks with a part of every layer have the same kinds of cache; ranks
with different layers may have different kinds and sizes. The decisions of a session therefore depend on all ranks: if
one rank refuses, all do, and bytes add up. All ranks evaluate the logits and caches of a forward pass at once, so that
no collective operation is left in a lazy graph, among those of the next forward pass.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import Reading, Snapshot
from engine.cache.live import KV
from engine.errors import RankError, StepError
from engine.model.layers import patched
from engine.patches.rotary import shared_rotary_factors
from engine.protocol import CacheKind, Sharding
from engine.ranks.group import Group
from engine.settings import LoadSettings

LOGITS_BYTES = 64 * 2**20
"""Largest size in bytes of a chunk's logits, which are computed for all of its tokens."""
TOLERANCE = 0.05
"""Largest difference of the largest logits on two machines, relative to their size. On one machine they must be equal:
MLX's ring gives all ranks the same sums, to the last bit."""
AGAIN = "Start the program again; the session can be saved before."
COMMUNICATIONS = ("all_gather", "all_max", "all_min", "all_sum", "recv", "recv_like", "send", "sum_scatter")


class RankState(Struct, frozen=True):
    """The contents of one rank's caches, and the operations that they support."""

    readings: tuple[Reading, ...]
    steps_back: bool
    partial_restore: bool
    chunks_matter: bool
    quantized: tuple[bool, ...]
    unsupported: tuple[CacheKind, str] | None
    bytes_per_token: int


class RankedKV(KV):
    """The live cache of one session, of which this process has its rank's part.

    Args:
        group: All ranks.
        sharding: How they divide the model.
        layers: Indexes of the layers that this rank has, or has a part of.
        vocabulary: Number of tokens of the model.
        model: This rank's part of it.
        settings: See `KV`.
    """

    lazy = False

    def __init__(
        self,
        group: Group,
        sharding: Sharding,
        layers: range,
        vocabulary: int,
        model: Any,
        settings: LoadSettings,
    ) -> None:
        self._group, self.sharding, self.layers, self.model = group, sharding, layers, model
        self.most_at_once = max(8, LOGITS_BYTES // (4 * vocabulary))
        self.reads_prompts = group.rank == 0
        self._known: tuple[tuple[int, int], list[RankState]] | None = None
        """The states of all ranks, with the offset and the layout at which they were read."""
        super().__init__(model, settings)

    # ---- operations of every rank on its caches ---------------------------------------------------

    def run(
        self, compute: Callable[..., Any], tokens: mx.array, *, chunk: bool = False, begin: bool = False
    ) -> mx.array:
        """See `KV`; logits and caches are evaluated at once (`begin` has no effect), and the last logits are rank 0's.

        Raises:
            RankError: Another rank ran other tokens, or has other logits.
        """
        if compute is not self._model:
            raise StepError(
                "Interventions can't be computed over several processes.", "Run the model in one."
            )
        try:
            with self._group.patience(tokens.size):
                logits = super().run(compute, tokens, chunk=chunk)
                mx.eval(logits, self.state())
        except Exception as error:
            self._group.shared_failure(error)
            raise
        last = logits[:, -1:]
        rows = np.array(last.astype(mx.float32))
        ran = zlib.crc32(np.array(tokens).tobytes(), self.offset)
        found = self._group.gather((ran, zlib.crc32(rows.tobytes()), float(rows.max()), self._state()))
        for rank, (its_tokens, its_crc, largest, _) in enumerate(found):
            self._compare(rank, its_tokens == ran, its_crc == found[0][1], largest, found[0][2])
        self._known = (self.offset, self.layout), [each[3] for each in found]
        if any(each[1] != found[0][1] for each in found):  # machines that round differently
            logits = mx.concatenate([logits[:, :-1], self._group.first_array(last)], axis=1)
        return logits

    def _compare(self, rank: int, same_tokens: bool, same_row: bool, largest: float, first: float) -> None:
        name, bound = self._group.names[rank], TOLERANCE * max(1.0, abs(first), abs(largest))
        elsewhere = name != f"rank {rank}"
        said = ""
        if not same_tokens:
            said = "ran other tokens"
        elif not same_row and not (elsewhere and abs(largest - first) <= bound):
            said = f"computed other logits (the largest is {largest:.6g}, not {first:.6g})"
        if said:
            raise RankError(f"{name.capitalize()} was lost: it {said}.", AGAIN, rank)

    def shared_ms(self, ms: float) -> float:
        return float(self._group.first(ms))

    def stays(self) -> bool:
        """False: tokens are saved before they are trimmed, on all ranks."""
        return False

    def undo_records(self) -> tuple[Snapshot, ...] | None:
        return self._with_others(super().undo_records())

    def snapshot(self, start: int, end: int | None = None) -> tuple[Snapshot, ...]:
        return self._with_others(super().snapshot(start, end)) or ()

    def _with_others(self, own: tuple[Snapshot, ...] | None) -> tuple[Snapshot, ...] | None:
        """Snapshots that count the bytes of all ranks, so that all drop the same ones; None if a rank has none."""
        sizes = self._group.gather(None if own is None else sum(each.nbytes for each in own))
        if own is None or None in sizes:
            return None
        return (replace(own[0], elsewhere=sum(sizes) - sizes[self._group.rank]), *own[1:])

    def restore(self, saved: Sequence[Snapshot], at: int, end: int) -> int:
        return sum(self._group.gather(super().restore(saved, at, end)))

    # ---- combined answers of all ranks -------------------------------------------------------------

    def _state(self) -> RankState:
        return RankState(
            tuple(super().readings()), super().can_step_back(), super().partial_restore(), super().chunks_matter,
            super().quantized(), super().without_snapshots(), super().bytes_per_token() or 0,
        )  # fmt: skip

    @property
    def _states(self) -> list[RankState]:
        """The state of each rank, read again after each change."""
        at = self.offset, self.layout
        if self._known is None or self._known[0] != at:
            self._known = at, self._group.gather(self._state())
        return self._known[1]

    def trim_refusal(self, offset: int) -> str:
        return next(filter(None, self._group.gather(super().trim_refusal(offset))), "")

    def could_trim(self, offset: int, to: int) -> bool:
        return all(self._group.gather(super().could_trim(offset, to)))

    def recovered(self, offset: int) -> bool:
        return all(self._group.gather(super().recovered(offset)))

    def can_step_back(self) -> bool:
        return all(state.steps_back for state in self._states)

    def without_snapshots(self) -> tuple[CacheKind, str] | None:
        return next((state.unsupported for state in self._states if state.unsupported), None)

    def partial_restore(self) -> bool:
        return all(state.partial_restore for state in self._states)

    @property
    def chunks_matter(self) -> bool:
        return any(state.chunks_matter for state in self._states)

    def quantized(self) -> tuple[bool, ...]:
        return tuple(each for state in self._states for each in state.quantized)

    def quantizable(self) -> tuple[tuple[CacheKind, bool], ...]:
        return tuple(each for own in self._group.gather(super().quantizable()) for each in own)

    def kinds(self) -> tuple[CacheKind, ...]:
        return tuple(reading[0] for reading in self.readings())

    def bytes_per_token(self) -> int | None:
        return sum(state.bytes_per_token for state in self._states) or None

    def readings(self) -> Sequence[Reading]:
        """See `KV`: a layer's bytes on all ranks, or the layers of all ranks in the model's order."""
        by_rank = [state.readings for state in self._states]
        if self.sharding == "pipeline":  # the last rank has the first layers
            return [reading for readings in reversed(by_rank) for reading in readings]
        return [
            (*layer[0][:3], sum(each[3] for each in layer), sum(each[4] for each in layer))
            for layer in zip(*by_rank, strict=True)
        ]

    def own_readings(self) -> Sequence[Reading]:
        """The readings of this rank alone."""
        return list(super().readings())

    def fenced_ms(self, token: int) -> list[tuple[float, float]]:
        """Run a token with fences around each communication.

        Returns:
            For each rank, the milliseconds in compute, and in communication including the wait for other ranks.
        """
        spent = 0.0

        def fenced(communicate: Callable[..., mx.array]) -> Callable[..., mx.array]:
            def communicated(*given: Any, **named: Any) -> mx.array:
                nonlocal spent
                mx.eval([each for each in given if isinstance(each, mx.array)])
                begun = time.perf_counter()
                result = communicate(*given, **named)
                mx.eval(result)
                spent += time.perf_counter() - begun
                return result

            return communicated

        names = [name for name in COMMUNICATIONS if hasattr(mx.distributed, name)]
        begun = time.perf_counter()
        with patched(*((mx.distributed, name, fenced(getattr(mx.distributed, name))) for name in names)):
            with shared_rotary_factors():
                logits = KV.run(self, self._model, mx.array([[token]]))
            mx.eval(logits, self.state())
        total = time.perf_counter() - begun
        return self._group.gather(((total - spent) * 1000, spent * 1000))

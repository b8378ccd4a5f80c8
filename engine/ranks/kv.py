"""The cache of a model over ranks: rank 0's own caches, and the same operations on those of all others.

`RankedKV` overrides the operations that every rank executes; what is composed of them in `KV` is decided here once,
for all. What a rank answers for its own layers (whether they can be trimmed, what they hold) is put together: a
refusal of one is a refusal of all, bytes add up. All ranks evaluate a forward's logits and caches at once, so that no
collective is left in a lazy graph, to be mixed with those of the next operation.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar, cast

import mlx.core as mx
from msgspec.structs import asdict

from engine.cache.kinds import Reading, Snapshot
from engine.cache.live import KV
from engine.errors import StepError
from engine.protocol import CacheKind, Sharding
from engine.ranks.mirror import Print, RankHeld, fenced_forward, held
from engine.ranks.ring import Answer, Ranks
from engine.settings import LoadSettings
from engine.tree import Chunks

T = TypeVar("T")
LOGITS_BYTES = 64 * 2**20
"""Bytes of the logits of an adapting chunk at most: here they are computed for all of its tokens."""


class Handle:
    """What all ranks know a snapshot by; once nothing has it here, the others drop theirs.

    Args:
        number: Its number.
        released: Takes it then.
    """

    __slots__ = ("_released", "number")

    def __init__(self, number: int, released: deque[tuple[str, int]]) -> None:
        self.number, self._released = number, released

    def __del__(self) -> None:
        self._released.append(("snapshot", self.number))


class MirroredSnapshot(Snapshot, frozen=True):
    """The snapshots of all other ranks; the last of the own ones."""

    handle: Handle | None = None
    size: int = 0
    """Bytes of them all."""

    @property
    def nbytes(self) -> int:
        """Bytes that they keep alive on the other ranks."""
        return self.size


class RankedKV(KV):
    """The live cache of one session on all ranks.

    Args:
        ranks: The other ones.
        sharding: How they divide the model.
        vocabulary: Tokens of the model.
        model: Rank 0's part of it.
        settings: As for `KV`.

    Raises:
        RankError: From every operation: a rank was lost.
    """

    lazy = False

    def __init__(
        self, ranks: Ranks, sharding: Sharding, vocabulary: int, model: Any, settings: LoadSettings
    ) -> None:
        self._ranks, self._sharding = ranks, sharding
        self._number = ranks.name_one()
        self.most_at_once = max(8, LOGITS_BYTES // (4 * vocabulary))
        _, answers = ranks.together("make", lambda: None, kv=self._number, settings=asdict(settings))
        weakref.finalize(self, ranks.released.append, ("kv", self._number))
        self._take(answers)
        super().__init__(model, settings)

    # ---- operations of all ranks --------------------------------------------------------------

    def _each(self, op: str, own: Callable[[], T], *, work: int = 0, **fields: Any) -> tuple[T, list[Answer]]:
        """Execute an operation on every rank; returns this one's result, and the others' answers."""
        result, answers = self._ranks.together(op, own, work=work, kv=self._number, **fields)
        self._take(answers)
        for rank, other in enumerate(self.others, 1):
            if other.offset != self.offset:
                self._ranks.lose(rank, f"holds {other.offset} tokens, where there are {self.offset}")
                self._ranks.check()
        return result, answers

    def _take(self, answers: list[Answer]) -> None:
        self.others: list[RankHeld] = [held(answer) for answer in answers]
        """What the other ranks hold."""

    def clear(self) -> None:
        """See `KV`; once a rank is lost, of this one's caches alone."""
        if self._ranks.loss is None:
            self._each("clear", super().clear)
        else:
            super().clear()

    def copied(self) -> Self:
        made = super().copied()
        made._number = self._ranks.name_one()
        weakref.finalize(made, self._ranks.released.append, ("kv", made._number))
        made._each("copied", lambda: None, other=self._number)
        return made

    def adopt_rows(self, other: KV, rows: int) -> None:
        self._each("adopt_rows", lambda: KV.adopt_rows(self, other, rows), other=_number(other), rows=rows)

    def reorder(self, rows: Sequence[int], since: int | None) -> None:
        self._each("reorder", lambda: KV.reorder(self, rows, since), rows=list(rows), since=since)

    def run(
        self,
        compute: Callable[..., Any],
        tokens: mx.array,
        *,
        chunk: bool = False,
    ) -> mx.array:
        """See `KV`; the logits and the caches are evaluated, so that there is nothing to begin."""
        if compute is not self._model:
            raise StepError(
                "Interventions can't be computed over several processes.", "Run the model in one."
            )

        def own() -> mx.array:
            logits = KV.run(self, compute, tokens, chunk=chunk)
            mx.eval(logits, self.state())
            return logits

        ids = cast(list[list[int]], tokens.tolist())
        logits, answers = self._each("run", own, work=tokens.size, ids=ids, chunk=chunk)
        mine = Print.of(logits)
        for rank, answer in enumerate(answers, 1):
            same_machine = self._ranks.hosts.ranks[rank].local
            if why := mine.disagreement(Print(*answer["print"]), same_machine):
                self._ranks.lose(rank, why)
                self._ranks.check()
        return logits

    def set_offset(self, offset: int, *, chunks: Chunks | None = None, layout: int | None = None) -> None:
        self._each(
            "set_offset", lambda: KV.set_offset(self, offset, chunks=chunks, layout=layout), offset=offset
        )

    def trim(self, offset: int) -> None:
        self._each("trim", lambda: KV.trim(self, offset), offset=offset)

    def recovered(self, offset: int) -> bool:
        """See `KV`; once a rank is lost there is nothing to recover."""
        if self._ranks.loss is not None:
            return True
        own, answers = self._each("recovered", lambda: KV.recovered(self, offset), offset=offset)
        return own and all(answer["result"] for answer in answers)

    def undo_records(self) -> tuple[Snapshot, ...] | None:
        own, snapshot = self._saved("undo_records", super().undo_records)
        return None if own is None or snapshot is None else (*own, snapshot)

    def undo(self, steps: Sequence[Sequence[Snapshot]]) -> None:
        numbers = [_handle(records) for records in steps]
        self._each("undo", lambda: KV.undo(self, [records[:-1] for records in steps]), steps=numbers)

    def stays(self) -> bool:
        """False: what is trimmed is saved before, on all ranks."""
        return False

    def snapshot(self, start: int, end: int | None = None) -> tuple[Snapshot, ...]:
        assert end in (None, self.offset)  # since nothing stays
        own, snapshot = self._saved("snapshot", lambda: KV.snapshot(self, start), start=start)
        assert snapshot is not None
        return (*own, snapshot)

    def restore(self, saved: Sequence[Snapshot], at: int, end: int) -> int:
        own, answers = self._each(
            "restore",
            lambda: KV.restore(self, saved[:-1], at, end),
            saved=_handle(saved),
            at=at,
            end=end,
        )
        return own + sum(int(answer["result"]) for answer in answers)

    def _saved(self, op: str, own: Callable[[], T], **fields: Any) -> tuple[T, MirroredSnapshot | None]:
        """Have every rank save something; returns this one's, and those of the others, None where one has none."""
        handle = Handle(self._ranks.name_one(), self._ranks.released)
        mine, answers = self._each(op, own, name=handle.number, **fields)
        sizes = [answer["result"] for answer in answers]
        return mine, None if None in sizes else MirroredSnapshot(handle=handle, size=sum(sizes))

    def fenced_ms(self, tokens: Sequence[int]) -> list[tuple[float, float]]:
        """Run a chunk of tokens with fences around each communication.

        Returns:
            Milliseconds in compute, and in communication with its waiting, by rank.
        """
        ids = [list(tokens)]
        own, answers = self._each(
            "fenced", lambda: fenced_forward(self, self._model, ids), work=len(tokens), ids=ids
        )
        return [own, *(tuple(answer["result"]) for answer in answers)]

    # ---- what all ranks say together ----------------------------------------------------------

    def trim_refusal(self, offset: int) -> str:
        if own := super().trim_refusal(offset):
            return own
        _, answers = self._each("trim_refusal", lambda: None, offset=offset)
        return next((answer["result"] for answer in answers if answer["result"]), "")

    def could_trim(self, offset: int, to: int) -> bool:
        if not super().could_trim(offset, to):
            return False
        # an offset of the answer is that of the caches now
        _, answers = self._each("could_trim", lambda: None, offset=offset, to=to)
        return all(answer["result"] for answer in answers)

    def can_step_back(self) -> bool:
        return super().can_step_back() and all(other.steps_back for other in self.others)

    def without_snapshots(self) -> tuple[CacheKind, str] | None:
        found = (super().without_snapshots(), *(other.unsupported for other in self.others))
        return cast("tuple[CacheKind, str] | None", next(filter(None, found), None))

    def partial_restore(self) -> bool:
        return super().partial_restore() and all(other.partial_restore for other in self.others)

    @property
    def chunks_matter(self) -> bool:
        return super().chunks_matter or any(other.chunks_matter for other in self.others)

    def quantized(self) -> tuple[bool, ...]:
        return tuple(each for other in self.others for each in other.quantized) + super().quantized()

    def kinds(self) -> tuple[CacheKind, ...]:
        return tuple(reading[0] for reading in self.readings())

    def bytes_per_token(self) -> int | None:
        own = super().bytes_per_token() or 0
        return own + sum(other.bytes_per_token for other in self.others) or None

    def readings(self) -> Sequence[Reading]:
        """See `KV`: a layer's bytes on all ranks, or the layers of all ranks in the model's order."""
        by_rank = [self.own_readings(), *(other.readings for other in self.others)]
        if self._sharding == "pipeline":  # the last rank has the first layers
            return [reading for readings in reversed(by_rank) for reading in readings]
        return [_sum(layer) for layer in zip(*by_rank, strict=True)]

    def own_readings(self) -> Sequence[Reading]:
        """Those of rank 0 alone."""
        return list(super().readings())


def _sum(layer: Sequence[Reading]) -> Reading:
    kind, tokens, limit = layer[0][:3]
    return kind, tokens, limit, sum(each[3] for each in layer), sum(each[4] for each in layer)


def _number(kv: KV) -> int:
    assert isinstance(kv, RankedKV)
    return kv._number


def _handle(saved: Sequence[Snapshot]) -> int:
    mirrored = saved[-1]
    assert isinstance(mirrored, MirroredSnapshot)
    assert mirrored.handle is not None
    return mirrored.handle.number

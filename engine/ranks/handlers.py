"""The commands of a session over ranks: a model loaded over several processes, and where step time goes."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from threading import Event
from typing import Any

from msgspec.structs import asdict, replace

from engine import protocol
from engine.cache.kinds import Reading
from engine.errors import Cancelled, LoadError, StepError
from engine.files import typed
from engine.model.facts import fingerprint
from engine.model.forward import MakeKV
from engine.model.load import Emit, Prepared, read_weights
from engine.protocol import (
    Loading,
    Measuring,
    RankFacts,
    RanksLoaded,
    RanksMeasured,
    RankTime,
    Record,
    Sharding,
)
from engine.ranks.hosts import hosts_of
from engine.ranks.kv import RankedKV
from engine.ranks.mirror import Shard, divide, facts, join, kept_from_waiting, sharding_of
from engine.ranks.ring import RING, Ranks
from engine.session.context import Context
from engine.settings import LoadSettings
from engine.task import Task

_kept: list[object] = []
"""The file, as long as the process."""


def keep_off_terminal() -> None:
    """Send what is written to descriptor 2 to a file without a name, where it is a terminal's.

    Python's own `sys.stderr` goes on to the terminal, by another descriptor: the objects that others hold of it, too.
    """
    buffer = getattr(sys.__stderr__, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if _kept or not os.isatty(2) or not isinstance(raw, io.FileIO) or raw.fileno() != 2:
        return
    file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
    _kept.append(file)
    raw.__init__(os.dup(2), "wb", closefd=False)  # type: ignore[misc]
    os.dup2(file.fileno(), 2)


# ---- loading a model over several processes ----------------------------------------------------

READ_BYTES = 2_000_000
"""Bytes of weights that count as much work as a token, for the time that a rank has to read them."""


class RanksSpread:
    """Divides a model over ranks; see `engine.model.load.Divider`."""

    def __init__(self) -> None:
        self.sharding: Sharding = "tensor"
        self._shard = Shard(0, 0)
        self._model: Any = None

    def divide(self, prepared: Prepared, settings: LoadSettings, emit: Emit, cancel: Event) -> MakeKV:
        """See `Divider`."""
        self._model, family = prepared.model, str(prepared.config.get("model_type"))
        hosts = hosts_of(settings)
        self.sharding = sharding_of(prepared.model, settings.shard, family)
        others = len(hosts.ranks) - 1
        emit(Loading("ranks", 0, others, "starting"))
        self.ranks = ranks = RING.opened(hosts)
        work = prepared.facts.weight_bytes // READ_BYTES
        _same_files(ranks, prepared, settings, family, work)
        if not ranks.joined:
            emit(Loading("ranks", others, others, "joining"))
            _join(ranks)

        def own() -> Shard:
            shard = divide(prepared.model, self.sharding, ranks.group, family)
            read_weights(prepared.model, emit, cancel)
            return shard

        self._shard, _ = ranks.together("divide", own, work=work, sharding=self.sharding)
        return partial(RankedKV, ranks, self.sharding, prepared.facts.vocabulary)

    def close(self) -> None:
        """Drop the parts of the model that other ranks have."""
        RING.unload()

    def loaded(self) -> RanksLoaded:
        """See `Divider`."""
        return RanksLoaded(self.sharding, self.facts(None))

    def facts(self, kv: RankedKV | None) -> tuple[RankFacts, ...]:
        """What each rank has now.

        Args:
            kv: The session's live cache; None where nothing is in it.
        """
        own, answers = self.ranks.together("facts", lambda: facts(self._shard, self._model))
        held: list[Sequence[Reading]] = (
            [kv.own_readings(), *(other.readings for other in kv.others)] if kv else [()] * self.ranks.size
        )
        return tuple(
            RankFacts(
                rank=rank,
                host=found["host"],
                pid=found["pid"],
                first_layer=found["first_layer"],
                layers=found["layers"],
                weight_bytes=found["weight_bytes"],
                memory_bytes=found["memory_bytes"],
                kv_used_bytes=sum(reading[3] for reading in readings),
                kv_allocated_bytes=sum(reading[4] for reading in readings),
            )
            for rank, (found, readings) in enumerate(zip((own, *answers), held, strict=True))
        )


def _same_files(ranks: Ranks, prepared: Prepared, settings: LoadSettings, family: str, work: int) -> None:
    """Have the other ranks build the model, and see that it is the same one."""
    sent = asdict(_for_others(prepared, settings))
    _, answers = ranks.together("load", lambda: None, work=work, settings=sent, family=family)
    own = fingerprint(prepared.path, settings.adapter_path)
    for process, answer in zip(ranks.processes, answers, strict=True):
        if refused := answer.get("refused"):
            raise LoadError(f"The model can't be loaded by {process.name}: {refused}")
        if answer["digest"] != own:
            raise LoadError(
                f"The model of {process.name} differs from the one here.",
                "Copy the same files to all machines.",
            )


def _for_others(prepared: Prepared, settings: LoadSettings) -> LoadSettings:
    """The settings for the other ranks, in which is decided what would otherwise depend on their machine."""
    scales = prepared.facts.quantization is not None and prepared.facts.dtype == "float32"
    return replace(
        settings,
        model=str(prepared.path) if prepared.path == typed(settings.model) else settings.model,
        adapter_path=None if settings.adapter_path is None else str(typed(settings.adapter_path)),
        dtype=prepared.dtype,
        float32_scales=scales,
    )


def _join(ranks: Ranks) -> None:
    """Make MLX's group of them."""
    meeting, backend = ranks.hosts.meeting(), ranks.hosts.backend
    keep_off_terminal()
    with kept_from_waiting([meeting.address]):
        try:
            ranks.group, _ = ranks.together(
                "join",
                lambda: join(0, backend, meeting.files, meeting.variables),
                backend=backend,
                files=meeting.files,
                variables=meeting.variables,
            )
        except RuntimeError as error:
            ranks.close()
            raise LoadError(
                f"The ranks can't be joined ({error}).",
                "Check that the machines reach each other at these addresses.",
            ) from error
    ranks.joined = True


# ---- the commands ------------------------------------------------------------------------------

Times = list[tuple[float, float]]
"""Milliseconds in compute and in communication, by rank."""


def measure_ranks(context: Context, command: protocol.MeasureRanks, task: Task) -> Iterator[Record]:
    """Measure where the time of a step goes, by rank."""
    session, spread = context.session, context.divider
    kv = session.kv
    if spread is None or not isinstance(kv, RankedKV):
        raise StepError("One process computes this model: there are no ranks.", "Start with --ranks 2.")
    token = session.next.picked
    steps: list[float] = []
    rounds: list[Times] = []
    for place in range(command.rounds + 1):
        if task.cancel.is_set():
            raise Cancelled
        yield Measuring(command.kind, place, command.rounds + 1, "ranks")
        runner = session.runner.copy()
        begun = time.perf_counter()
        runner.forward(token)
        steps.append((time.perf_counter() - begun) * 1000)
        copied = session.runner.copy().kv
        assert isinstance(copied, RankedKV)
        rounds.append(copied.fenced_ms([token]))
    counted, best = rounds[1:], min(rounds[1:], key=_compute)
    slowest = max(range(len(best)), key=lambda rank: best[rank][0])
    yield RanksMeasured(
        sharding=spread.sharding,
        ranks=spread.facts(kv),
        tokens=kv.offset,
        rounds=command.rounds,
        step_ms=min(steps[1:]),
        step_spread_ms=max(steps[1:]) - min(steps[1:]),
        times=tuple(_time(rank, best, counted) for rank in range(len(best))),
        slowest=slowest,
    )


def _compute(times: Times) -> float:
    return sum(compute for compute, _ in times)


def _time(rank: int, best: Times, counted: Sequence[Times]) -> RankTime:
    compute, communication = ([times[rank][part] for times in counted] for part in (0, 1))
    return RankTime(rank, *best[rank], max(compute) - min(compute), max(communication) - min(communication))

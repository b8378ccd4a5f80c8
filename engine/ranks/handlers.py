"""What a session over ranks needs of the engine's commands: how its model is divided, and where a step's time goes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled, StepError
from engine.protocol import Command, Measuring, RanksMeasured, RankTime
from engine.ranks.kv import RankedKV
from engine.ranks.ring import RING
from engine.ranks.spread import RanksSpread
from engine.settings import LoadSettings

Times = list[tuple[float, float]]
"""Milliseconds in compute and in communication, by rank."""


class RanksCommands:
    """Handlers of what is there for ranks alone.

    Args:
        desk: The session; it receives what divides a model.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._spread: RanksSpread | None = None
        desk.spread = self._begin

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {protocol.MeasureRanks: self._measure}

    def forget(self, model: bool) -> None:
        """With the model, drop the parts of it that other ranks have."""
        if model:
            self._spread = None
            RING.unload()

    def _begin(self, settings: LoadSettings) -> RanksSpread | None:
        self._spread = RanksSpread() if settings.divided else None
        return self._spread

    def _measure(self, command: protocol.MeasureRanks, call: Call) -> None:
        session, spread = self._desk.session, self._spread
        kv = session.kv
        if spread is None or not isinstance(kv, RankedKV):
            raise StepError("One process computes this model: there are no ranks.", "Start with --ranks 2.")
        token = session.next.picked
        steps: list[float] = []
        rounds: list[Times] = []
        for place in range(command.rounds + 1):
            if call.stopped():
                raise Cancelled
            self._desk.emit(Measuring(command.kind, place, command.rounds + 1, "ranks"))
            runner = session.runner.copy()
            begun = time.perf_counter()
            runner.forward(token)
            steps.append((time.perf_counter() - begun) * 1000)
            copied = session.runner.copy().kv
            assert isinstance(copied, RankedKV)
            rounds.append(copied.fenced_ms([token]))
        counted, best = rounds[1:], min(rounds[1:], key=_compute)
        slowest = max(range(len(best)), key=lambda rank: best[rank][0])
        self._desk.emit(
            RanksMeasured(
                sharding=spread.sharding,
                ranks=spread.facts(kv),
                tokens=kv.offset,
                rounds=command.rounds,
                step_ms=min(steps[1:]),
                step_spread_ms=max(steps[1:]) - min(steps[1:]),
                times=tuple(_time(rank, best, counted) for rank in range(len(best))),
                slowest=slowest,
            )
        )


def _compute(times: Times) -> float:
    return sum(compute for compute, _ in times)


def _time(rank: int, best: Times, counted: Sequence[Times]) -> RankTime:
    compute, communication = ([times[rank][part] for times in counted] for part in (0, 1))
    return RankTime(rank, *best[rank], max(compute) - min(compute), max(communication) - min(communication))

"""Load a model over several processes: what rank 0 does once the model is built, until all have read their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from threading import Event
from typing import Any

from engine.cache.kinds.kind import Reading
from engine.errors import LoadError
from engine.model.fingerprint import fingerprint
from engine.model.forward import MakeKV
from engine.model.load import Emit, Prepared, read_weights
from engine.paths import typed
from engine.protocol import Loading, RankFacts, RanksLoaded, Sharding
from engine.ranks.hosts import hosts_of
from engine.ranks.join import join, kept_from_waiting
from engine.ranks.kv import RankedKV
from engine.ranks.mirror import facts
from engine.ranks.quiet import keep_off_terminal
from engine.ranks.ring import RING, START_SECONDS, Ranks
from engine.ranks.shards import Shard, divide, sharding_of
from engine.settings import LoadSettings

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
        self.ranks = ranks = RING.opened(hosts, settings.rank_patience)
        work = prepared.whole.nbytes // READ_BYTES
        _same_files(ranks, prepared, settings, family, work)
        if not ranks.joined:
            emit(Loading("ranks", others, others, "joining"))
            _join(ranks)

        def own() -> Shard:
            shard = divide(prepared.model, self.sharding, ranks.group, family)
            read_weights(prepared.model, emit, cancel)
            return shard

        self._shard, _ = ranks.together("divide", own, work=work, sharding=self.sharding)
        return partial(RankedKV, ranks, self.sharding, prepared.whole.rows)

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
    told = asdict(_for_others(prepared, settings))
    _, answers = ranks.together("load", lambda: None, work=work, settings=told, family=family)
    own = fingerprint(prepared.path, settings.adapter_path)
    for process, answer in zip(ranks.processes, answers, strict=True):
        if refused := answer.get("refused"):
            raise LoadError(f"The model can't be loaded by {process.name}: {refused}")
        if answer["digest"] != own:
            raise LoadError(
                f"The model of {process.name} is another one than here.",
                "Copy the same files to all machines.",
            )


def _for_others(prepared: Prepared, settings: LoadSettings) -> LoadSettings:
    """The settings for the other ranks, in which is decided what would otherwise depend on their machine."""
    scales = prepared.whole.quantization is not None and prepared.whole.dtype == "float32"
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
                seconds=max(START_SECONDS, ranks.patience),
                backend=backend,
                files=meeting.files,
                variables=meeting.variables,
            )
        except RuntimeError as error:
            ranks.close()
            raise LoadError(
                f"The ranks can't be joined ({error}).",
                "See that the machines reach each other at these ips.",
            ) from error
    ranks.joined = True

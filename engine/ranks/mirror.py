"""What another rank does for each operation: its shard of the model, and its own of each of rank 0's caches.

The operations on caches are those of `KV` that `RankedKV` sends, by the same names; the other ones load, join and
divide.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from engine.cache.kind import Snapshot
from engine.cache.live import KV
from engine.errors import EngineError
from engine.memory import resident
from engine.model.facts import fingerprint
from engine.model.load import prepare
from engine.model.weights import arrays_of, bytes_of
from engine.ranks.agreement import Print, told
from engine.ranks.fences import fenced_ms
from engine.ranks.join import join
from engine.ranks.shards import Shard, divide
from engine.settings import LoadSettings

Values = Mapping[str, Any]


class Mirror:
    """The state of one of the other ranks.

    Args:
        rank: Its number.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._group: Any = None
        self._model: Any = None
        self._family = ""
        self._shard = Shard(0, 0)
        self._caches: dict[int, KV] = {}
        self._snapshots: dict[int, tuple[Snapshot, ...]] = {}
        self._others: Mapping[str, Callable[[Values], dict[str, Any]]] = {
            "hello": self._hello,
            "load": self._load,
            "join": self._join,
            "divide": self._divide,
            "unload": self._unload,
            "facts": self._facts,
            "make": self._make,
        }
        self._on_caches: Mapping[str, Callable[[KV, Values], Any]] = {
            "clear": lambda kv, given: kv.clear(),
            "set_offset": lambda kv, given: kv.set_offset(given["offset"]),
            "trim": lambda kv, given: kv.trim(given["offset"]),
            "recovered": lambda kv, given: kv.recovered(given["offset"]),
            "trim_refusal": lambda kv, given: kv.trim_refusal(given["offset"]),
            "could_trim": lambda kv, given: kv.could_trim(given["offset"], given["to"]),
            "undo_records": self._undo_records,
            "undo": lambda kv, given: kv.undo([self._snapshots[number] for number in given["steps"]]),
            "snapshot": self._snapshot,
            "restore": lambda kv, given: kv.restore(
                self._snapshots[given["saved"]], given["at"], given["end"]
            ),
            "adopt_copy": lambda kv, given: kv.adopt_copy(self._caches[given["other"]], given["rows"]),
            "reorder": lambda kv, given: kv.reorder(given["rows"], given["since"]),
            "fenced": self._fenced,
        }

    def execute(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Execute an operation.

        Returns:
            The fields of the answer.

        Raises:
            Exception: Whatever it raises.
        """
        for kind, number in operation.get("released", ()):
            (self._caches if kind == "kv" else self._snapshots).pop(number, None)
        name = operation["op"]
        if name in self._others:
            return self._others[name](operation)
        kv = self._caches[operation["kv"]]
        if name == "run":
            return self._run(kv, operation)
        return {"result": self._on_caches[name](kv, operation), **told(kv)}

    # ---- the model --------------------------------------------------------------------------

    def _hello(self, given: Values) -> dict[str, Any]:
        return {"pid": os.getpid(), "host": socket.gethostname()}

    def _load(self, given: Values) -> dict[str, Any]:
        settings = settings_of(given["settings"])
        try:
            prepared = prepare(settings)
        except EngineError as error:
            return {"refused": str(error)}
        self._model, self._family = prepared.model, given["family"]
        return {"digest": fingerprint(prepared.path, settings.adapter_path)}

    def _join(self, given: Values) -> dict[str, Any]:
        self._group = join(self._rank, given["backend"], given["files"], given["variables"])
        return {"size": self._group.size()}

    def _divide(self, given: Values) -> dict[str, Any]:
        self._shard = divide(self._model, given["sharding"], self._group, self._family)
        mx.eval([array for _, array in arrays_of(self._model)])
        return {}

    def _unload(self, given: Values) -> dict[str, Any]:
        self._model = None
        self._caches.clear()
        self._snapshots.clear()
        mx.clear_cache()
        return {}

    def _facts(self, given: Values) -> dict[str, Any]:
        return facts(self._shard, self._model)

    # ---- caches -----------------------------------------------------------------------------

    def _make(self, given: Values) -> dict[str, Any]:
        kv = self._caches[given["kv"]] = KV(self._model, settings_of(given["settings"]))
        return told(kv)

    def _run(self, kv: KV, given: Values) -> dict[str, Any]:
        begun = time.perf_counter()
        logits = kv.run(self._model, mx.array(given["ids"]), chunk=given["chunk"])
        mx.eval(logits, kv.state())
        mine, ms = Print.of(logits), (time.perf_counter() - begun) * 1000
        return {"print": [mine.crc, mine.largest], "ms": ms, **told(kv)}

    def _undo_records(self, kv: KV, given: Values) -> int | None:
        records = kv.undo_records()
        return None if records is None else self._keep(given["name"], records)

    def _snapshot(self, kv: KV, given: Values) -> int:
        saved = kv.snapshot(given["start"])
        mx.eval([array for each in saved for array in each.copies])
        return self._keep(given["name"], saved)

    def _keep(self, number: int, snapshots: tuple[Snapshot, ...]) -> int:
        """Keep snapshots until they are released; returns their bytes."""
        self._snapshots[number] = snapshots
        return sum(snapshot.nbytes for snapshot in snapshots)

    def _fenced(self, kv: KV, given: Values) -> tuple[float, float]:
        return fenced_forward(kv, self._model, given["ids"])


def fenced_forward(kv: KV, model: Any, ids: list[list[int]]) -> tuple[float, float]:
    """Milliseconds of a forward on one rank in compute, and in communication."""

    def forward() -> None:
        mx.eval(KV.run(kv, model, mx.array(ids)), kv.state())

    return fenced_ms(forward)


def facts(shard: Shard, model: Any) -> dict[str, Any]:
    """What one rank has now, in values of JSON: of `RankFacts`, without its caches."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "first_layer": shard.first_layer,
        "layers": shard.layers,
        "weight_bytes": bytes_of(model),
        "memory_bytes": resident(),
    }


def settings_of(values: dict[str, Any]) -> LoadSettings:
    """Load settings from values of JSON."""
    return LoadSettings(**{**values, "extra_eos_token": tuple(values["extra_eos_token"])})

"""What another rank does for each operation: its shard of the model, and its own of each of rank 0's caches.

The operations on caches are those of `KV` that `RankedKV` sends, by the same names; the other ones load, join and
divide.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.cache.kinds import Reading, Snapshot
from engine.cache.live import KV
from engine.errors import EngineError, LoadError, first_line
from engine.memory import resident
from engine.model.facts import arrays_of, bytes_of, fingerprint
from engine.model.layers import patched
from engine.model.load import prepare
from engine.patches.rotary import shared_rotary_factors
from engine.protocol import Sharding
from engine.ranks import keeper
from engine.settings import LoadSettings

# ---- joining the group -------------------------------------------------------------------------

KEPT_SECONDS = 10.0
"""After which rank 0, waiting for a rank that does not come, is woken. They meet within 0.1 to 3 s."""


def join(rank: int, backend: str, files: Mapping[str, str], variables: Mapping[str, str]) -> Any:
    """Join the ranks' group.

    Args:
        rank: This one.
        backend: Of MLX.
        files: Contents of files by the variable that names the file to MLX; they are there while it reads them.
        variables: What else MLX reads of the environment.

    Returns:
        MLX's group.

    Raises:
        RuntimeError: Another rank did not come.
    """
    with tempfile.TemporaryDirectory(prefix="inspector-") as folder:
        set_here = {**variables, "MLX_RANK": str(rank)}
        for name, content in files.items():
            path = Path(folder, name)
            path.write_text(content)
            set_here[name] = str(path)
        before = {name: os.environ.get(name) for name in set_here}
        os.environ.update(set_here)
        try:
            return mx.distributed.init(strict=True, backend=backend.removesuffix("-ring"))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def kept_from_waiting(addresses: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Have this process woken where it waits in `join` too long.

    Args:
        addresses: Where it listens.
    """
    given = [str(part) for address in addresses for part in address]
    command = [sys.executable, "-I", "-S", keeper.__file__, str(KEPT_SECONDS), *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        process.communicate()  # its stdin ends, and it with that


# ---- dividing a model --------------------------------------------------------------------------
# This does what `mlx_lm.utils.sharded_load` does between the two loadings of that function: `model.shard` or
# `model.model.pipeline`, lazily, before weights are read. The function itself reads `model.safetensors.index.json`,
# which models of one file lack, and loads a tokenizer and weights in a way of its own, past a model's adapter and
# types.


class Group(Protocol):
    """What the families ask of MLX's group."""

    def rank(self) -> int:
        """Of this process."""

    def size(self) -> int:
        """Number of ranks."""


class Shard(Struct, frozen=True):
    """The part of a model that one rank has."""

    first_layer: int
    layers: int


def sharding_of(model: Any, wanted: str, family: str) -> Sharding:
    """The way in which ranks divide a model.

    Args:
        model: The whole model.
        wanted: One of `engine.settings.SHARDS`.
        family: Its model type, for the message.

    Raises:
        LoadError: Its family can't be divided so.
    """
    able = _shardings(model)
    if wanted == "auto" and able:
        return able[0]
    if wanted in able:
        return wanted
    if able:
        raise LoadError(
            f"mlx_lm divides a model of type {family} by {able[0]}, not by {wanted}.",
            f"Use --shard {able[0]}.",
        )
    raise LoadError(
        f"mlx_lm can't divide a model of type {family} over several processes.",
        "Run it in one: leave --ranks and --hostfile out.",
    )


def _shardings(model: Any) -> list[Sharding]:
    able: list[Sharding] = []
    if hasattr(model, "shard"):
        able.append("tensor")
    if hasattr(model, "model") and hasattr(model.model, "pipeline"):
        able.append("pipeline")
    return able


def divide(model: Any, sharding: Sharding, group: Group, family: str) -> Shard:
    """Leave of a model what one rank computes.

    Args:
        model: Its weights are lazy.
        sharding: From `sharding_of`.
        group: Of all ranks.
        family: Its model type, for the message.

    Raises:
        LoadError: So many ranks can't have even parts of it.
    """
    layers, heads = len(model.layers), _heads(model)
    try:
        if sharding == "tensor":
            try:
                model.shard(group)
            finally:
                _check_heads(heads, _heads(model), group.size())
            return Shard(0, layers)
        model.model.pipeline(group)
    except (ValueError, TypeError, AttributeError, NotImplementedError, ZeroDivisionError) as error:
        other = next((each for each in _shardings(model) if each != sharding), "")
        raise LoadError(
            f"{group.size()} ranks can't divide this model of type {family} by {sharding}: {first_line(error, 160)}.",
            f"Use fewer ranks, or --shard {other}." if other else "Use fewer ranks.",
        ) from error
    return Shard(int(model.model.start_idx), int(model.model.end_idx) - int(model.model.start_idx))


Heads = dict[tuple[str, str], int]
"""Numbers of heads, by the name of a module and of its attribute."""


def _heads(model: Any) -> Heads:
    return {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if "heads" in name and type(value) is int
    }


def _check_heads(before: Heads, after: Heads, ranks: int) -> None:
    """Refuse a division by tensor in which a rank has no whole number of heads; mlx_lm divides without a check.

    Args:
        before: Of the whole model.
        after: Of the part of one rank, or of as much as was divided.
        ranks: How many divide it.

    Raises:
        LoadError: With the number of ranks that can.
    """
    divided = {key: (before[key], part) for key, part in after.items() if before.get(key, part) != part}
    for (_, name), (whole, part) in divided.items():
        if part and (whole < ranks or whole % ranks == 0):
            continue
        counts = range(ranks - 1, 0, -1)
        fewer = next(count for count in counts if not any(each % count for each, _ in divided.values()))
        kind = "KV head" if "kv" in name or "key_value" in name else "head"
        raise LoadError(
            f"{ranks} ranks can't divide this model by tensor: it has {whole} {kind}{'s' * (whole != 1)}.",
            f"Use {fewer} ranks."
            if fewer > 1
            else "Run it in one process: leave --ranks and --hostfile out.",
        )


# ---- the time of a forward in compute and in communication -------------------------------------

COMMUNICATIONS = ("all_gather", "all_max", "all_min", "all_sum", "recv", "recv_like", "send", "sum_scatter")


def fenced_ms(forward: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of a forward in compute, and in communication with the waiting for other ranks.

    Args:
        forward: Computes and evaluates.
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

    taps = [
        (mx.distributed, name, fenced(getattr(mx.distributed, name)))
        for name in COMMUNICATIONS
        if hasattr(mx.distributed, name)
    ]
    begun = time.perf_counter()
    with patched(*taps):
        forward()
    total = time.perf_counter() - begun
    return (total - spent) * 1000, spent * 1000


# ---- what ranks compare after an operation -----------------------------------------------------
# The sums of MLX's ring are equal to the bit on all ranks: 42 of 42 sums over 2, 3 and 4 ranks, of 1 to 1,000,003
# numbers of float32, bfloat16 and float16. All that follows a sum is computed by each rank alike, so that on one
# machine the logits must be equal to the bit. Machines of other kinds may round in other ways: there they must agree
# within `TOLERANCE`.

TOLERANCE = 0.05
"""Of the largest logit of a row, between machines, as a share of the largest magnitude of both."""


class Print(Struct, frozen=True):
    """What tells rows of logits from others."""

    crc: int
    largest: float

    @classmethod
    def of(cls, logits: mx.array) -> Print:
        """That of the logits after the last token of each row; evaluated, shape (rows, n, vocabulary)."""
        rows = np.array(logits[:, -1].astype(mx.float32))
        return cls(zlib.crc32(rows.tobytes()), float(rows.max()))

    def disagreement(self, other: Print, same_machine: bool) -> str:
        """In which way another rank's logits are not these; empty where they are."""
        if self.crc == other.crc:
            return ""
        difference = abs(self.largest - other.largest)
        bound = TOLERANCE * max(1.0, abs(self.largest), abs(other.largest))
        if not same_machine and difference <= bound:
            return ""
        return f"computed other logits (the largest is {other.largest:.6g}, not {self.largest:.6g})"


class RankHeld(Struct, frozen=True):
    """What one rank's caches hold, and what can be done with them, after an operation."""

    offset: int
    readings: tuple[Reading, ...]
    steps_back: bool
    """`KV.can_step_back`."""
    partial_restore: bool
    chunks_matter: bool
    quantized: tuple[bool, ...]
    unsupported: tuple[str, str] | None
    """`KV.without_snapshots`."""
    bytes_per_token: int


def kv_facts(kv: KV) -> dict[str, Any]:
    """What a rank answers of its caches, in values of JSON."""
    places: dict[Reading, list[int]] = {}
    for place, reading in enumerate(kv.readings()):
        places.setdefault(reading, []).append(place)
    return {
        "offset": kv.offset,
        "groups": [[list(reading), where] for reading, where in places.items()],
        "back": kv.can_step_back(),
        "part": kv.partial_restore(),
        "chunks": kv.chunks_matter,
        "quantized": kv.quantized(),
        "without": kv.without_snapshots(),
        "token": kv.bytes_per_token() or 0,
    }


def held(answer: Mapping[str, Any]) -> RankHeld:
    """The inverse of `kv_facts`."""
    placed = {place: tuple(reading) for reading, places in answer["groups"] for place in places}
    without = answer["without"]
    return RankHeld(
        offset=answer["offset"],
        readings=tuple(placed[place] for place in range(len(placed))),
        steps_back=answer["back"],
        partial_restore=answer["part"],
        chunks_matter=answer["chunks"],
        quantized=tuple(answer["quantized"]),
        unsupported=None if without is None else (without[0], without[1]),
        bytes_per_token=answer["token"],
    )


# ---- the operations ----------------------------------------------------------------------------

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
            "copied": self._copied,
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
            "adopt_rows": lambda kv, given: kv.adopt_rows(self._caches[given["other"]], given["rows"]),
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
        return {"result": self._on_caches[name](kv, operation), **kv_facts(kv)}

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
        return kv_facts(kv)

    def _copied(self, given: Values) -> dict[str, Any]:
        kv = self._caches[given["kv"]] = self._caches[given["other"]].copied()
        return kv_facts(kv)

    def _run(self, kv: KV, given: Values) -> dict[str, Any]:
        begun = time.perf_counter()
        with shared_rotary_factors():
            logits = kv.run(self._model, mx.array(given["ids"]), chunk=given["chunk"])
        mx.eval(logits, kv.state())
        mine, ms = Print.of(logits), (time.perf_counter() - begun) * 1000
        return {"print": [mine.crc, mine.largest], "ms": ms, **kv_facts(kv)}

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
        with shared_rotary_factors():
            logits = KV.run(kv, model, mx.array(ids))
        mx.eval(logits, kv.state())

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

"""The commands of a session over ranks: a model loaded over several processes, and where step time goes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any

import numpy as np
from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled, LoadError, StepError, first_line
from engine.files import typed
from engine.memory import resident
from engine.model.facts import bytes_of, fingerprint
from engine.model.load import Emit, Loaded, Prepared, finished, prepare, read
from engine.model.tokens import Tokens
from engine.protocol import Measuring, RankFacts, RanksLoaded, RanksMeasured, RankTime, Record, Sharding
from engine.ranks.group import joined
from engine.ranks.kv import RankedKV
from engine.session.context import Context
from engine.session.session import Session
from engine.setting import check
from engine.settings import LoadSettings
from engine.task import Task, own_event

READ_BYTES = 2_000_000
"""Bytes of weights that count as one token in the time for which rank 0 waits until the others have read them."""


def load(settings: LoadSettings, emit: Emit, cancel: Event) -> Loaded:
    """Load this rank's part of a model.

    Args:
        settings: Settings; rank 0's are used for choices that would otherwise depend on the machine.
        emit: Receives the progress.
        cancel: Stops the loading if it is set on rank 0.

    Raises:
        LoadError: A rank can't load its part, or has another model.
        Cancelled: `cancel` was set on rank 0.
    """
    check(settings)
    if "MLX_RANK" not in os.environ:
        raise LoadError("This process is not one of several ranks.", "Start the program with --ranks 2.")
    group, started = joined(), time.perf_counter()
    cancel = own_event(cancel)

    def first() -> tuple[Prepared, LoadSettings, Sharding] | None:
        if group.rank:
            return None
        made = prepare(settings, emit, cancel)  # may download the model, which the others then find
        return made, _for_others(made, settings), sharding_of(made.model, settings.shard, _family(made))

    own = group.agreed(first)
    settings_of_all, sharding, work = group.first(
        own and (own[1], own[2], own[0].facts.weight_bytes // READ_BYTES)
    )
    mine = settings_of_all if own is None else settings
    prepared = group.agreed(lambda: own[0] if own else prepare(mine, emit, cancel), work)
    digests = group.gather(fingerprint(prepared.path, mine.adapter_path), work)
    if (other := next((rank for rank, each in enumerate(digests) if each != digests[0]), None)) is not None:
        raise LoadError(
            f"The model of {group.names[other]} differs from the one here.",
            "Copy the same files to all machines.",
        )

    def part() -> tuple[range, Tokens]:
        layers = divide(prepared.model, sharding, group.mlx, _family(prepared))
        return layers, read(prepared, mine, emit, cancel)[1]

    layers, tokens = group.agreed(part, work)
    make_kv = partial(RankedKV, group, sharding, layers, prepared.facts.vocabulary)
    loaded = finished(prepared, mine, tokens, started, make_kv)
    return replace(loaded, facts=replace(loaded.facts, fingerprint=digests[0]))


def _family(prepared: Prepared) -> str:
    return str(prepared.config.get("model_type"))


def _for_others(prepared: Prepared, settings: LoadSettings) -> LoadSettings:
    """The settings for the other ranks, with the choices that would otherwise depend on their machine."""
    scales = prepared.facts.quantization is not None and prepared.facts.dtype == "float32"
    return replace(
        settings,
        model=str(prepared.path) if prepared.path == typed(settings.model) else settings.model,
        adapter_path=None if settings.adapter_path is None else str(typed(settings.adapter_path)),
        dtype=prepared.dtype,
        float32_scales=scales,
    )


def loaded_over_ranks(session: Session) -> RanksLoaded:
    """The record of a new session over ranks: each rank's part of the model."""
    kv = session.kv
    assert isinstance(kv, RankedKV)
    return RanksLoaded(kv.sharding, _facts(kv))


def _facts(kv: RankedKV) -> tuple[RankFacts, ...]:
    """The current contents and memory of each rank."""
    own = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "first_layer": kv.layers.start,
        "layers": len(kv.layers),
        "weight_bytes": bytes_of(kv.model),
        "memory_bytes": resident(),
        "kv_used_bytes": sum(used for *_, used, _ in kv.own_readings()),
        "kv_allocated_bytes": sum(allocated for *_, allocated in kv.own_readings()),
    }
    return tuple(RankFacts(rank, **facts) for rank, facts in enumerate(joined().gather(own)))


# ---- dividing a model ----------------------------------------------------------------------------
# This is what `mlx_lm.utils.sharded_load` does between its two loadings: `model.shard` or `model.model.pipeline`,
# lazily, before weights are read. The function itself reads `model.safetensors.index.json`, which models with a single
# file don't have, and loads tokenizer and weights in its own way, without the adapter and the chosen dtype.


def sharding_of(model: Any, wanted: str, family: str) -> Sharding:
    """The way in which ranks divide a model.

    Args:
        model: The whole model.
        wanted: One of `engine.settings.SHARDS`.
        family: Its model type, for the message.

    Raises:
        LoadError: The model's family can't be divided that way.
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


def divide(model: Any, sharding: Sharding, group: Any, family: str) -> range:
    """Reduce a model to the part that this rank computes.

    Args:
        model: The whole model, with lazy weights.
        sharding: From `sharding_of`.
        group: MLX's group of all ranks.
        family: Its model type, for the message.

    Returns:
        Indexes of the layers that this rank has, or has a part of.

    Raises:
        LoadError: The model can't be divided evenly among the ranks.
    """
    layers, heads = len(model.layers), _heads(model)
    try:
        if sharding == "tensor":
            try:
                model.shard(group)
            finally:
                _check_heads(heads, _heads(model), group.size())
            return range(layers)
        model.model.pipeline(group)
    except (ValueError, TypeError, AttributeError, NotImplementedError, ZeroDivisionError) as error:
        other = next((each for each in _shardings(model) if each != sharding), "")
        raise LoadError(
            f"{group.size()} ranks can't divide this model of type {family} by {sharding}: {first_line(error, 160)}.",
            f"Use fewer ranks, or --shard {other}." if other else "Use fewer ranks.",
        ) from error
    return range(int(model.model.start_idx), int(model.model.end_idx))


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
    """Refuse a division by tensor in which a rank has no whole number of heads; mlx_lm doesn't check it.

    Args:
        before: Heads of the whole model.
        after: Heads of one rank's part, or of as much as was divided.
        ranks: Number of ranks.

    Raises:
        LoadError: A rank has no whole number of heads; the hint names a number of ranks that works.
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


# ---- where the time of a step goes ---------------------------------------------------------------


def measure_ranks(context: Context, command: protocol.MeasureRanks, task: Task) -> Iterator[Record]:
    """Measure where the time of a step goes, by rank."""
    session = context.session
    kv = session.kv
    if not isinstance(kv, RankedKV):
        raise StepError("One process computes this model: there are no ranks.", "Start with --ranks 2.")
    token = session.next.picked
    steps: list[float] = []
    rounds: list[list[tuple[float, float]]] = []
    """Milliseconds in compute and in communication, by rank."""
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
        rounds.append(copied.fenced_ms(token))
    best = min(rounds[1:], key=lambda times: sum(compute for compute, _ in times))
    spreads = np.ptp(rounds[1:], axis=0).tolist()
    yield RanksMeasured(
        sharding=kv.sharding,
        ranks=_facts(kv),
        tokens=kv.offset,
        rounds=command.rounds,
        step_ms=min(steps[1:]),
        step_spread_ms=max(steps[1:]) - min(steps[1:]),
        times=tuple(RankTime(rank, *best[rank], *spreads[rank]) for rank in range(len(best))),
        slowest=max(range(len(best)), key=lambda rank: best[rank][0]),
    )

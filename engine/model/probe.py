"""Runs a loaded model's first tokens: what its caches are, and which of the settings of the cache it supports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx

from engine.cache.head_groups import group_size_problem
from engine.cache.kinds import kind_of
from engine.cache.live import KV
from engine.frozen import frozen
from engine.model.forward import Compute, MakeKV
from engine.model.tail import Tail
from engine.protocol import CacheKind
from engine.settings import LoadSettings


@frozen
class CacheProbe:
    """What a model's caches are, and what can be done with them."""

    settings: LoadSettings
    """Those requested, without what this model can't do."""
    notes: tuple[str, ...]
    """What it can't do, one sentence each."""
    kinds: tuple[CacheKind, ...]
    bytes_per_token: int | None
    head_size: int | None
    """Of all keys and values, where these have one size."""
    tail: Tail | None
    """The model's end, where it can be run alone."""


def probe_cache(model: Any, settings: LoadSettings, make_kv: MakeKV = KV) -> CacheProbe:
    """Run two tokens through throwaway caches to find which cache settings a model supports.

    Raises:
        Exception: Whatever a model raises that can't run.
    """
    notes: list[str] = []
    if settings.no_kv_cache:
        settings = replace(settings, kept_kv_mib=0)
        notes.append("The KV cache is off: every step runs all tokens before it again.")
    cache = make_kv(model, settings)
    kinds = cache.kinds()
    if settings.max_kv_size is not None and hasattr(model, "make_cache"):
        settings = replace(settings, max_kv_size=None)
        notes.append("--max-kv-size is not used: this model builds its own caches.")
    if settings.kv_bits is not None:
        settings, more = _probe_kv_bits(model, settings, cache, make_kv)
        notes += more
    tail = Tail(model)
    # over ranks all of them run the model itself, and the logits of a chunk are there
    trial = _trial_cache(model, settings, make_kv, tail.trial if make_kv is KV else model)
    packed = settings.kv_bits is not None
    sizes = _head_sizes(_trial_cache(model, replace(settings, kv_bits=None), make_kv) if packed else trial)
    head_size = next(iter(sizes)) if len(sizes) == 1 else None
    return CacheProbe(
        settings, tuple(notes), kinds, trial.bytes_per_token(), head_size, tail if tail.fits else None
    )


def _probe_kv_bits(
    model: Any, settings: LoadSettings, cache: KV, make_kv: MakeKV
) -> tuple[LoadSettings, list[str]]:
    off = replace(settings, kv_bits=None)
    kinds = [kind_of(layer) for layer in cache.caches]
    others = sorted({kind.name for kind in kinds if not kind.quantizable})
    if not any(kind.quantizable for kind in kinds):
        return off, [f"--kv-bits is not used: caches of kind {', '.join(others)} can't be quantized."]
    try:
        _trial_cache(model, settings, make_kv, tokens=2)
    except Exception as error:
        sizes = _head_sizes(_trial_cache(model, off, make_kv), quantizable=True)
        why = group_size_problem(sizes, settings.kv_group_size)
        why = why or f"This model can't run with a quantized cache ({error})."
        return off, [f"--kv-bits is not used. {why}"]
    if others:
        return settings, [
            f"--kv-bits is used for the plain caches alone; {', '.join(others)} stay as they are."
        ]
    return settings, []


def _head_sizes(cache: KV, quantizable: bool = False) -> set[int]:
    """Of the keys and values in caches that hold a column for each token; with `quantizable`, in those alone."""
    layers = [(kind_of(layer), layer) for layer in cache.caches]
    of_columns = [
        (kind, layer) for kind, layer in layers if kind.columns and (kind.quantizable or not quantizable)
    ]
    return {int(array.shape[-1]) for kind, layer in of_columns for array in kind.buffers(layer)}


def _trial_cache(
    model: Any, settings: LoadSettings, make_kv: MakeKV, compute: Compute | None = None, tokens: int = 1
) -> KV:
    """Throwaway caches after one or more tokens; with `kv_bits`, quantized from the first on."""
    trial = make_kv(model, replace(settings, quantized_kv_start=0))
    for _ in range(tokens):
        mx.eval(trial.run(compute or model, mx.array([[0]])))
    return trial

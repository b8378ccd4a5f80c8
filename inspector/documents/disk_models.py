"""Words for the models on the disk: the columns of a list, the facts of one, and the results of a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inspector.display import visible
from inspector.scales import FREE, amount, size, time_left

if TYPE_CHECKING:
    from engine.memory import MemoryOf, Room
    from engine.model.download import DownloadProgress
    from engine.models_on_disk.models import DiskModel

COLUMNS = ("family", "params", "bits", "size", "context", "KV/token", "fits")
"""Columns after the name, in the order of the table."""
NO_FIGURE = "?"


def cells(model: DiskModel, available: int | None) -> dict[str, str]:
    """The columns of one model, printable; `?` for what isn't known.

    Args:
        model: The model.
        available: Bytes of memory that a program can use; None if that isn't known.
    """
    weights, kv = model.weights, model.kv
    return {
        "family": visible(model.family) or NO_FIGURE,
        "params": amount(weights.parameters) if weights else NO_FIGURE,
        "bits": visible(model.bits) or NO_FIGURE,
        "size": size(model.size) if model.size else NO_FIGURE,
        "context": f"{model.context:,}" if model.context else NO_FIGURE,
        "KV/token": size(kv.growing) if kv else NO_FIGURE,
        "fits": _fits(model, available),
    }


def _fits(model: DiskModel, available: int | None) -> str:
    if model.problem:
        return "incomplete" if model.incomplete else "can't load"
    if (tokens := model.fits(available)) is None:
        return NO_FIGURE
    return "no" if not tokens else "all" if tokens == model.context else f"to {amount(tokens)}"


def facts(model: DiskModel, room: Room) -> Iterator[tuple[str, str]]:
    """Name and sentence of each fact of a model, the most important first; not yet printable.

    Args:
        model: The model.
        room: The memory available for it.
    """
    weights, kv, context = model.weights, model.kv, model.context
    if model.problem and model.downloads:
        what = model.problem.rpartition(". ")[0]  # the sentence after it says to download what ⏎ downloads
        yield "incomplete", f"{what}. ⏎ downloads what is missing from the hub."
    elif model.problem:
        yield "can't load", model.problem
    elif fitting := _fitting(model, room):
        yield "memory", fitting
    if weights is not None:
        group = f" in groups of {weights.group_size}" if weights.group_size else ""
        layers = f", {model.layers} layers" if model.layers else ""
        parameters = f"{amount(weights.parameters)} parameters, {model.bits}{group}"
        bits = f"{weights.bits_a_parameter:.3g} bits a parameter, {size(model.size)} on the disk"
        yield "weights", f"{model.family}{layers}, {parameters}: {bits}"
    if context or kv:
        words = "what the KV of a token takes isn't known from the files"
        if kv is not None:
            ring = f", and {size(kv.windowed)} up to {kv.window:,} tokens" if kv.windowed else ""
            each = f"{size(kv.growing)} of KV a token{ring}" if kv.growing or ring else "no KV that grows"
            full = f", {size(kv.at(context))} for all of it" if context and kv.growing else ""
            words = f"{each}{full}, in the type of the files"
        yield "context", f"{f'{context:,} tokens' if context else 'none stated'}; {words}"
    if room.of == "machine" and weights is not None and weights.dtype in ("BF16", "F16"):
        growing = f", {size(2 * kv.growing)} of KV a token" if kv is not None and kv.growing else ""
        loaded = f"float32 where memory allows: {size(4 * weights.parameters)} of weights{growing}"
        yield "on a CPU", f"{loaded}. --dtype file keeps the type of the files"
    yield "from", f"{model.source}: {model.path}"
    for note in model.notes:
        yield "note", note


_TOO_LARGE: dict[MemoryOf, str] = {
    "machine": "the machine would swap, or end the program",
    "metal": "macOS would swap, or end the program",
    "gpu": "loading it would run out of memory",
}


def _fitting(model: DiskModel, room: Room) -> str:
    tokens = model.fits(room.free)
    if room.free is None or tokens is None:
        return ""
    free = f"the {size(room.free)} that are {FREE[room.of]}"
    if not tokens:
        return f"its weights don't fit in {free}: {_TOO_LARGE[room.of]}"
    if tokens == model.context:
        return f"fits in {free}, all of its context too (an estimate)"
    return f"{tokens:,} of {model.context:,} tokens of context fit in {free} (an estimate)"


def matches(model: DiskModel, query: str) -> bool:
    """True if each word of a query is in a model's name, family, bits or source, in any case.

    Args:
        model: The model.
        query: As it was typed.
    """
    text = " ".join((model.name, model.family, model.bits, model.source)).casefold()
    return all(word in text for word in query.casefold().split())


def far(progress: DownloadProgress | None) -> str:
    """Progress of a download: bytes, rate and time left."""
    if progress is None:
        return "asking the hub"
    bytes = f"{size(progress.done)} of {size(progress.total)}"
    if progress.rate is None:
        return bytes
    left = progress.seconds_left
    return f"{bytes}, {size(int(progress.rate))}/s{time_left(left * 1000 if left is not None else None)}"

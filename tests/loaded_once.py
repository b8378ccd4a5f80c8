"""The bundled model, which most tests load: each form of it is read once, as `Zoo` reads those that it writes."""

from __future__ import annotations

from threading import Event

from msgspec.structs import replace

from engine.lockstep import second
from engine.model.load import Emit, Loaded, load
from engine.protocol import Record
from engine.session import handlers as session
from engine.settings import LoadSettings

MOST = 6
"""Forms that are kept."""
_KEPT: dict[object, tuple[Loaded, list[Record]]] = {}
"""By what was asked for: the model, and what was told while it was loaded."""


def begin() -> None:
    """Have the engine's commands load the bundled model by `once`."""
    session.load_model = second.load = once


def once(
    settings: LoadSettings,
    emit: Emit,
    cancel: Event | None = None,
    quantization: tuple[int, int] | None = None,
) -> Loaded:
    """Load a model, or tell again what was told as this form of it was loaded."""
    if settings.model != "pocket" or settings.adapter_path or settings.blas != "auto":
        return load(settings, emit, cancel, quantization)
    key = (settings, quantization)
    if key not in _KEPT:
        told: list[Record] = []
        _KEPT[key] = load(settings, told.append, cancel, quantization), told
        if len(_KEPT) > MOST:
            _KEPT.pop(next(iter(_KEPT)))
    found, told = _KEPT[key]
    for record in told:
        emit(record)
    return replace(found, done=set())

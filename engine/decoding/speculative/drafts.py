"""Makes the draft that is asked for: loads its model, and refuses one whose tokens are not the session's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.decoding.speculative.draft import Drafter
from engine.decoding.speculative.lookup import LookupDraft
from engine.decoding.speculative.model_draft import ModelDraft
from engine.errors import LoadError
from engine.model.dtype import quantization_of
from engine.model.load import Loaded, load
from engine.model.tokens import Tokens
from engine.protocol import DraftLoading, Loading
from engine.settings import LoadSettings, for_model
from engine.speculation_settings import SpeculationSettings

BITS, GROUP_SIZE = 4, 64
"""Of the model quantized as a draft of itself: mlx_lm.convert's defaults."""


def make_draft(
    settings: SpeculationSettings, target: Loaded, emit: Callable[[DraftLoading], None], cancel: Event
) -> Drafter:
    """Make a draft.

    Args:
        settings: Which.
        target: The session's model; not changed.
        emit: Receives the progress of loading.
        cancel: Stops the loading.

    Raises:
        LoadError: The draft's model can't be loaded, has other tokens than the target, or can't be quantized.
        Cancelled: `cancel` was set.
    """
    match settings.draft:
        case "lookup":
            return LookupDraft()
        case "self-4bit":
            return _of_itself(target, emit, cancel)
        case "model":
            loaded = _load(for_model(_own_cache(target.settings), settings.draft_model), emit, cancel)
            check_vocabulary(target.tokens, loaded.tokens)
            return ModelDraft(loaded, target.tokens.vocabulary, " ".join(loaded.facts.notes))


def check_vocabulary(target: Tokens, draft: Tokens) -> None:
    """Refuse a draft whose token ids don't mean what the target's mean.

    Raises:
        LoadError: Naming the first id that differs, and both texts.
    """
    for token in range(max(target.vocabulary, draft.vocabulary)):
        ours, theirs = _raw(target, token), _raw(draft, token)
        if ours != theirs:
            raise LoadError(
                f"The draft model has other tokens: id {token} is {_name(ours)} here and {_name(theirs)} there.",
                "Take a smaller model of the same family, or the draft lookup, which needs no model.",
            )


def _raw(tokens: Tokens, token: int) -> bytes:
    """The bytes of a token; empty beyond the vocabulary, as for the rows that fill an embedding up."""
    return tokens.raw(token) if token < tokens.vocabulary else b""


def _name(raw: bytes) -> str:
    return f"“{raw.decode('utf-8', 'backslashreplace')}”" if raw else "no token"


def _own_cache(settings: LoadSettings) -> LoadSettings:
    """The load settings of a draft: a plain cache of its own, which can be trimmed."""
    return replace(
        settings, max_kv_size=None, kv_bits=None, no_kv_cache=False, record_logits=False, kept_kv_mib=0
    )


def _load(settings: LoadSettings, emit: Callable[[DraftLoading], None], cancel: Event) -> Loaded:
    def progress(loading: Loading) -> None:
        emit(DraftLoading(settings.model, loading.done, loading.total))

    return load(settings, progress, cancel)


def _of_itself(target: Loaded, emit: Callable[[DraftLoading], None], cancel: Event) -> ModelDraft:
    """The target's files once more, quantized by mlx_lm's own rule for the model."""
    if (quantization := target.facts.quantization) is not None:
        raise LoadError(
            f"The model is quantized already ({quantization}): at {BITS} bits it would be no other model.",
            "Take the draft lookup, or a smaller model as --draft-model.",
        )
    loaded = _load(_own_cache(target.settings), emit, cancel)
    own_rule: Callable[[str, Any], Any] = getattr(loaded.model, "quant_predicate", None) or (lambda *_: True)

    def fits(path: str, module: Any) -> Any:
        """As `mlx_lm.utils.quantize_model`, which prints."""
        can = hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP_SIZE == 0
        return can and own_rule(path, module)

    nn.quantize(loaded.model, GROUP_SIZE, BITS, class_predicate=fits)
    if quantization_of(loaded.model) is None:
        raise LoadError(
            f"This model can't be quantized: no layer of it has a multiple of {GROUP_SIZE} columns.",
            "Take the draft lookup.",
        )
    if mx.default_device() == mx.Device(mx.cpu):
        loaded.model.set_dtype(mx.float32)  # as the loader does: 7 to 40 times faster there
    mx.eval(loaded.model.parameters())
    return ModelDraft(loaded, target.tokens.vocabulary)

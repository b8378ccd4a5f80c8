"""The facts about a model: those of its modules and arrays, and with those of its files the record of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engine.frozen import frozen
from engine.model.dtype import dtype_of, quantization_of
from engine.model.memory import free_bytes
from engine.model.probe import CacheProbe
from engine.model.special_tokens import TEMPLATE_CHARACTERS, special_tokens
from engine.model.tokens import Tokens
from engine.model.weights import bytes_of, parameters_of
from engine.protocol import ModelFacts

LEARNED_POSITIONS = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


@frozen
class Whole:
    """What is known of a model before its weights are read, and before several processes divide it."""

    layers: int
    rows: int
    """Number of ids that may reach it."""
    parameters: int
    nbytes: int
    dtype: str
    quantization: str | None
    learned_positions: bool
    """Whether positions beyond its window have no embedding."""

    @property
    def weights(self) -> str:
        """The form of most of the weights."""
        return self.quantization or self.dtype


def whole_of(model: Any, config: dict[str, Any]) -> Whole:
    """What is known of a model whose weights may be lazy."""
    return Whole(
        layers=_layers(model, config),
        rows=_embedding_rows(model, config),
        parameters=parameters_of(model),
        nbytes=bytes_of(model),
        dtype=dtype_of(model),
        quantization=quantization_of(model),
        learned_positions=any(name.split(".")[-1] in LEARNED_POSITIONS for name, _ in model.named_modules()),
    )


def _embedding_rows(model: Any, config: dict[str, Any]) -> int:
    """Number of ids that may reach the model: an id beyond ends the process."""
    rows = [
        int(module.weight.shape[0])
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
        and name.split(".")[-1] not in LEARNED_POSITIONS
    ]
    return max(rows) if rows else int(first_of(config, "vocab_size") or 0)


def first_of(config: dict[str, Any], *names: str) -> Any:
    """The first of some fields that the config, or the text part of a multimodal one, has."""
    for table in (config, config.get("text_config") or {}):
        for name in names:
            if table.get(name) is not None:
                return table[name]
    return None


def facts_of(
    whole: Whole, config: dict[str, Any], path: Path, tokens: Tokens, probe: CacheProbe, load_ms: float
) -> ModelFacts:
    hidden, heads = (
        first_of(config, "hidden_size", "n_embd", "d_model"),
        first_of(config, "num_attention_heads", "n_head"),
    )
    head_size = (
        probe.head_size or first_of(config, "head_dim") or (hidden // heads if hidden and heads else None)
    )
    special, special_count = special_tokens(tokens)
    window = first_of(config, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    return ModelFacts(
        name=path.name
        if not _is_snapshot(path)
        else path.parent.parent.name.removeprefix("models--").replace("--", "/"),
        path=str(path),
        family=str(config.get("model_type")),
        layers=whole.layers,
        heads=heads,
        kv_heads=first_of(config, "num_key_value_heads") or heads,
        head_size=head_size,
        hidden_size=hidden,
        vocabulary=tokens.vocabulary,
        parameters=whole.parameters,
        weight_bytes=whole.nbytes,
        dtype=whole.dtype,
        quantization=whole.quantization,
        context_window=None if window is None else int(window),
        hard_window=whole.learned_positions,
        cache_kinds=probe.kinds,
        kv_bytes_per_token=probe.bytes_per_token,
        eos_ids=tokens.eos_ids,
        has_chat_template=tokens.has_chat_template,
        special=special,
        special_count=special_count,
        chat_template=tokens.template[:TEMPLATE_CHARACTERS],
        backend="cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
        load_ms=load_ms,
        free_bytes=free_bytes(),
    )


def _is_snapshot(path: Path) -> bool:
    return path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")


def arrays_of(model: Any) -> list[tuple[str, mx.array]]:
    """The weights of a model by name."""
    return cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))


def _layers(model: Any, config: dict[str, Any]) -> int:
    try:
        return len(model.layers)
    except (AttributeError, TypeError):
        return int(first_of(config, "num_hidden_layers", "n_layer", "n_layers") or 0)

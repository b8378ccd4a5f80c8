"""Broken adapters, in `adapter` below a model that loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mlx.core as mx

from tests.broken_models.breaking import Change, nested, put, safetensors

CONFIG: dict[str, Any] = {
    "fine_tune_type": "lora",
    "num_layers": 2,
    "lora_parameters": {"rank": 4, "scale": 20.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]},
}
SETTINGS, WEIGHTS = "adapter/adapter_config.json", "adapter/adapters.safetensors"


def written(directory: Path, **config: Any) -> None:
    """An adapter that fits, but for the fields given."""
    (directory / "adapter").mkdir()
    put(directory, SETTINGS, {**CONFIG, **config})
    arrays = {}
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn.q_proj"
        arrays |= {f"{name}.lora_a": mx.zeros((64, 4)), f"{name}.lora_b": mx.zeros((4, 128))}
    mx.save_safetensors(str(directory / WEIGHTS), arrays)


def config(**values: Any) -> Change:
    return lambda directory: written(directory, **values)


def lora(**values: Any) -> Change:
    return config(lora_parameters={**CONFIG["lora_parameters"], **values})


def then(change: Change) -> Change:
    """An adapter that fits, with one thing changed."""

    def both(directory: Path) -> None:
        written(directory)
        change(directory)

    return both


def file(name: str, content: Any) -> Change:
    return then(lambda directory: put(directory, name, content))


def piped(name: str) -> Change:
    def change(directory: Path) -> None:
        (directory / name).unlink()
        os.mkfifo(directory / name)

    return then(change)


ADAPTERS: dict[str, Change] = {
    "none": lambda directory: None,
    "empty": lambda directory: (directory / "adapter").mkdir(),
    "a-file": lambda directory: put(directory, "adapter", "x"),
    "without-weights": then(lambda directory: (directory / WEIGHTS).unlink()),
    "without-settings": then(lambda directory: (directory / SETTINGS).unlink()),
    "settings-empty": file(SETTINGS, b""),
    "settings-a-list": file(SETTINGS, [1]),
    "settings-nested": file(SETTINGS, nested(100_000)),
    "settings-nothing-in-it": file(SETTINGS, {}),
    "settings-a-pipe": piped(SETTINGS),
    "weights-a-pipe": piped(WEIGHTS),
    "weights-empty": file(WEIGHTS, b""),
    "weights-without-tensors": file(WEIGHTS, safetensors({})),
    "weights-cut": file(WEIGHTS, safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})),
    "weights-of-another": file(
        WEIGHTS, safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))
    ),
    "layers-text": config(num_layers="x"),
    "lora-text": config(lora_parameters="x"),
    "rank-negative": lora(rank=-4),
    "rank-huge": lora(rank=10**12),
    "rank-text": lora(rank="x"),
    "rank-other": lora(rank=8),
    "keys-unknown": lora(keys=["spiral"]),
    "keys-number": lora(keys=7),
    "scale-text": lora(scale="x"),
}

"""The bundled model: weights, tokenizer and card as data, and the scripts that trained it."""

from __future__ import annotations

from pathlib import Path


def directory() -> Path:
    """The directory that holds the model, in the layout that mlx_lm loads."""
    return Path(__file__).parent

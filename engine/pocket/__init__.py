"""The bundled model: weights, tokenizer and card as data. The scripts that trained it are in `tests/make_pocket`."""

from __future__ import annotations

from pathlib import Path


def directory() -> Path:
    """Directory of the model, in the layout that mlx_lm loads."""
    return Path(__file__).parent

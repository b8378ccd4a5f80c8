"""A training that takes a second: a tiny model on a text of a few words, which repeat."""

from __future__ import annotations

import random
from pathlib import Path

from engine.settings import TrainingSettings

WORDS = ("the", "a", "dog", "cat", "saw", "ran", "to", "park", "red", "big", "ball", "and", "little", "girl")


def text(words: int = 4000, seed: int = 0) -> str:
    """A text of words in a random order, the same for the same seed."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def tiny(directory: Path, **others: object) -> TrainingSettings:
    """Settings of a tiny model on a file that is written into a directory."""
    file = directory / "text.txt"
    if not file.exists():
        file.write_text(text())
    usual: dict[str, object] = {
        "texts": (str(file),), "layers": 2, "width": 16, "vocabulary": 300, "rows": 2, "row_tokens": 16,
        "steps": 12, "every": 4, "prompt": "the dog", "seed": 5,
    }  # fmt: skip
    return TrainingSettings(**(usual | others))  # type: ignore[arg-type]

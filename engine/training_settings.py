"""The settings of a small model's training. Standard library alone."""

from __future__ import annotations

from engine.errors import SettingsError
from engine.frozen import frozen

LEAST_VOCABULARY = 257
"""Every byte and the end of a text."""
HEADS = 4
"""Of every layer; the width is divided among them."""


@frozen
class TrainingSettings:
    """The text that a model learns from, its sizes and the length of the training."""

    texts: tuple[str, ...] = ()
    """Paths of UTF-8 texts, or of folders of them; none for the stories that come with the program."""
    layers: int = 2
    """Of the default text 4 know no more after the same time: see `engine.training.learner.SLOWED`."""
    width: int = 96
    """Of the residual stream, a multiple of 8."""
    vocabulary: int = 512
    """Tokens of its own tokenizer at most. Of 4 layers a step takes 58 ms with 512 and 251 with 4,096: most of it is
    spent on the rows of logits."""
    rows: int = 8
    """Rows of a batch."""
    row_tokens: int = 64
    """Tokens of a row."""
    steps: int = 1800
    """Of the whole training: the learning rate falls until then."""
    rate: float = 8e-3
    """The highest learning rate."""
    every: int = 25
    """Steps between two looks: held-out loss, candidates after the prompt, and a text."""
    prompt: str = "Once upon a time"
    seed: int = 0


BOUNDS = {
    "layers": (1, 12),
    "width": (16, 256),
    "vocabulary": (LEAST_VOCABULARY, 8192),
    "rows": (1, 64),
    "row_tokens": (8, 256),
    "steps": (1, 1_000_000),
    "every": (1, 10_000),
    "seed": (0, 2**32 - 1),
}
"""Least and most of each whole number: what a laptop trains while one looks on."""
HIGHEST_RATE = 1.0
LONGEST_PROMPT = 200
"""Characters."""
MOST_TEXTS = 100
"""Paths."""


def check_training(settings: TrainingSettings) -> TrainingSettings:
    """Refuse what can't be trained.

    Raises:
        SettingsError: A setting is out of its range.
    """
    for name, (least, most) in BOUNDS.items():
        if not least <= (value := getattr(settings, name)) <= most:
            raise SettingsError(name, f"must be from {least:,} to {most:,}, not {value:,}.", "Change it.")
    if settings.width % 8:
        raise SettingsError(
            "width", f"must be a multiple of 8, not {settings.width}.", "Take 96, for example."
        )
    if not 0 < settings.rate <= HIGHEST_RATE:
        raise SettingsError("rate", f"must be above 0 and at most 1, not {settings.rate:g}.", "Take 0.008.")
    if not settings.prompt or len(settings.prompt) > LONGEST_PROMPT:
        message = f"must have 1 to {LONGEST_PROMPT} characters, not {len(settings.prompt)}."
        raise SettingsError("prompt", message, "Give the beginning of a sentence.")
    if len(settings.texts) > MOST_TEXTS:
        message = f"at most {MOST_TEXTS} can be given, not {len(settings.texts)}."
        raise SettingsError("text", message, "Put the texts into a folder and give that.")
    return settings

"""The settings of a small model's training: what a laptop trains while the user looks on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from engine.setting import Setting, SettingsStruct

LEAST_VOCABULARY = 257
"""Every byte and the end of a text."""
HEADS = 4
"""Of every layer; the width is divided among them."""
MOST_STEPS = 1_000_000
LONGEST_PROMPT = 200
"""Characters."""
MOST_TEXTS = 100
"""Paths."""


class TrainingSettings(SettingsStruct, frozen=True):
    """The text that a model learns from, its sizes and the length of the training."""

    texts: Annotated[tuple[str, ...], Meta(max_length=MOST_TEXTS), Setting(
        "UTF-8 texts, or folders of them; the program's own stories by default", "text",
        says=f"at most {MOST_TEXTS} paths; put the texts into a folder and give that",
    )] = ()  # fmt: skip
    layers: Annotated[int, Meta(ge=1, le=12), Setting("layers of the llama")] = 2
    """Of the default text 4 know no more after the same time: see `engine.training.learner.SLOWED`."""
    width: Annotated[
        int, Meta(ge=16, le=256, multiple_of=8), Setting("width of its residual stream, a multiple of 8")
    ] = 96
    vocabulary: Annotated[
        int, Meta(ge=LEAST_VOCABULARY, le=8192), Setting("most tokens of its tokenizer")
    ] = 512
    """Of 4 layers a step takes 58 ms with 512 and 251 with 4,096: most of it is spent on the rows of logits."""
    rows: Annotated[int, Meta(ge=1, le=64), Setting("rows of a batch")] = 8
    row_tokens: Annotated[int, Meta(ge=8, le=256), Setting("tokens of a row")] = 64
    steps: Annotated[
        int,
        Meta(ge=1, le=MOST_STEPS),
        Setting("steps of the whole training; the learning rate falls until the last"),
    ] = 1800
    rate: Annotated[float, Meta(gt=0, le=1), Setting("highest learning rate")] = 8e-3
    every: Annotated[
        int, Meta(ge=1, le=10_000), Setting("steps between two reports of loss, candidates and text")
    ] = 25
    """Held-out loss, candidates after the prompt, and a text."""
    prompt: Annotated[
        str, Meta(min_length=1, max_length=LONGEST_PROMPT), Setting("the text that it continues")
    ] = "Once upon a time"
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1), Setting("seed of the weights and batches")] = 0

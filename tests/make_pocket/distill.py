"""Sample the stories that a small model is trained on if the user names no text: the pocket model writes them.

Run it as `python -m tests.make_pocket.distill`: it takes some minutes on two cores and writes
`engine/training/stories.txt.gz`. The seed is fixed; a different version of MLX may draw other stories.
"""

from __future__ import annotations

import gzip
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from engine import pocket
from engine.patches import blas
from engine.training.learner import END_OF_TEXT, STORIES

ROWS = 64
"""Stories in a batch."""
BATCHES = 13
TOKENS = 220
"""Longest story."""
TEMPERATURE = 0.8
LEAST = 150
"""Characters of the shortest story that is kept."""
OPENINGS = ("Once upon a time", "One day, a")
ENDS = (0, 2)
"""`<|endoftext|>` and `<|im_end|>` of the pocket model."""


def sample(model: Any, tokenizer: Any, opening: str) -> list[str]:
    """Sample a batch of stories with one opening.

    Args:
        model: The pocket model.
        tokenizer: Its tokenizer.
        opening: The first words of each.

    Returns:
        The stories, each cut after its last whole sentence.
    """
    begin = [ENDS[0], *tokenizer.encode(opening, add_special_tokens=False)]
    cache = make_prompt_cache(model)
    ids, columns = mx.array([begin] * ROWS), []
    for _ in range(TOKENS):
        logits = model(ids, cache=cache)[:, -1]
        ids = mx.random.categorical(logits / TEMPERATURE)[:, None]
        mx.eval(ids)
        columns.append(np.array(ids[:, 0]))
    return [whole_sentences(opening + tokenizer.decode(_until_end(row))) for row in np.stack(columns, 1)]


def _until_end(row: np.ndarray[Any, Any]) -> list[int]:
    ends = np.flatnonzero(np.isin(row, ENDS))
    return [int(one) for one in (row[: ends[0]] if len(ends) else row)]


def whole_sentences(story: str) -> str:
    """The story up to the end of its last sentence, with its closing quotation mark; empty if no sentence ends."""
    end = max(story.rfind(mark) for mark in ".!?") + 1
    return story[: end + 1 if story[end : end + 1] == '"' else end].strip()


def main() -> int:
    """Sample the stories and write them."""
    blas.install("auto")
    mx.disable_compile()
    model, tokenizer = mlx_lm.load(str(pocket.directory()))[:2]
    model.set_dtype(mx.float32)
    mx.random.seed(0)
    stories: list[str] = []
    for batch in range(BATCHES):
        drawn = sample(model, tokenizer, OPENINGS[batch % len(OPENINGS)])
        stories += [story for story in drawn if len(story) > LEAST]
        print(f"{len(stories)} stories", flush=True)
    STORIES.write_bytes(gzip.compress(END_OF_TEXT.join(stories).encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

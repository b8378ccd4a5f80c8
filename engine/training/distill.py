"""Write the stories that a model learns from where a person brings no text: the pocket model tells them.

Run it as `python -m engine.training.distill`: it takes some minutes on two cores and writes `stories.txt.gz` beside
this file. The seed is fixed; another version of MLX may draw other stories.
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
from engine.training.text import END_OF_TEXT, STORIES

ROWS = 64
"""Stories that are told at once."""
BATCHES = 13
TOKENS = 220
"""At most in a story."""
TEMPERATURE = 0.8
LEAST = 150
"""Characters of a story that is kept."""
OPENINGS = ("Once upon a time", "One day, a")
ENDS = (0, 2)
"""`<|endoftext|>` and `<|im_end|>` of the pocket model."""


def tell(model: Any, tokenizer: Any, opening: str) -> list[str]:
    """A batch of stories with one opening.

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
    return [whole(opening + tokenizer.decode(_until_end(row))) for row in np.stack(columns, 1)]


def _until_end(row: np.ndarray[Any, Any]) -> list[int]:
    ends = np.flatnonzero(np.isin(row, ENDS))
    return [int(one) for one in (row[: ends[0]] if len(ends) else row)]


def whole(story: str) -> str:
    """A story up to its last sentence's end, which has its closing quotation mark; nothing where there is none."""
    end = max(story.rfind(mark) for mark in ".!?") + 1
    return story[: end + 1 if story[end : end + 1] == '"' else end].strip()


def main() -> int:
    """Tell the stories and write them."""
    blas.install("auto")
    mx.disable_compile()
    model, tokenizer = mlx_lm.load(str(pocket.directory()))[:2]
    model.set_dtype(mx.float32)
    mx.random.seed(0)
    stories: list[str] = []
    for batch in range(BATCHES):
        told = tell(model, tokenizer, OPENINGS[batch % len(OPENINGS)])
        stories += [story for story in told if len(story) > LEAST]
        print(f"{len(stories)} stories", flush=True)
    STORIES.write_bytes(gzip.compress(END_OF_TEXT.join(stories).encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A tokenizer trained in a moment on a text of one's own: byte-level BPE, at any size of its vocabulary.

BPE training adds the pair that is there most often, again and again, so a smaller vocabulary is the beginning of a
larger one, and what it does to a word is the beginning of the larger one's ladder. So one is trained, the largest.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.errors import PromptError
from engine.frozen import frozen
from engine.merges.algorithms import BytePairs
from engine.merges.apart import Apart
from engine.protocol import WordApart

BYTES = 256
"""Tokens of the smallest vocabulary: one for each byte, and no merges."""
LARGEST = 8192
"""Tokens of the largest vocabulary."""
SIZES = (BYTES, 272, 288, 320, 384, 448, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, LARGEST)
"""From which a person chooses."""
MOST = 200_000
"""Characters of a text at most."""
LONGEST = 64
"""Bytes of a token at most."""
LINE = 500
"""Characters of a line at most, and so of a word: training takes the square of a word without end, a minute of 200,000
characters without a space."""


@frozen
class TrainedSize:
    """What a vocabulary of one size makes of the text that it was trained on."""

    vocabulary: int
    merges: int
    tokens: int


class TrainedTokenizer:
    """A tokenizer of one's own.

    Args:
        text: What it is trained on; of a very long one the first `MOST` characters.

    Raises:
        PromptError: The text is empty, or isn't Unicode.
    """

    def __init__(self, text: str) -> None:
        self.text = text[:MOST]
        _check(self.text)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=LARGEST,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            max_token_length=LONGEST,
            show_progress=False,
        )
        lines = [
            line[begin : begin + LINE]
            for line in self.text.splitlines(keepends=True)
            for begin in range(0, len(line), LINE)
        ]
        tokenizer.train_from_iterator(lines, trainer)
        self.apart = Apart(tokenizer)
        """The largest one."""
        self.sizes = _sizes(json.loads(tokenizer.to_str())["model"], lines, tokenizer.pre_tokenizer)
        """Of the smallest first; the last is the largest that the text gives: in a short one soon nothing is left."""

    def pieces(self, word: WordApart, size: TrainedSize) -> tuple[bytes, ...]:
        """The pieces of a word with a smaller vocabulary.

        Args:
            word: As `apart` took it apart.
            size: One of `sizes`.
        """
        return word.pieces(_made(word.ranks, size.merges))


def _check(text: str) -> None:
    if not text.strip():
        raise PromptError("There is no text to train a tokenizer on.", "Give some sentences.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"The text is not valid Unicode at character {error.start}."
        raise PromptError(message, "Save it as UTF-8 and try again.") from None


def _made(ranks: tuple[int, ...], merges: int) -> int:
    """How many merges of a ladder there are with the first ones of the list alone."""
    return next((place for place, rank in enumerate(ranks) if rank >= merges), len(ranks))


def _sizes(
    model: dict[str, object], lines: list[str], pre_tokenizer: pre_tokenizers.PreTokenizer
) -> tuple[TrainedSize, ...]:
    """What each size makes of the text.

    Args:
        model: The largest, as its file has it.
        lines: The text.
        pre_tokenizer: What cuts them into words.
    """
    pairs = BytePairs(model)
    reached = list(accumulate(pairs.results, lambda most, new: max(most, new + 1), initial=BYTES))
    """Tokens of the vocabulary after each merge."""
    sizes = [size for size in SIZES if size < reached[-1]] + [reached[-1]]
    cuts = [bisect_left(reached, size) for size in sizes]
    tokens = [0] * len(sizes)
    words = Counter(word for line in lines for word, _ in pre_tokenizer.pre_tokenize_str(line))
    for word, times in words.items():
        made = pairs.make(word)
        for place, cut in enumerate(cuts):
            tokens[place] += times * (len(made.symbols) - _made(made.ranks, cut))
    return tuple(map(TrainedSize, sizes, cuts, tokens))

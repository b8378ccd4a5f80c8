"""Models for measuring what each token costs: the bundled one, and random layers with vocabularies of three sizes.

The bundled model has 4,096 ids, which numpy reads in no time; published models have 150,000 to 260,000.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.model import synthetic
from engine.model.tokens import alphabet
from engine.settings import LoadSettings

SIZES = (4_096, 152_000, 256_000)


def write(directory: Path, size: int, hidden: int = 64) -> str:
    """Write a model of two layers and so many ids, each with a text; returns where it is."""
    shape = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    synthetic.write(directory, {**synthetic.LLAMA_100M, **shape, **heads, "vocab_size": size})
    tokenizer(size).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}', "utf-8"
    )
    return str(directory)


def with_pocket() -> Iterator[tuple[str, str]]:
    """The bundled model, then `each`."""
    yield "pocket", LoadSettings().model
    yield from each()


def each(sizes: Sequence[int] = SIZES, hidden: int = 64) -> Iterator[tuple[str, str]]:
    """Write a model of each size; yields its name and where it is, until the next one is asked for."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            yield f"{size:,} ids", write(Path(directory), size, hidden)


def tokenizer(size: int) -> Tokenizer:
    """A byte-level tokenizer of random words, most of them with a space before."""
    chance = random.Random(1)
    letter = {byte: char for char, byte in alphabet().items()}
    known = {char: place for place, char in enumerate(letter.values())}
    while len(known) < size:
        word = "".join(chance.choice("eeetaoinshrdlu") for _ in range(chance.randint(2, 8)))
        word = word.title() if chance.random() < 0.2 else word
        word += "狐" if chance.random() < 0.05 else ""
        spaced = " " + word if chance.random() < 0.6 else word
        known.setdefault("".join(letter[byte] for byte in spaced.encode()), len(known))
    made = Tokenizer(models.BPE(vocab=known, merges=[]))
    made.decoder, made.pre_tokenizer = decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made

"""What a search of the vocabulary costs, on 150,000 tokens: from the kept logits of one step.

    python -m tests.benchmarks.vocabulary

Prints the milliseconds of the first search, which reads every token, and of those after it; the slowest last.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.logits.questions import Vocabulary, find
from engine.model import synthetic
from engine.model.load import load
from engine.model.tokens import alphabet
from engine.session.session import Session
from engine.settings import LoadSettings, Settings

VOCABULARY = 150_000
ROUNDS = 20
QUERIES = ("", "e", " the", "The", "zzzz", "␣to", "狐", "#77", "0x e7 8b")
SAMPLED = Settings(temp=0.8, top_p=0.95, min_p=0.02, top_k=50, repetition_penalty=1.1)


def tokenizer(path: Path) -> None:
    """Write a byte-level tokenizer of random words, most of them with a space before."""
    chance = random.Random(1)
    letter = {byte: char for char, byte in alphabet().items()}
    known = {char: place for place, char in enumerate(letter.values())}
    while len(known) < VOCABULARY:
        word = "".join(chance.choice("eeetaoinshrdlu") for _ in range(chance.randint(2, 8)))
        word = word.title() if chance.random() < 0.2 else word
        word += "狐" if chance.random() < 0.05 else ""
        spaced = " " + word if chance.random() < 0.6 else word
        known.setdefault("".join(letter[byte] for byte in spaced.encode()), len(known))
    made = Tokenizer(models.BPE(vocab=known, merges=[]))
    made.decoder, made.pre_tokenizer = decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(path))


def session(directory: Path) -> Session:
    """A tiny model with a large vocabulary, a few steps in."""
    config = dict(synthetic.LLAMA_100M)
    config |= {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": VOCABULARY}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    written = synthetic.write(directory / "wide", config)
    tokenizer(written / "tokenizer.json")
    found = Session(load(LoadSettings(model=str(written))), SAMPLED)
    list(found.prefill("", list(range(5, 40)), echo=False))
    found.step()
    return found


def main() -> None:
    """Measure and print."""
    slowest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        asked = session(Path(directory))
        vocabulary = Vocabulary(asked.tokens)
        begun = time.perf_counter()
        find(asked, vocabulary, asked.node, " the", 100)
        print(f"the first search     {(time.perf_counter() - begun) * 1000:6.0f} ms")
        for query in QUERIES:
            times = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                found = find(asked, vocabulary, asked.node, query, 100)
                times.append((time.perf_counter() - begun) * 1000)
            middle = statistics.median(times)
            slowest = max(slowest, middle)
            print(
                f"{query!r:12} {found.total:7,} found {middle:6.1f} ms   ({min(times):.1f} to {max(times):.1f})"
            )
    print(f"slowest {slowest:.1f} ms")


if __name__ == "__main__":
    main()

"""Tokenizers of five kinds, trained on the program's own help in a moment, and texts to cut with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import inspector
from engine import pocket

KINDS = ("pocket", "byte-level", "sentencepiece", "unigram", "wordpiece")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PAGES = sorted((Path(inspector.__file__).parent / "help" / "parts").glob("*.md"))


@cache
def lines() -> tuple[str, ...]:
    """What they are trained on, some 40 KB."""
    return tuple(line for page in PAGES for line in page.read_text("utf-8").splitlines())


@cache
def tokenizer(kind: str) -> Tokenizer:
    """One of the five."""
    match kind:
        case "pocket":
            return Tokenizer.from_file(str(pocket.directory() / "tokenizer.json"))
        case "byte-level":
            return byte_level()
        case "sentencepiece":
            return sentencepiece()
        case "unigram":
            return unigram()
    return wordpiece()


def byte_level(size: int = 1200) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        lines(),
        trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
        ),
    )
    made.add_tokens(
        [
            AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("word", single_word=True),
        ]
    )
    return made


def sentencepiece(**model: Any) -> Tokenizer:
    """As llama's: bytes for what no piece covers, and no pre-tokenizer in the file."""
    made = Tokenizer(models.BPE(**{"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", **model}))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<unk>", *BYTES], show_progress=False)
    made.train_from_iterator(lines(), trainer)
    file = json.loads(made.to_str())
    file["pre_tokenizer"] = None
    file["added_tokens"] = [each for each in file["added_tokens"] if each["content"] in ("<unk>", "<0x0A>")]
    return Tokenizer.from_str(json.dumps(file))


def unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    made.train_from_iterator(lines(), trainer)
    return made


def wordpiece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=800, special_tokens=["[UNK]", "[CLS]"], show_progress=False
    )
    made.train_from_iterator(lines(), trainer)
    return made


ENDS = (
    "",
    "<|im_end|>",
    "<|end|> x",
    "<unk>",
    "<0x0A>",
    " [UNK] ",
    " <tool> ",
    "a word wordy",
    "é́ ﬁ",
    "\x00",
)
"""Special tokens of the five, in the text and beside it."""


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Prose, foreign scripts, blanks, special tokens, and letters that repeat themselves."""
    random = Random(seed)
    prose = "\n".join(lines())
    for _ in range(count):
        match random.randrange(5):
            case 0:
                begin = random.randrange(len(prose) - 200)
                yield prose[begin : begin + random.randrange(1, 200)]
            case 1:
                yield "".join(_foreign(random) for _ in range(random.randrange(1, 40)))
            case 2:
                yield "".join(
                    random.choice(" \n\tabcdefghij  .,'123") for _ in range(random.randrange(1, 80))
                )
            case 3:
                said = " ".join(random.choice(lines()).strip()[:40] for _ in range(3))
                yield said + random.choice(ENDS)
            case _:
                yield "".join(random.choice("aaab ") for _ in range(random.randrange(1, 60)))


def _foreign(random: Random) -> str:
    ranges = ((32, 127), (160, 0x2000), (0x4E00, 0x9FFF), (0x1F300, 0x1F700))
    return chr(random.randrange(*random.choice(ranges)))

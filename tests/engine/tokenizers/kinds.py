"""Tokenizers of eight kinds, trained on the program's own help in a moment, and texts to cut with them."""

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

KINDS = ("pocket", "byte-level", "sentencepiece", "gemma", "llama", "unigram", "wordpiece", "suffixed")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PAGES = sorted((Path(inspector.__file__).parent / "help" / "parts").glob("*.md"))


@cache
def lines() -> tuple[str, ...]:
    """What they are trained on, some 40 KB."""
    return tuple(line for page in PAGES for line in page.read_text("utf-8").splitlines())


@cache
def tokenizer(kind: str) -> Tokenizer:
    """One of the eight."""
    match kind:
        case "pocket":
            return Tokenizer.from_file(str(pocket.directory() / "tokenizer.json"))
        case "byte-level":
            return byte_level()
        case "sentencepiece":
            return sentencepiece()
        case "gemma":
            return gemma()
        case "llama":
            return llama()
        case "unigram":
            return unigram()
        case "suffixed":
            return suffixed()
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
            AddedToken("Ġx", normalized=False),
            AddedToken("é", normalized=False),
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


def gemma() -> Tokenizer:
    """As Gemma 3's: tokens of its vocabulary are added ones, too, which hold ▁."""
    file = json.loads(sentencepiece().to_str())
    file["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    vocabulary = file["model"]["vocab"]
    for piece in ("▁▁", "▁▁▁", "▁▁▁▁▁▁", "\n\n", "<start_of_turn>"):
        vocabulary.setdefault(piece, len(vocabulary))
    file["model"]["merges"] += [["▁", "▁"], ["▁▁", "▁"], ["▁▁▁", "▁▁▁"]]
    added = [_added(vocabulary[piece], piece) for piece in ("▁▁", "▁▁▁", "▁▁▁▁▁▁", "\n\n", "▁the")]
    added.append({**_added(vocabulary["<start_of_turn>"], "<start_of_turn>"), "special": True})
    return _with(file, added, [_REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}])


def llama() -> Tokenizer:
    """As Llama 2's: a space before every text and every added token that is normalized."""
    file = json.loads(sentencepiece().to_str())
    size = len(file["model"]["vocab"])
    added = [_added(size, "Upper"), _added(size + 1, "▁<PRE>"), _added(size + 2, "</s>")]
    added[0]["normalized"], added[1]["special"], added[2]["special"] = True, True, True
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return _with(file, added, [_REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}, strip])


_REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def _added(id: int, content: str) -> dict[str, Any]:
    no = dict.fromkeys(("special", "normalized", "single_word", "lstrip", "rstrip"), False)
    return {"id": id, "content": content, **no}


def _with(file: dict[str, Any], added: list[dict[str, Any]], parts: list[dict[str, Any]]) -> Tokenizer:
    file["added_tokens"] = sorted([*file["added_tokens"], *added], key=lambda each: each["id"])
    file["decoder"] = {"type": "Sequence", "decoders": parts}
    return Tokenizer.from_str(json.dumps(file))


def suffixed() -> Tokenizer:
    """As the first GPT's: the last piece of a word ends with a mark."""
    made = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    made.train_from_iterator(lines(), trainer)
    return made


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
    " see the dog      and Upper",
    " ▁<PRE> Ġx",
    "é́ ﬁ",
    "\x00",
)
"""Special tokens of these, in the text and beside it."""


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

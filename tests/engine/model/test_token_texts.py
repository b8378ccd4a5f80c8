"""The texts of tokens are those of `tokenizer.decode`: on every token of every kind of tokenizer."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from mlx_lm import tokenizer_utils, utils
from tokenizers import Tokenizer, decoders
from transformers import PreTrainedTokenizerFast

from engine import pocket
from engine.model.tokens import Tokens
from engine.patches.imports import complete
from engine.token_texts import alphabet
from tests import templates
from tests.engine.lockstep.rig import coarse_tokenizer
from tests.engine.model.test_tokens import sentencepiece  # noqa: F401  a fixture
from tests.engine.session.test_texts import spaced  # noqa: F401  a fixture
from tests.engine.tokenizers import kinds


def decoded(kind: str, decoder: decoders.Decoder) -> Tokenizer:
    """One of the kinds with another decoder."""
    made = Tokenizer.from_str(kinds.tokenizer(kind).to_str())
    made.decoder = decoder
    return made


def with_a_gap() -> Tokenizer:
    """One whose ids are not one after another."""
    file = json.loads(kinds.tokenizer("byte-level").to_str())
    last = max(file["model"]["vocab"], key=file["model"]["vocab"].get)
    file["model"]["vocab"][last] += 3
    file["model"]["merges"] = [each for each in file["model"]["merges"] if "".join(each) != last]
    file["added_tokens"] = [each for each in file["added_tokens"] if each["id"] == 0]
    return Tokenizer.from_str(json.dumps(file))


REPLACE = decoders.Replace("▁", " ")
MADE = {
    **{kind: (lambda kind=kind: kinds.tokenizer(kind)) for kind in kinds.KINDS},
    "metaspace": lambda: decoded("unigram", decoders.Metaspace()),
    "metaspace without a first": lambda: decoded("unigram", decoders.Metaspace(prepend_scheme="never")),
    "metaspace and bytes": lambda: decoded(
        "llama", decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    ),
    "another sign for a space": lambda: decoded("gemma", decoders.Replace("e", " ")),
    "wordpiece with its decoder": lambda: decoded("wordpiece", decoders.WordPiece()),
    "wordpiece as it is": lambda: decoded("wordpiece", decoders.WordPiece(cleanup=False)),
    "strips each": lambda: decoded("llama", decoders.Sequence([REPLACE, decoders.Strip(" ", 1, 0)])),
    "ids with a gap": with_a_gap,
}
"""Tokenizers of the library, by name."""

FIRST = {
    "sentencepiece", "unigram", "wordpiece", "llama", "metaspace", "metaspace and bytes", "wordpiece with its decoder",
    "wordpiece as it is",
}  # fmt: skip
"""Those that leave out spaces before the first token of a text. A token has its space wherever it is."""
CONTINUING = {"wordpiece with its decoder", "wordpiece as it is"}
"""Those that show the mark of a piece that continues a word, if it is the first of a text."""
LAST = {"suffixed"}
"""Those that leave out the space after the last one."""


def tokens_of(fast: Any) -> Tokens:
    """A tokenizer of transformers as the engine has it, with a row for each of its ids."""
    complete()
    return Tokens(tokenizer_utils.TokenizerWrapper(fast), max(fast.get_vocab().values()) + 1)


@cache
def of(name: str) -> Tokens:
    """The tokens of one of `MADE`, or of a template's tokenizer."""
    if name in MADE:
        return tokens_of(PreTrainedTokenizerFast(tokenizer_object=MADE[name](), eos_token="e"))
    return templates.tokens(name)


def bytes_of(tokens: Tokens) -> dict[int, int]:
    """Tokens that stand for single bytes by these bytes, where the decoder joins them to characters."""
    given = json.loads(tokens.backend.to_str())["decoder"] or {}
    if "ByteFallback" not in {given.get("type"), *(each["type"] for each in given.get("decoders", ()))}:
        return {}
    vocabulary = tokens._fast.get_vocab()
    return {byte: vocabulary[name] for name, byte in kinds_bytes() if name in vocabulary}


def kinds_bytes() -> list[tuple[str, int]]:
    return [(name, byte) for byte, name in enumerate(kinds.BYTES)]


def check(tokens: Tokens, name: str = "") -> int:
    """Compare every token in two random texts, each beginning of these, with `decode`; returns how many tokens."""
    decode, join = tokens._fast.decode, tokens.join
    vocabulary = tokens._fast.get_vocab()
    single, ids = bytes_of(tokens), sorted({*vocabulary.values()})
    text = [each for each in ids if each not in single.values()]
    letter = vocabulary["t"]
    before, behind = decode([letter]), decode([letter, letter])[1:]
    texts = []
    for seed in range(2):
        order = Random(seed).sample(text, len(text))
        texts += [order[begin : begin + 8] for begin in range(0, len(order), 8)]
    beginnings = [each[: end + 1] for each in texts for end in range(len(each))]
    if single:  # parts of a character are one U+FFFD each, or as many as there are: whole ones are compared
        chars = [*map(chr, range(0x800)), *"ࠀ日本한�\U00010000🔴\U000f0000\U0010ffff"]
        beginnings += [[text[-1], *(single[byte] for byte in char.encode()), text[-2]] for char in chars]
    for given in beginnings:
        got = join(given)
        assert decode([letter, *given, letter]) == before + got + behind, given
        alone = decode(given)
        if name in CONTINUING:
            alone = alone.removeprefix("##")
        if name in FIRST:
            got, alone = got.lstrip(" "), alone.lstrip(" ")
        assert alone == (got.removesuffix(" ") if name in LAST else got), given
    for byte, token in single.items():
        assert tokens.raw(token) == bytes([byte])
    assert {*text, *single.values()} == {*ids}
    return len(ids)


@pytest.mark.parametrize("name", [*MADE, *templates.NAMES])
def test_each_beginning_of_a_text_is_what_the_tokenizer_decodes(name: str) -> None:
    check(of(name), name)


@pytest.mark.parametrize("fixture", ["sentencepiece", "spaced"])
def test_so_it_is_with_the_tokenizers_of_other_tests(fixture: str, request: pytest.FixtureRequest) -> None:
    check(request.getfixturevalue(fixture))


def test_so_it_is_with_a_tokenizer_that_cuts_shorter(tmp_path: Path) -> None:
    shutil.copy(pocket.directory() / "config.json", tmp_path)
    loaded = utils.load_tokenizer(coarse_tokenizer(tmp_path), eos_token_ids=[0])
    check(Tokens(loaded, len(loaded._tokenizer)))


def test_code_that_decodes_is_asked() -> None:
    """mlx_lm has a class whose `<n>` is a line break."""
    made = kinds.gemma()
    made.add_tokens(["<n>"])
    complete()
    tokens = tokens_of(tokenizer_utils.NewlineTokenizer(tokenizer_object=made))
    assert check(tokens) == 1006
    assert tokens.join(tokens.encode("see\nthe dog")) == "see\nthe dog"


class Coded:
    """As tokenizers that are code alone: no file says how they decode."""

    all_special_ids = ()
    pieces = ("a", "b", "Ġb", "âĤ", "¬", b"raw")

    def __len__(self) -> int:
        return len(self.pieces)

    def get_vocab(self) -> dict[str, int]:
        return {}

    def convert_ids_to_tokens(self, token: int) -> str | bytes:
        return self.pieces[token]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0]

    def decode(self, ids: list[int]) -> str:
        letter = alphabet()
        spelled = (self.pieces[id] for id in ids)
        raws = (bytes(map(letter.__getitem__, each)) if isinstance(each, str) else each for each in spelled)
        return b"".join(raws).decode("utf-8", "replace")


def test_a_tokenizer_that_is_code_is_asked_and_its_pieces_have_the_bytes() -> None:
    wrapper = SimpleNamespace(_tokenizer=Coded(), eos_token_ids=[], has_chat_template=False)
    tokens = Tokens(wrapper, 8)
    assert [tokens.raw(token) for token in range(8)] == [
        b"a",
        b"b",
        b" b",
        b"\xe2\x82",
        b"\xac",
        b"raw",
        b"",
        b"",
    ]
    assert tokens.join([1, 2, 3, 4]) == "b b€"

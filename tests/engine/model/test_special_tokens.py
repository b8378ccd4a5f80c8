"""The special tokens in the facts: all of them with their roles, as the tokenizer's files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlx_lm import utils
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from engine import pocket
from engine.model import special_tokens as module
from engine.model.plain_tokenizer import plain_tokenizer
from engine.model.special_tokens import special_tokens
from engine.model.tokens import Tokens
from engine.protocol import SpecialToken

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|header|>{{ m.role }}{% endfor %}"


def made(path: Path, special: list[str], **config: Any) -> Path:
    """A directory with a byte-level tokenizer that has some special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("plain_added", special=False)])
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 3}))
    return path


def test_the_bundled_model_has_its_three_with_either_tokenizer() -> None:
    expected = (
        SpecialToken(0, "<|endoftext|>", ("EOS", "PAD")),
        SpecialToken(1, "<|im_start|>"),
        SpecialToken(2, "<|im_end|>", ("EOS",)),
    )
    config = json.loads((pocket.directory() / "config.json").read_text())
    plain = plain_tokenizer(pocket.directory(), config)
    for wrapper in (plain, utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2])):
        tokens = Tokens(wrapper, 4096)
        assert special_tokens(tokens) == (expected, 3)
        assert tokens.template.startswith("{% for message in messages %}{{'<|im_start|>'")


def test_roles_are_those_of_the_files_and_an_added_word_is_none_of_them(tmp_path: Path) -> None:
    names = ["<|begin|>", "<|end|>", "<|eot|>", "<|header|>", "<|pad|>"]
    roles = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    path = made(tmp_path, names, chat_template=TEMPLATE, **roles)
    tokens = Tokens(utils.load_tokenizer(path, eos_token_ids=[3]), 100)
    assert special_tokens(tokens) == (
        (
            SpecialToken(1, "<|begin|>", ("BOS",)),
            SpecialToken(2, "<|end|>", ("EOS",)),
            SpecialToken(3, "<|eot|>", ("EOS",)),
            SpecialToken(4, "<|header|>"),
            SpecialToken(5, "<|pad|>", ("PAD",)),
        ),
        5,
    )
    assert tokens.template == TEMPLATE
    theirs = AutoTokenizer.from_pretrained(path)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 5)


def test_of_very_many_those_in_use_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"<|reserved_{number}|>" for number in range(40)), "<|header|>", "<|end|>"]
    path = made(tmp_path, names, chat_template=TEMPLATE, eos_token="<|end|>")
    monkeypatch.setattr(module, "MOST", 10)
    kept, count = special_tokens(Tokens(utils.load_tokenizer(path, eos_token_ids=[42]), 100))
    assert count == 42
    assert [each.id for each in kept] == [1, 2, 3, 4, 5, 6, 7, 8, 41, 42]


def test_a_model_without_template_or_special_tokens_has_none(tmp_path: Path) -> None:
    tokens = Tokens(utils.load_tokenizer(made(tmp_path, []), eos_token_ids=[]), 100)
    assert special_tokens(tokens) == ((), 0)
    assert tokens.template == ""

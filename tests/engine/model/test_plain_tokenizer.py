"""The tokenizer without transformers: equal to the one that mlx_lm loads, or not used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm import utils

from engine import pocket
from engine.model.plain_tokenizer import _FAMILIES, PlainTokenizer, PlainWrapper, plain_tokenizer
from engine.model.tokens import Tokens
from engine.protocol import NO_OPTIONS, Message
from tests.zoo import CONFIGS, Zoo

CONFIG = json.loads((pocket.directory() / "config.json").read_text(encoding="utf-8"))


@cache
def theirs() -> Tokens:
    return Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=CONFIG["eos_token_id"]), 4096)


@cache
def ours() -> Tokens:
    wrapper = plain_tokenizer(pocket.directory(), CONFIG)
    assert wrapper is not None
    return Tokens(wrapper, 4096)


PIECES = st.sampled_from(
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|", "\n", "  ", "é", "🙂", "a\x00b", "Lily"]
)
TEXTS = st.lists(st.text(max_size=12) | PIECES, max_size=12).map("".join)


@given(TEXTS, st.booleans())
@settings(deadline=None)
def test_it_cuts_every_text_like_the_one_of_mlx_lm(text: str, marks: bool) -> None:
    assert isinstance(ours()._fast, PlainTokenizer)
    assert ours()._fast.encode(text, marks) == theirs()._fast.encode(text, add_special_tokens=marks)


def test_it_knows_the_same_of_every_token() -> None:
    assert len(ours()._fast) == len(theirs()._fast) == 4096
    for token in range(4100):
        assert ours().raw(token) == theirs().raw(token), token
        assert ours().is_special(token) == theirs().is_special(token), token
    assert (ours().eos_ids, ours().spared) == (theirs().eos_ids, theirs().spared)
    assert ours()._fast.get_vocab() == theirs()._fast.get_vocab()
    assert ours()._fast.special_tokens_map == theirs()._fast.special_tokens_map
    assert {*ours()._fast.all_special_ids} == {*theirs()._fast.all_special_ids}
    assert ours()._wrapper.has_thinking == theirs()._wrapper.has_thinking


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_it_fills_the_same_template(system: str | None) -> None:
    assert ours().has_chat_template
    messages = [Message("system", system)] if system else []
    messages.append(Message("user", "Hello <|im_end|> é"))
    assert ours().chat(messages, NO_OPTIONS) == theirs().chat(messages, NO_OPTIONS)


@pytest.mark.parametrize("name", [name for name in CONFIGS if CONFIGS[name]["model_type"] in _FAMILIES])
def test_of_each_family_mlx_lm_takes_a_tokenizer_that_cuts_alike(zoo: Zoo, name: str) -> None:
    path = zoo.path(name)
    found = utils.load_tokenizer(path, eos_token_ids=[2])
    assert type(found._tokenizer).__name__ == "TokenizersBackend"
    plain = plain_tokenizer(path, {**CONFIGS[name], "eos_token_id": [2]})
    assert plain is not None
    text = "<|im_start|>user\nOnce upon a time, é 🙂<|im_end|>\n"
    assert plain._tokenizer.encode(text) == found._tokenizer.encode(text)
    assert plain.eos_token_ids == set(found.eos_token_ids)
    assert plain.has_thinking == found.has_thinking


def changed(name: str, **fields: Any) -> Callable[[Path], None]:
    """Change fields of a JSON file."""

    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(values | fields), encoding="utf-8")

    return change


def added(name: str, text: str) -> Callable[[Path], None]:
    """Write a further file."""
    return lambda folder: (folder / name).write_text(text, encoding="utf-8") and None  # type: ignore[return-value]


CONFIGURED, FILE = "tokenizer_config.json", "tokenizer.json"
DOUBTS = {
    "a class of its own": changed(CONFIGURED, tokenizer_class="LlamaTokenizerFast"),
    "no class": changed(CONFIGURED, tokenizer_class=None),
    "code": changed(CONFIGURED, auto_map={"AutoTokenizer": ["tok.Tok", None]}),
    "bos is added": changed(CONFIGURED, add_bos_token=True),
    "eos is added": changed(CONFIGURED, add_eos_token=True),
    "a mark that is not in the file": changed(CONFIGURED, bos_token="<s>"),
    "a mark that is text": changed(CONFIGURED, bos_token="!"),
    "a mark with options": changed(CONFIGURED, eos_token={"content": "<|im_end|>", "lstrip": True}),
    "several templates": changed(CONFIGURED, chat_template=[{"name": "default", "template": "x"}]),
    "a template of its own": added("chat_template.jinja", "x"),
    "a parser of tools": changed(CONFIGURED, tool_parser_type="json_tools"),
    "a length that is no number": changed(CONFIGURED, model_max_length="x"),
    "a mark that is a number": changed(CONFIGURED, pad_token=7),
    "truncation": changed(FILE, truncation={"max_length": 3, "strategy": "LongestFirst", "stride": 0}),
    "padding": changed(FILE, padding={"strategy": {"Fixed": 9}}),
    "marks around the text": changed(FILE, post_processor={"type": "ByteLevel"}),
    "another decoder": changed(FILE, decoder={"type": "Metaspace"}),
    "marks of another file": added("special_tokens_map.json", "{}"),
    "no JSON": added(CONFIGURED, "{"),
    "no tokenizer": added(FILE, "{}"),
    "a list": added(CONFIGURED, "[]"),
}  # fmt: skip


@pytest.mark.parametrize("doubt", list(DOUBTS))
def test_any_doubt_leaves_it_to_mlx_lm(tmp_path: Path, doubt: str) -> None:
    for name in (FILE, CONFIGURED):
        shutil.copy(pocket.directory() / name, tmp_path)
    assert isinstance(plain_tokenizer(tmp_path, CONFIG), PlainWrapper)
    DOUBTS[doubt](tmp_path)
    assert plain_tokenizer(tmp_path, CONFIG) is None


def test_a_family_that_was_not_compared_is_left_to_mlx_lm() -> None:
    assert plain_tokenizer(pocket.directory(), {**CONFIG, "model_type": "kimi_k2"}) is None

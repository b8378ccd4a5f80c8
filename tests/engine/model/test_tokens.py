"""Tokens: their bytes and texts, and tokenizers whose files say all of it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import settings as budget
from hypothesis import strategies as st
from mlx_lm import utils
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine import pocket
from engine.errors import LoadError, PromptError
from engine.model.tokens import _FAMILIES, PlainTokenizer, Tokens, plain_tokenizer
from engine.protocol import NO_OPTIONS, Message
from engine.token_texts import alphabet, decode
from tests.zoo import CONFIGS, Zoo

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
WORDS = ["once upon a time", " there was", "héllo 🙂 wörld", "日本語", "a\nb\tc", "  two  spaces "]


@pytest.fixture(scope="module")
def byte_level() -> Tokens:
    return Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2]), 4096)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """A tokenizer that writes spaces as ▁ and rare bytes as <0xE2>, as sentencepiece models do."""
    directory: Path = tmp_path_factory.mktemp("spm")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(WORDS[:2] * 50, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(pocket.directory() / "config.json", directory)
    return Tokens(utils.load_tokenizer(directory, eos_token_ids=[2]), 700)


@given(TEXTS)
@budget(deadline=None)
def test_joined_bytes_are_the_text(byte_level: Tokens, text: str) -> None:
    assert b"".join(map(byte_level.raw, byte_level.encode(text))) == text.encode()


@pytest.mark.parametrize("text", WORDS)
def test_joined_bytes_are_the_text_with_byte_fallback(sentencepiece: Tokens, text: str) -> None:
    assert b"".join(map(sentencepiece.raw, sentencepiece.encode(text))) == text.encode()


@given(TEXTS)
@budget(deadline=None)
def test_text_and_pending_bytes_give_the_text_token_by_token(byte_level: Tokens, text: str) -> None:
    found, pending = "", b""
    for token in byte_level.encode(text):
        piece, pending = byte_level.text(token, pending)
        found += piece
    assert (found, pending) == (text, b"")


@given(st.binary(max_size=20), st.lists(st.integers(0, 20)))
def test_decoding_is_the_same_wherever_it_is_cut(raw: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(raw), *(cut for cut in cuts if cut <= len(raw))})
    found, pending = "", b""
    for start, end in pairwise(places):
        piece, pending = decode(pending, raw[start:end])
        found += piece
    assert found + pending.decode("utf-8", "replace") == raw.decode("utf-8", "replace")


def test_the_alphabet_covers_every_byte_once() -> None:
    assert sorted(alphabet().values()) == list(range(256))


def test_special_tokens_are_told_and_keep_their_text(byte_level: Tokens) -> None:
    assert byte_level.is_special(2)
    assert byte_level.text(2) == ("<|im_end|>", b"")
    assert byte_level.eos_ids == (0, 2)
    assert not byte_level.is_special(300)


def test_an_id_without_an_entry_has_no_bytes(byte_level: Tokens) -> None:
    assert byte_level.raw(999_999) == b""


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "The prompt is empty."), ("a\ud800b", "The prompt is not valid Unicode at character 1.")],
)
def test_a_prompt_that_cannot_be_encoded_is_refused(byte_level: Tokens, text: str, message: str) -> None:
    with pytest.raises(PromptError) as error:
        byte_level.encode(text)
    assert error.value.message == message


@pytest.mark.parametrize("token", [-1, 4096, 10**12])
def test_an_id_outside_the_embedding_is_refused(byte_level: Tokens, token: int) -> None:
    with pytest.raises(PromptError, match="outside the model's vocabulary of 4096"):
        byte_level.check([5, token])


def test_the_chat_template_is_filled(byte_level: Tokens) -> None:
    text = byte_level.chat((Message("system", "Be short."), Message("user", "Tell a story.")), NO_OPTIONS)
    assert text == (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nTell a story.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert byte_level.encode(text, bare=True)[0] == 1


def test_the_token_that_begins_a_text_is_added_once(
    byte_level: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return [1] * add_special_tokens + [5]

    for bos, added in ("<s>", [True, False, False]), (None, [True, True, False]):
        monkeypatch.setattr(byte_level, "_fast", SimpleNamespace(bos_token=bos, encode=encode))
        given = ("Once", False), ("<s>Once", False), ("Once", True)
        assert [len(byte_level.encode(text, bare=bare)) == 2 for text, bare in given] == added


# ---- one more token that ends the sequence ----------------------------------------------------


def mlx_lms(tokens: Tokens, text: str) -> tuple[int, ...]:
    """What mlx_lm's own wrapper makes of it."""
    wrapper = copy.copy(tokens._wrapper)
    wrapper._eos_token_ids = set(tokens.eos_ids)
    wrapper.add_eos_token(text)
    return tuple(sorted(wrapper.eos_token_ids))


@pytest.mark.parametrize("text", ["<|im_start|>", ".", "Ġlittle", "Ċ", "339", "e"])
def test_an_extra_eos_token_is_the_one_that_mlx_lm_adds(byte_level: Tokens, text: str) -> None:
    tokens = copy.copy(byte_level)
    tokens.add_eos(text)
    assert tokens.eos_ids == mlx_lms(byte_level, text) != (0, 2)


def test_an_extra_eos_token_may_be_written_as_its_text(byte_level: Tokens, sentencepiece: Tokens) -> None:
    for tokens in (copy.copy(byte_level), copy.copy(sentencepiece)):
        for text in (" there", "\n", "o"):
            before = set(tokens.eos_ids)
            tokens.add_eos(text)
            (added,) = set(tokens.eos_ids) - before
            assert tokens.raw(added) == text.encode()
        assert set(tokens.eos_ids) - before <= set(tokens.spared)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "no such token",
            "'no such token' is not a token of this model. It must be one token. To stop at a text of several,",
        ),
        ("<|im_strat|>", "'<|im_strat|>' is not a token of this model. Did you mean <|im_start|>?"),
        ("4096", "'4096' is not a token of this model. Ids go from 0 to 4095."),
        ("9" * 5000, "Ids go from 0 to 4095."),
    ],
)
def test_an_extra_eos_token_that_is_none_is_one_line(byte_level: Tokens, text: str, said: str) -> None:
    with pytest.raises(LoadError) as told:
        byte_level.add_eos(text)
    assert str(told.value).startswith("--extra-eos-token: ")
    assert said in str(told.value)
    assert byte_level.eos_ids == (0, 2)


def test_an_extra_eos_token_that_the_model_has_no_row_for_is_said_to_be_that() -> None:
    tokens = Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0]), 2)
    with pytest.raises(LoadError) as told:
        tokens.add_eos("<|im_end|>")
    assert told.value.message == (
        "--extra-eos-token: <|im_end|> is token 2, and the model has no tokens beyond 1."
    )


def test_a_piece_that_is_the_unknown_token_s_is_refused_where_mlx_lm_takes_that(
    sentencepiece: Tokens,
) -> None:
    assert 0 in mlx_lms(sentencepiece, "日本")  # <unk>: every unknown character would end the text
    with pytest.raises(LoadError):
        sentencepiece.add_eos("日本")


# ---- plain tokenizers --------------------------------------------------------------------------

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
PLAIN_TEXTS = st.lists(st.text(max_size=12) | PIECES, max_size=12).map("".join)


@given(PLAIN_TEXTS, st.booleans())
@settings(deadline=None)
def test_it_cuts_every_text_like_the_one_of_mlx_lm(text: str, marks: bool) -> None:
    assert isinstance(ours()._fast, PlainTokenizer)
    assert ours()._fast.encode(text, marks) == theirs()._fast.encode(text, add_special_tokens=marks)


def test_it_knows_the_same_of_every_token() -> None:
    assert len(ours()._fast.get_vocab()) == len(theirs()._fast) == 4096
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
    assert isinstance(plain_tokenizer(tmp_path, CONFIG), PlainTokenizer)
    DOUBTS[doubt](tmp_path)
    assert plain_tokenizer(tmp_path, CONFIG) is None


def test_a_family_that_was_not_compared_is_left_to_mlx_lm() -> None:
    assert plain_tokenizer(pocket.directory(), {**CONFIG, "model_type": "kimi_k2"}) is None

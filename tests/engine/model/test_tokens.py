"""The bytes and the text of tokens: joined they are the text, however characters are cut."""

from __future__ import annotations

import copy
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from mlx_lm import utils
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine import pocket
from engine.errors import LoadError, PromptError
from engine.logits.token_texts import decode
from engine.model.tokens import Tokens, alphabet
from engine.protocol import NO_OPTIONS, Message

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
            "'no such token' is no token of this model. Use --stop for a text of several tokens.",
        ),
        ("<|im_strat|>", "'<|im_strat|>' is no token of this model. Did you mean <|im_start|>?"),
        ("4096", "'4096' is no token of this model. Ids go from 0 to 4095."),
        ("9" * 5000, "Ids go from 0 to 4095."),
    ],
)
def test_an_extra_eos_token_that_is_none_is_one_line(byte_level: Tokens, text: str, said: str) -> None:
    with pytest.raises(LoadError) as told:
        byte_level.add_eos(text)
    assert str(told.value).startswith("--extra-eos-token: ")
    assert said in str(told.value)
    assert byte_level.eos_ids == (0, 2)


def test_a_piece_that_is_the_unknown_token_s_is_refused_where_mlx_lm_takes_that(
    sentencepiece: Tokens,
) -> None:
    assert 0 in mlx_lms(sentencepiece, "日本")  # <unk>: every unknown character would end the text
    with pytest.raises(LoadError):
        sentencepiece.add_eos("日本")

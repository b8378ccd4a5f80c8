"""What follows from the texts of tokens, on four kinds of tokenizers: grammars, stops, bytes, replies of a server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import regex
from mlx_lm import utils

from engine import pocket
from engine.errors import StepError
from engine.grammar.states import Matcher, vocabulary_of
from engine.grammar_settings import Grammar
from engine.model.tokens import Tokens
from tests.engine.tokenizers import kinds
from tests.inspector.cli.scripted import Events

END = {"byte-level": "<|end|>", "llama": "</s>"}
CODE = "def f():\n      if x:\n         return  the dog\n"


@pytest.fixture(params=["gemma", "llama", "byte-level", "suffixed"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The bundled model with another tokenizer: it writes nonsense."""
    made = kinds.tokenizer(request.param)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(pocket.directory() / name, tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END.get(request.param, "<unk>")}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.fixture
def tokens(model: Path) -> Tokens:
    return Tokens(utils.load_tokenizer(model), 4096)


def added(tokens: Tokens) -> int:
    """An added token that has a space in it; another token where there is none."""
    vocabulary = tokens._fast.get_vocab()
    names = ("▁▁▁▁▁▁", "▁<PRE>", "Ġx", "the</w>")
    return next(vocabulary[name] for name in names if name in vocabulary)


def decoded(tokens: Tokens) -> dict[int, str]:
    """Each token as it is decoded between two others; without special ones."""
    decode, letter = tokens._fast.decode, tokens._fast.get_vocab()["t"]
    ids = {id for id in tokens._fast.get_vocab().values() if not tokens.is_special(id)}
    return {id: decode([letter, id, letter])[1:-1] for id in ids}


@pytest.mark.parametrize("expression", ["(  )+x", " ?the dog ?", "[a-z ]+", "Upper|x| x+", " *<P"])
def test_a_grammar_allows_what_counting_by_decoding_finds(tokens: Tokens, expression: str) -> None:
    judge = regex.compile(expression)
    matcher = Matcher.begin(Grammar("regex", expression), vocabulary_of(tokens))
    texts, so_far, tried = decoded(tokens), "", 0
    while True:
        fits = {id for id, text in texts.items() if text and judge.fullmatch(so_far + text, partial=True)}
        if not fits and not matcher.accepting:
            with pytest.raises(StepError, match="no token of the model"):
                matcher.mask()
            break
        assert {*matcher.allowed_ids()} - {*tokens.eos_ids} == fits
        if not fits or (tried := tried + 1) > 4:
            break
        token = max(fits, key=lambda id: (len(texts[id]), id))
        matcher.take(token)
        so_far += texts[token]


def test_a_stop_string_is_found_in_what_is_decoded(model: Path, tokens: Tokens, events: Events) -> None:
    token = added(tokens)
    stop = decoded(tokens).get(token, "<PRE>")
    done = events("generate", "--model", str(model), "-p", "see", "--ignore-chat-template", "--jsonl", "-m", "3",
                  "--logit-bias", f"{token}=1e6", "--stop", stop)[-1]  # fmt: skip
    assert (done["reason"], done["steps"]) == ("stop", 1)


def test_a_text_s_bytes_are_those_of_its_file(
    model: Path, tokens: Tokens, events: Events, tmp_path: Path
) -> None:
    text = CODE if "▁▁▁" in tokens._fast.get_vocab() else "upper the dog and x"
    (file := tmp_path / "text.txt").write_text(text, encoding="utf-8")
    scored = events("score", str(file), "--model", str(model), "--jsonl")[-1]
    first = tokens.join(tokens.encode(text)[:1]).removeprefix(" " if not text.startswith(" ") else "")
    assert scored["bytes"] == scored["characters"] == len(text) - len(first)


def test_a_served_reply_is_compared_by_what_is_decoded(
    model: Path, tokens: Tokens, events: Events, tmp_path: Path
) -> None:
    token = added(tokens)
    text = decoded(tokens).get(token, " <PRE>")
    entry = {"token": text, "logprob": -0.1, "bytes": [*text.encode()], "top_logprobs": []}
    body: dict[str, Any] = {
        "choices": [{"index": 0, "text": text, "finish_reason": "length", "logprobs": {"content": [entry]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
    asked = {"prompt": "see", "max_tokens": 1, "temperature": 0, "logit_bias": {str(token): 1e6}}
    exchange = {"request": asked, "response": body}
    (file := tmp_path / "reply.json").write_text(json.dumps(exchange), encoding="utf-8")
    (said,) = events("open", str(file), "--check", "--jsonl", "--model", str(model))
    assert (said["source"], said["same_text"], said["misnamed"]) == ("repeated", True, 0)
    assert [each["verdict"] for each in said["tokens"]] == ["equal"]

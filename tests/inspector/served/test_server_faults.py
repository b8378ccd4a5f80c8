"""What the help says that mlx_lm.server gets wrong: where a later version mends it, one of these fails."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import server
from mlx_lm.generate import TextStateMachine, make_text_state_machine
from mlx_lm.tokenizer_utils import TokenizerWrapper, load

from engine import pocket

WHY = "mlx_lm.server does it otherwise now: inspector/help/parts/servers.md and inspector/served say that it doesn't"


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerWrapper:
    return load(Path(pocket.directory()))


def test_it_names_another_token_than_the_most_probable_one(tokenizer: TokenizerWrapper) -> None:
    named = 0
    for seed in range(20):
        row = mx.random.normal((4096,), key=mx.random.key(seed))
        listed: Any = server._format_top_logprobs(row, 5, tokenizer)
        named += listed[0]["id"] == int(row.argmax())
    assert named < 20, WHY


def test_it_deletes_stop_strings_and_goes_on(tokenizer: TokenizerWrapper) -> None:
    machine = make_text_state_machine(tokenizer, ["park"])
    state = machine.make_state()
    said = ""
    for text in (" the", " park", " was", " green"):
        state, made, _ = TextStateMachine.step(state, text)
        said += made
    assert said == " the  was green", WHY


def test_it_leaves_out_the_first_blank(tokenizer: TokenizerWrapper) -> None:
    detokenizer = tokenizer.detokenizer
    said = ""
    for token in tokenizer.encode(" the dog", add_special_tokens=False):
        detokenizer.add_token(token)
        said += detokenizer.last_segment
    detokenizer.finalize()
    assert said + detokenizer.last_segment == "the dog", WHY


def test_penalties_of_what_it_serves_alone_see_the_rest_of_the_prompt() -> None:
    assert "prompt=rest," in inspect.getsource(server.ResponseGenerator._serve_single), WHY


def test_its_streams_have_no_logprobs() -> None:
    source = inspect.getsource(server.APIHandler.handle_completion)
    streamed = source.partition("if (\n                    self.stream")[2].partition("self.wfile.write")[0]
    assert "generate_response" in streamed
    assert "token_logprobs" not in streamed, WHY


def test_thinking_is_looked_for_in_all_of_the_prompt() -> None:
    source = inspect.getsource(server.ResponseGenerator._tokenize)
    assert "tokenizer.rfind_think_start(prompt)\n" in source, WHY

"""Requests: each parameter becomes a setting, or something is said of it; hostile bodies are refused in a line."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import PromptError
from engine.grammar_settings import Grammar
from engine.protocol import ChatOptions, Message
from engine.settings import BY_NAME, MOST, Settings, changed
from inspector.served.requests import (
    MAX_TOKENS,
    PARAMETERS,
    ServedRequest,
    served_request,
)

PAGE = Path("inspector/help/parts/servers.md")
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell a story."}]}
SERVED = changed(Settings(), max_tokens=MAX_TOKENS)
MLX_LM = {
    "messages", "prompt", "tools", "role_mapping", "stream", "stream_options", "model", "draft_model",
    "num_draft_tokens", "adapters", "max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "repetition_context_size", "presence_penalty", "presence_context_size", "frequency_penalty",
    "frequency_context_size", "xtc_probability", "xtc_threshold", "logit_bias", "logprobs", "top_logprobs", "seed",
    "chat_template_kwargs", "stop",
}  # fmt: skip


def asked(**more: Any) -> ServedRequest:
    return served_request({**ASK, **more}, "It")


def test_every_parameter_that_mlx_lm_server_reads_is_known() -> None:
    import inspect
    import re

    from mlx_lm import server

    source = inspect.getsource(server.APIHandler)
    read = set(re.findall(r'(?:self\.)?body(?:\.get\(\s*|\[)"(\w+)"', source))
    assert read == MLX_LM
    assert read <= {each.name for each in PARAMETERS}


def parameters_table() -> str:
    """The parameters as a table in Markdown: the setting of each, and the remark."""
    rows = ["| parameter | here | |", "|---|---|---|"]
    for (setting, says), group in groupby(PARAMETERS, key=lambda each: (each.setting, each.says)):
        names = ", ".join(f"`{each.name}`" for each in group)
        rows.append(f"| {names} | {f'`{BY_NAME[setting].flag}`' if setting else ''} | {says} |")
    return "\n".join(rows)


def test_the_help_has_the_table_of_them() -> None:
    begin, end = "<!-- parameters -->", "<!-- end of the parameters -->"
    table = PAGE.read_text("utf-8").partition(begin)[2].partition(end)[0]
    assert table.strip() == parameters_table()


def test_a_bare_conversation_has_the_servers_own_defaults() -> None:
    request = asked()
    assert request.messages == (Message("user", "Tell a story."),)
    assert (request.chat, request.prompt, request.seed, request.model) == (True, "Tell a story.", None, "")
    assert request.settings == SERVED
    assert request.options == ChatOptions()
    assert request.notes == ()


@pytest.mark.parametrize(
    ("body", "setting", "value"),
    [
        ({"temperature": 1}, "temp", 1.0),
        ({"top_p": 0.9}, "top_p", 0.9),
        ({"top_k": 40}, "top_k", 40),
        ({"min_p": 0.05}, "min_p", 0.05),
        ({"max_tokens": 7}, "max_tokens", 7),
        ({"max_completion_tokens": 9, "max_tokens": 7}, "max_tokens", 9),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop": ["x", "y"]}, "stop", ("x", "y")),
        ({"seed": 5}, "seed", 5),
        ({"logit_bias": {"12": -3}}, "logit_bias", ((12, -3.0),)),
        ({"repetition_penalty": 1.2}, "repetition_penalty", 1.2),
        ({"repetition_context_size": 0}, "repetition_context_size", MOST),
        ({"presence_penalty": 0.5}, "presence_penalty", 0.5),
        ({"frequency_penalty": -0.5}, "frequency_penalty", -0.5),
        ({"frequency_context_size": 64}, "frequency_context_size", 64),
        ({"xtc_probability": 0.5}, "xtc_probability", 0.5),
        ({"xtc_threshold": 0.2}, "xtc_threshold", 0.2),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.7}, "xtc_probability", 0.0),
        ({"top_p": 0}, "top_p", 1.0),
    ],
)
def test_a_parameter_becomes_the_setting_that_does_the_same(
    body: dict[str, Any], setting: str, value: Any
) -> None:
    assert getattr(asked(**body).settings, setting) == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"n": 3}, "n: mlx_lm.server doesn't read it: it answers once."),
        ({"wobble": 1}, "wobble is not known here, and has no effect."),
        (
            {"temperature": 1e-9},
            "temperature was not taken: temperature must be 0, or a number from 0.001 to 100",
        ),
        ({"temperature": "hot"}, "temperature was not taken: it must be 0, or a number"),
        ({"temperature": True}, "temperature was not taken"),
        ({"top_k": 1.5}, "top_k was not taken"),
        ({"top_p": 0}, "top_p 0 is off for mlx_lm.server"),
        ({"logit_bias": {"a": 1}}, "logit_bias was not taken"),
        ({"logit_bias": [1]}, "logit_bias was not taken"),
        ({"stop": [1]}, "stop was not taken"),
        ({"repetition_penalty": 1000}, "repetition_penalty was not taken"),
        ({"adapters": "x"}, "adapters: set it when you load the model: --adapter-path."),
        ({"response_format": {"type": "json_object"}}, "mlx_lm.server ignores it"),
        ({"temperature": 1}, "It has no seed"),
        ({"seed": 2**70}, "seed was not taken"),
        ({"max_tokens": 0}, "max_tokens was not taken"),
    ],
)
def test_what_has_no_counterpart_is_said(body: dict[str, Any], words: str) -> None:
    assert any(words in note for note in asked(**body).notes), asked(**body).notes


def test_what_mlx_lm_server_reads_says_nothing_of_another_server() -> None:
    request = served_request({**ASK, "n": 3, "top_a": 1}, "It", by_mlx_lm=False)
    assert request.notes == (
        "n has no counterpart and no effect here.",
        "top_a has no counterpart and no effect here.",
    )


def test_biases_of_tokens_that_the_model_lacks_are_left_out_alone() -> None:
    request = asked(logit_bias={"5": 1, "4096": 2, "99999": 3})
    within = request.within(4096)
    assert within.settings.logit_bias == ((5, 1.0),)
    assert within.notes == ("logit_bias: the model has no tokens with these ids: 4096, 99999.",)
    assert request.within(100_000) is request


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2, 3]]])
def test_a_prompt_of_token_ids_is_refused_as_that(prompt: Any) -> None:
    with pytest.raises(PromptError, match="a list of token ids") as error:
        served_request({"prompt": prompt}, "It")
    assert "tokenized_requests=False" in error.value.hint


def test_a_response_format_is_a_grammar_where_another_server_answered() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    request = served_request({**ASK, "response_format": form}, "It", by_mlx_lm=False)
    assert request.settings.grammar == Grammar("json-schema", json.dumps(schema))
    assert request.notes == ()


def test_tools_and_variables_go_to_the_template() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    request = asked(tools=[tool], chat_template_kwargs={"enable_thinking": False})
    assert json.loads(request.options.tools) == [tool]
    assert json.loads(request.options.config) == {"enable_thinking": False}


def test_a_completion_is_raw_text() -> None:
    request = served_request({"prompt": "Once", "model": "a/b"}, "It")
    assert (request.chat, request.prompt, request.messages, request.model) == (False, "Once", (), "a/b")
    assert served_request({"prompt": ["Once"]}, "It").prompt == "Once"


@pytest.mark.parametrize(
    "body",
    [None, [], 3, "x", {}, {"messages": []}, {"messages": 3}, {"messages": [3]}, {"messages": [{"role": "user"}]},
     {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, {"prompt": ""},
     {"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"prompt": None}, {**ASK, "tools": [3]}, {**ASK, "tools": {}},
     {**ASK, "chat_template_kwargs": 3}, {"prompt": "x" * (2**23)}],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_what_to_do(body: Any) -> None:
    with pytest.raises(PromptError) as error:
        served_request(body, "It")
    assert error.value.hint


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([each.name for each in PARAMETERS]), values, max_size=6))
def test_any_values_are_taken_or_refused_in_words(body: dict[str, Any]) -> None:
    try:
        request = served_request({**ASK, **body}, "It")
    except PromptError:
        return
    assert changed(request.settings) == request.settings
    assert all("\n" not in note for note in request.notes)

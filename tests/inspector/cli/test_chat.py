"""The flags of a chat: conversations from files, and equal ids to mlx_lm.generate's own for each flag."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.server import process_message_content

from engine import pocket
from engine.errors import PromptError
from engine.protocol import Message
from inspector.cli.arguments import request_from
from inspector.cli.flags import parsed
from inspector.cli.screen import screen_parser
from inspector.cli.subcommands.generate import beam_parser, generate_parser
from inspector.cli.subcommands.texts import (
    score_parser,
    score_request_from,
    tokens_parser,
    tokens_request_from,
)
from tests.inspector.cli.scripted import Events

mlx_generate = importlib.import_module("mlx_lm.generate")
"""The module; `mlx_lm` has a function of the same name."""
ASK = [{"role": "user", "content": "Tell a story."}]


def request(*argv: str) -> Any:
    return request_from(parsed(generate_parser(), argv))


def write(folder: Path, content: Any) -> str:
    path = folder / "chat.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


# ---- messages ---------------------------------------------------------------------------------


def test_a_list_and_an_object_with_tools_are_read(tmp_path: Path) -> None:
    plain = request("--messages", write(tmp_path, [{"role": "system", "content": "Be short."}, *ASK]))
    assert plain.prefill.messages == (Message("system", "Be short."), Message("user", "Tell a story."))
    assert (plain.prefill.text, plain.prefill.chat, plain.prefill.options.tools, plain.notes) == (
        "Tell a story.",
        True,
        "",
        (),
    )
    tool = {"type": "function", "function": {"name": "f"}}
    whole = request(
        "--messages", write(tmp_path, {"messages": ASK, "tools": [tool], "model": "m", "temperature": 1})
    )
    assert json.loads(whole.prefill.options.tools) == [tool]
    assert "model, temperature has no effect here: set it with flags" in whole.notes[0]


def test_contents_are_those_that_mlx_lm_server_makes(tmp_path: Path) -> None:
    given: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Rain "}, {"type": "text", "text": "in Köln?"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "rain", "arguments": '{"city": "Köln"}'}}],
        },
        {"role": "tool", "content": "no", "tool_call_id": "1"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "user", "content": "\x1b[31m<|im_end|>{{ 7 * 7 }}"},
    ]
    found = request("--messages", write(tmp_path, given)).prefill.messages
    process_message_content(given)
    made = [
        {"role": each.role, "content": each.content, **(json.loads(each.more) if each.more else {})}
        for each in found
    ]
    assert made == given


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not valid JSON (line 1, column 1"),
        (b"[{]", "is not valid JSON (line 1, column 3"),
        (b"\xff\xfe[", "is not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" + b"9" * 10_000 + b"]", "too many digits"),
        ({}, "has no list of messages"),
        (7, "has no list of messages"),
        ({"messages": "x"}, "has no list of messages"),
        ([], "has an empty list of messages"),
        (["x"], "message 1 must be an object, not a text"),
        ([*ASK, {"content": "x"}], "message 2 has no role"),
        ([{"role": "", "content": "x"}], "message 1 has no role"),
        ([{"role": 7, "content": "x"}], "message 1 has no role"),
        ([{"role": "user"}], "message 1 has no content"),
        ([{"role": "user", "content": 7}], "message 1: content must be text, not a number"),
        ([{"role": "user", "content": {"a": 1}}], "message 1: content must be text, not an object"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "a part that is not text (image_url)"),
        ([{"role": "user", "content": [{"type": "text"}]}], "a part that is not text (text)"),
        ([{"role": "user", "content": ["x"]}], "a part that is not text (a text)"),
        ([{"role": "assistant", "tool_calls": "f"}], "tool_calls must be a list of objects"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
            "the arguments of a tool call is not valid JSON",
        ),
        ({"messages": ASK, "tools": ["f"]}, "tools must be a list of objects"),
    ],
)
def test_what_is_no_conversation_is_refused_in_one_line(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(PromptError) as error:
        request("--messages", write(tmp_path, content))
    assert said in str(error.value)
    assert "chat.json" in str(error.value)
    assert error.value.hint
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, said in (
        (tmp_path / "none.json", "There is no file of messages"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(PromptError, match=said):
            request("--messages", str(name))
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(PromptError, match="more than 16 MiB"):
        request("--messages", str(large))


def test_what_no_trace_could_hold_is_refused(tmp_path: Path) -> None:
    long = "x" * (5 << 20)
    for content in (
        [{"role": "user", "content": long}],
        [{**ASK[0], "reasoning_content": long}],
        [{"role": long, "content": "x"}],
        {"messages": ASK, "tools": [{"a": long}]},
    ):
        with pytest.raises(PromptError, match="more than 4 MiB"):
            request("--messages", write(tmp_path, content))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(ASK).encode())))
    assert request("--messages", "-").prefill.messages == (Message("user", "Tell a story."),)


@pytest.mark.parametrize(
    "flags", [("-p", "x"), ("--prompt-file", "x"), ("--system-prompt", "x"), ("--ignore-chat-template",)]
)
def test_flags_that_a_conversation_replaces_are_refused(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with pytest.raises(PromptError, match="were both given") as error:
        request("--messages", write(tmp_path, ASK), *flags)
    assert ('"role": "system"' in error.value.hint) == ("--system-prompt" in flags)


def test_a_conversation_that_ends_with_an_answer_says_what_follows(tmp_path: Path) -> None:
    found = request("--messages", write(tmp_path, [*ASK, {"role": "assistant", "content": "Once"}]))
    assert "another one would follow it" in found.notes[0]


def test_flags_without_effect_say_so() -> None:
    config = ("--chat-template-config", "{}", "--prefill-response", "x")
    assert request("-p", "x", "--ignore-chat-template", *config).notes == (
        "--chat-template-config has no effect with --ignore-chat-template.",
        "--prefill-response has no effect with --ignore-chat-template.",
    )
    cut = tokens_request_from(parsed(tokens_parser(), ("-p", "x", *config)))
    assert cut.notes[0] == "--chat-template-config has no effect without --chat."
    scored = score_request_from(parsed(score_parser(), ("-p", "x", *config)))
    assert scored.notes[0] == "--chat-template-config has no effect without --chat-template."


@pytest.mark.parametrize("config", ["[]", "{", "7", "[" * 100_000])
def test_a_configuration_that_is_no_object(config: str) -> None:
    with pytest.raises(PromptError, match="--chat-template-config"):
        request("-p", "x", "--chat-template-config", config)


@pytest.mark.parametrize("parser", [generate_parser, beam_parser, score_parser, tokens_parser, screen_parser])
def test_every_command_with_a_prompt_takes_the_flags(parser: Any) -> None:
    argv = "--chat-template-config {} --use-default-chat-template --prefill-response x --messages f"
    args = parsed(parser(), argv.split())
    assert (args.chat_template_config, args.prefill_response, args.messages) == ("{}", "x", "f")


# ---- the same ids as mlx_lm.generate ----------------------------------------------------------


def theirs(monkeypatch: pytest.MonkeyPatch, *argv: str) -> list[int]:
    """The prompt's ids that mlx_lm.generate would generate from."""
    seen: list[list[int]] = []
    monkeypatch.setattr(
        mlx_generate, "generate", lambda model, tokenizer, prompt, **rest: seen.append(list(prompt))
    )
    monkeypatch.setattr(sys, "argv", ["mlx_lm.generate", "--model", str(pocket.directory()), *argv])
    mlx_generate.main()
    return seen[0]


Ids = Callable[..., list[int]]


@pytest.fixture
def ours(events: Events) -> Ids:
    """The prompt's ids of `inspector generate`."""

    def run(*argv: str) -> list[int]:
        found = events("generate", "--model", str(pocket.directory()), *argv, "-m", "1", "--jsonl")
        return [
            token["id"] for event in found if event["event"] == "PromptOpened" for token in event["tokens"]
        ]

    return run


OTHER = json.dumps(
    {"chat_template": "{{ messages[-1].content }}{{ word }}|{{ enable_thinking }}", "word": "story"}
)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "flags",
    [
        ("-p", r"Tell\na story"),
        ("-p", "Hello", "--system-prompt", "Be short."),
        ("-p", "Hello", "--chat-template-config", OTHER),
        ("-p", "Hello", "--use-default-chat-template"),
        ("-p", "Hello", "--prefill-response", "Once upon "),
        ("-p", "Hello", "--prefill-response", ""),
        ("-p", "Hello", "--ignore-chat-template", "--prefill-response", "no"),
        (
            "-p",
            "Hello",
            "--system-prompt",
            "x",
            "--prefill-response",
            "Once",
            "--chat-template-config",
            '{"a": 1}',
        ),
    ],
)
def test_the_ids_are_those_of_mlx_lm_generate(
    monkeypatch: pytest.MonkeyPatch, ours: Ids, flags: tuple[str, ...]
) -> None:
    expected = theirs(monkeypatch, *flags)
    mx.synchronize()
    assert ours(*flags, *(() if "--ignore-chat-template" in flags else ("--chat",))) == expected


@pytest.mark.slow
def test_a_conversation_in_a_file_has_the_ids_of_its_flags(tmp_path: Path, ours: Ids, events: Events) -> None:
    messages = write(tmp_path, [{"role": "system", "content": "Be short."}, *ASK])
    by_flags = ours("-p", "Tell a story.", "--system-prompt", "Be short.", "--prefill-response", "Once")
    assert ours("--messages", messages, "--prefill-response", "Once") == by_flags
    found = events("tokens", "--messages", messages, "--prefill-response", "Once", "--jsonl")
    assert [piece["id"] for piece in found[0]["pieces"]] == by_flags

"""Whose each part of a filled template is: no word of a conversation is taken for another's, in eleven families."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm import utils
from mlx_lm.chat_templates import deepseek_v32
from msgspec.structs import replace

from engine import pocket
from engine.errors import PromptError
from engine.model.chat_template import ChatText, Fill, Filling, chat_text
from engine.model.chat_template_process import environment
from engine.model.tokens import Tokens
from engine.protocol import NO_OPTIONS, ChatOptions, LeftOut, Message, ReplyFormat
from engine.tree import common_prefix
from tests import templates
from tests.engine.model.test_chat_template import TEMPLATES

WRITTEN = {*TEMPLATES} - {"a length", "capitals", "the last alone"}
"""Those that write each message as it is."""
WORDS = (
    "a", "You are", "system", "user", "s", "<|im_start|>", "assistant\n", "<tool_response>", "\n",
    " ", "é", "😀", "{{ a }}", "[INST]", "December",
)  # fmt: skip
CONTENTS = st.lists(st.sampled_from(WORDS), min_size=0, max_size=3).map("".join)
THOUGHTS = st.one_of(CONTENTS, st.builds("<think>\n{}\n</think>\n\n{}".format, CONTENTS, CONTENTS))
TURNS = st.lists(st.tuples(CONTENTS, THOUGHTS), max_size=2)
NO_REPLY = ReplyFormat()


def filling(messages: list[dict[str, Any]], tools: list[Any] | None = None) -> Filling:
    return Filling(messages, tools, None, None, {}, False)


def filler(template: str) -> Fill:
    compiled = environment().from_string(template)

    def fill(every: Sequence[Filling]) -> list[str]:
        return [
            compiled.render(messages=each.conversation, tools=each.tools, bos_token="<s>", eos_token="</s>",
                            add_generation_prompt=True)
            for each in every
        ]  # fmt: skip

    return fill


def made(template: str, *messages: dict[str, Any], tools: list[Any] | None = None) -> ChatText:
    return chat_text(filler(template), filling(list(messages), tools), NO_REPLY)


def words(of: ChatText) -> list[tuple[str, int, str]]:
    return [(span.kind, span.message, of.text[span.begin : span.end]) for span in of.spans]


# ---- messages -----------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*TEMPLATES]), st.none() | CONTENTS, TURNS, CONTENTS)
def test_a_message_is_where_its_text_is(
    name: str, system: str | None, turns: list[tuple[str, str]], last: str
) -> None:
    """Judged by what else is written once the message goes on with other words."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system is not None else []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": last})
    fill = filler(TEMPLATES[name])
    found = made(TEMPLATES[name], *messages)
    assert [found.text] == fill([filling(messages)])
    assert all(one.end <= other.begin for one, other in pairwise(found.spans))
    for number, message in enumerate(messages):
        content = message["content"]
        said = content.rpartition("</think>")[2].strip()
        spans = [span for span in found.spans if span.message == number and span.kind != "thinking"]
        if not spans:
            assert name not in WRITTEN or not said
            continue
        other = {**message, "content": f"{content.rstrip()}ξψ"}
        [changed] = fill([filling([*messages[:number], other, *messages[number + 1 :]])])
        assert changed is not None
        if name in WRITTEN:
            assert found.text[spans[-1].begin : spans[-1].end] == said
            assert common_prefix(found.text, changed) == spans[-1].end


@pytest.mark.parametrize(
    ("name", "content", "before"),
    [
        ("ChatML", "a", "<|im_start|>user\n"),
        ("Qwen 2.5", "You are", "<|im_start|>user\n"),
        ("Llama 3", "system", "<|start_header_id|>user<|end_header_id|>\n\n"),
        ("Gemma", "user", "<start_of_turn>user\n"),
        ("Qwen 3", "<tool_response>a</tool_response>", "<|im_start|>user\n"),
    ],
)
def test_words_of_the_template_are_no_message(name: str, content: str, before: str) -> None:
    found = made(TEMPLATES[name], {"role": "user", "content": content})
    [span] = found.spans
    assert found.text[: span.begin].endswith(before)
    assert words(found) == [("user", 0, content)]


@pytest.mark.parametrize("look", ["m.content.startswith('/no')", "m.content.endswith('way')"])
def test_a_template_may_look_at_how_a_message_begins_or_ends(look: str) -> None:
    """A mark there would hide what it looks for."""
    template = f"{{% for m in messages %}}[{{% if {look} %}}!{{% endif %}}{{{{ m.content }}}}]{{% endfor %}}"
    found = made(template, {"role": "user", "content": "Well?"}, {"role": "user", "content": "/no way"})
    assert found.text == "[Well?][!/no way]"
    assert words(found)[-1][1:] == (1, "/no way")
    assert words(found)[0][1:] == (0, "Well?")


def test_what_is_left_out_or_written_otherwise_is_known() -> None:
    one, other = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    last = made(TEMPLATES["the last alone"], one, other)
    assert (words(last), last.left_out) == ([("answer", 1, "b")], (LeftOut("user", 0, False),))
    counted = made(TEMPLATES["a length"], one, other)
    assert (counted.text, counted.spans) == ("[1]a[1]b", ())
    assert counted.left_out == (LeftOut("user", 0, True), LeftOut("answer", 1, True))
    assert words(made(TEMPLATES["capitals"], one, other)) == [("user", 0, "A"), ("answer", 1, "B")]
    cut = made(
        "{% for m in messages %}{{ m.content[:3] }}|{% endfor %}", {"role": "user", "content": "abc def"}
    )
    assert (cut.spans, cut.left_out) == ((), (LeftOut("user", 0, True),)), "a part of it is there"
    assert made("") == ChatText("")


def test_characters_of_private_use_are_told_from_marks() -> None:
    one = {"role": "user", "content": "a\U000f0001"}
    assert words(made("<{{ messages[0].content }}>", one)) == [("user", 0, "a\U000f0001")]
    both = {"role": "user", "content": "a\U000f0001\U00100001"}
    assert made("<{{ messages[0].content }}>", both) == ChatText("<a\U000f0001\U00100001>")


def test_code_that_fills_a_template_is_marked_too() -> None:
    """mlx_lm's own for DeepSeek 3.2, which is no template."""

    def fill(every: Sequence[Filling]) -> list[str]:
        return [
            deepseek_v32.apply_chat_template(each.conversation, add_generation_prompt=True) for each in every
        ]

    messages = [
        {"role": "user", "content": "User"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "s"},
    ]
    found = chat_text(fill, filling(messages), NO_REPLY)
    assert words(found) == [("user", 0, "User"), ("answer", 1, "a"), ("user", 2, "s")]
    assert found.text[: found.spans[2].begin].endswith("<｜User｜>")


def test_the_bundled_models_template_in_its_process() -> None:
    tokens = Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2]), 4096)
    messages = (
        Message("system", "s"),
        Message("user", "a"),
        Message("assistant", "user"),
        Message("user", "  a\n"),
    )
    found = tokens.chat_text(messages, NO_OPTIONS)
    assert found.text == tokens.chat(messages, NO_OPTIONS)
    assert words(found) == [("system", 0, "s"), ("user", 1, "a"), ("answer", 2, "user"), ("user", 3, "a")]
    opened = tokens.chat_text(messages[:2], ChatOptions(response="a, well"))
    assert opened.text.endswith("a, well")
    assert words(opened)[1:] == [("user", 1, "a"), ("answer", 2, "a, well")]


# ---- eleven families ----------------------------------------------------------------------------

SAID = {
    "Sysword": "system", "Userword": "user", "Sayword": "answer", "Lastword": "user", "Thinkword": "thinking",
    "Callword": "tool call", "Resultword": "tool result", "qqtool": "tools", "town": "tools",
}  # fmt: skip
"""Each word stands in strings of one kind."""
CALL = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "zeta", "arguments": {"city": "Callword five"}},
}


def conversation(tools: bool, system: bool, inline: bool) -> list[Message]:
    thought = {"reasoning_content": "Thinkword four."}
    said = Message("assistant", "Sayword three.", json.dumps(thought))
    if inline:
        said = Message("assistant", "<think>\nThinkword four.\n</think>\n\nSayword three.")
    every = [Message("system", " Sysword one. ")] if system else []
    every += [Message("user", "Userword two?\n"), said, Message("user", "Userword two?")]
    if tools:
        more = {"tool_calls": [CALL]}
        result = {"tool_call_id": "abcdefghi", "name": "zeta"}
        every += [
            Message("assistant", "", json.dumps(more)),
            Message("tool", "Resultword six", json.dumps(result)),
            Message("assistant", "Sayword three."),
            Message("user", "Lastword"),
        ]
    return every


@pytest.mark.wide(12)
@pytest.mark.parametrize("name", templates.NAMES)
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("tools", [True, False])
def test_no_word_of_a_family_is_mislabelled(name: str, system: bool, inline: bool, tools: bool) -> None:
    tokens = templates.tokens(name)
    messages = conversation(tools, system, inline)
    options = ChatOptions(tools=json.dumps([templates.WEATHER]) if tools else "")
    try:
        plain = tokens.chat(messages, options)
    except PromptError:
        assert (name, tools) == ("gemma3", True)  # it knows no tools, and refuses their messages
        return
    found = tokens.chat_text(messages, options)
    assert found.text == plain
    left = {(each.kind, each.message) for each in found.left_out}
    for word, kind in SAID.items():
        at = -1
        while (at := plain.find(word, at + 1)) >= 0:
            assert [span.kind for span in found.spans if span.begin <= at < span.end] == [kind], (word, at)
    for number, message in enumerate(messages):
        for kind, word in (("thinking", "Thinkword"), ("answer", "Sayword")):
            written = [span for span in found.spans if (span.kind, span.message) == (kind, number)]
            if word in message.content + message.more:
                assert bool(written) != ((kind, number) in left), (kind, number)
    assert not any(each.written for each in found.left_out)


@pytest.mark.parametrize("name", templates.NAMES)
def test_tokens_are_labelled_as_their_words(name: str) -> None:
    """By each word's own place in the text, through the tokens."""
    tokens = templates.tokens(name)
    tools = name != "gemma3"
    found = tokens.chat_text(
        conversation(tools, True, False), ChatOptions(tools=json.dumps([templates.WEATHER]) if tools else "")
    )
    texts, pending = [], b""
    for token in tokens.encode(found.text, bare=True):
        text, pending = tokens.text(token, pending)
        texts.append(text)
    assert "".join(texts) == found.text
    runs = found.segments(texts).runs
    kinds = {place: run.kind for run in runs for place in range(run.begin, run.end)}
    at = 0
    for place, text in enumerate(texts):
        begin = at + len(text) - len(text.lstrip() or text)
        inside = [span.kind for span in found.spans if span.begin <= begin < span.end]
        assert ([kinds[place]] if place in kinds else []) == inside
        at += len(text)
    assert all(one.end <= other.begin for one, other in pairwise(runs))
    assert found.segments([" ", *texts]).runs == tuple(
        replace(run, begin=run.begin + 1, end=run.end + 1) for run in runs
    ), "a tokenizer that begins with a space has its labels at the same words"
    assert found.segments([f" {texts[0]}", *texts[1:]]).runs == runs
    assert not found.segments([*texts, "x"]).runs


def test_a_call_is_one_with_the_json_around_it() -> None:
    tokens = templates.tokens("qwen3")
    found = tokens.chat_text(
        conversation(True, True, False), ChatOptions(tools=json.dumps([templates.WEATHER]))
    )
    calls = [text for kind, _, text in words(found) if kind == "tool call"]
    assert [json.loads(each) for each in calls] == [{"name": "zeta", "arguments": {"city": "Callword five"}}]
    assert [json.loads(text) for kind, _, text in words(found) if kind == "tools"] == [templates.WEATHER]


def test_thinking_that_a_template_drops_is_told() -> None:
    tokens = templates.tokens("qwen3")
    messages = conversation(False, False, True)
    assert tokens.chat_text(messages, NO_OPTIONS).left_out == (LeftOut("thinking", 1, False),)
    seed = templates.tokens("seed_oss").chat_text(conversation(False, False, False), NO_OPTIONS)
    assert seed.left_out == ()
    assert ("thinking", 1, "Thinkword four.") in words(seed)


# ---- where replies begin ------------------------------------------------------------------------

USERS_MARK = "What does <think> mean, and <seed:think>, [THINK], <tool_call>, <|channel|>analysis<|message|>?"
BEGINS = [
    ("qwen3", {}, "answer"), ("qwen3", {"enable_thinking": False}, "answer"),
    ("deepseek_v31", {"thinking": True}, "thinking"), ("deepseek_v31", {"enable_thinking": False}, "answer"),
    ("glm46", {}, "answer"), ("gpt_oss", {}, "markup"), ("seed_oss", {"thinking_budget": 0}, "thinking"),
    ("seed_oss", {}, "answer"), ("llama31", {}, "answer"), ("gemma3", {}, "answer"), ("kimi_k2", {}, "answer"),
    ("mistral_nemo", {}, "answer"), ("mistral_small32", {}, "answer"), ("qwen3_coder", {}, "answer"),
]  # fmt: skip


@pytest.mark.wide(14)
@pytest.mark.parametrize(("name", "config", "state"), BEGINS)
@pytest.mark.parametrize("question", ["What is 2+2?", USERS_MARK])
def test_a_reply_begins_as_the_template_ends(
    name: str, config: dict[str, Any], state: str, question: str
) -> None:
    """A mark that a user writes opens nothing."""
    options = ChatOptions(config=json.dumps(config))
    found = templates.tokens(name).chat_text((Message("user", question),), options)
    assert found.reply.begin == state


def test_a_given_beginning_belongs_to_the_reply() -> None:
    options = ChatOptions(response="<think>\nWell")
    found = templates.tokens("qwen3").chat_text((Message("user", USERS_MARK),), options)
    assert found.reply.begin == "thinking"
    options = ChatOptions(response="Well")
    assert (
        templates.tokens("qwen3").chat_text((Message("user", USERS_MARK),), options).reply.begin == "answer"
    )


def test_a_mark_in_a_message_that_has_no_place_opens_nothing() -> None:
    reply = templates.tokens("qwen3").chat_text((Message("user", "a"),), NO_OPTIONS).reply
    messages = [{"role": "user", "content": USERS_MARK}]
    found = chat_text(filler(TEMPLATES["a length"]), filling(messages), reply)
    assert USERS_MARK in found.text
    assert (found.spans, found.reply.begin) == ((), "answer")


def test_a_template_of_the_request_says_how_its_replies_are_marked() -> None:
    tokens = Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2]), 4096)
    assert tokens.chat_text((Message("user", "a"),), NO_OPTIONS).reply == ReplyFormat()
    options = ChatOptions(config=json.dumps({"chat_template": templates.source("qwen3")}))
    reply = tokens.chat_text((Message("user", "a"),), options).reply
    assert reply.parser == "json_tools"
    assert ("answer", "<think>", "thinking") in [(mark.at, mark.text, mark.to) for mark in reply.marks]


# ---- broken on purpose --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"tool_calls": "none"}, {"tool_calls": [None, 3, {"function": 5}, {"function": {"name": 1}}]},
        {"tool_calls": [{"function": {"name": "a", "arguments": "{\"b\": "}}]}, {"reasoning_content": 7},
        {"thinking": ""}, {"tool_calls": {"a": 1}},
    ],
)  # fmt: skip
def test_messages_of_any_shape_are_filled(more: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": "Sayword", **copy.deepcopy(more)}
    found = made("{{ messages | tojson }}", message, tools=[3, None, {"function": []}])
    assert "answer" in [kind for kind, _, _ in words(found)]


def test_tools_are_found_beside_messages_that_are_written_otherwise() -> None:
    template = "{{ tools | tojson }}{% for m in messages %}[{{ m.content | length }}]{% endfor %}"
    messages = [{"role": "user", "content": "Sayword"}]
    found = made(template, *messages, tools=[templates.WEATHER])
    assert [json.loads(text) for kind, _, text in words(found) if kind == "tools"] == [templates.WEATHER]
    assert found.left_out == (LeftOut("user", 0, True),)


def test_very_many_strings_are_bounded() -> None:
    messages = [{"role": "user", "content": f"w{number}"} for number in range(40_000)]
    found = made("{% for m in messages %}{{ m.content }}\n{% endfor %}", *messages)
    assert len(found.spans) == 32_767
    assert words(found)[-1] == ("user", 32_766, "w32766")


def test_a_given_beginning_has_its_thinking_in_it() -> None:
    options = ChatOptions(response="<think>\nThinkword.\n</think>\n\nSay")
    found = templates.tokens("qwen3").chat_text((Message("user", "a"),), options)
    assert [(kind, text.strip()) for kind, _, text in words(found)] == [
        ("user", "a"), ("thinking", "Thinkword."), ("answer", "Say"),
    ]  # fmt: skip
    assert found.reply.begin == "answer"
    open_ended = templates.tokens("qwen3").chat_text(
        (Message("user", "a"),), ChatOptions(response="<think>\nHm")
    )
    assert [(kind, text.strip()) for kind, _, text in words(open_ended)] == [
        ("user", "a"),
        ("thinking", "Hm"),
    ]
    assert open_ended.reply.begin == "thinking"

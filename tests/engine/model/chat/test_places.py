"""Where messages are in a filled template: never at words that are another's, whatever the template and the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm import utils
from mlx_lm.chat_templates import deepseek_v32

from engine import pocket
from engine.model.chat.places import Conversation, Fill, message_places
from engine.model.chat.template_process import _environment
from engine.model.tokens import Tokens
from engine.protocol import NO_OPTIONS, ChatOptions, Message
from engine.tree import common_prefix
from tests.engine.model.chat.templates import TEMPLATES

WRITTEN = {*TEMPLATES} - {"a length", "capitals", "the last alone"}
"""Those that write each message as it is."""
WORDS = (
    "a", "You are", "system", "user", "s", "<|im_start|>", "assistant\n", "<tool_response>", "\n",
    " ", "é", "😀", "{{ a }}", "[INST]", "December",
)  # fmt: skip
CONTENTS = st.lists(st.sampled_from(WORDS), min_size=0, max_size=3).map("".join)
THOUGHTS = st.one_of(CONTENTS, st.builds("<think>\n{}\n</think>\n\n{}".format, CONTENTS, CONTENTS))
TURNS = st.lists(st.tuples(CONTENTS, THOUGHTS), max_size=2)


def filler(template: str) -> Fill:
    compiled = _environment().from_string(template)

    def fill(conversations: Sequence[Conversation]) -> list[str]:
        return [compiled.render(messages=each, bos_token="<s>", eos_token="</s>") for each in conversations]

    return fill


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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
    text, places = message_places(fill, messages, len(messages))
    assert [text] == fill([messages])
    for each, place in enumerate(places):
        content = messages[each]["content"]
        said = content.rpartition("</think>")[2].strip()
        if place < 0:
            assert name not in WRITTEN or not said
            continue
        other = {**messages[each], "content": f"{content.rstrip()}ξψ"}
        [changed] = fill([[*messages[:each], other, *messages[each + 1 :]]])
        assert changed is not None
        end = common_prefix(text, changed)
        if name in WRITTEN and "</think>" not in content:
            assert text[place:end] == content.strip()
        elif name in WRITTEN:
            assert text[place:end].endswith(said)


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
    text, [place] = message_places(filler(TEMPLATES[name]), [{"role": "user", "content": content}], 1)
    assert text[:place].endswith(before)
    assert text.startswith(content, place)


def test_what_is_left_out_or_written_otherwise_has_no_place() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert message_places(filler(TEMPLATES["the last alone"]), messages, 2)[1][0] == -1
    assert message_places(filler(TEMPLATES["a length"]), messages, 2) == ("[1]a[1]b", (-1, -1))
    assert message_places(filler(TEMPLATES["capitals"]), messages, 2) == ("user:A;user:B;", (5, 12))
    assert message_places(
        filler("{{ messages[0].content }}"), [{"role": "user", "content": "a\U000f0001"}], 1
    )[1] == (-1,)
    assert message_places(filler(""), [], 0) == ("", ())


def test_code_that_fills_a_template_is_marked_too() -> None:
    """mlx_lm's own for DeepSeek 3.2, which is no template."""

    def fill(conversations: Sequence[Conversation]) -> list[str]:
        return [deepseek_v32.apply_chat_template(each, add_generation_prompt=True) for each in conversations]

    messages = [
        {"role": "user", "content": "User"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "s"},
    ]
    text, places = message_places(fill, messages, 3)
    assert all(text.startswith(each["content"], at) for each, at in zip(messages, places, strict=True))
    assert text[: places[0]].endswith("<｜User｜>")
    assert text[: places[2]].endswith("<｜User｜>")


def test_the_bundled_models_template_in_its_process() -> None:
    tokens = Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2]), 4096)
    messages = (
        Message("system", "s"),
        Message("user", "a"),
        Message("assistant", "user"),
        Message("user", "  a\n"),
    )
    text, places = tokens.chat_places(messages, NO_OPTIONS)
    assert text == tokens.chat(messages, NO_OPTIONS)
    assert all(text.startswith(each.content.strip(), at) for each, at in zip(messages, places, strict=True))
    assert sorted(places) == list(places)
    assert text[: places[1]].endswith("user\n")
    opened, places = tokens.chat_places(messages[:2], ChatOptions(response="a, well"))
    assert opened.endswith("a, well")
    assert opened[: places[1]].endswith("user\n")

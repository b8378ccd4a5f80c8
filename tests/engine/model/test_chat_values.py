"""What a chat template gets, held against mlx_lm's and transformers' own functions with the same arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mlx_lm import utils

from engine import pocket
from engine.errors import PromptError
from engine.model.tokens import Tokens, plain_tokenizer
from engine.protocol import NO_OPTIONS, ChatOptions, Message

LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
REASONING = (
    "{% if tools %}[{{ tools | tojson }}]{% endif %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{% endif %}"
    "{{ level }}{{ thinking }}{{ documents }}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "reasoning": REASONING}
Wear = Callable[[Any], tuple[Any, Tokens]]


@pytest.fixture(scope="module")
def wrapper() -> Any:
    return utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2])


@pytest.fixture
def wear(wrapper: Any) -> Iterator[Wear]:
    """Gives the tokenizer another template."""
    before = wrapper._tokenizer.chat_template

    def change(template: Any) -> tuple[Any, Tokens]:
        wrapper._tokenizer.chat_template, wrapper.has_chat_template = template, template is not None
        return wrapper, Tokens(wrapper, 4096)

    yield change
    wrapper._tokenizer.chat_template, wrapper.has_chat_template = before, True


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("response", ["Sure, ", " \n Sure", "", "  ", "{{ 7 * 7 }}<|im_end|>", "x" * 5000])
def test_a_given_beginning_is_what_continue_final_message_gives(wear: Wear, name: str, response: str) -> None:
    wrapper, tokens = wear(TEMPLATES[name])
    asked = [{"role": "user", "content": " Tell a störy 🙂 "}]
    expected = wrapper.apply_chat_template(
        [*asked, {"role": "assistant", "content": response}],
        tokenize=False,
        continue_final_message=True,
        add_generation_prompt=False,
    )
    options = ChatOptions(response=response)
    assert tokens.chat([Message(**each) for each in asked], options) == expected
    ids = wrapper.encode(expected, add_special_tokens=False)
    assert tokens.encode(expected, bare=True) == ids


def test_a_template_that_drops_the_beginning_refuses(wear: Wear) -> None:
    _, tokens = wear("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    with pytest.raises(PromptError, match="refuses this prompt: it does not write out the message"):
        tokens.chat([Message("user", "x")], ChatOptions(response="Sure"))


@pytest.mark.wide(4)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"enable_thinking": False},
        {"enable_thinking": True, "level": "high", "thinking": [1, {"a": None}]},
        {"documents": [{"title": "t", "text": "x"}]},
        {"chat_template": "{{ messages[-1].content }}!{{ level }}", "level": 3},
        {"bos_token": "<other>"},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_configuration_is_that_of_mlx_lm(wear: Wear, name: str, config: dict[str, Any]) -> None:
    wrapper, tokens = wear(TEMPLATES[name])
    asked = [{"role": "user", "content": "x"}]
    expected = wrapper.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, **config)
    assert tokens.chat([Message("user", "x")], ChatOptions(config=json.dumps(config))) == expected


@pytest.mark.parametrize("taken", ["messages", "conversation", "tokenize", "add_generation_prompt", "tools"])
def test_what_mlx_lm_gives_itself_cannot_be_set(wear: Wear, taken: str) -> None:
    """mlx_lm ends with a `TypeError` there: the function would get the argument twice."""
    wrapper, tokens = wear(CHATML)
    with pytest.raises(TypeError):
        wrapper.apply_chat_template([{"role": "user", "content": "x"}], conversation=[], tokenize=False)
    with pytest.raises(PromptError, match=f"can't set {taken}"):
        tokens.chat([Message("user", "x")], ChatOptions(config=json.dumps({taken: []}), tools="[]"))


def test_tools_and_calls_are_those_of_transformers(wear: Wear) -> None:
    wrapper, tokens = wear(REASONING)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
    for reasoning in ("reasoning", "thinking", "reasoning_content"):
        messages = [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": "", "tool_calls": [call], "name": None},
            {"role": "tool", "content": "no", "tool_call_id": "1", reasoning: "so"},
        ]
        expected = wrapper.apply_chat_template(
            [dict(each) for each in messages], tools=tools, tokenize=False, add_generation_prompt=True
        )
        ours = [
            Message(str(each.pop("role")), str(each.pop("content")), json.dumps(each) if each else "")
            for each in messages
        ]
        assert tokens.chat(ours, ChatOptions(tools=json.dumps(tools))) == expected
        assert "<think>so</think>" in expected


def test_among_several_templates_that_for_tools_is_taken(wear: Wear) -> None:
    wrapper, tokens = wear(
        {"default": "d{{ messages[0].content }}", "tool_use": "t{{ messages[0].content }}"}
    )
    asked = [{"role": "user", "content": "x"}]
    for tools, config in ((None, {}), ([{"a": 1}], {}), (None, {"chat_template": "tool_use"})):
        expected = wrapper.apply_chat_template(asked, tools=tools, tokenize=False, **config)
        options = ChatOptions(json.dumps(config), json.dumps(tools) if tools else "")
        assert tokens.chat([Message("user", "x")], options) == expected


def test_a_default_template_is_used_on_request_alone(wear: Wear) -> None:
    wrapper, tokens = wear(None)
    asked, default = [Message("user", "x")], ChatOptions(default_template=True)
    assert not tokens.takes_chat(NO_OPTIONS)
    assert not tokens.takes_chat(default)  # transformers has had none since 4.44
    for options in (NO_OPTIONS, default):
        with pytest.raises(PromptError, match="no chat template"):
            tokens.chat(asked, options)
    wrapper._tokenizer.default_chat_template = "[{{ messages[0].content }}]"
    try:
        assert not tokens.takes_chat(NO_OPTIONS)
        assert tokens.takes_chat(default)
        assert tokens.chat(asked, default) == "[x]"
        _, tokens = wear("({{ messages[0].content }})")
        assert tokens.chat(asked, default) == "(x)"
    finally:
        del wrapper._tokenizer.default_chat_template


def test_the_plain_tokenizer_takes_the_same_options() -> None:
    plain = plain_tokenizer(pocket.directory(), json.loads((pocket.directory() / "config.json").read_bytes()))
    theirs = Tokens(utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2]), 4096)
    assert plain is not None
    for options in (
        ChatOptions(response="Once "),
        ChatOptions('{"chat_template": "{{ messages[0].content }}{{ a }}", "a": 1}'),
        ChatOptions(tools="[{}]"),
    ):
        asked = [Message("user", "x")]
        assert Tokens(plain, 4096).chat(asked, options) == theirs.chat(asked, options)


@pytest.mark.parametrize("config", ["[1]", "{", '"x"', "[" * 100_000, '{"a": ' * 100_000])
def test_options_that_are_wrong(wear: Wear, config: str) -> None:
    _, tokens = wear(CHATML)
    with pytest.raises(PromptError) as error:
        tokens.chat([Message("user", "x")], ChatOptions(config=config))
    assert "\n" not in str(error.value)

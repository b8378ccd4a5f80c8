"""Chat templates: filled within limits as transformers fills them."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import pytest
from mlx_lm import utils
from transformers.utils.chat_template_utils import _compile_jinja_template

from engine import pocket
from engine.errors import PromptError
from engine.model import chat_template as chat_template
from engine.model import chat_template_process
from engine.model.tokens import Tokens
from engine.protocol import NO_OPTIONS, Message, ReplyMark
from tests.system import peak

# ruff: noqa: E501
TEMPLATES = {
    "ChatML": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\\n' }}"
    ),
    "Qwen 2.5": (
        "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
        "{%- else %}{{- '<|im_start|>system\\nYou are Qwen, a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
        "{%- for message in messages %}{%- if (message.role == 'user') or (message.role == 'system' and not loop.first)"
        " or message.role == 'assistant' %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{%- endif %}{%- endfor %}{{- '<|im_start|>assistant\\n' }}"
    ),
    "Qwen 3": (
        "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
        "{%- endif %}{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}"
        "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not("
        "message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
        "{%- set ns.multi_step_tool = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- set content = message.content %}"
        "{%- if (message.role == 'user') or (message.role == 'system' and not loop.first) %}"
        "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}"
        "{%- elif message.role == 'assistant' %}{%- set reasoning = '' %}{%- if '</think>' in content %}"
        "{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
        "{%- if loop.index0 > ns.last and reasoning %}{{- '<|im_start|>assistant\\n<think>\\n' + reasoning + "
        "'\\n</think>\\n\\n' + content }}{%- else %}{{- '<|im_start|>assistant\\n' + content }}{%- endif %}"
        "{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}{{- '<|im_start|>assistant\\n' }}"
    ),
    "Llama 3": (
        "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}"
        "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n' }}"
        "{{- system }}{{- '<|eot_id|>' }}{%- for message in messages %}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}"
        "{%- endfor %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    ),
    "Gemma": (
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}"
        "{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set loop_messages = messages -%}"
        "{%- endif -%}{%- for message in loop_messages -%}{%- set role = 'model' if message['role'] == 'assistant' else "
        "message['role'] -%}{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}"
        "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{%- endfor -%}{{ '<start_of_turn>model\\n' }}"
    ),
    "Mistral": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}"
        "{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for message in rest %}"
        "{%- if message['role'] == 'user' %}{%- if loop.last and system is defined %}"
        "{{- '[INST]' + system + '\\n\\n' + message['content'] + '[/INST]' }}{%- else %}"
        "{{- '[INST]' + message['content'] + '[/INST]' }}{%- endif %}{%- else %}"
        "{{- ' ' + message['content']|trim + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "Phi": (
        "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}"
        "{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% else %}"
        "{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{{ '<|assistant|>\\n' }}"
    ),
    "DeepSeek": (
        "{% set ns = namespace(system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
        "{% set ns.system = ns.system + message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}"
        "{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
        "{%- elif message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}{{ '<｜Assistant｜>' }}"
    ),
    "a length": "{% for m in messages %}[{{ m.content | length }}]{{ m.content }}{% endfor %}",
    "capitals": "{% for m in messages %}{{ m.role }}:{{ m.content | upper }};{% endfor %}",
    "the last alone": "system user assistant a {{ messages[-1].content }}",
}


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\n"
    "  {%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n"
)
OWN_TEMPLATES = {
    "chatml": CHATML,
    "blocks": "{% for m in messages %}\n  {% if m.role == 'user' %}\n   {{ m.content }}\n  {% endif %}\n{% endfor %}\n",
    "namespace": (
        "{%- set ns = namespace(found=false, n=0) -%}{%- for m in messages[::-1] -%}{%- set ns.n = ns.n + 1 -%}"
        "{%- if m.role == 'user' and not ns.found -%}{%- set ns.found = true -%}{%- break -%}{%- endif -%}"
        "{%- endfor -%}{{ ns.n }}{{ ns.found }}{{ bos_token }}{{ eos_token }}{{ no_such_name }}"
    ),
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2, sort_keys=true) }}{{ '<ä&>' | tojson }}",
    "dict": "{% set d = dict(a=1, b='x') %}{{ d.items() | list }}{{ dict.fromkeys(['k'], 2) }}{{ d | items | list }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% continue %}{% endfor %}",
    "macro": "{% macro turn(m) %}[{{ m.role }}]{{ caller() }}{% endmacro %}"
    "{% for m in messages %}{% call turn(m) %}{{ m.content | upper }}{% endcall %}{% endfor %}",
    "thinking": "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}",
    "tools": "{% if tools %}tools{% elif documents is none %}none{% endif %}{{ 'a%sb' % 3 }}{{ '{:>4}'.format(7) }}",
    "filters": "{{ messages | map(attribute='content') | join('|') }}{{ [3,1,2] | sort | last }}{{ 'a b'.split(' ') }}",
    "html": "{{ '<b>' | escape }}{{ '<b>' | e }}{{ 'x' | indent(2, true) }}{{ messages | length }}{{ 2 ** 10 }}",
    "date": "{{ strftime_now('%Y-%m') }}",
}


@pytest.fixture(scope="module")
def wrapper() -> Any:
    return utils.load_tokenizer(pocket.directory(), eos_token_ids=[0, 2])


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", OWN_TEMPLATES)
def test_the_text_is_that_of_transformers(wrapper: Any, name: str) -> None:
    tokens, before = Tokens(wrapper, 4096), wrapper._tokenizer.chat_template
    wrapper._tokenizer.chat_template = OWN_TEMPLATES[name]
    try:
        for text, system in (("  Tell a störy 🙂\n<b>\t", "Be short."), ("x", None)):
            messages = [{"role": "system", "content": system}] if system else []
            messages.append({"role": "user", "content": text})
            expected = wrapper.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            assert tokens.chat([Message(**each) for each in messages], NO_OPTIONS) == expected
    finally:
        wrapper._tokenizer.chat_template = before


def test_a_template_can_use_what_transformers_lets_it_use() -> None:
    """A newer transformers with another filter, test or function is seen here."""
    ours, theirs = chat_template_process.environment(), _compile_jinja_template("").environment
    for table in ("globals", "filters", "tests"):
        assert getattr(ours, table).keys() == getattr(theirs, table).keys()
    plain = ("trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape", "undefined", "finalize")
    assert {name: getattr(ours, name) for name in plain} == {name: getattr(theirs, name) for name in plain}
    assert len(ours.extensions) == len(theirs.extensions)


@pytest.mark.usefixtures("own_process")
@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ 'x' * 10 ** 10 }}", "512 MiB of memory"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "2 s of processor time",
        ),
        ("{{ 10 ** (10 ** 10) }}", "2 s of processor time"),
        ("{{ 'x' | center(10 ** 10) }}", "512 MiB of memory"),
        (
            "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "512 MiB",
        ),
        ("{{ 'x' * 40000000 }}", "it makes 40000000 characters of it"),
        ("{{ raise_exception('no system\\nplease') }}", "refuses this prompt: no system."),
        ("{% for %}", "line 1: Expected an expression"),
        ("{{ messages.__class__.__mro__ }}", "access to attribute '__class__' of 'list' object is unsafe"),
        ("{{ a.b }}", "'a' is undefined"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ],
)
def test_a_template_without_an_end_is_ended(template: str, why: str) -> None:
    began, before = time.perf_counter(), peak(resource.RUSAGE_CHILDREN)
    with pytest.raises(PromptError, match=why) as error:
        chat_template.render(template, {"messages": []})
    assert "\n" not in str(error.value)
    assert time.perf_counter() - began < 15
    if sys.platform != "darwin":  # which knows no limit of memory: there the time bounds what can be built
        # The most of any child so far. One of an earlier test may have been larger, and until a child runs its own
        # program it counts what this process has: then nothing is shown.
        assert peak(resource.RUSAGE_CHILDREN) <= max(before, 2**30, peak(resource.RUSAGE_SELF))


@pytest.mark.usefixtures("own_process")
def test_without_a_process_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/program")
    with pytest.raises(PromptError, match="can't be filled: No such file or directory"):
        chat_template.render("x", {})


@pytest.mark.parametrize("template", ["a [THINK] b", "a [/THINK] b", "[THINK][/THINK]"])
def test_one_mark_of_a_thinking_in_a_template_tells_both(template: str) -> None:
    marks = chat_template.reply_format(template, None, dict).marks
    assert marks == (ReplyMark("answer", "[THINK]", "thinking"), ReplyMark("thinking", "[/THINK]", "answer"))


@pytest.mark.parametrize(
    ("content", "ends", "end"),
    [
        ("cd", [1, 6, 7], 6),
        ("other", [6], 6),
        ("cd", [1], 4),
        ("cd", None, 4),
        ("other", [1], 2),
        ("other", None, 2),
    ],
)
def test_a_string_ends_at_its_mark_or_after_its_text(content: str, ends: list[int] | None, end: int) -> None:
    found = None if ends is None else [(0, True, at) for at in ends]
    assert chat_template._end("abcdefgh", content, 2, found) == end

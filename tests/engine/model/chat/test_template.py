"""Chat templates: the text of transformers, byte for byte, and an end to those that have none."""

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
from engine.model.chat import template as chat_template
from engine.model.chat import template_process
from engine.model.tokens import Tokens
from engine.protocol import NO_OPTIONS, Message
from tests.system import peak

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\n"
    "  {%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n"
)
TEMPLATES = {
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
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_transformers(wrapper: Any, name: str) -> None:
    tokens, before = Tokens(wrapper, 4096), wrapper._tokenizer.chat_template
    wrapper._tokenizer.chat_template = TEMPLATES[name]
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
    ours, theirs = template_process._environment(), _compile_jinja_template("").environment
    for table in ("globals", "filters", "tests"):
        assert getattr(ours, table).keys() == getattr(theirs, table).keys()
    plain = ("trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape", "undefined", "finalize")
    assert {name: getattr(ours, name) for name in plain} == {name: getattr(theirs, name) for name in plain}
    assert len(ours.extensions) == len(theirs.extensions)


@pytest.mark.wide(3)
@pytest.mark.parametrize(
    ("template", "why"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "2 s of processor time",
        ),
        ("{{ 10 ** (10 ** 10) }}", "2 s of processor time"),
        ("{{ 'x' * 10 ** 10 }}", "512 MiB of memory"),
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
        # The most of any child so far: one of an earlier test may have been larger, and then nothing is told.
        assert peak(resource.RUSAGE_CHILDREN) <= max(before, 2**30)


def test_without_a_process_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/program")
    with pytest.raises(PromptError, match="can't be filled: No such file or directory"):
        chat_template.render("x", {})

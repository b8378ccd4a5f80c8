"""Chat templates of eleven families, and a tokenizer for each: the bundled one, with the template's marks added."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from engine import pocket
from engine.model.tokens import Tokens
from engine.patches.imports import complete

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.jinja")))
_MARK = re.compile(
    r"<\|[A-Za-z_:]+\|>|<[｜][^｜]+[｜]>|</?(?:seed:)?(?:think|tool_call|tool_response)>|</?seed:[a-z_]+>"
    r"|<(?:start|end)_of_turn>|\[/?[A-Z_]{4,}\]|\[gMASK\]|<sop>|</?arg_(?:key|value)>"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "zeta",
        "description": "qqtool wind",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "town"}},
            "required": ["city"],
        },
    },
}


@cache
def source(name: str) -> str:
    """A template."""
    return Path(__file__).with_name(f"{name}.jinja").read_text("utf-8")


@cache
def wrapper(name: str) -> Any:
    """mlx_lm's wrapper of the tokenizer, with the parser that it infers from the template."""
    from importlib import import_module

    complete()
    from mlx_lm.tokenizer_utils import TokenizerWrapper, _infer_tool_parser
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_file=str(pocket.directory() / "tokenizer.json"),
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=sorted({*_MARK.findall(source(name)), *_CLOSING.get(name, ())}),
    )
    made.chat_template = source(name)
    found = _infer_tool_parser(made)
    given: dict[str, Any] = {}
    if found is not None:
        module = import_module(f"mlx_lm.tool_parsers.{found}")
        given = {
            "tool_parser": module.parse_tool_call,
            "tool_call_start": module.tool_call_start,
            "tool_call_end": module.tool_call_end,
        }
    return TokenizerWrapper(made, **given)


_CLOSING = {
    "gpt_oss": ("<|constrain|>",),
    "deepseek_v31": ("<think>",),
    "seed_oss": ("</seed:think>",),
    "kimi_k2": ("<|tool_call_end|>",),
}
"""Marks that only replies have."""


def tokens(name: str) -> Tokens:
    """The tokenizer as the engine has it."""
    return Tokens(wrapper(name), len(wrapper(name)._tokenizer))

"""A person's grammar as llguidance reads it, and what llguidance says of it in one sentence. llguidance alone."""

from __future__ import annotations

import json
import re
from typing import Any

from engine.errors import SettingsError
from engine.grammar_settings import Grammar

WHITESPACE = {"whitespace_pattern": " ?"}
"""Between the parts of JSON at most one space, as people and `json.dumps` write it. With as many as the standard allows
a model that likes newlines writes newlines for ever; a schema's own `x-guidance` overrides it."""
NO_FORCING = '%llguidance {"no_forcing": true}\n'
"""The first line. Without it a mask has only the first token of the tokenizer's own cut of a text that is certain, and
forbids what the grammar allows: `i` and `il` where `ily` follows."""
_POSITION = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_KEYWORDS = re.compile(r"Unimplemented keys: (\[.*\])")
_LIMITS = {
    "lexer": "its regular expressions take too much time or memory",
    "fuel": "its regular expressions take too much time or memory",
    "too complex": "it is too complex",
    "grammar size": "it is too large",
}


def llguidance_source(grammar: Grammar) -> str:
    """The grammar as llguidance takes it, in Lark, where masks are those of the grammar alone.

    Raises:
        SettingsError: A schema is no JSON, or GBNF can't be read.
    """
    match grammar.kind:
        case "regex":
            return NO_FORCING + _rule(grammar.text)
        case "json-schema":
            return f"{NO_FORCING}start: %json {json.dumps(_schema(grammar.text))}"
        case "lark":
            return grammar.text if "%llguidance" in grammar.text else NO_FORCING + grammar.text
        case "gbnf":
            return NO_FORCING + _lark_of_gbnf(grammar.text)
        case "choices":
            texts = dict.fromkeys(text for text in grammar.text.split("\n") if text)
            return f"{NO_FORCING}start: {' | '.join(map(json.dumps, texts))}"


def _rule(regex: str) -> str:
    """A regular expression as a rule of Lark."""
    from llguidance import LLMatcher

    grammars = json.loads(LLMatcher.grammar_from_regex(regex))["grammars"]
    return str(grammars[0]["lark_grammar"])


def _schema(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise refusal(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise refusal(
            "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        ) from None
    if not isinstance(value, dict | bool):
        raise refusal("a JSON schema is an object, or true or false")
    if isinstance(value, dict):
        own = value.get("x-guidance", {})
        value["x-guidance"] = {**WHITESPACE, **own} if isinstance(own, dict) else own
    return value


def _lark_of_gbnf(text: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except Exception as error:  # it raises ValueError, IndexError or AssertionError
        raise refusal(first_line(error) or "it is no GBNF") from None


def refusal(why: str) -> SettingsError:
    """That a grammar can't be used, and why."""
    return SettingsError(
        "grammar", f"The grammar can't be used: {why.rstrip('.')}.", "Change it, or take it off."
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's text, 200 characters at most."""
    return next(iter(str(error).strip().splitlines()), "")[:200]


def in_words(error: str, grammar: Grammar) -> str:
    """llguidance's error as one sentence without its full stop, with line and column where it names them."""
    if keywords := _KEYWORDS.search(error):
        names: list[Any] = json.loads(keywords[1])
        return f"keywords of the schema that are not supported: {', '.join(map(str, names))}"
    if "regex parse error" in error and grammar.kind == "regex":
        return _regex_error(error)
    for part, words in _LIMITS.items():
        if part in error.lower().split("\n")[0]:
            return words
    if "NoExtension" in error:
        return "no text matches it"
    line = error.strip().split("\n")[0][:200]
    if place := _POSITION.match(line):
        if grammar.kind != "lark":  # of a text that the person has not written
            return place[3]
        number = int(place[1]) - ("%llguidance" not in grammar.text)
        return f"line {number}, column {place[2]}: {place[3]}"
    return line or "llguidance gives no reason"


def _regex_error(error: str) -> str:
    """What the regex parser says, with the column that its caret points to."""
    lines = error.split("\n")
    why = next((line.partition("error: ")[2] for line in lines if line.startswith("error: ")), "it is none")
    caret = next((line for line in lines if line.strip() and not line.strip("^ ")), "")
    return f"column {caret.index('^') - 3}: {why}" if caret else why

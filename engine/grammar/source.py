"""A person's grammar as llguidance reads it, and what llguidance says of it in one sentence. llguidance alone."""

from __future__ import annotations

import json
import re
from typing import Any

from engine.errors import first_line
from engine.grammar.schema import refusal, schema_for_llguidance
from engine.grammar_settings import Grammar

NO_FORCING = '\n%llguidance {"no_forcing": true}\n'
"""The last line: it overrides the grammar's own. Without it a mask has only the first token of the tokenizer's own cut
of a text that is certain, and forbids what the grammar allows: `i` and `il` where `ily` follows."""
_POSITION = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_KEYWORDS = re.compile(r"Unimplemented keys: (\[.*\])")
_ERROR, _CARET = re.compile(r"^error: (.*)", re.MULTILINE), re.compile(r"^    ( *)\^+ *$", re.MULTILINE)
"""What the regex parser says, and where: it indents the line of an expression of one line by four."""
_REMOTE = re.compile(r"Resource '(.*)' is not present in a registry")
NO_TOKEN = "no token of the model goes on with it"
_WORDS = {
    "NoExtension": NO_TOKEN,
    "Empty grammar": "it has no rule",
    "no start rule found": "it has no rule named start",
    "panic:": "it is too large",
    "too big (limit": "it is too large",
    "schema too large": "it is too large",
    "too many expressions": "it is too large",
    "recursion limit exceeded": "it is nested too deeply",
    "LexerTooComplex": "its regular expressions take too much time or memory",
    "fuel": "its regular expressions take too much time or memory",
    "too many states": "its regular expressions take too much time or memory",
    "ParserTooComplex": "it is too complex",
    "Too many items": "it is too complex",
    "Current row has": "it is too complex",
    "Regex is empty": "no text matches it",
    "decimal literal invalid": "a number in it is beyond what llguidance can count",
}
"""What llguidance says of a whole grammar, and what it means."""


def llguidance_source(grammar: Grammar) -> str:
    """The grammar as llguidance takes it, in Lark, where masks are those of the grammar alone.

    Raises:
        SettingsError: A schema is no JSON, or GBNF can't be read.
    """
    match grammar.kind:
        case "regex":
            return _rule(grammar.text) + NO_FORCING
        case "json-schema":
            return f"start: %json {json.dumps(schema_for_llguidance(grammar.text))}{NO_FORCING}"
        case "lark":
            return grammar.text + NO_FORCING
        case "gbnf":
            return _lark_of_gbnf(grammar.text) + NO_FORCING
        case "choices":
            texts = dict.fromkeys(text for text in grammar.text.split("\n") if text)
            return f"start: {' | '.join(json.dumps(text, ensure_ascii=False) for text in texts)}{NO_FORCING}"


def _rule(regex: str) -> str:
    """A regular expression as a rule of Lark."""
    from llguidance import LLMatcher

    grammars = json.loads(LLMatcher.grammar_from_regex(regex))["grammars"]
    return str(grammars[0]["lark_grammar"])


def _lark_of_gbnf(text: str) -> str:
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except GbnfToLarkError as error:
        before, why = text[: error.pos.pos].split("\n"), first_line(error).partition(" at line ")[0]
        raise refusal(f"line {len(before)}, column {len(before[-1]) + 1}: {why}") from None
    except RecursionError:
        raise refusal("it is nested too deeply") from None
    except Exception as error:  # it raises ValueError, IndexError or AssertionError
        raise refusal(first_line(error, nothing="it is no GBNF")) from None


def in_words(error: str, grammar: Grammar) -> str:
    """llguidance's error as one sentence without its full stop, with line and column where it names them."""
    first = error.strip().split("\n")[0]
    if keywords := _KEYWORDS.search(first):
        names: list[Any] = json.loads(keywords[1])
        return f"keywords of the schema that are not supported: {', '.join(map(str, names))}"
    if remote := _REMOTE.search(first):
        return f"$ref to {remote[1][:100]}: only references within the schema are followed"
    if words := next((words for part, words in _WORDS.items() if part in first), ""):
        return words
    place = _POSITION.match(first)
    why = place[3] if place else first
    if error_of_regex := _ERROR.search(error):
        why = next((words for part, words in _WORDS.items() if part in error_of_regex[1]), error_of_regex[1])
        if grammar.kind == "regex" and (caret := _CARET.search(error)):
            return f"column {len(caret[1]) + 1}: {why}"
    why = "a text or pattern doesn't end, or a sign is out of place" if why == "lexer error" else why
    why = why.removeprefix("failed to compile JSON schema: ")[:200] or "llguidance gives no reason"
    # of the other kinds the person has not written the text that the place is in
    return f"line {place[1]}, column {place[2]}: {why}" if place and grammar.kind == "lark" else why

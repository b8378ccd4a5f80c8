"""Masks against judges that share nothing with llguidance: along random walks, for every token of the vocabulary."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import pytest
import regex

from engine.grammar.matcher import GrammarTokens, GrammarVocabulary, Matcher
from engine.grammar_settings import Grammar, GrammarKind
from engine.model.load import load
from engine.settings import LoadSettings
from tests.engine.grammar.vocabularies import overlapping

Judge = Callable[[bytes], bool]
"""Whether some text of the grammar begins with these bytes."""
CHARACTER = (
    rb"(?:[\x00-\x09\x0b-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
"""What `.` matches, in UTF-8."""
REGEXES = (
    "[0-9]+",
    "abcd",
    "(ab|abc|abcd)*d?",
    "[a-c]{2,5}(aa)+",
    "(a|b)*a(a|b){6}",
    r"\{\}|\[1(,-1)*\]",
    "-?(0|[1-9][0-9]*)(.[0-9]+)?",
    "20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]",
    "(yes|no|nope)(, (yes|no|nope))*",
    "a?",
    "(日本|日|é)+x?日?",
    "a.c|.{2}日",
    "(\n|a\n)+b",
    "((a*)*)*b",
    "👋{1,2}",
)


@cache
def vocabulary(name: str) -> tuple[GrammarTokens, GrammarVocabulary]:
    tokens: GrammarTokens = overlapping() if name == "overlapping" else load(LoadSettings()).tokens
    return tokens, GrammarVocabulary(tokens)


def by_regex(pattern: str) -> tuple[Judge, Judge]:
    """Whether a text can be continued to a match, and whether it is one: `regex`, over UTF-8."""
    raw = regex.sub(rb"[^\x00-\x7f]", rb"\g<0>", pattern.encode())
    for char in {
        char for char in pattern if ord(char) > 127
    }:  # what follows a character binds to all its bytes
        raw = raw.replace(char.encode(), b"(?:" + char.encode() + b")")
    raw = regex.sub(rb"(?<!\\)\.", lambda _: CHARACTER, raw)
    compiled = regex.compile(raw)
    return (
        lambda text: compiled.fullmatch(text, partial=True) is not None,
        lambda text: compiled.fullmatch(text) is not None,
    )


def of_texts(texts: Iterable[str]) -> tuple[Judge, Judge]:
    """The same of a grammar whose texts are known."""
    whole = {text.encode() for text in texts}
    beginnings = {text[:end] for text in whole for end in range(len(text) + 1)}
    return beginnings.__contains__, whole.__contains__


def spaced(parts: Iterable[str]) -> set[str]:
    """JSON's parts with one space or none between two."""
    first, *rest = parts
    gaps = itertools.product(("", " "), repeat=len(rest))
    return {first + "".join(gap + part for gap, part in zip(each, rest, strict=True)) for each in gaps}


BOOLEANS = ("true", "false")
SCHEMAS: tuple[tuple[object, set[str]], ...] = (
    ({"type": "boolean"}, {"true", "false"}),
    ({"enum": ["yes", "no", "nope", 12, None, [1]]},
     {'"yes"', '"no"', '"nope"', "12", "null", *spaced(["[", "1", "]"])}),
    ({"type": "integer", "minimum": -1, "maximum": 123}, {str(number) for number in range(-1, 124)} | {"-0"}),
    ({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False},
     {text for value in BOOLEANS for text in spaced(["{", '"a"', ":", value, "}"])}),
    ({"type": "object", "properties": {"a": {"const": 1}, "bc": {"type": "null"}}, "additionalProperties": False},
     spaced("{}") | spaced(["{", '"a"', ":", "1", "}"]) | spaced(["{", '"bc"', ":", "null", "}"])
     | spaced(["{", '"a"', ":", "1", ",", '"bc"', ":", "null", "}"])),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
     spaced("[]") | {text for one in BOOLEANS for text in spaced(["[", one, "]"])}
     | {text for one in BOOLEANS for other in BOOLEANS for text in spaced(["[", one, ",", other, "]"])}),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"const": "ab"}, {"const": "abc"}]}}}, {'"ab"', '"abc"'}),
    ({"type": "string", "pattern": "^(ab|cd){1,2}$"},
     {f'"{"".join(each)}"' for count in (1, 2) for each in itertools.product(("ab", "cd"), repeat=count)}),
)  # fmt: skip
CASES: dict[str, tuple[Grammar, tuple[Judge, Judge]]] = {
    **{f"regex {text}": (Grammar("regex", text), by_regex(text)) for text in REGEXES},
    **{
        f"schema {place}": (Grammar("json-schema", json.dumps(schema)), of_texts(texts))
        for place, (schema, texts) in enumerate(SCHEMAS)
    },
    "choices": (
        Grammar("choices", 'yes\nno\nnope\nabc\nab"\\日'),
        of_texts(["yes", "no", "nope", "abc", 'ab"\\日']),
    ),
    "lark": (Grammar("lark", 'start: "ab"~1..3 end?\nend: "cd" | "日"'), by_regex("(ab){1,3}(cd|日)?")),
    "gbnf": (Grammar("gbnf", 'root ::= "ab" x*\nx ::= [0-2]+ "-"'), by_regex("ab([0-2]+-)*")),
    "no forcing taken off": (
        Grammar("lark", '%llguidance {"no_forcing": false}\nstart: "abcd"'),
        of_texts(["abcd"]),
    ),
}


@pytest.mark.parametrize("words", ["overlapping", "bundled"])
@pytest.mark.parametrize("case", CASES)
def test_a_token_is_allowed_where_a_text_of_the_grammar_goes_on_with_it(case: str, words: str) -> None:
    grammar, (begins, matches) = CASES[case]
    tokens, prepared = vocabulary(words)
    text_tokens = {
        token: raw
        for token in range(tokens.vocabulary)
        if (raw := tokens.raw(token)) and not tokens.is_special(token) and token not in tokens.eos_ids
    }
    first = Matcher.begin(grammar, prepared)
    random = np.random.default_rng(7)
    for _ in range(4):
        matcher, text = first.copy(), b""
        for _ in range(12):
            expected = {token for token, raw in text_tokens.items() if begins(text + raw)}
            ends = set(tokens.eos_ids) if matches(text) else set()
            assert set(matcher.allowed_ids()) == expected | ends, text
            assert matcher.accepting == bool(ends), text
            assert matcher.complete == (bool(ends) and not expected), text
            forced = matcher.forced()
            assert begins(text + forced), text
            assert all(matcher.allows(token) == matches(text) for token in tokens.eos_ids), text
            assert not any(matcher.allows(token) for token in random.choice(tokens.vocabulary, 5)
                           if token not in expected | ends), text  # fmt: skip
            if not expected:
                break
            assert all(matcher.allows(token) for token in random.choice(sorted(expected), 3)), text
            token = int(random.choice(sorted(expected)))
            matcher.take(token)
            text += text_tokens[token]


@pytest.mark.parametrize("kind", ["regex", "choices", "lark", "gbnf", "json-schema"])
def test_of_a_text_that_is_certain_every_beginning_is_a_token_that_may_follow(kind: GrammarKind) -> None:
    text = {"regex": "ily", "choices": "ily", "lark": 'start: "ily"', "gbnf": 'root ::= "ily"'}.get(
        kind, '{"const": "ily"}'
    )
    tokens, prepared = vocabulary("bundled")
    matcher = Matcher.begin(Grammar(kind, text), prepared)
    whole = b'"ily"' if kind == "json-schema" else b"ily"
    assert matcher.forced() == whole
    allowed = {tokens.raw(token) for token in matcher.allowed_ids()}
    assert allowed == {tokens.raw(token) for token in range(4096) if tokens.raw(token)} & {
        whole[:end] for end in range(1, len(whole) + 1)
    }

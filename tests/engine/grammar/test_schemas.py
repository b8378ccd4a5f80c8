"""What a schema's grammar lets through is valid under the schema; what it can't hold is refused. jsonschema judges."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import inspector
from engine.errors import EngineError, SettingsError, StepError
from engine.grammar.source import FORMATS
from engine.grammar.states import Matcher, byte_vocabulary
from engine.grammar_settings import Grammar

BYTES = byte_vocabulary()
HUGE = re.compile(r"[eE][+-]?[0-9]{4}")
"""Numbers that the judge can't divide."""
LONGEST = 80
"""Bytes of a random text: longer ones are left out."""


def matcher_of(schema: Any) -> Matcher:
    return Matcher.begin(Grammar("json-schema", json.dumps(schema)), BYTES)


def accepts(matcher: Matcher, text: str) -> bool:
    matcher = matcher.copy()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.take(byte)
    return matcher.accepting


def random_text(matcher: Matcher, random: random.Random) -> str | None:
    """A text that the grammar lets through and finishes, None where it goes on for too long or is a dead end."""
    matcher, text = matcher.copy(), bytearray()
    while len(text) < LONGEST:
        try:
            ids = [] if matcher.complete else matcher.allowed_ids()
        except StepError:
            return None
        if not ids or (256 in ids and random.random() < 0.3):
            return text.decode()
        followers = [byte for byte in ids if byte < 256]
        if not followers:
            return text.decode()
        ends = [byte for byte in followers if byte in b'"}],0123456789-.']
        text.append(random.choice(ends if ends and random.random() < 0.6 else followers))
        matcher.take(text[-1])
    return None


def is_valid(schema: Any, text: str) -> bool:
    """As jsonschema judges it, in decimal arithmetic: in that of floats 1 is no multiple of 1e-9."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    with localcontext(prec=2500):
        return bool(jsonschema.Draft202012Validator(exact).is_valid(json.loads(text, parse_float=Decimal)))


# ---- what llguidance breaks in silence --------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "a range beyond int64": ({"type": "integer", "minimum": 1e300, "maximum": 1e301}, "minimum 1e+300 is beyond"),
    "the same of digits": ({"type": "integer", "minimum": 10**30, "maximum": 10**31}, "minimum 1e+30 is beyond"),
    "beyond float64's integers": ({"type": "integer", "exclusiveMinimum": 2**53}, "exclusiveMinimum 9.0072e+15"),
    "int64's end": ({"type": "integer", "exclusiveMaximum": 2**63 - 1}, "exclusiveMaximum 9.22337e+18"),
    "a number": ({"properties": {"a": {"type": "number", "minimum": 2**53 + 1}}}, "minimum 9.0072e+15"),
    "infinity": ({"type": "number", "maximum": float("inf")}, "Infinity is no number of JSON"),
    "beyond all floats": ({"enum": [10**400]}, "the number of 401 digits in it"),
    "a constant": ({"const": 123456789012345678}, "the number 1.23457e+17 in it"),
    "a constant of a float": ({"allOf": [{"type": "integer"}, {"enum": [1e300]}]}, "the number 1e+300 in it"),
    "one of some": ({"enum": [{"a": [2**64]}]}, "the number 1.84467e+19 in it"),
    "a control character": ({"const": "a\x01b"}, "names the control character U+0001"),
    "a name": ({"properties": {"a\x7f": {}}}, "names the control character U+007F"),
    "names that come twice": ({"minProperties": 2}, "its minProperties 2 can't be counted"),
    "a class of controls": ({"type": "string", "pattern": r"^[\x00-!#-~]*$"}, "its pattern ^[\\x00-!#-~]*$ has"),
    "what is no punctuation": ({"patternProperties": {r"^\P{P}$": {}}}, r"its pattern ^\P{P}$ has"),
    "a length": ({"type": "string", "maxLength": 2**40}, "a number in it is beyond what llguidance can count"),
    "parts that overlap": (
        {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]}}},
        "parts 2 and 3 of #/properties/a/oneOf overlap, as far as llguidance can tell. Use anyOf, or",
    ),
    "parts behind references": (
        {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}},
        "llguidance can't compare parts 1 and 2 of #/oneOf through a $ref. Write out what it names, or use anyOf",
    ),
    "parts that overlap in a part": (
        {"oneOf": [{"type": "null"}, {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}]},
        "parts 1 and 2 of #/oneOf/1/oneOf overlap",
    ),
    "options of llguidance": ({"type": "object", "x-guidance": {"key_separator": "="}}, "it has x-guidance"),
    "the same within": ({"properties": {"a": {"x-guidance": {"coerce_one_of": True}}}}, "it has x-guidance"),
    "a contradiction": ({"enum": ["abc"], "pattern": "^b"}, "no text matches it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_llguidance_cannot_hold_is_refused_in_one_line(name: str) -> None:
    schema, why = REFUSED[name]
    with pytest.raises(SettingsError) as refused:
        matcher_of(schema)
    assert why in refused.value.message
    assert "\n" not in refused.value.message


KEPT: tuple[tuple[Any, str, str], ...] = (
    ({"type": "string", "pattern": '^[^"]*$'}, '"ab"', r'"a\"b"'),
    ({"type": "string", "pattern": r"^[^\\]*$"}, '"ab"', r'"a\\b"'),
    ({"type": "string", "pattern": '^[^]"-]*$'}, '"ab"', r'"\""'),
    ({"type": "string", "pattern": '^[^-"]*$'}, '"ab"', '"-"'),
    ({"type": "string", "pattern": r"^[\[^a]$"}, '"^"', '"b"'),
    ({"type": "string", "pattern": r'^[^"\x00-\x1f]+$'}, '"ab"', r'"\""'),
    ({"type": "string", "pattern": "^[[a]]$"}, '"a]"', '"a"'),
    ({"type": "string", "pattern": r"^[^[\]]x$"}, '"ax"', '"[x"'),
    ({"patternProperties": {"^[[a]$": {"const": 1}}, "additionalProperties": False}, '{"[": 1}', '{"[": 2}'),
    ({"patternProperties": {"^(a|b)$": {"type": "null"}}, "additionalProperties": False}, '{"a": null, "b": null}',
     '{"a": null, "a": null}'),
    ({"patternProperties": {"^a$": {"type": "null"}}, "minProperties": 1}, '{"a": null}', "{}"),
    ({"properties": {"a": {"minimum": 2}}, "patternProperties": {"^[ab]$": {"type": "integer"}}}, '{"a": 2, "b": 1}',
     '{"a": 1}'),
    ({"properties": {"x-guidance": {"const": 1}}}, '{"x-guidance": 1}', '{"x-guidance": 2}'),
    ({"patternProperties": {'^[^"]*$': {"const": 1}}, "additionalProperties": False}, '{"a": 1}', r'{"\"": 1}'),
    ({"properties": {"a": {"type": "integer"}}}, '{"a": 1}', r'{"\u0061": "x"}'),
    ({"properties": {"é": {"type": "integer"}}}, '{"é": 1}', r'{"\u00e9": "x"}'),
    ({"patternProperties": {"^b": {"type": "null"}}}, '{"b": null}', r'{"\u0062": 1}'),
    ({"type": "integer", "minimum": 2**53 - 1}, str(2**53), str(2**53 - 2)),
    ({"type": "number", "minimum": 0, "maximum": 90}, "2.111111111", "2.1111111111"),
    ({"type": ["number", "null"], "exclusiveMinimum": 0}, "0.000000001", "1" * 17),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "0.000000001", "0"),
    ({"allOf": [{"exclusiveMinimum": -1.5}, {"exclusiveMaximum": -1}]}, "-1.2", "-1"),
    ({"type": "integer", "exclusiveMinimum": 5, "minimum": 3}, "6", "5"),
    ({"type": "number", "maximum": 9}, "-0.5", "-" + "1" * 17),
    ({"type": "number", "exclusiveMaximum": 1e-12}, "0.0000000000001", "0.1"),
    ({"type": "object", "required": ["a"], "minProperties": 2}, '{"a": 1, "b": 1}', '{"a": 1}'),
    ({"properties": {"minimum": {}, "const": {"type": "number", "maximum": 1}}}, '{"const": 1}', '{"const": 2}'),
)  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), KEPT, ids=[json.dumps(each[0]) for each in KEPT])
def test_what_llguidance_breaks_is_written_otherwise(schema: Any, good: str, bad: str) -> None:
    matcher = matcher_of(schema)
    assert accepts(matcher, good)
    assert not accepts(matcher, bad)


@pytest.mark.parametrize("name", FORMATS.replace(" and", ",").split(", "))
def test_each_format_that_a_refusal_names_is_known_and_in_the_help(name: str) -> None:
    matcher = matcher_of({"type": "string", "format": name})
    if name == "date":  # by its form alone, as the help says
        assert accepts(matcher, '"2021-02-29"')
    page = Path(inspector.__file__).parent / "help" / "parts" / "grammar.md"
    assert re.search(rf"A `format` is [^.]*\b{name}\b", page.read_text("utf-8"))


INTEGER = {"type": "integer"}
CLOSED = {"additionalProperties": False}
BROKEN: tuple[tuple[Any, str, str], ...] = (
    (
        {"properties": {"score": INTEGER}, "patternProperties": {"^score$": INTEGER}, **CLOSED},
        '{"score": 1',
        "}",
    ),
    ({"properties": {"a": {}, "b": {}}, "patternProperties": {"^(a|b)$": INTEGER}, **CLOSED}, '{"b": 1', "}"),
    ({"properties": {"a": {}}, "patternProperties": {"^[ab]$": INTEGER}, **CLOSED}, '{"a": 1', ",}"),
)
"""Schemas, a beginning, and which signs of JSON may follow."""


@pytest.mark.parametrize(("schema", "begun", "signs"), BROKEN)
def test_nothing_is_begun_that_can_not_be_finished(schema: Any, begun: str, signs: str) -> None:
    matcher = matcher_of(schema)
    for byte in begun.encode():
        matcher.take(byte)
    assert {chr(byte) for byte in matcher.allowed_ids()} & {",", "}"} == {*signs}


def anyof(levels: int, width: int, names: Iterator[int]) -> dict[str, Any]:
    if not levels:
        return {"type": "object", "properties": {f"p{next(names)}": {"type": "integer"}}}
    return {"anyOf": [anyof(levels - 1, width, names) for _ in range(width)]}


def test_many_alternatives_in_alternatives_are_followed() -> None:
    matcher = matcher_of(anyof(3, 6, iter(range(999))))
    assert accepts(matcher, "{}")
    assert accepts(matcher, '{"p215": 3}')


# ---- any schema -------------------------------------------------------------------------------

EDGES = (
    0, 1, -1, 9, 10, 99, 0.5, -0.1, 0.3, 1e-7, 1e-12, 2**31, 2**53 - 1, 2**53, 2**63, 1e16, -(2**53), 1e300,
)  # fmt: skip
TEXTS = ("", "a", "ab", "é", '"', "\\", "\n", "\x00", "/", "😀", "\x7f", "a\\u0061")
WHOLE = st.sampled_from([0, 1, 2, 3, 2**16, 2**32, 2**63])
NAMES = st.sampled_from(["", "a", "b", "ab", "é", '"', "\\", "$ref", "minimum", "\x01"])
PATTERNS = st.sampled_from(
    ["^a$", "a", "^[^\"]*$", r"^[^\\]+$", "^[^a-z]$", r"[^\"\\]", "^.$", "^(a|[^\"])b$", "^[ -~]$", "^[^]a]$"]
)  # fmt: skip


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


NUMBERS = st.builds(
    lambda type_, bounds: {"type": type_, **bounds},
    st.sampled_from(["integer", "number", ["number", "null"]]),
    optional(
        minimum=st.sampled_from(EDGES),
        maximum=st.sampled_from(EDGES),
        exclusiveMinimum=st.sampled_from(EDGES),
        exclusiveMaximum=st.sampled_from(EDGES),
        multipleOf=st.sampled_from([1, 3, 0.5, 0.1, 1e-9, 2.5]),
    ),
)
STRINGS = st.builds(
    lambda bounds: {"type": "string", **bounds}, optional(minLength=WHOLE, maxLength=WHOLE, pattern=PATTERNS)
)
VALUES = st.builds(
    lambda values: {"enum": values},
    st.lists(st.sampled_from([*EDGES, *TEXTS, None, True, [1], {"a": "\x00"}]), min_size=1, max_size=3),
)


def compound(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(part, min_size=1, max_size=3)
    return st.one_of(
        optional(
            type=st.just("object"),
            properties=st.dictionaries(NAMES, part, max_size=2),
            patternProperties=st.dictionaries(PATTERNS, part, max_size=1),
            additionalProperties=st.one_of(st.booleans(), part),
            required=st.lists(NAMES, max_size=2, unique=True),
            minProperties=WHOLE,
            maxProperties=WHOLE,
        ),
        optional(
            type=st.just("array"), prefixItems=some, items=part, minItems=WHOLE, maxItems=st.integers(0, 3)
        ),
        some.map(lambda parts: {"anyOf": parts}),
        some.map(lambda parts: {"allOf": parts}),
    )


SCHEMAS = st.recursive(st.one_of(NUMBERS, STRINGS, VALUES, st.booleans()), compound, max_leaves=5)
CLOSE = [
    *(json.dumps(value) for edge in EDGES for value in (edge, edge - 1, edge + 1)),
    *(json.dumps(text) for text in TEXTS),
    *('"\\"a"', '"\\u0061"', '"\\/"', '"\\\\b"', "0.30", "1.0", "1e2", "1e-2", "0.0999999999999999999", "[]", "[1]"),
    *('{"a": 1}', '{"\\u0061": "x"}', '{"a": 1, "a": "x"}', '{"\\"": 1}', '{"\\\\": 1}', '{"\\u00e9": 1}', "{}"),
    *("null", "true", "[1, 1]", '["a"]', '{"b": 1, "ab": 2}', '{"ab": "x", "ab": "y"}'),
]  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_is_let_through_is_valid(schema: Any, seed: int) -> None:
    check(schema, seed)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_is_let_through_is_valid_in_many_more_schemas(schema: Any, seed: int) -> None:
    check(schema, seed)


def check(schema: Any, seed: int) -> None:
    try:
        matcher = matcher_of(schema)
        close = [text for text in CLOSE if accepts(matcher, text)]
    except EngineError:
        return
    chance = random.Random(seed)
    walked = [text for _ in range(6) if (text := random_text(matcher, chance)) is not None]
    for text in (text for text in close + walked if not HUGE.search(text)):
        assert is_valid(schema, text), (schema, text)

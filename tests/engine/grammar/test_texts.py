"""Random expressions and schemas on the bundled model: whatever it generates matches, by judges of their own."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.grammar import states
from engine.grammar_settings import Grammar
from engine.model.load import Loaded, load
from engine.session.node_records import stop_reached
from engine.session.run import run
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never

QUICK = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
MOST_TOKENS = 24


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(LoadSettings())


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are no hostile grammars: each trial would take a process."""
    monkeypatch.setattr(states, "try_out", lambda grammar: None)


def generated(loaded: Loaded, grammar: Grammar, temp: float, seed: int) -> tuple[str, str]:
    """What the model generates under a grammar, and why it ended."""
    session = Session(loaded, Settings(temp=temp, seed=seed, max_tokens=MOST_TOKENS, grammar=grammar))
    prompt = list(session.prefill("", session.tokens.encode("Once upon a time")))
    assert prompt
    list(run(session, never))
    end = stop_reached(session, session.node)
    at = session.tree[session.node]
    ids = session.tree.tail(session.node, at.depth - at.start)
    raw = b"".join(session.tokens.raw(token) for token in ids if token not in session.tokens.eos_ids)
    reading = session.next.grammar
    assert {"grammar": "complete", "eos": "ended"}.get(end.reason, reading.state) == reading.state
    return raw.decode("utf-8", "replace"), end.reason


# ---- regular expressions ---------------------------------------------------------------------

ATOMS = st.sampled_from(
    ["a", "b", " the", "girl", "[a-z]", "[^a-z]", "[0-9]", ".", "é", "日本", r"\.", "[ ,]", "\n"]
)
"""No classes such as `\\w`: what they hold differs between versions of Unicode, and Python has marks out of it."""
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=4).map("".join),
        st.lists(part, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds(
            lambda each, times: f"({each}){times}",
            part,
            st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,9}"]),
        ),
    ),
    max_leaves=8,
)


def check_expression(loaded: Loaded, expression: str, temp: float, seed: int) -> None:
    text, reason = generated(loaded, Grammar("regex", expression), temp, seed)
    if reason == "length":
        assert regex.fullmatch(expression, text.rstrip("�"), partial=True)
    else:
        assert re.fullmatch(expression, text)


CASES = (EXPRESSIONS, st.sampled_from([0.0, 1.0, 3.0]), st.integers(0, 2**32))


@QUICK
@given(*CASES)
def test_a_generated_text_matches_its_expression(
    loaded: Loaded, expression: str, temp: float, seed: int
) -> None:
    check_expression(loaded, expression, temp, seed)


@pytest.mark.slow
@settings(QUICK, max_examples=200)
@given(*CASES)
def test_many_generated_texts_match_their_expressions(
    loaded: Loaded, expression: str, temp: float, seed: int
) -> None:
    check_expression(loaded, expression, temp, seed)


# ---- JSON schemas ----------------------------------------------------------------------------

SHAPES: tuple[dict[str, Any], ...] = (
    # of the first pages of json-schema.org: a person, a point, a product, an array of things, an enumeration
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Person", "type": "object",
     "properties": {"firstName": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}},
    {"type": "object", "required": ["latitude", "longitude"], "properties": {
        "latitude": {"type": "number", "minimum": -90, "maximum": 90},
        "longitude": {"type": "number", "minimum": -180, "maximum": 180}}},
    {"type": "object", "required": ["productId", "tags"], "properties": {
        "productId": {"type": "integer"}, "price": {"type": "number", "exclusiveMinimum": 0},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 2}}},
    {"type": "object", "properties": {"fruits": {"type": "array", "items": {"type": "string"}},
     "vegetables": {"type": "array", "items": {"$ref": "#/$defs/veggie"}}},
     "$defs": {"veggie": {"type": "object", "required": ["veggieName", "veggieLike"],
      "properties": {"veggieName": {"type": "string"}, "veggieLike": {"type": "boolean"}}}}},
    {"enum": ["red", "amber", "green", None, 42, {"a": [1]}]},
    {"type": "string", "pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"},
    {"type": "string", "format": "date"},
    {"type": "array", "prefixItems": [{"type": "number"}, {"enum": ["Street", "Avenue"]}], "items": False},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "number", "minimum": 0, "maximum": 9}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
               {"properties": {"b": {"const": "x"}}, "required": ["b"]}]},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False},
    {"type": ["integer", "null"], "multipleOf": 5},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["value"], "properties": {
        "value": {"type": "integer", "maximum": 9, "minimum": 0}, "next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False}}},
    {},
)  # fmt: skip
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=4)
LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string", "maxLength": 4}, {"type": "number"}]),
    st.builds(lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span}, st.integers(-99, 99),
              st.integers(0, 500)),
    st.builds(lambda values: {"enum": values},
              st.lists(st.one_of(st.integers(-9, 99), NAMES), min_size=1)),
)  # fmt: skip


def _object(properties: dict[str, Any], required: bool, more: bool) -> dict[str, Any]:
    names = [*properties][: len(properties) if required else 1]
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": more}


SCHEMAS = st.one_of(
    st.sampled_from(SHAPES),
    st.recursive(
        LEAVES,
        lambda part: st.one_of(
            st.builds(_object, st.dictionaries(NAMES, part, max_size=3), st.booleans(), st.booleans()),
            st.builds(
                lambda items, most: {"type": "array", "items": items, "maxItems": most},
                part,
                st.integers(0, 3),
            ),
            st.builds(lambda parts: {"anyOf": parts}, st.lists(part, min_size=1, max_size=3)),
        ),
        max_leaves=6,
    ),
)


def check_schema(loaded: Loaded, schema: dict[str, Any], temp: float, seed: int) -> None:
    text, reason = generated(loaded, Grammar("json-schema", json.dumps(schema)), temp, seed)
    if reason != "length":
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


SCHEMA_CASES = (SCHEMAS, *CASES[1:])


@QUICK
@given(*SCHEMA_CASES)
def test_a_generated_text_is_valid_under_its_schema(
    loaded: Loaded, schema: dict[str, Any], temp: float, seed: int
) -> None:
    check_schema(loaded, schema, temp, seed)


@pytest.mark.slow
@settings(QUICK, max_examples=100)
@given(*SCHEMA_CASES)
def test_many_generated_texts_are_valid_under_their_schemas(
    loaded: Loaded, schema: dict[str, Any], temp: float, seed: int
) -> None:
    check_schema(loaded, schema, temp, seed)


@pytest.mark.slow
@pytest.mark.parametrize("schema", SHAPES, ids=json.dumps)
@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_the_shapes_of_public_schemas(loaded: Loaded, schema: dict[str, Any], temp: float) -> None:
    for seed in range(4):
        check_schema(loaded, schema, temp, seed)

"""A person's JSON schema as llguidance is given it: what it would break in silence is refused or written otherwise.

Found by trying texts against jsonschema (tests/engine/grammar/test_schemas.py): llguidance 1.9 computes bounds in
float64, lets a name that is known through as `"\\u0061"`, and a negated class of a pattern lets an escaped quote
through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from engine.errors import SettingsError

DEFAULTS = {"whitespace_pattern": " ?", "json_allowed_escapes": 'nrbtf\\"'}
"""A schema's own `x-guidance` overrides them.

Between the parts of JSON at most one space, as people and `json.dumps` write it: with as many as the standard allows
a model that likes newlines writes newlines for ever. No `\\u` in strings: to llguidance `"\\u0061"` is another name
than `"a"`, and the schema of `a` would not hold for it."""
DECIMALS = 9
"""Of a number that has a bound: with as many as the standard allows a model writes 2.1111… for ever."""
_EXACT = 2**53
"""From here on neighbouring integers are one float64."""
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value has a schema for each name."""
_VALUES = ("default", "example", "examples", "x-guidance")
"""Keywords whose value is no schema."""
_NEGATED = re.compile(r"(\\.)|\[\^([]-]?)", re.DOTALL)
_PLAIN_NEGATED = re.compile(r"\[\^[]-]?(?:\\.|(?!&&|--|~~)[^][\\])*\]", re.DOTALL)
_WITH_CONTROLS = re.compile(r"\\P|\\p\{?\^?C|\\x0|\\x\{|\\u00[01]|\[:|\[[^]]*(?:[\x00-\x1f]-|&&|--|~~)")
"""A class of which it can't be seen whether it has all control characters and neither `"` nor a backslash."""
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
"""What a string of JSON has as `\\u` and four digits alone; llguidance writes U+007F so too."""


def refusal(why: str) -> SettingsError:
    """That a grammar can't be used, and why."""
    return SettingsError(
        "grammar", f"The grammar can't be used: {why.rstrip('.')}.", "Change it, or take it off."
    )


def schema_for_llguidance(text: str) -> Any:
    """The schema of a text, which allows nothing that the text's own doesn't.

    Raises:
        SettingsError: The text is no JSON, no schema, or says what llguidance can't hold.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict | bool):
            raise refusal("a JSON schema is an object, or true or false")
        schema = _schema(value)
    except json.JSONDecodeError as error:
        raise refusal(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise refusal("it is nested too deeply") from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise refusal(str(error)) from None
    if isinstance(schema, dict):
        own = schema.get("x-guidance", {})
        schema["x-guidance"] = {**DEFAULTS, **own} if isinstance(own, dict) else own
    return schema


def _schema(value: Any) -> Any:
    """A schema, or a part of one that a `$ref` may name."""
    if isinstance(value, list):
        return [_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    _check_bounds(value)
    _check_values(value)
    _check_count(value)
    made = {key: _keyword(key, held) for key, held in value.items()}
    return _inclusive(made | _fewer_digits(value))


def _keyword(key: str, value: Any) -> Any:
    if key in ("const", "enum", *_VALUES):
        return value
    if key in _MAPS and isinstance(value, dict):
        pattern = key == "patternProperties"
        return {_pattern(name) if pattern else name: _schema(each) for name, each in value.items()}
    return _pattern(value) if key == "pattern" and isinstance(value, str) else _schema(value)


def _number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_bounds(schema: Mapping[str, Any]) -> None:
    for key in _BOUNDS:
        if _number(bound := schema.get(key)) and abs(bound) >= _EXACT:
            raise refusal(f"its {key} {bound:.6g} is beyond what llguidance can hold, ±{_EXACT - 1:,}")


def _check_values(schema: Mapping[str, Any]) -> None:
    """Refuse constants and names that llguidance would write as others."""
    names = [*schema.get("properties", ())] if isinstance(schema.get("properties"), dict) else []
    left = [names, schema.get("const"), schema.get("enum"), schema.get("required")]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and (found := _CONTROL.search(value)):
            raise refusal(
                f"it names the control character U+{ord(found[0]):04X}, which llguidance can't write"
            )
        elif isinstance(value, int | float) and abs(value) >= _EXACT:
            raise refusal(f"the number {value:.6g} in it is beyond what llguidance can hold, ±{_EXACT - 1:,}")


def _check_count(schema: Mapping[str, Any]) -> None:
    """Refuse to count names that may be the same: of those without a property of their own llguidance keeps no list."""
    least, required = schema.get("minProperties"), schema.get("required")
    sure = len({str(each) for each in required}) if isinstance(required, list) else 0
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    if _number(least) and least > sure + 1 and not closed:
        raise refusal(
            f"its minProperties {least} can't be counted where names are free: one may come twice. Name the "
            'properties and say "additionalProperties": false, or list some as required'
        )


def _fewer_digits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What bounds the digits of a number that has a bound: decimals, and the largest float64 that is exact."""
    types = schema.get("type")
    bounds = {key: schema[key] for key in _BOUNDS if _number(schema.get(key))}
    if "number" not in (types if isinstance(types, list) else [types]) or not bounds:
        return {}
    if any(key in schema for key in ("multipleOf", "const", "enum")):
        return {}
    if any(round(bound, DECIMALS) != bound for bound in bounds.values()):
        return {}
    made: dict[str, Any] = {"multipleOf": 10**-DECIMALS}
    if not any("inimum" in key for key in bounds):
        made["minimum"] = 1 - _EXACT
    if not any("aximum" in key for key in bounds):
        made["maximum"] = _EXACT - 1
    return made


def _inclusive(schema: dict[str, Any]) -> dict[str, Any]:
    """Write whole exclusive bounds as inclusive ones next to them: of `0 < x <= 0.5` llguidance allows 0."""
    for key, other, step, tighter in (
        ("exclusiveMinimum", "minimum", 10**-DECIMALS, max),
        ("exclusiveMaximum", "maximum", -(10**-DECIMALS), min),
    ):
        bound, beside = schema.get(key), schema.get(other)
        if not _number(bound) or bound != int(bound) or (moved := round(bound + step, DECIMALS)) == bound:
            continue
        schema = {name: held for name, held in schema.items() if name != key}
        schema[other] = tighter(moved, beside) if _number(beside) else moved
    return schema


def _pattern(pattern: str) -> str:
    """The pattern, without NUL in negated classes: one with all control characters lets `\\"` and `\\\\` through."""
    if _WITH_CONTROLS.search(_PLAIN_NEGATED.sub("", pattern)):
        raise refusal(
            f"its pattern {pattern[:60]} has control characters, \\P, \\p{{C}} or an operation in a class, which "
            "llguidance can't hold in JSON"
        )
    return _NEGATED.sub(lambda found: found[1] or r"[^\x00" + (f"\\{found[2]}" if found[2] else ""), pattern)

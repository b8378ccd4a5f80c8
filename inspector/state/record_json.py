"""Records as JSON objects by the fields of their classes: strict JSON, which any parser reads.

Numbers that are none (a logprob of minus infinity, a rate of cold starts alone) are null; bytes are hexadecimal. What
means nothing outside the running process (`metadata={"traced": False}`) is left out. Nothing here names a field: a
record's new field is in what is written of it by its definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

Json = dict[str, Any]


def number(value: float | None) -> float | None:
    """The value, None where it is no number that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """A value of a record as JSON can hold it."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return record_json(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def record_json(record: Any, **instead: Json) -> Json:
    """All fields of a record by name, in the order of its class.

    Args:
        record: Or another dataclass.
        instead: By the name of a field, what stands in its place; an empty object leaves the field out.

    Raises:
        TypeError: The record has no such field.
    """
    made: Json = {}
    for field in fields(record):
        if (other := instead.pop(field.name, None)) is not None:
            made |= other
        elif field.metadata.get("traced", True):
            made[field.name] = plain(getattr(record, field.name))
    if instead:
        raise TypeError(f"{type(record).__name__} has no field {', '.join(instead)}")
    return made


def pick(record: object | None, *names: str) -> Json:
    """Some fields or properties of a record by name, in this order; null for each where there is no record."""
    return {name: None if record is None else plain(getattr(record, name)) for name in names}

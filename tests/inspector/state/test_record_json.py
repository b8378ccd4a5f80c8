"""Records are written as JSON by their fields alone, and what a field is replaced by is checked."""

from __future__ import annotations

import json
import math

import pytest

from engine.protocol import Check, Ended, KVGroup, KVReading, Marked
from inspector.state.record_json import number, pick, plain, record_json


def test_all_fields_come_in_the_order_of_the_class() -> None:
    mark = Marked(3, "name", note="a note")
    assert record_json(mark) == {
        "node": 3, "name": "name", "bookmarked": False, "note": "a note", "caption": "", "tool": "",
    }  # fmt: skip
    assert list(record_json(mark)) == ["node", "name", "bookmarked", "note", "caption", "tool"]


def test_records_in_it_are_objects_and_numbers_that_json_lacks_are_null() -> None:
    group = KVGroup("plain", (0, 1), 4, None, 10, 20)
    reading = plain((group, math.inf, -math.inf, math.nan, 0.5, b"\xe2\x9c", True, None))
    assert json.loads(json.dumps(reading, allow_nan=False)) == [
        {"kind": "plain", "layers": [0, 1], "held": 4, "limit": None, "used_bytes": 10, "allocated_bytes": 20},
        None, None, None, 0.5, "e29c", True, None,
    ]  # fmt: skip
    assert (number(math.nan), number(None), number(2.0)) == (None, None, 2.0)


def test_what_means_nothing_outside_the_process_is_left_out() -> None:
    assert record_json(Ended("Choose")) == {"command": "Choose", "cancelled": False}


def test_another_object_stands_in_the_place_of_a_field() -> None:
    check = Check("lens", 0.5, 1.0, "layer 2")
    assert list(record_json(check, error={"off": 1, "by": 2}, where={})) == ["name", "off", "by", "bound"]
    with pytest.raises(TypeError, match="Check has no field wher"):
        record_json(check, wher={})


def test_some_of_nothing_are_null() -> None:
    assert pick(None, "offset", "used_bytes") == {"offset": None, "used_bytes": None}
    assert pick(Check("a", 2.0, 1.0, ""), "passed", "name") == {"passed": False, "name": "a"}
    with pytest.raises(AttributeError):
        pick(KVReading, "no_such")

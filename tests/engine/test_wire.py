"""Commands and records go to bytes and back; whatever else comes is refused in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import protocol, wire
from engine.errors import WireError
from engine.protocol import Command
from engine.settings import Settings
from tests.engine.test_child import lived
from tests.engine.test_commands import SAMPLES
from tests.engine.test_thread import Engine
from tests.engine.trace import made_records
from tests.engine.trace.made_records import made

CLASSES: dict[str, type] = {
    f"{role} {name}": cls for role in wire.KINDS for name, cls in wire.KINDS[role].items()
}
MESSAGES = st.sampled_from(sorted(CLASSES)).flatmap(lambda name: made(CLASSES[name], transient=True))
"""Any command or record."""
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def values(message: Any) -> list[tuple[str, Any]]:
    """All fields, those that a comparison leaves out too."""
    return [(field.name, getattr(message, field.name)) for field in fields(message)]


# ---- there and back ---------------------------------------------------------------------------


def test_every_command_and_record_can_be_sent() -> None:
    assert set(wire.KINDS["command"].values()) == {type(sample) for sample in SAMPLES}
    assert set(wire.KINDS["record"].values()) == set(protocol.RECORDS.values())


@pytest.mark.parametrize("name", CLASSES)
@given(data=st.data())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_of_every_class_comes_back_with_its_id(name: str, data: st.DataObject) -> None:
    message = data.draw(made(CLASSES[name], transient=True))
    sent = wire.encode(message)
    back = wire.decode(sent)
    assert type(back) is type(message)
    assert values(back) == values(message)
    assert sent.isascii()
    assert b"\n" not in sent
    assert wire.encode(back) == sent


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: command.kind)
def test_commands_that_are_not_made_up_come_back(command: Command) -> None:
    back = wire.decode(wire.encode(command))
    assert values(back) == values(command)


def test_the_form_is_the_one_that_is_written_down() -> None:
    assert wire.encode(protocol.Choose(3, 421, id=7)) == (
        b'{"wire":1,"command":"Choose","fields":{"id":7,"node":3,"token":421,"leave_grammar":false}}'
    )
    assert wire.encode(protocol.Ended("Choose", request=7)) == (
        b'{"wire":1,"record":"Ended","fields":{"request":7,"command":"Choose","cancelled":false}}'
    )
    assert wire.encode(protocol.TakeStep(id=8)) == b'{"wire":1,"command":"Step","fields":{"id":8}}'


def step() -> protocol.Step:
    return next(each for each in made_records.session() if isinstance(each, protocol.Step))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_log_probability_may_be_infinite_or_none(number: float) -> None:
    told = step()
    first, *rest = told.choice.candidates
    odd = replace(told.choice, candidates=(replace(first, logprob=number), *rest))
    back = wire.decode(wire.encode(replace(told, logprob=number, choice=odd)))
    assert repr(back.logprob) == repr(back.choice.candidates[0].logprob) == repr(number)
    assert back.choice.candidates[1:] == tuple(rest)


# ---- what can't be sent -----------------------------------------------------------------------

LONG = "x" * (4 * 2**20)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (5, "int is neither a command nor a record"),
        (Settings(), "Settings is neither a command nor a record"),
        (protocol.Measure(), "Measure is neither a command nor a record"),
        (protocol.Choose(3, -5), "Choose.token that must be a whole number from -1 up to .*, not -5"),
        (protocol.Choose(3, 2**64), "Choose.token that must be a whole number"),
        (protocol.Choose(3, "five"), "Choose.token that must be a whole number .*, not 'five'"),  # type: ignore[arg-type]
        (protocol.Run(pace=math.inf), "Run can't be sent: "),
        (protocol.Run(pace=math.nan), "Run can't be sent: "),
        (protocol.Configure(None), "Configure can't be sent: "),  # type: ignore[arg-type]
        (protocol.Prefill(None, chat=False), "Prefill can't be sent: "),  # type: ignore[arg-type]
        (protocol.Insert(1, LONG + "x"), "more than 4194304 characters"),
        (replace(step(), prob=math.nan), "Step can't be sent: "),
        (protocol.PromptOpened("", False, (), False, (LONG,) * 8), "is longer than the 32 MiB"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_what_has_no_form_is_refused_where_it_is_sent(message: Any, words: str) -> None:
    with pytest.raises(WireError, match=words):
        wire.encode(message)


def test_what_an_earlier_version_recorded_has_the_defaults_of_what_was_added_since() -> None:
    earlier = b'{"wire":1,"command":"Choose","fields":{"id":7,"node":3,"token":421}}'
    assert wire.decode(earlier, recorded=True) == protocol.Choose(3, 421)
    with pytest.raises(WireError, match=r"has no Choose.leave_grammar"):
        wire.decode(earlier)
    with pytest.raises(WireError, match=r"has no Choose.token"):
        wire.decode(b'{"wire":1,"command":"Choose","fields":{"id":7,"node":3}}', recorded=True)


# ---- hostile bytes ----------------------------------------------------------------------------

CHOOSE = {
    "wire": 1,
    "command": "Choose",
    "fields": {"id": 7, "node": 3, "token": 421, "leave_grammar": False},
}


def chosen(lacks: str = "", **fields: Any) -> dict[str, Any]:
    """The fields of `CHOOSE`, changed."""
    whole: dict[str, Any] = {"id": 7, "node": 3, "token": 421, "leave_grammar": False, **fields}
    return {name: value for name, value in whole.items() if name != lacks}


def changed(**members: Any) -> bytes:
    return json.dumps({**CHOOSE, **members}).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[]", "must be an object, not a list"),
        (b"{}", "is of version None"),
        (changed(wire=2), "is of version 2, where this program has 1"),
        (changed(wire=True), "is of version True"),
        (changed(wire=1.0), "is of version 1.0"),
        (changed(more=1), "must name one command or one record, not 'command', 'more'"),
        (changed(**{f"more{n}": n for n in range(9)}), "not 'command', 'more0', 'more1', 'more2'\\."),
        (b'{"wire":1,"fields":{}}', "must name one command or one record, not none"),
        (b'{"wire":1,"fields":{},"order":"Choose"}', "must name one command or one record, not 'order'"),
        (changed(record="Ended"), "must name one command or one record"),
        (changed(command="Choice"), "has a command that is not known: 'Choice'"),
        (changed(command="TakeStep"), "has a command that is not known: 'TakeStep'"),
        (changed(command="Measure"), "has a command that is not known: 'Measure'"),
        (changed(command="Ended"), "has a command that is not known: 'Ended'"),
        (changed(command=["Choose"]), "has a command that is not known: a list"),
        (changed(fields=[7, 3, 421]), "must be an object, not a list"),
        (changed(fields=chosen(lacks="token")), "has no Choose.token"),
        (changed(fields=chosen(lacks="id")), "has no Choose.id"),
        (changed(fields=chosen(far=1)), "has 'far', which is no field of Choose"),
        (changed(fields=chosen(node=True)), "has a Choose.node that must be a whole number"),
        (changed(fields=chosen(node=3.0)), "has a Choose.node that must be a whole number"),
        (changed(fields=chosen(node=None)), "has a Choose.node that must be a whole number"),
        (changed(fields={"id": 7, "node": 3, "token": math.nan}), "has NaN, which is not a JSON number"),
        (b'{"wire":1,"wire":1,"command":"Step","fields":{"id":7}}', "has the name 'wire' twice"),
        (b'{"wire":1,"command":"Run","fields":{"pace":1e999,"id":7}}', "has no Run"),
        (changed(fields=chosen(id=10**400)), "has a Choose.id that must be a whole number"),
        (b'{"wire":1,"command":"Step","fields":{"id":' + b"9" * 9999 + b"}}", "too many digits"),
        (b"[" * 100_000, "is nested too deep"),
        (b'{"wire":' * 100_000, "is nested too deep"),
        (b" " * (wire.LIMIT + 1), "is longer than the 32 MiB"),
        (b"[" + b"0," * 4_000_001, "has more than 4000000 values"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        wire.decode(data)


def refused_or_read(data: bytes) -> None:
    try:
        message = wire.decode(data)
    except WireError as error:
        refused = error.message
    else:
        assert type(message) in CLASSES.values()
        sent = wire.encode(message)
        assert wire.encode(wire.decode(sent)) == sent  # not the values: what is no number equals nothing
        return
    assert refused.endswith(".")
    assert len(refused) < 1000


@given(st.binary() | st.text().map(str.encode))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(data)


@given(MESSAGES, st.data())
@SLOW
def test_damaged_messages_are_refused_or_read(message: Any, data: st.DataObject) -> None:
    sent = wire.encode(message)
    at = data.draw(st.integers(0, len(sent)))
    end = data.draw(st.integers(at, min(len(sent), at + 20)))
    refused_or_read(sent[:at] + data.draw(st.binary(max_size=4)) + sent[end:])


HOSTILE = st.sampled_from([
    None, True, False, 0, -1, -2, 2**64, 10**40, 0.5, -0.0, "", "nan", "inf", "-inf", "\ud800", "x" * 5000, {}, [],
    [[]], [{}], [0, 0], [[0, 0]], [[0, 1], [99, 1]], {"hex": "zz"}, {"hex": "ff"}, {"id": [1]}, {"": []},
])  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of the objects and lists in a value, as a container and a key."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, each in inner:
        yield value, key
        if isinstance(each, dict | list):
            yield from places(each)


@given(MESSAGES, st.data())
@SLOW
def test_other_values_in_any_place_are_refused_or_read(message: Any, data: st.DataObject) -> None:
    content = json.loads(wire.encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(list(places(content))))
        match data.draw(st.sampled_from(["put", "drop", "add"])):
            case "put":
                container[key] = deepcopy(data.draw(HOSTILE))
            case "drop":
                del container[key]
            case _ if isinstance(container, dict):
                container[data.draw(st.text(max_size=5))] = deepcopy(data.draw(HOSTILE))
            case _:
                container.append(deepcopy(data.draw(HOSTILE)))
        if not content:
            break
    refused_or_read(json.dumps(content).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(CLASSES)), st.data())
@SLOW
def test_made_up_fields_are_refused_or_read(name: str, data: st.DataObject) -> None:
    role, _, kind = name.partition(" ")
    names = [field.name for field in fields(CLASSES[name])]
    members = data.draw(st.fixed_dictionaries(dict.fromkeys(names, JSON)) | JSON)
    refused_or_read(json.dumps({"wire": 1, role: kind, "fields": members}).encode())


def test_what_is_sent_of_a_session_is_what_the_engine_told() -> None:
    engine = Engine()
    for part in lived(engine):
        for record in part:
            assert values(wire.decode(wire.encode(record))) == values(record)
    assert engine.thread.close(10)

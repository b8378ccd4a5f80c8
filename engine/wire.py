"""Commands and records as bytes and back: the questions of a recorded lesson, and a recorded training.

A message is one JSON object in ASCII, without a line break:

    {"wire": 1, "command": "Choose", "fields": {"id": 7, "node": 3, "token": 421, "leave_grammar": false}}
    {"wire": 1, "record": "Ended", "fields": {"request": 7, "command": "Choose", "cancelled": false}}

A command is named by its `kind`, a record by its class. All fields are present by name, also those that a trace leaves
out; dataclasses inside them are objects of their fields, and candidates are columns as in a trace. Single values
are written and read as in a trace: where its numbers may be infinite, or none, they are named `inf`, `-inf`, `nan`.
The transport delimits and orders messages. `decode` checks the types of the values, not whether the engine can execute
the command: the engine itself refuses settings out of range.

Standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache, partial
from typing import Any, cast

from engine import protocol
from engine.errors import WireError
from engine.protocol import Candidate, Command, Record
from engine.trace import candidates
from engine.trace.schema import CANDIDATES, columns, reader, writer
from engine.trace.values import LINE_LIMIT, Misfit, Read, Write, brief, excess, parse

VERSION = 1
"""Of the envelope and of the forms of values. Fields need none: a missing or unknown one is refused by name."""
LIMIT = LINE_LIMIT
"""Bytes of a message at most. Values nested deeper than the fields of any class are refused, too."""
KINDS: Mapping[str, Mapping[str, type]] = {
    "command": protocol.COMMANDS,
    "record": protocol.RECORDS,
}
"""What can be sent, by the role that the envelope names."""
_HINT = "See that the same version of the program runs at both ends."
_dump = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(message: Command | Record) -> bytes:
    """Encode a command or a record as bytes.

    Args:
        message: Its fields hold what their types say; of a record that is not checked, since the engine made it.

    Returns:
        One message.

    Raises:
        WireError: It is neither; it is too long; it is a command that `decode` would refuse (a whole number outside -1
            to 2**64 - 1 is one cause); or it is a record with an infinite number where a trace allows none.
    """
    cls: type = type(message)
    role, name = ("command", message.kind) if isinstance(message, Command) else ("record", cls.__name__)
    if KINDS[role].get(name) is not cls:
        raise WireError(f"{cls.__name__} is neither a command nor a record.")
    try:
        content = {"wire": VERSION, role: name, "fields": _writes(cls)(message)}
        data = _dump(content).encode()
        if too_much := excess(data, LIMIT):
            raise Misfit(too_much)
        if role == "command":  # it may hold a person's input: refuse here what the other end would refuse
            _message(data)
    except (AttributeError, TypeError, ValueError, Misfit) as error:
        raise WireError(f"{name} can't be sent: {error}.") from error
    return data


def decode(data: bytes, *, recorded: bool = False) -> Command | Record:
    """Decode the bytes of `encode`.

    Args:
        data: One message, from anyone.
        recorded: Whether an earlier version may have written it: then fields that it lacks have their defaults.

    Returns:
        An equal value, with the same id.

    Raises:
        WireError: It is no such message; the error says what is wrong with it.
    """
    try:
        return _message(data, recorded)
    except Misfit as error:
        raise WireError(f"A message {error}.", _HINT) from None


def _message(data: bytes, recorded: bool = False) -> Command | Record:
    if too_much := excess(data, LIMIT):
        raise Misfit(too_much)
    envelope = _object(parse(data))
    if (version := envelope.pop("wire", None)) != VERSION or type(version) is not int:
        raise Misfit(f"is of version {brief(version)}, where this program has {VERSION}")
    fields = envelope.pop("fields", None)
    role, name = next(iter(envelope.items()), ("", None))
    if len(envelope) != 1 or role not in KINDS:
        names = ", ".join(brief(key) for key in list(envelope)[:4])
        raise Misfit(f"must name one command or one record, not {names or 'none'}")
    cls = KINDS[role].get(name) if type(name) is str else None
    if cls is None:
        raise Misfit(f"has a {role} that is not known: {brief(name)}")
    made: Command | Record = _reads(cls, recorded)(fields)
    return made


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise Misfit(f"must be an object, not {brief(value)}")
    return value


# ---- the fields of a class --------------------------------------------------------------------


@cache
def _writes(cls: type) -> Write:
    """The function from an instance to an object of its fields."""
    writers = [(field.name, writer(field.hint, _own_write)) for field in columns(cls, transient=True)]

    def write(value: Any) -> dict[str, Any]:
        fields = ((name, write_field, getattr(value, name)) for name, write_field in writers)
        return {name: write_field(field) if write_field else field for name, write_field, field in fields}

    return write


def _own_write(hint: Any) -> Write | None:
    if hint == CANDIDATES:
        return lambda value: candidates.write(value) if value else {}
    return _writes(cast(type, hint)) if is_dataclass(hint) else None


@cache
def _reads(cls: type, recorded: bool) -> Read:
    """The function from an object of its fields to an instance; of a recorded one those with defaults may be absent."""
    own, all_columns = partial(_own_read, recorded), columns(cls, transient=True)
    readers = {each.name: reader(each.hint, own) for each in all_columns}
    defaults = {each.name: each.default for each in all_columns if recorded and each.default is not MISSING}

    def read(value: Any) -> Any:
        fields = _object(value)
        if missing := readers.keys() - fields - defaults.keys():
            raise Misfit(f"has no {cls.__name__}.{min(missing)}")
        if unknown := fields.keys() - readers:
            raise Misfit(f"has {brief(min(unknown))}, which is no field of {cls.__name__}")
        given = dict(defaults)
        for name in filter(fields.__contains__, readers):
            try:
                given[name] = readers[name](fields[name])
            except Misfit as error:
                raise Misfit(f"has a {cls.__name__}.{name} that {error}") from None
        return cls(**given)

    return read


def _own_read(recorded: bool, hint: Any) -> Read | None:
    if hint == CANDIDATES:
        return _candidates
    return _reads(cast(type, hint), recorded) if is_dataclass(hint) else None


def _candidates(value: Any) -> tuple[Candidate, ...]:
    if value == {}:
        return ()
    decoded, more = candidates.read(value)
    if more:
        raise Misfit(f"must not have the column {brief(min(more))}")
    return decoded

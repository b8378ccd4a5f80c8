"""From the lines of a trace to entries: every value is checked, and what isn't needed at once is decoded later.

50,000 steps have a million candidates, a screen shows twenty. An object that waits has a subclass of its own class,
with the same slots; it holds the place of its values, and becomes an instance of its own class when one of them is
read. From then on it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from threading import RLock
from typing import Any

from engine.errors import SettingsError, TraceError
from engine.protocol import Candidate, Distribution, KVReading, PromptToken, Runs
from engine.settings import LoadSettings, Settings, check, check_load
from engine.trace import candidates
from engine.trace.lines import Entry, Fields, Header, Unknown, split, unsealed, whole
from engine.trace.schema import (
    CANDIDATES,
    KINDS,
    PARTS,
    REFERRED,
    FieldColumn,
    blank,
    classes,
    columns,
    field_names,
    reader,
)
from engine.trace.values import (
    READS,
    Misfit,
    Read,
    brief,
    parse,
    read_float,
    read_int,
    read_list,
    read_runs,
    too_deep,
)

ENDS = ("parts", "candidates")
_ABSENT = object()
"""The value, in a row, of a field that the file doesn't have."""


class Decoder:
    """Reads the lines under one header.

    Args:
        header: The header.
        report: Receives the errors of parts that are decoded later: those of lines with a right checksum and wrong
            content.
        spend: Told what is about to be built; raises `TraceError` where that is too much.
    """

    def __init__(
        self,
        header: Header,
        report: Callable[[TraceError], None],
        spend: Callable[[bytes], None] = lambda content: None,
    ) -> None:
        self._fields = header.fields
        self._report, self._spend = report, spend
        self._rows = FieldRows(header.fields)
        self._later = FieldRows(header.fields)
        """Decodes the deferred parts, at any time: `_rows` may be at another line then."""
        self._may_wait = all(
            set(header.fields.get(name, ())) <= set(own) for name, own in field_names().items()
        )
        """Fields that this version doesn't know must be collected when the line is read."""

    def entry(self, line: bytes, number: int) -> Entry:
        """The entry of a line.

        Args:
            line: Its bytes.
            number: Its place in the file, from 1.

        Raises:
            Misfit: Its content is wrong.
        """
        content = self._parsed(line, number)
        at = read_float(content.pop("at", 0.0))
        if at < 0:
            raise Misfit(f"must not have a time below 0, as {at} is")
        kinds = [name for name in content if name[:1].isupper()]
        if len(kinds) != 1:
            raise Misfit(f"must be of one kind, not {', '.join(map(brief, kinds)) or 'of none'}")
        cls = KINDS.get(kinds[0])
        if cls is not None:
            return self._entry(cls, content, at)
        if too_deep(content):
            raise Misfit("is nested too deep")
        return Entry(Unknown(kinds[0], content | self._rows.rest.all(), self._fields), at)

    def forget(self) -> None:
        """Drop everything that later lines could refer to: there are none."""
        self._rows.by_node.clear()

    def _entry(self, cls: type, content: dict[str, Any], at: float) -> Entry:
        more = self._rows.more = []
        value = self._rows.row(cls)(content.pop(cls.__name__))
        _in_range(value)
        if content:
            more.append((None, content))
        if more and too_deep([names for _, names in more]):
            raise Misfit("is nested too deep")
        return Entry(value, at, tuple(more))

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        """The line's JSON, with its end deferred where that is possible."""
        unread, sealed = unsealed(line)
        parsed = self._split(unread, number) if sealed and self._may_wait else None
        if parsed is None:
            self._spend(unread)
            parsed = whole(unread)
            parts, candidates = (list(read_list(parsed.pop(name, []))) for name in ENDS)
            self._rows.rest = Rest(number, parts, candidates, self._decode_deferred)
        return parsed

    def _split(self, content: bytes, number: int) -> dict[str, Any] | None:
        """A line's JSON without its end; None where the end is in another place, or the kind isn't known."""
        head, parts, candidates = split(content)
        self._spend(head)
        try:
            parsed = whole(head)
        except Misfit:
            return None
        if KINDS.keys().isdisjoint(parsed) or not parsed.keys().isdisjoint(ENDS):
            return None
        self._rows.rest = Rest(number, parts, candidates, self._decode_deferred)
        return parsed

    def _decode_deferred(self, rest: Rest, cls: type, place: int) -> Any:
        """A deferred part at the end of a line; a blank one, and a report, where it doesn't fit."""
        self._later.rest, self._later.more = rest, []
        try:
            return self._later.take(cls, place)
        except Misfit as error:
            message = f"Line {rest.line} {error}."
            self._report(TraceError(message, "Its content is left out.", rest.line))
            return () if cls is Candidate else blank(cls)


def _in_range(value: object) -> None:
    """Refuse settings that the program could not run with.

    Raises:
        Misfit: One is out of its range.
    """
    try:
        if isinstance(value, Settings):
            check(value)
        elif isinstance(value, LoadSettings):
            check_load(value)
    except SettingsError as error:
        raise Misfit(f"{type(value).__name__}.{error.field} is out of range: {error}") from None


# ---- rows -------------------------------------------------------------------------------------


class FieldRows:
    """Reads rows of one file's classes, by the fields of each class that its header names.

    Args:
        fields: The fields of each class, as the header names them.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._rows: dict[type, Read] = {}
        self._bare: dict[type, Read] = {}
        """Of parts: the reader of the row itself, where `_rows` has that of its place."""
        self.by_node: dict[tuple[type, int], Any] = {}
        """What lines may refer to."""
        self.more: list[tuple[object, dict[str, Any]]] = []
        """Fields that this version doesn't know, with the objects that have them."""
        self.rest: Rest
        """The end of the current line."""

    def row(self, cls: type) -> Read:
        """The reader of a class, within a row or as a line.

        Raises:
            Misfit: The header doesn't name its fields.
        """
        if cls not in self._rows:
            self._rows[cls] = self._build_row(cls)
        return self._rows[cls]

    def take(self, cls: type, place: int) -> Any:
        """A part at the end of the line, decoded.

        Raises:
            Misfit: It is missing, or doesn't fit.
        """
        if cls is Candidate:
            values, more = candidates.read(self.rest.columns(place))
            self._keep(values, more)
            return values
        value = self.rest.part(place)
        if type(value) is list:
            self.row(cls)
            value = self._bare[cls](value)
            self.rest.made(place, value)
        if not isinstance(value, cls):
            raise Misfit(f"has no {cls.__name__} in place {place} of its parts")
        return value

    def _build_row(self, cls: type) -> Read:
        listed = self._fields.get(cls.__name__)
        if listed is None:
            raise Misfit(f"has a {cls.__name__}, whose fields the header does not name")
        own = [column.name for column in columns(cls)]
        reads = [
            reader(column.hint, self._own(cls)) if column.name in listed else _default(column)
            for column in columns(cls)
        ]
        build = _builder(cls, own, reads)
        if list(listed) != own:
            build = self._mapped(listed, own, build)
        read = self._whole(cls, len(listed), build)
        if cls in PARTS:
            self._bare[cls] = read
            read = self._part(cls)
        return self._referring(cls, read) if cls in REFERRED else read

    def _mapped(self, listed: Sequence[str], own: Sequence[str], build: Read) -> Read:
        """Map a row with other fields, or in another order, to the fields of this version."""

        def read(row: list[Any]) -> Any:
            named = dict(zip(listed, row, strict=True))
            value = build([named.pop(name, _ABSENT) for name in own])
            self._keep(value, named)
            return value

        return read

    def _whole(self, cls: type, width: int, build: Read) -> Read:
        """Check a row's length; an additional object holds fields that this version doesn't know."""

        def read(row: Any) -> Any:
            if type(row) is not list:
                raise Misfit(f"must be a list of the fields of {cls.__name__}, not {brief(row)}")
            if len(row) == width:
                return build(row)
            if len(row) != width + 1 or type(row[-1]) is not dict:
                raise Misfit(f"must have the {width} fields of {cls.__name__}, not {len(row)}")
            more = row.pop()
            value = build(row)
            self._keep(value, more)
            return value

        return read

    def _part(self, cls: type) -> Read:
        """Read the place of a part, and the fields that are needed before it is decoded."""
        hints = {column.name: column.hint for column in columns(cls)}
        reads = [READS[hints[name]] for name in PARTS[cls]]
        width = 1 + len(reads)

        def read(value: Any) -> Any:
            items = read_list(value, width)
            place = read_int(items[0])
            if not self.rest.waits:
                return self.take(cls, place)
            present = [read(item) for read, item in zip(reads, items[1:], strict=True)] if reads else ()
            return _waiting(self.rest, cls, place, present)

        return read

    def _referring(self, cls: type, read: Read) -> Read:
        """Replace a node's number by the instance of an earlier line."""
        by_node, name = self.by_node, cls.__name__
        waits = cls in PARTS

        def refer(value: Any) -> Any:
            if type(value) is int:
                if (cls, value) not in by_node:
                    raise Misfit(f"refers to the {name} of node {value}, which no line before it has")
                return by_node[cls, value]
            made = read(value)
            by_node[cls, read_int(value[1]) if waits else made.node] = made
            return made

        return refer

    def _own(self, cls: type) -> Callable[[Any], Read | None]:
        """The readers, in the fields of a class, of types for which traces have a special form."""

        def own(hint: Any) -> Read | None:
            if hint == CANDIDATES:
                return self._candidates(cls in _WITHOUT_CANDIDATES)
            if hint == Runs:
                return read_runs
            return self.row(hint) if hint in classes().values() else None

        return own

    def _candidates(self, may_wait: bool) -> Read:
        def read(place: Any) -> Any:
            if place is None:
                return ()
            if may_wait and self.rest.waits:
                return Held(self.rest, Candidate, read_int(place))
            return self.take(Candidate, place)

        return read

    def _keep(self, owner: object, names: dict[str, Any]) -> None:
        if names:
            self.more.append((owner, names))


def _default(column: FieldColumn) -> Read:
    """The reader of a field that the file doesn't have: its default, if it has one."""

    def read(_: Any) -> Any:
        if column.default is MISSING:
            raise Misfit("is not in the header's fields, and there is no value to take for it")
        return column.default

    return read


def _builder(cls: type, names: Sequence[str], reads: Sequence[Read]) -> Read:
    """The function from a row, in the order of a class's own fields, to an instance.

    Args:
        cls: The class.
        names: Of its fields.
        reads: The readers of their values; may raise `Misfit`.
    """
    without = _WITHOUT_CANDIDATES.get(cls)

    def build(row: Sequence[Any]) -> Any:
        values: list[Any] = []
        add = values.append
        try:
            for read, value in zip(reads, row, strict=True):
                add(read(value))
        except Misfit as error:
            raise Misfit(f"{cls.__name__}.{names[len(values)]} {error}") from None
        if without is not None and Held in map(type, values):
            return without(*values)
        return cls(*values)

    return build


# ---- what is decoded later --------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Rest:
    """The parts and candidates of one line: what its rows refer to by place."""

    line: int
    parts: bytes | list[Any]
    """JSON until a part of it is read."""
    candidates: bytes | list[Any]
    decode: Callable[[Rest, type, int], Any]
    """Decodes the value in a place. It never raises, since it is called while a screen draws."""
    waits: bool = False
    """True if it is to be decoded later."""

    def __post_init__(self) -> None:
        self.waits = type(self.parts) is bytes

    def part(self, place: int) -> Any:
        """A row, or the instance made of it."""
        self.parts = _list(self.parts)
        return _in(self.parts, place, "part")

    def made(self, place: int, value: Any) -> None:
        """Replace a row by the instance made of it."""
        assert isinstance(self.parts, list)
        self.parts[place] = value

    def columns(self, place: int) -> Any:
        """Candidates as columns."""
        self.candidates = _list(self.candidates)
        return _in(self.candidates, place, "candidates")

    def all(self) -> dict[str, Any]:
        """Both, undecoded, of a line that was read at once."""
        ends = {"parts": self.parts, "candidates": self.candidates}
        return {name: values for name, values in ends.items() if values}


def _list(data: bytes | list[Any]) -> list[Any]:
    if isinstance(data, bytes):
        return list(read_list(parse(data))) if data else []
    return data


def _in(values: list[Any], place: int, name: str) -> Any:
    if type(place) is int and 0 <= place < len(values):
        return values[place]
    raise Misfit(f"has no {name} in place {brief(place)}")


@dataclass(slots=True, eq=False)
class Held:
    """The value of a slot that is decoded later."""

    rest: Rest
    cls: type
    place: int

    def take(self) -> Any:
        """The value, decoded."""
        return self.rest.decode(self.rest, self.cls, self.place)


_LOCK = RLock()
"""One thread at a time turns a waiting object into another: a trace may be saved while a screen draws it."""
_FILL: dict[type, Callable[[Any], None]] = {}
"""By waiting class, the function that decodes an instance in place, at least in part."""


def settle(value: Any) -> None:
    """Decode all waiting fields of an object."""
    while type(value) in _FILL:
        _fill(value)


def _fill(value: Any) -> None:
    with _LOCK:
        decode = _FILL.get(type(value))
        if decode is not None:
            decode(value)


def _become(value: Any, cls: type) -> None:
    object.__setattr__(value, "__class__", cls)


def _whole_later(cls: type, hidden: str) -> type:
    """A class like `cls` whose instances hold `Held` in one slot, and in others at most the fields of `PARTS`."""
    slot: Any = getattr(cls, hidden)
    slots: list[Any] = [
        getattr(cls, column.name) for column in columns(cls)
    ]  # they set frozen instances, too

    def decode(self: Any) -> None:
        made = slot.__get__(self).take()
        for field in slots:
            field.__set__(self, field.__get__(made))
        _become(self, type(made))

    def missing(self: Any, name: str) -> Any:
        _fill(self)
        return getattr(self, name)

    def get(self: Any) -> Any:
        _fill(self)
        return getattr(self, hidden)

    return _like(cls, decode, {hidden: property(get, slot.__set__), "__getattr__": missing})


def _without_candidates(cls: type) -> type:
    """A class like `cls` whose instances have `Held` instead of their candidates."""
    slot: Any = cls.candidates  # type: ignore[attr-defined]

    def decode(self: Any) -> None:
        held = slot.__get__(self)
        if type(held) is Held:
            slot.__set__(self, held.take())
        _become(self, cls)

    def get(self: Any) -> Any:
        _fill(self)
        return slot.__get__(self)

    return _like(cls, decode, {"candidates": property(get, slot.__set__)})


def _like(cls: type, decode: Callable[[Any], None], members: dict[str, Any]) -> type:
    """A class with the name, the fields and the comparison of another one."""

    def same(self: Any, other: object) -> Any:
        settle(self)
        settle(other)
        return cls.__eq__(self, other)  # type: ignore[call-arg]

    def hashed(self: Any) -> int:
        settle(self)
        return hash(self)

    made = type(cls.__name__, (cls,), {"__slots__": (), "__eq__": same, "__hash__": hashed, **members})
    _FILL[made] = decode
    return made


_WITHOUT_CANDIDATES: Mapping[type, type] = {
    cls: _without_candidates(cls) for cls in (Distribution, PromptToken)
}
_HIDDEN = {Distribution: "candidates", KVReading: "groups"}
"""The field of each part whose slot holds `Held`."""
_LATER = {
    cls: (_whole_later(cls, hidden), [getattr(cls, name).__set__ for name in (hidden, *PARTS[cls])])
    for cls, hidden in _HIDDEN.items()
}
"""By class of a part: the class of those that wait, and what sets `Held` and the fields that are known before."""


def _waiting(rest: Rest, cls: type, place: int, present: Sequence[Any]) -> Any:
    """A part that is decoded when one of its other fields is read.

    Args:
        rest: Where it waits.
        cls: Its class.
        place: Its place there.
        present: Values of the fields in `PARTS`.
    """
    later, put = _LATER[cls]
    made: Any = object.__new__(later)
    for set_field, value in zip(put, (Held(rest, cls, place), *present), strict=True):
        set_field(made, value)
    return made

"""Readers of rows, by the fields of each class that the file's header names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import SettingsError
from engine.protocol import Candidate, KVGroup
from engine.settings import LoadSettings, Settings, check, check_load
from engine.trace import candidates, layers
from engine.trace.encode import PARTS, REFERRED
from engine.trace.entry import Fields
from engine.trace.forms import SCALARS, Read, reader
from engine.trace.lazy import PRESENT, WITHOUT_CANDIDATES, waiting, waiting_candidates
from engine.trace.lines import Rest
from engine.trace.rows import ABSENT, absent, builder
from engine.trace.shapes import FieldColumn, Misfit, classes, columns
from engine.trace.values import brief, read_int, read_list


class FieldRows:
    """Reads rows of one file's classes.

    Args:
        fields: The fields of each class, as the header names them.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._rows: dict[type, Read] = {}
        self._bare: dict[type, Read] = {}
        """Of parts: the reader of the row itself, where `_rows` has that of its place."""
        self._by_node: dict[tuple[type, int], Any] = {}
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

    def forget(self) -> None:
        """Drop everything that lines may refer to."""
        self._by_node.clear()

    # ---- rows -------------------------------------------------------------------------------

    def _build_row(self, cls: type) -> Read:
        listed = self._fields.get(cls.__name__)
        if listed is None:
            raise Misfit(f"has a {cls.__name__}, whose fields the header does not name")
        own = [column.name for column in columns(cls)]
        reads = [
            self._reader(column, cls) if column.name in listed else absent(column) for column in columns(cls)
        ]
        build = builder(cls, reads)
        read = self._whole(
            cls, len(listed), build if list(listed) == own else self._mapped(listed, own, build)
        )
        if cls in PARTS:
            self._bare[cls] = read
            read = self._part(cls)
        return self._referring(cls, read) if cls in REFERRED else read

    def _mapped(self, listed: Sequence[str], own: Sequence[str], build: Read) -> Read:
        """Map a row with other fields, or in another order, to the fields of this version."""

        def read(row: list[Any]) -> Any:
            named = dict(zip(listed, row, strict=True))
            value = build([named.pop(name, ABSENT) for name in own])
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
        reads = [SCALARS[hints[name]] for name in PRESENT.get(cls, ())]
        width = 1 + len(reads)

        def read(value: Any) -> Any:
            items = read_list(value, width)
            place = read_int(items[0])
            if not self.rest.waits:
                return self.take(cls, place)
            present = [read(item) for read, item in zip(reads, items[1:], strict=True)] if reads else ()
            return waiting(self.rest, cls, place, present)

        return read

    def _referring(self, cls: type, read: Read) -> Read:
        """Replace a node's number by the instance of an earlier line."""
        by_node, name = self._by_node, cls.__name__
        waits = cls in PARTS

        def refer(value: Any) -> Any:
            if type(value) is int:
                if (cls, value) not in by_node:
                    raise Misfit(f"refers to the {name} of node {value}, which no line before it tells")
                return by_node[cls, value]
            made = read(value)
            by_node[cls, read_int(value[1]) if waits else made.node] = made
            return made

        return refer

    def _keep(self, owner: object, names: dict[str, Any]) -> None:
        if names:
            self.more.append((owner, names))

    # ---- fields -----------------------------------------------------------------------------

    def _reader(self, column: FieldColumn, cls: type) -> Read:
        if (cls, column.name) == (KVGroup, "layers"):
            return layers.read

        def own(hint: Any) -> Read | None:
            """The reader of a type for which traces have a special form, else None."""
            if hint == tuple[Candidate, ...]:
                return self._candidates(cls in WITHOUT_CANDIDATES)
            return self.row(hint) if hint in classes().values() else None

        return reader(column.hint, column.endless, own)

    def _candidates(self, may_wait: bool) -> Read:
        def read(place: Any) -> Any:
            if place is None:
                return ()
            if may_wait and self.rest.waits:
                return waiting_candidates(self.rest, read_int(place))
            return self.take(Candidate, place)

        return read


def in_range(value: object) -> None:
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

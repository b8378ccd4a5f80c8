"""One line of a trace as bytes: its checksum, and its end, which need not be decoded before it is shown."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.trace.parse import parse
from engine.trace.shapes import Misfit
from engine.trace.values import brief, read_list

_CRC = b',"crc":"'
_PARTS, _CANDIDATES = b',"parts":', b',"candidates":'


def sealed(data: bytes) -> bytes:
    """A line with its checksum.

    Args:
        data: A JSON object without its last brace.
    """
    return b'%b,"crc":"%08x"}\n' % (data, zlib.crc32(data))


def unsealed(line: bytes) -> tuple[bytes, bool]:
    """A line without its checksum and last brace, and whether it had a checksum.

    Raises:
        Misfit: The checksum differs, or the last brace is missing.
    """
    line = line.rstrip(b"\r\n")
    if not line.endswith(b"}"):
        raise Misfit("is not JSON: it has no closing brace")
    if line[-18:-10] != _CRC:
        return line[:-1], False
    if line[-10:] != b'%08x"}' % zlib.crc32(line[:-18]):
        raise Misfit("was damaged: its checksum is another one")
    return line[:-18], True


@dataclass(slots=True, eq=False)
class Rest:
    """The parts and candidates of one line: what its rows refer to by place."""

    line: int
    parts: bytes | list[Any]
    """JSON until a part of it is read."""
    candidates: bytes | list[Any]
    decode: Callable[[Rest, type, int], Any]
    """What `take` does."""

    waits: bool = False
    """Whether it is to be decoded later."""

    def __post_init__(self) -> None:
        self.waits = type(self.parts) is bytes

    def take(self, cls: type, place: int) -> Any:
        """The value in a place, decoded."""
        return self.decode(self, cls, place)

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


def split(content: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """A line without its end, the JSON of its parts and that of its candidates, unread, empty if none.

    Args:
        content: As `unsealed` gave it.

    Raises:
        Misfit: They are not at its end.
    """
    begin, end = _ends(content)
    head = whole(content[:begin])
    return head, content[begin + len(_PARTS) : end], content[end + len(_CANDIDATES) :]


def first(content: bytes) -> bytes:
    """What of a line is decoded at once, where its end can wait."""
    return content[: _ends(content)[0]]


def _ends(content: bytes) -> tuple[int, int]:
    """Where the parts and where the candidates of a line begin; its length where there are none."""
    at = content.find(_CANDIDATES)
    end = at if at >= 0 else len(content)
    begin = content.find(_PARTS, 0, end)
    return (begin if begin >= 0 else end), end


def whole(content: bytes) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        Misfit: It isn't one.
    """
    value = parse(content + b"}")
    if type(value) is not dict:
        raise Misfit(f"must be an object, not {brief(value)}")
    return value

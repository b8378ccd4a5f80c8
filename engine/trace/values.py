"""Single values in a trace: their form as JSON, and what the reader accepts."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from engine.protocol import Packed
from engine.trace.bounds import INSIDE_LIMIT
from engine.trace.numbers import NAMES
from engine.trace.shapes import INT_LIMIT, TEXT_LIMIT, Misfit


def brief(value: Any) -> str:
    """A value for a message, shortened."""
    if not isinstance(value, bool | float | int | str | None):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 44 else text[:41] + "..."


# ---- bytes and text ---------------------------------------------------------------------------


def write_bytes(raw: bytes) -> Any:
    """Bytes as text where they are UTF-8, else as `{"hex": ...}`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


def read_bytes(value: Any) -> bytes:
    """What `write_bytes` wrote.

    Raises:
        Misfit: It is neither form.
    """
    try:
        if type(value) is str:
            return value.encode()
        return _unhex(value)
    except ValueError:
        raise Misfit(f'must be text or {{"hex": "..."}}, not {brief(value)}') from None


def write_text(text: str) -> Any:
    """Text unchanged; with halves of surrogate pairs, which UTF-8 can't encode, as `{"hex": ...}`.

    Raises:
        ValueError: It is longer than `TEXT_LIMIT`.
    """
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"a text has more than {TEXT_LIMIT} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"hex": text.encode("utf-8", "surrogatepass").hex()}
    return text


def read_text(value: Any) -> str:
    """What `write_text` wrote.

    Raises:
        Misfit: It is neither form, or too long.
    """
    if type(value) is not str:
        try:
            value = _unhex(value).decode("utf-8", "surrogatepass")
        except ValueError:
            raise Misfit(f"must be text, not {brief(value)}") from None
    if len(value) > TEXT_LIMIT:
        raise Misfit(f"has {len(value)} characters; at most {TEXT_LIMIT} are read")
    return str(value)


def _unhex(value: Any) -> bytes:
    if type(value) is dict and value.keys() == {"hex"} and type(value["hex"]) is str:
        return bytes.fromhex(value["hex"])
    raise ValueError


def write_packed(packed: bytes) -> str:
    """Compressed bytes as base64: as hexadecimal digits they would take half as much again."""
    return b64encode(packed).decode()


def read_packed(value: Any) -> Packed:
    """What `write_packed` wrote.

    Raises:
        Misfit: It is no base64, or of more than `INSIDE_LIMIT` bytes.
    """
    if type(value) is not str:
        raise Misfit(f"must be base64, not {brief(value)}")
    if len(value) > 4 * INSIDE_LIMIT // 3 + 4:
        raise Misfit(f"has more than {INSIDE_LIMIT} packed bytes")
    try:
        return Packed(b64decode(value, validate=True))
    except ValueError:
        raise Misfit(f"must be base64, not {brief(value)}") from None


# ---- numbers ----------------------------------------------------------------------------------


def read_int(value: Any) -> int:
    """A whole number in range.

    Raises:
        Misfit: It isn't one.
    """
    if type(value) is int and -1 <= value < INT_LIMIT:
        return value
    raise Misfit(f"must be a whole number from -1 up to 2**64 - 1, not {brief(value)}")


def read_float(value: Any) -> float:
    """A finite number.

    Raises:
        Misfit: It isn't one.
    """
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and abs(value) < INT_LIMIT:
        return float(value)
    raise Misfit(f"must be a finite number, not {brief(value)}")


def read_endless(value: Any) -> float:
    """A number, or the name of one that JSON doesn't have.

    Raises:
        Misfit: It is neither.
    """
    number = NAMES.get(value) if type(value) is str else None
    return read_float(value) if number is None else number


def read_bool(value: Any) -> bool:
    """True or false.

    Raises:
        Misfit: It is neither.
    """
    if type(value) is bool:
        return value
    raise Misfit(f"must be true or false, not {brief(value)}")


def read_list(value: Any, length: int | None = None) -> Sequence[Any]:
    """A list, of the given length if any.

    Raises:
        Misfit: It isn't one, or has another length.
    """
    if type(value) is not list:
        raise Misfit(f"must be a list, not {brief(value)}")
    if length is not None and len(value) != length:
        raise Misfit(f"must have {length} items, not {len(value)}")
    return value

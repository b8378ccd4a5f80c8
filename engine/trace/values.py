"""Single values of a trace and of the wire: strict JSON within bounds, the form of each type, and what is refused.

The writer keeps to what the reader accepts.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from engine.protocol import Endless, Packed, Signed

# ---- bounds -----------------------------------------------------------------------------------

MIB = 2**20
LINE_LIMIT = 32 * MIB
"""Bytes of a line at most."""
FIRST_LIMIT = MIB
"""Bytes of a header line at most."""
VALUES_LIMIT = 4_000_000
"""Values of one line at most: in memory each takes many times its bytes in the file."""
TOTAL_LIMIT = 512 * MIB
"""Bytes of a trace at most, uncompressed: about 350,000 steps with 20 candidates."""
LINES_LIMIT = 1_000_000
INSIDE_LIMIT = 2 * MIB
"""Bytes of packed numbers of a view of the model's inside at most; in the file they take twice as many.

The bundled model's attention takes 64 KiB at 512 tokens, one of 32 layers with 32 heads 2 MiB at 1,024.
"""
ROWS_LIMIT = 256 * MIB
"""Bytes of packed rows of logits that the engine hands out by itself, of one model: two thirds of a trace's, in base64.

The bundled model's take 6 to 14 KiB a step, those of one with 150,000 tokens in bfloat16 about 210 KiB: 1,200 steps.
"""
BUILT_LIMIT = 1024 * MIB
"""Bytes of memory at most for what is built of a trace when it is read: about 330,000 steps. See `built`."""
INT_LIMIT = 2**64
"""Whole numbers are from -1 to below this: a seed may be one less."""
TEXT_LIMIT = 4 * 2**20
"""Characters of one text at most."""
DEPTH_LIMIT = 64
"""Lists and objects in one another at most, in what this version doesn't know and keeps."""
RATIO_LIMIT = 100
"""Bytes at most that one compressed byte may stand for, beyond the first `RATIO_FREE`; sessions have 3 to 10."""
RATIO_FREE = 4 * MIB


class Misfit(Exception):
    """A value doesn't fit its field; the message lacks the line, which only the file's reader knows."""


def built(content: bytes) -> int:
    """Bytes of memory that the values of some JSON take, estimated from above without parsing it.

    CPython 3.11 takes 56 to 88 bytes for a small list, 64 to 232 for a small dict, 24 to 32 for a number and 8 for the
    place of each, and up to four bytes a character where one of a text is outside ASCII.
    """
    text = len(content) * (1 if content.isascii() else 4)
    return text + 240 * content.count(b"{") + 80 * content.count(b"[") + 40 * content.count(b",")


def excess(line: bytes, limit: int = LINE_LIMIT) -> str:
    """Which limit a line exceeds, in words; empty if none."""
    if len(line) > limit:
        return f"is longer than the {limit // MIB} MiB that a line may have"
    if len(line) > MIB and sum(map(line.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        return f"has more than {VALUES_LIMIT} values"
    return ""


def too_long(size: int, lines: int, built: int = 0) -> str:
    """Which limit a trace of some bytes, lines and bytes in memory exceeds, in words; empty if none."""
    if size > TOTAL_LIMIT or lines > LINES_LIMIT:
        return f"is too long: a trace has at most {TOTAL_LIMIT // MIB} MiB and {LINES_LIMIT} lines"
    if built > BUILT_LIMIT:
        return f"is too large: what it holds takes more than {BUILT_LIMIT // MIB} MiB of memory"
    return ""


def too_dense(size: int, packed: int) -> str:
    """The refusal of compressed bytes that stand for more than a session's can, in words; empty if they don't.

    Args:
        size: Bytes so far, uncompressed.
        packed: Bytes that were read for them.
    """
    if size <= max(RATIO_FREE, RATIO_LIMIT * packed):
        return ""
    return f"is not a session: its bytes expand to more than {RATIO_LIMIT} times as many"


def too_deep(value: object) -> bool:
    """True if lists and objects stand in one another more than `DEPTH_LIMIT` deep."""
    level: list[object] = [value]
    for _ in range(DEPTH_LIMIT + 1):
        level = [inner for each in level for inner in _within(each)]
        if not level:
            return False
    return True


def _within(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# ---- JSON -------------------------------------------------------------------------------------


def parse(data: bytes) -> Any:
    """The value of a line.

    Raises:
        Misfit: It isn't JSON, has a name twice, `NaN` or `Infinity`, a number of thousands of digits, or is nested
            too deep.
    """
    try:
        text = data.decode()
        value, end = _DECODER.raw_decode(text)
    except UnicodeDecodeError as error:
        raise Misfit(f"is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"is not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise Misfit("is nested too deep") from None
    except ValueError:  # the interpreter's own bound on the digits of a whole number
        raise Misfit("has a number of too many digits") from None
    if end != len(text):
        raise Misfit(f"has something after its end (at character {end + 1})")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Misfit(f"has the name {twice[:40]!r} twice")
    return named


def _refused(name: str) -> NoReturn:
    raise Misfit(f"has {name}, which is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refused)


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

NAMES = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""How numbers that JSON hasn't are written."""


def named(value: float) -> float | str:
    """A number, or its name where JSON has none for it."""
    if math.isfinite(value):
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def read_int(value: Any) -> int:
    """A whole number in range.

    Raises:
        Misfit: It isn't one.
    """
    if type(value) is int and -1 <= value < INT_LIMIT:
        return value
    raise Misfit(f"must be a whole number from -1 up to 2**64 - 1, not {brief(value)}")


def read_signed(value: Any) -> int:
    """A whole number, which may be below 0.

    Raises:
        Misfit: It isn't one.
    """
    if type(value) is int and abs(value) < INT_LIMIT:
        return value
    raise Misfit(f"must be a whole number between -2**64 and 2**64, not {brief(value)}")


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


# ---- layers ----------------------------------------------------------------------------------

LAYERS_LIMIT = 10_000
"""Layers at most."""
_RUNS = r"(\d{1,5}(-\d{1,5})?( \d{1,5}(-\d{1,5})?)*)?"


def write_runs(layers: tuple[int, ...]) -> str:
    """Numbers as runs, in their order."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def read_runs(value: Any) -> tuple[int, ...]:
    """What `write` wrote.

    Raises:
        Misfit: It isn't runs of layers, or has too many layers.
    """
    if type(value) is not str or not re.fullmatch(_RUNS, value):
        raise Misfit(f"must be runs of layers such as 0-4 6, not {brief(value)}")
    numbers: list[int] = []
    for run in value.split():
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
        if len(numbers) > LAYERS_LIMIT:
            raise Misfit(f"has more than {LAYERS_LIMIT} layers")
    return tuple(numbers)


# ---- by type ----------------------------------------------------------------------------------

Read = Callable[[Any], Any]
Write = Callable[[Any], Any]
READS: Mapping[Any, Read] = {
    int: read_int,
    Signed: read_signed,
    float: read_float,
    Endless: read_endless,
    str: read_text,
    bytes: read_bytes,
    Packed: read_packed,
    bool: read_bool,
}
WRITES: Mapping[Any, Write] = {
    str: write_text,
    bytes: write_bytes,
    Packed: write_packed,
    Endless: named,
}
"""Types whose values are not JSON already."""

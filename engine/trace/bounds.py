"""Limits on the size of a trace and its lines: the writer keeps to what the reader accepts."""

from __future__ import annotations

from collections.abc import Iterable

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
DEPTH_LIMIT = 64
"""Lists and objects in one another at most, in what this version doesn't know and keeps."""
RATIO_LIMIT = 100
"""Bytes at most that one compressed byte may stand for, beyond the first `RATIO_FREE`; sessions have 3 to 10."""
RATIO_FREE = 4 * MIB


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
    """Whether compressed bytes stand for more than a session's can, in words; empty if not.

    Args:
        size: Bytes so far, uncompressed.
        packed: Bytes that were read for them.
    """
    if size <= max(RATIO_FREE, RATIO_LIMIT * packed):
        return ""
    return f"is no session: its bytes stand for more than {RATIO_LIMIT} times as many"


def too_deep(value: object) -> bool:
    """Whether lists and objects stand in one another more than `DEPTH_LIMIT` deep."""
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

"""Limits on the size of a trace and its lines: the writer keeps to what the reader accepts."""

from __future__ import annotations

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


def excess(line: bytes, limit: int = LINE_LIMIT) -> str:
    """Which limit a line exceeds, in words; empty if none."""
    if len(line) > limit:
        return f"is longer than the {limit // MIB} MiB that a line may have"
    if len(line) > MIB and sum(map(line.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        return f"has more than {VALUES_LIMIT} values"
    return ""


def too_long(size: int, lines: int) -> str:
    """Which limit a trace of some bytes and lines exceeds, in words; empty if none."""
    if size <= TOTAL_LIMIT and lines <= LINES_LIMIT:
        return ""
    return f"is too long: a trace has at most {TOTAL_LIMIT // MIB} MiB and {LINES_LIMIT} lines"

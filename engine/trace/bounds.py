"""How large a trace and its lines may be: what is written keeps to what will be read."""

from __future__ import annotations

MIB = 2**20
LINE_LIMIT = 32 * MIB
"""Bytes of a line at most."""
FIRST_LIMIT = MIB
"""Bytes of a header line at most."""
VALUES_LIMIT = 4_000_000
"""Values of one line at most: in memory each takes many times its bytes in the file."""
TOTAL_LIMIT = 512 * MIB
"""Bytes of a trace at most, uncompressed: some 350,000 steps with 20 candidates."""
LINES_LIMIT = 1_000_000


def excess(line: bytes, limit: int = LINE_LIMIT) -> str:
    """What is too much about a line, empty where nothing is."""
    if len(line) > limit:
        return f"is longer than the {limit // MIB} MiB that a line may have"
    if len(line) > MIB and sum(map(line.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        return f"has more than {VALUES_LIMIT} values"
    return ""


def too_long(size: int, lines: int) -> str:
    """What is too much about a trace of so many bytes and lines, empty where nothing is."""
    if size <= TOTAL_LIMIT and lines <= LINES_LIMIT:
        return ""
    return f"is too long: a trace has at most {TOTAL_LIMIT // MIB} MiB and {LINES_LIMIT} lines"

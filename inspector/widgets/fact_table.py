"""Names and sentences in two columns: the sentences wrapped, the names once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style

from inspector.display import visible
from inspector.widgets.canvas import Row, wrapped

NAME = 13
"""Cells of the names."""
_THOUSANDS = re.compile("(?<=[0-9])\u2009(?=[0-9]{3})")
"""The thin space of our own numbers: in a foreign text it would be shown as what it is."""


def fact_rows(facts: Iterable[tuple[str, str]], width: int, name: Style, text: Style) -> list[Row]:
    """Each fact on as many lines as it needs.

    Args:
        facts: Names and sentences.
        width: Cells of a line.
        name: Ink of the names.
        text: Ink of the sentences.
    """
    rows: list[Row] = []
    for label, sentence in facts:
        for n, line in enumerate(wrapped(_printable(sentence), max(10, width - NAME))):
            rows.append([Segment((label if n == 0 else "").ljust(NAME), name), Segment(line, text)])
    return rows


def _printable(sentence: str) -> str:
    """A sentence in which a name or a message may be foreign, its numbers as they are."""
    return "\u2009".join(map(visible, _THOUSANDS.split(sentence)))

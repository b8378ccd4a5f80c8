"""Rows of segments without Textual: wrapped sentences, and styles of a color scale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from inspector import scales
from inspector.display import visible

Row = list[Segment]
FACT_NAME = 13
"""Cells of the names of facts."""
_BREAK = re.compile(r"(?<!\d) | (?!(?:%|ms|s|min|B|KiB|MiB|GiB|TiB|bits?|tok/s)(?!\w))")
"""A blank at which a line may be broken."""
_UNDERLINED = 4
"""The step of the color scale from which a token is also underlined, so that color is not the only sign."""
_COLORLESS = (Style(), Style(italic=True), Style(underline=True), Style(underline=True, italic=True),
              Style(underline=True, bold=True), Style(underline=True, bold=True, italic=True))  # fmt: skip
"""Styles of the scale's steps on a terminal without enough colors."""


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` cells, broken at blanks, but not within a longer word, or between a number and
    its unit."""
    lines = [""]
    for word in _BREAK.split(text):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def columns_that_fit(cells: Mapping[str, int], gives_way: Iterable[str], room: int) -> tuple[str, ...]:
    """The columns of a table that fit together.

    Args:
        cells: Cells of each column, by its name.
        gives_way: Names of columns that are left out one by one, in this order.
        room: Cells for all columns.
    """
    kept = dict(cells)
    for name in gives_way:
        if sum(kept.values()) <= room:
            break
        del kept[name]
    return tuple(kept)


def fact_rows(
    facts: Iterable[tuple[str, str]], width: int, name: Style, text: Style, height: int | None = None
) -> list[Row]:
    """Each fact on as many lines as it needs.

    Args:
        facts: Names and sentences.
        width: Cells of a line.
        name: Style of the names.
        text: Style of the sentences.
        height: Maximum rows: later facts than the first are left out if they don't fit as a whole. None for no limit.
    """
    rows: list[Row] = []
    for label, sentence in facts:
        lines = wrapped(visible(sentence), max(10, width - FACT_NAME))
        if height is not None and rows and len(rows) + len(lines) > height:
            continue
        for n, line in enumerate(lines):
            rows.append([Segment((label if n == 0 else "").ljust(FACT_NAME), name), Segment(line, text)])
    return rows


@lru_cache(maxsize=1024)  # there are few steps, and every row of a panel needs their styles
def rgb_style(ink: scales.Rgb | None = None, ground: scales.Rgb | None = None) -> Style:
    """The style with an RGB color for the text, for the background, or for both."""
    return Style(
        color=Color.from_rgb(*ink) if ink else None, bgcolor=Color.from_rgb(*ground) if ground else None
    )


@lru_cache(maxsize=64)  # there are few steps, and every token needs one's style
def heat_style(step: int, dark: bool, colourful: bool, signed: bool = False) -> Style:
    """The style of a step of the color scale, 0 (none) to 5, or -5 to 5 for signed values; without colors, negative
    steps are dim."""
    if not colourful or step == 0:
        return _COLORLESS[step] if step >= 0 else _COLORLESS[-step] + Style(dim=True)
    ink, ground = scales.opposed_heat(step, dark) if signed else scales.HEAT[step, dark]
    return rgb_style(ink, ground) + Style(underline=abs(step) >= _UNDERLINED or None)

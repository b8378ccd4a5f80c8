"""The page of keys as one widget: the toolkit's Markdown has one for each of 250 cells, and took twice as long."""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

COLUMN = 17
"""Cells for the keys, with a blank before and after them."""
_PIECES = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|([^`*]+)")
_KEY, _LABEL, _HEADING, _FAINT = "$text-accent", "bold", "bold $text-primary", "$ink-muted"


class KeysPage(Static):
    """Headings, paragraphs and tables of two columns.

    Args:
        markdown: As `keys.keys_markdown` writes it.
    """

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self._markdown = _lines_of(markdown)
        self._wrapped: tuple[int, list[Content]] = (0, [])
        """What was wrapped last, at its width: the layout asks how high it is, and then it is drawn."""

    def tell(self, markdown: str) -> None:
        """Show other keys."""
        if self._markdown != (lines := _lines_of(markdown)):
            self._markdown, self._wrapped = lines, (0, [])
            self.refresh(layout=True)

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as it needs at this width."""
        return len(self._lines(width))

    def _lines(self, width: int) -> list[Content]:
        width = max(1, width)  # a terminal of a few columns leaves nothing beside the frames
        if self._wrapped[0] != width:
            self._wrapped = (width, list(self._wrap(width)))
        return self._wrapped[1]

    def _wrap(self, width: int) -> Iterator[Content]:
        for line in self._markdown:
            if line.startswith("## "):
                yield from (Content(), *Content.styled(line[3:], _HEADING).wrap(width))
            elif line.startswith("| "):
                keys, does = line.strip("| ").split(" | ", 1)
                yield from _row(keys, does, width)
            else:
                yield from _inline(line).wrap(width)


def _lines_of(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines()[1:] if line and not line.startswith("|-")]


def _row(keys: str, does: str, width: int) -> Iterator[Content]:
    """A line of a table, its second column wrapped; where there is little room, below the first."""
    if keys == "key":
        yield Content.styled(f" {keys}".ljust(COLUMN) + does, _FAINT)
        return
    narrow = width < 3 * COLUMN
    left, indent = _inline(keys).pad(1, 0), 3 if narrow else COLUMN
    lines = [line.rstrip().pad(indent, 0) for line in _inline(does).wrap(max(1, width - indent))]
    if narrow:
        yield left
    else:
        yield left + lines.pop(0)[left.cell_length :]
    yield from lines


def _inline(text: str) -> Content:
    """Text with keys in backquotes and words in bold."""
    styles = (_KEY, _LABEL, "")
    return Content.assemble(
        *(
            (piece, style)
            for pieces in _PIECES.findall(text)
            for piece, style in zip(pieces, styles, strict=True)
            if piece
        )
    )

"""A set of pairs of texts: the dialog that asks for it, and the page of the means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from textual.widget import Widget

from engine.errors import EngineError
from engine.protocol import PairsPatched, PatchPair
from inspector.blocks.paint import part_shown
from inspector.display import quoted, token_label, truncate, visible
from inspector.scales import count
from inspector.state.patching import pairs_from
from inspector.texts import decoded, read_text_file
from inspector.tools.interventions.control import PAIRS_DIALOG, SHARE_EDGES, ground, step_of
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeTextArea

EXAMPLE = (
    PatchPair("Lily lost her ball. She felt very", "Lily found her ball. She felt very", " happy", " sad"),
    PatchPair("Tom broke his toy. He was so", "Tom got a new toy. He was so"),
    PatchPair("Max was sick. He felt very", "Max won the big race. He felt very"),
)
"""What the field begins with, so that a stranger sees what it is for."""
SHAPE = (
    "One pair a line, or the name of a file of such lines. What the source computes is put into the text; followed is "
    "the logit of token, which the source should favour, less that of other. Without these two, those are followed "
    "that tell both texts apart."
)


class PairsDialog(Dialog[tuple[PatchPair, ...]]):
    """Asks for a set of pairs.

    Args:
        text: What was given last.
    """

    ACTIONS: ClassVar[ActionTable] = PAIRS_DIALOG
    HEADING: ClassVar[str] = "Patch a set of pairs"
    APPLY: ClassVar[str] = "Patch them"

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = text

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="pairs-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(SHAPE, id="pairs-remark")

    def begin(self) -> None:
        """Begin with what was given last."""
        super().begin()
        editor = self.query_one("#pairs-text", SafeTextArea)
        editor.load_text(self._text)
        self.set_focus(editor)

    def apply(self) -> None:
        """Take the pairs, or report what is the matter with them."""
        text = self.query_one("#pairs-text", SafeTextArea).text.strip()
        try:
            pairs = (
                pairs_from(text, "What you typed") if text.startswith("{") or not text else _from_file(text)
            )
        except EngineError as error:
            self.query_one("#pairs-remark", Remark).say(visible(str(error)), wrong=True)
        else:
            self.dismiss(pairs)


def _from_file(name: str) -> tuple[PatchPair, ...]:
    raw = read_text_file(name, "file of pairs", "Check the path's spelling.", "Give a regular file.")
    return pairs_from(decoded(raw, name), name)


LABEL, CELL = 6, 18
"""Cells of a layer's name, and of a class of positions."""


def pairs_page(on: Canvas, answer: PairsPatched, top: int, width: int, height: int) -> list[Row]:
    """A line a layer, the last one on top, with a column a class of positions; then the pairs.

    Args:
        on: Where it is drawn.
        answer: Its checks passed.
        top: Lines that are scrolled out of sight.
        width: Cells.
        height: Rows.
    """
    done = [each for each in answer.pairs if not each.failure]
    says = (
        f"{count(len(done))} of {count(len(answer.pairs))} pairs: mean share of the difference restored ± its standard "
        "deviation over the pairs. Changed: where the tokens differ, the last of them by itself. After: the same "
        "tokens behind them."
    )
    rows: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(says, width)]
    cell = max(12, min(CELL, (width - LABEL) // max(1, len(answer.places))))
    named = (each.place if cell < CELL else f"{each.place} ({each.pairs})" for each in answer.places)
    heads = "".join(f"{name:>{cell}.{cell - 1}}" for name in named)
    rows.append([Segment(" " * LABEL + heads, on.ink("strong"))])
    lines: list[Row] = []
    for place, layer in reversed(list(enumerate(answer.layers))):
        line: Row = [Segment(f"{f'L{layer + 1}':<{LABEL}}", on.ink("muted"))]
        for each in answer.places:
            between = " ± " if cell >= CELL else "±"
            text = f"{each.means[place]:.2f}{between}{each.spreads[place]:.2f}"
            style = on.rich_style + ground(on, step_of(each.means[place], SHARE_EDGES))
            line.append(Segment(f"{text:>{cell}}", style))
        lines.append(line)
    lines.append([])
    for number, pair in enumerate(answer.pairs, 1):
        what = visible(pair.failure) or (
            f"{quoted(token_label(pair.token))} less {quoted(token_label(pair.other))}: "
            f"{pair.difference:+.2f} here, {pair.source_difference:+.2f} in the source"
        )
        ink = on.ink("bad" if pair.failure else "muted")
        lines.append([Segment(truncate(f"{number}. {what}", width), ink)])
    room = max(1, height - len(rows))
    hidden = len(lines) > room
    room -= hidden and room > 1
    first = max(0, min(top, len(lines) - room))
    shown = range(first, min(len(lines), first + room))
    said = [Segment(part_shown(width, ("lines", shown, len(lines))), on.ink("warn"))]
    return [*rows, *lines[first : first + room], *([said] if hidden else [])]


def pairs_lines(answer: PairsPatched) -> int:
    """Lines of that page which can be scrolled: the layers, a gap and the pairs."""
    return len(answer.layers) + 1 + len(answer.pairs)

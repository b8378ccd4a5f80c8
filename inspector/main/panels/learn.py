"""A place to start: the questions, and the ways to learn; each can be clicked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from inspector.display import truncate
from inspector.main.panels.header import KEY, NAME, SENTENCE, question_rows
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, Hint, pressing
from inspector.widgets.canvas import PanelCanvas, Row

SECTIONS: Mapping[str, Sequence[tuple[tuple[str, ...], str, str]]] = {
    "Learn": (
        (("lessons",), "Lessons", "predict, do it, and see"),
        (("all_lessons",), "All lessons", "the list, and courses"),
        (("training",), "Training", "watch a model learn"),
        (("present",), "Present", "to a class, in large type"),
    ),
}
"""The rows under each heading: ids of the actions, what they are called here, and what they do, in a few words."""
HEADING, INDENT = 16, 3
"""Cells of a heading that stands before its actions, and of what is before their other lines where it is narrow."""


class LearnPanel(PanelCanvas, can_focus=True):
    """The first answer of the last tab: a row for each action where there is room, or else a line or two for a heading.

    Args:
        actions: All actions of the screen; those of the rows are among them.
        id: Of the widget.
        classes: Of the widget.
    """

    def __init__(self, actions: Sequence[Action], id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._by_id = {each.id: each for each in actions}

    def reads(self, timeline: Timeline) -> tuple[object, ...]:
        return ()

    def draw(self, width: int, height: int) -> list[Row]:
        self.title(Content("Start here"))
        sections = list(self._sections())
        listed = [
            [[Segment(f" {heading}", self.ink("accent"))], *(self._row(*one, width) for one in each)]
            for heading, each in sections
        ]
        lines = [self._lines(heading, each, width) for heading, each in sections]
        for blocks in ([question_rows(self, width), *listed], listed, lines):
            for gap in (1, 0):  # blank rows between the blocks
                rows: list[Row] = []
                for block in blocks:
                    rows += [[]] * gap + block
                if len(rows) - gap <= height:
                    return rows[gap:]
        return rows

    def _sections(self) -> Iterable[tuple[str, Sequence[tuple[Hint, str, str]]]]:
        """Headings, and under each the keys, the name and the sentence of what this program has of it."""
        for heading, rows in SECTIONS.items():
            known = ((tuple(filter(None, map(self._by_id.get, ids))), name, does) for ids, name, does in rows)
            yield heading, [(Hint(actions, name, 0), name, does) for actions, name, does in known if actions]

    def _row(self, hint: Hint, name: str, told: str, width: int) -> Row:
        """A row; where there is no room for all sentences, without them."""
        link, keys = _link(hint), self._keys(hint)
        told = told if width >= KEY + NAME + SENTENCE else ""
        room = max(1, KEY - 1 - Segment.get_line_length(keys))
        sentence = Segment(truncate(told, width - KEY - NAME), self.ink("muted") + link)
        named = Segment(name.ljust(NAME), self.ink("base") + link)
        return [Segment(" "), *keys, Segment(" " * room), named, sentence]

    def _lines(self, heading: str, each: Sequence[tuple[Hint, str, str]], width: int) -> list[Row]:
        """Keys and names side by side behind the heading."""
        wide = width >= 4 * HEADING
        rows: list[Row] = [[Segment(f" {heading}".ljust(HEADING if wide else 0), self.ink("accent"))]]
        for hint, name, _ in each:
            piece = [Segment("  "), *self._keys(hint), Segment(f" {name}", self.ink("base") + _link(hint))]
            if Segment.get_line_length([*rows[-1], *piece]) > width:
                rows.append([Segment(" " * (HEADING if wide else INDENT - 2))])
            rows[-1] += piece
        return rows

    def _keys(self, hint: Hint) -> Row:
        """The keys, each of which can be clicked."""
        ink = self.ink("base") + Style(bold=True)
        return [Segment(text, ink + (_pressed(key) if key else Style())) for text, key in hint.pieces]


def _link(hint: Hint) -> Style:
    """The key that a click on the words presses, if there is one alone."""
    return _pressed(hint.actions[0].names[0]) if len(hint.actions) == 1 else Style()


def _pressed(key: str) -> Style:
    return Style.from_meta(dict(pressing(key).meta))

"""Keep: where the session is saved, what an export would contain, and clickable actions to save, share and arrange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rich.segment import Segment
from rich.style import Style

from engine.errors import EngineError
from engine.files import shorter
from inspector.display import truncate, visible
from inspector.export.recording import viewed
from inspector.keys import key_for
from inspector.main.panels.header import KEY, NAME, SENTENCE
from inspector.main.tool import Host, ToolActions, found
from inspector.scales import counted
from inspector.texts import few
from inspector.widgets.actions import Hint, pressing
from inspector.widgets.canvas import Canvas, DrawnPanel, Row

PANEL = "keep"
DIVIDERS = ("left_narrower", "left_wider", "divider_up", "divider_down")
SECTIONS: Mapping[str, Sequence[tuple[tuple[str, ...], str, str]]] = {
    "Save and share": (
        (("save_as",), "Save", "the session, to a file"),
        (("export",), "Export", "page, text, CSV, picture"),
        (("copy",), "Copy", "a token, the text, a branch"),
        (("sessions",), "Sessions", "continue a recent one"),
        (("requests",), "Requests", "open one that was recorded"),
    ),
    "Screen": (
        (("theme",), "Dark or light", "the other theme"),
        (("alone",), "Text and answer", "for projectors"),
        (("usual_room",), "Usual layout", "all panels, at usual sizes"),
        (DIVIDERS, "Dividers", "move them"),
    ),
}
"""The rows under each heading: ids of the actions, a name and a short description."""
HEADING, INDENT = 16, 3
"""Cells of a heading before its actions, and the indent of their further lines in a narrow panel."""
MOST_VIEWS = 6
Facts = list[tuple[str, str]]


class KeepActions(ToolActions):
    """Shows the panel."""

    def show(self) -> None:
        """Show the panel, if it is on screen."""
        if PANEL in self.host.shown:
            self.host.query_one(f"#{PANEL}", DrawnPanel).put("Keep", self._page)

    def _page(self, on: Canvas, width: int, height: int) -> list[Row]:
        facts, sections = on.facts(self._facts(), width), [*self._sections()]
        heading = on.ink("accent")
        listed = [
            [[Segment(name, heading)], *(_row(on, *one, width) for one in each)] for name, each in sections
        ]
        lines = [_lines(on, name, each, width) for name, each in sections]
        some = facts[: max(0, height - sum(map(len, lines)))]
        for blocks in ([facts, *listed], [facts, *lines], [some, *lines]):
            for gap in (1, 0):  # blank rows between the blocks
                rows: list[Row] = []
                for block in blocks:
                    rows += [[]] * gap + block
                if len(rows) - gap <= height:
                    return rows[gap:]
        return rows

    def _facts(self) -> Facts:
        """The session's file and what is not in it, the marks, and what an export would contain."""
        tree = self.timeline.tree
        ends, marks = len(tree.leaves()), [*tree.marks.of.values()]
        kinds = (("name", "name"), ("bookmarked", "bookmark"), ("note", "note"), ("caption", "caption"))
        numbers = ((sum(bool(getattr(each, field)) for each in marks), word) for field, word in kinds)
        marked = [counted(number, word) for number, word in numbers if number]
        return [
            *_saved(self.host),
            ("branches", f"{ends:,}" if ends else "none yet"),
            ("marks", ", ".join(marked) or "none"),
            ("to export", few(self._viewed(), MOST_VIEWS) or "no view opened yet"),
        ]

    def _viewed(self) -> list[str]:
        parts = (part for tool in self.host.tools for part in map(found, tool.exports))
        with suppress(EngineError):  # there is no text yet
            return viewed(self.timeline, parts)
        return []

    def _sections(self) -> Iterator[tuple[str, Sequence[tuple[Hint, str, str]]]]:
        """Headings, and under each the keys, name and sentence of the actions that this program has."""
        table = self.host.table
        for heading, rows in SECTIONS.items():
            own = [
                (Hint(tuple(table[id] for id in ids), name, 0), name, does)
                for ids, name, does in rows
                if all(id in table for id in ids)
            ]
            if own:
                yield heading, own


def _saved(host: Host) -> Facts:
    """The file that the session is or will be saved in, and the part that is not saved."""
    playback = host.playback
    if playback is None:
        return [("session", "not saved: this program writes no files")]
    if playback.player is not None:
        path = playback.path
        return [("session", "a recording"), *([("file", visible(shorter(path)))] if path is not None else [])]
    recorder, save = playback.recorder, key_for("save_as")
    if recorder.path is not None:
        facts = [("session", "saved as you go"), ("file", visible(recorder.path.name))]
        facts += [("in", visible(shorter(recorder.path.parent)))]
        if not host.controller.setup.load.record_logits:
            facts += [("not saved", f"logits; {save} can save them")]
        return facts
    if recorder.directory is None:
        return [("session", "in memory only"), ("not saved", f"all of it; {save} saves it to a file")]
    return [
        ("session", "saved as you go, once there is a text"),
        ("in", visible(shorter(recorder.directory))),
    ]


# ---- rows that can be clicked -------------------------------------------------------------------


def _row(on: Canvas, hint: Hint, name: str, does: str, width: int) -> Row:
    """A row; without its sentence if there is no room for all sentences."""
    link, keys = _link(hint), _keys(on, hint)
    does = does if width > KEY + NAME + SENTENCE else ""
    room = max(1, KEY + 1 - Segment.get_line_length(keys))
    sentence = Segment(truncate(does, max(0, width - KEY - 1 - NAME)), on.ink("muted") + link)
    named = Segment(name.ljust(NAME), on.ink("base") + link)
    return [*keys, Segment(" " * room), named, sentence]


def _lines(on: Canvas, heading: str, each: Sequence[tuple[Hint, str, str]], width: int) -> list[Row]:
    """Keys and names side by side after the heading."""
    wide = width >= 4 * HEADING
    rows: list[Row] = [[Segment(heading.ljust(HEADING if wide else 0), on.ink("accent"))]]
    for hint, name, _ in each:
        piece = [Segment("  "), *_keys(on, hint), Segment(f" {name}", on.ink("base") + _link(hint))]
        if Segment.get_line_length([*rows[-1], *piece]) > width:
            rows.append([Segment(" " * (HEADING if wide else INDENT - 2))])
        rows[-1] += piece
    return rows


def _keys(on: Canvas, hint: Hint) -> Row:
    ink = on.ink("base") + Style(bold=True)
    return [Segment(text, ink + (pressing(key).rich_style if key else Style())) for text, key in hint.pieces]


def _link(hint: Hint) -> Style:
    """The style of words that press the action's key when clicked; plain if there are several actions."""
    return pressing(hint.actions[0].names[0]).rich_style if len(hint.actions) == 1 else Style()

"""The tree of branches: its panel and keys, and the marks and deletions.

The table makes only the rows in sight, and paints only those that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from engine.protocol import Deleted, Marked, MoveTo
from inspector import scales
from inspector.display import joined_to_fit, pad, quoted, token_label, truncate, visible
from inspector.keys import bare_key_for, key_for, with_keys
from inspector.main.tool import ToolActions, ToolMessage
from inspector.session.client import Request
from inspector.state.beams import BeamHistory, BeamNode
from inspector.state.branches import PROMPT, Branch, Sums
from inspector.state.conditions import conditions
from inspector.state.session_tree import NOTE, STAR, SessionTree, numbered, written
from inspector.state.speculation import Speculation
from inspector.state.timeline import Timeline
from inspector.state.tree_rows import TreeFilter, TreeView, pruned
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import (
    Canvas,
    Row,
    centred,
    reveal,
    set_line_count,
    strip_of,
    why_empty,
    wrapped,
)
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.rows import columns_that_fit

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the columns --------------------------------------------------------------------------------


def logprob(value: float | None) -> str:
    """A logprob, or a sum or mean of some: two decimals, fewer if it is large."""
    if value is None:
        return "–"
    text = f"{value:.2f}" if value > -999.995 else f"{value:,.0f}".replace("inf", "∞")
    return text.replace("-", "−")


def perplexity(value: float | None) -> str:
    """A perplexity; a dash if it isn't known."""
    return "–" if value is None else scales.perplexity(value)


BranchColumn = tuple[str, int, Callable[[SessionTree, Branch], str]]
"""Head, cells and text."""
COLUMNS: tuple[BranchColumn, ...] = (
    ("made", 12, lambda tree, branch: tree.branches.made(branch)),
    ("tokens", 8, lambda _, branch: scales.count(branch.sums.tokens)),
    ("logprob", 9, lambda _, branch: logprob(branch.sums.logprob if branch.sums.known else None)),
    ("mean", 8, lambda _, branch: logprob(branch.sums.mean)),
    ("perplexity", 12, lambda _, branch: perplexity(branch.sums.perplexity)),
    ("logprob from start", 20,
     lambda tree, branch: logprob(total.logprob if (total := tree.completion(branch)).known else None)),
)  # fmt: skip
"""The branch's own tokens, except for the last column: the logprob of the completion up to the branch's end."""
_DROPPED = ("logprob", "perplexity", "mean", "made", "logprob from start", "tokens")
"""The order in which a narrow panel leaves out columns."""


def fitting(width: int, least: int) -> tuple[BranchColumn, ...]:
    """The columns that leave `least` of `width` cells for tree and text."""
    kept = columns_that_fit({head: cells for head, cells, _ in COLUMNS}, _DROPPED, width - least)
    return tuple(column for column in COLUMNS if column[0] in kept)


def sums_phrase(name: str, sums: Sums) -> str:
    """Sums in one phrase: `branch: 12 tokens, logprob −8.21, mean −0.68, perplexity 1.98`."""
    tokens = scales.counted(sums.tokens, "token")
    if not sums.known:
        return f"{name} {tokens}"
    some = f" of the {scales.count(sums.known)} known" if sums.known < sums.tokens else ""
    figures = f"logprob{some} {logprob(sums.logprob)}, mean {logprob(sums.mean)}"
    return f"{name} {tokens}, {figures}, perplexity {perplexity(sums.perplexity)}"


# ---- notes on a branch: its conditions, its marks, and the outcome of its beam ------------------


def _made_with(timeline: Timeline, branch: Branch) -> str:
    """The conditions of a branch's first and last tokens: checking all tokens is too slow for each frame."""
    ends = [timeline.tree.nodes.get(node) for node in dict.fromkeys((branch.first, branch.last))]
    found = [[each.short for each in conditions(timeline.tree, item)] for item in ends if item is not None]
    every = dict.fromkeys(words for each in found for words in each)
    return " · ".join(words if all(words in each for each in found) else f"partly {words}" for words in every)


def _beam_note(beam: BeamNode | None) -> str:
    """The outcome of the beam that ended with a branch's last token; empty if none did, or if it was extended."""
    if beam is None:
        return ""
    if beam.rank is not None:
        return f"rank {beam.rank}" + ", greedy" * beam.greedy
    if beam.fell is not None:
        return f"pruned at step {beam.fell}"
    words = {"live": "live", "finished": "finished", "left": "left when the search ended", "greedy": "greedy"}
    return words.get(beam.state, "")


def _signs(mark: Marked) -> list[str]:
    return [sign for sign, present in ((STAR, mark.bookmarked), (NOTE, mark.note or mark.caption)) if present]


def _inner_note(marks: Sequence[Marked]) -> str:
    """Marks further down in a branch: the signs and the name of one, the number of several."""
    if len(marks) != 1:
        return f"{len(marks)} marks in it" if marks else ""
    signs, name = "".join(_signs(marks[0])), truncate(visible(marks[0].name), 24)
    return " ".join(filter(None, (signs, name, "in it")))


# ---- the table ----------------------------------------------------------------------------------

_MARK, _LEAST_TEXT = 2, 36
TIP, ON_PATH, OFF_PATH = "◆", "●", "○"


class TreeRowState(NamedTuple):
    """All that a row's look depends on, except its branch, the width and the theme."""

    sums: tuple[int, int, float]
    """Tokens of the branch, how many of their logprobs are known, and the sum of these."""
    cursor: bool
    reached: int
    """Number of the branch's tokens on the current path; -1 unless the path ends in the branch."""
    mark: Marked | None
    notes: tuple[str, ...]
    """The outcome of its beam, its conditions, the marks further down in it, drafts at its end that were not taken."""
    gray: bool
    """True if its beam was pruned and it is not on the path."""


class TreeTable(ScrollView, Inked, can_focus=False):
    """The table. Each row has its index as metadata; its knot also has the branch's first node.

    Args:
        view: The rows of the panel's tree.
    """

    DEFAULT_CSS = """
    TreeTable {
        height: 1fr; overflow-x: hidden; scrollbar-gutter: stable;
        scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $foreground 18%;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """

    def __init__(self, view: TreeView) -> None:
        super().__init__()
        self.view = view
        self.timeline: Timeline | None = None
        self._strips: dict[int, tuple[TreeRowState, Strip]] = {}
        """The rows that were drawn, by their index."""
        self._columns = COLUMNS
        self._rows: list[Branch] = []
        """The branches that these rows show."""
        self._row = -1

    # ---- its content ------------------------------------------------------------------------

    def show(self, timeline: Timeline) -> None:
        """Show the tree's present state, with the cursor in sight."""
        self.timeline = timeline
        self.view.look(timeline)
        if not self.is_attached or not self.size.area:
            return
        if self.view.rows is not self._rows:
            self._rows = self.view.rows
            self._strips.clear()
            count = self.view.count
            set_line_count(self, count + 1 if count else 0)
            self.refresh()
        else:
            top = self.scroll_offset.y
            for row in range(top, min(top + self.size.height - 1, self.view.count)):
                if (kept := self._strips.get(row)) is None or kept[0] != self._look(timeline, row):
                    self.refresh_line(row + 1)
        if self.view.row != self._row:
            self._row = self.view.row
            reveal(self, self.view.row)

    def on_resize(self) -> None:
        self._strips.clear()
        self._columns = fitting(self.scrollable_size.width - _MARK, _LEAST_TEXT)
        self.refresh()
        self.on_show()

    def on_show(self) -> None:
        """Catch up with what happened while the panel was hidden."""
        if self.timeline is not None:
            self.show(self.timeline)
            reveal(self, self.view.row)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, base, timeline = self.scrollable_size.width, self.rich_style, self.timeline
        if timeline is None or not self.view.count:
            return strip_of(self._notice(y), width, base)
        if y == 0:
            text = " " * _MARK + pad("text", self._room(width))
            text += "".join(pad(head, cells, right=True) for head, cells, _ in self._columns)
            return strip_of([Segment(text, self.ink("muted"))], width, base)
        row = self.scroll_offset.y + y - 1
        if row >= self.view.count:
            return Strip.blank(width, base)
        if row == self.view.fallen_row:
            return self._fallen(width).apply_meta({"row": row})
        look, kept = self._look(timeline, row), self._strips.get(row)
        if kept is None or kept[0] != look:
            strip = self._strip(timeline.tree, look, self.view.rows[row], width)
            kept = self._strips[row] = look, strip.apply_meta({"row": row})
        return kept[1]

    def _notice(self, y: int) -> Row:
        reason, advice = why_empty(self.timeline, "The branches of what is tried appear here.")
        if self.view.filter:
            reason = f"No branch {visible(self.view.filter.words())}."
            advice = f"Press esc to show all, {key_for('filter')} to change it."
        said = (reason, self.rich_style), (advice, self.ink("muted"))
        rows = centred(said, self.scrollable_size.width, self.size.height)
        return rows[y] if y < len(rows) else []

    def _room(self, width: int) -> int:
        """Cells of tree and text."""
        return max(1, width - _MARK - sum(cells for _, cells, _ in self._columns))

    def _look(self, timeline: Timeline, row: int) -> TreeRowState:
        view = self.view
        branch, depth = view.rows[row], view.branches.depth
        ends = view.tip is not None and view.holding(timeline.tip) is branch
        beam = timeline.of(BeamHistory).nodes.get(branch.last)
        notes = (
            _beam_note(beam),
            _made_with(timeline, branch),
            _inner_note(view.inner.get(branch.first, [])),
            timeline.of(Speculation).ghost_words(timeline.tip) if ends else "",
        )
        fell = beam is not None and beam.rank is None and beam.fell is not None
        return TreeRowState(
            (branch.sums.tokens, branch.sums.known, branch.sums.logprob), row == view.row,
            depth(timeline.tip) - depth(branch.first) + 1 if ends else -1,
            timeline.tree.marks.of.get(branch.first), tuple(filter(None, notes)),
            fell and branch.first not in view.path,
        )  # fmt: skip

    def _ground(self, cursor: bool) -> Style:
        return Style(bgcolor=self.ink("row").bgcolor, bold=True) if cursor else Style()

    def _fallen(self, width: int) -> Strip:
        """The row for the pruned beams."""
        cursor = self.view.row == self.view.fallen_row
        beams = scales.counted(self.view.tree.fallen, "pruned beam")
        words = ", shown above: ← folds them" if self.view.show_fallen else ": → shows them"
        knot = self._color("muted") + Style.from_meta({"knot": 0})
        row = [Segment("▶ " if cursor else "  ", self._color("accent")), Segment(f"… {beams}{words}", knot)]
        return strip_of(row, width, self.rich_style + self._ground(cursor))

    def _strip(self, tree: SessionTree, look: TreeRowState, branch: Branch, width: int) -> Strip:
        ground = self._ground(look.cursor) + (self._color("faint") if look.gray else Style())
        muted = self._color("faint" if look.gray else "muted")
        row = [Segment("▶ " if look.cursor else "  ", self._color("accent"))]
        row += self._tree(branch, look, muted, self._room(width))
        for head, cells, text in self._columns:
            style = muted if head == "made" else Style()
            row.append(Segment(pad(text(tree, branch), cells, right=True), style))
        return strip_of(row, width, self.rich_style + ground)

    def _tree(self, branch: Branch, look: TreeRowState, muted: Style, room: int) -> Row:
        """Lines, knot, marks, text and notes, in exactly `room` cells."""
        view, accent = self.view, self._color("accent")
        guides, folded = view.guides(branch, room // 2), view.folded(branch)
        on_path = branch.first in view.path
        sign = "▸" if folded else TIP if look.reached >= 0 else ON_PATH if on_path else OFF_PATH
        here = accent if on_path or (look.reached >= 0 and not folded) else self._color("muted")
        row = [
            Segment(guides[:-2], self._color("muted")),
            Segment(guides[-2:], accent if on_path else self._color("muted")),
            Segment(f"{sign} ", here + Style.from_meta({"knot": branch.first})),
        ]
        mark = look.mark or Marked(branch.first)
        if signs := " ".join(_signs(mark)):
            row.append(Segment(f"{signs} ", self._color("warn")))
        if name := truncate(visible(mark.name), max(0, (room - cell_len(guides)) // 3)):
            row.append(Segment(f"{name} ", accent + Style(bold=True)))

        left = room - sum(segment.cell_length for segment in row)
        notes = [f"+{scales.counted(folded, 'branch')}" if folded else "", *look.notes]
        if 0 <= look.reached < look.sums[0]:
            notes.append(f"at {look.reached:,} of {look.sums[0]:,}")
        more = self._notes(notes, max(left * 2 // 3, left - cell_len(self._text(branch, left))))
        left -= cell_len(more)
        text = self._text(branch, left)
        return [*row, Segment(text), Segment(more, muted), Segment(" " * (left - cell_len(text)))]

    @staticmethod
    def _notes(notes: Sequence[str], cells: int) -> str:
        """The first notes that fit after the text as a whole; the detail below the table has all. The first one is
        shortened rather than left out."""
        row = ""
        for note in filter(None, notes):
            if not row or cell_len(f"{row} · {note}") <= cells:
                row += f" · {note}"
        return truncate(row, cells)

    def _text(self, branch: Branch, cells: int) -> str:
        branches, cells = self.view.branches, max(0, cells)
        text = branches.text(branch, cells + 1)
        return truncate(token_label(text, branches[branch.first].raw), cells)

    def _color(self, name: str) -> Style:
        """The foreground color of an ink, for a row that may have its own background."""
        return Style(color=self.ink(name).color)


# ---- the panel ----------------------------------------------------------------------------------

KEYS_HERE = (
    "⏎ go", "←→ fold", "{bookmark} bookmark", "{name} name or note", "{delete} delete", "{undo} undo",
    "{filter} filter",
)  # fmt: skip
FORK = ("{candidates}, then ↑↓ and ⏎, takes another candidate: a branch", "{reroll} draws again")
_LOW, _HIGH = 9, 13
"""Rows below which the detail is left out, and from which it may have more lines."""
_SLIM, _ROOMY = 72, 100
"""Columns below which the detail needs more lines, and from which it needs fewer."""


class TreeDetail(Canvas):
    """The branch under the cursor in words: its numbers, and what the user wrote on it."""

    def __init__(self, view: TreeView) -> None:
        super().__init__()
        self._view = view

    def draw(self, width: int, height: int) -> list[Row]:
        branch, timeline = self._view.cursor, self.timeline
        if branch is None or timeline is None:
            return []
        texts, branches = [sums_phrase("branch:", branch.sums)], self._view.branches
        beam = timeline.of(BeamHistory).nodes.get(branch.last)
        if branches.made(branch) != PROMPT and (beam or timeline.tree.completion(branch) != branch.sums):
            score = f", beam score {scales.decimal(beam.score, 4)}" if beam else ""
            whole = sums_phrase("completion:", timeline.tree.completion(branch)) + score
            texts = [whole] if width >= _ROOMY else [*texts, whole]  # a wide table has the branch's own sums
        if notes := ", ".join(filter(None, (_beam_note(beam), _made_with(timeline, branch)))):
            texts[0] += f", {notes}"
        if height > len(texts) + 1:
            texts = [line for text in texts for line in wrapped(text, width)][: height - 1]
        muted = self.ink("muted")
        return [*([Segment(text, muted)] for text in texts), self._written(timeline, branch, width)]

    def _written(self, timeline: Timeline, branch: Branch, width: int) -> Row:
        """The marks on the branch and on tokens in it; or else advice."""
        tree, first = timeline.tree, branch.first
        texts = [written(tree.marks.at(first))] if first in tree.marks.of else []
        for mark in self._view.inner.get(first, ()):  # maybe on a beam that the session never went to
            item = tree.nodes.get(mark.node)
            place = numbered(item) if item is not None else f"token {tree.branches.depth(mark.node):,}"
            texts.append(f"at {place}: {written(mark)}")
        if texts:
            return [Segment(" · ".join(texts), self.ink("warn"))]
        shown = self._view.tree
        advice = FORK if shown.ends + shown.beams <= 1 else KEYS_HERE
        return [Segment(joined_to_fit(map(with_keys, advice), width), self.ink("muted"))]


class TreePanel(Widget, can_focus=True):
    """Table and detail in one frame."""

    DEFAULT_CSS = panel_css("TreePanel") + "TreePanel { layout: vertical; padding: 0 0 0 1; }"
    DEFAULT_CSS += "TreePanel.-concealed > * { visibility: hidden; }"

    class BranchClicked(ToolMessage):
        """A branch's row was clicked.

        Args:
            node: The branch's last node.
            goes: Whether the user wants to go there.
        """

        tool = "tree"

        def __init__(self, node: int, goes: bool) -> None:
            self.node, self.goes = node, goes
            super().__init__()

    BORDER_TITLE = "Tree"

    def __init__(self) -> None:
        super().__init__()
        view = TreeView()
        self._table, self._detail = TreeTable(view), TreeDetail(view)
        self._titles = ("", "")

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._detail

    @property
    def view(self) -> TreeView:
        """The rows and the cursor, of the tree as it is now: keys may come between a change and its next frame."""
        if self._table.timeline is not None:
            self._table.view.look(self._table.timeline)
        return self._table.view

    @property
    def page(self) -> int:
        """Rows that page up and page down move the cursor by."""
        return max(1, self._table.size.height - 2)

    def show(self, timeline: Timeline) -> None:
        """Show the tree's present state."""
        self._table.show(timeline)
        self._detail.show(timeline)
        self.set_class(timeline.conceals("tree"), "-concealed")
        view, hidden = self._table.view, len(timeline.tree.marks.deleted)
        numbers = (view.tree.ends, "branch"), (view.tree.beams, "beam")
        title = " · ".join(["Tree", *(scales.counted(*each) for each in numbers if each[0])])
        if view.filter:
            title = f"Tree · {view.tree.fit:,} found {visible(view.filter.words())}: esc shows all"
        titles = title, f"{hidden:,} deleted: {key_for('undo')} undoes" if hidden else ""
        if titles != self._titles:
            self._titles = titles
            self.border_title, self.border_subtitle = map(Content, titles)

    def follows(self, timeline: Timeline) -> bool:
        """True if it knows the path of a timeline, except for tokens that were added since."""
        return timeline is self._table.timeline and self._table.view.has_path(timeline)

    def on_resize(self, event: events.Resize) -> None:
        self._detail.display = self.size.height >= _LOW
        slim = self.size.width < _SLIM and self.size.height >= _HIGH
        self._detail.styles.height = 2 if self.size.width >= _ROOMY else 5 if slim else 3

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a row; if it was there, or on a double click, go to the branch. A click on the knot folds
        or unfolds the branches below."""
        row, view = event.style.meta.get("row"), self.view
        if row is None or row >= view.count:  # the row is no longer there
            return
        again = event.chain > 1 or row == view.row
        if "knot" in event.style.meta and (row == view.fallen_row or view.rows[row].children):
            view.toggle(row)
        else:
            view.put(row)
            if view.cursor is not None:
                self.post_message(self.BranchClicked(view.cursor.last, again))
        if self._table.timeline is not None:
            self.show(self._table.timeline)


# ---- its actions --------------------------------------------------------------------------------

TREE = "tree"
"""Id of the panel."""
_LABEL = 24
"""Cells that a branch's text gets in an answer."""


def _label(text: str, raw: bytes) -> str:
    """The beginning of a text, short and printable, in quotation marks."""
    return quoted(truncate(token_label(text, raw), _LABEL))


class TreeActions(ToolActions):
    """Goes through the tree and writes on it."""

    HEEDS = ("tip",)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._leaving: Request[MoveTo] | None = None
        """The move away from a branch that will then be deleted."""
        self._pointed: int | None = None
        """The token that was selected when the user last moved the tree's cursor, as in `_selected`; None if the panel
        was left since."""

    @property
    def panel(self) -> TreePanel:
        return self.host.panel(TreePanel)

    @property
    def view(self) -> TreeView:
        """The panel's rows and cursor."""
        return self.panel.view

    @property
    def is_current(self) -> bool:
        """True if the panel is the current one, and no view lies over it."""
        return self.host.arrangement.current == TREE and self.host.open_view is None

    def show(self) -> None:
        """Show the branches. Out of sight the panel only follows changes of the path, which unfold its branches."""
        if not self.is_current:
            self._pointed = None
        panel = self.panel
        if TREE in self.host.shown or not panel.follows(self.timeline):
            panel.show(self.timeline)

    def pressed(self, id: str) -> None:
        """The key for the last token also puts the tree's cursor on its branch, wherever it is pressed."""
        self.view.follow()
        self._point()

    # ---- the cursor -------------------------------------------------------------------------

    def walk(self, move: Callable[..., None], *by: int) -> None:
        move(*by)
        self._point()
        self.host.answer()

    def _point(self) -> None:
        """The user points at the branch under the cursor, until another token is selected."""
        self._pointed = self._selected if self.is_current else None
        self.host.changed()  # the line of keys depends on it

    @property
    def _selected(self) -> int:
        """Node of the selected token; 0 at the end of the path."""
        return self.timeline.selected.node if self.timeline.selected is not None else 0

    @property
    def branch(self) -> Branch | None:
        """The branch that the user points at, for a mark; None if that is the selected token."""
        pointed = self.is_current and self._pointed == self._selected
        return self.view.cursor if pointed else None

    def choose(self) -> None:
        """Go to the end of the branch under the cursor."""
        view = self.view
        if view.cursor is not None:
            self._go(view.cursor.last)
        else:
            self.walk(view.toggle, view.row)

    def hear(self, message: ToolMessage) -> None:
        """Point at the branch that was clicked, or go there."""
        if isinstance(message, TreePanel.BranchClicked):
            self._point()
            if message.goes and self.controller.stepping:
                self._go(message.node)

    def _go(self, node: int) -> None:
        client = self.controller.client
        at_tip = node == self.timeline.tip and not client.outstanding
        self.timeline.select(None)
        self._point()
        if not at_tip:
            client.do(MoveTo(node))
        self.host.answer(f"The path already ends here: {key_for('step')} takes a step" if at_tip else "")

    # ---- filter -----------------------------------------------------------------------------

    def filter(self) -> None:
        """Ask which branches to show, in the tree."""
        from inspector.main.dialogs.tree import FilterDialog

        if TREE not in self.host.shown:
            self.host.go_to(TREE)
        dialog = FilterDialog(self.view.filter, lambda wanted: pruned(self.timeline, wanted, True).fit)
        self.host.open(dialog, self._filtered)

    def _filtered(self, wanted: TreeFilter | None) -> None:
        if wanted is not None:
            self.view.filter = wanted
            self.host.answer("" if wanted else "All branches are shown")

    def stop(self) -> bool:
        """Remove the filter, if the tree is on show and has one; returns whether that was so."""
        if TREE not in self.host.shown or not self.view.filter:
            return False
        self.view.filter = TreeFilter()
        self.host.answer("All branches are shown again")
        return True

    # ---- marks ------------------------------------------------------------------------------

    def _here(self) -> tuple[int, str] | None:
        """The node to write on and its words: the branch that the user points at, or else the selected token."""
        timeline, branches = self.timeline, self.timeline.tree.branches
        if (branch := self.branch) is not None:
            text = branches.text(branch, _LABEL + 1)
            return branch.first, f"branch {_label(text, branches[branch.first].raw)}"
        if (item := timeline.selected or (timeline.items[-1] if timeline.items else None)) is None:
            return None
        return item.node, f"token {_label(item.text, item.raw)}, {numbered(item)}"

    def bookmark(self) -> None:
        """Set a bookmark, or remove it."""
        if (here := self._here()) is None:
            return
        node, what = here
        mark = self.timeline.tree.marks.at(node)
        self.controller.client.receive(replace(mark, bookmarked=not mark.bookmarked))
        made = f"Bookmarked {what}. {key_for('bookmark')} removes it"
        self.host.answer(f"No bookmark any more on {what}." if mark.bookmarked else made)

    def name(self) -> None:
        """Ask for name, note and caption."""
        from inspector.main.dialogs.tree import NamingDialog

        if (here := self._here()) is not None:
            node, what = here
            mark, begins = self.timeline.tree.marks.at(node), "name" if self.branch else "note"
            dialog = NamingDialog(mark, what, self.host.stages, self.host.arrangement.current, begins)
            self.host.open(dialog, partial(self._named, what))

    def _named(self, what: str, mark: Marked | None) -> None:
        if mark is not None:
            self.controller.client.receive(mark)
            self.host.answer(f"{'Nothing is written' if mark == Marked(mark.node) else 'Saved'} on {what}.")

    # ---- deletions --------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete the branch under the tree's cursor; if the path runs through it, first leave the branch."""
        if not self.is_current:
            there = f"there {bare_key_for('delete')} deletes the branch under the cursor."
            self.host.answer(f"Press {key_for('tree')} for the tree: {there}")
            return
        tree, cursor = self.timeline.tree, self.view.cursor
        if cursor is None:
            return
        node = cursor.first
        on_path = self._is_on_path(node)
        if on_path and tree.branches[node].made == PROMPT:
            other = f"Go to another one first, or press {key_for('prompt')} for a new one."
            self.host.answer(f"The prompt on show can't be deleted. {other}")
            return
        self.view.step_aside()
        if not on_path:
            self._delete(node)
            return
        if self._leaving is None or self._leaving.done:
            self.timeline.select(None)
            left = partial(self._left, node, tree)
            self._leaving = self.controller.client.do(MoveTo(tree.branches[node].parent), left)
        self.host.answer()

    def _is_on_path(self, node: int) -> bool:
        """True if the path runs through a node, or will once all outstanding commands are done."""
        branches = self.timeline.tree.branches
        targets = [getattr(command, "node", None) for command in self.controller.client.outstanding]
        return any(
            target is not None and target in branches and branches.leads(node, target)
            for target in (self.timeline.tip, *targets)
        )

    def _left(self, node: int, tree: SessionTree, request: Request[MoveTo]) -> None:
        """Delete a branch once the move away from it is done; do nothing if another tree has begun."""
        if tree is not self.timeline.tree:
            return
        if self._is_on_path(node):
            why = "the path still runs through it, since the move away from it was stopped."
            self.host.answer(f"Not deleted: {why}")
        else:
            self._delete(node)

    def _delete(self, node: int) -> None:
        branches = self.timeline.tree.branches
        if (branch := branches.of(node)) is None:
            self.host.answer()
            return
        count, tokens = branches.size(branch)
        tokens -= branches.place(node)
        deleted = f"{scales.counted(tokens, 'token')} in {scales.counted(count, 'branch')}"
        self.controller.client.receive(Deleted(node))
        self.host.answer(f"Deleted {deleted}. {key_for('undo')} brings them back")


_BRANCH = "Go from branch to branch."
_ENDS = "Go to the first branch, or to the one with the last token."
_FOLD = "Fold a branch, or go to the one above; unfold it, or go to the first below."
_FILTER = "Show only branches with a text or a bookmark; show all again."
TREE_PANEL = ActionTable(
    "In the tree",
    (
        *both(("above", "below"), ("Branch above", "Branch below"), _BRANCH, lambda own, by: own.walk(own.view.move,
              by), hint="branch", worth=12, place=40),
        *both(("ten_earlier", "ten_later"), ("Page up", "Page down"), _BRANCH,
              lambda own, by: own.walk(own.view.move, by * own.panel.page)),
        Action("first", "First branch", _ENDS, lambda own: own.walk(own.view.put, 0)),
        Action("tip", help=_ENDS),
        Action("earlier", "Fold", _FOLD, lambda own: own.walk(own.view.fold), hint="fold", worth=7, place=30),
        Action("later", "Unfold", _FOLD, lambda own: own.walk(own.view.fold, False), hint="fold", worth=7, place=30),
        Action("choose", "Go there",
               "Go to the branch's end, as a second click on it does; show or fold the pruned beams.",
               lambda own: own.choose(), hint="go", worth=12, place=50),
        Action("filter", help=_FILTER, hint="filter", worth=5, place=60),
        Action("stop", help=_FILTER),
        Action("bookmark", hint="bookmark", worth=6, place=80),
        Action("name", hint=lambda own: "name" if own.branch else "note", worth=9, place=90),
        Action("delete", hint="delete", worth=10, place=120),
        Action("undo", hint="undo", worth=7, place=130),
    ),
    when=lambda own: own.is_current, panel="tree",
)  # fmt: skip
"""The meaning of keys while the panel is the current one."""

"""The tree as a table, one row a branch: only rows in sight are made, and only those that changed are painted again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from engine.protocol import Marked
from inspector import scales
from inspector.display import pad, token_label, truncate, visible
from inspector.keys import key_for
from inspector.state.beams import BeamHistory, BeamNode
from inspector.state.branches import Branch, Branches, Sums
from inspector.state.conditions import conditions
from inspector.state.session_tree import NOTE, STAR
from inspector.state.speculation import Speculation
from inspector.state.timeline import Timeline
from inspector.tools.tree.view import TreeView
from inspector.widgets.canvas import Row, centred, reveal, set_line_count, strip_of, why_empty
from inspector.widgets.inks import Inked

_MARK, _LEAST_TEXT = 2, 30
_TEXT = 8
"""Cells in which a row says how its branch begins, however much is noted of it."""
_CACHED_ROWS = 256
TIP, ON_PATH, OFF_PATH = "◆", "●", "○"
NONE = "–"
"""Shown where a number isn't known."""
_DROPPED = ("logprob", "perplexity", "mean", "made", "from start", "tokens")
"""The order in which columns give way to a narrow panel."""
_NAME = 24
"""Cells of a name further down in a branch."""


# ---- the columns --------------------------------------------------------------------------------


class BranchColumn(Struct, frozen=True):
    """One column."""

    head: str
    cells: int
    text: Callable[[Branches, Branch], str]


def logprob(value: float | None) -> str:
    """A logprob, or a sum or mean of some: two decimals, fewer where it is large."""
    if value is None:
        return NONE
    return f"{value:.2f}" if value > -999.995 else f"{value:,.0f}".replace("-inf", "-∞")


def perplexity(value: float | None) -> str:
    """A perplexity: two decimals, none where it is large."""
    if value is None:
        return NONE
    if value >= 99_999.5:
        return f"{value:.0e}".replace("e+", "e").replace("inf", "∞")
    return f"{value:.2f}" if value < 999.995 else scales.count(round(value))


def _completion(branches: Branches, branch: Branch) -> str:
    total = branches.completion(branch)
    return logprob(total.logprob if total.known else None)


COLUMNS = (
    BranchColumn("made", 12, Branches.made),
    BranchColumn("tokens", 8, lambda _, branch: scales.count(branch.sums.tokens)),
    BranchColumn("logprob", 9, lambda _, branch: logprob(branch.sums.logprob if branch.sums.known else None)),
    BranchColumn("mean", 8, lambda _, branch: logprob(branch.sums.mean)),
    BranchColumn("perplexity", 12, lambda _, branch: perplexity(branch.sums.perplexity)),
    BranchColumn("from start", 12, _completion),
)
"""Of the branch's own tokens, but for the last: that is the logprob of the completion up to the branch's end."""


def fitting(width: int, least: int) -> tuple[BranchColumn, ...]:
    """The columns that leave `least` cells of a width for tree and text."""
    kept = list(COLUMNS)
    for head in _DROPPED:
        if width - sum(column.cells for column in kept) >= least:
            break
        kept = [column for column in kept if column.head != head]
    return tuple(kept)


def sums_phrase(name: str, sums: Sums) -> str:
    """Sums in one phrase: `this branch 12 tokens, logprob -8.21, mean -0.68, perplexity 1.98`."""
    tokens = f"{scales.count(sums.tokens)} token{'s' * (sums.tokens != 1)}"
    if not sums.known:
        return f"{name} {tokens}"
    some = f" of the {scales.count(sums.known)} known" if sums.known < sums.tokens else ""
    return (
        f"{name} {tokens}, logprob{some} {logprob(sums.logprob)}, mean {logprob(sums.mean)}, "
        f"perplexity {perplexity(sums.perplexity)}"
    )


# ---- notes on a branch: its marks, and what became of its beam ----------------------------------


def beam_note(beam: BeamNode | None) -> tuple[str, bool]:
    """The outcome of a beam, and whether it fell out; empty where it went on.

    Args:
        beam: The last token of a branch, where a beam reached it.
    """
    if beam is None:
        return "", False
    if beam.rank is not None:
        return f"rank {beam.rank}" + ", greedy" * beam.greedy, False
    if beam.fell is not None:
        return f"pruned at step {beam.fell}", True
    words = {"live": "live", "finished": "finished", "left": "left when the search ended", "greedy": "greedy"}
    return words.get(beam.state, ""), False


def signs_of(mark: Marked) -> list[str]:
    """The signs of a bookmark and of a note."""
    return [sign for sign, present in ((STAR, mark.bookmarked), (NOTE, mark.note or mark.caption)) if present]


def inner_note(marks: Sequence[Marked]) -> str:
    """Marks further down in a branch: the signs and the name of one, how many there are of several."""
    if len(marks) > 1:
        return f"{len(marks)} marks in it"
    return " ".join(
        part
        for mark in marks
        for part in (*signs_of(mark), truncate(visible(mark.name), _NAME), "in it")
        if part
    )


# ---- the table ----------------------------------------------------------------------------------


class TreeRowState(Struct, frozen=True):
    """All that makes a row look as it does, but for width and theme."""

    layout: int
    first: int
    tokens: int
    known: int
    logprob: float
    cursor: bool
    reached: int
    """Number of the branch's tokens on the current path; -1 where the path doesn't end in the branch."""
    mark: Marked | None
    inner: str
    """In short: what it was made with beside the model and its sampler, the marks further down in it, drafts at its
    end that were not taken."""
    beam: str
    """The outcome of the beam that ends here, if one does."""
    grey: bool
    """True if it fell out."""


class TreeTable(ScrollView, Inked, can_focus=False):
    """One row a branch."""

    DEFAULT_CSS = """
    TreeTable {
        height: 1fr; overflow-x: hidden; scrollbar-gutter: stable;
        scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $foreground 18%;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """

    class RowClicked(Message):
        """A row was clicked."""

        def __init__(self, row: int, again: bool) -> None:
            self.row = row
            self.again = again
            """True if it was clicked twice, or the cursor was on it already."""
            super().__init__()

    class FoldClicked(Message):
        """The knot of a row that something hangs from was clicked."""

        def __init__(self, row: int) -> None:
            self.row = row
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.view = TreeView()
        self._timeline: Timeline | None = None
        self._strips: LRUCache[int, tuple[TreeRowState, Strip]] = LRUCache(_CACHED_ROWS)
        self._columns: tuple[BranchColumn, ...] = COLUMNS
        self._fitted = 0
        """Cells that the columns were chosen for."""
        self._layout, self._row = -1, -1
        self._inner: dict[int, list[Marked]] = {}
        self._marked: tuple[int, int] = (-1, -1)

    # ---- what is shown ----------------------------------------------------------------------

    def show(self, timeline: Timeline) -> None:
        """Show the tree's present state, and have the cursor in sight."""
        self._timeline = timeline
        self.view.look(timeline)
        if not self.is_attached or not self.size.area:
            return
        self._find_inner(timeline)
        if self.view.layout != self._layout:
            self._layout = self.view.layout
            self._strips.clear()
            count = self.view.count
            set_line_count(self, count + 1 if count else 0)
            self.refresh()
        else:
            self._refresh_changed()
        if self.view.row != self._row:
            self._row = self.view.row
            reveal(self, self.view.row)

    def _refresh_changed(self) -> None:
        """Have those rows in sight painted again that look different."""
        for y in range(1, self.size.height):
            row = self.scroll_offset.y + y - 1
            if row >= self.view.count:
                break
            kept = self._strips.get(row)
            if kept is None or kept[0] != self._look(row):
                self.refresh_line(self.scroll_offset.y + y)

    def _find_inner(self, timeline: Timeline) -> None:
        """Find the marks further down in each branch; costs the marks, where any changed."""
        marks = timeline.tree.marks
        if (marks.version, self.view.layout) == self._marked:
            return
        self._marked = marks.version, self.view.layout
        self._inner = {}
        for node, mark in marks.of.items():
            branch = self.view.holding(node)
            if branch is not None and branch.first != node:
                self._inner.setdefault(branch.first, []).append(mark)

    def restyle(self) -> None:
        """Every row looks different: another theme or width."""
        self._strips.clear()
        self._fitted = self.scrollable_size.width
        self._columns = fitting(self._fitted - _MARK, _LEAST_TEXT)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        if self.scrollable_size.width != self._fitted:
            self.restyle()
        self.on_show()

    def on_show(self) -> None:
        """Catch up with what happened while the panel was hidden."""
        if self._timeline is not None:
            self.show(self._timeline)
            reveal(self, self.view.row)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or at.y < 1 or (row := self.scroll_offset.y + at.y - 1) >= self.view.count:
            return
        foldable = row == self.view.fallen_row or bool(self.view.rows[row].children)
        knot = event.style.meta.get("knot") is not None and foldable
        again = event.chain > 1 or row == self.view.row
        self.post_message(self.FoldClicked(row) if knot else self.RowClicked(row, again))

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, base, timeline = self.scrollable_size.width, self.rich_style, self._timeline
        if timeline is None or not self.view.count:
            return strip_of(self._notice(y), width, base)
        if y == 0:
            return strip_of(self._head(width), width, base)
        row = self.scroll_offset.y + y - 1
        if row >= self.view.count:
            return Strip.blank(width, base)
        if row == self.view.fallen_row:
            return self._fallen(row == self.view.row, width)
        look, kept = self._look(row), self._strips.get(row)
        if kept is None or kept[0] != look:
            self._strips.discard(row)  # the cache keeps what it has under a key
            kept = self._strips[row] = look, self._strip(look, self.view.rows[row], width)
        return kept[1]

    def _notice(self, y: int) -> Row:
        texts = why_empty(self._timeline, "The branches of what is tried appear here.")
        if self.view.filter:
            texts = (
                f"No branch is {visible(self.view.filter.words())}.",
                f"Press esc to show all, {key_for('filter')} to change it.",
            )
        inks = (self.rich_style, self.ink("muted"))
        rows = centred(list(zip(texts, inks, strict=True)), self.scrollable_size.width, self.size.height)
        return rows[y] if y < len(rows) else []

    def _head(self, width: int) -> Row:
        text = " " * _MARK + pad("branch", self._room(width))
        text += "".join(pad(column.head, column.cells, right=True) for column in self._columns)
        return [Segment(text, self.ink("muted"))]

    def _room(self, width: int) -> int:
        """Cells of tree and text."""
        return max(1, width - _MARK - sum(column.cells for column in self._columns))

    def _look(self, row: int) -> TreeRowState:
        view, timeline = self.view, self._timeline
        assert timeline is not None
        branch = view.rows[row]
        depth = view.branches.depth
        ends = view.tip is not None and view.holding(timeline.tip) is branch
        reached = depth(timeline.tip) - depth(branch.first) + 1 if ends else -1
        beam, fell = beam_note(timeline.of(BeamHistory).nodes.get(branch.last))
        made = _made_with(timeline, branch)
        inner = inner_note(self._inner.get(branch.first, []))
        ghosts = timeline.of(Speculation).ghost_words(timeline.tip) if ends else ""
        return TreeRowState(
            view.layout, branch.first, branch.sums.tokens, branch.sums.known, branch.sums.logprob,
            row == view.row, reached, timeline.tree.marks.of.get(branch.first),
            " · ".join(filter(None, (made, inner, ghosts))), beam, fell and branch.first not in view.path,
        )  # fmt: skip

    def _fallen(self, cursor: bool, width: int) -> Strip:
        """The row of the beams that fell out."""
        count, shown = self.view.tree.fallen, self.view.show_fallen
        beams = f"{count:,} pruned beam{'s' * (count != 1)}"
        words = f"… {beams}, shown above: ← folds them" if shown else f"… {beams}: → shows them"
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if cursor else Style()
        knot = self._colour("muted") + Style.from_meta({"knot": 0})
        row = [Segment("▶ " if cursor else "  ", self._colour("accent")), Segment(words, knot)]
        return strip_of(row, width, self.rich_style + ground)

    def _strip(self, look: TreeRowState, branch: Branch, width: int) -> Strip:
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if look.cursor else Style()
        ground += self._colour("faint") if look.grey else Style()
        muted, room = self._colour("faint" if look.grey else "muted"), self._room(width)
        segments = [
            Segment("▶ " if look.cursor else "  ", self._colour("accent")),
            *self._tree(branch, look, room),
            *(
                Segment(pad(column.text(self.view.branches, branch), column.cells, right=True),
                        muted if column.head == "made" else Style())
                for column in self._columns
            ),
        ]  # fmt: skip
        return strip_of(segments, width, self.rich_style + ground)

    def _tree(self, branch: Branch, look: TreeRowState, room: int) -> Row:
        """Lines, knot, marks and text, in exactly `room` cells."""
        guides = self.view.guides(branch, room // 2)
        knot, ink = self._knot(branch, look)
        row = [
            Segment(guides[:-2], self._colour("muted")),
            Segment(guides[-2:], self._colour("accent" if branch.first in self.view.path else "muted")),
            Segment(knot + " ", self._colour(ink) + Style.from_meta({"knot": branch.first})),
            *self._marks(look, (room - cell_len(guides)) // 2),
        ]
        left = room - sum(segment.cell_length for segment in row)
        least = cell_len(self._text(branch, max(0, min(_TEXT, left // 3))))
        more = truncate(self._more(branch, look), max(0, left - least))
        left -= cell_len(more)
        text = self._text(branch, max(0, left))
        row += [Segment(text), Segment(more, self._colour("faint" if look.grey else "muted"))]
        return [*row, Segment(" " * (left - cell_len(text)))]

    def _more(self, branch: Branch, look: TreeRowState) -> str:
        """The notes behind the text: on marks, a beam, what is folded away, where in the branch the path ends."""
        folded = self.view.folded(branch)
        texts = [text for text in (look.inner, look.beam) if text]
        texts += [f"+{folded:,} branch{'es' * (folded != 1)}"] if folded else []
        if 0 <= look.reached < look.tokens:
            texts.append(f"at {look.reached:,} of {look.tokens:,}")
        return "".join(f" · {text}" for text in texts)

    def _knot(self, branch: Branch, look: TreeRowState) -> tuple[str, str]:
        """The sign of a branch, and its ink."""
        if self.view.folded(branch):
            return "▸", "accent" if branch.first in self.view.path else "muted"
        if look.reached >= 0:
            return TIP, "accent"
        return (ON_PATH, "accent") if branch.first in self.view.path else (OFF_PATH, "muted")

    def _marks(self, look: TreeRowState, most: int) -> Row:
        """Star, name and the sign of a note."""
        mark = look.mark or Marked(look.first)
        name = truncate(visible(mark.name), max(0, most))
        signs = " ".join(signs_of(mark))
        row = [Segment(signs + " ", self._colour("warn"))] if signs else []
        return row + ([Segment(name + " ", self._colour("accent") + Style(bold=True))] if name else [])

    def _text(self, branch: Branch, cells: int) -> str:
        branches = self.view.branches
        text = branches.text(branch, cells + 1)
        return truncate(token_label(text, branches[branch.first].raw), cells)

    def _colour(self, name: str) -> Style:
        """The colour of an ink alone, for a row that may have a ground of its own."""
        return Style(color=self.ink(name).color)


def _made_with(timeline: Timeline, branch: Branch) -> str:
    """The conditions of a branch's tokens, by the first and the last: all of them cost too much in each frame."""
    ends = [timeline.tree.nodes.get(node) for node in dict.fromkeys((branch.first, branch.last))]
    found = [
        {each.short: None for each in conditions(timeline.tree, item)} for item in ends if item is not None
    ]
    every = dict.fromkeys(words for each in found for words in each)
    return " · ".join(words if all(words in each for each in found) else f"partly {words}" for words in every)

"""The screen of the beam search: the form of its settings; the list, the tree and the text of the beams."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, HorizontalGroup, VerticalGroup
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Label, Static

from engine import protocol
from engine.errors import SettingsError
from engine.protocol import Step
from engine.settings import BEAM_SETTINGS, BeamSettings
from inspector.display import SPACE, pad, quoted, token_label, truncate, visible
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import milliseconds
from inspector.state.beams import BeamHistory, BeamNode, BeamSearch
from inspector.state.branches import ROOT
from inspector.state.timeline import Timeline
from inspector.tools.beams.control import BEAM_FORM, BEAM_SCREEN, BeamActions
from inspector.tools.beams.entries import (
    BeamEntry,
    Piece,
    beside_greedy,
    counts,
    entries,
    excerpt,
    follow,
    name_of,
    number,
    passing,
    pieces,
    settings_phrase,
    state_phrase,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import PanelCanvas, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the list -----------------------------------------------------------------------------------

_BAR = 6
_SHORT = 56
"""Cells of the list below which a state has one or two words."""
_HEADS = ("", "#", "score", "", "logprob", "tokens")
_FORMS = (
    (100, (2, 4, 9, _BAR + 2, 10, 8), 32),
    (70, (2, 4, 9, 0, 10, 0), 24),
    (_SHORT, (2, 3, 9, 0, 0, 0), 24),
    (0, (2, 3, 8, 0, 0, 0), 10),
)
"""Least width of the list, cells of the mark and of each figure, 0 for none, and most cells of the state."""


class BeamTable(PanelCanvas):
    """The list of beams and hypotheses after a step, with a cursor."""

    class BeamClicked(Message):
        """A beam was clicked."""

        def __init__(self, node: int) -> None:
            self.node = node
            super().__init__()

    entries: Sequence[BeamEntry] = ()
    place = 0
    _passing: Counter[int]
    _best = 0.0
    _top = 0
    _empty: Sequence[str] = ()

    def put(self, entries: Sequence[BeamEntry], place: int, title: str, note: str) -> None:
        """Show a list.

        Args:
            entries: Best first.
            place: Index of the one under the cursor.
            title: Title of the panel; printable, as is the note at its foot.
            note: Number of entries of each kind.
        """
        self.entries, self.place = entries, place
        self._passing = passing(entries)
        self._best = max((entry.last.score for entry in entries), default=0.0)
        self.title(Content(title), Content(note) if note else None)
        self.redraw()

    def explain(self, words: Sequence[str]) -> None:
        """Show why there is nothing and what to do; printable, the first line in bold."""
        self.entries, self._empty = (), words
        self.title(Content("Beams"))
        self.redraw()

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.entries:
            inks = ["strong", *("muted" for _ in self._empty[1:])]
            texts = [(text, self.ink(ink)) for text, ink in zip(self._empty, inks, strict=False)]
            return centred(texts, width, height)
        cells, most = next((cells, most) for least, cells, most in _FORMS if width >= least)
        states = [state_phrase(entry, width < _SHORT) for entry in self.entries]
        standing = min(most, max(map(cell_len, states)) + 2)
        names = "".join(pad(name, room, right=True) for name, room in zip(_HEADS, cells, strict=True) if room)
        head = [Segment(f"{names}  {pad('', standing)}text", self.ink("muted"))]
        rows = max(1, height - 1)
        self._top = max(0, min(self._top, self.place, len(self.entries) - rows), self.place - rows + 1)
        seen = range(self._top, min(self._top + rows, len(self.entries)))
        return [head, *(self._row(self.entries[n], cells, pad(states[n], standing - 2), width) for n in seen)]

    def _row(self, entry: BeamEntry, cells: Sequence[int], state: str, width: int) -> Row:
        chosen, good = entry is self.entries[self.place], self.ink("good")
        out = self.ink("faint") if entry.kind == "fell" else Style()
        figures = (
            ("▶ " if chosen else "  ", self.ink("accent")),
            (self._numbered(entry), out or self.ink("strong")),
            (number(entry.last.score, 4), out),
            (
                bar(likelihood(entry, self._best), _BAR),
                out or (good if entry.greedy else self.ink("primary")),
            ),
            (number(entry.last.total), out),
            (str(entry.last.length), out),
        )
        row = [
            Segment(pad(text, room, right=True), ink)
            for (text, ink), room in zip(figures, cells, strict=True)
            if room
        ]
        row.append(Segment(f"  {state}  ", out or (good if entry.kind == "finished" else self.ink("muted"))))
        for text, own in excerpt(pieces(entry, self._passing), width - Segment.get_line_length(row)):
            row.append(Segment(text, out or self.ink("strong" if own else "muted")))
        if not chosen:
            return row
        row.append(Segment(" " * (width - Segment.get_line_length(row))))
        return list(Segment.apply_style(row, post_style=Style(bgcolor=self.ink("row").bgcolor)))

    def _numbered(self, entry: BeamEntry) -> str:
        """Its place; a hypothesis is marked while it is below live beams, which have their own places."""
        if entry.place is None:
            return "✗" if entry.kind == "fell" else "·"
        mixed = entry.kind == "finished" and self.entries[0].kind == "live"
        return f"■{entry.place}" if mixed else str(entry.place)

    # ---- the mouse --------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that was clicked."""
        y = event.get_content_offset_capture(self).y
        if y > 0 and (place := y - 1 + self._top) < len(self.entries):
            self.post_message(self.BeamClicked(self.entries[place].node))


def likelihood(entry: BeamEntry, best: float) -> float:
    """The probability of a beam, set against one as long with the best score there is: 0 to 1.

    Of beams of one length it is the ratio of their probabilities; of others those of a lower score have less.
    """
    total, score = entry.last.total, entry.last.score
    if score == 0:
        return 1.0
    return math.exp(min(0.0, total - best * total / score))


# ---- the text of one beam -----------------------------------------------------------------------


class BeamTextPanel(PanelCanvas):
    """The text of the highlighted beam; the tokens that differ from the others are bold."""

    pieces: Sequence[Piece] = ()

    def put(self, pieces: Sequence[Piece], title: str) -> None:
        """Show a text, token by token; printable, as is the title."""
        self.pieces = pieces
        self.title(Content(title))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        lines = list(wrapped(self.pieces, width))
        if len(lines) > height > 0:
            lines = [[("… the end of it:", False)], *lines[1 - height :]] if height > 1 else lines[-1:]
        inks = {True: self.ink("strong"), False: self.ink("muted")}
        return [[Segment(text, inks[own]) for text, own in line] for line in lines]


def wrapped(pieces: Sequence[Piece], width: int) -> Iterator[list[Piece]]:
    """Lines of `width` cells at most, broken before a token that begins with a blank, and after a line's end."""
    line: list[Piece] = []
    for word in words(pieces):
        room = width - sum(cell_len(text) for text, _ in line)
        if line and sum(cell_len(text) for text, _ in word) > room:
            yield line
            line, word = [], [(word[0][0].lstrip(" "), word[0][1]), *word[1:]]
        line += word
        if word[-1][0].endswith("↵"):
            yield line
            line = []
    if line:
        yield line


def words(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Runs of tokens that belong on one line."""
    word: list[Piece] = []
    for piece in pieces:
        if word and (piece[0].startswith(" ") or word[-1][0].endswith("↵")):
            yield word
            word = []
        word.append(piece)
    if word:
        yield word


# ---- the tree -----------------------------------------------------------------------------------

WIDEST = 12
"""Cells of a token at most."""
JOIN = 2
"""Cells of the lines before a token."""
TAIL = 16
"""Cells kept free after the last column, for place and score."""
ENDED, FELL, UNFINISHED = "■", "✗", "‹…›"
"""An end-of-sequence token, a beam that fell out, a token that finishes no character."""


class BeamTree(PanelCanvas):
    """The last steps of the search as a tree that grows to the right: a column a step, a row for each beam's end."""

    beams: BeamHistory | None = None
    entries: Sequence[BeamEntry] = ()
    at, place = 0, 0
    _lines: Sequence[LatticeLine] = ()

    def put(self, beams: BeamHistory, entries: Sequence[BeamEntry], at: int, place: int) -> None:
        """Show the search after a step, with one beam highlighted."""
        self.beams, self.entries, self.at, self.place = beams, entries, at, place
        self.title(Content("Tree of the search"), Content("■ end token · ✗ pruned") if entries else None)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        self._lines = []
        if self.beams is not None and self.entries:
            node = self.entries[self.place].node
            self._lines = lattice(self.beams, self.entries, self.at, height, width, node)
        return [
            [Segment(text, self.ink(ink) if ink else Style()) for text, ink in bits]
            for bits, _ in self._lines
        ]

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that ends in the row that was clicked."""
        row = event.get_content_offset_capture(self).y
        if 0 <= row < len(self._lines) and (node := self._lines[row][1]) is not None:
            self.post_message(BeamTable.BeamClicked(node))


Bit = tuple[str, str]
"""A stretch of a row, and the name of its ink; empty for none."""
LatticeLine = tuple[list[Bit], int | None]
"""A row, and the last node of the beam that ends in it; None for the head of the columns."""


def lattice(
    beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int, cells: int, node: int
) -> list[LatticeLine]:
    """The lines of the tree that fit: the last steps, and the latest of the beams that fell out.

    Args:
        beams: Every token that a beam reached.
        entries: The list after the step, at least one.
        at: The step.
        rows: Lines available, with the head.
        cells: Cells of a line.
        node: Last node of the highlighted beam.
    """
    leaves = _leaves(beams, entries, at, max(1, rows - 1))
    if not leaves:
        return []
    first, widths = _window(leaves, at, cells)
    leaves = [leaf for leaf in leaves if leaf.last.length >= first]
    chosen = {beam.node for leaf in leaves if leaf.node == node for beam in leaf.path}
    through: dict[int, list[BeamEntry]] = defaultdict(list)
    tokens: dict[int, BeamNode] = {}
    for leaf in leaves:
        for beam in leaf.path[first - 1 :]:
            tokens[beam.node] = beam
            through[beam.node].append(leaf)
    families: dict[int, list[int]] = defaultdict(list)  # by the node that they grew from
    for token in tokens.values():
        if token.length > first:
            families[token.parent].append(token.node)
    roots = {leaf.path[first - 1].node for leaf in leaves}
    placed, ends = _rows(roots, families, through)

    # those that the window begins with are separate, unless the whole tree is in it
    alone = [[*roots]] if first == 1 else [[root] for root in roots]
    joins: dict[tuple[int, int], Bit] = {}
    for family in (*families.values(), *alone):
        own = {placed[each]: "accent" if each in chosen else "faint" for each in family}
        for row in range(min(own), max(own) + 1):
            joins[tokens[family[0]].length, row] = _join(row, sorted(own)), own.get(row, "faint")

    alive = sum(leaf.kind != "fell" for leaf in leaves)

    def ink(token: BeamNode) -> str:
        going = sum(leaf.kind != "fell" for leaf in through[token.node])
        if token.node in chosen:
            return "accent"
        if not going or (token.fell is not None and token.fell <= at):
            return "faint"
        return "muted" if going == alive > 1 else ""

    by_place = {(token.length, placed[token.node]): token for token in tokens.values()}
    lines: list[LatticeLine] = [(_head(widths), None)]
    for row, leaf in enumerate(ends):
        begins = "● " if first == 1 and row == 0 else "… " if first > 1 and (first, row) in by_place else "  "
        bits = [(begins, "faint")]
        for step in range(first, leaf.last.length + 1):
            bits.append(joins.get((step, row), (" " * JOIN, "faint")))
            beam_here = by_place.get((step, row))
            if beam_here is None:
                bits.append((" " * widths[step], "faint"))
                continue
            text = shown(beam_here)
            rest = widths[step] - cell_len(text)
            line = " " + "─" * (rest - 1) if beam_here.node in families else " " * rest
            bits.append((text + line, ink(beam_here)))
        lines.append(([*bits, *_end(leaf)], leaf.node))
    return lines


def _leaves(beams: BeamHistory, entries: Sequence[BeamEntry], at: int, rows: int) -> list[BeamEntry]:
    """Beams that are listed, then those that fell out before them, as many as there are rows."""
    leaves = list(entries)
    listed = {entry.node for entry in entries}
    for last in reversed(beams.fallen):
        if len(leaves) >= rows:
            break
        fell = beams.nodes[last].fell
        if fell is not None and fell <= at and last not in listed:
            leaves.append(BeamEntry("fell", None, tuple(beams.path(last))))
    on = {beam.node for leaf in leaves for beam in leaf.path[:-1]}
    ends = [leaf for leaf in leaves if leaf.node not in on]  # greedy decoding may continue one that fell
    return ends[:rows]


def _order(entry: BeamEntry) -> tuple[int, float]:
    """Sort key of a row: the best first, and last what fell out, the latest of that first."""
    return (1, -float(entry.fell or 0)) if entry.kind == "fell" else (0, -entry.last.score)


def _window(leaves: Sequence[BeamEntry], at: int, cells: int) -> tuple[int, dict[int, int]]:
    """The first step that is drawn, and the cells of each step's tokens: as many steps as fit, the last at least."""
    widths: dict[int, int] = {}
    last = max(leaf.last.length for leaf in leaves)
    room = cells - TAIL - JOIN
    for step in range(min(at, last), 0, -1):
        tokens = [leaf.path[step - 1] for leaf in leaves if leaf.last.length >= step]
        width = max(cell_len(shown(token)) for token in tokens) + 1
        room -= width + JOIN
        if widths and room < 0:
            break
        widths[step] = width
    return min(widths), widths


def shown(token: BeamNode) -> str:
    """A token in the tree, printable: its own blank before it parts it from the line."""
    if token.ends or not token.text:
        return ENDED if token.ends else UNFINISHED
    text = visible(token.text).rstrip(" ")
    return truncate(text or SPACE * len(token.text), WIDEST)


def _rows(
    roots: set[int], families: dict[int, list[int]], through: dict[int, list[BeamEntry]]
) -> tuple[dict[int, int], list[BeamEntry]]:
    """The row of each node, and the beam that ends in each row: the best one is drawn in a straight line.

    Args:
        roots: Nodes of the first step.
        families: Nodes by the one that they grew from.
        through: Beams by the nodes that they go through.
    """

    def best_last(nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: min(map(_order, through[node])), reverse=True)

    placed: dict[int, int] = {}
    ends: list[BeamEntry] = []
    waiting = best_last(roots)
    while waiting:
        node = waiting.pop()
        placed[node] = len(ends)
        ends += [leaf for leaf in through[node] if leaf.node == node][
            -1:
        ]  # greedy decoding may be a beam, too
        waiting += best_last(families.get(node, ()))
    return placed, ends


def _head(widths: dict[int, int]) -> list[Bit]:
    """The numbers of the steps."""
    bits = [("  ", "muted")]
    for step in sorted(widths):
        cells = JOIN + widths[step]
        label = f" {step}" if cells > len(str(step)) + 1 else ""
        bits.append(((" " * JOIN + label).ljust(cells), "muted"))
    return bits


def _join(row: int, rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return "──"
    if row == rows[0]:
        return "┬─"
    if row == rows[-1]:
        return "╰─"
    return "├─" if row in rows else "│ "


def _end(entry: BeamEntry) -> Iterator[Bit]:
    """The label behind a beam's last token."""
    if entry.kind == "fell":
        yield (f"{FELL} {entry.fell}", "faint")
        return
    if entry.place is not None:
        yield (f"{entry.place}", "strong")
        yield (f" {number(entry.last.score)}", "")
    if entry.kind == "left":
        yield ("not finished", "muted")
    if entry.greedy or entry.kind == "greedy":
        yield (" greedy", "primary")


_LEAST_BEGUN = 12
"""Cells of the text before the beams below which the token that they replace is described in fewer words."""

# ---- the settings -------------------------------------------------------------------------------

TYPED = ("width", "max_tokens", "length_penalty")
"""The settings that are typed, in the order of their fields."""


class Switch(Choice, inherit_bindings=False):
    """Off or on; up and down leave it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Before", show=False),
        Binding("right,space", "turn(1)", "Next", show=False),
    ]


class BeamForm(Container):
    """Asks for the settings of a search.

    Args:
        begin: Begins a search with them.
        id: Id of the widget.
    """

    def __init__(self, begin: Callable[[BeamSettings], None], id: str) -> None:
        super().__init__(id=id)
        self._begin = begin
        self._wrong: dict[str, str] = {}
        """Errors by setting."""

    def compose(self) -> ComposeResult:
        with HorizontalGroup(id="beam-fields"):
            for name in (*TYPED, "early_stopping"):
                with VerticalGroup(classes="beam-field", id=f"beam-box-{name}"):
                    yield Label(BEAM_SETTINGS[name].label, classes="field-label", markup=False)
                    yield (
                        SafeInput(id=f"beam-{name}")
                        if name in TYPED
                        else Switch(("off", "on"), id=f"beam-{name}")
                    )
        yield Remark(id="beam-remark")

    def _field(self, name: str) -> SafeInput:
        return self.query_one(f"#beam-{name}", SafeInput)

    def put(self, settings: BeamSettings) -> None:
        """Fill the fields."""
        self._wrong = {}
        with self.prevent(Input.Changed, Choice.Changed):
            for name in TYPED:
                self._field(name).value = f"{getattr(settings, name):g}"
                self._field(name).set_class(False, "-wrong")
            self.query_one("#beam-early_stopping", Switch).chosen = int(settings.early_stopping)
        self.query_one("#beam-remark", Remark).say(BEAM_SETTINGS["width"].help)

    def begin(self) -> None:
        """Put the cursor into the first field."""
        self._field("width").focus()

    # ---- its fields -------------------------------------------------------------------------

    def read(self) -> BeamSettings | None:
        """The settings in the fields; None while any of them is wrong."""
        values: dict[str, Any] = {}
        self._wrong = {}
        for name in TYPED:
            try:
                values[name] = BEAM_SETTINGS[name].parse(self._field(name).value)
            except SettingsError as error:
                self._wrong[name] = str(error)
            self._field(name).set_class(name in self._wrong, "-wrong")
        early = bool(self.query_one("#beam-early_stopping", Switch).chosen)
        return None if self._wrong else BeamSettings(**values, early_stopping=early)

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self.read()
        self._explain()

    @on(events.DescendantFocus)
    def _explain(self) -> None:
        """Explain the field that has the focus, or what is wrong."""
        focused = self.screen.focused
        name = (focused.id or "").removeprefix("beam-") if focused else ""
        wrong = self._wrong.get(name) or next(iter(self._wrong.values()), "")
        help = wrong or (BEAM_SETTINGS[name].help if name in BEAM_SETTINGS else "")
        self.query_one("#beam-remark", Remark).say(visible(help), bool(wrong))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.submit()

    def submit(self) -> None:
        """Begin a search if all fields are right; otherwise go to the first that isn't."""
        settings = self.read()
        if settings is not None:
            self._begin(settings)
            return
        self._field(next(iter(self._wrong))).focus()
        self._explain()


# ---- the search ---------------------------------------------------------------------------------

ABOUT = (
    "Several continuations at once, the best of them kept",
    "",
    "At each step every beam grows by every token.",
    "The search keeps as many as the width says, and prunes the others.",
    "The results are ranked beside greedy decoding.",
    "",
)
GO = next(each for each in BEAM_SCREEN.actions if each.id == "beams.go")
LOW, TALL = 22, 32
"""Rows from which the list is above the tree, and from which there is room for a beam's text too."""


class BeamScreen(View[int]):
    """Searches with beams; its result is the last node of the beam to go to, None to stay.

    Args:
        host: The main screen.
        control: The search and its settings.
    """

    TOOL: ClassVar[str] = "beams"
    ACTIONS: ClassVar[ActionTable] = BEAM_SCREEN
    MEASURES: ClassVar[str] = "A search"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (protocol.BeamStep, protocol.BeamEnded)

    form = getters.query_one("#beam-form", BeamForm)
    table = getters.query_one("#beam-table", BeamTable)
    reading = getters.query_one("#beam-reading", BeamTextPanel)
    lattice = getters.query_one("#beam-lattice", BeamTree)

    def __init__(self, host: MainScreen, control: BeamActions) -> None:
        super().__init__(host)
        self.control = control
        self.at: int | None = None
        """The step shown; None for the last one."""
        self.node: int | None = None
        """Last node of the highlighted beam; None for the best one."""
        self.listed: list[BeamEntry] = []
        self._place = 0
        self._view = 0
        self._rows = 0
        self._setting = False
        """True if the form was asked for; without a search it is there anyway."""

    def body(self) -> ComposeResult:
        yield BeamForm(self._begin, id="beam-form")
        yield Static(id="beam-asked")
        yield BeamTable(id="beam-table")
        yield BeamTree(id="beam-lattice")
        yield BeamTextPanel(id="beam-reading")
        yield Static(id="beam-against")

    def begin(self) -> None:
        """Begin with the settings if there is no search."""
        self.form.put(self.control.settings)
        self.control.beams.refused = None  # it was reported then
        if self.setting:
            self.after_paint(self.form.begin)

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The form's come first while it is shown."""
        return (BEAM_FORM, *super().tables)

    # ---- showing ----------------------------------------------------------------------------

    @property
    def setting(self) -> bool:
        """True if the form is shown: never in a replay, where nothing can be begun."""
        return (self._setting or self.control.search is None) and not self.recorded

    @property
    def step(self) -> int:
        """The step that is shown; 0 while there is none."""
        return self.steps if self.at is None else min(self.at, self.steps)

    @property
    def steps(self) -> int:
        """Number of steps of the search so far."""
        return len(self.control.search.steps) if self.control.search else 0

    def show(self) -> None:
        """Show everything, now."""
        if self.left or not self.screen.is_current:
            return
        beams, search, width = self.control.beams, self.control.search, self.area.width - 2
        self.listed = entries(beams, self.step) if self.step else []
        self._place, self.node = follow(self.listed, self.node, beams)
        self._arrange()
        if self.listed:
            ended = search is not None and search.ended is not None and self.step == self.steps
            title = "Ranking" if ended else f"Beams after step {self.step}"
            self.table.put(self.listed, self._place, title, counts(self.listed))
        else:
            self.table.explain((*ABOUT, self._advice()))
        self.lattice.put(beams, self.listed, self.step, self._place)
        if (entry := self.entry) is not None:
            self.reading.put(pieces(entry, passing(self.listed)), f"Text of {name_of(entry)}")
        settings = settings_phrase(search, width < 64) if search else ""
        self.query_one("#beam-asked", Static).update(Content(settings))
        against = beside_greedy(beams, entry, self.step) if entry else ""
        self.query_one("#beam-against", Static).update(Content(against))
        self.write(self._begun_after(width), failed=bool(self._failure()))

    def _advice(self) -> str:
        if self.recorded:
            return f"No step of one was recorded up to here. {self.needs_model}."
        if not self.setting:
            return "The first step is under way."
        return f"Press ⏎ to start, then {key_for('beams.step')} for one step, {key_for('beams.run')} to run."

    @property
    def entry(self) -> BeamEntry | None:
        """The highlighted beam."""
        return self.listed[self._place] if self.listed else None

    @property
    def views(self) -> tuple[frozenset[str], ...]:
        """The panels that `tab` goes through, at this size."""
        single = (frozenset({"list"}), frozenset({"tree"}), frozenset({"text"}))
        if self.room < LOW:
            return single
        return (frozenset({"list", "tree", "text"} if self.room >= TALL else {"list", "tree"}), *single[::-1])

    def _arrange(self) -> None:
        """Decide which panels are shown. The list never shrinks while one search is shown, so that nothing jumps."""
        view = self.views[self._view % len(self.views)] if self.listed else frozenset({"list"})
        self.form.display = self.setting
        if not self.setting and self.form.has_focus_within:
            self.screen.set_focus(None)  # a lesson began the search
        self.query_one("#beam-asked").display = not self.setting
        self.table.display, self.lattice.display = "list" in view, "tree" in view
        self.reading.display = "text" in view
        search = self.control.search
        over = search is not None and search.ended is not None and self.at is None
        self._rows = max(0 if over else self._rows, len(self.listed))
        most = max(6, self.room // 2 - 2)
        self.table.styles.height = min(self._rows + 3, most) if len(view) > 1 else "1fr"
        self.reading.styles.height = 6 if len(view) > 1 else "1fr"

    # ---- the lines around the panels --------------------------------------------------------

    def situation(self) -> str:
        """The state of the search, and the keys that matter."""
        search = self.control.search
        if self.recorded:
            return self._recorded(search)
        if failure := self._failure():
            return failure
        if self.setting or search is None:
            return "⏎ starts a search with these settings"
        if self.at is not None:
            return f"Looking at step {self.at} of {self.steps}. end goes back to the last one"
        if search.ended is None:
            return self._under_way(search)
        why = "max tokens" if search.ended.reason == "length" else "what finished is good enough"
        over = f"Over after {search.ended.steps} steps, {milliseconds(search.ended.ms)}: {why}"
        goes = "⏎ goes to the highlighted beam, " if self.keeps(GO) else ""  # or continues with a lesson
        return f"{over}. {goes}{key_for('beams.new')} sets up another search"

    def _failure(self) -> str:
        """The failure by which no search was begun, or by which the one that is shown broke off; empty for none."""
        beams = self.control.beams
        what, failure = "No search was begun", beams.refused
        if failure is None and beams.search is not None and not self.setting:
            what, failure = "The search broke off", beams.search.failure
        if failure is None or self.recorded:
            return ""
        return visible(f"{what}: {failure.message} {failure.hint}".strip())

    def _recorded(self, search: BeamSearch | None) -> str:
        if search is None:
            return f"No search was recorded up to here. {self.needs_model}"
        if self.at is not None:
            return f"Recorded, at step {self.at}. {self.needs_model}"
        over = ", over" if search.ended is not None else ""
        return f"Recorded, step {self.steps} of at most {search.opened.max_tokens}{over}. {self.needs_model}"

    def _under_way(self, search: BeamSearch) -> str:
        step, most = self.steps, search.opened.max_tokens
        if self.control.running:
            return f"Searching: step {step} of at most {most}. {key_for('beams.step')} pauses"
        if search.step is None:
            return "Beginning"
        alone = "" if search.step.live else " Only greedy decoding continues."
        note = f" {visible(search.opened.note)}" if search.opened.note else ""
        cost = milliseconds(search.step.ms)
        keys = f"{key_for('beams.step')} steps, {key_for('beams.run')} runs to the end"
        return f"Step {step} of at most {most}, {cost}.{alone} {keys}.{note}"

    def _begun_after(self, width: int) -> Content:
        """The text after which beams begin, or began: the part of its end that fits."""
        timeline, search = self.host.controller.timeline, self.control.search
        node = self.control.start if self.setting or search is None else search.opened.node
        head, tail = (
            ("Beams begin after ", _replaced(timeline)) if self.setting else ("Beams began after ", "")
        )
        if width - cell_len(head) - cell_len(tail) < _LEAST_BEGUN:
            tail = tail.partition(", step")[0]
        text = Content(_end_of(timeline, node, width - cell_len(head) - cell_len(tail) - 1))
        mark, instead = Content.styled("▌", "$primary"), Content.styled(tail, "$text-warning")
        return Content.styled(head, "bold") + text + mark + instead

    # ---- searching --------------------------------------------------------------------------

    def _begin(self, settings: BeamSettings) -> None:
        self.control.begin(settings)
        self._setting, self.at, self.node, self._rows = False, None, None, 0
        self.screen.set_focus(None)
        self.say()

    def set_up(self) -> None:
        """Set up another search."""
        self._setting = True
        self.after_paint(self.form.begin)

    def step_replay(self) -> None:
        """As on every screen; at an older step of the search it walks forward, as `take_step` does."""
        if self.at is not None:
            self.look(1)
        else:
            super().step_replay()

    def take_step(self) -> None:
        """Take a step, walk forward at an older one, or pause."""
        if self.at is not None:
            self.look(1)
        else:
            self._advance(1)

    def run_search(self) -> None:
        """Search to the end, or pause."""
        self.at = None
        self._advance(None)

    def _advance(self, steps: int | None) -> None:
        """Take so many steps, all if None, or pause; say why if nothing can be done."""
        self.control.advance(steps)
        search = self.control.search
        over = search is not None and search.over and not self.control.requests
        self.say(f"This search is over. Press {key_for('beams.new')} to set up another one" if over else "")

    # ---- looking ----------------------------------------------------------------------------

    def highlight(self, by: int) -> None:
        """Highlight another beam."""
        if self.listed:
            place = max(0, min(len(self.listed) - 1, self._place + by))
            self.node = self.listed[place].node if place else None

    @on(BeamTable.BeamClicked)
    def _pointed(self, message: BeamTable.BeamClicked) -> None:
        if self.entry is not None and message.node == self.entry.node:
            self.go()
        elif any(entry.node == message.node for entry in self.listed):
            self.node = message.node
            self.say()

    def look(self, by: int) -> None:
        """See the search as it was some steps before or after."""
        at = max(1, min(self.steps, self.step + by))
        self.at = at if at < self.steps else None

    def to_last(self) -> None:
        """Show the last step of the search."""
        self.at = None

    def turn(self, by: int) -> None:
        """Change between list, tree and text; among the settings, go to another field."""
        if not self.setting:
            self._view += by
        else:
            self.screen.focus_next() if by > 0 else self.screen.focus_previous()

    # ---- leaving ----------------------------------------------------------------------------

    def go(self) -> None:
        """Leave for the highlighted beam."""
        if self.entry is not None:
            self.control.pause()
            self.dismiss(self.entry.node)

    def leave(self) -> None:
        """Leave the settings for the search that there is, or pause it and go back."""
        if self.setting and self.control.search is not None:
            self._setting = False
            self.screen.set_focus(None)
            return
        self.control.pause()
        self.dismiss(None)


def _replaced(timeline: Timeline) -> str:
    """The older token that the beams would replace; empty for none."""
    item = timeline.selected
    if timeline.following or item is None or timeline.before == ROOT:
        return ""
    what = f"step {item.index + 1}" if isinstance(item, Step) else f"prompt token {timeline.slot + 1}"
    return f" in place of {quoted(token_label(item.text, item.raw))}, {what}"


def _end_of(timeline: Timeline, node: int, cells: int) -> str:
    """The end of a path's text as far as it fits, in whole tokens."""
    end, room = "", cells - 1
    while (item := timeline.tree.nodes.get(node)) is not None:
        text = visible(item.text)
        if cell_len(text) > room:
            return "…" + end
        end, room, node = text + end, room - cell_len(text), timeline.tree.parent[node]
    return end

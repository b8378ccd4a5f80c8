"""The screen of contributions: what each part of the model adds to a logit, or to the difference of two."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import Attribute, AttributedToken, AttributionRead, Command
from inspector.display import pad, quoted, token_label, visible
from inspector.keys import with_keys
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import count, percent, signed
from inspector.session.requests import Replies
from inspector.state.attribution import (
    ContributionRow,
    head_rows,
    heads_of,
    label_of,
    rows_of,
    told_here,
)
from inspector.tools.attribution.control import ATTRIBUTION_SCREEN, AttributionChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import AXIS, Spread, bar_texts, spread

BRIEF = 76
"""Cells of a screen below which the heading is short."""


class AttributionScreen(InsideScreen[AttributionRead]):
    """Takes a logit apart.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "attribution"
    ACTIONS: ClassVar[ActionTable] = ATTRIBUTION_SCREEN

    def __init__(self, host: Host, answers: Replies[AttributionRead], choices: AttributionChoices) -> None:
        super().__init__(host, answers)
        self._choices = choices
        self._made: tuple[tuple[AttributionRead, frozenset[int], bool], list[ContributionRow]] | None = None

    @property
    def choices(self) -> AttributionChoices:
        """The choices at the present token."""
        return self._choices.at(self.timeline)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        tokens = self.asked
        return (self.node, tokens), Attribute(self.node, tokens)

    @property
    def asked(self) -> tuple[int, ...]:
        """The tokens of the question: those that are wanted, in a recording others where it has only those."""
        return self._recorded() or self.tokens

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token whose logit is wanted, and the one that it is compared with."""
        return self.choices.tokens(self.timeline)

    def _recorded(self) -> tuple[int, ...]:
        """In a recording, where the tokens that are wanted were not asked for, those that were."""
        if not self.host.controller.transport.recorded or self.answers.get((self.node, self.tokens)):
            return ()
        pairs = [key[1] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
        here = told_here(self.timeline, [pair[0] for pair in pairs])
        chosen = self.choices.token is not None or self.choices.against is not None
        return () if chosen else next((pair for pair in reversed(pairs) if pair[0] in here), ())

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: AttributionRead | None) -> str:
        names = [self._label(id) for id in self.asked]
        if self.area.width < BRIEF:
            return " − ".join(names) or "Contributions"
        if len(names) == 2:
            return f"Why {quoted(names[0])} rather than {quoted(names[1])}: what each part adds to the difference"
        return f"What each part adds to the logit of {quoted(names[0])}" if names else "Contributions"

    def _label(self, id: int) -> str:
        told = self.answer.tokens if self.answer is not None else ()
        return label_of(self.timeline, id, ((each.id, each.text) for each in told))

    def draw(self, answer: AttributionRead, on: Canvas, width: int, height: int) -> list[Row]:
        rows = self._rows(answer)
        return Chart(answer, rows, self._at(rows), self.choices.by_size, on).draw(width, height)

    def _rows(self, answer: AttributionRead) -> list[ContributionRow]:
        """The rows in their order, made again where something changed: large models have thousands of heads."""
        made_of = answer, frozenset(self.choices.unfolded), self.choices.by_size
        if self._made is None or self._made[0][0] is not answer or self._made[0][1:] != made_of[1:]:
            self._made = made_of, rows_of(*made_of)
        return self._made[1]

    def _at(self, rows: Sequence[ContributionRow]) -> int:
        """Place of the row that is looked at; of a head that was folded its attention's."""
        keys, wanted = [row.key for row in rows], self.choices.row
        for key in (wanted, (wanted[0], None) if wanted else None):
            if key in keys:
                return keys.index(key)
        own = list(range(len(rows)))
        if wanted is None and self.choices.layer is not None and (answer := self.answer) is not None:
            own = [at for at in own if answer.parts[rows[at].part].layer == self.choices.layer] or own
        return max(own, key=lambda at: abs(rows[at].value), default=0)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another part."""
        if (answer := self.answer) is not None and (rows := self._rows(answer)):
            self.choices.row = rows[max(0, min(len(rows) - 1, self._at(rows) + by))].key

    @property
    def has_heads(self) -> bool:
        """True if what is looked at is an attention whose heads are known, or one of them."""
        answer = self.answer
        rows = self._rows(answer) if answer is not None else []
        return bool(answer and rows and heads_of(answer, answer.parts[rows[self._at(rows)].part]))

    def unfold(self) -> None:
        """Show the heads of the attention that is looked at, or fold them."""
        if (answer := self.answer) is None or not (rows := self._rows(answer)):
            return
        row = rows[self._at(rows)]
        if self.has_heads:
            self.choices.unfolded ^= {row.part}
            self.choices.row = row.key
        else:
            self.say("This part has no heads: ↑↓ goes to an attention, which has some")

    def unfold_all(self) -> None:
        """Show the heads of every attention; where they are shown, fold them."""
        if (answer := self.answer) is not None:
            every = {place for place, part in enumerate(answer.parts) if heads_of(answer, part)}
            self.choices.unfolded = set() if every <= self.choices.unfolded else every

    def sort(self) -> None:
        """Sort by size, or in the order of the layers."""
        self.choices.by_size = not self.choices.by_size

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone


# ---- bars around zero ---------------------------------------------------------------------------

NUMBER = 7
"""Cells of a number: `−123.45`."""
RUNNING, TRACK = 56, 100
"""Cells of a view from which on the running sum is a column of numbers, and of dots beside them."""
TRACK_CELLS = 22
ROOMY = 12
"""Rows of a view from which on it has more than bars and their sum."""
HEADS = 4
"""Heads of an attention that the line in words names."""
WORDS = 2
"""Lines that it has."""
DIRECT = (
    "Direct effect alone: what a part does through later layers is in their bars. "
    "Switching it off, {interventions}, shows the total effect."
)
SHORT = {"attention": "attn", "embedding": "embed", "recurrence": "recur"}
"""Words of a narrow view."""


def plain(value: float) -> str:
    """Logits without a plus: `13.95`, `−2.14`."""
    return signed(value).removeprefix("+")


def label(token: AttributedToken) -> str:
    """A token by itself, printable."""
    return token_label(token.text)


class BarColumns(Struct, frozen=True):
    """Cells of the columns of one view, and what its bars and dots are measured by."""

    width: int
    names: int
    to: Spread
    running: int
    """Of the running sum, 0 for none."""
    track: int
    """Of its dots, 0 for none."""
    low: float
    high: float
    """Between which the running sum stays, zero included."""

    @property
    def rest(self) -> int:
        """Cells right of the first two columns."""
        return self.width - self.names - NUMBER - 2


class Chart:
    """The bars of one answer, a row a writer, with what they sum to.

    Args:
        read: The answer.
        rows: In the order in which they are shown.
        at: Place of the row that is looked at.
        by_size: Whether they are sorted: then there is no running sum.
        on: Where it is drawn.
    """

    def __init__(
        self, read: AttributionRead, rows: Sequence[ContributionRow], at: int, by_size: bool, on: Canvas
    ) -> None:
        self.read, self.rows, self.at, self.by_size, self.on = read, rows, at, by_size, on
        self._muted = on.ink("muted")

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows that fit, the one looked at among them.

        Args:
            width: Cells.
            height: Rows.
        """
        form, roomy, tall = self._columns(width), height >= ROOMY, height >= 2 * ROOMY
        above: list[Row] = [self._tokens(width), *[[] for _ in range(tall)]] if roomy else []
        below = [*[[] for _ in range(tall)], *self._below(width)] if roomy else []
        room = max(1, height - len(above) - len(below) - 2)
        top = max(0, min(self.at - room * 2 // 3, len(self.rows) - room))
        shown = range(top, min(len(self.rows), top + room))
        rows = [self._row(place, form) for place in shown]
        return [*above, self._head(form, shown), *rows, self._total(form), *below]

    def _columns(self, width: int) -> BarColumns:
        running = NUMBER + 2 if width >= RUNNING and not self.by_size else 0
        track = TRACK_CELLS if width >= TRACK and not self.by_size else 0
        longest = max((cell_len(self._label(row, width)) for row in self.rows), default=0)
        names = min(max(longest, len("= sum")) + 2, width // 2)
        bars = max(4, width - names - NUMBER - 2 - running - (track + 1 if track else 0))
        sums = [0.0, *[row.after for row in self.rows if row.after is not None]]
        to = spread([row.value for row in self.rows], bars)
        return BarColumns(width, names, to, running, track, min(sums), max(sums))

    def _label(self, row: ContributionRow, width: int) -> str:
        if row.within and not self.by_size:
            return ("└ " if row.last else "├ ") + row.name.partition(" ")[2]
        first, _, word = row.name.rpartition(" ")
        return f"{first} {SHORT.get(word, word)}".strip() if width < RUNNING else row.name

    # ---- rows -----------------------------------------------------------------------------------

    def _tokens(self, width: int) -> Row:
        """Which logits they are; the longest way that fits."""
        ink, tokens = (self._side(True), self._side(False)), self.read.tokens
        for length in (3, 2, 1):
            row: Row = []
            for place, token in enumerate(tokens):
                row += [
                    Segment("   against   " if place else "", self._muted),
                    Segment(quoted(label(token)), ink[place] + Style(bold=True)),
                    Segment(" " + ", ".join(_facts(token)[:length]), self.on.rich_style),
                ]
            if sum(cell_len(part.text) for part in row) <= width:
                break
        return row

    def _head(self, form: BarColumns, shown: range) -> Row:
        every = len(self.rows)
        part = "part" if len(shown) == every else f"{shown.start + 1}-{shown.stop} of {every}"
        logits = "logits".rjust(NUMBER) + "  "
        if cell_len(part) + 2 > form.names:  # then there is room in the column beside it
            part, logits = f"  {part}", ""
            head = pad(part, form.names + NUMBER + 2)
        else:
            head = pad(f"  {part}", form.names) + logits
        names = [label(token) for token in self.read.tokens]
        lowers = [f"for {names[1]} ◂", f"{names[1]} ◂"] if len(names) == 2 else ["lowers it ◂"]
        raises = [f"▸ for {names[0]}", f"▸ {names[0]}"] if len(names) == 2 else ["▸ raises it"]
        left, right = (
            _fitting(texts, cells) for texts, cells in ((lowers, form.to.left), (raises, form.to.right))
        )
        after = "so far".rjust(form.running) if form.running else ""
        return [
            Segment(head, self._muted),
            Segment(pad(left or "◂", form.to.left, True), self._side(False)),
            Segment(AXIS, self._muted),
            Segment(pad(right or "▸", form.to.right), self._side(True)),
            Segment(after, self._muted),
        ]

    def _row(self, place: int, form: BarColumns) -> Row:
        row = self.rows[place]
        within = row.within and not self.by_size
        left, right = bar_texts(row.value, within, form.to)
        name = pad(("▶ " if place == self.at else "  ") + self._label(row, form.width), form.names)
        value = signed(row.value).rjust(NUMBER)
        made: Row = [
            Segment(f"{name}{value}  ", self._muted if within else self.on.rich_style),
            Segment(left, self._side(False)),
            Segment(AXIS, self._muted),
            Segment(right, self._side(True)),
        ]
        if form.running and row.after is not None:
            made.append(Segment(plain(row.after).rjust(form.running), self._muted))
            made += [Segment(f" {self._dot(row.after, form)}", self.on.rich_style)] if form.track else []
        if place != self.at:
            return made
        ground = Style(bgcolor=self.on.ink("row").bgcolor)
        made.append(Segment(" " * max(0, form.width - sum(cell_len(each.text) for each in made))))
        return [Segment(each.text, (each.style or Style()) + ground) for each in made]

    def _dot(self, after: float, form: BarColumns) -> str:
        """The place of the sum once a part has written, between its least and its largest value."""
        extent = form.high - form.low
        at, zero = (
            round((value - form.low) / extent * (form.track - 1)) if extent > 0 else 0
            for value in (after, 0.0)
        )
        return "".join("●" if place == at else "┊" if place == zero else " " for place in range(form.track))

    # ---- the sum, and words -----------------------------------------------------------------------

    def _total(self, form: BarColumns) -> Row:
        strong = self.on.ink("strong")
        head = pad("= sum", form.names) + plain(self.read.total).rjust(NUMBER) + "  "
        return [Segment(head, strong), Segment(_fitting(self._sums(), form.rest), strong)]

    def _sums(self) -> Sequence[str]:
        """Sentences on the sum of the parts, the longest first."""
        read, capped = self.read, self.read.softcap
        reached, before, short = (
            plain(read.reached),
            " before its softcap" if capped else "",
            "before the softcap",
        )
        if len(read.tokens) != 2:
            after = f", {plain(read.tokens[0].logit)} after it" if capped else ""
            said = f"sums to {plain(read.total)}, the logit{before} is {reached}"
            return f"{said}{after}", said, f"{short if capped else 'the logit'}: {reached}", reached
        before = " before their softcap" if capped else ""
        said = f"the logits{before} differ by {reached}"  # their own numbers are above: rounded, they may not subtract
        return (
            f"sums to {plain(read.total)}, {said}",
            said,
            f"{short if capped else 'the logits'}: {reached}",
            reached,
        )

    def _below(self, width: int) -> list[Row]:
        """The row that is looked at in words; what is not in the bars."""
        counts = range(HEADS, -1, -1)
        forms = [wrapped(self._in_words(heads), width) for heads in counts] if self.rows else [[]]
        lines = next((form for form in forms if len(form) <= WORDS), forms[-1][:WORDS])
        quiet = [
            line
            for text in (*map(visible, self.read.notes), with_keys(DIRECT))
            for line in wrapped(text, width)
        ]
        return [
            *[[Segment(line, self.on.rich_style)] for line in lines],
            *[[Segment(line, self._muted)] for line in quiet],
        ]

    def _in_words(self, most: int) -> str:
        """The row that is looked at: what it adds to each token, and as many of its heads at most."""
        row, tokens = self.rows[self.at], self.read.tokens
        pairs = zip(row.logits, tokens, strict=True)
        adds = ", ".join(f"{signed(value)} to {quoted(label(token))}" for value, token in pairs)
        between = f"; the difference {signed(row.value)}" if len(tokens) == 2 else ""
        heads = sorted(head_rows(self.read, row), key=lambda head: -abs(head.value)) if not row.within else []
        strongest = ", ".join(f"{head.name.partition(' ')[2]} {signed(head.value)}" for head in heads[:most])
        return f"{row.name}: {adds}{between}." + (f" Heads: {strongest}." if strongest else "")

    def _side(self, raises: bool) -> Style:
        """The ink of a direction."""
        return self.on.ink("primary" if raises else "warn")


def _facts(token: AttributedToken) -> tuple[str, ...]:
    """The figures of a token, the most important first."""
    return percent(token.prob), f"logit {plain(token.logit)}", f"rank {count(token.rank)}"


def _fitting(texts: Sequence[str], cells: int) -> str:
    """The first text that fits; empty where none does."""
    return next((text for text in texts if cell_len(text) <= cells), "")

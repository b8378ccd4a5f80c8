"""The screen of positions: how the position of a token is handled, what was tried, candidates before and after."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import Command, PositionTried, PositionUse, TokenShift
from inspector.display import pad, token_label
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import left_over, percent
from inspector.session.requests import Replies
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionChoices
from inspector.tools.positions.trials import LATER, PositionTrial, facts_line, trials
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

NARROW, ROOMY = 50, 68
"""Cells from which on there is room for whole words, and beside them for all figures."""
LISTED = 6
"""Candidates at least, where there is room for them."""
Tried = tuple[PositionTrial, PositionTried | None, bool]
"""A trial, its answer, and whether there will be none."""


# ---- the page -----------------------------------------------------------------------------------


def page(
    on: Canvas,
    rows: Sequence[Tried],
    chosen: int,
    use: PositionUse,
    instead: Sequence[tuple[str, Style]],
    width: int,
    height: int,
) -> list[Row]:
    """All of it.

    Args:
        on: Where it is drawn.
        rows: What was tried.
        chosen: The row that is looked at.
        use: How the token is given its position.
        instead: What is said where that row has no answer.
        width: Cells.
        height: Rows.
    """
    trial, answer, _ = rows[chosen]
    said: list[Row] = [[Segment(line)] for line in wrapped(facts_line(use, width < NARROW), width)]
    table = _table(on, rows, chosen, width)[height <= len(rows) :]
    words: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(trial.words(use), width)]
    if answer is None:
        lines = [(line, style) for text, style in instead for line in wrapped(text, width)]
        words = [[Segment(line, style)] for line, style in lines]
    gap: list[Row] = [[]] if height >= len(said) + len(table) + len(words) + LISTED + 4 else []
    room = height - len(said) - len(table) - len(words) - 2 - 3 * len(gap)
    tokens = answer.tokens if answer is not None else ()
    listed = [*_candidates(on, tokens[: max(3, min(len(tokens), room))], width), *gap] if tokens else []
    if width < NARROW:
        return [*(said if height > len(table) else []), *table, *listed, *words]
    return [*said, *gap, *table, *gap, *listed, *words]


def _table(on: Canvas, rows: Sequence[Tried], chosen: int, width: int) -> list[Row]:
    short = width < ROOMY
    figures = 14 if short else 38
    name = width - figures - 2
    head = f"{'logit':>7}{'KL':>7}" if short else f"{'logit moved':>12}{'KL bits':>9}{'likeliest':>17}"
    table: list[Row] = [[Segment(pad("  What if", name + 2) + head, on.ink("muted"))]]
    for index, (trial, answer, over) in enumerate(rows):
        here = index == chosen
        style = on.ink("accent") if here else on.rich_style
        row: Row = [
            Segment("▸ " if here else "  ", style),
            Segment(pad(trial.label(width < NARROW), name), style),
        ]
        table.append([*row, *_figures(on, answer, over, short, style)])
    return table


def _figures(on: Canvas, answer: PositionTried | None, over: bool, short: bool, style: Style) -> Row:
    if answer is None:
        return [Segment(f"{'not here' if over else '…':>12}", on.ink("muted"))]
    logit = (
        f"{answer.largest_change:.2f}" if answer.largest_change >= 0.005 else f"{answer.largest_change:.0e}"
    )
    if short:
        return [Segment(f"{logit:>7}{answer.kl_bits:>7.3f}", style)]
    first = min(answer.tokens, key=lambda token: token.rank_after)
    likeliest = f"{pad(token_label(first.text), 8, right=True)} {percent(first.after):>8}"
    return [Segment(f"{logit:>12}{answer.kl_bits:>9.3f}{likeliest}", style)]


def _candidates(on: Canvas, tokens: Sequence[TokenShift], width: int) -> list[Row]:
    """Candidates before and after, each with its bar."""
    label = min(12, max((cell_len(token_label(token.text)) for token in tokens), default=0))
    length = max(0, (width - label - 2) // 2 - 12)
    length = min(30, length) if length >= 4 else 0
    each = length + 11
    head = f"{pad('', label + 2)}{pad('  before', each)} {pad('  after', each)}"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for token in tokens:
        moved = (
            "↑"
            if token.rank_after < token.rank_before
            else "↓"
            if token.rank_after > token.rank_before
            else " "
        )
        row: Row = [Segment(f"  {pad(token_label(token.text), label)}")]
        for prob, mark in ((token.before, " "), (token.after, moved)):
            row += [Segment(f"{percent(prob):>8} "), Segment(f"{mark} ", on.ink("accent"))]
            row.append(Segment(bar(prob, length) + " ", on.data(prob)))
        rows.append(row)
    left = (left_over(token.before for token in tokens), left_over(token.after for token in tokens))
    rest = "".join(pad(f"{percent(share):>8}", each + 1) for share in left)
    return [*rows, [Segment(f"  {pad('others', label)}{rest}", on.ink("muted"))]]


# ---- the screen ---------------------------------------------------------------------------------


class PositionsScreen(InsideScreen[PositionTried]):
    """A token's position, and what wrong ones do.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "positions"
    ACTIONS: ClassVar[ActionTable] = POSITIONS_SCREEN

    def __init__(self, host: Host, answers: Replies[PositionTried], choices: PositionChoices) -> None:
        super().__init__(host, answers)
        self.choices = choices

    # ---- asking ---------------------------------------------------------------------------------

    def _trials(self) -> list[PositionTrial]:
        after = self.timeline.items[self.timeline.slot :][:LATER]
        until = after[-1].node if after else None
        return trials(len(self.path) - 1, self.choices.offsets, len(after), until)

    def question(self) -> tuple[Hashable, Command]:
        return self._trials()[self.choices.row].question(self.node)

    def ask(self) -> None:
        """See `InsideScreen`; the chosen row first, then the others."""
        every = self._trials()
        for trial in (every[self.choices.row], *every):
            key, question = trial.question(self.node)
            if self.answers.get(key) is None and self.answers.failure(key) is None:
                self.answers.want(key, question)
                return

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: PositionTried | None) -> str:
        return "What if the token stood elsewhere"

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The table as soon as one of its rows has an answer: the chosen one may have none."""
        known = next((answer for _, answer, _ in self._tried() if answer is not None), None)
        return self.draw(known, on, width, height) if known is not None else super()._draw(on, width, height)

    def draw(self, answer: PositionTried, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideScreen`; of any answer about the token."""
        rows = self._tried()
        instead = self._instead(on) if rows[self.choices.row][1] is None else ()
        return page(on, rows, self.choices.row, answer.use, instead, width, height)

    def _tried(self) -> list[Tried]:
        """Every trial, with its answer where that passed its checks, and whether there will be none."""
        rows: list[Tried] = []
        for trial in self._trials():
            key, _ = trial.question(self.node)
            found = self.answers.get(key)
            passed = found is not None and found.facts.failed is None
            over = self.answers.failure(key) is not None or (found is not None and not passed)
            rows.append((trial, found if passed else None, over))
        return rows

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another row."""
        self.choices.row = max(0, min(len(self.choices.offsets) + 1, self.choices.row + by))

    def shift(self, by: int) -> None:
        """Change the offset of the row, where it isn't given."""
        at = self.choices.row - 1
        if 0 <= at < len(self.choices.offsets):
            self.choices.offsets[at] += by

"""The screen of positions: how the position of a token is handled, what was tried, candidates before and after."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import Command, PositionTried, TokenShift
from inspector.display import pad, token_label
from inspector.main.inside.screen import InsideScreen
from inspector.scales import left_over, percent
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionsActions
from inspector.tools.positions.trials import LATER, PositionTrial, facts_line, trials
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, paragraph
from inspector.widgets.charts import bar

NARROW, ROOMY = 50, 68
"""Cells from which on there is room for whole words, and beside them for all figures."""
LISTED = 6
"""Candidates at least, where there is room for them."""
Tried = tuple[PositionTrial, PositionTried | None, bool]
"""A trial, its answer, and whether there will be none."""


class PositionsScreen(InsideScreen[PositionTried]):
    """A token's position, and the effect of wrong ones.

    Args:
        tool: Has what is chosen, and the answers.
    """

    TOOL: ClassVar[str] = "positions"
    ACTIONS: ClassVar[ActionTable] = POSITIONS_SCREEN

    def __init__(self, tool: PositionsActions) -> None:
        super().__init__(tool.host, tool.answers)
        self.tool = tool

    # ---- asking ---------------------------------------------------------------------------------

    def _trials(self) -> list[PositionTrial]:
        after = self.timeline.items[self.timeline.slot :][:LATER]
        until = after[-1].node if after else None
        return trials(len(self.path) - 1, self.tool.offsets, len(after), until)

    def question(self) -> tuple[Hashable, Command]:
        return self._trials()[self.tool.row].question(self.node)

    def ask(self) -> None:
        """See `InsideScreen`; the chosen row first, then the others."""
        every = self._trials()
        for trial in (every[self.tool.row], *every):
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
        rows, use = self._tried(), answer.use
        trial, own, _ = rows[self.tool.row]
        said = paragraph(None, width, facts_line(use, width < NARROW))
        table = _table(on, rows, self.tool.row, width)[height <= len(rows) :]
        if own is not None:
            words = paragraph(on.ink("muted"), width, trial.words(use))
        else:
            words = [row for text, style in self._instead(on) for row in paragraph(style, width, text)]
        gap: list[Row] = [[]] if height >= len(said) + len(table) + len(words) + LISTED + 4 else []
        room = height - len(said) - len(table) - len(words) - 2 - 3 * len(gap)
        tokens = own.tokens if own is not None else ()
        listed = [*_candidates(on, tokens[: max(3, min(len(tokens), room))], width), *gap] if tokens else []
        if width < NARROW:
            return [*(said if height > len(table) else []), *table, *listed, *words]
        return [*said, *gap, *table, *gap, *listed, *words]

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
        self.tool.row = max(0, min(len(self.tool.offsets) + 1, self.tool.row + by))

    def shift(self, by: int) -> None:
        """Change the offset of the row, if it has one that can be chosen."""
        at = self.tool.row - 1
        if 0 <= at < len(self.tool.offsets):
            self.tool.offsets[at] += by


# ---- what it draws ------------------------------------------------------------------------------


def _table(on: Canvas, rows: Sequence[Tried], chosen: int, width: int) -> list[Row]:
    short = width < ROOMY
    name = width - (14 if short else 38) - 2
    head = f"{'logit':>7}{'KL':>7}" if short else f"{'logit moved':>12}{'KL bits':>9}{'likeliest':>17}"
    table: list[Row] = [[Segment(pad("  What if", name + 2) + head, on.ink("muted"))]]
    for index, (trial, answer, over) in enumerate(rows):
        here = index == chosen
        style = on.ink("accent") if here else on.rich_style
        label = Segment(f"{'▸' if here else ' '} {pad(trial.label(width < NARROW), name)}", style)
        if answer is None:
            table.append([label, Segment(f"{'not here' if over else '…':>12}", on.ink("muted"))])
            continue
        moved = answer.largest_change
        logit = f"{moved:.2f}" if moved >= 0.005 else f"{moved:.0e}"
        figures = f"{logit:>7}{answer.kl_bits:>7.3f}"
        if not short:
            first = min(answer.tokens, key=lambda token: token.rank_after)
            likeliest = f"{pad(token_label(first.text), 8, right=True)} {percent(first.after):>8}"
            figures = f"{logit:>12}{answer.kl_bits:>9.3f}{likeliest}"
        table.append([label, Segment(figures, style)])
    return table


def _candidates(on: Canvas, tokens: Sequence[TokenShift], width: int) -> list[Row]:
    """Candidates before and after, each with its bar."""
    label = min(12, max((cell_len(token_label(token.text)) for token in tokens), default=0))
    length = max(0, (width - label - 2) // 2 - 12)
    length = min(30, length) if length >= 4 else 0
    each = length + 11
    head = f"{pad('', label + 2)}{pad('  before', each)} {pad('  after', each)}"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for token in tokens:
        up = token.rank_before - token.rank_after
        moved = "↑" if up > 0 else "↓" if up < 0 else " "
        row: Row = [Segment(f"  {pad(token_label(token.text), label)}")]
        for prob, mark in ((token.before, " "), (token.after, moved)):
            row += [Segment(f"{percent(prob):>8} "), Segment(f"{mark} ", on.ink("accent"))]
            row.append(Segment(bar(prob, length) + " ", on.data(prob)))
        rows.append(row)
    left = (left_over(token.before for token in tokens), left_over(token.after for token in tokens))
    rest = "".join(pad(f"{percent(share):>8}", each + 1) for share in left)
    return [*rows, [Segment(f"  {pad('others', label)}{rest}", on.ink("muted"))]]

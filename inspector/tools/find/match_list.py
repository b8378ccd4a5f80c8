"""Tokens that a search found, the most probable first, with what model and sampler make of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import Candidate
from inspector import scales
from inspector.display import pad, token_label, visible
from inspector.widgets.canvas import Row
from inspector.widgets.charts import bar
from inspector.widgets.pick_list import PickList

MARK, PERCENT = 3, 9
"""Cells of the marks and of the model's probability, with its left gap."""
EXTRA = {"sampler": 9, "rank": 8, "logprob": 9, "id": 8}
"""Cells of the columns that give way, their left gap included; the last goes first."""
TOKEN = 26
"""Cells that a token's text gets at most."""


@frozen
class MatchColumns:
    """Which columns fit, and how wide those are that give way."""

    token: int
    bar: int
    extra: tuple[str, ...]


def fitting(width: int) -> MatchColumns:
    """The columns that fit in `width` cells."""
    extra = list(EXTRA)
    while extra and width - MARK - PERCENT - sum(EXTRA[name] for name in extra) < 20:
        extra.pop()
    free = width - MARK - PERCENT - sum(EXTRA[name] for name in extra)
    token = max(6, min(TOKEN, free * 2 // 3))
    return MatchColumns(token, max(0, free - token - 1), tuple(extra))


class MatchList(PickList):
    """The matches; one of them is highlighted."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.matches: tuple[Candidate, ...] = ()
        self._taken: int | None = None

    @property
    def match(self) -> Candidate | None:
        """The highlighted match, None where there is none."""
        return self.matches[self.highlighted] if self.highlighted < len(self.matches) else None

    def put(self, matches: Sequence[Candidate], taken: int | None) -> None:
        """Show some matches, the first of them highlighted.

        Args:
            matches: The most probable first.
            taken: Id of the token in this place, for its mark.
        """
        self.matches, self._taken = tuple(matches), taken
        self.lay(len(self.matches))

    def head(self, width: int) -> Row:
        columns = fitting(width)
        text = " " * MARK + pad("token", columns.token + 1 + columns.bar) + pad("model", PERCENT, right=True)
        return [
            Segment(text + "".join(pad(n, EXTRA[n], right=True) for n in columns.extra), self.ink("muted"))
        ]

    def row(self, place: int, width: int) -> Row:
        match, columns = self.matches[place], fitting(width + 1)
        cut = match.cut_by is not None
        ink = self.ink("muted" if place == self.highlighted else "faint") if cut else self.rich_style
        words = self.ink("special") if match.special and not cut else ink
        return [
            Segment("▶ " if match.id == self._taken else "  ", self.ink("accent")),
            Segment(pad(token_label(match.text, match.raw), columns.token) + " ", words),
            Segment(bar(match.prob, columns.bar), ink if cut else ink + self.data()),
            Segment(pad(scales.tiny(match.prob), PERCENT, right=True), ink),
            *(self._number(match, name, ink) for name in columns.extra),
        ]

    def _number(self, match: Candidate, name: str, ink: Style) -> Segment:
        muted = ink if match.cut_by else self.ink("muted")
        match name:
            case "sampler":
                after = visible(match.cut_by) if match.cut_by else scales.percent(match.sampler_prob)
                return Segment(" " + pad(after, EXTRA[name] - 1, right=True), ink)
            case "rank":
                return Segment(pad(scales.count(match.rank), EXTRA[name], right=True), muted)
            case "logprob":
                return Segment(pad(f"{match.logprob:.2f}", EXTRA[name], right=True), muted)
            case _:
                return Segment(pad(str(match.id), EXTRA[name], right=True), muted)

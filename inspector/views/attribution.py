"""Contributions: what each part of the model adds to a logit, or to the difference of two."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import field
from textual.geometry import clamp

from engine.protocol import Attribute, AttributionRead, Command
from inspector.blocks.paint import Painter
from inspector.display import first_fitting, quoted
from inspector.documents.attribution import ContributionRow, bars, heads_of, rows_of
from inspector.main.inside_view import TITLED, InsideView, look_table, walking
from inspector.session.requests import Replies
from inspector.state.candidates import TokenChoices, label_of, told_here
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class AttributionChoices(TokenChoices):
    """The user's choices, kept while the view is closed."""

    by_size: bool = False
    unfolded: set[int] = field(default_factory=set)
    """Indices in the record of the parts whose heads are shown."""
    row: tuple[int, int | None] | None = None
    """The row that is looked at; None for the largest."""
    layer: int | None = None
    """The layer of that largest row; None for any layer."""


_PART = "Look at another part: the line under the bars says it in words."
ATTRIBUTION_KEYS = look_table(
    "In the contributions",
    *both(("attribution.part_before", "attribution.next_part"), ("Previous part", "Next part"), _PART,
          lambda own, by: own.turn_row(by), hint="part", worth=4),
    *both(("attribution.ten_before", "attribution.ten_after"), ("Ten before", "Ten after"), _PART,
          lambda own, by: own.turn_row(by), by=(-10, 10)),
    Action("attribution.heads", "Heads",
           "Show the heads of the selected attention, or fold them. `{attribution.all_heads}` does so for "
           "all.",
           lambda own: own.unfold(), hint=lambda own: "heads" if own.has_heads else "", worth=7),
    Action("attribution.all_heads", "All heads", "Show the heads of every attention, or fold them.",
           lambda own: own.unfold_all(), hint="all heads", worth=2, place=1, listed=False),
    Action("attribution.sort", "Sort", "Sort by size, with unfolded heads in place of their attention, or by layer.",
           lambda own: own.sort(), hint=lambda own: "by layer" if own.choices.by_size else "by size", worth=5),
    *both(("attribution.next_token", "attribution.token_before"), ("Next token", "Previous token"),
          "Take another candidate's logit apart.", lambda own, by: own.choices.follow_other(own.timeline, by),
          by=(1, -1), hint="other", worth=5, one=True),
    *both(("attribution.compare", "attribution.compare_back"), ("Compare", "Compare back"),
          "Compare it with another candidate; first the highlighted one.",
          lambda own, by: own.choices.compare_with(own.timeline, by), by=(1, -1), hint="against", worth=5, one=True),
    Action("attribution.alone", "One or two", "Look at one token, or at the difference of two.",
           lambda own: own.turn_alone(), hint=lambda own: "two" if own.choices.alone else "alone", worth=3),
    *walking(),
)  # fmt: skip


class Contributions(InsideView[AttributionRead]):
    """Shows what each part of the model adds to a logit, or to the difference of two."""

    TOOL: ClassVar[str] = "attribution"
    ACTIONS: ClassVar[ActionTable] = ATTRIBUTION_KEYS

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, AttributionRead))
        self._choices = AttributionChoices()
        self.rows: Sequence[ContributionRow] = ()
        """The rows in display order."""
        self.at = 0
        """The index of the row that is looked at."""
        self._made_of: tuple[AttributionRead, frozenset[int], bool] | None = None
        """The answer and choices that `rows` was made from: large models have thousands of heads to sort."""

    def begin(self) -> None:
        """Begin with the selected token's logit, compared with the highlighted candidate's if that is another token."""
        self._choices.begin(self.timeline, self.host.candidate)

    def point(self, *place: int) -> None:
        """Choose the largest part of a layer."""
        self._choices.layer, self._choices.row = place[0] - 1, None

    @property
    def choices(self) -> AttributionChoices:
        """The choices at the present token."""
        return self._choices.at(self.timeline)

    def look(self) -> None:
        """See `InsideView`; also make the rows and find the chosen one: for a folded head, that of its attention."""
        super().look()
        answer, choices = self.answer, self.choices
        if answer is None:
            self.rows = ()
            return
        made_of = answer, frozenset(choices.unfolded), choices.by_size
        if made_of != self._made_of:
            self._made_of, self.rows = made_of, rows_of(*made_of)
        keys, wanted = [row.key for row in self.rows], choices.row or (-1, None)
        for key in (wanted, (wanted[0], None)):
            if key in keys:
                self.at = keys.index(key)
                return
        layer = choices.layer if choices.row is None else None
        own = [at for at, row in enumerate(self.rows) if layer in (None, answer.parts[row.part].layer)]
        self.at = max(own or range(len(keys)), key=lambda at: abs(self.rows[at].value), default=0)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """See `InsideView`; in a recording without the answer, ask about recorded tokens unless the user chose some."""
        tokens, chosen = self.tokens, self.choices.token is not None or self.choices.against is not None
        if not (self.live or chosen or self.answers.get((self.node, tokens))):
            known = [pair for _, pair in self.answers.about(self.node)]
            here = told_here(self.timeline, [pair[0] for pair in known])
            tokens = next((pair for pair in reversed(known) if pair[0] in here), tokens)
        return (self.node, tokens), Attribute(self.node, tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token whose logit is asked for, and the one it is compared with, if any."""
        return self.choices.tokens(self.timeline)

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: AttributionRead | None) -> str:
        known = [(each.id, each.text) for each in answer.tokens] if answer is not None else []
        ids = [id for id, _ in known] or self.tokens
        if not ids:
            return "Contributions"
        names = [quoted(label_of(self.timeline, id, known)) for id in ids]
        why, what = f"Why {' rather than '.join(names)}", "difference" if len(names) == 2 else "logit"
        adds = f"{why}: what each part adds"
        return first_fitting(self.area.width - TITLED, f"{adds} to the {what}", adds, why)

    def draw(self, answer: AttributionRead, on: Canvas, width: int, height: int) -> list[Row]:
        return Painter(on).draw(bars(answer, self.rows, self.at, self.choices.by_size), width, height)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another part."""
        if self.rows:
            self.choices.row = self.rows[clamp(self.at + by, 0, len(self.rows) - 1)].key

    @property
    def has_heads(self) -> bool:
        """True if the row is an attention with known heads, or one of these heads."""
        answer = self.answer if self.rows else None
        return answer is not None and heads_of(answer, answer.parts[self.rows[self.at].part]) > 0

    def unfold(self) -> None:
        """Show the heads of the selected attention, or fold them."""
        if self.has_heads:
            row = self.rows[self.at]
            self.choices.unfolded ^= {row.part}
            self.choices.row = row.key
        elif self.rows:
            self.say("This part has no heads: ↑↓ goes to an attention, which has some")

    def unfold_all(self) -> None:
        """Show the heads of every attention; if all are shown, fold them."""
        if (answer := self.answer) is not None:
            every = {place for place, part in enumerate(answer.parts) if heads_of(answer, part)}
            self.choices.unfolded = set() if every <= self.choices.unfolded else every

    def sort(self) -> None:
        """Sort by size, or in the order of the layers."""
        self.choices.by_size = not self.choices.by_size

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone

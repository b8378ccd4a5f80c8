"""Gradients: the context colored by the share that each token has in a logit, and the largest shares."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, get_args

from msgspec.structs import replace

from engine.protocol import Command, GradientBaseline, GradientMethod, GradientsRead, ReadGradients
from inspector.blocks.paint import Painter
from inspector.display import first_fitting, quoted
from inspector.documents.gradients import METHODS, asked_words, complete_words, largest, listed, shares_of
from inspector.keys import key_for
from inspector.main.inside_view import SCROLLS, TITLED, InsideView, Notice, look_table, walking
from inspector.main.tool import OfferedHeat
from inspector.main.view import neighbor
from inspector.session.requests import Replies
from inspector.state.candidates import TokenChoices, label_of, told_here
from inspector.state.session_tree import Item
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

STEPS = (8, 16, 32, 64, 128, 256)
"""The numbers of steps that the line from the baseline can begin with."""
BASELINES: tuple[GradientBaseline, ...] = get_args(GradientBaseline)


class GradientChoices(TokenChoices):
    """The tokens, the method and the selected row, kept while the view is closed."""

    method: GradientMethod = "input"
    baseline: GradientBaseline = "mean"
    steps: int = 32
    held_experts: bool = False
    row: int = 0
    """Index in the list, the largest share first."""


GRADIENTS_KEYS = look_table(
    "In the gradients",
    *both(("gradients.token_above", "gradients.token_below"), ("Row above", "Row below"),
          "Look at another token of the list.", lambda own, by: own.turn_row(by), hint="row", worth=4),
    *both(("gradients.next_token", "gradients.token_before"), ("Next token", "Previous token"),
          "Look at another candidate's logit.", lambda own, by: own.choices.follow_other(own.timeline, by),
          by=(1, -1), hint="other", worth=5, one=True),
    *both(("gradients.compare", "gradients.compare_back"), ("Compare", "Compare back"),
          "Compare it with another candidate; first the highlighted one.",
          lambda own, by: own.choices.compare_with(own.timeline, by), by=(1, -1), hint="against", worth=5, one=True),
    Action("gradients.alone", "One or two", "Look at one token, or at the difference of two.",
           lambda own: own.turn_alone(), hint=lambda own: "two" if own.choices.alone else "alone", worth=3),
    Action("gradients.method", "Method",
           "Gradient × input, at the text alone, or integrated gradients, along the line from a baseline to the text: "
           "their shares sum to what lies between, but for a residual that is stated.",
           lambda own: own.turn_method(), worth=8,
           hint=lambda own: METHODS["input" if own.integrated else "integrated"]),
    Action("gradients.baseline", "Baseline",
           "Begin the line elsewhere: at the mean of all tokens, the first token, “ the”, or zeros, the worst of them.",
           lambda own: own.turn_baseline(), hint=lambda own: "baseline" if own.integrated else "", worth=6),
    *both(("gradients.fewer", "gradients.more"), ("Fewer steps", "More steps"),
          "Begin with fewer or more steps on the line; there are three times as many until the shares are complete.",
          lambda own, by: own.turn_steps(by), hint=lambda own: "steps" if own.integrated else "", worth=4),
    Action("gradients.experts", "Experts held",
           "In a mixture, keep the experts of the text along the whole line: the shares then become complete, but "
           "answer another question.",
           lambda own: own.turn_experts(),
           hint=lambda own: ("experts free" if own.choices.held_experts else "hold experts") if own.chooses else "",
           worth=5),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip


class GradientsView(InsideView[GradientsRead]):
    """The tokens that a logit depends on."""

    TOOL: ClassVar[str] = "gradients"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = GRADIENTS_KEYS

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, GradientsRead))
        self._choices = GradientChoices()

    def begin(self) -> None:
        """Begin with the selected token's logit, compared with the highlighted candidate's if that is another token."""
        self._choices.begin(self.timeline, self.host.candidate)

    def offered(self, answer: GradientsRead, path: Sequence[Item]) -> OfferedHeat:
        """The share of each token in the logit, or in the difference of two."""
        shares = {path[each.place].node: each.share for each in shares_of(answer, path)}
        return OfferedHeat(f"gradients of {asked_words(answer)}", shares, signed=True)

    @property
    def choices(self) -> GradientChoices:
        """The choices at the present token."""
        return self._choices.at(self.timeline)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """See `InsideView`; in a recording without the answer, the last recorded question about the token."""
        choices, tokens = self.choices, self.choices.tokens(self.timeline)
        token, other = (*tokens, None, None)[:2]
        baseline, steps, held = choices.baseline, choices.steps, choices.held_experts
        asked = ReadGradients(
            self.node, token, other, choices.method, baseline, steps=steps, held_experts=held
        )
        line = (baseline, steps, held) if self.integrated else ()
        key: tuple[Hashable, ...] = (self.node, tokens, choices.method, *line)
        if self.live or self.answers.get(key) is not None:
            return key, asked
        known = self.answers.about(self.node)
        here = told_here(self.timeline, [each[1][0] for each in known])
        known = [key, *(each for each in known if each[1][0] in here)]
        same = [each for each in known[1:] if each[2] == choices.method]
        return (same or known)[-1], asked

    @property
    def integrated(self) -> bool:
        """True if the method has a baseline and steps."""
        return self.choices.method == "integrated"

    @property
    def chooses(self) -> bool:
        """True if the model is known to choose experts that could be held."""
        return self.integrated and self.answer is not None and self.answer.chooses

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to half of the screen."""
        return max(3, min(needed, self.area.height // 2 - 1))

    def heat(self, answer: GradientsRead) -> tuple[str, Sequence[float], Collection[int]]:
        shares = shares_of(answer, self.path)
        every = [0.0] * (shares[0].place if shares else 0) + [each.share for each in shares]
        means = f"+ raises, − lowers the {'difference' if len(answer.tokens) > 1 else 'logit'}"
        forms = (
            f"{what}: {means}"
            for what in ("Share of each token in all sizes (%)", "Share of each token (%)", "Share (%)")
        )
        return first_fitting(self.area.width - TITLED, *forms), every, ()

    def heading(self, answer: GradientsRead | None) -> str:
        known = [(each.id, each.text) for each in answer.tokens] if answer is not None else []
        ids = [id for id, _ in known] or self.choices.tokens(self.timeline)
        names = [quoted(label_of(self.timeline, id, known)) for id in ids]
        if not names:
            return "Gradients"
        what = f"Tokens behind {' rather than '.join(names)}"
        return first_fitting(self.area.width - TITLED, f"{what}: {METHODS[self.choices.method]}", what)

    def draw(self, answer: GradientsRead, on: Canvas, width: int, height: int) -> list[Row]:
        shares = largest(shares_of(answer, self.path))
        self.choices.row = max(0, min(len(shares) - 1, self.choices.row))
        return Painter(on).draw(listed(answer, self.path, shares, self.choices.row), width, height)

    def _instead(self, on: Canvas) -> Notice:
        """See `InsideView`; if the shares are incomplete, what to try next."""
        lines, answer = super()._instead(on), self.answer
        if answer is not None and self.failed is not None and self.failed.name == "complete":
            held = f"; {key_for('gradients.experts')} holds the experts" if self.chooses else ""
            other = f"{key_for('gradients.method')} the other method{held}"
            ways = f"{key_for('gradients.baseline')} takes another baseline, {other}."
            return [*lines, (complete_words(answer), on.ink("muted")), (ways, on.ink("muted"))]
        return lines

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        self.choices.row += by

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone

    def turn_method(self) -> None:
        self.choices.method = "input" if self.integrated else "integrated"

    def turn_baseline(self) -> None:
        choices = self.choices
        if self.integrated:
            choices.baseline = BASELINES[(BASELINES.index(choices.baseline) + 1) % len(BASELINES)]
        else:
            self.say(
                f"Gradient × input has no baseline: {key_for('gradients.method')} goes to a method that has one"
            )

    def turn_steps(self, by: int) -> None:
        if self.integrated:
            self.choices.steps = neighbor(STEPS, self.choices.steps, by)
        else:
            self.say(
                f"Gradient × input takes no steps: {key_for('gradients.method')} goes to a method that does"
            )

    def turn_experts(self) -> None:
        """Hold the experts of the text along the whole line, or let them be chosen."""
        if self.chooses:
            self.choices.held_experts = not self.choices.held_experts
        else:
            self.say("Experts can be held only in integrated gradients of a model that has experts")

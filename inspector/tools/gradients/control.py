"""What is chosen in the view of gradients, and its keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import get_args

from msgspec.structs import replace

from engine.protocol import GradientBaseline, GradientMethod, ReadGradients
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.state.candidates import TokenChoices
from inspector.widgets.actions import Action, both

STEPS = (8, 16, 32, 64, 128, 256)
"""That the line from the baseline can begin with."""
BASELINES: tuple[GradientBaseline, ...] = get_args(GradientBaseline)


class GradientChoices(TokenChoices):
    """The choices of a person, kept from opening to opening."""

    method: GradientMethod = "input"
    baseline: GradientBaseline = "mean"
    steps: int = 32
    held_experts: bool = False
    row: int = 0
    """Of the list that is looked at, from the largest."""

    def question(self, node: int, tokens: tuple[int, ...]) -> tuple[Hashable, ReadGradients]:
        """The key of a question about a token, equal to that of its answer, and the command."""
        token, other = tokens[0] if tokens else None, tokens[1] if len(tokens) > 1 else None
        held = self.held_experts
        asked = ReadGradients(
            node, token, other, self.method, self.baseline, steps=self.steps, held_experts=held
        )
        line = (self.baseline, self.steps, held) if self.method == "integrated" else ()
        return (node, tokens, self.method, *line), asked


GRADIENTS_SCREEN = look_table(
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
           "Gradient x input, at the text alone, or integrated gradients, along the line from a baseline to the text: "
           "their shares sum to what lies between, but for a residual that is stated.",
           lambda own: own.turn_method(), hint=lambda own: own.other_method, worth=8),
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

"""The screen of gradients: the context coloured by what each token has of a logit, and the largest shares."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len

from engine.protocol import Command, GradientsRead
from inspector.blocks.paint import Painter
from inspector.display import quoted
from inspector.documents.gradients import METHODS, complete_words, largest, listed, shares_of
from inspector.keys import key_for
from inspector.main.inside_view import TITLED, InsideView, Notice
from inspector.session.requests import Replies
from inspector.state.candidates import label_of, told_here
from inspector.tools.gradients.control import BASELINES, GRADIENTS_SCREEN, STEPS, GradientChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class GradientsScreen(InsideView[GradientsRead]):
    """Which tokens a logit hangs on.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "gradients"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = GRADIENTS_SCREEN

    def __init__(self, host: MainScreen, answers: Replies[GradientsRead], choices: GradientChoices) -> None:
        super().__init__(host, answers)
        self._choices = choices

    @property
    def choices(self) -> GradientChoices:
        """The choices at the present token."""
        return self._choices.at(self.timeline)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        key, asked = self.choices.question(self.node, self.choices.tokens(self.timeline))
        return self._recorded(key), asked

    def _recorded(self, key: Hashable) -> Hashable:
        """In a recording, where that was not asked, what was asked last about the token."""
        if not self.host.controller.transport.recorded or self.answers.get(key) is not None:
            return key
        known = [each for each in self.answers.keys if isinstance(each, tuple) and each[0] == self.node]
        here = told_here(self.timeline, [each[1][0] for each in known])
        known = [each for each in known if each[1][0] in here]
        same = [each for each in known if each[2] == self.choices.method]
        return (same or known or (key,))[-1]

    @property
    def integrated(self) -> bool:
        """True if the method has a baseline and steps."""
        return self.choices.method == "integrated"

    @property
    def chooses(self) -> bool:
        """True if the model is known to choose experts that could be held."""
        return self.integrated and self.answer is not None and self.answer.chooses

    @property
    def other_method(self) -> str:
        """The word for the key of the method."""
        return METHODS["input" if self.integrated else "integrated"]

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to half of the screen."""
        return max(3, min(needed, self.area.height // 2 - 1))

    def heat(self, answer: GradientsRead) -> tuple[str, Sequence[float], Collection[int]]:
        shares = shares_of(answer, self.path)
        every = [0.0] * (shares[0].place if shares else 0) + [each.share for each in shares]
        long = "Each token's share in %, + raises and − lowers the logit"
        return long if len(long) <= self.area.width - TITLED else "Shares in %", every, ()

    def heading(self, answer: GradientsRead | None) -> str:
        told = answer.tokens if answer is not None else ()
        ids = [each.id for each in told] or self.choices.tokens(self.timeline)
        names = [quoted(label_of(self.timeline, id, ((each.id, each.text) for each in told))) for id in ids]
        if not names:
            return "Gradients"
        short = " − ".join(names)
        what = f"{names[0]} against {names[1]}" if len(names) > 1 else names[0]
        long = f"What the logit of {what} hangs on: {METHODS[self.choices.method]}"
        return long if cell_len(long) <= self.area.width - TITLED else short

    def draw(self, answer: GradientsRead, on: Canvas, width: int, height: int) -> list[Row]:
        shares = largest(shares_of(answer, self.path))
        self.choices.row = max(0, min(len(shares) - 1, self.choices.row))
        return Painter(on).draw(listed(answer, shares, self.choices.row), width, height)

    def _instead(self, on: Canvas) -> Notice:
        """See `InsideView`; of shares that stay incomplete the way on."""
        lines, answer = super()._instead(on), self.answer
        if answer is not None and self.failed is not None and self.failed.name == "complete":
            held = f"; {key_for('gradients.experts')} holds the experts" if self.chooses else ""
            other = f"{key_for('gradients.method')} the other method{held}"
            ways = f"{key_for('gradients.baseline')} takes another baseline, {other}."
            return [*lines, (complete_words(answer), on.ink("muted")), (ways, on.ink("muted"))]
        return lines

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another row of the list."""
        self.choices.row += by

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone

    def turn_method(self) -> None:
        """Ask by the other method."""
        self.choices.method = "input" if self.integrated else "integrated"

    def turn_baseline(self) -> None:
        """Ask from another baseline."""
        choices = self.choices
        if self.integrated:
            choices.baseline = BASELINES[(BASELINES.index(choices.baseline) + 1) % len(BASELINES)]
        else:
            self.say(
                f"Gradient x input has no baseline: {key_for('gradients.method')} goes to a method that has one"
            )

    def turn_steps(self, by: int) -> None:
        """Begin with fewer or more steps."""
        place = STEPS.index(self.choices.steps) + by
        if self.integrated:
            self.choices.steps = STEPS[max(0, min(len(STEPS) - 1, place))]
        else:
            self.say(
                f"Gradient x input takes no steps: {key_for('gradients.method')} goes to a method that does"
            )

    def turn_experts(self) -> None:
        """Have the experts of the text chosen everywhere, or as the vectors say."""
        if self.chooses:
            self.choices.held_experts = not self.choices.held_experts
        else:
            self.say("Experts can be held only in integrated gradients of a model that has experts")

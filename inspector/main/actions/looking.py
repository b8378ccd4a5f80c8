"""Looking around: the keys that ask the engine for nothing but dropped logits."""

from __future__ import annotations

from inspector.config.preferences import VIEWS
from inspector.keys import key_for, with_keys
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import BORDERS, BYTES, IDS, OFF, TextPanel
from inspector.main.tool import LOOK, SlotSelected, Tool, ToolActions, ToolMessage, replayed
from inspector.scales import METRICS
from inspector.widgets.actions import Action, Needs

VIEW_WORDS = {
    OFF: "Plain text",
    BORDERS: "Token borders. {tokens}: ids",
    IDS: "Token ids. {tokens}: bytes",
    BYTES: "Token bytes. {tokens}: plain text",
}


class LookActions(ToolActions):
    """Looks at what is there."""

    def walk(self, by: int) -> None:
        """Look at a token further back or ahead."""
        self.timeline.walk(by)
        self.host.answer()

    def hear(self, message: ToolMessage) -> None:
        """Look at the token that was clicked."""
        if isinstance(message, SlotSelected):
            self.timeline.select(message.slot)
            self.host.answer()

    def first(self) -> None:
        """Look at the first token of the completion, then of the prompt."""
        self.controller.navigation.first()
        self.host.answer()

    def tip(self) -> None:
        """Follow the tip."""
        self.controller.navigation.tip()
        self.host.answer(self.controller.transport.to_end())

    def jump(self) -> None:
        """Ask for a step and look at it."""
        from inspector.main.dialogs.jump import JumpDialog

        steps = self.controller.navigation.steps_range()
        if steps is None:
            self.host.answer(f"No step was taken yet. Press {key_for('step')} to take one")
        else:
            self.host.open(JumpDialog(*steps), self._jump)

    def _jump(self, number: int | None) -> None:
        if number is not None:
            self.controller.navigation.jump(number)
            self.host.answer()

    def metric(self, by: int) -> None:
        """Colour text and steps by another metric."""
        text, steps = self.host.panel(TextPanel), self.host.panel(StepsPanel)
        metric = METRICS[(METRICS.index(text.metric) + by) % len(METRICS)]
        text.metric = steps.metric = metric
        self.host.answer("Colour off" if metric == "off" else f"Colour by {metric}")

    def view(self) -> None:
        """Show tokens in the text in another way."""
        text = self.host.panel(TextPanel)
        text.lent = False
        text.view = VIEWS[(VIEWS.index(text.view) + 1) % len(VIEWS)]
        self.host.answer(with_keys(VIEW_WORDS[text.view]))


LOOKING = Tool(
    "looking",
    "Look around",
    LookActions,
    actions=(
        Action("earlier", "Earlier", "Look at the token before.", lambda own: own.walk(-1), Needs.DISTRIBUTION,
            group=LOOK, hint="walk", worth=7, place=30),
        Action("later", "Later", "Look at the token after.", lambda own: own.walk(1), Needs.DISTRIBUTION,
            group=LOOK, hint="walk", worth=7, place=30),
        Action("ten_earlier", "Ten earlier", "Look ten tokens back.", lambda own: own.walk(-10), Needs.DISTRIBUTION,
            group=LOOK),
        Action("ten_later", "Ten later", "Look ten tokens ahead.", lambda own: own.walk(10), Needs.DISTRIBUTION,
            group=LOOK),
        Action("first", "First", "Look at the first token of the completion; again for the first of the prompt.",
            LookActions.first, Needs.DISTRIBUTION, group=LOOK),
        Action("tip", "Tip", "Follow the tip: the token to come; where a session is followed, what comes next.",
            LookActions.tip, Needs.DISTRIBUTION, group=LOOK),
        Action("jump", "Jump", "Jump to a step by its number.", LookActions.jump, Needs.DISTRIBUTION, group=LOOK,
            synonyms="go to step number", hint=replayed("jump"), worth=2, place=70),
        Action("recall", "Recompute logits",
            "Compute logits again that were dropped, where the sampler's stages need them.",
            lambda own: own.host.answer(own.controller.setup.recall()),
            Needs.DISTRIBUTION | Needs.ENGINE, group=LOOK),
        Action("metric", "Colour", "Colour the text by the next metric: probability, surprisal, entropy, rank, off.",
            lambda own: own.metric(1), group=LOOK,
            synonyms="color colors heat highlight surprisal probability entropy rank", hint="colour", worth=3,
            place=120),
        Action("metric_back", "Colour back", "Colour the text by the metric before.", lambda own: own.metric(-1),
            group=LOOK),
        Action("tokens", "Tokens",
            "Draw each token's borders in the text; again with its id under it, with its bytes, and plain text again.",
            LookActions.view, group=LOOK, synonyms="ids bytes borders tokenizer tokenization"),
    ),
)  # fmt: skip

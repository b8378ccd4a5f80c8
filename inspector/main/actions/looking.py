"""Looking around: the keys that ask the engine for nothing but dropped logits."""

from __future__ import annotations

from inspector.config.preferences import VIEWS
from inspector.keys import KEYS, key_for
from inspector.main.messages import SlotSelected, ToolMessage
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import BORDERS, BYTES, IDS, OFF, TextPanel
from inspector.main.tool import LOOK, Hint, Key, Needs, Tool, ToolActions, When
from inspector.scales import METRICS

VIEW_WORDS = {
    OFF: "Plain text",
    BORDERS: f"Token borders. {key_for('tokens')}: ids",
    IDS: f"Token ids. {key_for('tokens')}: bytes",
    BYTES: f"Token bytes. {key_for('tokens')}: plain text",
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
        self.host.answer(VIEW_WORDS[text.view])

    def recall(self) -> None:
        """Have dropped logits computed again."""
        self.host.answer(self.controller.setup.recall())


LOOKING = Tool(
    "looking",
    "Look around",
    LookActions,
    keys=(
        Key("earlier", *KEYS["earlier"], "Earlier", LOOK,
            "Look at the token before.", lambda own: own.walk(-1), Needs.DISTRIBUTION),
        Key("later", *KEYS["later"], "Later", LOOK, "Look at the token after.",
            lambda own: own.walk(1), Needs.DISTRIBUTION),
        Key("ten_earlier", *KEYS["ten_earlier"], "Ten earlier", LOOK,
            "Look ten tokens back.", lambda own: own.walk(-10), Needs.DISTRIBUTION),
        Key("ten_later", *KEYS["ten_later"], "Ten later", LOOK,
            "Look ten tokens ahead.", lambda own: own.walk(10), Needs.DISTRIBUTION),
        Key("first", *KEYS["first"], "First", LOOK,
            "Look at the first token of the completion; again for the first of the prompt.",
            LookActions.first, Needs.DISTRIBUTION),
        Key("tip", *KEYS["tip"], "Tip", LOOK,
            "Follow the tip: the token to come; where a session is followed, what comes next.",
            LookActions.tip, Needs.DISTRIBUTION),
        Key("jump", *KEYS["jump"], "Jump", LOOK, "Jump to a step by its number.", LookActions.jump, Needs.DISTRIBUTION),
        Key("recall", *KEYS["recall"], "Recompute logits", LOOK,
            "Compute logits again that were dropped, where the sampler's stages need them.",
            LookActions.recall, Needs.DISTRIBUTION | Needs.ENGINE),
        Key("metric", *KEYS["metric"], "Colour", LOOK,
            "Colour the text by the next metric: probability, surprisal, entropy, rank, off.",
            lambda own: own.metric(1)),
        Key("metric_back", *KEYS["metric_back"], "Colour back", LOOK,
            "Colour the text by the metric before.", lambda own: own.metric(-1)),
        Key("tokens", *KEYS["tokens"], "Tokens", LOOK,
            "Draw each token's borders in the text; again with its id under it, with its bytes, and plain text again.",
            LookActions.view),
    ),
    hints=(
        Hint(3, ("earlier", "later"), "walk", 7),
        Hint(7, ("jump",), "jump", 2, When.REPLAY),
        Hint(12, ("metric",), "colour", 3),
    ),
)  # fmt: skip

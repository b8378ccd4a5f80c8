"""Setting up: the keys that ask for a prompt or a model, and show what is known of it."""

from __future__ import annotations

from engine.settings import LoadSettings
from inspector.main.dialogs.facts import FactsDialog
from inspector.main.dialogs.model import ModelDialog
from inspector.main.dialogs.prompt import Draft, PromptDialog
from inspector.main.tool import SET_UP, Hint, Host, Key, Needs, Tool, ToolActions, When


class SetupActions(ToolActions):
    """Asks for what the engine works on."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.draft = host.controller.setup.prompt
        """What stands in the prompt dialog when it is opened."""

    def prompt(self) -> None:
        """Ask for a prompt."""
        self.host.open(PromptDialog(self.draft, self.timeline.facts, self.timeline.prompt), self._prompted)

    def _prompted(self, draft: Draft | None) -> None:
        if draft is None:
            return
        self.draft = draft.prompt
        if draft.submitted:
            self.controller.setup.give(draft.prompt)
            self.host.answer()

    def open(self) -> None:
        """Ask for a model; in a replay for the one to go on live with."""
        self.host.open(ModelDialog(self.controller.setup.load), self._open)

    def _open(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.host.answer(self.controller.transport.open_model(load))

    def facts(self) -> None:
        """Show the facts about the model."""
        if (facts := self.timeline.facts) is not None:
            self.host.open(FactsDialog(facts))


SETTING_UP = Tool(
    "setup",
    "Set up",
    SetupActions,
    keys=(
        Key("prompt", "p", "p", "Prompt", SET_UP,
            "Give another prompt, raw or through the chat template. What is there stays in the tree.",
            SetupActions.prompt, Needs.ENGINE),
        Key("open", "o", "o", "Open model", SET_UP,
            "Open another model: a directory, a hub id or pocket.", SetupActions.open, Needs.SESSION),
        Key("facts", "i", "i", "Model facts", SET_UP, "Show what is known of the model.",
            SetupActions.facts, Needs.MODEL),
    ),
    hints=(Hint(14, ("prompt",), "prompt", 9, When.LIVE),),
)  # fmt: skip

"""Turns as a tool: the key that continues with a conversation behind the model's answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from engine.protocol import AddTurn, PromptOpened, Record, Step, TurnDiffers
from inspector.keys import key_for
from inspector.main.tool import Tool, ToolActions, live
from inspector.tools.turns import TURN_KEYS
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class TurnActions(ToolActions):
    """Asks for the user's next message, and what to do if the template is not additive."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._text = ""
        """The message that was typed and not sent yet."""

    def open(self) -> None:
        """Ask for the next message."""
        from inspector.tools.turns.dialogs import TurnDialog

        if refusal := self._refusal():
            self.host.answer(refusal)
            return
        self.controller.client.pause()
        self.host.open(TurnDialog(self._text, self.timeline), self._left)

    def _refusal(self) -> str:
        """The reason that there is no next turn now, empty if there is one."""
        prompt = self.timeline.prompts.opened
        if prompt is None or not prompt.chat:
            return (
                f"Raw text has no turns. Press {key_for('prompt')} for a prompt through the chat "
                f"template, or {key_for('own_text')} to type into the text"
            )
        if not prompt.messages:
            return (
                "This conversation was recorded without its messages: it has no turns. Press "
                f"{key_for('prompt')} for another prompt"
            )
        if not (self.timeline.items and isinstance(self.timeline.items[-1], Step)):
            return f"The model has not answered yet. Press {key_for('run')} to run, or {key_for('step')} for a step"
        return ""

    def _left(self, typed: tuple[str, bool] | None) -> None:
        if typed is None:
            return
        self._text, submitted = typed
        if submitted:
            self._send(self._text, "ask")

    def _send(self, text: str, differing: Literal["ask", "path", "template"]) -> None:
        if (prompt := self.timeline.prompts.opened) is None:
            return
        echo = self.controller.setup.prompt.echo  # prompt logprobs are wanted as for the last prompt
        turn = AddTurn(text, prompt.messages, prompt.options, echo, differing)
        self.controller.client.do(turn, each=partial(self._receive, text))
        self.host.answer()

    def _receive(self, text: str, record: Record) -> None:
        from inspector.tools.turns.dialogs import DiffersDialog

        if isinstance(record, PromptOpened):
            self._text = ""
        elif isinstance(record, TurnDiffers):
            self.host.open(DiffersDialog(record, self.timeline), lambda chosen: self._decided(text, chosen))

    def _decided(self, text: str, chosen: Literal["path", "template"] | None) -> None:
        if chosen is not None:
            self._send(text, chosen)
        else:
            self.host.answer(f"Nothing was sent. {key_for('reply')} still has your message")


TURNS = Tool(
    "turns",
    "Turns",
    TurnActions,
    actions=(
        Action("reply", "Reply",
            "Continue the conversation: add the user's next message after the model's answer, on the same path. "
            "Nothing runs again.", TurnActions.open, Needs.DISTRIBUTION | Needs.ENGINE, hint=live("reply"), worth=1,
            place=150,
            synonyms="chat, answer, conversation, next message, turn, multi-turn"),
    ),
    owners=(TURN_KEYS,),
)  # fmt: skip

"""Turns of a conversation: the next message, and the choice if the template would write the path differently."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Literal

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Static, TextArea

from engine.protocol import AddTurn, PromptOpened, Record, Step, TurnDiffers
from inspector.display import truncate, visible
from inspector.keys import key_for
from inspector.main.tool import ToolActions
from inspector.scales import count, counted, milliseconds
from inspector.state.timeline import Timeline
from inspector.widgets.actions import NEW_LINE, ActionTable, applies, dialog_table, leaves, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeTextArea

TURN_KEYS = dialog_table(
    "While the next message is typed",
    applies("Send it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="send", worth=6),
    NEW_LINE,
    leaves("Leave; your text is kept."),
)
EXCERPT = 160
"""Maximum cells of each text, from the first difference on."""


class TurnDialog(Dialog[tuple[str, bool]]):
    """Asks for the user's next message; returns the text, and whether to send it.

    Args:
        text: The initial value of the field.
        timeline: The conversation so far.
    """

    ACTIONS: ClassVar[ActionTable] = TURN_KEYS
    HEADING: ClassVar[str] = "Next message"
    APPLY: ClassVar[str] = "Send"
    FIRST: ClassVar[str] = "#turn-text"

    def __init__(self, text: str, timeline: Timeline) -> None:
        super().__init__()
        self.initial, self.timeline = text, timeline

    def body(self) -> Iterable[Widget]:
        prompt, held = self.timeline.prompts.opened, len(self.timeline.items)
        turns = sum(message.role == "user" for message in prompt.messages) if prompt else 0
        window = self.timeline.facts.context_window if self.timeline.facts else None
        room = f", room for {max(0, window - held):,} more" if window else ""
        yield Remark(
            f"Turn {turns + 1} of the conversation, after {counted(held, 'token')}{room}. They stay as they are."
        )
        yield SafeTextArea(id="turn-text", soft_wrap=True, tab_behavior="focus")
        yield Remark("⏎ sends, ctrl+j begins a line. The template's own tokens are put around it.")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        self.query_one("#turn-text", SafeTextArea).put(self.initial)
        self._typed()

    @property
    def typed(self) -> str:
        return self.query_one("#turn-text", SafeTextArea).text

    @on(TextArea.Changed, "#turn-text")
    def _typed(self) -> None:
        self.query_one("#apply", Button).disabled = not self.typed

    def apply(self) -> None:
        if self.typed:
            self.dismiss((self.typed, True))

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss((self.typed, False))


class DiffersDialog(Dialog[Literal["path", "template"]]):
    """Shows the first difference between the template's text and the path, and asks which to continue with.

    Args:
        differs: Both texts.
        timeline: The conversation so far.
    """

    HEADING: ClassVar[str] = "The template writes this conversation otherwise"
    APPLY: ClassVar[str] = "Continue"
    FIRST: ClassVar[str] = "Choice"

    def __init__(self, differs: TurnDiffers, timeline: Timeline) -> None:
        super().__init__()
        self.differs, self.timeline = differs, timeline

    def body(self) -> Iterable[Widget]:
        differs = self.differs
        yield Remark("Both begin alike; then the path continues with")
        path, template = (
            Content(truncate(visible(text), EXCERPT) or "(nothing)")
            for text in (differs.path, differs.template)
        )
        yield Static(path, id="differs-path")
        yield Remark("and the template, given the whole conversation, with")
        yield Static(template, id="differs-template")
        # a server that fills its KV cache with the template's text can't reuse the rest
        tps, held = self.timeline.prompts.tps, len(self.timeline.items)
        lost = held - differs.kept
        cost = f" ({milliseconds(lost / tps * 1000)} at this prompt's pace)" if tps else ""
        yield Remark(f"Of {count(held)} tokens in the KV cache a server would lose {count(lost)}{cost}.")
        again = differs.tokens - differs.kept
        yield Choice(("keep the path", "as the template"), id="differs-choice")
        yield Remark(
            "On the path all that the model wrote stays in its context, as in mlx_lm.chat. As the template, "
            f"{again:,} of {differs.tokens:,} tokens run, on a path of their own."
        )

    def apply(self) -> None:
        self.dismiss("template" if self.query_one(Choice).chosen else "path")


class TurnActions(ToolActions):
    """Asks for the user's next message, and what to do if the template is not additive."""

    _text: str = ""
    """The message that was typed and not sent yet."""

    def open(self) -> None:
        if refusal := self._refusal():
            self.host.answer(refusal)
            return
        self.controller.client.pause()
        self.host.open(TurnDialog(self._text, self.timeline), self._left)

    def _refusal(self) -> str:
        """Why there can't be a next turn now; empty if there can."""
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
        if isinstance(record, PromptOpened):
            self._text = ""
        elif isinstance(record, TurnDiffers):
            self.host.open(DiffersDialog(record, self.timeline), lambda chosen: self._decided(text, chosen))

    def _decided(self, text: str, chosen: Literal["path", "template"] | None) -> None:
        if chosen is not None:
            self._send(text, chosen)
        else:
            self.host.answer(f"Nothing was sent. {key_for('reply')} still has your message")

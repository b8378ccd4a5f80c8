"""The dialogs of a conversation: the next message, and the choice if the template would write the path otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Static, TextArea

from engine.protocol import TurnDiffers
from inspector.display import truncate, visible
from inspector.scales import count, milliseconds
from inspector.state.timeline import Timeline
from inspector.tools.turns import TURN_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, TypedTextArea

EXCERPT = 160
"""Cells of each text where they differ."""


class TurnDialog(Dialog[tuple[str, bool]]):
    """Asks for the user's next message. Its result: the text, and whether to send it.

    Args:
        text: The initial value of the field.
        timeline: The conversation so far.
    """

    ACTIONS: ClassVar[ActionTable] = TURN_KEYS
    HEADING: ClassVar[str] = "Next message"
    APPLY: ClassVar[str] = "Send"

    def __init__(self, text: str, timeline: Timeline) -> None:
        super().__init__()
        self.initial, self.timeline = text, timeline

    def body(self) -> Iterable[Widget]:
        prompt, held = self.timeline.prompts.opened, len(self.timeline.items)
        turns = sum(message.role == "user" for message in prompt.messages) if prompt else 0
        window = self.timeline.facts.context_window if self.timeline.facts else None
        room = f", room for {max(0, window - held):,} more" if window else ""
        yield Remark(
            f"Turn {turns + 1} of the conversation, after {held:,} tokens{room}. They stay as they are."
        )
        yield TypedTextArea(self.initial, id="turn-text", soft_wrap=True, tab_behavior="focus")
        yield Remark("⏎ sends, ctrl+n begins a line. The template's own tokens are put around it.")

    def on_mount(self) -> None:
        """Begin in the text, at its end."""
        area = self.query_one("#turn-text", TypedTextArea)
        area.focus()
        area.move_cursor(area.document.end)
        self._typed()

    @property
    def typed(self) -> str:
        """The text in the field."""
        return self.query_one("#turn-text", TypedTextArea).text

    @on(TextArea.Changed, "#turn-text")
    def _typed(self) -> None:
        self.query_one("#apply", Button).disabled = not self.typed

    @on(TypedTextArea.TextSubmitted)
    def apply(self) -> None:
        """Send what was typed."""
        if self.typed:
            self.dismiss((self.typed, True))

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss((self.typed, False))


class DiffersDialog(Dialog[Literal["path", "template"]]):
    """Shows where the template's text parts from the path, and asks which of both to continue with.

    Args:
        differs: Both texts.
        timeline: The conversation so far.
    """

    HEADING: ClassVar[str] = "The template writes this conversation otherwise"
    APPLY: ClassVar[str] = "Continue"

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
        # a server that fills its KV cache with the template's text loses what that can't use
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

    def on_mount(self) -> None:
        """Begin in the choice."""
        self.query_one(Choice).focus()

    def apply(self) -> None:
        """Continue with what is chosen."""
        self.dismiss("template" if self.query_one(Choice).chosen else "path")

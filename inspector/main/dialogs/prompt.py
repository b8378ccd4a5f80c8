"""The dialog for a prompt: raw or through the chat template, with a real editor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Label, TextArea

from engine.records import ModelFacts, PromptOpened
from inspector.session.prefill import Prompt
from inspector.widgets.choice import Choice
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.safety import MOST_TYPED, SafeInput, SafeTextArea

MODES = ("raw", "through the chat template")
ECHOES: tuple[tuple[str, bool | None], ...] = (
    ("up to 2,048 tokens", None),
    ("always", True),
    ("never", False),
)


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed, and whether it is to be prefilled."""

    prompt: Prompt
    submitted: bool


class PromptDialog(Dialog[Draft]):
    """Asks for a prompt.

    Args:
        prompt: The initial values of the fields.
        facts: Of the model, None while it loads.
        last: The prompt in the cache, for the token hint.
    """

    HEADING: ClassVar[str] = "Prompt"
    APPLY: ClassVar[str] = "Prefill"

    def __init__(self, prompt: Prompt, facts: ModelFacts | None, last: PromptOpened | None) -> None:
        super().__init__()
        self.prompt, self.facts, self.last = prompt, facts, last
        self._whole = "" if len(prompt.text) <= MOST_TYPED else prompt.text
        """A prompt that is too long to be edited: it stays as it is while nothing is typed in its place."""

    @property
    def templated(self) -> bool:
        """Whether there is a chat template, as far as it is known."""
        return self.facts is None or self.facts.has_chat_template

    def body(self) -> Iterable[Widget]:
        text = "" if self._whole else self.prompt.text
        yield SafeTextArea(text, id="prompt-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(self._hint(), id="prompt-remark")
        yield Label("mode", classes="field-label", markup=False)
        yield Choice(MODES if self.templated else MODES[:1], int(self._chat), id="prompt-mode")
        yield Label("system prompt", classes="field-label", id="system-label", markup=False)
        yield SafeInput(self.prompt.system or "", "none", id="prompt-system")
        yield Label(
            "prompt logprobs: what the model thought of each token", classes="field-label", markup=False
        )
        yield Choice([label for label, _ in ECHOES], self._echo, id="prompt-echo")

    @property
    def _chat(self) -> bool:
        return self.prompt.chat and self.templated

    @property
    def _echo(self) -> int:
        return [echo for _, echo in ECHOES].index(self.prompt.echo)

    def on_mount(self) -> None:
        """Begin in the text, all of it selected: typing replaces it, an arrow key goes on at its end."""
        area = self.query_one("#prompt-text", SafeTextArea)
        area.focus()
        area.select_all()
        self._show_system()

    @on(Choice.Changed, "#prompt-mode")
    def _show_system(self) -> None:
        chat = bool(self.query_one("#prompt-mode", Choice).chosen)
        for widget in self.query("#system-label, #prompt-system"):
            widget.display = chat

    @on(TextArea.Changed, "#prompt-text")
    def _text_changed(self) -> None:
        self.query_one("#prompt-remark", Remark).say(self._hint())

    def _hint(self) -> str:
        """What is known of the room: tokens are counted by the engine, when the prompt is prefilled."""
        if self._whole:
            return (
                f"The prompt has {len(self._whole):,} characters, too many to be edited here. "
                "Type another one, or prefill it again as it is."
            )
        if self.facts is None:
            return "The model is still loading; the prompt is prefilled when it is there."
        window = self.facts.context_window
        hint = f"Context window {window:,} tokens." if window else "The model states no context window."
        if self.last is not None:
            hint += f" The prompt in the cache has {len(self.last.tokens):,}."
        return hint + ("" if self.templated else " The model has no chat template.")

    def typed(self) -> Prompt:
        """The prompt in the fields."""
        return Prompt(
            self.query_one("#prompt-text", SafeTextArea).text or self._whole,
            bool(self.query_one("#prompt-mode", Choice).chosen),
            self.query_one("#prompt-system", SafeInput).value or None,
            ECHOES[self.query_one("#prompt-echo", Choice).chosen][1],
        )

    def action_leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss(Draft(self.typed(), False))

    def action_apply(self) -> None:
        """Prefill what was typed, or report that nothing was."""
        prompt = self.typed()
        if prompt.text:
            self.dismiss(Draft(prompt, True))
        else:
            self.query_one("#prompt-remark", Remark).say(
                "The prompt is empty. Type at least one character.", True
            )
            self.query_one("#prompt-text", SafeTextArea).focus()

"""The dialog for a prompt: raw or through the chat template, in an editor, with the prompt's tokens below."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import ClassVar, cast

from msgspec.structs import replace
from textual import on, work
from textual.binding import Binding, BindingType
from textual.suggester import Suggester
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Label, TextArea

from engine import protocol
from engine.errors import EngineError, PathError
from engine.files import typed
from engine.protocol import NO_OPTIONS, ModelFacts, Prefill, PreviewPrompt, PromptPreview, through_template
from inspector import scales
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.dialogs import PROMPT_KEYS
from inspector.main.dialogs.field import FieldDialog
from inspector.session.client import Request
from inspector.session.prompts import Draft, PromptHistory, edited, is_conversation, system_of, transcript
from inspector.session.requests import Latest, failure_words
from inspector.texts import read_text_file
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import MOST_TYPED, Choice, SafeTextArea
from inspector.widgets.pieces import PieceList

MODES = ("raw", "through the chat template", "the whole conversation")
RAW, CHAT, WHOLE = range(3)
ECHOES: tuple[tuple[str, bool | None], ...] = (
    ("up to 2,048 tokens", None), ("always", True), ("never", False),
)  # fmt: skip
SYSTEM = "You tell short stories about dogs."
"""An example of a system prompt."""
CUTTING = "It is being cut into tokens."
SHORT, LATER = 5_000, 0.3
"""Maximum characters of a text that is tokenized at each key, and seconds without a key after which a longer one is:
200,000 characters take the engine some 0.2 s."""


class PromptEditor(SafeTextArea):
    """The editor of the prompt, in which up and down also go to other prompts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+up", "screen.other_prompt(-1)", "Earlier prompt", show=False),
        Binding("alt+down", "screen.other_prompt(1)", "Later prompt", show=False),
    ]

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up a line; on the first one, go to the previous prompt."""
        if not select and self.navigator.is_first_wrapped_line(self.cursor_location):
            cast(PromptDialog, self.screen).action_other_prompt(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down a line; on the last one, go to the next prompt."""
        if not select and self.navigator.is_last_wrapped_line(self.cursor_location):
            cast(PromptDialog, self.screen).action_other_prompt(1)
        else:
            super().action_cursor_down(select)


class PromptDialog(Dialog[Draft]):
    """Asks for a prompt.

    Args:
        prompt: The initial values of the fields.
        facts: Returns the facts about the model; None while it loads.
        lookup: Asks the engine for the prompt's tokens.
        before: Earlier prompts, oldest first.
        given: Whether it is the session's prompt: unlike a draft, it is selected, so that typing replaces it.
    """

    ACTIONS: ClassVar[ActionTable] = PROMPT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("prompt", "facts", "lookup", "history", "given", "_whole", "_file")
    HEADING: ClassVar[str] = "Prompt"
    APPLY: ClassVar[str] = "Start"
    EXTRA = (("prompt.read_file", "From a file", "prompt-read"),)
    FIRST: ClassVar[str] = "#prompt-text"

    def __init__(
        self,
        prompt: Prefill,
        facts: Callable[[], ModelFacts | None],
        lookup: Latest,
        before: Sequence[Prefill] = (),
        given: bool = False,
    ) -> None:
        super().__init__()
        self.facts, self.lookup, self.given = facts, lookup, given
        self.prompt = prompt = prompt if facts() is None else replace(prompt, chat=self._chat(prompt))
        self.history = PromptHistory(before, prompt)
        self._conversation: tuple[protocol.Message, ...] = ()
        """The conversation with the last message in the editor; empty if there is only one message."""
        self._whole = ""
        """A prompt that is too long to edit: it is used unchanged unless something is typed instead."""
        self._options = NO_OPTIONS
        """The options of the chat template for that conversation."""
        self._file = ""
        """The name of the file that was read last."""
        self._timer: Timer | None = None
        self._began = prompt
        """The initial prompt in the fields."""
        self._asked: PreviewPrompt | None = None
        """The last preview that was requested: the fields also report changes by the program, which ask nothing new."""

    @property
    def templated(self) -> bool:
        """True if there is a chat template, or if that isn't known yet."""
        facts = self.facts()
        return facts is None or facts.has_chat_template

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="prompt-conversation", soft_wrap=True, tab_behavior="focus", read_only=True)
        yield PromptEditor(id="prompt-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(CUTTING, id="prompt-remark")
        yield PieceList(both_ends=True, id="prompt-pieces")
        yield Choice(self._modes, id="prompt-mode")
        yield Label("system prompt", classes="field-label", id="system-label", markup=False)
        yield SafeTextArea(id="prompt-system", soft_wrap=True, tab_behavior="focus", placeholder=SYSTEM)
        yield Label("prompt logprobs: how probable each token was", classes="field-label", markup=False)
        yield Choice([label for label, _ in ECHOES], self._echo, id="prompt-echo")

    def _chat(self, prompt: Prefill) -> bool:
        """True if a prompt goes through the chat template."""
        facts = self.facts()
        return facts is not None and through_template(facts, prompt.chat, prompt.system, prompt.options)

    @property
    def _modes(self) -> tuple[str, ...]:
        return MODES[: 1 + self.templated + (self.templated and bool(self._conversation))]

    @property
    def _echo(self) -> int:
        return [echo for _, echo in ECHOES].index(self.prompt.echo)

    def begin(self) -> None:
        super().begin()
        self.query_one("#prompt-echo", Choice).chosen = self._echo
        self._asked = None
        self._show(CUTTING)
        self._put(self.prompt)
        self._began = self.typed()
        if self.given:
            self.query_one("#prompt-text", PromptEditor).select_all()

    def let_go(self) -> None:
        """Stop waiting for an answer."""
        self.lookup.drop()

    # ---- the fields -------------------------------------------------------------------------

    def _put(self, prompt: Prefill) -> None:
        """Edit another prompt; the choice of prompt logprobs stays."""
        self._whole = "" if len(prompt.text) <= MOST_TYPED else prompt.text
        self.query_one("#prompt-text", PromptEditor).put("" if self._whole else prompt.text)
        self._conversation = prompt.messages if is_conversation(prompt.messages) else ()
        self._options = prompt.options
        mode = self.query_one("#prompt-mode", Choice)
        mode.labels = self._modes
        mode.chosen = min(WHOLE if self._conversation else int(self._chat(prompt)), len(mode.labels) - 1)
        mode.refresh(layout=True)
        self.query_one("#prompt-system", SafeTextArea).load_text(prompt.system or system_of(prompt.messages))
        self.query_one("#prompt-conversation", SafeTextArea).load_text(transcript(self._conversation))
        self._changed()

    def typed(self) -> Prefill:
        """The prompt in the fields."""
        text = self.query_one("#prompt-text", PromptEditor).text or self._whole
        mode = self.query_one("#prompt-mode", Choice).chosen
        system = self.query_one("#prompt-system", SafeTextArea).text
        echo = ECHOES[self.query_one("#prompt-echo", Choice).chosen][1]
        prompt = Prefill(text, mode != RAW, system or None, echo)
        if mode != WHOLE:
            return prompt
        return replace(prompt, messages=edited(self._conversation, text, system), options=self._options)

    def action_other_prompt(self, by: int) -> None:
        """Edit the previous prompt, or the next one."""
        if (prompt := self.history.go(by, self.typed())) is not None:
            self._put(prompt)

    def read_file(self) -> None:
        """Ask for a file, and replace the typed text with the file's."""
        dialog = PromptFileDialog(self._file)

        def read(text: str | None) -> None:
            self._file = dialog.typed
            if text is not None:
                self._put(replace(self.typed(), text=text))

        self.app.push_screen(dialog, read)

    # ---- its tokens -------------------------------------------------------------------------

    @on(TextArea.Changed)
    @on(Choice.Changed, "#prompt-mode")
    def _changed(self) -> None:
        """Ask for the prompt's tokens again, for a long prompt once no key was pressed for a moment."""
        prompt = self.typed()
        for widget in self.query("#system-label, #prompt-system"):
            widget.display = bool(prompt.chat)
        self.query_one("#prompt-conversation").display = bool(prompt.messages)
        self.set_class(bool(prompt.messages), "-talk")
        if self._timer is not None:
            self._timer.stop()
        if self._too_long or not (prompt.text or prompt.chat):
            self._asked = None
            self.lookup.drop()
            self._show(self._hint())
        elif len(prompt.text) > SHORT:
            self._timer = self.set_timer(LATER, self._ask)
        else:
            self._ask()

    @property
    def _too_long(self) -> bool:
        return len(self.typed().text) > MOST_TYPED

    def _ask(self) -> None:
        if self.left:
            return
        prompt = self.typed()
        question = PreviewPrompt(prompt.text, prompt.chat, prompt.system, prompt.messages, prompt.options)
        if question == self._asked:
            return
        self._asked = question
        if self.facts() is None:
            self._show(self._hint())
        self.lookup.ask(question, self._answered)

    def _answered(self, request: Request[PreviewPrompt]) -> None:
        if (failure := request.failure) is not None:
            self._show(failure_words(failure), wrong=True)
        elif (answer := request.reply(PromptPreview)) is not None:
            facts = self.facts()
            window = facts.context_window if facts is not None else None
            self._show(counted(answer, window), window is not None and answer.tokens > window, answer)

    def _show(self, text: str, wrong: bool = False, answer: PromptPreview | None = None) -> None:
        self.say(text, wrong)
        first, last, tokens = (answer.first, answer.last, answer.tokens) if answer else ((), (), 0)
        pieces = self.query_one("#prompt-pieces", PieceList)
        pieces.put_ends(first, last, tokens - len(first) - len(last))

    def _hint(self) -> str:
        """The reason why no tokens are shown, with advice."""
        if self._whole and self._too_long:
            why = (
                f"The prompt has {len(self._whole):,} characters, too many to edit here or to show as tokens."
            )
            return f"{why} Type another one, or start with it as it is."
        if self._too_long:
            return "The prompt is too long to show its tokens here. You can start with it."
        facts = self.facts()
        if facts is None:
            return "The model is still loading; the prompt goes through it after that."
        window = f" The context window holds {facts.context_window:,} tokens." if facts.context_window else ""
        bare = "" if self.templated else " The model has no chat template."
        read = key_for("prompt.read_file")
        return f"Type a prompt; ↑ brings earlier ones, {read} one from a file.{window}{bare}"

    # ---- leaving ----------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave; a changed prompt is kept as a draft for the next time."""
        typed = self.typed()
        self.dismiss(None if typed == self._began else Draft(typed, False))

    def apply(self) -> None:
        """Start with the typed prompt, or report that it is empty."""
        prompt = self.typed()
        if prompt.text or prompt.messages:
            self.dismiss(Draft(prompt, True))
        else:
            self._show("The prompt is empty. Type at least one character.", wrong=True)
            self.query_one("#prompt-text", PromptEditor).focus()


def counted(preview: PromptPreview, window: int | None) -> str:
    """A sentence about the number of tokens of a prompt; printable.

    Args:
        preview: The engine's answer.
        window: Tokens of the context window; None if the model states none.
    """
    count = f"{preview.tokens:,} token" + "s" * (preview.tokens != 1)
    count += f", {preview.special:,} of them special" if preview.special else ""
    if window is not None and preview.tokens > window:
        return f"{count}: too many. The context window holds {window:,}. Shorten the prompt."
    parts = [f"{count}, of a context window of {window:,}." if window is not None else f"{count}."]
    if preview.shared:
        parts.append(f"It begins with {scales.counted(preview.shared, 'token')} of the current path.")
    return visible(" ".join((*parts, *preview.notes)))


# ---- a prompt from a file --------------------------------------------------------------------

FILE_HELP = "A UTF-8 text file, of 16 MiB at most. It replaces the prompt in the dialog."
_NAMES = 10_000
"""Maximum entries of a directory that are searched."""


class PathSuggester(Suggester):
    """Completes the path of a file; `→` accepts the proposal."""

    async def get_suggestion(self, value: str) -> str | None:
        """The first completion in alphabetical order; a directory ends with a slash."""
        return await asyncio.to_thread(completed, value)


def completed(text: str) -> str | None:
    """A printable path that begins with the typed text; None if there is none."""
    directory, name = os.path.split(text)
    try:
        with os.scandir(typed(directory)) as entries:
            begun = (each for each in islice(entries, _NAMES) if each.name.startswith(name))
            found = [each for each in begun if each.name.isprintable() and (name or each.name[0] != ".")]
        if found:
            best = min(found, key=lambda each: each.name)
            return text[: len(text) - len(name)] + best.name + ("/" if best.is_dir() else "")
    except (OSError, PathError):  # no such directory, or no name at all
        pass
    return None


class PromptFileDialog(FieldDialog[str]):
    """Asks for a path; returns the file's text.

    Args:
        name: The initial path in the field.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among files",
        note("enter", hint="read", worth=6),
        note("right", hint="accept the proposal", worth=5),
        told=False,
    )
    HEADING: ClassVar[str] = "Prompt from a file"
    APPLY: ClassVar[str] = "Read"
    FIELD: ClassVar[str] = "prompt-file"

    def __init__(self, name: str) -> None:
        super().__init__(name, "prompt.txt", FILE_HELP)
        self.field.suggester = PathSuggester(use_cache=False, case_sensitive=True)

    def apply(self) -> None:
        """Read the file, unless none was named."""
        if self.typed:
            self._read(self.typed)
        else:
            self.say("No file was named. Give a name.", wrong=True)

    @work(thread=True, exclusive=True)
    def _read(self, name: str) -> None:
        try:
            text = read_text_file(name, "prompt file", "Check the path's spelling.", "Give a regular file.")
        except EngineError as error:
            self.from_thread(self.say, str(error), True)
            return
        if text:
            self.from_thread(self.dismiss, text)
        else:
            self.from_thread(self.say, "The file is empty. Give another one.", True)

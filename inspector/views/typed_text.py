"""The user's own text, inserted into the path token by token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine.protocol import Insert, PromptToken, Step, Tokenize, Tokenized
from inspector import scales
from inspector.display import quoted, token_label, truncate
from inspector.keys import key_for
from inspector.main.tool import ToolActions
from inspector.session.client import EngineClient, Request
from inspector.session.requests import Latest, failure_words
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.actions import NEW_LINE, ActionTable, applies, dialog_table, leaves, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeTextArea
from inspector.widgets.pieces import PieceList

LABEL = 20
"""Maximum cells of a token's text in a sentence."""


def label_of(item: Item) -> str:
    """A token's text for a sentence: short and in quotation marks."""
    return quoted(truncate(token_label(item.text, item.raw), LABEL))


OWN_TEXT_KEYS = dialog_table(
    "While a text of your own is typed",
    applies("Insert it.", written="`⏎` or `{dialog.apply}`"),
    note("enter", hint="insert", worth=6),
    NEW_LINE,
    leaves("Leave; your text is kept."),
)
KEYS = "⏎ inserts, ctrl+j begins a line. Special tokens can be typed: <|im_end|>."


class OwnTextDialog(Dialog[tuple[str, bool]]):
    """Asks for a text to insert; returns the text, and whether to insert it.

    Args:
        text: The initial value of the field.
        timeline: Provides the place: the text replaces the selected token, or goes to the end of the path.
        client: Asks the engine how the text is tokenized.
    """

    ACTIONS: ClassVar[ActionTable] = OWN_TEXT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("own_text", "place", "_taken", "_window")
    HEADING: ClassVar[str] = "Type your own"
    APPLY: ClassVar[str] = "Insert"
    FIRST: ClassVar[str] = "#own-text"
    REMARK: ClassVar[str] = "#own-remark"

    def __init__(self, text: str, timeline: Timeline, client: EngineClient) -> None:
        super().__init__()
        self.own_text, self.place, self._lookup = text, place_of(timeline), Latest(client)
        self._taken, self._window = timeline.slot, timeline.facts.context_window if timeline.facts else None
        """Tokens before that place, and the size of the context window; None if the model states none."""

    def body(self) -> Iterable[Widget]:
        yield Remark(id="own-spot")
        yield SafeTextArea(id="own-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(id="own-remark")
        yield PieceList(id="own-pieces")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        self.query_one("#own-spot", Remark).say(self.place)
        self.say(KEYS)
        self.query_one("#own-pieces", PieceList).put(())
        with self.prevent(TextArea.Changed):
            self.query_one("#own-text", SafeTextArea).put(self.own_text)
        self._ask()

    def let_go(self) -> None:
        self._lookup.drop()

    @property
    def typed(self) -> str:
        return self.query_one("#own-text", SafeTextArea).text

    @on(TextArea.Changed, "#own-text")
    def _ask(self) -> None:
        self.query_one("#apply", Button).disabled = not self.typed
        self._lookup.ask(Tokenize(self.typed), self._answered)

    def _answered(self, request: Request[Tokenize]) -> None:
        answer, failure = request.reply(Tokenized), request.failure
        if failure is not None:
            self.query_one("#own-pieces", PieceList).put(())
            self.say(failure_words(failure), wrong=True)
        if answer is None:
            return
        self.query_one("#own-pieces", PieceList).put(answer.pieces)
        count, special = len(answer.pieces), sum(piece.special for piece in answer.pieces)
        after, window = self._taken + count, self._window
        too_many = window is not None and count > 0 and window < after
        text = f"{count:,} token" + "s" * (count != 1) + (f", {special:,} of them special" if special else "")
        if not count:
            text = KEYS
        elif window is None:
            text += "."
        elif too_many:
            text += f": too many. The context window has room for {max(0, window - self._taken):,} there. Type less."
        else:
            text += f". The context then holds {after:,} of {window:,}."
        self.say(text, wrong=too_many)
        self.query_one("#apply", Button).disabled = not count or too_many

    def apply(self) -> None:
        """Insert the typed text, unless that can't be done."""
        if not self.query_one("#apply", Button).disabled:
            self.dismiss((self.typed, True))
        elif not self.typed:
            self.say("Nothing was typed. Type at least one character.", wrong=True)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss((self.typed, False))


def place_of(timeline: Timeline) -> str:
    """A sentence on where the typed text would go; printable."""
    slot, item = timeline.slot, timeline.selected
    after = f"After {label_of(timeline.items[slot - 1])}" if slot else "Before the first token"
    if item is None:
        return f"{after}, at the end of the text."
    kept = ": the prompt as it was" if isinstance(item, PromptToken) else ", which"
    return f"{after}, instead of {label_of(item)}{kept} keeps its own branch."


class TypedTextActions(ToolActions):
    """Inserts the user's text token by token."""

    _text: str = ""
    """The text that was typed and not inserted yet."""
    _forbidden: tuple[int, str] | None = None
    """Node and text of the last insertion that was refused: inserting them again leaves the grammar that forbids it."""

    def open(self) -> None:
        """Ask for a text, and take it token by token."""
        self.controller.client.pause()
        if not self.timeline.slot:
            self.host.answer(
                "Nothing can be typed before the first token. Press → for a later one, or "
                f"{key_for('prompt')} for another prompt"
            )
            return
        dialog = OwnTextDialog(self._text, self.timeline, self.controller.client)
        self.host.open(dialog, partial(self._left, self.timeline.before))
        self.host.answer()

    def _left(self, node: int, typed: tuple[str, bool] | None) -> None:
        if typed is None:
            return
        self._text, submitted = typed
        if submitted:
            again = self._forbidden == (node, self._text)
            self.controller.client.do(Insert(node, self._text, leave_grammar=again), self._inserted)
            self.host.answer()

    def _inserted(self, request: Request[Insert]) -> None:
        """Say how surprised the model was; a text that was not inserted is kept."""
        if request.failure is not None:
            self._forbidden = request.command.node, request.command.text
        elif not request.cancelled:
            self._text = ""
        steps = [record for record in request.records if isinstance(record, Step)]
        self.host.answer(typed_summary(steps, request.cancelled))


# ---- how probable the model found it ----------------------------------------------------------


def typed_summary(steps: Sequence[Step], stopped: bool = False) -> str:
    """One sentence on the tokens that were typed; printable.

    Args:
        steps: One for each token.
        stopped: Whether the user stopped it before its end.
    """
    if not steps:
        kept = f"Stopped: none of it was taken. Your text is kept: press {key_for('own_text')}"
        return kept if stopped else ""
    lead = "Stopped: " if stopped else ""
    bits = scales.bits(sum(step.surprisal_bits for step in steps))
    least = max(steps, key=lambda step: step.surprisal_bits)
    expected = f"{label_of(least)} ({scales.share(least.prob)}, rank {least.rank:,})"
    if len(steps) == 1:
        return f"{lead}1 token typed: {expected}, {bits} bits"
    return f"{lead}{scales.counted(len(steps), 'token')} typed: {bits} bits in all; the least expected was {expected}"

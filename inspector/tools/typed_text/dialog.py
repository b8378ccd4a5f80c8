"""The dialog in which the user types text into the path, and sees what tokens it will be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct
from textual import on
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine.protocol import PromptToken, Tokenize, Tokenized
from inspector.display import visible
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.typed_text import OWN_TEXT_KEYS, OwnText, label_of
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import TypedTextArea
from inspector.widgets.pieces import PieceList

KEYS = "⏎ inserts, ctrl+n begins a line. Special tokens can be typed: <|im_end|>."


class Spot(Struct, frozen=True):
    """The place that typed text goes to."""

    node: int
    """It goes after this one."""
    taken: int
    """Tokens of the context up to there."""
    window: int | None
    """Tokens that the context window holds, None where the model states none."""
    words: str
    """A sentence, printable."""


def spot(timeline: Timeline) -> Spot:
    """Find where text that is typed now would go: in the place of the selected token, or at the end of the path."""
    slot = timeline.slot
    after = f"After {label_of(timeline.items[slot - 1])}" if slot else "Before the first token"
    window = timeline.facts.context_window if timeline.facts else None
    return Spot(timeline.before, slot, window, after + _replaced(timeline.selected))


def _replaced(item: Item | None) -> str:
    """The end of a sentence on the token in whose place text is typed."""
    if item is None:
        return ", at the end of the text."
    kept = ": the prompt as it was" if isinstance(item, PromptToken) else ", which"
    return f", in the place of {label_of(item)}{kept} keeps its own branch."


class OwnTextDialog(Dialog[OwnText]):
    """Asks for a text to insert.

    Args:
        text: The initial value of the field.
        lookup: Asks the engine how the text is cut.
        spot: Where it goes.
    """

    ACTIONS: ClassVar[ActionTable] = OWN_TEXT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("own_text", "lookup", "spot")
    HEADING: ClassVar[str] = "Type your own"
    APPLY: ClassVar[str] = "Insert"

    def __init__(self, text: str, lookup: Latest, spot: Spot) -> None:
        super().__init__()
        self.own_text, self.lookup, self.spot = text, lookup, spot

    def body(self) -> Iterable[Widget]:
        yield Remark(id="own-spot")
        yield TypedTextArea(id="own-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(id="own-remark")
        yield PieceList(id="own-pieces")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        self.query_one("#own-spot", Remark).say(self.spot.words)
        self._say(KEYS)
        self.query_one("#own-pieces", PieceList).put(())
        area = self.query_one("#own-text", TypedTextArea)
        self.set_focus(area)
        with self.prevent(TextArea.Changed):
            area.load_text(self.own_text)
        area.move_cursor(area.document.end)
        self._ask()

    def let_go(self) -> None:
        """Wait for no answer any more."""
        self.lookup.drop()

    @property
    def typed(self) -> str:
        """The text in the field."""
        return self.query_one("#own-text", TypedTextArea).text

    @on(TextArea.Changed, "#own-text")
    def _ask(self) -> None:
        self.query_one("#apply", Button).disabled = not self.typed
        self.lookup.ask(Tokenize(self.typed), self._answered)

    def _answered(self, request: Request[Tokenize]) -> None:
        answer, failure = request.reply(Tokenized), request.failure
        if failure is not None:
            self.query_one("#own-pieces", PieceList).put(())
            self._say(visible(f"{failure.message} {failure.hint}".rstrip()), wrong=True)
        if answer is None:
            return
        self.query_one("#own-pieces", PieceList).put(answer.pieces)
        fits = self._fits(len(answer.pieces))
        self._say(KEYS if not answer.pieces else self._counted(answer), wrong=not fits)
        self.query_one("#apply", Button).disabled = not (answer.pieces and fits)

    def _fits(self, count: int) -> bool:
        return self.spot.window is None or not count or self.spot.taken + count <= self.spot.window

    def _counted(self, tokenized: Tokenized) -> str:
        count, special = len(tokenized.pieces), sum(piece.special for piece in tokenized.pieces)
        text = f"{count:,} token" + "s" * (count != 1) + (f", {special:,} of them special" if special else "")
        if self.spot.window is None:
            return f"{text}."
        if not self._fits(count):
            left = max(0, self.spot.window - self.spot.taken)
            return f"{text}: too many. The context window has room for {left:,} there. Type less."
        return f"{text}. The context then holds {self.spot.taken + count:,} of {self.spot.window:,}."

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#own-remark", Remark).say(text, wrong)

    @on(TypedTextArea.TextSubmitted)
    def apply(self) -> None:
        """Insert what was typed, unless that can't be done."""
        if not self.query_one("#apply", Button).disabled:
            self.dismiss(OwnText(self.typed, True))
        elif not self.typed:
            self._say("Nothing was typed. Type at least one character.", wrong=True)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss(OwnText(self.typed, False))

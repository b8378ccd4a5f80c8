"""The dialog in which the user types text into the path, and sees what tokens it will be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine.protocol import PromptToken, Tokenize, Tokenized
from inspector.display import visible
from inspector.session.client import EngineClient, Request
from inspector.session.requests import Latest
from inspector.state.timeline import Timeline
from inspector.tools.typed_text import OWN_TEXT_KEYS, label_of
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import TypedTextArea
from inspector.widgets.pieces import PieceList

KEYS = "⏎ inserts, ctrl+n begins a line. Special tokens can be typed: <|im_end|>."


class OwnTextDialog(Dialog[tuple[str, bool]]):
    """Asks for a text to insert. Its result: the text, and whether to insert it.

    Args:
        text: The initial value of the field.
        timeline: It replaces the selected token on a new branch, or goes to the end of the path.
        client: Asks the engine how the text is cut.
    """

    ACTIONS: ClassVar[ActionTable] = OWN_TEXT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("own_text", "place", "_taken", "_window")
    HEADING: ClassVar[str] = "Type your own"
    APPLY: ClassVar[str] = "Insert"

    def __init__(self, text: str, timeline: Timeline, client: EngineClient) -> None:
        super().__init__()
        self.own_text, self.place, self._lookup = text, place_of(timeline), Latest(client)
        self._taken, self._window = timeline.slot, timeline.facts.context_window if timeline.facts else None
        """Tokens of the context up to there, and that its window holds; None if the model states none."""

    def body(self) -> Iterable[Widget]:
        yield Remark(id="own-spot")
        yield TypedTextArea(id="own-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(id="own-remark")
        yield PieceList(id="own-pieces")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        self.query_one("#own-spot", Remark).say(self.place)
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
        self._lookup.drop()

    @property
    def typed(self) -> str:
        """The text in the field."""
        return self.query_one("#own-text", TypedTextArea).text

    @on(TextArea.Changed, "#own-text")
    def _ask(self) -> None:
        self.query_one("#apply", Button).disabled = not self.typed
        self._lookup.ask(Tokenize(self.typed), self._answered)

    def _answered(self, request: Request[Tokenize]) -> None:
        answer, failure = request.reply(Tokenized), request.failure
        if failure is not None:
            self.query_one("#own-pieces", PieceList).put(())
            self._say(visible(f"{failure.message} {failure.hint}".rstrip()), wrong=True)
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
        self._say(text, wrong=too_many)
        self.query_one("#apply", Button).disabled = not count or too_many

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#own-remark", Remark).say(text, wrong)

    @on(TypedTextArea.TextSubmitted)
    def apply(self) -> None:
        """Insert what was typed, unless that can't be done."""
        if not self.query_one("#apply", Button).disabled:
            self.dismiss((self.typed, True))
        elif not self.typed:
            self._say("Nothing was typed. Type at least one character.", wrong=True)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss((self.typed, False))


def place_of(timeline: Timeline) -> str:
    """A sentence on where text that is typed now would go; printable."""
    slot, item = timeline.slot, timeline.selected
    after = f"After {label_of(timeline.items[slot - 1])}" if slot else "Before the first token"
    if item is None:
        return f"{after}, at the end of the text."
    kept = ": the prompt as it was" if isinstance(item, PromptToken) else ", which"
    return f"{after}, in the place of {label_of(item)}{kept} keeps its own branch."

"""The dialogs of activation patching: the counterfactual prompt, edited in place, and a set of pairs of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec.structs import asdict
from textual import on
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from engine.errors import EngineError
from engine.protocol import PatchPair, PreviewPrompt, PromptPreview
from engine.recording import as_json
from engine.tree import aligned, facing
from inspector.display import visible
from inspector.main.dialogs.prompt import CUTTING, LATER, SHORT
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.patching import pairs_from
from inspector.texts import decoded, read_text_file
from inspector.tools.interventions.control import COUNTERFACTUAL_DIALOG, PAIRS_DIALOG
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeTextArea
from inspector.widgets.pieces import PieceList

MOST_CUT = 4096
"""Tokens of an edited prompt that are compared with the path's while it is typed."""


class CounterfactualDialog(Dialog[str]):
    """Asks for a text to patch from.

    Args:
        text: That of the path, which is edited.
        ids: The tokens of the path.
        lookup: Asks the engine how the text is cut.
    """

    ACTIONS: ClassVar[ActionTable] = COUNTERFACTUAL_DIALOG
    HEADING: ClassVar[str] = "Counterfactual prompt: change what should make the difference"
    APPLY: ClassVar[str] = "Read it"

    def __init__(self, text: str, ids: Sequence[int], lookup: Latest) -> None:
        super().__init__()
        self._text, self._ids, self._lookup = text, list(ids), lookup
        self._timer: Timer | None = None
        self._asked = ""
        """The text whose pieces are shown, or will be: the field also reports what was put into it."""

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="counterfactual-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(CUTTING, id="counterfactual-remark")
        yield PieceList(both_ends=True, id="counterfactual-pieces")

    def begin(self) -> None:
        """Begin at the end of the text, which is where most prompts differ least from what is asked."""
        super().begin()
        editor = self.query_one("#counterfactual-text", SafeTextArea)
        editor.load_text(self._text)
        editor.move_cursor(editor.document.end)
        self.set_focus(editor)
        self._changed()

    def let_go(self) -> None:
        """Wait for no answer any more."""
        self._lookup.drop()

    @property
    def typed(self) -> str:
        """The text in the field."""
        return self.query_one("#counterfactual-text", SafeTextArea).text

    @on(TextArea.Changed)
    def _changed(self) -> None:
        """Have the text cut again, a long one once no key was pressed for a moment."""
        if self._timer is not None:
            self._timer.stop()
        if len(self.typed) > SHORT:
            self._timer = self.set_timer(LATER, self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        if not self.left and self.typed and self.typed != self._asked:
            self._asked = self.typed
            self._lookup.ask(PreviewPrompt(self.typed, False, most=MOST_CUT), self._answered)

    def _answered(self, request: Request[PreviewPrompt]) -> None:
        remark = self.query_one("#counterfactual-remark", Remark)
        if (failure := request.failure) is not None:
            remark.say(visible(f"{failure.message} {failure.hint}".rstrip()), wrong=True)
        elif (answer := request.reply(PromptPreview)) is not None:
            remark.say(counted(self._ids, answer))
            shown = len(answer.first) + len(answer.last)
            pieces = self.query_one("#counterfactual-pieces", PieceList)
            pieces.put_ends(answer.first, answer.last, answer.tokens - shown)

    def apply(self) -> None:
        """Read what was typed, or say what is wrong with it."""
        if self.typed and self.typed != self._text:
            self.dismiss(self.typed)
        else:
            same = "The text is still that of the path. Change a word of it."
            remark = self.query_one("#counterfactual-remark", Remark)
            remark.say(same if self.typed else "It is empty.", wrong=True)


def counted(ids: Sequence[int], answer: PromptPreview) -> str:
    """A sentence on the tokens of an edited text, and how they face those of the path; printable.

    Args:
        ids: The tokens of the path.
        answer: How the text is cut.
    """
    count = f"{answer.tokens:,} token{'s' * (answer.tokens != 1)}, {len(ids):,} here"
    if answer.last:
        return f"{count}."
    return f"{count}. {facing_words(ids, [piece.id for piece in answer.first])}"


def facing_words(own: Sequence[int], source: Sequence[int]) -> str:
    """The alignment of two paths in a sentence or two.

    Args:
        own: The tokens of the path that is changed.
        source: Those of the source.
    """
    first, _ = facing(own, source)
    if first == len(own) == len(source):
        return "Both have the same tokens."
    if len(own) == len(source):
        return (
            f"As many: each token faces the source's in its place. They differ from token {first + 1:,} on."
        )
    faced = len(aligned(own, source))
    here, there = len(own) - faced, len(source) - faced
    return (
        f"{_counted(faced).capitalize()} face each other, by common blocks. "
        f"{_counted(here).capitalize()} here and {_counted(there)} of the source face none."
    )


def _counted(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}" if count else "no token"


# ---- pairs of texts -------------------------------------------------------------------------------

EXAMPLE = (
    PatchPair("Lily lost her ball. She felt very", "Lily found her ball. She felt very", " happy", " sad"),
    PatchPair("Tom broke his toy. He was so", "Tom got a new toy. He was so"),
    PatchPair("Max was sick. He felt very", "Max won the big race. He felt very"),
)
"""The first text of the field: it shows the form."""
SHAPE = (
    "One pair a line, or the name of a file of such lines. What the source computes is put into the text; followed is "
    "the logit of token, which the source should favour, less that of other. Without these two, those are followed "
    "that tell both texts apart."
)


class PairsDialog(Dialog[tuple[PatchPair, ...]]):
    """Asks for a set of pairs.

    Args:
        given: Those that were given last; none for the example.
    """

    ACTIONS: ClassVar[ActionTable] = PAIRS_DIALOG
    HEADING: ClassVar[str] = "Patch a set of pairs"
    APPLY: ClassVar[str] = "Patch them"

    def __init__(self, given: Sequence[PatchPair] = ()) -> None:
        super().__init__()
        self._given = given or EXAMPLE

    def body(self) -> Iterable[Widget]:
        yield SafeTextArea(id="pairs-text", soft_wrap=True, tab_behavior="focus")
        yield Remark(SHAPE, id="pairs-remark")

    def begin(self) -> None:
        super().begin()
        editor = self.query_one("#pairs-text", SafeTextArea)
        lines = ({name: text for name, text in asdict(each).items() if text} for each in self._given)
        editor.load_text("\n".join(as_json(line).decode() for line in lines))
        self.set_focus(editor)

    def apply(self) -> None:
        """Take the pairs, or say what is wrong with them."""
        text = self.query_one("#pairs-text", SafeTextArea).text.strip()
        try:
            name = "What you typed"
            if text and not text.startswith("{"):
                name = text
                raw = read_text_file(
                    name, "file of pairs", "Check the path's spelling.", "Give a regular file."
                )
                text = decoded(raw, name)
            pairs = pairs_from(text, name)
        except EngineError as error:
            self.query_one("#pairs-remark", Remark).say(visible(str(error)), wrong=True)
        else:
            self.dismiss(pairs)

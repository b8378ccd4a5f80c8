"""The dialog that searches the vocabulary at a token: what is typed is looked up at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import COMPUTE_AGAIN
from engine.frozen import frozen
from engine.protocol import Failure, FindTokens, TokensFound
from engine.token_texts import read_query
from inspector import scales
from inspector.display import hex_bytes, token_label, truncate, visible
from inspector.keys import key_for
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.tools.find.match_list import MatchList
from inspector.tools.find.tool import FIND_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Remark
from inspector.widgets.pick_list import PickDialog
from inspector.widgets.safety import SafeInput

LIMIT = 100
"""Matches that are shown at most."""
WAYS = (
    "Type part of a token with its spaces (␣ and ↵ will do), #339 for an id, 0x e2 9c for bytes. "
    "A capital letter makes case matter."
)
FRAME = 0.1
"""Seconds between two checks whether the selected slot is still the one searched for."""


@frozen
class FindPlace:
    """Where the search is made."""

    node: int
    """The tokens would follow it."""
    name: str
    """As the title calls it; printable."""
    taken: int | None
    """Id of the token there, or of the one that a step would take."""


@frozen
class VocabularySearch:
    """What was looked for, and what was chosen of it."""

    query: str
    chosen: int | None
    """Token id, None where the dialog was left."""
    in_text: bool = False
    """Whether it was left to look for the same in the text."""


class FindDialog(PickDialog[VocabularySearch]):
    """Looks tokens up.

    Args:
        query: The initial value of the field.
        lookup: Asks the engine.
        place: Returns where to search, now.
        vocabulary: Tokens of the model.
        recall: Has logits that are not kept computed again, and then calls `recalled`.
    """

    ACTIONS: ClassVar[ActionTable] = FIND_KEYS
    KEPT: ClassVar[tuple[str, ...]] = (
        "query_text", "lookup", "vocabulary", "_place", "_recall",
        "_pending", "_waiting", "_hasty", "_dropped", "_recalled",
    )  # fmt: skip
    HEADING: ClassVar[str] = "Find a token"
    APPLY: ClassVar[str] = "Choose"

    def __init__(
        self,
        query: str,
        lookup: Latest,
        place: Callable[[], FindPlace],
        vocabulary: int,
        recall: Callable[[int], None],
    ) -> None:
        super().__init__()
        self.query_text, self.lookup, self.vocabulary = query, lookup, vocabulary
        self._place, self._recall = place, recall
        self._pending: FindTokens | None = None
        self._waiting = self._hasty = False
        """Whether the answer is still to come, and whether its first match is to be chosen when it does."""
        self._dropped = False
        """Whether there is no answer since logits are not kept."""
        self._recalled: int | None = None
        """Node whose logits were computed again last."""
        self._following: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", "part of a token, #id or 0x bytes", id="find-query")
        yield Remark(id="find-remark")
        yield MatchList(id="find-matches")

    def begin(self) -> None:
        """Begin in the field, and look up its text."""
        super().begin()
        field = self.query_one("#find-query", SafeInput)
        self.set_focus(field)
        with self.prevent(Input.Changed):
            field.value = self.query_text
        self._say(WAYS)
        self._list.put((), None)
        self._ask()
        self._following = self.set_interval(FRAME, self._follow)

    def let_go(self) -> None:
        """Wait for no answer any more."""
        self.lookup.drop()
        if self._following is not None:
            self._following.stop()

    # ---- asking -----------------------------------------------------------------------------

    @property
    def typed(self) -> str:
        """The query in the field."""
        return self.query_one("#find-query", SafeInput).value

    @on(Input.Changed, "#find-query")
    def _typed(self) -> None:
        self._ask()

    def _follow(self) -> None:
        """Ask again where another token is selected: a run may have taken its last step meanwhile."""
        if not self.left and self._pending is not None and self._place().node != self._pending.node:
            self._ask()

    def _ask(self) -> None:
        place = self._place()
        self.query_one("#dialog").border_title = Content(f"{self.HEADING} · {place.name}")
        question = FindTokens(place.node, self.typed, LIMIT)
        if question != self._pending:
            self._pending, self._waiting, self._hasty = question, True, False
            self.lookup.ask(question, self._answered)

    # ---- answers ----------------------------------------------------------------------------

    def _answered(self, request: Request[FindTokens]) -> None:
        self._waiting = self._dropped = False
        if request.failure is not None:
            self._failed(request.failure)
        if (answer := request.reply(TokensFound)) is None:
            return
        self._list.put(answer.matches, self._place().taken)
        said = " ".join(filter(None, (answer_sentence(answer, self.vocabulary), visible(answer.note))))
        self._say(said, wrong=not answer.total)
        if self._hasty:
            self.apply()

    def _failed(self, failure: Failure) -> None:
        place = self._place()
        self._list.put((), None)
        self._dropped = failure.hint.startswith(COMPUTE_AGAIN)
        text = visible(failure.message)
        if not self._dropped:
            text += " " + visible(failure.hint)
        elif self._recalled == place.node:
            text += " There is no room to keep them: start with more --kept-logits-mib."
        else:
            text += f" Press {key_for('find.recall')} to compute them."
        self._say(text, wrong=True)

    def recalled(self) -> None:
        """Logits were computed again: ask again."""
        if self._dropped:
            self._pending = None
            self._ask()

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#find-remark", Remark).say(text, wrong)

    @property
    def _list(self) -> MatchList:
        return self.query_one("#find-matches", MatchList)

    # ---- keys -------------------------------------------------------------------------------

    def recall(self) -> None:
        """Have logits computed again that are not kept."""
        node = self._place().node
        if self._dropped and self._recalled != node:
            self._recalled = node
            self._say("Computing the logits …")
            self._recall(node)

    def apply(self) -> None:
        """Choose the highlighted match; where the answer to what was typed is still to come, its first one."""
        self._follow()
        match = self._list.match
        if self._waiting:
            self._hasty = True
        elif match is not None:
            self.dismiss(VocabularySearch(self.typed, match.id))

    def in_text(self) -> None:
        """Leave, and look for the same in the text."""
        self.dismiss(VocabularySearch(self.typed, None, in_text=True))

    def leave(self) -> None:
        """Leave; what was looked for is remembered."""
        self.dismiss(VocabularySearch(self.typed, None))


def answer_sentence(answer: TokensFound, vocabulary: int) -> str:
    """What a search found, as a sentence; printable.

    Args:
        answer: The answer.
        vocabulary: Tokens of the model.
    """
    if not answer.query:
        return WAYS
    query = read_query(answer.query)
    if query.kind == "id":
        ids = f"0 to {vocabulary - 1:,}"
        return (
            "This token has the id." if answer.total else f"No token has the id {query.id}: they are {ids}."
        )
    part = hex_bytes(query.raw) if query.kind == "bytes" else f"‹{truncate(token_label(answer.query), 24)}›"
    if not answer.total:
        return (
            f"No token contains {part}. A text may take several tokens: leave, and press "
            f"{key_for('own_text')} to type it."
        )
    many = f"{answer.total:,} tokens contain {part}" if answer.total > 1 else f"1 token contains {part}"
    shown = len(answer.matches)
    more = f" The {shown} most probable are shown." if shown < answer.total else ""
    return f"{many}: {scales.tiny(answer.mass)} by the model.{more}"

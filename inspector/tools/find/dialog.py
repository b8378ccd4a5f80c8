"""The dialog that searches the vocabulary at a token: what is typed is looked up at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import COMPUTE_AGAIN
from engine.protocol import Candidate, Failure, FindTokens, TokensFound
from engine.token_texts import read_query
from inspector import scales
from inspector.display import hex_bytes, pad, token_label, truncate, visible
from inspector.keys import key_for
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.tools.find import FIND_KEYS, FindPlace, VocabularySearch
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Row
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickDialog, PickList

LIMIT = 100
"""Matches that are shown at most."""
HELP = (
    "Type part of a token with its spaces (␣ and ↵ will do), #339 for an id, 0x e2 9c for bytes. "
    "With a capital letter, case matters."
)
FRAME = 0.1
"""Seconds between two checks whether the selected slot is still the one searched for."""


class FindDialog(PickDialog[VocabularySearch]):
    """Looks tokens up.

    Args:
        query: The initial value of the field.
        lookup: Asks the engine.
        place: Returns where to search, now.
        vocabulary: Tokens of the model.
        recall: Has the logits of a node computed again, and then calls its second argument.
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
        recall: Callable[[int, Callable[[], None]], None],
    ) -> None:
        super().__init__()
        self.query_text, self.lookup, self.vocabulary = query, lookup, vocabulary
        self._place, self._recall = place, recall
        self._pending: FindTokens | None = None
        self._waiting = self._hasty = False
        """True if the answer is still to come, and whether its first match is to be chosen when it does."""
        self._dropped = False
        """True if there is no answer since logits are not kept."""
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
        self._say(HELP)
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
        question = FindTokens(place.node, self.typed, LIMIT, place.settings, place.reroll)
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
        if self._dropped and not self.left:
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
            self._recall(node, self.recalled)

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
    """The result of a search, as a sentence; printable.

    Args:
        answer: The answer.
        vocabulary: Tokens of the model.
    """
    if not answer.query:
        return HELP
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


# ---- the matches --------------------------------------------------------------------------------

MARK, PERCENT = 3, 9
"""Cells of the marks and of the model's probability, with its left gap."""
EXTRA = {"sampler": 9, "rank": 8, "logprob": 9, "id": 8}
"""Cells of the columns that give way, their left gap included; the last goes first."""
TOKEN = 26
"""Cells that a token's text gets at most."""


class MatchColumns(Struct, frozen=True):
    """The columns that fit, and the widths of those that give way."""

    token: int
    bar: int
    extra: tuple[str, ...]


def fitting(width: int) -> MatchColumns:
    """The columns that fit in `width` cells."""
    extra = list(EXTRA)
    while extra and width - MARK - PERCENT - sum(EXTRA[name] for name in extra) < 20:
        extra.pop()
    free = width - MARK - PERCENT - sum(EXTRA[name] for name in extra)
    token = max(6, min(TOKEN, free * 2 // 3))
    return MatchColumns(token, max(0, free - token - 1), tuple(extra))


class MatchList(PickList):
    """The matches; one of them is highlighted."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.matches: tuple[Candidate, ...] = ()
        self._taken: int | None = None

    @property
    def match(self) -> Candidate | None:
        """The highlighted match, None where there is none."""
        return self.matches[self.highlighted] if self.highlighted < len(self.matches) else None

    def put(self, matches: Sequence[Candidate], taken: int | None) -> None:
        """Show some matches, the first of them highlighted.

        Args:
            matches: The most probable first.
            taken: Id of the token in this place, for its mark.
        """
        self.matches, self._taken = tuple(matches), taken
        self.lay(len(self.matches))

    def head(self, width: int) -> Row:
        columns = fitting(width)
        text = " " * MARK + pad("token", columns.token + 1 + columns.bar) + pad("model", PERCENT, right=True)
        return [
            Segment(text + "".join(pad(n, EXTRA[n], right=True) for n in columns.extra), self.ink("muted"))
        ]

    def row(self, place: int, width: int) -> Row:
        match, columns = self.matches[place], fitting(width + 1)
        cut = match.cut_by is not None
        ink = self.ink("muted" if place == self.highlighted else "faint") if cut else self.rich_style
        words = self.ink("special") if match.special and not cut else ink
        return [
            Segment("▶ " if match.id == self._taken else "  ", self.ink("accent")),
            Segment(pad(token_label(match.text, match.raw), columns.token) + " ", words),
            Segment(bar(match.prob, columns.bar), ink if cut else ink + self.data()),
            Segment(pad(scales.tiny(match.prob), PERCENT, right=True), ink),
            *(self._number(match, name, ink) for name in columns.extra),
        ]

    def _number(self, match: Candidate, name: str, ink: Style) -> Segment:
        muted = ink if match.cut_by else self.ink("muted")
        match name:
            case "sampler":
                after = visible(match.cut_by) if match.cut_by else scales.percent(match.sampler_prob)
                return Segment(" " + pad(after, EXTRA[name] - 1, right=True), ink)
            case "rank":
                return Segment(pad(scales.count(match.rank), EXTRA[name], right=True), muted)
            case "logprob":
                return Segment(pad(f"{match.logprob:.2f}", EXTRA[name], right=True), muted)
            case _:
                return Segment(pad(str(match.id), EXTRA[name], right=True), muted)

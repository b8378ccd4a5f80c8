"""Searching the vocabulary at a token, as the query is typed, and searching the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import ClassVar

from msgspec import Struct
from rich.segment import Segment
from textual import on
from textual.containers import HorizontalGroup
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import COMPUTE_AGAIN
from engine.protocol import Candidate, Failure, FindTokens, Recall, Recalled, TokensFound
from engine.token_texts import TokenQuery, read_query
from inspector import scales
from inspector.display import hex_bytes, pad, quoted, token_label, truncate, visible
from inspector.keys import key_for
from inspector.main.tool import ToolActions
from inspector.session.client import Request
from inspector.session.requests import Latest
from inspector.state.beams import BeamHistory
from inspector.state.branches import Branch, Branches
from inspector.state.candidates import after_sampler
from inspector.state.session_tree import numbered
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, ActionTable, dialog_table, leaves, picking, taking
from inspector.widgets.canvas import Row, around
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput
from inspector.widgets.lists import PickDialog, PickList
from inspector.widgets.rows import columns_that_fit


class FindActions(ToolActions):
    """Searches the vocabulary at the selected token, and the text."""

    query: str = ""
    """The last query."""
    text_query, everywhere = "", False
    """The last query in the text, and whether it was for all branches."""

    def open(self) -> None:
        """Ask for part of a token, and take the chosen match."""
        self.controller.client.pause()
        self.host.open(FindDialog(self), self._chosen)
        self.host.answer()

    def _chosen(self, token: Candidate | None) -> None:
        self.host.answer("" if token is None else self.controller.navigation.choose(token.id))

    def find_in_text(self) -> None:
        """Ask for a text, and show where it occurs."""
        self.host.open(TextSearchDialog(self), self._found)
        self.host.answer()

    def look(self, slot: int | None) -> None:
        """Show a slot of the path in the text."""
        self.timeline.select(slot)
        self.host.changed()

    def _found(self, place: TextPlace | None) -> None:
        if place is not None and place.last in self.timeline.tree.branches:
            self.controller.navigation.go_to(place.first, place.last)
            self.host.answer()


# ---- a token of the vocabulary ------------------------------------------------------------------

LIMIT = 100
"""Maximum number of matches shown."""
HELP = (
    "Type part of a token with its spaces (␣ and ↵ will do), #339 for an id, 0x e2 9c for bytes. "
    "Case matters only if you type a capital."
)
FRAME = 0.1
"""Seconds between two checks whether the selected slot is still the one searched for."""
MARK, PERCENT = 3, 9
"""Cells of the marks and of the model's probability, with its left gap."""
COLUMNS = {"sampler": 9, "rank": 8, "logprob": 9, "id": 8}
"""Cells of the optional columns, their left gap included; the last is left out first."""
TOKEN, LEAST = 26, 20
"""Maximum cells of a token's text, and cells that text and bar get before any optional column."""


FIND_KEYS = dialog_table(
    "While a token is searched",
    *picking("Go through the matches: the token itself, those that begin with the text, then others.", "match", 6),
    taking("Take it, as a second click on it does.", "take it", 8),
    Action("find.recall", "Compute logits", "Compute logits that were not kept, such as those inside a prompt.",
           lambda own: own.recall(), hint="compute logits", worth=4, priority=True),
    Action("find.in_text", "In the text instead", "Search the text for the same instead.", lambda own: own.in_text(),
           hint="in the text instead", worth=3, priority=True),
    leaves("Leave; your text is kept."),
)  # fmt: skip


class FindDialog(PickDialog[Candidate]):
    """Searches for tokens; returns the one to take.

    Args:
        own: Provides the last query.
    """

    ACTIONS: ClassVar[ActionTable] = FIND_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("choices", "_pending", "_hasty", "_dropped", "_recalled")
    HEADING: ClassVar[str] = "Find a token"
    APPLY: ClassVar[str] = "Choose"
    FIRST: ClassVar[str] = "#find-query"

    def __init__(self, own: FindActions) -> None:
        super().__init__()
        self._own, self._lookup = own, Latest(own.controller.client)
        self._pending: FindTokens | None = None
        self._hasty = False
        """True if the first match of the awaited answer will be chosen."""
        self._dropped = False
        """True if there is no answer because the logits are not kept."""
        self._recalled: int | None = None
        """Node whose logits were computed again last."""
        self._following: Timer | None = None

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", "part of a token, #id or 0x bytes", id="find-query")
        yield Remark(id="find-remark")
        yield PickList(id="find-matches")

    def begin(self) -> None:
        """Begin in the field, and look up its text."""
        super().begin()
        with self.prevent(Input.Changed):
            self.query_one("#find-query", SafeInput).value = self._own.query
        self.say(HELP)
        self.put(())
        self._ask()
        self._following = self.set_interval(FRAME, self._follow)

    def let_go(self) -> None:
        self._lookup.drop()
        if self._following is not None:
            self._following.stop()

    def _follow(self) -> None:
        """Ask again if another token is selected: a run may have taken its last step meanwhile."""
        if not self.left and self._pending is not None and self._own.timeline.before != self._pending.node:
            self._ask()

    @on(Input.Changed, "#find-query")
    def _ask(self) -> None:
        timeline, queries = self._own.timeline, self._own.controller.queries
        item, distribution = timeline.selected, timeline.distribution
        name = "next token" if item is None else numbered(item)
        self.query_one("#dialog").border_title = Content(f"{self.HEADING} · {name}")
        used, reroll = queries.used(timeline), distribution.reroll if distribution else 0
        question = FindTokens(timeline.before, self.typed, LIMIT, used, reroll)
        if question != self._pending:
            self._pending, self._hasty = question, False
            self._lookup.ask(question, self._answered)

    # ---- answers ----------------------------------------------------------------------------

    def _answered(self, request: Request[FindTokens]) -> None:
        self._dropped = False
        if request.failure is not None:
            self._failed(request.failure)
        if (answer := request.reply(TokensFound)) is None:
            return
        self.put(answer.matches)
        vocabulary = self._own.timeline.facts.vocabulary if self._own.timeline.facts else 0
        said = f"{answer_sentence(answer, vocabulary)} {answer.note}"
        self.say(said.strip(), wrong=not answer.total)
        if self._hasty:
            self.apply()

    def _failed(self, failure: Failure) -> None:
        self.put(())
        self._dropped = failure.hint.startswith(COMPUTE_AGAIN)
        text = failure.message
        if not self._dropped:
            text += f" {failure.hint}"
        elif self._recalled == self._own.timeline.before:
            text += " There is no room to keep them: start with more --kept-logits-mib."
        else:
            text += f" Press {key_for('find.recall')} to compute them."
        self.say(text, wrong=True)

    # ---- keys -------------------------------------------------------------------------------

    def recall(self) -> None:
        """Compute the logits again if they are not kept."""
        node = self._own.timeline.before
        if self._dropped and self._recalled != node:
            self._recalled = node
            self.say("Computing the logits …")
            self._own.controller.client.do(Recall((node,)), self._recomputed)

    def _recomputed(self, request: Request[Recall]) -> None:
        if request.reply(Recalled) is not None and self._dropped and not self.left:
            self._pending = None
            self._ask()

    def apply(self) -> None:
        """Choose the highlighted match; if the answer to the query is still awaited, its first match."""
        self._follow()
        if self._lookup.waiting is not None:
            self._hasty = True
        elif self.choices:
            self._own.query = self.typed
            super().apply()

    def in_text(self) -> None:
        """Leave, and search the text for the same query."""
        self._own.text_query = self.typed
        self.dismiss()
        self._own.host.press("find_in_text")

    def leave(self) -> None:
        """Leave; the query is kept for the next time."""
        self._own.query = self.typed
        self.dismiss()

    # ---- the matches ------------------------------------------------------------------------

    def head(self, width: int) -> Row:
        token, cells, extra = columns(width)
        text = " " * MARK + pad("token", token + 1 + cells) + pad("model", PERCENT, right=True)
        return [
            Segment(text + "".join(pad(n, COLUMNS[n], right=True) for n in extra), self.picks.ink("muted"))
        ]

    def row(self, place: int, width: int) -> Row:
        match, on, (token, cells, extra) = self.choices[place], self.picks, columns(width + 1)
        cut = match.cut_by is not None
        ink = on.ink("muted" if place == on.highlighted else "faint") if cut else on.rich_style
        numbers = {
            "sampler": after_sampler(match),
            "rank": scales.count(match.rank),
            "logprob": scales.decimal(match.logprob),
            "id": str(match.id),
        }
        muted = ink if cut else on.ink("muted")
        return [
            Segment("▶ " if match.id == self._own.timeline.taken else "  ", on.ink("accent")),
            Segment(pad(token_label(match.text, match.raw), token) + " ",
                    on.ink("special") if match.special and not cut else ink),
            Segment(bar(match.prob, cells), ink if cut else ink + on.data()),
            Segment(pad(scales.share(match.prob), PERCENT, right=True), ink),
            *(Segment(" " + pad(numbers[name], COLUMNS[name] - 1, right=True), ink if name == "sampler" else muted)
              for name in extra),
        ]  # fmt: skip


def columns(width: int) -> tuple[int, int, tuple[str, ...]]:
    """The cells of a token and of its bar, and the columns that fit beside them in `width` cells."""
    room = width - MARK - PERCENT
    extra = columns_that_fit(COLUMNS, reversed(COLUMNS), room - LEAST)
    free = room - sum(COLUMNS[name] for name in extra)
    token = max(6, min(TOKEN, free * 2 // 3))
    return token, max(0, free - token - 1), extra


def answer_sentence(answer: TokensFound, vocabulary: int) -> str:
    """The result of a search, as a sentence; printable.

    Args:
        answer: The answer.
        vocabulary: Number of tokens in the model's vocabulary.
    """
    if not answer.query:
        return HELP
    query = read_query(answer.query)
    if query.kind == "id":
        ids = f"0 to {vocabulary - 1:,}"
        missing = f"No token has the id {query.id}: they are {ids}."
        return "This token has the id." if answer.total else missing
    part = hex_bytes(query.raw) if query.kind == "bytes" else quoted(truncate(token_label(answer.query), 24))
    if not answer.total:
        advice = f"A text may take several tokens: esc, then {key_for('own_text')} types it."
        return f"No token contains {part}. {advice}"
    many = f"{answer.total:,} tokens contain {part}" if answer.total > 1 else f"1 token contains {part}"
    shown = len(answer.matches)
    them = "together the model gives them" if answer.total > 1 else "the model gives it"
    more = f" The first {shown} are shown." if shown < answer.total else ""
    return f"{many}; {them} {scales.share(answer.mass)}.{more}"


# ---- a text on the path or on any branch --------------------------------------------------------

PLACES = 500
"""Maximum number of places listed."""
TEXT_HELP = "Searches the text; #339 finds an id, 0x e2 9c bytes. Case matters only if you type a capital."
_AROUND = 120
"""Maximum characters of the text on each side of a place."""
_POSITION, _BRANCH = 9, 16
"""Cells of the position, and of whether a place is on the path."""


class TextPlace(Struct, frozen=True):
    """One place where the text occurs, on the path or on another branch."""

    first: int
    """Node of its first token."""
    last: int
    """Node of its last token, which is on the place's branch."""
    on_path: bool


TEXT_KEYS = dialog_table(
    "While a text is found",
    *picking("Go through the places; the text shows those of the path at once.", "place", 6),
    taking("Stay there; for a place on another branch the KV cache moves.", "go there", 7),
    Action("find.scope", "All branches", "Search all branches, or only this path.", lambda own: own.change_scope(),
           hint="path or all", worth=4, priority=True),
    leaves("Go back to where you were."),
)  # fmt: skip


class TextSearchDialog(PickDialog[TextPlace]):
    """Finds a text; returns the place to go to.

    Args:
        own: Provides the last query.
    """

    ACTIONS: ClassVar[ActionTable] = TEXT_KEYS
    HEADING: ClassVar[str] = "Find in the text"
    APPLY: ClassVar[str] = "Go there"
    FIRST: ClassVar[str] = "#text-query"

    def __init__(self, own: FindActions) -> None:
        super().__init__()
        self._own, self._query = own, own.text_query
        self._from = None if own.timeline.following else own.timeline.slot
        """The slot that was selected before."""
        self._path = own.timeline.generation

    def body(self) -> Iterable[Widget]:
        with HorizontalGroup(id="text-row"):
            yield SafeInput(self._query, "a text", id="text-query")
            yield Choice(("this path", "all branches"), int(self._own.everywhere), id="text-scope")
        yield Remark(TEXT_HELP, id="text-remark")
        yield PickList(id="text-places")

    def begin(self) -> None:
        """Begin in the field with the last query, selected so that typing replaces it."""
        super().begin()
        self._find()

    @on(Input.Changed, "#text-query")
    @on(Choice.Changed, "#text-scope")
    def _find(self) -> None:
        """List the places; begin with the path's first one from the selected slot on, after it for the last query."""
        timeline, query = self._own.timeline, self.typed
        everywhere = bool(self.query_one("#text-scope", Choice).chosen)
        self._own.text_query, self._own.everywhere = query, everywhere
        places, total = search(timeline, query, everywhere)
        start = (0 if self._from is None else self._from) + 1
        start += self._from is not None and query == self._query
        depth = timeline.tree.branches.depth
        after = (n for n, place in enumerate(places) if place.on_path and depth(place.first) >= start)
        self.put(places, next(after, 0))
        said = places_sentence(query, everywhere, len(places), total)
        self.say(said, wrong=bool(query) and not total)

    @on(PickList.RowHighlighted)
    def _show_place(self) -> None:
        """Show the highlighted place in the text if it is on the path, otherwise the slot selected before."""
        place, timeline = self.picked, self._own.timeline
        if timeline.generation != self._path or timeline.running:
            return
        on_path = place is not None and place.on_path and place.first in timeline.tree.branches
        self._own.look(timeline.tree.branches.depth(place.first) - 1 if on_path and place else self._from)

    def change_scope(self) -> None:
        """Search the path, or all branches."""
        self.query_one("#text-scope", Choice).action_turn(1)

    def leave(self) -> None:
        """Go back to the slot that was selected before."""
        if self._own.timeline.generation == self._path:
            self._own.look(self._from)
        self.dismiss()

    # ---- the list of places, each in its text -----------------------------------------------

    def _beside(self, width: int) -> int:
        """Cells of the column that says whether a place is on the path; 0 without it."""
        return _BRANCH if width >= 60 and not all(place.on_path for place in self.choices) else 0

    def head(self, width: int) -> Row:
        beside = pad("branch", self._beside(width - 1))
        text = f" {pad('position', _POSITION, right=True)}  {beside}text"
        return [Segment(text, self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        timeline, found, muted = self._own.timeline, self.choices[place], self.picks.ink("muted")
        if found.last not in timeline.tree.branches:
            return [Segment("this place is deleted", muted)]
        beside, position = self._beside(width), scales.count(timeline.tree.branches.depth(found.first))
        cells = max(1, width - _POSITION - 2 - beside)
        return [
            Segment(pad(position, _POSITION, right=True) + "  ", muted),
            Segment(pad("this path" if found.on_path else "another", beside), muted),
            *around(*excerpt(timeline, found), cells, muted, self.picks.ink("accent")),
        ]


def places_sentence(query: str, everywhere: bool, shown: int, total: int) -> str:
    """The result of a search in the text, as a sentence; printable."""
    if not query:
        return TEXT_HELP
    where = "in any branch" if everywhere else "on this path"
    part = quoted(truncate(visible(query), 24))
    if not total:
        more = "" if everywhere else f" {key_for('find.scope')} searches all branches."
        return f"{part} does not occur {where}.{more} {key_for('find').capitalize()} searches the vocabulary instead."
    more = f" The first {shown} are shown." if shown < total else ""
    return f"{part}: {scales.counted(total, 'place')} {'in all branches' if everywhere else where}.{more}"


# ---- the search, across the borders of tokens ---------------------------------------------------


def search(timeline: Timeline, typed: str, everywhere: bool) -> tuple[list[TextPlace], int]:
    """Find what was typed.

    Args:
        timeline: The timeline on show.
        typed: As in a search of the vocabulary: a text, `#123` for an id, `0x e2 9c` for bytes within a token.
        everywhere: Whether to search every branch instead of the current path.

    Returns:
        The first places, and the number of all.
    """
    found: list[TextPlace] = []
    total, query = 0, read_query(typed)
    path, branches = [item.node for item in timeline.items], timeline.tree.branches
    on_path = frozenset(path)
    runs: Iterable[tuple[list[int], list[int]]] = [([], path)]
    if everywhere:
        runs = ((_tail(branches, branch, len(typed)), branch.nodes) for branch in branches)
    for above, own in runs if typed else ():
        nodes = above + own
        if query.kind == "text":
            spans: Iterable[tuple[int, int]] = _texts(branches, nodes, query)
        else:
            spans = ((place, place) for place, node in enumerate(nodes) if _is_token(timeline, node, query))
        for first, last in spans:
            if last >= len(above):
                total += 1
                if len(found) < PLACES:
                    found.append(TextPlace(nodes[first], nodes[last], nodes[last] in on_path))
    return found, total


def _tail(branches: Branches, branch: Branch, reach: int) -> list[int]:
    """The last tokens before a branch that together have `reach` characters, or all of them."""
    tail, node = [], branches[branch.first].parent
    while node in branches and reach > 0:
        tail.append(node)
        reach -= len(branches[node].text)
        node = branches[node].parent
    return tail[::-1]


def _is_token(timeline: Timeline, node: int, query: TokenQuery) -> bool:
    if query.kind == "bytes":
        return query.raw in timeline.tree.branches[node].raw
    item = timeline.tree.nodes.get(node) or timeline.of(BeamHistory).nodes.get(node)
    return item is not None and item.id == query.id


def _texts(branches: Branches, nodes: Sequence[int], query: TokenQuery) -> list[tuple[int, int]]:
    """Indices of the first and the last token of each occurrence of a text, in order."""
    texts = [branches[node].text for node in nodes]
    if not query.cased:
        texts = [text.lower() for text in texts]  # each by itself: lower case may change its length
    starts = list(accumulate(map(len, texts), initial=0))[:-1]
    whole = "".join(texts)
    spans: dict[int, int] = {}
    for part in query.texts:
        at = whole.find(part)
        while part and at >= 0:
            spans.setdefault(at, at + len(part))
            at = whole.find(part, at + len(part))
    return [
        (bisect_right(starts, at) - 1, bisect_right(starts, end - 1) - 1) for at, end in sorted(spans.items())
    ]


def excerpt(timeline: Timeline, place: TextPlace) -> tuple[str, str, str]:
    """The text before a place, there and after it; printable."""
    branches = timeline.tree.branches
    before, found, after = branches.excerpt(place.first, place.last, _AROUND)
    label = visible(found) or token_label("", branches[place.first].raw)
    return visible(before[-_AROUND:]), label, visible(after[:_AROUND])

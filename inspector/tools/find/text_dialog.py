"""The dialog that finds a text in what is there: the path shows each place as it is highlighted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import ClassVar

from msgspec import Struct
from rich.segment import Segment
from textual import on
from textual.containers import HorizontalGroup
from textual.widget import Widget
from textual.widgets import Input

from engine.token_texts import TokenQuery, read_query
from inspector import scales
from inspector.display import pad, token_label, truncate, visible
from inspector.keys import key_for
from inspector.state.beams import BeamHistory
from inspector.state.branches import Branch, Branches
from inspector.state.timeline import Timeline
from inspector.tools.find import TEXT_KEYS, TextPlace, TextSearch
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Row, around
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput
from inspector.widgets.lists import PickDialog, PickList

SCOPES = ("this path", "all branches")
HELP = "Searches the text; #339 finds an id, 0x e2 9c bytes. With a capital letter, case matters."


class TextSearchDialog(PickDialog[TextSearch]):
    """Finds a text.

    Args:
        search: What was looked for last.
        timeline: Returns what is on show, now.
        look: Has the text show a slot of the path.
    """

    ACTIONS: ClassVar[ActionTable] = TEXT_KEYS
    HEADING: ClassVar[str] = "Find in the text"
    APPLY: ClassVar[str] = "Go there"

    def __init__(
        self, search: TextSearch, timeline: Callable[[], Timeline], look: Callable[[int | None], None]
    ) -> None:
        super().__init__()
        self._search, self._now, self._look = search, timeline, look
        self._from = None if timeline().following else timeline().slot
        """The slot that the person came from."""
        self._path = timeline().generation

    def body(self) -> Iterable[Widget]:
        with HorizontalGroup(id="text-row"):
            yield SafeInput(self._search.query, "a text", id="text-query")
            yield Choice(SCOPES, int(self._search.everywhere), id="text-scope")
        yield Remark(HELP, id="text-remark")
        yield PlaceList(self._now)

    def on_mount(self) -> None:
        """Begin in the field, with what was looked for last selected: typing replaces it."""
        field = self.query_one("#text-query", SafeInput)
        field.focus()
        field.select_all()
        self._find()

    @property
    def _typed(self) -> TextSearch:
        query = self.query_one("#text-query", SafeInput).value
        return TextSearch(query, bool(self.query_one("#text-scope", Choice).chosen))

    @on(Input.Changed, "#text-query")
    @on(Choice.Changed, "#text-scope")
    def _find(self) -> None:
        typed, timeline = self._typed, self._now()
        found = search(timeline, typed.query, typed.everywhere)
        self.query_one(PlaceList).put(found.shown, self._nearest(found, timeline))
        self.query_one("#text-remark", Remark).say(
            answer_sentence(found, typed), wrong=bool(typed.query) and not found.total
        )

    def _nearest(self, found: TextPlaces, timeline: Timeline) -> int:
        """The first place of the path from where the person was; the one after it for what was looked for before."""
        start = (0 if self._from is None else self._from) + 1
        start += self._from is not None and self._typed.query == self._search.query
        depth = timeline.tree.branches.depth
        after = (n for n, place in enumerate(found.shown) if place.on_path and depth(place.first) >= start)
        return next(after, 0)

    @on(PickList.RowHighlighted)
    def _show_place(self) -> None:
        """Have the text show the highlighted place, where it is on the path; else what was shown before."""
        place, timeline = self.query_one(PlaceList).place, self._now()
        if timeline.generation != self._path or timeline.running:
            return
        on_path = place is not None and place.on_path and place.first in timeline.tree.branches
        self._look(timeline.tree.branches.depth(place.first) - 1 if on_path and place else self._from)

    def change_scope(self) -> None:
        """Search the path, or all branches."""
        self.query_one("#text-scope", Choice).action_turn(1)

    def apply(self) -> None:
        """Go to the highlighted place."""
        typed, place = self._typed, self.query_one(PlaceList).place
        if place is not None:
            self.dismiss(TextSearch(typed.query, typed.everywhere, place))

    def leave(self) -> None:
        """Go back to where the person was; what was looked for is remembered."""
        if self._now().generation == self._path:
            self._look(self._from)
        self.dismiss(self._typed)


def answer_sentence(found: TextPlaces, typed: TextSearch) -> str:
    """The result of a search, as a sentence; printable."""
    if not typed.query:
        return HELP
    where = "in any branch" if typed.everywhere else "on this path"
    part = f"‹{truncate(visible(typed.query), 24)}›"
    if not found.total:
        more = "" if typed.everywhere else f" {key_for('find.scope')} searches all branches."
        return (
            f"{part} occurs nowhere {where}.{more} To search all tokens that could come at a place, leave and press "
            f"{key_for('find')}."
        )
    many = f"{found.total:,} places" if found.total > 1 else "1 place"
    shown = len(found.shown)
    more = f", of which the first {shown} are shown" if shown < found.total else ""
    return f"{part} occurs at {many} {'in all branches' if typed.everywhere else where}{more}."


# ---- the list of places, each in its text -------------------------------------------------------

_POSITION, _BRANCH = 9, 16
"""Cells of the position, and of whether a place is on the path."""


class PlaceList(PickList):
    """The places, each in its text."""

    def __init__(self, timeline: Callable[[], Timeline]) -> None:
        super().__init__(id="text-places")
        self._now = timeline
        self.places: tuple[TextPlace, ...] = ()

    @property
    def place(self) -> TextPlace | None:
        """The highlighted one."""
        return self.places[self.highlighted] if self.highlighted < len(self.places) else None

    def put(self, places: tuple[TextPlace, ...], nearest: int) -> None:
        """Show some places, one of them highlighted."""
        self.places = places
        self.lay(len(places), nearest)

    def head(self, width: int) -> Row:
        beside = pad("branch", _BRANCH) if self._beside(width - 1) else ""
        return [
            Segment(" " + pad("position", _POSITION, right=True) + "  " + beside + "text", self.ink("muted"))
        ]

    def _beside(self, width: int) -> bool:
        return width >= 60 and not all(place.on_path for place in self.places)

    def row(self, place: int, width: int) -> Row:
        timeline, found, muted = self._now(), self.places[place], self.ink("muted")
        if found.last not in timeline.tree.branches:
            return [Segment("this place is deleted", muted)]
        shown, beside = excerpt(timeline, found), _BRANCH if self._beside(width) else 0
        position = scales.count(timeline.tree.branches.depth(found.first))
        return [
            Segment(pad(position, _POSITION, right=True) + "  ", muted),
            Segment(pad("this path" if found.on_path else "another", beside), muted),
            *around(
                shown.before,
                shown.found,
                shown.after,
                max(1, width - _POSITION - 2 - beside),
                muted,
                self.ink("accent"),
            ),
        ]


# ---- the search, across the borders of tokens ---------------------------------------------------

LIMIT = 500
"""Places that are listed at most."""
_AROUND = 120
"""Characters of the text at each side of a place, at most."""


class Excerpt(Struct, frozen=True):
    """A place in its text; printable."""

    before: str
    found: str
    after: str


class TextPlaces(Struct, frozen=True):
    """The places where a text stands."""

    shown: tuple[TextPlace, ...]
    total: int


def search(timeline: Timeline, typed: str, everywhere: bool) -> TextPlaces:
    """Find what was typed.

    Args:
        timeline: What is on show.
        typed: As in a search of the vocabulary: a text, `#123` for an id, `0x e2 9c` for bytes within a token.
        everywhere: In every branch, rather than on the current path alone.
    """
    if not typed:
        return TextPlaces((), 0)
    query = read_query(typed)
    path = [item.node for item in timeline.items]
    on_path = frozenset(path)
    found: list[TextPlace] = []
    total = 0
    for nodes, above in _runs(timeline.tree.branches, path, everywhere, len(typed)):
        for first, last in _in_run(timeline, nodes, above, query):
            total += 1
            if len(found) < LIMIT:
                found.append(TextPlace(first, last, last in on_path))
    return TextPlaces(tuple(found), total)


def _runs(
    branches: Branches, path: list[int], everywhere: bool, reach: int
) -> Iterator[tuple[list[int], int]]:
    """Nodes in the order of their text, and how many of them belong to the branches above."""
    if not everywhere:
        yield path, 0
        return
    for branch in branches:
        above = _tail(branches, branch, reach)
        yield above + branch.nodes, len(above)


def _tail(branches: Branches, branch: Branch, reach: int) -> list[int]:
    """The last tokens before a branch, of so many characters together."""
    tail: list[int] = []
    for part in branches.above(branch):
        if part is branch:
            continue
        for node in reversed(part.nodes):
            if reach <= 0:
                return tail[::-1]
            tail.append(node)
            reach -= len(branches[node].text)
    return tail[::-1]


def _in_run(timeline: Timeline, nodes: list[int], above: int, query: TokenQuery) -> Iterator[tuple[int, int]]:
    """First and last node of each place that ends in a run's own tokens."""
    if query.kind == "text":
        spans: Iterable[tuple[int, int]] = _texts(timeline.tree.branches, nodes, query)
    else:
        spans = ((place, place) for place, node in enumerate(nodes) if _is_token(timeline, node, query))
    return ((nodes[first], nodes[last]) for first, last in spans if last >= above)


def _is_token(timeline: Timeline, node: int, query: TokenQuery) -> bool:
    if query.kind == "bytes":
        return query.raw in timeline.tree.branches[node].raw
    item = timeline.tree.nodes.get(node) or timeline.of(BeamHistory).nodes.get(node)
    return item is not None and item.id == query.id


def _texts(branches: Branches, nodes: Sequence[int], query: TokenQuery) -> list[tuple[int, int]]:
    """Places of the first and the last token of each place where a text stands, in their order."""
    texts = [branches[node].text for node in nodes]
    if not query.cased:
        texts = [text.lower() for text in texts]  # each by itself: lowering may change how long it is
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


def excerpt(timeline: Timeline, place: TextPlace) -> Excerpt:
    """A place with the text around it."""
    branches = timeline.tree.branches
    nodes = [place.last]
    while nodes[-1] != place.first:
        nodes.append(branches[nodes[-1]].parent)
    end = branches.of(place.last)
    assert end is not None  # it was found there
    at = branches.place(place.last)
    after = "".join(branches[node].text for node in end.nodes[at + 1 : at + 1 + _AROUND])
    before, length, node = [], 0, branches[place.first].parent
    while node in branches and length < _AROUND:
        before.append(branches[node].text)
        length, node = length + len(before[-1]), branches[node].parent
    found = "".join(branches[node].text for node in reversed(nodes))
    return Excerpt(
        visible("".join(reversed(before))[-_AROUND:]),
        visible(found) or token_label("", branches[place.first].raw),
        visible(after[:_AROUND]),
    )

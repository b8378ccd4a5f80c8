"""Searching the text that is there: of the path, or of every branch, across the borders of tokens. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from engine.frozen import frozen
from engine.token_texts import TokenQuery, read_query
from inspector.display import token_label, visible
from inspector.state.beams import BeamHistory
from inspector.state.branches import Branch, Branches
from inspector.state.timeline import Timeline

LIMIT = 500
"""Places that are listed at most."""
_AROUND = 40
"""Characters of the text at each side of a place, at most."""


@frozen
class TextPlace:
    """One place where a text stands."""

    first: int
    """Node of its first token."""
    last: int
    """Node of its last one: its branch is that of the place."""
    on_path: bool


@frozen
class TextSearch:
    """What was looked for, where, and which place was chosen."""

    query: str = ""
    everywhere: bool = False
    chosen: TextPlace | None = None
    """None where the dialog was left."""


@frozen
class Excerpt:
    """A place in its text; printable."""

    before: str
    found: str
    after: str


@frozen
class TextPlaces:
    """Where a text stands."""

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

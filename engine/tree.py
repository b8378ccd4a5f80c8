"""The token tree: every token that was ever taken, by id, with its parent. Pure Python.

A node is one token after one path, so that the same token after the same path is the same node. Text is never
part of it: a word spelled by two odd pieces stays two odd pieces, through every fork and move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Protocol

from msgspec import Struct

from engine.protocol import Origin

ROOT = 0
"""The node before the first token."""


class Node(Struct):
    """One token after one path."""

    token: int
    parent: int
    depth: int
    """Tokens on the path up to and including this one; the root's is 0."""
    origin: Origin
    start: int
    """Tokens of the path up to the end of its last prompt: the completion begins after them."""
    prompt_begin: int = 0
    """Tokens of the path before that prompt: above 0 where it follows a completion, as a turn of a conversation."""
    decoded: int = 0
    """Tokens of the path that belong to no prompt."""
    held: int = 0
    """Number of the interventions that it was computed under, 0 for none; see `engine.session.state`."""
    newest: int | None = None
    """Its child that was added last. A dict of children would be half of what a node takes."""
    older: int | None = None
    """Its parent's child that was added before it."""
    reroll: int = 0
    """How often the draw of the token after this one was repeated."""
    drawn_reroll: int = 0
    """The parent's re-roll count when this token was last taken: that of its draw."""
    has_step: bool = False
    """True if it has a `Step` record: a beam search adds nodes that the session has not stepped yet."""


def root() -> Node:
    """The node before the first token, of a new tree."""
    return Node(token=-1, parent=-1, depth=0, origin="prompt", start=0)


class NodesByNumber(Protocol):
    """Where nodes are looked up: a list, or a dict where a record lacks some."""

    def __getitem__(self, node: int, /) -> Node:
        """The node of a number."""


class TokenPaths:
    """Paths through nodes that are there.

    Args:
        nodes: By number, the root among them; whoever made it may add to it.
    """

    def __init__(self, nodes: NodesByNumber) -> None:
        self._nodes = nodes

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def __contains__(self, node: int) -> bool:
        try:
            return self._nodes[node] is not None
        except LookupError:
            return False

    def ancestors(self, node: int) -> Iterator[int]:
        """The nodes from `node` to the first token, without the root."""
        while node != ROOT:
            yield node
            node = self._nodes[node].parent

    def nodes(self, node: int) -> list[int]:
        """The path's nodes from the first token to `node`."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self._nodes[node].parent
        return path[::-1]

    def tokens(self, node: int) -> list[int]:
        """The path's token ids from the first token to `node`."""
        return [self._nodes[ancestor].token for ancestor in self.ancestors(node)][::-1]

    def tail(self, node: int, count: int) -> list[int]:
        """The last `count` token ids of the path, fewer where it is shorter; costs `count`, not the path."""
        tail: list[int] = []
        for ancestor in self.ancestors(node):
            if len(tail) == count:
                break
            tail.append(self._nodes[ancestor].token)
        return tail[::-1]

    def common_ancestor(self, one: int, other: int) -> int:
        """The last node that two paths share."""
        apart = self._nodes[one].depth - self._nodes[other].depth
        if apart < 0:
            one, other = other, one
        for _ in range(abs(apart)):
            one = self._nodes[one].parent
        while one != other:
            one, other = self._nodes[one].parent, self._nodes[other].parent
        return one

    def child(self, node: int, token: int, held: int | None = None) -> int | None:
        """The child of a node that is a certain token; None where there is none.

        Args:
            node: Its parent.
            token: Its token id.
            held: Number of the interventions that it was computed under; None for those of its parent.
        """
        at = self._nodes[node]
        held, child = at.held if held is None else held, at.newest
        while child is not None and (self._nodes[child].token, self._nodes[child].held) != (token, held):
            child = self._nodes[child].older
        return child


class TokenTree(TokenPaths):
    """Nodes by number, the root first. Nodes are never removed, so a number stays valid."""

    def __init__(self) -> None:
        self._nodes: list[Node] = [root()]
        super().__init__(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: int) -> bool:
        return 0 <= node < len(self._nodes)

    def add(self, parent: int, token: int, origin: Origin, held: int | None = None) -> int:
        """Return the child of `parent` with `token`, which is added if there is none.

        Args:
            parent: Node before the token.
            token: Token id.
            origin: Of the token. A node that exists keeps its first origin, but for a prompt's token that is stepped:
                that one belongs to the completion from here on. The prompt that a completion's token follows is that
                of its parent: since it was taken first, a longer prompt may have been read up to there.
            held: Number of the interventions that it is computed under; None for those of its parent.

        Returns:
            Node number.
        """
        above = self._nodes[parent]
        held = above.held if held is None else held
        if held and origin != "prompt":
            origin = "intervened"
        node = None if above.newest is None else self.child(parent, token, held)
        if node is None:
            node = len(self._nodes)
            decoded = above.decoded + (origin != "prompt")
            at = Node(token, parent, above.depth + 1, origin, above.start, above.prompt_begin, decoded, held)
            at.older, above.newest = above.newest, node
            self._nodes.append(at)
        at = self._nodes[node]
        if origin != "prompt":
            at.origin = origin if at.origin == "prompt" else at.origin
            at.start, at.prompt_begin, at.decoded = above.start, above.prompt_begin, above.decoded + 1
        at.drawn_reroll = above.reroll
        return node

    def add_prompt(self, parent: int, tokens: Iterable[int], begin: int | None = None) -> list[int]:
        """Add the tokens of a prompt, or find those that are there; all of them are a prompt's from here on.

        Args:
            parent: Node before the prompt.
            tokens: Its token ids.
            begin: Tokens of the path before it; None where it begins after `parent`.

        Returns:
            Their nodes, in the prompt's order.
        """
        begin = self._nodes[parent].depth if begin is None else begin
        nodes = []
        for token in tokens:
            nodes.append(parent := self.add(parent, token, "prompt"))
            at = self._nodes[parent]
            at.origin, at.start, at.prompt_begin = "prompt", at.depth, begin
            at.decoded = self._nodes[at.parent].decoded
        return nodes

    def add_gap(self) -> None:
        """Leave the next number without a token: in a rebuilt session, a node that the record doesn't have."""
        self._nodes.append(root())

    def chunks(self, node: int) -> Chunks:
        """Which tokens of a path run in chunks: its prompts but for their last tokens."""
        chunks: list[tuple[int, int]] = []
        end = len(self._nodes)
        while node != ROOT:
            at = self._nodes[node]
            if at.depth <= end:  # the nearest prompt, then the one before that
                end = at.prompt_begin
                if at.start - 1 > end:
                    chunks.append((end, at.start - 1))
            node = at.parent
        return tuple(reversed(chunks))

    def without_step(self, node: int) -> list[int]:
        """The path's last nodes without a `Step` record, in its order; none of them is a prompt's."""
        unstepped: list[int] = []
        for ancestor in self.ancestors(node):
            if self._nodes[ancestor].has_step or self._nodes[ancestor].origin == "prompt":
                break
            unstepped.append(ancestor)
        return unstepped[::-1]


def common_prefix(one: Iterable[object], other: Iterable[object]) -> int:
    """How many elements two paths, or two texts, have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def facing(one: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """How the tokens of two paths face each other: the common beginning and the common end; all where they are as long.

    Args:
        one: The tokens of one path.
        other: Those of the other.

    Returns:
        The first position where they differ, and the number of tokens at the end that face each other. What lies
        between them `aligned` tells.
    """
    first, short = common_prefix(one, other), min(len(one), len(other))
    if len(one) == len(other):
        return first, len(one) - first
    first = max(
        0, min(first, short - 1)
    )  # where one is the beginning of the other, their ends may be the same
    return first, min(common_prefix(reversed(one), reversed(other)), short - first)


MOST_COMPARED = 2048
"""Tokens of a side between common beginning and end in which common blocks are looked for: at worst the time grows with
their product, to a second here."""


def aligned(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """The places of two paths that face each other, as pairs in their order; no place is in two of them.

    Where both are as long, each faces its own place. Otherwise common beginnings, blocks and ends do, and the last
    tokens; what was replaced between two blocks is matched from its end, where a span's last token has gathered what
    the span says (Meng et al. 2022 patch the subject's last token). What is left over faces none.

    Args:
        one: The tokens of one path.
        other: Those of the other. Exchanged, the pairs are the same, exchanged.
    """
    if len(one) == len(other):
        return [(place, place) for place in range(len(one))]
    first, end = facing(one, other)
    end = max(end, min(1, len(one), len(other)))
    ends = len(one) - end, len(other) - end
    between = _blocks(one[first : ends[0]], other[first : ends[1]])
    return [
        *((place, place) for place in range(first)),
        *((first + place, first + partner) for place, partner in between),
        *((ends[0] + place, ends[1] + place) for place in range(end)),
    ]


def _blocks(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """Common blocks, and what is between two of them matched from its end; the shorter side decides between ties."""
    if (len(other), *other) < (len(one), *one):
        return [(place, partner) for partner, place in _blocks(other, one)]
    if max(len(one), len(other)) > MOST_COMPARED:
        blocks = [(0, len(one), 0, len(other))]
    else:
        blocks = [code[1:] for code in SequenceMatcher(None, one, other, autojunk=False).get_opcodes()]
    return [
        (end - back, other_end - back)
        for begin, end, other_begin, other_end in blocks
        for back in range(min(end - begin, other_end - other_begin), 0, -1)
    ]


# ---- which tokens of a path the model ran in chunks: a few kinds of cache give other numbers for another cut ----

Chunks = tuple[tuple[int, int], ...]
"""Stretches of a path as (first, end), counted in tokens from 0, in order and apart. A stretch may have been cut into
chunks anywhere; the model ran the tokens outside of all stretches one by one."""


def prompt_chunks(tokens: int) -> Chunks:
    """Those of a path that is one prompt and what was stepped after it: its last token is a separate forward."""
    return ((0, tokens - 1),) if tokens > 1 else ()


def cut_chunks(chunks: Chunks, depth: int) -> Chunks:
    """Those of the first `depth` tokens."""
    return tuple((first, min(end, depth)) for first, end in chunks if first < depth)


def within_chunk(chunks: Chunks, depth: int) -> bool:
    """True if `depth` tokens end within a stretch."""
    return any(first < depth < end for first, end in chunks)


def chunks_go_on(held: Chunks, path: Chunks, depth: int) -> bool:
    """True if a path goes on behind `depth` tokens that ran in chunks `held`, with the path's own numbers."""
    return cut_chunks(held, depth) == cut_chunks(path, depth) and not within_chunk(path, depth)


def append_chunk(chunks: Chunks, first: int, end: int) -> Chunks:
    """With the tokens from `first` to `end`, which follow all others."""
    if chunks and chunks[-1][1] == first:
        return (*chunks[:-1], (chunks[-1][0], end))
    return (*chunks, (first, end))


def chunk_end(chunks: Chunks, done: int) -> int:
    """End of the stretch that the token after `done` tokens is in; `done` where it runs by itself."""
    return next((end for first, end in chunks if first <= done < end), done)

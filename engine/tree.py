"""The token tree: every token ever taken, by id, with its parent. Pure Python.

A node is one token after one path, so the same token after the same path is the same node. Nodes store ids, never text:
a word spelled with two unusual tokens keeps these tokens through every fork and move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice, takewhile

from msgspec import Struct

from engine.protocol import Origin

ROOT = 0
"""The node before the first token."""


class Node(Struct):
    """One token after one path."""

    token: int
    parent: int
    depth: int
    """Number of tokens on the path up to and including this one; 0 for the root."""
    origin: Origin
    start: int
    """Number of tokens of the path up to the end of its last prompt; the completion begins after them."""
    prompt_begin: int = 0
    """Number of tokens of the path before that prompt; above 0 if the prompt is a later turn of a conversation."""
    decoded: int = 0
    """Number of tokens of the path outside all prompts."""
    intervention_set: int = 0
    """Id of the intervention set that it was computed under, 0 for none; see `engine.session.session`."""
    newest: int | None = None
    """The child that was added last; None if it has none. A dict of children would take half of a node's memory."""
    older: int | None = None
    """The parent's child that was added before this one; None if this is the first."""
    reroll: int = 0
    """Number of times that the draw of the next token was repeated."""
    drawn_reroll: int = 0
    """The parent's `reroll` when this token was last taken."""
    has_step: bool = False
    """True if it has a `Step` record. Nodes added by a beam search have none until the session steps them."""


def root() -> Node:
    """Make the node before the first token of a new tree."""
    return Node(token=-1, parent=-1, depth=0, origin="prompt", start=0)


class TokenPaths:
    """Paths through existing nodes.

    Args:
        nodes: The nodes by number, including the root. The caller may add nodes later; a mapping may lack some.
    """

    def __init__(self, nodes: Sequence[Node] | Mapping[int, Node] | TokenPaths) -> None:
        self._nodes = nodes

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def __contains__(self, node: int) -> bool:
        try:
            return self._nodes[node] is not None
        except LookupError:
            return False

    def ancestors(self, node: int) -> Iterator[int]:
        """The nodes from `node` back to the first token, without the root."""
        while node != ROOT:
            yield node
            node = self._nodes[node].parent

    def nodes(self, node: int) -> list[int]:
        """The path's nodes from the first token to `node`."""
        return [*self.ancestors(node)][::-1]

    def tokens(self, node: int) -> list[int]:
        """The path's token ids from the first token to `node`."""
        return [self._nodes[ancestor].token for ancestor in self.ancestors(node)][::-1]

    def tail(self, node: int, count: int) -> list[int]:
        """The last `count` token ids of the path, or all if it is shorter; takes O(`count`) time."""
        return [self._nodes[ancestor].token for ancestor in islice(self.ancestors(node), count)][::-1]

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

    def child(self, node: int, token: int, under: int | None = None) -> int | None:
        """The child of a node with a given token; None if there is none.

        Args:
            node: The parent node.
            token: Token id.
            under: Id of the intervention set that the child was computed under; None for the parent's.
        """
        at = self._nodes[node]
        wanted, child = (token, at.intervention_set if under is None else under), at.newest
        while child is not None and ((at := self._nodes[child]).token, at.intervention_set) != wanted:
            child = at.older
        return child


class TokenTree(TokenPaths):
    """Nodes by number, starting with the root. Nodes are never removed, so a number stays valid."""

    def __init__(self) -> None:
        self._nodes: list[Node] = [root()]
        super().__init__(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: int) -> bool:
        return 0 <= node < len(self._nodes)

    def add(self, parent: int, token: int, origin: Origin, under: int | None = None) -> int:
        """Return the child of `parent` with `token`, adding it if there is none.

        Args:
            parent: Node before the token.
            token: Token id.
            origin: The token's origin. An existing node keeps its first origin, except that a prompt's token that is
                taken in a step belongs to the completion from then on. A completion's token always takes `start` and
                `prompt_begin` from its parent, since a longer prompt may have been read up to the parent in the
                meantime.
            under: Id of the intervention set that it is computed under; None for the parent's.

        Returns:
            Node number.
        """
        above = self._nodes[parent]
        under = above.intervention_set if under is None else under
        if under and origin != "prompt":
            origin = "intervened"
        node = None if above.newest is None else self.child(parent, token, under)
        if node is None:
            node = len(self._nodes)
            decoded = above.decoded + (origin != "prompt")
            at = Node(token, parent, above.depth + 1, origin, above.start, above.prompt_begin, decoded, under)
            at.older, above.newest = above.newest, node
            self._nodes.append(at)
        at = self._nodes[node]
        if origin != "prompt":
            at.origin = origin if at.origin == "prompt" else at.origin
            at.start, at.prompt_begin, at.decoded = above.start, above.prompt_begin, above.decoded + 1
        at.drawn_reroll = above.reroll
        return node

    def add_prompt(self, parent: int, tokens: Iterable[int], begin: int | None = None) -> list[int]:
        """Add the tokens of a prompt, or find existing nodes; all of them then belong to a prompt.

        Args:
            parent: Node before the prompt.
            tokens: Its token ids.
            begin: Number of tokens of the path before the prompt; None if it begins after `parent`.

        Returns:
            The prompt's nodes, in its order.
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
        """Skip one node number, for a node that is missing in the recording of a rebuilt session."""
        self._nodes.append(root())

    def chunks(self, node: int) -> Chunks:
        """The parts of a path that run in chunks: each of its prompts without its last token."""
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
        """The path's last nodes without a `Step` record, in the path's order; prompt tokens are not included."""
        nodes = ((ancestor, self._nodes[ancestor]) for ancestor in self.ancestors(node))
        unstepped = takewhile(lambda each: not (each[1].has_step or each[1].origin == "prompt"), nodes)
        return [number for number, _ in unstepped][::-1]


def common_prefix(one: Iterable[object], other: Iterable[object]) -> int:
    """Number of elements that two sequences have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def facing(one: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Align the common beginning and the common end of two paths; paths of the same length are aligned completely.

    Args:
        one: The tokens of one path.
        other: The tokens of the other path.

    Returns:
        The first position where they differ, and the number of tokens to align at the end. `aligned` also aligns the
        tokens in between.
    """
    first, short = common_prefix(one, other), min(len(one), len(other))
    if len(one) == len(other):
        return first, len(one) - first
    first = max(0, min(first, short - 1))  # if one is the beginning of the other, their ends may be equal
    return first, min(common_prefix(reversed(one), reversed(other)), short - first)


MOST_COMPARED = 2048
"""Maximum number of tokens of each path between the common beginning and end to search for common blocks. In the worst
case the time grows with the product of both lengths; at this limit it is a second."""


def aligned(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """Align the positions of two paths, as pairs in their order; each position is in at most one pair.

    In paths of the same length, each position is aligned with itself. Otherwise the common beginnings, blocks and ends
    are aligned, and the last tokens; replaced spans between two blocks are aligned at their ends, because a span's last
    token gathers its meaning (Meng et al. 2022 patch the subject's last token). The other positions are not aligned.

    Args:
        one: The tokens of one path.
        other: The tokens of the other path. Swapping the paths swaps the pairs.
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
    """Align common blocks, and the spans between them at their ends. The shorter path is always the first argument of
    the search, so that swapped paths give swapped pairs."""
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


# ---- the parts of a path that run in chunks: with some kinds of cache the chunk boundaries change the results ----

Chunks = tuple[tuple[int, int], ...]
"""Stretches of a path as (first, end), counted in tokens from 0, in order and with gaps between them. A stretch may
run in chunks of any size; the tokens outside all stretches run one by one."""


def prompt_chunks(tokens: int) -> Chunks:
    """The stretch of a path that consists of one prompt and stepped tokens; the prompt's last token is a separate
    forward pass."""
    return ((0, tokens - 1),) if tokens > 1 else ()


def cut_chunks(chunks: Chunks, depth: int) -> Chunks:
    """Cut the stretches off after the first `depth` tokens."""
    return tuple((first, min(end, depth)) for first, end in chunks if first < depth)


def within_chunk(chunks: Chunks, depth: int) -> bool:
    """True if the first `depth` tokens end inside a stretch."""
    return any(first < depth < end for first, end in chunks)


def chunks_go_on(held: Chunks, path: Chunks, depth: int) -> bool:
    """True if `path` can continue exactly after its first `depth` tokens, which ran in the chunks `held`."""
    return cut_chunks(held, depth) == cut_chunks(path, depth) and not within_chunk(path, depth)


def append_chunk(chunks: Chunks, first: int, end: int) -> Chunks:
    """Add the stretch from `first` to `end` after all others; it is merged with an adjacent one."""
    if chunks and chunks[-1][1] == first:
        return (*chunks[:-1], (chunks[-1][0], end))
    return (*chunks, (first, end))


def chunk_end(chunks: Chunks, done: int) -> int:
    """End of the stretch with the token after the first `done` tokens; `done` if that token runs by itself."""
    return next((end for first, end in chunks if first <= done < end), done)

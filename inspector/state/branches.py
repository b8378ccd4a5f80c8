"""The token tree folded to its branches: runs of tokens between forks. Pure, and updated one token at a time.

A token begins a branch if its parent has other children too, or if the completion begins with it. A token after the
last one of a branch extends it; one that forks from the middle cuts it in two, and the two parts are joined again when
the fork is removed. A cut visits only its shorter part, so that a session of n tokens costs about n log n in all,
however often it forks, and a step at the last token costs the same in any tree.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from engine.protocol import PromptToken, Step

ROOT = 0
"""Node before the first token."""
PROMPT = "prompt"
_WORDS = {"inserted": "typed"}


class Token(Struct, frozen=True):
    """One node as the branches store it, from any kind of record."""

    node: int
    parent: int
    text: str
    """The characters that it finished."""
    raw: bytes = b""
    """Its bytes, shown if a branch finished no character."""
    logprob: float | None = None
    """The logprob; None if it isn't known."""
    made: str = "sampled"
    """The way it entered the tree: `prompt`, `sampled`, `greedy`, `chosen`, `typed`, `beam`, `re-rolled`."""


def token(item: PromptToken | Step, parent: int) -> Token:
    """A prompt's token or a step as the branches store it.

    Args:
        item: Record of the engine.
        parent: Node before it.
    """
    logprob = None if item.logprob is None or math.isnan(item.logprob) else item.logprob
    if isinstance(item, PromptToken):
        made = PROMPT
    elif item.origin == "sampled" and item.choice.reroll > 0:
        made = "re-rolled"
    else:
        made = _WORDS.get(item.origin, item.origin)
    return Token(item.node, parent, item.text, item.raw, logprob, made)


def made(item: PromptToken | Step) -> str:
    """The way a token entered the tree, in one word."""
    return token(item, ROOT).made


class Sums(Struct):
    """Sums over the logprobs of some tokens."""

    tokens: int = 0
    known: int = 0
    """Number of tokens whose logprob is known."""
    logprob: float = 0.0
    """Sum of the known logprobs."""

    @property
    def mean(self) -> float | None:
        """Mean logprob per token; None if none is known."""
        return self.logprob / self.known if self.known else None

    @property
    def perplexity(self) -> float | None:
        """exp(-mean); None if no logprob is known."""
        if self.mean is None:
            return None
        return math.exp(-self.mean) if self.mean > -700 else math.inf

    def count(self, tokens: Iterable[Token]) -> Sums:
        """Add the logprobs of some tokens; returns these sums."""
        for token in tokens:
            self.tokens += 1
            if token.logprob is not None:
                self.known += 1
                self.logprob += token.logprob
        return self

    def add(self, other: Sums, sign: int = 1) -> None:
        """Add other sums, or with -1 subtract them."""
        self.tokens += sign * other.tokens
        self.known += sign * other.known
        self.logprob += sign * other.logprob


class Branch(Struct, eq=False):
    """One run of tokens. A cut or a join may replace the object; `first` identifies the branch."""

    nodes: list[int]
    sums: Sums
    parent: Branch | None = None
    children: list[Branch] = field(default_factory=list)
    """Branches in the order of their first nodes: oldest first."""
    prompt: bool | None = None
    """True for a prompt's tokens, False for a completion's, None for the root, which has none."""

    @property
    def first(self) -> int:
        return self.nodes[0]

    @property
    def last(self) -> int:
        return self.nodes[-1]


class Branches:
    """Every branch of one tree. Numbers read from a branch are valid until its next change."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever branches are added, removed, cut or joined, or a branch with children gets new readings; not
        when a branch is only extended."""
        self.count = 0
        self.root = Branch([ROOT], Sums())
        """Parent of the first branches; contains no token."""
        self._tokens: dict[int, Token] = {}
        self._branch: dict[int, Branch] = {ROOT: self.root}
        self._depth: dict[int, int] = {ROOT: 0}

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, node: int) -> bool:
        return node in self._tokens

    def __iter__(self) -> Iterator[Branch]:
        """All branches, parents before children, older ones first."""
        for first in self.root.children:
            yield from self.below(first)

    def __getitem__(self, node: int) -> Token:
        return self._tokens[node]

    # ---- queries ----------------------------------------------------------------------------

    def of(self, node: int) -> Branch | None:
        """The branch of a node; None if there is no such node."""
        return self._branch[node] if node in self._tokens else None

    def place(self, node: int) -> int:
        """Index of a node in its branch, from 0."""
        return self._depth[node] - self._depth[self._branch[node].first]

    def depth(self, node: int) -> int:
        """Number of tokens on the path up to and including a node."""
        return self._depth[node]

    def above(self, branch: Branch) -> Iterator[Branch]:
        """A branch and its ancestors, up to the first."""
        at: Branch | None = branch
        while at is not None and at is not self.root:
            yield at
            at = at.parent

    def below(self, branch: Branch) -> Iterator[Branch]:
        """A branch and its descendants, parents before children, older ones first."""
        waiting = [branch]
        while waiting:
            yield (at := waiting.pop())
            waiting += at.children[::-1]

    def made(self, branch: Branch) -> str:
        """The way the first token of a branch entered the tree."""
        return self._tokens[branch.first].made

    def leads(self, node: int, to: int) -> bool:
        """True if the path to the node `to` contains `node`; costs the branches above `to`."""
        branch, end = self._branch[node], self._branch[to]
        if branch is end:
            return self.place(node) <= self.place(to)
        return any(part is branch for part in self.above(end))

    def completion(self, branch: Branch) -> Sums:
        """The sums of the completion, from its first token to the end of a branch; costs the branches above it."""
        total = Sums()
        for part in self.above(branch):
            if self.made(part) != PROMPT:
                total.add(part.sums)
        return total

    def text(self, branch: Branch, characters: int) -> str:
        """The beginning of a branch's text, not yet printable.

        Args:
            branch: The branch.
            characters: Number of characters wanted; there may be some more, or fewer if the branch is shorter.
        """
        text = ""
        for node in branch.nodes:
            text += self._tokens[node].text
            if len(text) >= characters:
                break
        return text

    def excerpt(self, first: int, last: int, characters: int) -> tuple[str, str, str]:
        """The text before a run of tokens, of the run, and after it in the branch of its end; not yet printable.

        Args:
            first: Node of the run's first token.
            last: Node of its last one.
            characters: Number wanted before and after; there may be more, or fewer if the text is shorter.
        """
        found, node = self[last].text, last
        while node != first:
            node = self[node].parent
            found = self[node].text + found
        before, node = "", self[first].parent
        while node in self and len(before) < characters:
            before, node = self[node].text + before, self[node].parent
        at, nodes = self.place(last), self._branch[last].nodes
        return before, found, "".join(self[each].text for each in nodes[at + 1 : at + 1 + characters])

    def size(self, branch: Branch) -> tuple[int, int]:
        """Number of leaves and of tokens of a branch and its descendants."""
        below = list(self.below(branch))
        return sum(not part.children for part in below), sum(len(part.nodes) for part in below)

    # ---- growing ----------------------------------------------------------------------------

    def add(self, token: Token) -> None:
        """Add a token, or new readings of a known one.

        Raises:
            KeyError: Its parent is unknown.
        """
        if token.node in self._tokens:
            self._read(token)
            return
        above, prompt = self._branch[token.parent], token.made == PROMPT
        self._tokens[token.node] = token
        self._depth[token.node] = self._depth[token.parent] + 1
        if above.nodes[-1] == token.parent and not above.children and above.prompt == prompt:
            above.nodes.append(token.node)
            above.sums.count((token,))
            self._branch[token.node] = above
            return
        if above.nodes[-1] != token.parent:
            above = self._cut(above, self.place(token.parent) + 1)
        branch = self._branch[token.node] = Branch([token.node], Sums().count((token,)), above, prompt=prompt)
        insort(above.children, branch, key=lambda sibling: sibling.first)
        self.count += 1
        self.version += 1

    def _read(self, token: Token) -> None:
        before = self._tokens[token.node]
        if (before.made == PROMPT) != (token.made == PROMPT):
            self._remake(token)
            return
        branch = self._branch[token.node]
        self._tokens[token.node] = token
        branch.sums.count((token,))
        self._subtract(branch, Sums().count((before,)))
        if branch.children and token.logprob != before.logprob:
            self.version += 1  # the sums of the branches below run from the first token

    def _remake(self, token: Token) -> None:
        """Move a token between prompt and completion: cut it from its old neighbors, and join it with the new ones."""
        node = token.node
        if place := self.place(node):
            self._cut(self._branch[node], place)
        branch = self._branch[node]
        if len(branch.nodes) > 1:
            branch = self._cut(branch, 1)
        self._tokens[node], branch.prompt = token, token.made == PROMPT
        branch.sums = self._sums(branch.nodes)
        self.version += 1
        self._join(branch)
        if (above := self._branch[node].parent) is not None:
            self._join(above)

    # ---- removing ---------------------------------------------------------------------------

    def discard(self, node: int) -> list[Token]:
        """Remove a node and all below it.

        Returns:
            What was taken out, parents before their children.

        Raises:
            KeyError: There is no such node.
        """
        branch = self._branch[self._tokens[node].node]
        if branch.first != node:
            self._cut(branch, self.place(node))
            branch = self._branch[node]
        above = branch.parent
        assert above is not None
        above.children.remove(branch)
        gone = []
        for part in self.below(branch):
            self.count -= 1
            for each in part.nodes:
                del self._branch[each], self._depth[each]
                gone.append(self._tokens.pop(each))
        self.version += 1
        self._join(above)
        return gone

    # ---- cutting and joining ----------------------------------------------------------------

    def _cut(self, branch: Branch, at: int) -> Branch:
        """Cut a branch before the token at a place; the shorter part becomes a new object.

        Returns:
            The upper part, the parent of the lower one.
        """
        self.count += 1
        if at * 2 < len(branch.nodes):
            upper = new = Branch(branch.nodes[:at], Sums(), branch.parent, [branch], branch.prompt)
            self._replace(branch, upper)
            branch.parent = upper
            del branch.nodes[:at]
        else:
            upper, new = branch, Branch(branch.nodes[at:], Sums(), branch, branch.children, branch.prompt)
            upper.children = [new]
            del branch.nodes[at:]
        new.sums = self._sums(new.nodes)
        self._subtract(branch, new.sums)
        self._own(new, new.nodes)
        return upper

    def _join(self, upper: Branch) -> None:
        """Join a branch with its child, unless it has several or the end of a prompt separates them."""
        if len(upper.children) != 1 or upper.children[0].prompt != upper.prompt:
            return
        self.count -= 1
        lower = upper.children[0]
        if len(lower.nodes) > len(upper.nodes):
            self._own(lower, upper.nodes)
            self._replace(upper, lower)
            lower.nodes[:0], lower.parent = upper.nodes, upper.parent
            lower.sums.add(upper.sums)
        else:
            upper.nodes += lower.nodes
            upper.sums.add(lower.sums)
            upper.children = lower.children
            self._own(upper, lower.nodes)

    def _own(self, branch: Branch, nodes: Iterable[int]) -> None:
        """Point some nodes, and a branch's children, to that branch."""
        for node in nodes:
            self._branch[node] = branch
        for child in branch.children:
            child.parent = branch

    def _replace(self, branch: Branch, by: Branch) -> None:
        """Replace a branch by another object among its parent's children."""
        assert branch.parent is not None
        siblings = branch.parent.children
        siblings[siblings.index(branch)] = by

    def _subtract(self, branch: Branch, sums: Sums) -> None:
        """Subtract from the sums of a branch; add up again if infinities make that meaningless or none is known."""
        branch.sums.add(sums, -1)
        if not branch.sums.known or not math.isfinite(branch.sums.logprob):
            branch.sums = self._sums(branch.nodes)

    def _sums(self, nodes: Iterable[int]) -> Sums:
        return Sums().count(self._tokens[node] for node in nodes)

"""The token tree folded to its branches: runs of tokens between forks. Pure, and kept up a token at a time.

A token begins a branch where its parent has other children too, and where the completion begins after the prompt. A
token at the end of a branch lengthens it; one in the middle cuts it in two, and what hung alone after a fork
joins it again when the others are taken out. Only the shorter part of a cut is gone through, so that a session of n
tokens costs about n log n in all, however often it forks, and a step at a tip costs the same in any tree.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from engine.protocol import PromptToken, Step

ROOT = 0
"""Node before the first token."""
PROMPT = "prompt"
_WORDS = {"inserted": "typed"}


class Token(Struct, frozen=True):
    """The facts of one node that a fold needs, wherever they come from."""

    node: int
    parent: int
    text: str
    """The characters that it finished."""
    raw: bytes = b""
    """Its bytes, shown where a branch finished no character at all."""
    logprob: float | None = None
    """None where it isn't known."""
    made: str = "sampled"
    """How it entered the tree: `prompt`, `sampled`, `greedy`, `chosen`, `typed`, `beam`, `re-rolled`."""


def token(item: PromptToken | Step, parent: int) -> Token:
    """The facts of a token or a step that a fold needs.

    Args:
        item: From the engine.
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
    """How a token entered the tree, in one word."""
    return token(item, ROOT).made


class Sums(Struct):
    """Logprobs of some tokens, added up."""

    tokens: int = 0
    known: int = 0
    """Tokens whose logprob is known."""
    logprob: float = 0.0
    """Of those that are known, together."""

    @property
    def mean(self) -> float | None:
        """Logprob of a token, None where none is known."""
        return self.logprob / self.known if self.known else None

    @property
    def perplexity(self) -> float | None:
        """exp(-mean), None where no logprob is known."""
        if self.mean is None:
            return None
        return math.exp(-self.mean) if self.mean > -700 else math.inf

    def count(self, tokens: Iterable[Token]) -> None:
        """Put the logprobs of some tokens to these."""
        for token in tokens:
            self.tokens += 1
            if token.logprob is not None:
                self.known += 1
                self.logprob += token.logprob

    def add(self, other: Sums, sign: int = 1) -> None:
        """Put others to these, or with -1 take them away."""
        self.tokens += sign * other.tokens
        self.known += sign * other.known
        self.logprob += sign * other.logprob


@dataclass(slots=True, eq=False)
class Branch:
    """One run of tokens. The object of a run may change when it is cut or joined; `first` identifies it."""

    nodes: list[int]
    sums: Sums
    parent: Branch | None = None
    children: list[Branch] = field(default_factory=list)
    """In the order of their first nodes: oldest first."""
    prompt: bool | None = None
    """True if its tokens are of a prompt, False if they are of a completion; None for the root, which has none."""

    @property
    def first(self) -> int:
        return self.nodes[0]

    @property
    def last(self) -> int:
        return self.nodes[-1]


def sums_of(tokens: Iterable[Token]) -> Sums:
    """The logprobs of some tokens, added up."""
    total = Sums()
    total.count(tokens)
    return total


class Partition:
    """The tokens of one tree, parted into branches.

    Args:
        tokens: What is known of each token, by node; its owner keeps it up.
    """

    def __init__(self, tokens: Mapping[int, Token]) -> None:
        self.root = Branch([ROOT], Sums())
        """The parent of the first branches; holds no token."""
        self.of: dict[int, Branch] = {ROOT: self.root}
        """The branch that a node is in."""
        self.count = 0
        """Branches, without the root."""
        self._tokens = tokens

    def below(self, branch: Branch) -> Iterator[Branch]:
        """A branch and those that hang from it, each before those below it, older ones first."""
        waiting = [branch]
        while waiting:
            yield (at := waiting.pop())
            waiting += at.children[::-1]

    # ---- growing and taking out -------------------------------------------------------------

    def hang(self, token: Token, above: Branch) -> None:
        """Begin a branch with a token, after the end of another."""
        prompt = token.made == PROMPT
        branch = self.of[token.node] = Branch([token.node], sums_of([token]), above, prompt=prompt)
        insort(above.children, branch, key=lambda sibling: sibling.first)
        self.count += 1

    def remove(self, branch: Branch) -> list[Branch]:
        """Take out a branch and all below it.

        Returns:
            What was taken out, each before those below it.
        """
        assert branch.parent is not None
        branch.parent.children.remove(branch)
        gone = list(self.below(branch))
        for part in gone:
            for node in part.nodes:
                del self.of[node]
        self.count -= len(gone)
        return gone

    # ---- cutting and joining ----------------------------------------------------------------

    def cut(self, branch: Branch, at: int) -> Branch:
        """Cut a branch before the token at a place; returns the upper part, which the lower hangs from."""
        self.count += 1
        if at * 2 < len(branch.nodes):
            return self._cut_off_upper(branch, at)
        nodes = branch.nodes[at:]
        lower = Branch(nodes, self._sums(nodes), branch, branch.children, branch.prompt)
        del branch.nodes[at:]
        self.take_off(branch, lower.sums)
        self._adopt(lower)
        branch.children = [lower]
        self._own(lower, nodes)
        return branch

    def _cut_off_upper(self, branch: Branch, at: int) -> Branch:
        nodes = branch.nodes[:at]
        upper = Branch(nodes, self._sums(nodes), branch.parent, [branch], branch.prompt)
        self._replace(branch, upper)
        del branch.nodes[:at]
        self.take_off(branch, upper.sums)
        branch.parent = upper
        self._own(upper, nodes)
        return upper

    def join(self, upper: Branch) -> None:
        """Join a branch with the only one that hangs from it, where no fork or prompt's end parts them."""
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
            self._own(upper, lower.nodes)
            upper.nodes += lower.nodes
            upper.sums.add(lower.sums)
            upper.children = lower.children
            self._adopt(upper)

    def _own(self, branch: Branch, nodes: Iterable[int]) -> None:
        for node in nodes:
            self.of[node] = branch

    def _adopt(self, branch: Branch) -> None:
        for child in branch.children:
            child.parent = branch

    def _replace(self, branch: Branch, by: Branch) -> None:
        """Put another object in a branch's place among its parent's children."""
        assert branch.parent is not None
        siblings = branch.parent.children
        siblings[siblings.index(branch)] = by

    # ---- sums -------------------------------------------------------------------------------

    def add_up(self, branch: Branch) -> None:
        """Add up the logprobs of a branch from its tokens."""
        branch.sums = self._sums(branch.nodes)

    def take_off(self, branch: Branch, sums: Sums) -> None:
        """Take from the sums of a branch; where infinities make that meaningless, or none is left, add up again."""
        branch.sums.add(sums, -1)
        if not branch.sums.known or not math.isfinite(branch.sums.logprob):
            self.add_up(branch)

    def _sums(self, nodes: Iterable[int]) -> Sums:
        return sums_of(self._tokens[node] for node in nodes)


class Branches:
    """Every branch of one tree. The numbers read from a branch hold until it is next changed."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever branches come, go, are cut or joined, or others hang from one whose readings change; not
        when one is only lengthened."""
        self._tokens: dict[int, Token] = {}
        self._partition = Partition(self._tokens)
        self._branch = self._partition.of
        self.root = self._partition.root
        """The parent of the first branches; holds no token."""
        self._depth: dict[int, int] = {ROOT: 0}

    @property
    def count(self) -> int:
        """How many branches there are."""
        return self._partition.count

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self._tokens)

    def __contains__(self, node: int) -> bool:
        return node in self._tokens

    def __iter__(self) -> Iterator[Branch]:
        """All branches, each before those below it, older ones first."""
        waiting = self.root.children[::-1]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting += branch.children[::-1]

    def __getitem__(self, node: int) -> Token:
        return self._tokens[node]

    # ---- queries ----------------------------------------------------------------------------

    def of(self, node: int) -> Branch | None:
        """The branch that a node is in; None where there is no such node."""
        return self._branch[node] if node in self._tokens else None

    def place(self, node: int) -> int:
        """Index of a node in its branch, from 0."""
        return self._depth[node] - self._depth[self._branch[node].first]

    def depth(self, node: int) -> int:
        """Tokens on the path up to and including a node."""
        return self._depth[node]

    def above(self, branch: Branch) -> Iterator[Branch]:
        """A branch and those that it hangs from, up to the first."""
        at: Branch | None = branch
        while at is not None and at is not self.root:
            yield at
            at = at.parent

    def made(self, branch: Branch) -> str:
        """How the first token of a branch entered the tree."""
        return self._tokens[branch.first].made

    def leads(self, node: int, to: int) -> bool:
        """True if the path to a node goes through another, or ends there; costs the branches above it."""
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
        """How the text of a branch begins, not yet printable.

        Args:
            branch: The run.
            characters: How many are wanted; there may be some more, and fewer where it is shorter.
        """
        texts, length = [], 0
        for node in branch.nodes:
            texts.append(text := self._tokens[node].text)
            length += len(text)
            if length >= characters:
                break
        return "".join(texts)

    def size(self, branch: Branch) -> tuple[int, int]:
        """How many branches and tokens there are below a branch, itself included."""
        branches = tokens = 0
        for part in self._partition.below(branch):
            branches, tokens = branches + 1, tokens + len(part.nodes)
        return branches, tokens

    # ---- growing ----------------------------------------------------------------------------

    def add(self, token: Token) -> None:
        """Take in a token; a known one gets its new readings.

        Raises:
            KeyError: Its parent is unknown.
        """
        if token.node in self._tokens:
            self._read(token)
            return
        above = self._branch[token.parent]
        self._tokens[token.node] = token
        self._depth[token.node] = self._depth[token.parent] + 1
        if above.nodes[-1] != token.parent:
            above = self._partition.cut(above, self.place(token.parent) + 1)
        elif not above.children and above.prompt == (token.made == PROMPT):
            above.nodes.append(token.node)
            above.sums.count((token,))
            self._branch[token.node] = above
            return
        self._partition.hang(token, above)
        self.version += 1

    def _read(self, token: Token) -> None:
        before = self._tokens[token.node]
        if (before.made == PROMPT) != (token.made == PROMPT):
            self._remake(token)
            return
        branch = self._branch[token.node]
        self._tokens[token.node] = token
        branch.sums.count((token,))
        self._partition.take_off(branch, sums_of([before]))
        if branch.children and token.logprob != before.logprob:
            self.version += 1  # the sums of those below run from the first token

    def _remake(self, token: Token) -> None:
        """Take in that a prompt's token was stepped: it is part of another run than its neighbours, or of the same."""
        parts, node = self._partition, token.node
        if place := self.place(node):
            parts.cut(self._branch[node], place)
        branch = self._branch[node]
        if len(branch.nodes) > 1:
            branch = parts.cut(branch, 1)
        self._tokens[node], branch.prompt = token, token.made == PROMPT
        parts.add_up(branch)
        self.version += 1
        parts.join(branch)
        above = self._branch[node].parent
        if above is not None:
            parts.join(above)

    # ---- taking out -------------------------------------------------------------------------

    def discard(self, node: int) -> tuple[list[Token], int]:
        """Take out a node and all below it.

        Returns:
            What was taken out, parents before their children, and how many branches that was.

        Raises:
            KeyError: There is no such node.
        """
        branch = self._branch[self._tokens[node].node]
        if branch.first != node:
            self._partition.cut(branch, self.place(node))
            branch = self._branch[node]
        above = branch.parent
        assert above is not None
        gone = self._partition.remove(branch)
        tokens = [self._forget(member) for part in gone for member in part.nodes]
        self.version += 1
        self._partition.join(above)
        return tokens, len(gone)

    def _forget(self, node: int) -> Token:
        del self._depth[node]
        return self._tokens.pop(node)

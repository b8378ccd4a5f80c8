"""The token tree folded to its branches: runs of tokens between forks. Pure, and kept up a token at a time.

A token begins a branch where its parent has other children too, and where the completion begins after the prompt. A
token at the end of a branch lengthens it; one in the middle cuts it in two, and what hung alone after a fork
joins it again when the others are taken out. Only the shorter part of a cut is gone through, so that a session of n
tokens costs about n log n in all, however often it forks, and a step at a tip costs the same in any tree.
"""

from __future__ import annotations

from collections.abc import Iterator

from inspector.state.branch import PROMPT, ROOT, Branch, Sums, Token, sums_of
from inspector.state.partition import Partition


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
        """Whether the path to a node goes through another, or ends there; costs the branches above it."""
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
        if above.last != token.parent:
            above = self._partition.cut(above, self.place(token.parent) + 1)
        elif not above.children and self._partition.alike(token.parent, token.node):
            self._partition.lengthen(above, token)
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
        branch.sums.add(sums_of([token]))
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
        self._tokens[node] = token
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

"""Which branch each token is in, while branches grow, are cut in two, joined and taken out. Pure.

Only the shorter part of a cut or a join is gone through.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping

from inspector.state.branch import PROMPT, ROOT, Branch, Sums, Token, sums_of


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

    def alike(self, above: int, node: int) -> bool:
        """Whether both are prompt or both are completion."""
        if above == ROOT:
            return False
        return (self._tokens[above].made == PROMPT) == (self._tokens[node].made == PROMPT)

    def below(self, branch: Branch) -> Iterator[Branch]:
        """A branch and those that hang from it, each before those below it, older ones first."""
        waiting = [branch]
        while waiting:
            yield (at := waiting.pop())
            waiting += at.children[::-1]

    # ---- growing and taking out -------------------------------------------------------------

    def lengthen(self, branch: Branch, token: Token) -> None:
        """Append a token to a branch."""
        branch.nodes.append(token.node)
        branch.sums.add(sums_of([token]))
        self.of[token.node] = branch

    def hang(self, token: Token, above: Branch) -> None:
        """Begin a branch with a token, after the end of another."""
        branch = self.of[token.node] = Branch([token.node], sums_of([token]), above)
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
        lower = Branch(nodes, self._sums(nodes), branch, branch.children)
        del branch.nodes[at:]
        self.take_off(branch, lower.sums)
        self._adopt(lower)
        branch.children = [lower]
        self._own(lower, nodes)
        return branch

    def _cut_off_upper(self, branch: Branch, at: int) -> Branch:
        nodes = branch.nodes[:at]
        upper = Branch(nodes, self._sums(nodes), branch.parent, [branch])
        self._replace(branch, upper)
        del branch.nodes[:at]
        self.take_off(branch, upper.sums)
        branch.parent = upper
        self._own(upper, nodes)
        return upper

    def join(self, upper: Branch) -> None:
        """Join a branch with the only one that hangs from it, where no fork or prompt's end parts them."""
        if len(upper.children) != 1 or not self.alike(upper.last, upper.children[0].first):
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

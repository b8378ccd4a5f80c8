"""Branches folded from scratch: what those that grew token by token have to equal."""

from __future__ import annotations

from collections.abc import Iterable

from inspector.state.branches import Branches, Token


def branches_of(tokens: Iterable[Token]) -> Branches:
    """A fold from scratch.

    Args:
        tokens: Parents before their children.
    """
    branches = Branches()
    for token in tokens:
        branches.add(token)
    return branches

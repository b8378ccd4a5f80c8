"""Moves of a session along its path."""

from __future__ import annotations

from engine.protocol import Moved
from engine.session.session import Session


def go_back(session: Session, count: int = 1) -> Moved:
    """Move back some tokens, at most to the first."""
    node = session.node
    for _ in range(count):
        node = session.tree[node].parent if session.tree[node].depth > 1 else node
    return session.move(node)


def go_forward(session: Session, count: int = 1) -> Moved:
    """Move forward some tokens along the branch visited last, as far as it reaches."""
    node = session.node
    for _ in range(count):
        latest = session.tree[node].latest
        node = node if latest is None else latest
    return session.move(node)

"""Marks that the user makes: bookmarks, names and notes, and deletions that wait until the path is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from engine.protocol import Deleted, Marked, MoveTo
from inspector.display import quoted, token_label, truncate
from inspector.keys import key_for
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.state.branches import PROMPT
from inspector.state.session_tree import SessionTree, counted

_LABEL = 24
"""Cells that a branch's text gets in an answer."""


class Marking:
    """Makes marks; every method that a key calls returns a sentence for the user.

    Args:
        controller: Takes the marks as records, as it takes the engine's.
        answer: Shows the user what came of a deletion that had to wait.
    """

    def __init__(self, controller: Controller, answer: Callable[[str], None]) -> None:
        self._controller, self._answer = controller, answer
        self._leaving: Request[MoveTo] | None = None
        """The move away from what is to be deleted."""

    def at(self, node: int) -> Marked:
        """The marks of a node."""
        return self._controller.timeline.tree.marks.at(node)

    def label(self, node: int) -> str:
        """How a branch begins, short and printable."""
        branches = self._controller.timeline.tree.branches
        branch = branches.of(node)
        if branch is None:
            return ""
        text = branches.text(branch, _LABEL + 1) if branch.first == node else branches[node].text
        return truncate(token_label(text, branches[node].raw), _LABEL)

    def bookmark(self, node: int) -> str:
        """Set a bookmark, or take it off."""
        mark = self.at(node)
        self.write(replace(mark, bookmarked=not mark.bookmarked))
        if mark.bookmarked:
            return f"The bookmark at {quoted(self.label(node))} is gone."
        return f"Bookmarked {quoted(self.label(node))}. * takes it off again"

    def write(self, mark: Marked) -> None:
        """Let these be the marks of their node."""
        self._controller.client.receive(mark)

    # ---- deletions --------------------------------------------------------------------------

    def delete(self, node: int) -> str:
        """Delete a node with all below it; where the path runs through it, once the path is elsewhere."""
        branches = self._controller.timeline.tree.branches
        if node not in branches:
            return ""
        if refusal := self.refusal(node):
            return refusal
        if not self._is_on_path(node):
            return self._delete(node)
        if self._leaving is None or self._leaving.done:
            self._controller.timeline.select(None)
            left = partial(self._left, node, self._controller.timeline.tree)
            self._leaving = self._controller.client.do(MoveTo(branches[node].parent), left)
        return ""

    def refusal(self, node: int) -> str:
        """Why a node can't be deleted, empty where it can."""
        if self._controller.timeline.tree.branches[node].made == PROMPT and self._is_on_path(node):
            return (
                "The prompt on show can't be deleted. Go to another one first, or press "
                f"{key_for('prompt')} for a new one."
            )
        return ""

    def _is_on_path(self, node: int) -> bool:
        """Whether the path runs through a node, or will once what is out is done."""
        branches = self._controller.timeline.tree.branches
        targets = [getattr(command, "node", None) for command in self._controller.client.outstanding]
        return any(
            target is not None and target in branches and branches.leads(node, target)
            for target in (self._controller.timeline.tip, *targets)
        )

    def _left(self, node: int, tree: SessionTree, request: Request[MoveTo]) -> None:
        """Delete what was to be deleted, once the move away from it is done; nothing where another tree has begun."""
        if tree is not self._controller.timeline.tree:
            return
        if self._is_on_path(node):
            self._answer(
                "Not deleted: the path still runs through it, since the move away from it was stopped."
            )
        else:
            self._answer(self._delete(node))

    def _delete(self, node: int) -> str:
        branches = self._controller.timeline.tree.branches
        branch = branches.of(node)
        if branch is None:
            return ""
        count, tokens = branches.size(branch)
        tokens -= branches.place(node)
        self._controller.client.receive(Deleted(node))
        return f"Deleted {counted(tokens, count)}. {key_for('undo')} brings them back"

"""What a person changed, in the order of time, so that it can be taken back and made again. Pure.

The log follows from the records alone, so that a session which is gone on with has that of the one before. Taking a
change back is told as an `Undone`, and after it as whatever the change was told as: a mark, a deletion, settings.
Breakpoints are of this screen and in no record, and so is taking them back.
"""

from __future__ import annotations

from typing import Literal

from engine.breakpoints import Breakpoints
from engine.frozen import frozen
from engine.protocol import Deleted, Marked, Undeleted
from engine.settings import Settings


@frozen
class DrawCount:
    """How often was drawn again after a node."""

    node: int
    count: int


Told = Marked | Deleted | Undeleted | Settings | Breakpoints | DrawCount
"""How a change is told."""


@frozen
class MarkChange:
    """The marks of a node were changed."""

    before: Marked
    after: Marked


@frozen
class Removal:
    """A node and all below it were deleted."""

    node: int
    tokens: int


@frozen
class SettingsChange:
    """The sampler has other settings."""

    before: Settings
    after: Settings


@frozen
class BreakpointsChange:
    """Runs stop elsewhere."""

    before: Breakpoints
    after: Breakpoints


@frozen
class Redraw:
    """The token to come after a node was drawn again."""

    node: int
    before: int
    """How often it had been drawn again."""
    after: int


@frozen
class PathChange:
    """A person had the path go another way."""

    before: int
    """Where the path ended before."""
    first: int
    last: int
    """Where the other way begins, and as far as the person gave it."""
    how: Literal["chosen", "held", "released", "prompt"] = "chosen"
    """Tokens were chosen, typed or drawn again; interventions held or released; a prompt or a message given."""
    draw: Redraw | None = None
    """Of a token that was drawn again at an older step, the draw."""


Change = MarkChange | Removal | SettingsChange | BreakpointsChange | Redraw | PathChange


class ChangeLog:
    """The changes in force, and those that were taken back."""

    def __init__(self) -> None:
        self.done: list[Change] = []
        """In force, oldest first."""
        self.undone: list[Change] = []
        """Taken back, the one to make again last."""
        self._expected: Told | None = None
        """How the change that was just taken back, or made again, will be told: that is no change of its own."""

    def take(self, change: Change, told: Told | None = None) -> None:
        """Take in a change, unless taking back another one brought it.

        Args:
            change: It.
            told: How it was told.
        """
        expected, self._expected = self._expected, None
        if told is None or told != expected:
            self.done.append(change)
            self.undone.clear()

    def turn(self, again: bool) -> None:
        """The last change was taken back, or the one that was taken back last was made again."""
        source, target = (self.undone, self.done) if again else (self.done, self.undone)
        if source:
            target.append(change := source.pop())
            self._expected = telling(change, again)

    def returned(self, told: Undeleted) -> None:
        """A deletion was taken back; in a trace from before there was an `Undone`, by that alone."""
        expected, self._expected = self._expected, None
        if told == expected:
            return
        removals = [each for each in self.done if isinstance(each, Removal) and each.node == told.node]
        if removals:
            self.done.remove(removals[-1])

    def leave_tree(self) -> None:
        """Another tree has the place of the one that was changed: settings and breakpoints outlive it."""
        self.done = [change for change in self.done if isinstance(change, SettingsChange | BreakpointsChange)]
        self.undone.clear()


def telling(change: Change, again: bool) -> Told | None:
    """How taking a change back is told, or making it again; None for a path that only goes elsewhere."""
    match change:
        case MarkChange():
            return change.after if again else change.before
        case Removal():
            return Deleted(change.node) if again else Undeleted(change.node)
        case SettingsChange() | BreakpointsChange():
            return change.after if again else change.before
        case Redraw():
            return DrawCount(change.node, change.after if again else change.before)
        case PathChange():
            return None if change.draw is None else telling(change.draw, again)

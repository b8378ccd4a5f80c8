"""Marks of a person on the tree: emitted by the screen, kept in traces."""

from __future__ import annotations

from engine.frozen import frozen
from engine.protocol.base import Record


@frozen
class Marked(Record):
    """The marks of one node from here on; none if all have their defaults."""

    node: int
    name: str = ""
    """Of the branch that begins with this node."""
    bookmarked: bool = False
    note: str = ""
    """For oneself."""
    caption: str = ""
    """For an audience: shown when a replay arrives here."""
    tool: str = ""
    """Id of the panel or tool that shows what the caption says: the replay goes there. Empty for none in particular."""


@frozen
class Deleted(Record):
    """A node and all below it are no longer shown. They stay in the engine's tree, so that it can be undone."""

    node: int


@frozen
class Undeleted(Record):
    """A deletion was undone."""

    node: int


@frozen
class Undone(Record):
    """The last change of a person was taken back; what that changes, a mark, a deletion or settings, comes next."""

    redo: bool = False
    """True if the change that was taken back last was made again instead."""


@frozen
class BeatReached(Record):
    """A lesson came to one of its beats: a replay of the lesson goes from one of these to the next."""

    lesson: str
    """Its id."""
    beat: int
    """From 0."""
    done: bool
    """True if what the learner does in it was done; before that, whether it is about to begin."""


@frozen
class QuestionAsked(Record):
    """A question of a lesson to the engine: its answer is what follows, up to the command's `Ended`.

    A replay answers the same question with the same records.
    """

    command: str
    """As `engine.wire` writes it, with 0 for its id."""

"""Marks of the user on the tree: emitted by the screen, kept in recordings."""

from __future__ import annotations

from engine.protocol.base import Record
from engine.protocol.numbers import Count


class Marked(Record, frozen=True):
    """The marks of one node from here on; none if all have their defaults."""

    node: Count
    name: str = ""
    """Of the branch that begins with this node."""
    bookmarked: bool = False
    note: str = ""
    """For oneself."""
    caption: str = ""
    """For an audience: shown when a replay arrives here."""
    tool: str = ""
    """Id of the panel or tool that shows what the caption says: the replay goes there. Empty for none in particular."""


class Deleted(Record, frozen=True):
    """A node and all below it are no longer shown. They stay in the engine's tree, so that it can be undone."""

    node: Count


class Undeleted(Record, frozen=True):
    """A deletion was undone."""

    node: Count


class Undone(Record, frozen=True):
    """The last change of a person was taken back; what that changes, a mark, a deletion or settings, comes next."""

    redo: bool = False
    """True if the change that was taken back last was made again instead."""


class BeatReached(Record, frozen=True):
    """A lesson came to one of its beats: a replay of the lesson goes from one of these to the next."""

    lesson: str
    """Its id."""
    beat: Count
    """From 0."""
    done: bool
    """True if what the learner does in it was done; before that, whether it is about to begin."""


class QuestionAsked(Record, frozen=True):
    """A question of a lesson to the engine: its answer is what follows, up to the command's `Ended`.

    A replay answers the same question with the same records.
    """

    command: str
    """As `engine.recording.question` writes it."""

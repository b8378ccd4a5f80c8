"""The bases of commands and records, their envelopes, and the records that end a command."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from engine.protocol.numbers import Count


class Command(Struct, frozen=True, tag_field="command", tag=True):
    """Base of all commands."""

    kind: ClassVar[str]
    """Name of the class, as records name the command."""
    needs_model: ClassVar[bool] = True
    """True if the engine refuses it while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """True if escape on the main screen cancels it."""
    aside: ClassVar[bool] = False
    """True if the engine may answer it between the steps of a run: it needs no forward and changes nothing of the
    session."""
    over_ranks: ClassVar[bool] = True
    """True if it works on a model that several processes compute; not where it looks into the arrays of one."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__


class Sent(Struct, frozen=True):
    """A command on its way to an engine."""

    command: Command
    id: Count
    """Unique among the commands of its session that have not ended."""


class Cancel(Command, frozen=True):
    """Stop another command, queued or running, at its next chunk or step; no record answers this one.

    If the target has ended, nothing happens.
    """

    needs_model: ClassVar[bool] = False
    target: Count
    """The id with which that command was sent."""


class Record(Struct, frozen=True, gc=False, tag_field="event", tag=True):
    """Base of what the engine emits, and of a user's marks on the tree."""

    lasting: ClassVar[bool] = True
    """True if a recording shows it: progress, and what answered a question of the moment, is for the sender alone."""


class Received(Struct, frozen=True):
    """A record on its way from an engine."""

    record: Record
    id: Count = 0
    """Id of the command that it answers; 0 if it answers none, as what the engine does in idle time."""


class Ended(Record, frozen=True):
    """A command is done; the engine waits for the next."""

    command: str
    """`Command.kind`."""
    cancelled: bool = False


class Failure(Record, frozen=True):
    """A command failed; the session's current node is the one before."""

    command: str
    """`Command.kind`."""
    message: str
    hint: str
    expected: bool = True
    """False for a bug of the program itself: then `trace` holds the traceback."""
    trace: str = ""
    error: str = ""
    """Name of the class in `engine.errors`; empty for a bug."""
    lost_rank: Count | None = None
    """The rank whose process was lost: this engine can't compute over ranks any more."""


class Measuring(Record, frozen=True):
    """The progress of a measurement."""

    lasting: ClassVar[bool] = False
    command: str
    """`Command.kind`."""
    done: Count
    total: Count
    detail: str
    """The next thing to be measured, in a few words."""

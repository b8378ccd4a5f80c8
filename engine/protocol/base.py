"""The bases of commands and records, and the records that end a command."""

from __future__ import annotations

from dataclasses import field, replace
from itertools import count
from typing import ClassVar, Self

from engine.frozen import frozen

_next_id = count(1).__next__


@frozen
class Command:
    """Base of all commands. Two commands with equal fields are equal: their ids are not compared."""

    kind: ClassVar[str]
    """Its name in records, traces and messages; the name of the class unless the class body sets another one."""
    needs_model: ClassVar[bool] = True
    """True if the engine refuses it while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """True if escape on the main screen cancels it."""
    aside: ClassVar[bool] = False
    """True if the engine may answer it between the steps of a run: it needs no forward and changes nothing of the
    session."""
    over_ranks: ClassVar[bool] = True
    """True if it works on a model that several processes compute; not where it looks into the arrays of one."""
    id: int = field(default_factory=_next_id, repr=False, compare=False, kw_only=True)
    """Unique in the process that sends the command."""

    def __init_subclass__(cls) -> None:
        # Called twice for each class, since `slots=True` makes a second class from the first one's body, which by then
        # has the `kind` of the first call. A subclass never inherits the kind of its base.
        cls.kind = cls.__dict__.get("kind", cls.__name__)

    def renewed(self) -> Self:
        """The same command with an id of its own: one that was sent may not have ended when it is sent again."""
        return replace(self, id=_next_id())


@frozen
class Cancel(Command):
    """Stop another command, queued or running, at its next chunk or step; no record answers this one.

    Where the target has ended before, nothing happens; it can't cancel another command, since ids are not reused.
    """

    needs_model: ClassVar[bool] = False
    target: int
    """The `id` of that command."""


@frozen
class Record:
    """Base of what the engine emits, and of a person's marks on the tree. Equal records of two commands are equal."""

    lasting: ClassVar[bool] = True
    """True if a recording shows it: what answered a question of the moment, and progress, is for who asked alone."""
    request: int = field(default=0, compare=False, repr=False, kw_only=True, metadata={"traced": False})
    """`Command.id` of the command during which the engine emitted it. 0 for what belongs to none: what the engine does
    in idle time, a person's marks, and a recording, which does not keep it, since an id means something in the sending
    process alone."""


@frozen
class Ended(Record):
    """A command is done; the engine waits for the next."""

    command: str
    """`Command.kind`."""
    cancelled: bool = False


@frozen
class Failure(Record):
    """A command failed; the session's current node is the one before."""

    command: str
    """`Command.kind`."""
    message: str
    hint: str
    expected: bool = True
    """False for a bug of the program itself: then `trace` holds the traceback."""
    trace: str = ""
    error: str = field(default="", compare=False, repr=False)
    """The class in `engine.errors` of what was wrong; empty for a bug."""
    lost_rank: int | None = None
    """The process that was lost of those that compute the model: this engine can't compute over ranks any more."""


@frozen
class Measuring(Record):
    """The progress of a measurement."""

    lasting: ClassVar[bool] = False
    command: str
    """`Command.kind`."""
    done: int
    total: int
    detail: str
    """The next thing to be measured, in a few words."""

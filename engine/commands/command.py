"""The base of all commands, and the one that cancels another."""

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
    """Whether the engine refuses it while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """Whether escape on the main screen cancels it."""
    aside: ClassVar[bool] = False
    """Whether the engine may answer it between the steps of a run: it needs no forward and changes nothing of the
    session."""
    over_ranks: ClassVar[bool] = True
    """Whether it works on a model that several processes compute; not where it looks into the arrays of one."""
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

"""Records that name the command that they answer."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TypeVar

from engine.frozen import frozen

Told = TypeVar("Told")


@frozen
class Answer:
    """Base of the records that answer a command. Equal answers to two commands are equal: ids are not compared."""

    id: int = field(default=0, compare=False, repr=False, kw_only=True, metadata={"traced": False})
    """`Command.id`; 0 in a recording, which does not keep it: it has a meaning only in the sending process."""


def addressed(record: Told, id: int) -> Told:
    """A record with the id of the command that is carried out, if it is an answer; others belong to the session.

    Args:
        record: As the handler of the command made it.
        id: Of the command.
    """
    return replace(record, id=id) if isinstance(record, Answer) else record

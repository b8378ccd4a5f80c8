"""The first line of a client and the engine's answer, as the client sees them."""

from __future__ import annotations

from typing import Any

from engine import wire
from engine.frozen import frozen
from engine.remote import HELLO_LIMIT, PROTOCOL, SILENCE_SECONDS
from engine.remote.lines import Lines, object_of


class Gone(Exception):
    """The engine, or the session that it had for us, is not there any more."""


class Busy(OSError):
    """The engine takes no further client now."""


@frozen
class Welcome:
    """What an engine says to a client that it lets in."""

    engine: str
    """Of this run of the engine; another one has another session."""
    client: int
    """The client's number, which its commands' ids begin with."""
    number: int
    """Of the first record that it will send."""
    next: int
    """Number of the first record that is new."""
    outstanding: tuple[int, ...]
    """Ids of the commands that had not ended."""
    model: bool
    """Whether there is a session with a model."""


def shake_hands(
    lines: Lines, token: str, program: str, engine: str, client: int, begin: int | str
) -> Welcome:
    """Say who one is, and be welcomed.

    Args:
        lines: A new connection.
        token: The secret.
        program: Version of the program.
        engine: The engine that one comes back to; empty for none.
        client: The number that one had there.
        begin: Number of the first record wanted, or `session` or `end`.

    Raises:
        OSError: The connection ended.
        Busy: The engine refuses for now.
        Gone: It refuses for good, or what answers is none.
        WireError: What answers is none.
    """
    lines.say(
        SILENCE_SECONDS, hello=PROTOCOL, token=token, wire=wire.VERSION, program=program, engine=engine, client=client,
        **{"from": begin},
    )  # fmt: skip
    line = lines.read(wire.LIMIT, SILENCE_SECONDS)
    if line is None:
        raise ConnectionResetError("it closed the connection")
    return _checked(object_of(line))


def _checked(said: dict[str, Any]) -> Welcome:
    """A welcome.

    Raises:
        Busy: The engine refuses for now.
        Gone: It refuses for good, or the line is no welcome.
    """
    if "refused" in said:
        why = str(said["refused"])[:HELLO_LIMIT]
        raise (Gone if said.get("final") is True else Busy)(why)
    engine, model, ids = said.get("engine"), said.get("model"), said.get("outstanding")
    numbers: list[Any] = [said.get(name) for name in ("client", "number", "next")]
    if type(ids) is list and type(engine) is str and type(model) is bool and _whole(numbers) and _whole(ids):
        client, number, after = numbers
        return Welcome(engine, client, number, after, tuple(ids), model)
    raise Gone("What answers there is no engine of this program.")


def _whole(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 2**64 for value in values)

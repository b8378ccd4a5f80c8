"""The flags of an engine elsewhere, for everything that takes one. Standard library alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.files import typed

if TYPE_CHECKING:
    from engine.remote.client import RemoteEngine
    from engine.remote.link import Address, AddressLink
    from engine.settings import LoadSettings

OPEN_ANYWAY = (
    "allow an address that is not this machine's: nothing on the way is encrypted, the token neither"
)


def add_connect(to: argparse._ActionsContainer) -> None:
    """The flags of an engine elsewhere."""
    there = (
        "use an engine that inspector engine started, which has its own files: unix:PATH or 127.0.0.1:PORT"
    )
    to.add_argument("--connect", metavar="ADDRESS", help=there)
    add_token(to)


def add_token(to: argparse._ActionsContainer) -> None:
    """The flags that both ends of a connection have."""
    token = "the engine's token (default: engine.token with the sessions' folder)"
    to.add_argument("--token-file", metavar="FILE", help=token)
    to.add_argument("--unencrypted", action="store_true", default=None, help=OPEN_ANYWAY)


def token_file(args: argparse.Namespace) -> Path:
    """The file that holds the token."""
    if args.token_file is not None:
        return typed(args.token_file)
    from inspector import places

    return places.state() / "engine.token"


def address_of(args: argparse.Namespace, text: str) -> Address:
    """The address that was given, of this machine unless more is allowed.

    Raises:
        EngineError: It is none, or another machine's.
    """
    from engine.remote.link import parsed

    address = parsed(text)
    if not address.local and not args.unencrypted:
        hint = "Use ssh's forwarding (inspector engine prints the command), or add --unencrypted."
        message = f"{address} is not an address of this machine, and nothing on the way would be encrypted."
        raise EngineError(message, hint)
    return address


def link_from(args: argparse.Namespace, returns: bool) -> AddressLink | None:
    """The way to the engine that was named; None where none was.

    Raises:
        EngineError: The address or the token can't be used.
    """
    if args.connect is None:
        if args.token_file is not None or args.unencrypted:
            flag = "--token-file" if args.token_file is not None else "--unencrypted"
            raise EngineError(f"{flag} has no effect without --connect.", "Add --connect ADDRESS.")
        return None
    from engine.remote.link import AddressLink, read_token

    return AddressLink(address_of(args, args.connect), read_token(token_file(args)), returns)


def screens_engine(args: argparse.Namespace, joins: bool) -> RemoteEngine | None:
    """The engine elsewhere of a screen, connected; None where none was named.

    Args:
        args: With the flags above.
        joins: Whether to show the session that it has.

    Raises:
        EngineError: It can't be reached, or refuses.
    """
    link = link_from(args, returns=True)
    if link is None:
        return None
    from engine.remote.client import RemoteEngine
    from inspector.version import version

    engine = RemoteEngine(lambda record: None, link, version())
    engine.joins = joins
    engine.connect()
    return engine


def needs_process(load: LoadSettings) -> bool:
    """Whether the screen has an engine in a process of its own: the loss of a rank ends what has lost it."""
    return load.ranks > 1 or bool(load.hostfile)


def own_process() -> RemoteEngine:
    """An engine in a process of its own, which is started with the screen and ends with it."""
    from engine.remote.client import RemoteEngine
    from engine.remote.link import ProcessLink
    from inspector.version import version

    return RemoteEngine(lambda record: None, ProcessLink(version()), version())

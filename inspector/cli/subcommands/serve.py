"""`inspector engine`: an engine for other screens."""

from __future__ import annotations

import shlex
import signal
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from inspector import places
from inspector.cli.exit import OK, leave_at_once, note, output
from inspector.cli.flags import Parser, Subcommand, add_token, address_of, command_parser, token_file

if TYPE_CHECKING:
    from engine.remote.link import Address

FORWARDED = 7531
"""The port that the printed command forwards a socket of files to."""


def engine_parser() -> Parser:
    """The parser of `inspector engine`."""
    made = command_parser(
        "engine",
        "Run an engine for `inspector --connect`, on this machine or, through ssh's forwarding, from another one. It "
        "serves "
        "one client at a time; the session stays when a client leaves, and the next one finds it.",
        "It prints how to connect. A lost connection pauses a run. Whoever has the access token can load any model "
        "that "
        "the engine can read, and with --trust-remote-code run that model's code.",
    )
    listen = (
        "address to listen at, unix:PATH or 127.0.0.1:PORT (default: engine.sock in the program's own folder)"
    )
    made.add_argument("--listen", metavar="ADDRESS", help=listen)
    idle = "end after this time without a client (default: never)"
    made.add_argument("--idle", type=_minutes, metavar="MINUTES", help=idle)
    add_token(made)
    return made


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise ArgumentTypeError(f"must be a number of minutes above 0, not {text!r}")
    return minutes


def run_engine(args: Namespace) -> int:
    """Run `inspector engine` until a signal ends it.

    Raises:
        EngineError: The address or the token can't be used, or an engine listens there already.
    """
    from engine.remote.link import made_or_read_token
    from engine.remote.server import EngineServer
    from inspector.version import version

    address = address_of(args, args.listen or f"unix:{places.state() / 'engine' / 'engine.sock'}")
    file = token_file(args)
    server = EngineServer(made_or_read_token(file), version(), note)
    listener, received = address.listen(), 0

    def end(number: int, frame: object) -> None:
        nonlocal received
        received = number
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        server.start()
        out = output()
        out.write(f"{how_to_connect(address, file, args.token_file is not None)}\n")
        out.flush()
        if server.serve(listener, args.idle and args.idle * 60):
            note(f"The engine ends: no client was connected for {args.idle:g} minutes.")
    finally:
        listener.close()
        address.remove()
        ended = server.close()
    status = 128 + received if received else OK
    if not ended:
        leave_at_once(status)
    return status


def how_to_connect(address: Address, file: Path, named: bool) -> str:
    """One line: what to run here, and on another machine.

    Args:
        address: Where the engine listens.
        file: Of the token.
        named: Whether the file was named, so that the client's must be, too.
    """
    token, where = shlex.quote(str(file)), shlex.quote(str(address))
    copied = f"--token-file TOKEN (a copy of {token})"
    if not address.local:
        there = f"inspector --connect {where} --unencrypted {copied}"
        return f"Engine at {address}, where nothing is encrypted. Connect: {there}"
    here = f"inspector --connect {where}" + (f" --token-file {token}" if named else "")
    port = FORWARDED if address.path else address.port
    target = shlex.quote(address.path) if address.path else address
    forwarded = f"ssh -N -L {port}:{target} HOST, then inspector --connect 127.0.0.1:{port} {copied}"
    return f"Engine at {address}. Here: {here}. On another machine: {forwarded}"


ENGINE = Subcommand("engine", engine_parser, run_engine, "run an engine for inspector --connect")

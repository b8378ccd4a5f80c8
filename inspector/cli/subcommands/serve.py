"""`inspector serve` and `engine`: the program in a browser, a process for each visitor; an engine for other screens."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
import webbrowser
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.memory import memory_installed
from inspector import places
from inspector.cli import screen
from inspector.cli.arguments import request_from
from inspector.cli.exit import OK, leave_at_once, note, output
from inspector.cli.flags import Parser, Subcommand, add_token, address_of, command_parser, token_file, whole

if TYPE_CHECKING:
    from engine.remote.link import Address
    from inspector.serve.home import Home
    from inspector.serve.server import Server

MOST_SESSIONS = 64
SESSION_MIB, WATCHER_MIB = 135, 60
"""That a visitor's process takes with the bundled model, and a watcher's: measured in Linux, at 120 by 40 cells."""
IDLE_MINUTES, WATCHED_IDLE_MINUTES = 60, 240
"""Whoever watches presses no key for a whole lesson."""
_ANYWHERE = ("0.0.0.0", "::")
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ServeParser(Parser):
    """Reads the server's own flags and those of the screen; the latter are handed on as they were written."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `argparse` does, with the screen's flags as `program_flags`."""
        found, left = super().parse_known_args(args, namespace)
        own = Parser(add_help=False, allow_abbrev=False)
        add_own(own)
        found.program_flags = Parser.parse_known_args(own, args)[1]
        return found, left


def serve_parser() -> Parser:
    """The parser of `inspector serve`."""
    made = ServeParser(
        prog="inspector serve",
        description="Serve the program to browsers, with a process for each visitor, which takes "
        f"{SESSION_MIB} MiB with the bundled model. The flags of `inspector` hold for each of them. "
        "Visitors read and write files only in a folder of their own, and open only the models that you name. "
        "With --watch they follow a session of yours, and can change nothing.",
        epilog="Each address admits one browser; with --watch it admits everybody who has it, while there are seats. "
        "Enter prints another address, ctrl+c ends all sessions. "
        "From another machine: ssh -L 8000:127.0.0.1:8000 HOST, and open the address here.",
        allow_abbrev=False,
    )
    add_own(made)
    screen.add_flags(made)
    return made


def add_own(to: Parser) -> None:
    """The flags of the server."""
    add = to.add_argument_group("server").add_argument
    add(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen at (default: this machine only)",
    )
    add("--port", type=whole, default=0, metavar="N", help="port to listen at (default: any free one)")
    add("--open", action="store_true", help="open the address in this machine's browser")
    add("--watch", nargs="?", const="", metavar="FILE", help="let visitors follow a session: a path, or a name "
        "that `inspector sessions` lists (default: one that is running)")  # fmt: skip
    offer = "another model of this machine that visitors may open, by its name or directory; may be repeated. They " \
            "may also open those of --models DIR"  # fmt: skip
    add("--offer", action="append", default=[], metavar="MODEL", help=offer)
    add("--unconfined", action="store_true", help="give visitors your own rights: they can open any model, and read "
        "and write all files that you can")  # fmt: skip
    add(
        "--sessions",
        type=whole,
        default=8,
        metavar="N",
        help=f"most visitors at once, up to {MOST_SESSIONS} (default: 8)",
    )
    memory = "memory for all sessions together (default: half of the machine's)"
    add("--memory", type=whole, metavar="MIB", help=memory)
    add("--idle", type=whole, metavar="MINUTES", help="end a session after this time without a key or a move of the "
        f"mouse (default: {IDLE_MINUTES}; {WATCHED_IDLE_MINUTES} with --watch)")  # fmt: skip
    add(
        "--addresses",
        type=whole,
        default=1,
        metavar="N",
        help="how many addresses to print at the start (default: 1)",
    )
    add("--name", action="append", default=[], metavar="NAME", help="a name by which browsers reach this machine; "
                                                                    "may be "
        "repeated")  # fmt: skip


def run_serve(args: Namespace) -> int:
    """Run `inspector serve`.

    Raises:
        EngineError: A value is out of range, the package is not installed, or the port can't be had.
    """
    for name, value, most in (("sessions", args.sessions, MOST_SESSIONS), ("addresses", args.addresses, 10_000),
                              ("memory", args.memory, None), ("idle", args.idle, None)):  # fmt: skip
        if value is not None and not 1 <= value <= (most or value):
            bounds = f", and {most} at most" if most else ""
            raise EngineError(f"--{name} must be 1 or more{bounds}, not {value}.")
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        hint = "In the clone of this program: pip install '.[serve]', or the same with pipx or uv tool."
        raise EngineError("inspector serve needs the package textual-serve.", hint) from error
    from inspector.serve import home
    from inspector.serve.server import Limits, Server

    arguments = _screen(args) if args.watch is None else _watch(args)
    default = IDLE_MINUTES if args.watch is None else WATCHED_IDLE_MINUTES
    limits = Limits(args.sessions, _memory(args.memory), 60.0 * (args.idle or default))
    with TemporaryDirectory(prefix="inspector-") if args.watch is not None else nullcontext("") as empty:
        made = _homes(args, arguments, Path(empty))
        server = Server(home.program(*arguments), limits, args.name, note, made)
        asyncio.run(_serve(server, args, limits.memory))
    return OK


def _homes(args: Namespace, arguments: list[str], empty: Path) -> Callable[[int], Home]:
    """What gives visitors their places and rights.

    Args:
        args: The flags.
        arguments: Of each visitor's program.
        empty: A folder for watchers.
    """
    from inspector.serve import home

    if args.watch is not None:
        watcher = home.watching(empty, Path(arguments[-1]))
        return lambda number: watcher
    if args.unconfined:
        return home.as_host
    parent = places.state() / "visitors" / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    made = home.in_folders(parent, home.confinement_of(args))
    note(f"Visitors read and write files only in folders of their own, in {parent}.")
    return made


def _memory(mebibytes: int | None) -> int:
    installed = memory_installed() or 2**33
    return mebibytes * 2**20 if mebibytes is not None else installed // 2


def _screen(args: Namespace) -> list[str]:
    """The arguments of each visitor's program, looked at before anybody comes."""
    if args.prompt == "-":
        raise EngineError("No visitor's program can read this standard input.", "Use --prompt-file.")
    request_from(args, default_prompt=True)
    if args.unconfined:
        return list(args.program_flags)
    from inspector.serve.home import absolute, check_flags

    check_flags(args)
    return [*args.program_flags, *absolute(args)]


def _watch(args: Namespace) -> list[str]:
    """The arguments of each watcher's program.

    Raises:
        EngineError: There is no such recording, or a flag was given that means nothing to it.
    """
    from inspector.recordings import sessions
    from inspector.session.playback import checked

    own = (args.theme, "--theme", f"--theme={args.theme}")
    flags = [flag for flag in args.program_flags if flag not in own]
    flags += [*["--offer"] * bool(args.offer), *["--unconfined"] * args.unconfined]
    if flags:
        message = f"--watch shows a session as it goes, with its own model and prompt, not with {flags[0]}."
        raise EngineError(message, "Leave it out.")
    path = checked(sessions.find_growing(args.watch)).resolve()
    theme = [f"--theme={args.theme}"] if args.theme is not None else []
    return ["replay", "--follow", *theme, "--", str(path)]


# ---- while it runs ----------------------------------------------------------------------------


async def _serve(server: Server, args: Namespace, memory: int) -> None:
    """Serve until a signal comes."""
    loop, over, out = asyncio.get_running_loop(), asyncio.Event(), output()
    port = await server.start(args.host, args.port)

    def address() -> str:
        return f"http://{_name(args.host, args.name)}:{port}/?token={server.admissions.issue(args.watch is not None)}"

    def show() -> str:
        printed = address()
        print(printed, file=out, flush=True)
        return printed

    def typed() -> None:
        if sys.stdin.readline():
            show()
        else:
            loop.remove_reader(sys.stdin)

    for number in _ENDING:
        loop.add_signal_handler(number, over.set)
    _introduce(args, memory)
    first, *_ = [show() for _ in range(args.addresses)]
    if sys.stdin is not None and sys.stdin.isatty():
        loop.add_reader(sys.stdin, typed)
        note("Enter prints another address, ctrl+c ends all sessions.")
    if args.open:
        await asyncio.to_thread(webbrowser.open, first)
    await over.wait()
    for number in _ENDING:
        loop.remove_signal_handler(number)  # a second ctrl+c waits for nobody
    await server.close()


def _introduce(args: Namespace, memory: int) -> None:
    """Say what visitors take, who can come, and what they can do."""
    size = f"{SESSION_MIB} MiB with the bundled model" if args.watch is None else f"some {WATCHER_MIB} MiB"
    together = f"At most {args.sessions} at once, {memory / 2**30:.1f} GiB together."
    note(f"Each visitor is a process: {size}. {together}")
    if args.unconfined and args.watch is None:
        note("Whoever opens the address can do what you can do in the program: read and write files as you.")
    if not _is_loopback(args.host):
        note(
            "It is not encrypted: others in the network can read what is typed. ssh -L keeps it to this machine."
        )
    many = "one browser, once" if args.watch is None else "everybody who has it, while there are seats"
    note(f"Open this address; it admits {many}:")


def _is_loopback(host: str) -> bool:
    with suppress(OSError):
        found = socket.getaddrinfo(host, None)
        return all(each[4][0] == "::1" or str(each[4][0]).startswith("127.") for each in found)
    return False


def _name(host: str, names: list[str]) -> str:
    """What browsers are to call this machine."""
    if names:
        return names[0]
    if host in _ANYWHERE:
        return _own_address()
    return f"[{host}]" if ":" in host else host


def _own_address() -> str:
    """This machine's address in its network. Nothing is sent: the system only chooses the way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


SERVE = Subcommand(
    "serve", serve_parser, run_serve, "serve the program to browsers, with a process for each visitor"
)


# ---- inspector engine ------------------------------------------------------------------------

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

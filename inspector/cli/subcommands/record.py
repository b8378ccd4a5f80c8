"""`inspector record`: a recorder in front of a server of models, which it starts, or which runs already."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine.errors import EngineError, PathError
from engine.files import free, message_and_hint, typed
from engine.processes import ending_of
from inspector.cli.exit import OK, note
from inspector.cli.flags import Parser, Subcommand, command_parser, whole

if TYPE_CHECKING:
    from inspector.served.reader import Told
    from inspector.served.recording import RecordingFiles

HERE = "127.0.0.1"
PORT = 8080
"""Where `mlx_lm.server` listens by default, so that its clients need no change."""
MAX_SIZE = 256
"""MiB of a file: some 30,000 exchanges as those of the tests, a third of which have lists of top logprobs."""
LOOK = 0.05
"""Seconds between two looks whether a server that was started listens."""
LONGEST = 60
"""Cells of a request's method and path in a line."""
PATIENCE = 10.0
"""Seconds that a server has to end, and the file to be written."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def record_parser() -> Parser:
    """The parser of `inspector record`."""
    made = command_parser(
        "record",
        "Record the requests to a model server and its replies, in a file that `inspector open` reads. Every byte is "
        "passed "
        "on unchanged. Give the command that starts the server after --: the server gets another port, and the "
        "recorder listens at the server's. Or give the URL of a server that is running.",
        "Only you can read the file (mode 0600), which holds prompts and replies; API keys in headers, in the path "
        "and in "
        "their usual fields are never stored. Example: inspector record -- mlx_lm.server --model MODEL. "
        "Ctrl+c ends the recorder, and the server that it started.",
    )
    made.add_argument(
        "command",
        nargs="*",
        metavar="-- COMMAND",
        help="command that starts the server; the recorder replaces its --port",
    )
    made.add_argument(
        "--upstream", metavar="URL", help="a server that is running, such as http://127.0.0.1:8000"
    )
    listen = (
        "port for clients on this machine (127.0.0.1); 0 takes a free one (default: COMMAND's --port, else "
        f"{PORT})"
    )
    made.add_argument("--listen", type=whole, metavar="PORT", help=listen)
    made.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="a new file to write (default: one in the program's own folder)",
    )
    size = f"size at which the next file begins, NAME-2 and so on (default: {MAX_SIZE})"
    made.add_argument("--max-size", type=whole, default=MAX_SIZE, metavar="MIB", help=size)
    made.add_argument("--quiet", action="store_true", help="print no line for each request")
    return made


def run_record(args: Namespace) -> int:
    """Run `inspector record` until a signal or the server's own end ends it.

    Raises:
        EngineError: A flag can't be used, the port or the file can't be had, or the server has ended with an error.
    """
    if bool(args.command) == (args.upstream is not None):
        raise EngineError(
            "Give the command of a server after --, or the --upstream URL of one that is running.",
            "Example: inspector record -- mlx_lm.server --model MODEL.",
        )
    if args.max_size < 1:
        raise EngineError(f"--max-size must be 1 MiB or more, not {args.max_size}.")
    from inspector.served.proxy import bound

    if args.upstream is None:
        with bound(0) as any_free:
            upstream = any_free.getsockname()
        command, usual = on_port(args.command, upstream[1]), port_of(args.command) or PORT
    else:
        upstream, command, usual = upstream_of(args.upstream), None, PORT
    listen = usual if args.listen is None else args.listen
    if upstream == (HERE, listen):
        raise EngineError(f"The server's own port is {listen}.", "Choose another for clients: --listen PORT.")
    ended: SimpleQueue[int] = SimpleQueue()
    with (
        bound(listen) as listener,
        _files(args, upstream) as recording,
        closing(StartedServer(command, upstream[1], ended)) if command else nullcontext() as server,
    ):
        return _record(recording, listener, upstream, server, ended, args.quiet)


def _record(
    recording: RecordingFiles, listener: socket.socket, upstream: tuple[str, int], server: StartedServer | None,
    ended: SimpleQueue[int], quiet: bool,
) -> int:  # fmt: skip
    """Record until something ends it.

    Args:
        recording: Its files.
        listener: Has the port of the clients.
        upstream: Host and port of the server.
        server: The server, where it was started here.
        ended: Gets the number of a signal, or 0 when the server has ended.
        quiet: Whether to leave out the line on each exchange.

    Returns:
        Exit status.
    """
    from engine.remote.link import Address
    from inspector.served.copies import Copies
    from inspector.served.proxy import Proxy
    from inspector.served.reader import Reader

    copies = Copies()
    reader = Reader(recording, (lambda told: None) if quiet else _tell, note)
    writer = threading.Thread(target=reader.run, args=(copies,), name="writer", daemon=True)
    proxy = Proxy(listener, upstream, copies, note)
    writer.start()
    with _signals(ended):
        received = _waited(server, ended)
        if received is None:
            proxy.start()
            clients = _url((HERE, listener.getsockname()[1]))
            note(
                f"Recording {_url(upstream)}. Point clients at {clients}; ctrl+c ends it. File: {recording.path}."
            )
            if not Address(host=upstream[0], port=upstream[1]).local:
                note(f"Nothing is encrypted on the way to {upstream[0]}, not even API keys.")
            received = ended.get()
    failure = server.failure if server is not None and not received else None
    if server is not None:
        server.close()
    proxy.close()
    copies.close()
    writer.join(PATIENCE)
    if not writer.is_alive():
        recording.close()
    _sum_up(recording, reader.given_up, copies.lost, writer.is_alive())
    if failure is not None:
        raise failure
    return 128 + received if received else OK


@contextmanager
def _signals(ended: SimpleQueue[int]) -> Iterator[None]:
    """Have signals end the recording; behind it a second ctrl+c ends the process, and waits for nobody."""
    taken = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, lambda received, frame: ended.put(received)) for number in taken]
    try:
        yield
    finally:
        for number, handler in zip(taken, before, strict=True):
            signal.signal(number, handler)


def _waited(server: StartedServer | None, ended: SimpleQueue[int]) -> int | None:
    """Wait until a server listens; returns what has ended it, or us, before."""
    if server is not None:
        note(f"Waiting until {server.name} listens at port {server.port}.")
    while server is not None:
        with suppress(Empty):
            return ended.get(timeout=LOOK)
        if server.listens():
            break
    return None


@contextmanager
def _files(args: Namespace, upstream: tuple[str, int]) -> Iterator[RecordingFiles]:
    """The files of the recording; one in which nothing is, is removed in the end."""
    from inspector.served.recording import RecordingFiles
    from inspector.version import version

    head = (f"mlx-inspector {version()}", _url(upstream))
    made = RecordingFiles(_path(args, upstream), head, args.max_size * 2**20, note)
    try:
        yield made
    finally:
        if not made.exchanges:
            with suppress(OSError):
                made.path.unlink()


def _path(args: Namespace, upstream: tuple[str, int]) -> Path:
    """The file to make."""
    if args.output is not None:
        return free(typed(args.output), False, "Choose another name.")
    from inspector.recordings.sessions import new_path
    from inspector.served.opening import folder

    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(*message_and_hint(folder(), error, "written")) from error
    return new_path(folder(), _value(args.command, "--model") or "-".join(map(str, upstream)))


def _url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tell(told: Told) -> None:
    """One line on an exchange."""
    from inspector.display import truncate, visible

    asked = truncate(visible(f"{told.method} {told.path}"), LONGEST)
    parts = [
        f"{told.number:>4}",
        asked,
        str(told.status) if told.status else "no reply",
        f"{told.ms:,.0f} ms",
    ]
    counts = [told.usage.get(f"{which}_tokens") for which in ("prompt", "completion")]
    if all(isinstance(count, int) and 0 <= count < 10**9 for count in counts):
        parts.append("{} + {} tokens".format(*counts))
    note("  ".join([*parts, *["cut"] * told.cut]))


def _sum_up(recording: RecordingFiles, given_up: int, lost: int, late: bool) -> None:
    """Say what was recorded, and how it is opened."""
    if given_up:
        note(f"{given_up:,} connection{'s' * (given_up > 1)} could not be recorded to the end.")
    if lost or late:
        more = f"{lost:,} bytes passed" if lost else "The last requests and replies passed"
        note(f"{more} without being recorded: the disk was too slow.")
    if not recording.exchanges:
        note("There was no request, so no file was written.")
        return
    if recording.failed:
        note("Some requests are missing in the file.")
    count = f"{recording.exchanges} exchange{'s' * (recording.exchanges > 1)}"
    note(f"{count}, in {recording.path}. Open it: inspector open {shlex.quote(str(recording.path))}")


# ---- the server -------------------------------------------------------------------------------


class StartedServer:
    """A server that the recorder has started.

    Args:
        command: Starts it.
        port: Where it will listen.
        ended: Gets 0 when it has ended.

    Raises:
        EngineError: There is no such program, or it can't be started.
    """

    def __init__(self, command: Sequence[str], port: int, ended: SimpleQueue[int]) -> None:
        self.name, self.port = command[0], port
        self._command, self._ended = command, ended
        beside = os.path.dirname(sys.executable)  # programs of an environment that wasn't activated
        program = shutil.which(command[0]) or shutil.which(command[0], path=beside)
        if program is None:
            raise EngineError(f"There is no program {command[0]}.", "Check its name, or give its path.")
        try:
            self._process = subprocess.Popen([program, *command[1:]])
        except OSError as error:
            raise EngineError(f"{command[0]} can't be started: {error.strerror}.", "Try it alone.") from error
        threading.Thread(target=self._wait, name="server", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        self._ended.put(0)

    @property
    def failure(self) -> EngineError | None:
        """The error to raise where it has ended by itself, with one."""
        status = self._process.returncode
        if not status:
            return None
        alone = f"Its output is above. To start it without the recorder: {shlex.join(self._command)}"
        return EngineError(f"{self.name} {ending_of(status)}.", alone)

    def listens(self) -> bool:
        """Try whether it listens."""
        with suppress(OSError), socket.create_connection((HERE, self.port)):
            return True
        return False

    def close(self) -> None:
        """End it, where it runs."""
        for end in (self._process.terminate, self._process.kill):
            end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
                return


def upstream_of(url: str) -> tuple[str, int]:
    """Host and port of a server's URL.

    Raises:
        EngineError: It is none of a server that can be recorded.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    if parts.scheme == "https":
        raise EngineError(
            "A server behind https can't be recorded: requests pass unchanged, and it expects its own name in them.",
            "Record where the server itself listens with http, or forward that to here: "
            "ssh -L 9000:127.0.0.1:8080 HOST, then --upstream http://127.0.0.1:9000.",
        )
    if parts.scheme != "http" or host is None:
        raise EngineError(
            f"--upstream {url} is not the URL of a server.", "Write it as http://127.0.0.1:8000."
        )
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise EngineError("--upstream takes only host and port: paths and keys of requests pass unchanged.",
                          f"Write --upstream http://{host}:{port}, and give the rest to the client.")  # fmt: skip
    return HERE if host == "localhost" else host, port


def on_port(command: Sequence[str], port: int) -> list[str]:
    """The command of a server, with another port; where it names a host, this machine alone."""
    made, left = list[str](), deque(command)
    while left:
        flag, equals, _ = (argument := left.popleft()).partition("=")
        if flag not in ("--port", "--host"):
            made.append(argument)
            continue
        if not equals and left:
            left.popleft()
        if flag == "--host":
            made += [flag, HERE]
    return [*made, "--port", str(port)]


def port_of(command: Sequence[str]) -> int | None:
    """The port that a command names, None where it names none."""
    text = _value(command, "--port")
    return int(text) if text.isascii() and text.isdecimal() else None


def _value(command: Sequence[str], flag: str) -> str:
    """The value of a flag, the last one; empty where there is none."""
    found = ""
    for place, argument in enumerate(command):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else "".join(command[place + 1 : place + 2])
    return found


RECORD = Subcommand(
    "record", record_parser, run_record, "record the requests to a model server and its replies"
)

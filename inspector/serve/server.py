"""The server of `inspector serve`: a page and a websocket for each visitor, all behind the same checks."""

from __future__ import annotations

import asyncio
import os
import site
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web

import inspector
from engine.errors import EngineError
from engine.frozen import frozen
from inspector.serve.admission import AdmissionError, Admissions, check_host, check_origin
from inspector.serve.pages import page, refusal
from inspector.serve.pty_process import PtyProcess
from inspector.serve.resident import resident
from inspector.serve.visit import Visit, bounded

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEARTBEAT_SECONDS = 15.0
"""A page that answers nothing for half as long again is gone, or reads nothing: its session ends."""
MOST_MESSAGE = 2**21
"""Bytes of a message: a paste of 2**20 characters, which is the most that the page sends, escaped in JSON."""
LOOK_SECONDS = 1.0
"""Between two looks at memory and at who is idle."""
_DROPPED = (
    "COLUMNS", "LINES", "TMUX", "STY", "SSH_CONNECTION", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TEXTUAL_DRIVER",
)  # fmt: skip
"""What an environment tells of the terminal in which the server was started: the visitor's is another one."""
_PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
ASSETS = {
    "/page.js": "page/page.js",
    "/page.css": "page/page.css",
}
LIBRARY_ASSETS = {
    "/textual.js": "static/js/textual.js",
    "/xterm.css": "static/css/xterm.css",
    "/font.ttf": "static/fonts/RobotoMono-VariableFont_wght.ttf",
}
"""Of textual-serve: xterm.js (MIT) with its addons in one file, and Roboto Mono (Apache 2.0)."""


@frozen
class Limits:
    """What visitors may take together."""

    sessions: int = 8
    memory: int = 2**32
    """Resident bytes of all their processes."""
    idle: float = 3600.0
    """Seconds without a key or a move of the mouse after which a session ends."""


class Server:
    """Serves one program to visitors.

    Args:
        command: The program and its arguments, run once for each visitor.
        limits: For all of them.
        names: By which requests may call us, beside the address at which they come in.
        report: Tells whoever runs the server who comes and goes; one sentence.
        environment: Of the programs; None for this process's own, made fit for another terminal.
        clock: Seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits,
        names: Collection[str] = (),
        report: Callable[[str], None] = lambda text: None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admissions = Admissions()
        self.sessions: list[Visit] = []
        """Those that run, the newest last."""
        self.resident = 0
        """Bytes that they took at the last look."""
        self._command, self._limits, self._report, self._clock = command, limits, report, clock
        self._environment = program_environment() if environment is None else environment
        self._names = frozenset(name.lower() for name in names)
        self._starting = 0
        self._runner: web.AppRunner | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.port = 0

    # ---- beginning and end ------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Begin to serve; returns the port.

        Args:
            host: Address at which to listen.
            port: 0 for any that is free.

        Raises:
            EngineError: That address can't be had.
        """

        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        app = web.Application(middlewares=[web.middleware(guarded)])
        app.on_response_prepare.append(_head)
        app.router.add_get("/", self._page, allow_head=False)
        app.router.add_get("/ws", self._socket, allow_head=False)
        for path, file in _files().items():
            app.router.add_get(path, _sending(file), allow_head=False)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            why = getattr(error, "strerror", None) or str(error)
            raise EngineError(
                f"{host} port {port} can't be listened at: {why}.", "Give another --port."
            ) from error
        self.port = int(self._runner.addresses[0][1])
        self._keeper = asyncio.create_task(self._keep())
        return self.port

    async def close(self, reason: str = "The server was ended.") -> None:
        """End all sessions, and serve no more."""
        if self._keeper is not None:
            self._keeper.cancel()
        for session in self.sessions:
            session.end(reason)
        while self.sessions:
            await asyncio.sleep(0.02)
        if self._runner is not None:
            await self._runner.cleanup()

    # ---- every request ----------------------------------------------------------------------

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what comes from another site's page, or from nobody that was admitted."""
        try:
            self._check(request)
            return await handler(request)
        except AdmissionError as error:
            return refusal(403, "Not admitted", error)
        except EngineError as error:
            return refusal(503, "No room", error)
        except web.HTTPException as error:
            return refusal(
                error.status, error.reason, EngineError("There is nothing here.", "Open the first page.")
            )

    def _check(self, request: web.Request) -> None:
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        check_host(request.headers.get("Host", ""), str(name[0]) if name else "", self._names)
        opens = request.path == "/ws"
        if opens or "Origin" in request.headers:
            check_origin(request.headers.get("Origin", ""), request.headers["Host"])
        if not self._admitted(request) and request.path != "/":
            self.admissions.admit("")

    def _admitted(self, request: web.Request) -> bool:
        return self.admissions.knows(request.cookies.get(self._cookie, ""))

    @property
    def _cookie(self) -> str:
        """Its name: browsers send cookies to all ports of a host."""
        return f"inspector-{self.port}"

    # ---- the page ---------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The page of a visitor who is admitted, or comes with a token: it is used up here, where there is room."""
        admitted = self._admitted(request)
        if admitted or self.admissions.left(request.query.get("token", "")):
            self._check_room()
        response = page()
        if not admitted:
            cookie = self.admissions.admit(request.query.get("token", ""))
            response.set_cookie(self._cookie, cookie, httponly=True, samesite="Strict")
        return response

    # ---- sessions ---------------------------------------------------------------------------

    def _check_room(self) -> None:
        """See that one more session fits.

        Raises:
            EngineError: It doesn't.
        """
        count, most = len(self.sessions) + self._starting, self._limits.sessions
        if count >= most:
            raise EngineError(
                f"All {most} seats are taken." if most > 1 else "The one seat is taken.",
                "Load this page again when somebody has left, or ask whoever runs the server for more: --sessions.",
            )
        share = self.resident // len(self.sessions) if self.sessions else 0
        if self.resident + share > self._limits.memory:
            raise EngineError(
                "The sessions take all the memory that they may.",
                "Load this page again when somebody has left, or ask whoever runs the server for more: --memory.",
            )

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """One session, from its first byte to its end."""
        self._check_room()
        self._starting += 1
        try:
            socket = web.WebSocketResponse(
                heartbeat=HEARTBEAT_SECONDS, max_msg_size=MOST_MESSAGE, compress=False, timeout=1.0
            )
            await socket.prepare(request)
            session = Visit(await self._started(request), socket, self._clock)
            self.sessions.append(session)
        finally:
            self._starting -= 1
        self._report(f"A visitor came: {self._taken}.")
        try:
            await session.run()
        finally:
            self.sessions.remove(session)
            self._report(f"A visitor left: {self._taken}.")
            if request.transport is not None:
                request.transport.abort()  # of a page that reads nothing, its close is never sent
        return socket

    async def _started(self, request: web.Request) -> PtyProcess:
        size = bounded(_whole(request.query.get("width"), 80), _whole(request.query.get("height"), 24))
        return await PtyProcess.start(self._command, self._environment, *size)

    @property
    def _taken(self) -> str:
        return f"{len(self.sessions)} of {self._limits.sessions} seats are taken"

    async def _keep(self) -> None:
        """End who is idle, and the newest where all take too much memory."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Do once what is done every second."""
        for session in self.sessions:
            if session.idle > self._limits.idle:
                session.end(
                    f"Nobody did anything for {self._limits.idle / 60:g} minutes: load the page again."
                )
        sizes = resident() if self.sessions else {}
        self.resident = sum(sizes.get(session.program.pid, 0) for session in self.sessions)
        if self.resident > self._limits.memory:
            self.sessions[-1].end("All sessions together took more memory than they may (--memory).")


def program_environment(home: str = "") -> dict[str, str]:
    """This process's environment, as a program on a visitor's terminal gets it.

    Args:
        home: Where it is to find and keep what is its user's own; empty for where this process does.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    if home:
        kept |= dict.fromkeys(_PLACES, home)
        kept["PYTHONUSERBASE"] = site.getuserbase()  # which follows from HOME
    path = (str(Path(inspector.__file__).parents[1]), *filter(None, [kept.get("PYTHONPATH")]))
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": os.pathsep.join(path)}


def program(*arguments: str) -> tuple[str, ...]:
    """The command that runs this very program: the same interpreter, the same files, whatever lies in the directory."""
    return (sys.executable, "-P", "-m", "inspector", *arguments)


def _files() -> dict[str, Path]:
    """The files of the page, by the path under which they are asked for.

    Raises:
        EngineError: textual-serve is not installed.
    """
    spec = find_spec("textual_serve")
    if spec is None or spec.origin is None:
        raise EngineError(
            "This needs the package textual-serve.", "In the clone of this program: pip install '.[serve]'."
        )
    own, library = Path(__file__).parent, Path(spec.origin).parent
    files = {path: own / name for path, name in ASSETS.items()}
    return files | {path: library / name for path, name in LIBRARY_ASSETS.items()}


def _sending(file: Path) -> Handler:
    async def send(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(file)

    return send


async def _head(request: web.Request, response: web.StreamResponse) -> None:
    """What every response says: the page may ask nobody else for anything, and be shown in nobody's frame."""
    host = request.headers.get("Host", "")
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'{}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    sockets = f" ws://{host} wss://{host}" if response.status == 200 else ""  # the host is checked then
    response.headers.update(
        {
            "Content-Security-Policy": policy.format(sockets),
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            "Server": "inspector",
        }
    )


def _whole(text: str | None, otherwise: int) -> int:
    return (
        int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 6 else otherwise
    )

"""The server of `inspector serve`: a page and a websocket for each visitor, all behind the same checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web

from engine.errors import EngineError
from engine.frozen import frozen
from engine.remote.lines import Complaints
from inspector.serve.door import KEEP_SECONDS, AdmissionError, Admissions, Door, check_host, check_origin
from inspector.serve.home import Home, as_host
from inspector.serve.visit import PtyProcess, Visit, bounded, resident

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEARTBEAT_SECONDS = 15.0
"""A page that answers nothing for half as long again is gone, or reads nothing: its session ends."""
MOST_MESSAGE = 2**21
"""Bytes of a message: a paste of 2**20 characters, which is the most that the page sends, escaped in JSON."""
LOOK_SECONDS = 1.0
"""Between two looks at memory and at who is idle."""
_TAKEN_OVER = "You opened it again elsewhere: a visitor has one seat."
ASSETS = {"/page.js": "page/page.js", "/page.css": "page/page.css"}
LIBRARY_ASSETS = {
    "/textual.js": "static/js/textual.js",
    "/xterm.css": "static/css/xterm.css",
    "/font.ttf": "static/fonts/RobotoMono-VariableFont_wght.ttf",
}
"""Of textual-serve: xterm.js (MIT) with its addons in one file, and Roboto Mono (Apache 2.0)."""


@frozen
class Limits:
    """The limits of all visitors together."""

    sessions: int = 8
    memory: int = 2**32
    """Resident bytes of all their processes."""
    idle: float = 3600.0
    """Seconds without a key or a move of the mouse after which a session ends."""


@dataclass
class Seat:
    """Of one visitor, who may have asked for it more than once."""

    visit: Visit | None = None
    free: asyncio.Lock = field(default_factory=asyncio.Lock)
    claims: int = 0
    """How often it was asked for: the last one has it."""
    wanted: int = 0
    """How many of these have it or wait."""


class Server:
    """Serves one program to visitors.

    Args:
        command: The program and its arguments, run once for each visitor.
        limits: For all of them.
        names: By which requests may call us, beside the address at which they come in.
        report: Tells whoever runs the server who comes and goes; one sentence.
        home: Gives each visitor a place, by a number of their own; called once for each.
        clock: Seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits,
        names: Collection[str] = (),
        report: Callable[[str], None] = lambda text: None,
        home: Callable[[int], Home] = as_host,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admissions = Admissions()
        self.sessions: list[Visit] = []
        """Those that run, the newest last."""
        self.resident = 0
        """Bytes that they took at the last look."""
        self._command, self._limits, self._report, self._clock = command, limits, report, clock
        self._home = home
        self._homes: dict[str, Home] = {}
        """Of every visitor who had a seat, by their cookie: who comes back finds what they left."""
        self._seats: dict[str, Seat] = {}
        """Those that are taken, by the cookie of who has it."""
        self._names = frozenset(name.lower() for name in names)
        self._door = Door(limits.sessions, Complaints(report))
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
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1.0, keepalive_timeout=KEEP_SECONDS,
            logger=self._door.logger,
        )  # fmt: skip
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self.port = await self._door.open(self._runner.server, host, port)
        except EngineError:
            await self._runner.cleanup()
            raise
        self._keeper = asyncio.create_task(self._keep())
        return self.port

    async def close(self, reason: str = "The server was ended.") -> None:
        """End all sessions, and serve no more."""
        if self._keeper is not None:
            self._keeper.cancel()
        self._door.close()
        while self._seats:
            for session in self.sessions:
                session.end(reason)
            await asyncio.sleep(0.02)
        if self._runner is not None:
            await self._runner.cleanup()

    # ---- every request ----------------------------------------------------------------------

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what comes from another site's page, or from nobody that was admitted."""
        try:
            self._door.asked(request.transport, self._admitted(request))
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
        return self.admissions.knows(self._visitor(request))

    def _visitor(self, request: web.Request) -> str:
        return str(request.cookies.get(self._cookie, ""))

    @property
    def _cookie(self) -> str:
        """Its name: browsers send cookies to all ports of a host."""
        return f"inspector-{self.port}"

    # ---- the page ---------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The page of a visitor who is admitted, or comes with a token: it is used up here, where there is room."""
        admitted = self._admitted(request)
        if admitted or self.admissions.admits(request.query.get("token", "")):
            self._check_room(self._visitor(request))
        response = page()
        if not admitted:
            cookie = self.admissions.admit(request.query.get("token", ""))
            self._door.asked(request.transport, admitted=True)
            response.set_cookie(self._cookie, cookie, httponly=True, samesite="Strict")
        return response

    # ---- sessions ---------------------------------------------------------------------------

    def _check_room(self, visitor: str) -> None:
        """See that one more session fits, or the visitor has a seat already.

        Raises:
            EngineError: It doesn't.
        """
        if visitor in self._seats:
            return
        most = self._limits.sessions
        if len(self._seats) >= most:
            raise EngineError(
                f"All {most} seats are taken." if most > 1 else "The one seat is taken.",
                "Load this page again when somebody has left, or ask whoever runs the server for more: --sessions.",
            )
        share = self.resident // len(self.sessions) if self.sessions else 0
        if self.resident + share > self._limits.memory:
            raise EngineError(
                "The sessions have reached the server's memory limit.",
                "Load this page again when somebody has left, or ask whoever runs the server for more: --memory.",
            )

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """One session, from its first byte to its end, on the visitor's own seat: the one before ends first."""
        visitor = self._visitor(request)
        self._check_room(visitor)
        seat = self._seats.setdefault(visitor, Seat())
        seat.claims += 1
        claim = seat.claims
        seat.wanted += 1
        try:
            if seat.visit is not None:
                seat.visit.end(_TAKEN_OVER)
            async with seat.free:
                if claim != seat.claims:
                    raise EngineError(_TAKEN_OVER, "Load this page again to come back here.")
                return await self._seated(request, visitor, seat, claim)
        finally:
            seat.wanted -= 1
            if not seat.wanted:
                del self._seats[visitor]

    async def _seated(self, request: web.Request, visitor: str, seat: Seat, claim: int) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS, max_msg_size=MOST_MESSAGE, compress=False, timeout=1.0
        )
        if not socket.can_prepare(request):
            raise web.HTTPBadRequest
        program = await self._started(request, visitor)
        try:
            await socket.prepare(request)
        except BaseException:  # the page has gone
            await program.end(0.0)
            raise
        self._door.seated(request.transport)
        session = seat.visit = Visit(program, socket, self._clock)
        self.sessions.append(session)
        if claim != seat.claims:
            session.end(_TAKEN_OVER)
        self._report(f"A visitor came: {self._taken}.")
        try:
            await session.run()
        finally:
            seat.visit = None
            self.sessions.remove(session)
            self._report(f"A visitor left: {self._taken}.")
            if request.transport is not None:
                request.transport.abort()  # of a page that reads nothing, its close is never sent
        return socket

    async def _started(self, request: web.Request, visitor: str) -> PtyProcess:
        size = bounded(_whole(request.query.get("width"), 80), _whole(request.query.get("height"), 24))
        if visitor not in self._homes:
            self._homes[visitor] = self._home(len(self._homes) + 1)
        home = self._homes[visitor]
        try:
            return await PtyProcess.start(self._command, home.environment, *size, home.folder)
        except OSError as error:
            raise EngineError(
                f"No program can be started for you: {error.strerror}.", "Load this page again later."
            ) from error

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
        self._door.look()
        for session in self.sessions:
            if session.idle > self._limits.idle:
                session.end(
                    f"Nobody did anything for {self._limits.idle / 60:g} minutes: load the page again."
                )
        sizes = resident() if self.sessions else {}
        self.resident = sum(sizes.get(session.program.pid, 0) for session in self.sessions)
        if self.resident > self._limits.memory:
            self.sessions[-1].end("All sessions together exceeded the memory limit (--memory).")


def _files() -> dict[str, Path]:
    """The files of the page, by the path under which they are asked for.

    Raises:
        EngineError: textual-serve is not installed.
    """
    spec = find_spec("textual_serve")
    if spec is None or spec.origin is None:
        raise EngineError(
            "This needs the package textual-serve.",
            "In the clone of this program: pip install '.[serve]', or the same with pipx or uv tool.",
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


# ---- the two pages ---------------------------------------------------------------------------

_FOLDER = Path(__file__).parent / "page"


def page() -> web.Response:
    """The page with the terminal."""
    return web.Response(text=(_FOLDER / "page.html").read_text(encoding="utf-8"), content_type="text/html")


def refusal(status: int, title: str, error: EngineError) -> web.Response:
    """A page that says what is wrong and what to do.

    Args:
        status: Of HTTP.
        title: A few words.
        error: Says it.
    """
    text = (_FOLDER / "refusal.html").read_text(encoding="utf-8")
    for name, value in (("title", title), ("message", error.message), ("hint", error.hint)):
        text = text.replace(f"{{{name}}}", escape(value))
    return web.Response(status=status, text=text, content_type="text/html")

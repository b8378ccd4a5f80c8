"""Where connections come in: how many may be there that are no session, and how long one may take to ask for something.

A connection costs its sender nothing and this process a file descriptor, of which it has few. So those that are no
session are bounded, below what is left of the descriptors beside the sessions', and the oldest makes room for the
newest: of the address that has most of them, and there one that was not let in. Whoever means it has asked long before.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import resource
import secrets
import socket
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from engine.errors import EngineError
from engine.remote.lines import Complaints
from inspector.config.files import log_crash

HEAD_SECONDS = 10.0
"""In which a connection that was not let in must be done."""
KEEP_SECONDS = 15.0
"""For which one that was let in is kept for its next request."""
MOST_WAITING = 128
"""Connections that are no session."""
_LEAST_WAITING = 8
_OWN, _OF_SESSION = 40, 3
"""Descriptors of the server itself, and of a session: its websocket, its terminal, and one while it starts."""
_BACKLOG = 1024
_PAUSE_SECONDS = 0.05
"""After a connection could not be taken."""


@dataclass
class Caller:
    """A connection that is no session."""

    peer: str
    since: float
    asked: bool = False
    """True if a whole request came."""
    admitted: bool = False


class Door:
    """Takes connections in, and closes those that nobody needs.

    Args:
        sessions: That there may be at most; their descriptors are kept free.
        complaints: Hear of those that were closed.
    """

    def __init__(self, sessions: int, complaints: Complaints) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        free = limit - _OWN - _OF_SESSION * sessions if limit > 0 else MOST_WAITING
        self.most = max(_LEAST_WAITING, min(MOST_WAITING, free))
        self._complaints = complaints
        self._callers: dict[asyncio.Transport, Caller] = {}
        """The oldest first."""
        self._task: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self.logger = logging.Logger(__name__)
        self.logger.addHandler(_Log(complaints))

    async def open(self, server: web.Server, host: str, port: int) -> int:
        """Begin to take connections in; returns the port.

        Args:
            server: What answers them.
            host: Address at which to listen.
            port: 0 for any that is free.

        Raises:
            EngineError: That address can't be had.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            self._listener = socket.create_server(found[0][4][:2], family=found[0][0], backlog=_BACKLOG)
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise EngineError(
                f"The server can't listen at {host} port {port}: {why}.", "Give another --port."
            ) from error
        self._listener.setblocking(False)
        self._task = asyncio.create_task(self._accept(self._listener, server))
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Take no further one in."""
        if self._task is not None:
            self._task.cancel()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._make_room()
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left, or it has gone
                self._complaints.add(f"that could not be taken: {error.strerror}")
                self._close_one()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            with suppress(OSError):
                connection.setblocking(False)
                transport, _ = await loop.connect_accepted_socket(server, connection)
                self._callers[transport] = Caller(str(address[0]), loop.time())

    # ---- who is there -----------------------------------------------------------------------

    def asked(self, transport: asyncio.Transport | None, admitted: bool) -> None:
        """A whole request came.

        Args:
            transport: Of its connection; None where that has gone.
            admitted: Whether it came from somebody who was let in.
        """
        if transport is not None and (caller := self._callers.get(transport)) is not None:
            caller.asked, caller.admitted = True, caller.admitted or admitted

    def seated(self, transport: asyncio.Transport | None) -> None:
        """A connection is a session's from now on."""
        if transport is not None:
            self._callers.pop(transport, None)

    def look(self) -> None:
        """Close those that took too long; called every second."""
        late = asyncio.get_running_loop().time() - HEAD_SECONDS
        for transport, caller in self._there():
            if caller.since < late and not caller.admitted:
                self._close(transport, f"that asked for nothing within {HEAD_SECONDS:g} s")
        self._complaints.tell()

    def _there(self) -> list[tuple[asyncio.Transport, Caller]]:
        """The connections that are open."""
        for transport in [each for each in self._callers if each.is_closing()]:
            del self._callers[transport]
        return list(self._callers.items())

    def _make_room(self) -> None:
        while len(self._there()) >= self.most:
            self._close_one()

    def _close_one(self) -> None:
        there = self._there()
        if there:
            [(peer, _)] = Counter(caller.peer for _, caller in there).most_common(1)
            own = [each for each in there if each[1].peer == peer]
            transport = min(own, key=lambda each: each[1].admitted)[0]
            self._close(transport, f"beyond the {self.most} that may wait")

    def _close(self, transport: asyncio.Transport, why: str) -> None:
        caller = self._callers.pop(transport)
        if not caller.asked:
            self._complaints.add(why)
        transport.abort()


class _Log(logging.Handler):
    """Takes what aiohttp logs: of a request that is none there is nothing to read in a traceback."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__(logging.WARNING)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        """Count what happened."""
        error = record.exc_info[1] if record.exc_info else None
        strange = isinstance(error, HttpProcessingError)
        if not strange:
            log_crash("inspector serve", self.format(record))
        self._complaints.add(
            "that sent no valid HTTP" if strange else f"by a fault of the program ({error!r})"
        )


# ---- who may come in: pure -------------------------------------------------------------------

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_TOKEN_BYTES = 16
_COOKIE_BYTES = 24


class AdmissionError(EngineError):
    """A request that is refused, with what its sender reads."""


class Admissions:
    """The tokens that were given out, and the cookies of the browsers that came with them.

    The page is opened by an address with a token in it. The first browser that asks with it gets a cookie, which no
    script can read and no other site's page can send, and the token is used up: a history, a log or a photograph gives
    nothing. A class's address is read off a board: its token lasts as long as the server, and the seats bound how many
    are in at once. A cookie is a visitor, and carries its own proof: however many are asked for, none is kept here.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_COOKIE_BYTES)
        self._uses: dict[str, float] = {}
        """How many browsers each token still admits."""

    def issue(self, lasting: bool = False) -> str:
        """A new token.

        Args:
            lasting: Whether it admits any number of browsers; else the first.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._uses[token] = math.inf if lasting else 1
        return token

    def knows(self, cookie: str) -> bool:
        """True if a browser was admitted before."""
        name, _, proof = cookie.partition(".")
        return hmac.compare_digest(proof.encode("utf-8", "replace"), self._proof(name).encode())

    def _proof(self, name: str) -> str:
        return hmac.digest(self._key, name.encode("utf-8", "replace"), "sha256").hex()

    def admits(self, token: str) -> bool:
        """True if a token still admits a browser."""
        return self._uses.get(token, 0) > 0

    def admit(self, token: str) -> str:
        """Use a token; returns the cookie of the browser that came with it.

        Raises:
            AdmissionError: There is none, it is no token of ours, or it admits nobody any more.
        """
        if not token:
            hint = "Open the address that the server printed."
            raise AdmissionError("No token came with this request.", hint)
        if token not in self._uses:
            hint = "Open the address that it printed last."
            raise AdmissionError("The token in this address is not valid on this server.", hint)
        if not self.admits(token):
            hint = "Whoever runs the server gets a fresh one by pressing Enter there."
            raise AdmissionError("This address was used already.", hint)
        self._uses[token] -= 1
        name = secrets.token_urlsafe(_COOKIE_BYTES)
        return f"{name}.{self._proof(name)}"


def check_host(host: str, local: str, names: Collection[str]) -> None:
    """See that a request calls us by a name that is ours.

    A page of another site can have its own name lead here (DNS rebinding), and would then be of our origin; it can't
    change the name that it asks for. The port may be another one: a tunnel has its own.

    Args:
        host: The header `Host`.
        local: The address at which the connection came in.
        names: Those that were given, beside that address.

    Raises:
        AdmissionError: It doesn't.
    """
    found = _HOST.fullmatch(host)
    name = found[1].strip("[]").lower() if found else ""
    if name and (name in names or _is_local(name, local)):
        return
    raise AdmissionError(
        "This server doesn't answer under the host name in the address.",
        "Open the address that it printed, or start it with --name NAME.",
    )


def _is_local(name: str, local: str) -> bool:
    """True if a name is the address at which a connection came in."""
    address = _address(local)
    if name == "localhost":
        return address is not None and address.is_loopback
    return address is not None and _address(name) == address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def check_origin(origin: str, host: str) -> None:
    """See that the page which sent a request is ours.

    Args:
        origin: The header `Origin`.
        host: The header `Host`, checked.

    Raises:
        AdmissionError: It isn't.
    """
    try:
        split = urlsplit(origin)
    except ValueError:
        split = urlsplit("")
    if split.scheme not in ("http", "https") or split.netloc.lower() != host.lower():
        raise AdmissionError(
            "A page of another site asked for this, and only this server's own page may.",
            "Open the address that the server printed.",
        )

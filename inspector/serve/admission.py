"""Who may come in: tokens that are used up, cookies in their place, and the names that a request may call us by. Pure.

The page is opened by an address with a token in it. The first browser that asks with it gets a cookie, which no script
can read and no other site's page can send, and the token is used up: a history, a log or a photograph gives nothing.
A class's address is read off a board: its token lasts as long as the server, and the seats bound how many are in at
once. A cookie is a visitor, and carries its own proof: however many are asked for, none is kept here.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from engine.errors import EngineError

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_TOKEN_BYTES = 16
_COOKIE_BYTES = 24


class AdmissionError(EngineError):
    """A request that is refused, with what its sender reads."""


class Admissions:
    """The tokens that were given out, and the cookies of the browsers that came with them."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_COOKIE_BYTES)
        self._good: dict[str, bool] = {}
        """Whether each token still admits somebody."""
        self._lasting: set[str] = set()
        """Those that are not used up."""

    def issue(self, lasting: bool = False) -> str:
        """A new token.

        Args:
            lasting: Whether it admits any number of browsers; else the first.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._good[token] = True
        if lasting:
            self._lasting.add(token)
        return token

    def knows(self, cookie: str) -> bool:
        """Whether a browser was admitted before."""
        name, _, proof = cookie.partition(".")
        return hmac.compare_digest(proof.encode("utf-8", "replace"), self._proof(name).encode())

    def _proof(self, name: str) -> str:
        return hmac.digest(self._key, name.encode("utf-8", "replace"), "sha256").hex()

    def admits(self, token: str) -> bool:
        """Whether a token still admits a browser."""
        return self._good.get(token, False)

    def admit(self, token: str) -> str:
        """Use a token; returns the cookie of the browser that came with it.

        Raises:
            AdmissionError: There is none, it is no token of ours, or it admits nobody any more.
        """
        if not token:
            raise AdmissionError(
                "No token came with this request.", "Open the address that the server printed."
            )
        if token not in self._good:
            raise AdmissionError(
                "The token in this address is none of this server's.",
                "Open the address that it printed last.",
            )
        if not self._good[token]:
            raise AdmissionError(
                "This address was used already.",
                "Whoever runs the server gets a fresh one by pressing Enter there.",
            )
        self._good[token] = token in self._lasting
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
        "This server doesn't go by the name in the address.",
        "Open the address that it printed, or start it with --name NAME.",
    )


def _is_local(name: str, local: str) -> bool:
    """Whether a name is the address at which a connection came in."""
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

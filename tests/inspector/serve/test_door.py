"""Connections of those who were not let in: however many come and say nothing, a visitor gets in."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("textual_serve")

from engine.remote.lines import SECONDS, Complaints
from inspector.serve import door, server
from inspector.serve.door import AdmissionError, Admissions, check_host, check_origin
from tests.inspector.serve.served import eventually, serving

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def limited(descriptors: int, errors: Path, **environ: str) -> Iterator[str]:
    """`inspector serve` with so many file descriptors; gives its address."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-m", "inspector", "serve"]
    with errors.open("wb") as written:
        process = subprocess.Popen(
            command, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=written,
            preexec_fn=limit, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


def half_open(port: int, count: int, stack: ExitStack) -> None:
    """Connections that send half a request, and nothing more."""
    for _ in range(count):
        connection = stack.enter_context(socket.socket())
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port))
        connection.sendall(HALF)


@pytest.mark.parametrize(
    ("descriptors", "count"), [(256, 300), pytest.param(1024, 2000, marks=pytest.mark.slow)]
)
def test_half_requests_keep_nobody_out_and_are_few_lines(
    tmp_path: Path, descriptors: int, count: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip("this process may not open so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    errors = tmp_path / "errors"
    try:
        with ExitStack() as stack, limited(descriptors, errors, HOME=str(tmp_path)) as address:
            port = int(re.findall(r":(\d+)/", address)[0])
            half_open(port, count, stack)
            began = time.monotonic()
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert answer.status == 200
            took = time.monotonic() - began
            half_open(port, 20, stack)  # they may come again, and again
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(address, timeout=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    lines = errors.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 10, lines
    assert took < 2
    assert any("Connections closed" in line for line in lines)


async def test_who_asks_for_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.05)
    lines: list[str] = []

    async with serving(report=lines.append) as place:
        visitor = await place.visit()  # a session is no such connection
        silent = [socket.create_connection(("127.0.0.1", place.server.port)) for _ in range(3)]
        silent[0].sendall(HALF)
        for each in silent:
            each.setblocking(False)
        await eventually(lambda: all(map(ended, silent)))
        await visitor.send("stdin", "still")
        await visitor.until("still")
    assert sum("asked for nothing" in line for line in lines) == 1


def ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(100)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "sent", [b"rubbish\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
             b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n",
             b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)  # fmt: skip
async def test_what_is_no_request_is_no_traceback(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    async with serving(report=lines.append) as place:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", place.server.port)) as connection:
                connection.sendall(sent)
                connection.setblocking(False)
                await eventually(lambda connection=connection: answered(connection))  # type: ignore[misc]
        assert (await place.get("/"))[0] == 403
    assert (
        not caplog.records
    )  # without a handler Python writes them, with their tracebacks, to standard error
    assert len(lines) <= 1
    assert all("no valid HTTP" in line for line in lines)


def answered(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_room_is_made_by_those_who_have_most_and_were_not_let_in() -> None:
    class Transport:
        closed = False

        def is_closing(self) -> bool:
            return self.closed

        def abort(self) -> None:
            self.closed = True

    def left(*callers: door.Caller) -> list[bool]:
        made = door.Door(8, Complaints(lambda line: None))
        made.most = len(callers)
        transports = [Transport() for _ in callers]
        made._callers = dict(zip(transports, callers, strict=True))  # type: ignore[assignment]
        made._make_room()
        return [not transport.closed for transport in transports]

    other, crowd = door.Caller("a", 0.0), [door.Caller("b", 1.0), door.Caller("b", 2.0)]
    assert left(other, *crowd) == [True, False, True]
    crowd[0].admitted = True
    assert left(other, *crowd) == [True, True, False]


def test_a_server_keeps_descriptors_for_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, sessions, most in ((1024, 8, 128), (256, 8, 128), (256, 64, 24), (128, 64, 8), (-1, 64, 128)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit, limit))
        assert door.Door(sessions, Complaints(lambda line: None)).most == most


def test_complaints_are_a_line_a_minute() -> None:
    now, lines = [0.0], []
    complaints = Complaints(lines.append, lambda: now[0])
    for _ in range(1000):
        complaints.add("that asked for nothing")
    assert lines == ["Connections closed: 1 that asked for nothing."]
    now[0] = SECONDS
    complaints.tell()
    complaints.tell()
    assert lines[1:] == ["Connections closed: 999 that asked for nothing."]


# ---- who may come in -------------------------------------------------------------------------


def test_a_token_admits_once_and_its_cookie_stays() -> None:
    admissions = Admissions()
    token = admissions.issue()
    cookie = admissions.admit(token)
    assert admissions.knows(cookie)
    assert not admissions.knows(token)
    with pytest.raises(AdmissionError, match="used already"):
        admissions.admit(token)
    assert admissions.knows(cookie)


def test_a_token_for_a_class_is_not_used_up() -> None:
    admissions = Admissions()
    token = admissions.issue(lasting=True)
    assert len({admissions.admit(token) for _ in range(100)}) == 100


@pytest.mark.parametrize("cookie", ["", ".", "a.", "a.b", "é.é", "\udce9.\udce9", "." * 5000])
def test_a_cookie_that_was_made_elsewhere_is_none(cookie: str) -> None:
    ours, theirs = Admissions(), Admissions()
    assert not ours.knows(cookie)
    assert not ours.knows(theirs.admit(theirs.issue()))


@pytest.mark.parametrize("token", ["", "x" * 22, "é", "../", "None"])
def test_what_is_no_token_admits_nobody(token: str) -> None:
    admissions = Admissions()
    admissions.issue()
    with pytest.raises(AdmissionError):
        admissions.admit(token)
    assert not admissions.knows("")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost:9000", "127.0.0.1"),  # a tunnel has a port of its own
        ("LOCALHOST:9000", "::1"),
        ("[::1]:8000", "::1"),
        ("127.0.0.1:8000", "::ffff:127.0.0.1"),
        ("192.168.1.5:8000", "192.168.1.5"),
        ("class.local:8000", "192.168.1.5"),
    ],
)
def test_our_own_names(host: str, local: str) -> None:
    check_host(host, local, {"class.local"})


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("evil.example", "127.0.0.1"),
        ("evil.example:8000", "127.0.0.1"),
        ("127.0.0.1.evil.example:8000", "127.0.0.1"),
        ("localhost.evil.example", "127.0.0.1"),
        ("localhost:8000", "192.168.1.5"),
        ("192.168.1.6:8000", "192.168.1.5"),
        ("127.0.0.1:8000", "192.168.1.5"),
        ("127.0.0.1:8000:8000", "127.0.0.1"),
        ("127.0.0.1:8000, evil.example", "127.0.0.1"),
        ("127.0.0.1@evil.example", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("127.0.0.1:8000", ""),
        ("2130706433:8000", "127.0.0.1"),
    ],
)
def test_names_that_are_not_ours(host: str, local: str) -> None:
    with pytest.raises(AdmissionError, match="doesn't answer under"):
        check_host(host, local, {"class.local"})


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8000", "https://127.0.0.1:8000", "HTTP://127.0.0.1:8000"]
)
def test_our_own_page(origin: str) -> None:
    check_origin(origin, "127.0.0.1:8000")


@pytest.mark.parametrize(
    "origin",
    [
        "", "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8001", "http://localhost:8000",
        "file://127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", "http://evil.example/http://127.0.0.1:8000",
        "http://user@127.0.0.1:8000", "http://[", "chrome-extension://127.0.0.1:8000",
    ],
)  # fmt: skip
def test_pages_that_are_not_ours(origin: str) -> None:
    with pytest.raises(AdmissionError, match="another site"):
        check_origin(origin, "127.0.0.1:8000")

"""Whatever comes through the socket, at either end: nothing is executed, nothing hangs, and the engine lives on."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from queue import SimpleQueue

import pytest

from engine import protocol, wire
from engine.protocol import Record
from engine.remote import CLIENT_IDS, journal, server
from engine.remote.client import Connection, RemoteEngine
from engine.remote.journal import MEMORY
from engine.remote.lines import line_of
from engine.settings import LoadSettings
from engine.thread import EngineThread
from tests.engine.remote.far import PROGRAM, TOKEN, Far, Host, hosted, settled
from tests.engine.test_commands import SAMPLES
from tests.engine.unthreaded import kinds
from tests.system import descriptors, peak

HELLO = line_of(
    hello=1, token=TOKEN, wire=wire.VERSION, program=PROGRAM, engine="", client=0, **{"from": "end"}
)


@pytest.fixture
def host() -> Iterator[Host]:
    with hosted() as host:
        yield host


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[protocol.Command]:
    """An engine that only keeps what it is sent: what reaches it is looked at, and carried out nowhere."""
    kept: list[protocol.Command] = []
    monkeypatch.setattr(EngineThread, "start", lambda self: None)
    monkeypatch.setattr(EngineThread, "send", lambda self, command: kept.append(command))
    return kept


def damaged(line: bytes, luck: random.Random) -> bytes:
    """A line as it should not be."""
    at, end = sorted(luck.randrange(len(line) + 1) for _ in range(2))
    match luck.randrange(7):
        case 0:
            return luck.randbytes(luck.randrange(80))
        case 1:
            return line[:at] + luck.randbytes(luck.randrange(1, 4)) + line[at:]
        case 2:
            return line[:at] + line[end:]
        case 3:
            return line[:at]
        case 4:
            return line.replace(b'"', luck.choice([b"", b"'", b'\\"']), luck.randrange(1, 3))
        case 5:
            return line + line
        case _:
            return (
                line[:at]
                + luck.choice([b"[" * 2000, b"9" * 5000, b"null", b"\xff", b"\x00", b"\n"])
                + line[at:]
            )


def talked(host: Host, sent: bytes) -> bytes:
    """What the engine answers to some bytes, after which nothing comes."""
    with host.address.connect() as stranger:
        stranger.settimeout(20)
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while came := stranger.recv(2**16):
                answer += came
        except ConnectionResetError:
            pass
        return answer


@pytest.mark.parametrize("rounds", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_an_engine_outlives_ten_thousand_damaged_lines(
    host: Host, taken: list[protocol.Command], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WRONG_SECONDS", 0.0)
    luck = random.Random(19)
    before = peak()
    good = [wire.encode(sample) + b"\n" for sample in SAMPLES]
    for n in range(rounds):
        answer = talked(host, damaged(HELLO, luck))
        assert not answer or answer.startswith((b'{"refused":', b'{"welcome":')), n
        answer = talked(host, HELLO + damaged(luck.choice(good), luck))
        assert answer.startswith((b'{"welcome":', b'{"refused":"Another client')), n
    assert peak() - before < 64 * 2**20
    assert not [command for command in taken if command.id < CLIENT_IDS]  # no id of another client passes
    assert talked(host, HELLO).startswith(b'{"welcome":')


@pytest.mark.parametrize("rounds", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_client_outlives_an_engine_that_sends_damaged_lines(rounds: int) -> None:
    luck = random.Random(20)
    welcome = line_of(welcome=1, engine="e", client=1, number=0, next=0, outstanding=[], model=False)
    lines = [
        wire.encode(record) + b"\n"
        for record in (protocol.Ended("Step"), protocol.Loading("import", 0, 0, "mlx"))
    ]
    lines += [
        line_of(bye="so"),
        line_of(pong=5),
        line_of(refused="no", final=False),
        line_of(refused="no", final=True),
    ]
    for n in range(rounds):
        sent = damaged(welcome, luck) if n % 2 else welcome + damaged(luck.choice(lines), luck)
        assert heard(sent) in ("gone", "away"), n


def heard(sent: bytes) -> str:
    """The stage in which a client is left by an engine that sends some bytes and goes."""
    stages: SimpleQueue[Connection] = SimpleQueue()
    got: list[Record] = []
    engine = RemoteEngine(got.append, Pipe(sent), PROGRAM, stages.put)
    engine.start()
    while (stage := stages.get(timeout=20).stage) in ("starting", "connected"):
        pass
    assert engine.close(5)
    return stage


class Pipe:
    """A link whose other end sends some bytes, once."""

    where, token, far, returns = "there", TOKEN, True, True

    def __init__(self, sent: bytes) -> None:
        self.sent = sent

    def open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.sendall(self.sent)
        theirs.shutdown(socket.SHUT_WR)
        threading.Thread(target=swallow, args=(theirs,), daemon=True).start()
        return ours

    def ending(self, why: str) -> str:
        return why

    def close(self, timeout: float) -> bool:
        return True


def swallow(connection: socket.socket) -> None:
    with connection:
        while connection.recv(2**16):
            pass


# ---- by name ----------------------------------------------------------------------------------


def own(command: protocol.Command) -> bytes:
    """A command of client 1 as a line."""
    data = json.loads(wire.encode(command))
    data["fields"]["id"] += CLIENT_IDS
    return json.dumps(data).encode() + b"\n"


STEP = protocol.TakeStep()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"rubbish\n", "A message is not JSON"),
        (own(STEP)[:-1] + own(STEP), "A message has something after its end"),
        (wire.encode(STEP) + b"\n", "A command has an id that is not the client's."),
        (own(STEP) + own(STEP), "Two commands have the same id."),
        (b"".join(own(protocol.TakeStep()) for _ in range(300)), "More than 256 commands wait."),
        (wire.encode(protocol.Ended("Step")) + b"\n", "An engine takes commands, not records."),
        (b'{"ping":"x"}\n', "A ping has no number."),
        (b"x" * 3000, "A line is longer than 2,000 bytes."),
    ],
)
def test_who_breaks_the_rules_is_sent_away_with_one_reason(
    host: Host, taken: list[protocol.Command], sent: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal.wire, "LIMIT", 2000)
    with host.address.connect() as stranger:
        stranger.settimeout(20)
        stranger.sendall(HELLO + sent)
        said = stranger.makefile("rb").read().splitlines()
    welcome, bye = map(json.loads, said)
    assert "welcome" in welcome
    assert bye["bye"].startswith(why)
    assert talked(host, HELLO).startswith(b'{"welcome":')


def test_half_a_line_is_no_command(host: Host, taken: list[protocol.Command]) -> None:
    assert talked(host, HELLO + own(STEP)[:-1]).startswith(b'{"welcome":')
    assert not taken


# ---- slow, silent and many --------------------------------------------------------------------


def test_a_client_that_reads_nothing_holds_up_neither_engine_nor_memory(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SILENCE_SECONDS", 2.0)
    with host.address.connect() as stranger:
        stranger.sendall(HELLO)
        settled(lambda: host.server._visitor is not None)
        before = peak()
        for _ in range(3 * MEMORY // 2**20):
            host.server._emit(protocol.Failure("Step", "x" * 2**20, ""))
        assert peak() - before < 2 * MEMORY
        settled(lambda: host.server._visitor is None)  # sent away, as it took nothing for so long
    far = Far(host.link())
    assert kinds(far.do(protocol.TakeStep())) == ["Failure", "Ended"]  # there is no model, and it says so
    far.close()


def test_sixty_silent_connections_keep_no_client_out(host: Host) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(host.address.connect()) for _ in range(60)]
        for _ in range(3):
            assert talked(host, HELLO).startswith(b'{"welcome":')
        for each in silent[:40]:  # those that came first are closed, long before their time is over
            each.settimeout(20)
            assert each.recv(100) == b""
        settled(lambda: threading.active_count() < 40)


def test_a_flood_of_wrong_tokens_is_one_line(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRONG_SECONDS", 0.0)
    lines: list[str] = []
    monkeypatch.setattr(host.server._complaints, "_tell", lines.append)
    for _ in range(30):
        assert talked(host, b'{"hello":1,"token":"wrong"}\n').startswith(b'{"refused":')
    assert lines == [
        "Connections closed: 1 refused: This is an engine of mlx-inspector, and the token is wrong or missing."
    ]


def test_a_client_of_the_same_version_and_another_source_is_told_so(host: Host) -> None:
    said = talked(host, HELLO.replace(f'"wire":{wire.VERSION}'.encode(), b'"wire":999'))
    assert b"come from different sources" in said
    assert b"of version" not in said


def test_two_hundred_clients_leave_no_descriptors_and_no_threads(host: Host) -> None:
    far = Far(host.link())
    far.do(protocol.Load(LoadSettings()))
    far.close()

    def there() -> tuple[int, int]:
        return descriptors(), threading.active_count()

    settled(lambda: host.server._visitor is None)
    before = there()
    for n in range(200):
        far = Far(host.link(), joins=bool(n % 2))
        if n % 3:
            far.send(protocol.TakeStep())
        far.close()
    settled(lambda: all(now <= once for now, once in zip(there(), before, strict=True)))

"""`inspector record` as it is used: in front of a server that runs or that it starts, ended in every way."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from inspector.cli import main as cli
from inspector.cli.subcommands.record import on_port, port_of
from inspector.served.exchange import Exchange, read_exchanges
from tests.inspector.cli.conftest import complaint
from tests.inspector.cli.scripted import Complaint
from tests.inspector.served.recorded import Upstream, received, reply, request
from tests.inspector.served.traffic import KEY, Sent, requests, send, send_all
from tests.system import alive, children

__all__ = ["complaint"]
POCKET = str(Path(__file__).parents[3] / "engine" / "pocket")
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        if self.path == "/die":
            sys.stdout.flush()
            import os; os._exit(3)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *given):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class Process:
    """A recorder in a process."""

    def __init__(self, file: Path, *flags: str) -> None:
        self.file = file
        command = [sys.executable, "-m", "inspector", "record", "--listen", "0", "-o", str(file), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.errors = self.process.stderr
        self.said: list[str] = []
        found = re.search(r"clients at http://127\.0\.0\.1:(\d+);", self.until("Recording "))
        assert found is not None
        self.port = int(found[1])

    def until(self, beginning: str) -> str:
        """The next line that begins so."""
        for line in self.errors:
            self.said.append(line)
            if line.lstrip().startswith(beginning):
                return line
        raise AssertionError(self.said)

    def end(self, number: int) -> int:
        """Its exit status after a signal; what it said since is in `said`."""
        self.process.send_signal(number)
        self.said += self.errors.readlines()
        self.errors.close()
        return self.process.wait(60)

    def exchanges(self) -> list[Exchange]:
        return read_exchanges(self.file.read_bytes().splitlines(True))


@contextmanager
def process(file: Path, *flags: str) -> Iterator[Process]:
    made = Process(file, *flags)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end(signal.SIGTERM)


def post(port: int, body: bytes = b"{}", path: str = "/v1") -> bytes:
    """The body of the answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse().read()
    connection.close()
    return answer


@pytest.mark.wide(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_too_and_sums_up(number: int, tmp_path: Path) -> None:
    server = [sys.executable, "-c", SERVER, "--port=1", "--host", "0.0.0.0"]
    with process(tmp_path / "r.jsonl", "--", *server) as recorder:
        assert post(recorder.port, b'{"a": 1}', "/v1?key=12345678") == b'{"a": 1}'
        assert post(recorder.port, b"[2]") == b"[2]"
        (child,) = children(recorder.process.pid)
        recorder.until("2  POST /v1  200  ")
        assert recorder.end(number) == 128 + number
    assert not alive(child)
    assert re.fullmatch(r"   1  POST /v1\?key=\(not stored\)  200  \d+ ms\n", recorder.said[-3])
    last = recorder.said[-1]
    assert last == f"2 exchanges, in {recorder.file}. Open it: inspector open {recorder.file}\n"
    assert recorder.file.stat().st_mode & 0o777 == 0o600
    assert [each.reply and each.reply.body for each in recorder.exchanges()] == [{"a": 1}, [2]]
    head = json.loads(recorder.file.read_bytes().splitlines()[0])
    assert (head["recorder"], head["program"].split()[0]) == (1, "mlx-inspector")


def test_a_server_that_dies_is_named_with_its_status(tmp_path: Path) -> None:
    with process(tmp_path / "r.jsonl", "--quiet", "--", sys.executable, "-c", SERVER) as recorder:
        post(recorder.port)
        with pytest.raises((http.client.HTTPException, OSError)):
            post(recorder.port, path="/die")
        recorder.said += recorder.errors.readlines()
        assert recorder.process.wait(60) == 2
    summary, error = recorder.said[-2:]
    assert summary.startswith("2 exchanges, in ")
    assert f"inspector: error: {sys.executable} ended with status 3. Its output is above." in error
    assert recorder.exchanges()[1].reply is None


def test_a_recorder_that_is_killed_leaves_every_request(tmp_path: Path) -> None:
    """And every reply that was over."""

    def answer(client: socket.socket) -> None:
        body = received(client, len(request(b"0")))[-1:]
        client.sendall(reply(b'data: {"a": 1}\n\n', kind="text/event-stream"))
        if body == b"1":
            client.sendall(b"data: [DONE]\n\n")
        else:
            over.wait(60)

    upstream, over = Upstream(answer), threading.Event()
    with process(tmp_path / "r.jsonl", "--upstream", f"http://127.0.0.1:{upstream.port}") as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            client.sendall(request(b"1"))
            assert received(client).endswith(b"[DONE]\n\n")
        recorder.until("1  POST")
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            client.sendall(request(b"2"))
            assert client.recv(1000)
            while len(recorder.exchanges()) < 2:
                threading.Event().wait(0.01)
            assert recorder.end(signal.SIGKILL) == -signal.SIGKILL
    over.set()
    upstream.close()
    one, other = recorder.exchanges()
    assert one.reply is not None
    assert [event for _, event in one.reply.events] == [{"a": 1}, "[DONE]"]
    assert (other.body, other.reply) == (2, None)


@pytest.mark.skipif(
    sys.platform != "linux", reason="the most memory of a process that runs is told by Linux alone"
)
def test_a_reply_larger_than_memory_would_be_passes_whole(tmp_path: Path) -> None:
    block, count = os.urandom(2**20).hex().encode(), 60
    head = reply(b"", f"Content-Length: {len(block) * count}")

    def answer(client: socket.socket) -> None:
        received(client, len(request()))
        client.sendall(head)
        for _ in range(count):
            client.sendall(block)

    upstream = Upstream(answer)
    with process(tmp_path / "r.jsonl", "--upstream", f"http://127.0.0.1:{upstream.port}") as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            client.sendall(request())
            found = sha256()
            assert received(client, len(head)) == head
            while data := client.recv(2**16):
                found.update(data)
        wanted = sha256()
        for _ in range(count):
            wanted.update(block)
        assert found.digest() == wanted.digest()
        while not recorder.exchanges() or recorder.exchanges()[0].reply is None:
            threading.Event().wait(0.05)
        told = Path(f"/proc/{recorder.process.pid}/status").read_text()
    upstream.close()
    peak = next(int(line.split()[1]) for line in told.splitlines() if line.startswith("VmHWM"))
    assert peak * 1024 < len(block) * count
    assert recorder.file.stat().st_size < 9 * 2**20
    (found_reply,) = [each.reply for each in recorder.exchanges()]
    assert found_reply is not None
    assert found_reply.note.endswith("recorded are the first 8,388,608 of 125,829,120 bytes")


# ---- what is refused ---------------------------------------------------------------------------


def test_what_can_t_be_recorded_is_refused(tmp_path: Path, complaint: Complaint) -> None:
    said = complaint("record")
    assert said.startswith(
        "Give the command of a server after --, or the --upstream URL of one that is running."
    )
    assert "behind https can't be recorded" in (
        said := complaint("record", "--upstream", "https://api.openai.com")
    )
    assert "ssh -L 9000:127.0.0.1:8080 HOST" in said
    assert "takes only host and port" in complaint("record", "--upstream", "http://127.0.0.1:1/v1")
    assert "takes only host and port" in complaint("record", "--upstream", "http://me:secret@127.0.0.1:1")
    assert "is not the URL of a server" in complaint("record", "--upstream", "127.0.0.1:80")
    assert "is not the URL of a server" in complaint("record", "--upstream", "http://127.0.0.1:808080")
    same = complaint("record", "--upstream", "http://localhost:9999", "--listen", "9999")
    assert same == "The server's own port is 9999. Choose another for clients: --listen PORT."
    assert "--max-size must be 1 MiB or more" in complaint("record", "--max-size", "0", "--", "x")
    assert "Port 99999 can't be opened" in complaint("record", "--listen", "99999", "--", "x")
    assert complaint("record", "--listen", "0", "--", "/no/such").startswith("There is no program /no/such.")


def test_a_port_that_is_taken_is_said_before_a_server_is_started(complaint: Complaint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = complaint("record", "--", "/no/such", "--port", str(port))
    assert said == f"Port {port} is taken: another program listens there. Choose another: --listen PORT."


@pytest.mark.parametrize("kind", ["file", "link", "lost link", "directory", "pipe", "nowhere"])
def test_a_file_that_is_there_is_left_alone(kind: str, tmp_path: Path, complaint: Complaint) -> None:
    file, target = tmp_path / "r.jsonl", tmp_path / "target"
    match kind:
        case "file":
            file.write_text("mine")
        case "link" | "lost link":
            if kind == "link":
                target.write_text("mine")
            file.symlink_to(target)
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case _:
            file = tmp_path / "none" / "r.jsonl"
    before = sorted(tmp_path.iterdir())
    flags = ["--listen", "0", "-o", str(file)]
    said = complaint("record", *flags, "--upstream", "http://127.0.0.1:1")
    assert said.count(".") >= 1
    assert sorted(tmp_path.iterdir()) == before
    if target.exists():
        assert target.read_text() == "mine"


def test_a_server_that_never_listens_is_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.jsonl"
    assert cli.main(["record", "--listen", "0", "-o", str(file), "--", "false"]) == 2
    said = capsys.readouterr().err
    assert "There was no request, so no file was written." in said
    assert "false ended with status 1." in said
    assert not file.exists()


@pytest.mark.parametrize(
    ("command", "wanted", "port"),
    [
        (["s"], ["s", "--port", "7"], None),
        (["s", "--port", "80", "-x"], ["s", "-x", "--port", "7"], 80),
        (
            ["s", "--port=80", "--host=0.0.0.0", "--port", "90"],
            ["s", "--host", "127.0.0.1", "--port", "7"],
            90,
        ),
        (["s", "--host", "::", "--port"], ["s", "--host", "127.0.0.1", "--port", "7"], None),
    ],
)
def test_a_server_gets_a_port_of_its_own(command: list[str], wanted: list[str], port: int | None) -> None:
    assert (on_port(command, 7), port_of(command)) == (wanted, port)


# ---- mlx_lm.server -----------------------------------------------------------------------------


def events_of(body: bytes) -> list[Any]:
    """The values of a stream as a client reads it."""
    blocks = [each for each in body.decode().split("\n\n") if each]
    texts = [each.removeprefix("data: ") for each in blocks]
    return [text if text[0] in ":[" else json.loads(text) for text in texts]


def same(exchange: Exchange, sent: Sent, body: bytes) -> bool:
    """Whether an exchange is what a client has sent and got."""
    if exchange.body != sent.body or exchange.path != sent.path or exchange.reply is None:
        return False
    if exchange.reply.events:
        return [event for _, event in exchange.reply.events] == events_of(body)
    return bool(exchange.reply.body == json.loads(body))


def mlx_server(file: Path) -> Process:
    return Process(file, "--quiet", "--", "mlx_lm.server", "--model", POCKET, "--log-level", "ERROR")


@pytest.mark.slow
def test_mlx_lm_server_is_recorded(tmp_path: Path) -> None:
    """Chats and completions, streamed and not, one after another and at once."""
    sent = list(requests(8))
    recorder = mlx_server(tmp_path / "r.jsonl")
    try:
        bodies = send_all(recorder.port, sent[:4]) + send_all(recorder.port, sent[4:], at_once=4)
    finally:
        assert recorder.end(signal.SIGTERM) == 128 + signal.SIGTERM
    found = recorder.exchanges()
    assert len(found) == len(sent)
    assert all(same(*each) for each in zip(found[:4], sent[:4], bodies[:4], strict=True))
    for one, body in zip(sent[4:], bodies[4:], strict=True):
        assert any(same(exchange, one, body) for exchange in found[4:])
    assert not any(each.reply is None or each.reply.cut or each.note or each.reply.note for each in found)
    assert KEY not in recorder.file.read_text(encoding="utf-8")


class Tee(Upstream):
    """Between recorder and server: keeps what the server sent on each connection."""

    def __init__(self, port: int) -> None:
        self.replies: list[bytes] = []
        self._to = port
        super().__init__(self._pass)

    def _pass(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._to)) as server:
            asking = threading.Thread(target=self._forward, args=(client, server))
            asking.start()
            blocks = []
            while data := server.recv(2**16):
                blocks.append(data)
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            self.replies.append(b"".join(blocks))
            asking.join()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(2**16):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def raw(port: int, sent: Sent) -> bytes:
    """All that comes back for a request, head and body."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request(json.dumps(sent.body).encode(), sent.path, "Connection: close"))
        return received(client)


@pytest.mark.slow
def test_a_hundred_requests_pass_as_they_are_four_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server = mlx_server(tmp_path / "server.jsonl")
    tee = Tee(server.port)
    try:
        with process(tmp_path / "r.jsonl", "--upstream", f"http://127.0.0.1:{tee.port}") as recorder:
            with ThreadPoolExecutor(4) as pool:
                got = list(pool.map(lambda sent: raw(recorder.port, sent), requests()))
            recorder.end(signal.SIGTERM)
    finally:
        server.end(signal.SIGTERM)
        tee.close()
    assert Counter(map(sha256_of, got)) == Counter(map(sha256_of, tee.replies))
    assert len(recorder.exchanges()) == len(got) == 100


def sha256_of(data: bytes) -> bytes:
    return sha256(data).digest()


def plain(body: bytes) -> list[Any]:
    """What a reply says, without what differs from run to run: its id, its time, how far a prompt was meanwhile."""
    values = events_of(body) if body.startswith((b"data:", b":")) else [json.loads(body)]
    kept = [value for value in values if not (isinstance(value, str) and value.startswith(":"))]
    return [
        {name: each for name, each in value.items() if name not in ("id", "created")}
        if isinstance(value, dict)
        else value
        for value in kept
    ]


@pytest.mark.slow
def test_a_hundred_requests_are_answered_as_without_the_recorder(tmp_path: Path) -> None:
    """One after another, each server begun anew: the seed is its process's own, and what it has cached, too."""
    sent = list(requests())
    recorder = mlx_server(tmp_path / "r.jsonl")
    try:
        recorded = [plain(send(recorder.port, each)) for each in sent]
    finally:
        recorder.end(signal.SIGTERM)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "mlx_lm.server"), "--model", POCKET, "--port", str(port)]
    with subprocess.Popen([*command, "--log-level", "ERROR"], stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert server.poll() is None
                    threading.Event().wait(0.05)
            direct = [plain(send(port, each)) for each in sent]
        finally:
            server.kill()
    assert recorded == direct

"""What `inspector record` adds to the way of a streamed event, with and without it in turns.

    python -m tests.benchmarks.recorder [--count ROUNDS]

A server in a process of its own sends events of 250 bytes that carry the time at which they were sent, as fast as a
small model speaks: one every 5 ms, to one client and to four at once.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from tests.benchmarks.vocabularies import Asked, Figures, by_command

ROUNDS, EVENTS, GAP, AT_ONCE = 20, 100, 0.005, {"one": 1, "four": 4}
SERVER = """
import json, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def answer(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while b"\\r\\n\\r\\n" not in client.recv(65536):
        pass
    client.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n")
    for number in range(int(sys.argv[1])):
        time.sleep(float(sys.argv[2]))
        event = {"choices": [{"delta": {"content": " word"}}], "padding": "x" * 150, "sent": time.perf_counter()}
        client.sendall(b"data: " + json.dumps(event).encode() + b"\\n\\n")
    client.close()
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""


def delays(port: int) -> list[float]:
    """Seconds from each event's sending to its arrival, in one stream."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /v1 HTTP/1.1\r\nHost: here\r\n\r\n")
        found: list[float] = []
        rest = b""
        while data := client.recv(2**16):
            now = time.perf_counter()
            *whole, rest = (rest + data).split(b"\n\n")
            found += [now - float(sent) for each in whole for sent in re.findall(rb'"sent": ([\d.]+)', each)]
    return found


def together(port: int, count: int) -> list[float]:
    """The delays of several streams at once."""
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.extend(delays(port))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def recorder(upstream: int, file: Path) -> tuple[subprocess.Popen[str], int]:
    """A recorder in front of a server, and its port."""
    command = [
        sys.executable,
        "-m",
        "inspector",
        "record",
        "--upstream",
        f"http://127.0.0.1:{upstream}",
        "--listen",
        "0",
    ]
    made = subprocess.Popen([*command, "--quiet", "-o", str(file)], stderr=subprocess.PIPE, text=True)
    assert made.stderr is not None
    found = re.search(r"clients at http://127.0.0.1:(\d+)", made.stderr.readline())
    assert found is not None
    return made, int(found[1])


def told(label: str, way: str, found: list[float]) -> Iterator[tuple[str, float]]:
    """Print what was found, and its figures by name."""
    middle, late = median(found) * 1e6, quantiles(found, n=20)[-1] * 1e6
    print(f"{label}, {way}: median {middle:.0f} us, p95 {late:.0f} us of {len(found):,} events")
    yield f"{label} {way} us", middle
    yield f"{label} {way} p95 us", late


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(EVENTS), str(GAP)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    plain = int(server.stdout.readline())
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "recorded.jsonl"
        made, recorded = recorder(plain, file)
        for label, count in AT_ONCE.items():
            ways: dict[str, list[float]] = {"without": [], "with": []}
            for _ in range(asked.times(ROUNDS)):
                ways["without"] += together(plain, count)
                ways["with"] += together(recorded, count)
            for way, found in ways.items():
                figures |= dict(told(label, way, found))
        made.terminate()
        made.wait()
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        kept = sum(len(line.get("events", ())) for line in lines)
        print(f"{kept:,} events are in the recording of {file.stat().st_size:,} bytes")
    server.terminate()
    server.wait()
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)

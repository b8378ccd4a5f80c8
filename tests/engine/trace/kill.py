"""Sessions that are killed while they are journalled: `python -m tests.engine.trace.kill DIRECTORY COUNT [SEED]`.

Each session is a forked process, killed with SIGKILL after a random time; then its file is resumed and gone on with.
Prints a line of JSON for each: seconds until the kill, records handed over, records found, bytes torn off, and how old
the oldest record was that is lost.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from engine.protocol import Marked
from engine.trace import Journal, load
from tests.engine.trace.made_records import session
from tests.inspector import fakes

PROGRAM = "test 1"
PATTERN = session(40)


def told(index: int) -> Any:
    """The record that a session hands over: what a short session tells, and then steps without end."""
    if index < len(PATTERN):
        return PATTERN[index]
    return Marked(1, note=f"note {index}" * (index % 50))


def record(path: Path, pipe: int) -> None:
    """Journal until killed, telling through a pipe when each record was handed over."""
    journal = Journal.create(path, PROGRAM)
    for index in range(10**6):
        journal.write(told(index))
        os.write(pipe, struct.pack("<d", time.monotonic()))
        if index % 3 == 0:
            time.sleep(0.001)


def killed(path: Path, seconds: float) -> tuple[float, list[float]]:
    """Run a session and kill it; returns when, and when each record was handed over."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        record(path, writing)
        os._exit(0)
    os.close(writing)
    time.sleep(seconds)
    at = time.monotonic()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    return at, list(struct.unpack(f"<{len(data) // 8}d", data[: len(data) // 8 * 8]))


def resumed(path: Path) -> tuple[int, int]:
    """Go on with a file: records found, and bytes torn off. What was found must be what was told."""
    entries, reader, journal = Journal.resume(path, PROGRAM)
    assert [entry.value for entry in entries] == [told(index) for index in range(len(entries))]
    journal.write(Marked(1, caption="back"))
    journal.close()
    again = load(path)
    assert [entry.value for entry in again.entries] == [
        *(e.value for e in entries),
        Marked(1, caption="back"),
    ]
    assert (again.torn, reader.problems) == (0, [])
    return len(entries), reader.torn


def main(directory: str, count: str, seed: str = "0") -> None:
    """Kill so many sessions."""
    chance = random.Random(int(seed))
    fakes.token_id("warm")
    for number in range(int(count)):
        path = Path(directory) / f"{number}.trace"
        seconds = 1.2 + chance.random() / 2 if number % 10 == 9 else chance.random() * 0.25
        at, times = killed(path, seconds)
        found, torn = resumed(path) if path.exists() else (0, 0)
        lost = round(at - times[found], 4) if found < len(times) else 0.0
        print(
            json.dumps(
                {"seconds": seconds, "told": len(times), "found": found, "torn": torn, "lost_s": lost}
            ),
            flush=True,
        )
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

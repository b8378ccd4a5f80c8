"""Sessions that are killed while they are journaled: `python -m tests.engine.recording.kill DIRECTORY COUNT`.

Each is a forked process, killed with SIGKILL after a random time; then its file is resumed and continued. Prints for
each how many records were handed over, how many were found, and how many seconds old the oldest lost one was.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from engine.protocol import Marked
from engine.recording import Entry, Journal, load
from tests.engine.recording.made_records import session
from tests.engine.recording.resumed import resumed

PATTERN = session(40)
BACK = Marked(1, caption="back")


def handed(index: int) -> Any:
    """The record that a session hands over: those of a short session, and then marks without end."""
    return PATTERN[index] if index < len(PATTERN) else Marked(1, note=f"note {index}" * (index % 50))


def record(path: Path, pipe: int) -> None:
    """Journal until killed; writes the time of each record to a pipe."""
    journal = Journal.create(path, "test 1")
    for index in range(10**6):
        journal.write(Entry(handed(index)))
        os.write(pipe, struct.pack("<d", time.monotonic()))
        if index % 3 == 0:
            time.sleep(0.001)
    os._exit(0)


def killed(path: Path, seconds: float) -> tuple[int, int, float]:
    """Run a session, kill it and continue its file: what was found must be what was handed over, whole."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        record(path, writing)
    os.close(writing)
    time.sleep(seconds)
    at = time.monotonic()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        times = [each for (each,) in struct.iter_unpack("<d", pipe.read())]
    if not path.exists():
        return len(times), 0, 0.0
    size = path.stat().st_size
    entries, reader, journal = resumed(path, "test 1")
    journal.write(Entry(BACK))
    journal.close()
    found = len(entries)
    assert [entry.value for entry in load(path).entries] == [*map(handed, range(found)), BACK]
    assert reader.complete + reader.torn == size
    return len(times), found, at - times[found] if found < len(times) else 0.0


if __name__ == "__main__":
    chance = random.Random(1)
    for number in range(int(sys.argv[2])):
        seconds = 1.5 if number % 10 == 9 else chance.random() * 0.25
        print(*killed(Path(sys.argv[1]) / f"{number}.trace", seconds), flush=True)

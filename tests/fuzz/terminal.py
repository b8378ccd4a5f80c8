"""The program as a user starts it, on a terminal of its own: what is sent are a terminal's bytes."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

from tests.fuzz.actions import PROBE, Action, Scenario
from tests.fuzz.faults import Fault, in_text
from tests.fuzz.sandbox import crash_log, environment

BOUND = 60.0
"""Seconds in which the program must answer, on whatever machine."""
QUIET, PATIENCE = 0.03, 0.4
"""Seconds without output after which everything is taken to be painted, and for which that is waited for at most."""
AGAIN = 10.0
"""Seconds for the help to come, before it is asked for once more."""
APART = 0.15
"""Seconds after an escape, so that it is no part of a sequence: the toolkit waits 0.1."""
HELP = b"a word of what you want to do"
"""What the help on keys says, and no other screen."""
FAILED = b"FAILED"
"""In the header where no model could be loaded; the status is 2 then."""
LEFT = b"\x1b[?1049l"
"""Leaves the alternate screen."""


class TerminalHost:
    """Drives the program by what a terminal sends, and reads what it paints.

    Args:
        folder: The sandbox.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.visits: Counter[str] = Counter()

    # ---- a session --------------------------------------------------------------------------

    def start(self, scenario: Scenario) -> None:
        self._leader, self._follower = pty.openpty()
        self._size(*scenario.size)
        self._before = termios.tcgetattr(self._follower)
        self._seen, self._painted, self._resident = bytearray(), time.monotonic(), 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "inspector", *self._arguments(scenario)],
            stdin=self._follower, stdout=self._follower, stderr=self._follower, cwd=self._folder / "work",
            env={**environment(self._folder), "PYTHONFAULTHANDLER": "1"}, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()
        self._until(lambda: b"\x1b[?1049h" in self._seen or self.over)

    def _arguments(self, scenario: Scenario) -> list[str]:
        if scenario.kind == "replay":
            return ["replay"]
        model = {"failed": "no-such-model"}.get(scenario.kind, "pocket")
        given = ["--model", model, "--temp", str(scenario.temp), "--max-tokens", "60"]
        given += [] if scenario.chat else ["--ignore-chat-template"]
        given += [] if scenario.save else ["--no-save"]
        given += ["--no-kv-cache"] if scenario.no_kv_cache else []
        return given + ([] if scenario.kind == "empty" else ["--prompt", scenario.prompt])

    def _size(self, columns: int, rows: int) -> None:
        ioctl(self._follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read_on(self) -> None:
        while not self.over:
            self._read(0.2)

    def _read(self, seconds: float) -> bool:
        """Keep what is painted within some time; returns whether anything was."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return False
        self._seen += os.read(self._leader, 1 << 16)
        self._painted = time.monotonic()
        return True

    # ---- actions ----------------------------------------------------------------------------

    def do(self, action: Action) -> Fault | None:
        self.visits[action.kind] += 1
        match action.kind:
            case "settle" | "records":
                end = time.monotonic() + PATIENCE
                self._until(lambda: time.monotonic() > min(end, self._painted + QUIET))
            case "resize":
                self._size(*action.values)
                self._signal_size()
            case _:
                return self._send(action)
        return None

    def _signal_size(self) -> None:
        """The terminal is not the session's controlling one, so the system tells nobody."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGWINCH)

    def _send(self, action: Action) -> Fault | None:
        sent = in_bytes(action.sent)
        os.set_blocking(self._leader, False)
        end = time.monotonic() + BOUND
        while sent and not self.over:
            try:
                sent = sent[os.write(self._leader, sent[:1024]) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    return self._stuck("nothing is read from the terminal")
                time.sleep(0.005)
        if action.sent == "\x1b":
            time.sleep(APART)
        return None

    def _until(self, condition: Callable[[], bool], seconds: float = BOUND) -> bool:
        """Wait for something; returns whether it came in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    @property
    def lost(self) -> bool:
        return False

    def _stuck(self, signature: str) -> Fault:
        """A fault of a program that answers no more, with its signals as the system has them and what each thread does.

        That ends it: Python tells where its threads are on the way out.
        """
        painted, signals, before = self._tail, self._signals(), len(self._seen)
        self._process.send_signal(signal.SIGABRT)
        self._until(lambda: self.over)
        self._until(lambda: time.monotonic() > self._painted + 1)  # the rest of what it wrote
        threads = self._seen[before:].decode("utf-8", "replace")
        return Fault(signature, f"{painted}\n{signals}\n{threads}")

    def _signals(self) -> str:
        """Which signals are pending, blocked, ignored and caught, where the system tells that in a file."""
        status = Path(f"/proc/{self._process.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return "\n".join(line for line in lines if line.startswith(("Sig", "Shd")))

    @property
    def _tail(self) -> str:
        return self._seen[-20000:].decode("utf-8", "replace")

    # ---- what came of it --------------------------------------------------------------------

    def probe(self) -> Fault | None:
        for columns, rows in ((100, 35), (120, 40)):
            painted, end = self._painted, time.monotonic() + BOUND
            while not (self.over or self._painted > painted):
                if time.monotonic() > end:
                    return self._stuck("a new size paints nothing")
                # what is painted late passes for the first size; the program then reads the second one twice
                for size in ((columns - 1, rows), (columns, rows)):
                    self._size(*size)
                    self._signal_size()
                    self._until(lambda painted=painted: self.over or self._painted > painted, AGAIN / 10)
        before, end = len(self._seen), time.monotonic() + BOUND
        while not (self.over or self._seen.find(HELP, before) >= 0):
            if time.monotonic() > end:
                return self._stuck("the help key opens no help")
            for action in (*PROBE, Action("key", ("question_mark",))):
                self._send(action)
            # a busy program reads an escape together with the key after it, as one key: then once more
            self._until(lambda: self.over or self._seen.find(HELP, before) >= 0, AGAIN)
        self._send(Action("key", ("escape",)))
        self._resident = self._measure()
        return None

    def end(self) -> Fault | None:
        for action in (PROBE[0], Action("key", ("ctrl+q",))):
            self._send(action)
        stuck = None if self._until(lambda: self.over) else self._stuck("ctrl+q leaves nothing")
        self._process.kill()
        code = self._process.wait()
        attributes = termios.tcgetattr(self._follower)
        self._reader.join()
        while self._read(0.1):
            pass
        os.close(self._follower)
        os.close(self._leader)
        painted, _, after = self._seen.rpartition(LEFT)
        told = in_text(after.decode("utf-8", "replace")) or in_text(crash_log(self._folder))
        if (fault := stuck or told) is not None:
            return fault
        if code not in (0, 2) or (code == 2 and FAILED not in painted):
            return Fault(f"exit status {code}", self._tail)
        if not painted or attributes != self._before:
            return Fault("the terminal is not as it was", self._tail)
        return None

    def resident(self) -> int:
        """At the last probe of the session that ended last."""
        return self._resident

    def _measure(self) -> int:
        """Resident bytes, as the system's own `ps` tells them on Linux and macOS."""
        told = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self._process.pid)], capture_output=True, text=True
        )
        return int(told.stdout.strip() or 0) * 1024


def in_bytes(text: str) -> bytes:
    """What a terminal sends for a text; a lone surrogate of an undecodable byte becomes that byte again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")

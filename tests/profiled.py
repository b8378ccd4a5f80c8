"""`python tests/profiled.py ANSWERS ARGUMENT ...`: the program of this directory's checkout, with its calls counted.

It runs as `python -m inspector ARGUMENT ...` does. It answers signals with a line of JSON that it writes to the file
ANSWERS, as `tests.measure` reads them:

    SIGUSR1    starts to count, or stops: a list of depth, file and name of each function of ours that was called
               meanwhile, in the order in which they were called first
    SIGUSR2    seconds of CPU that the main thread has taken
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
import time
from types import FrameType


class Profile:
    """The functions of ours that are called while it is on."""

    def __init__(self) -> None:
        self._top = os.getcwd() + os.sep
        self._own_files = (f"{self._top}engine", f"{self._top}inspector")
        self._calls: dict[tuple[str, str], int] = {}
        self.on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Receive one event of the interpreter."""
        file = frame.f_code.co_filename
        if self.on and event == "call" and file.startswith(self._own_files):
            depth, outer = 0, frame.f_back
            while outer is not None:
                depth += outer.f_code.co_filename.startswith(self._own_files)
                outer = outer.f_back
            self._calls.setdefault((file[len(self._top) :], frame.f_code.co_qualname), depth)

    def switch(self) -> list[tuple[int, str, str]]:
        """Turn it on in the main thread, or off; returns the calls since it was turned on."""
        self.on = not self.on
        sys.setprofile(self if self.on else None)
        calls, self._calls = self._calls, {}
        return [(depth, file, name) for (file, name), depth in calls.items()]


def main() -> None:
    """Run the program."""
    answers = os.open(sys.argv[1], os.O_WRONLY)
    profile = Profile()
    threading.setprofile(profile)  # of the threads that begin from now on

    def answer(number: int, frame: FrameType | None) -> None:
        value = profile.switch() if number == signal.SIGUSR1 else time.thread_time()
        os.write(answers, json.dumps(value).encode() + b"\n")  # print() must not be called within itself

    signal.signal(signal.SIGUSR1, answer)
    signal.signal(signal.SIGUSR2, answer)
    sys.path[0] = os.getcwd()
    sys.argv[1:2] = []
    runpy.run_module("inspector", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""Functions of the program that run in a process of their own (`engine.processes.limited`), in forks of one process.

A chat template and a grammar are tried in a process of their own: 0.2 s for Python and its imports, once a prompt, for
what then takes a millisecond. Here that is paid once a worker. A fork has the same limits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import processes
from engine.grammar import states
from engine.model import chat_template

FUNCTIONS = {
    "engine.model.chat_template_process:fill": ("jinja2.ext", "jinja2.sandbox"),
    "engine.grammar.states:trial": ("llguidance",),
}
"""By function, what it imports later than its module."""


class Forks:
    """Calls a function, once it was asked to.

    Args:
        function: One of `FUNCTIONS`.
    """

    def __init__(self, function: str) -> None:
        own = str(Path(__file__).with_name("forked_process.py"))
        modules = (function.partition(":")[0], *FUNCTIONS[function])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", own, json.dumps(sys.path), json.dumps(modules)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._asking = threading.Lock()

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The function's result; a status if its process was ended first."""
        out, back = self._process.stdin, self._process.stdout
        assert out is not None
        assert back is not None
        with self._asking:
            out.write(json.dumps([processes.PATIENCE, json.dumps(asked)]).encode() + b"\n")
            out.flush()
            written = json.loads(back.readline())
        try:
            answer: dict[str, Any] = json.loads(written)
        except ValueError:
            return {"ended": None}
        return answer


def begin() -> None:
    """Have chat templates filled and grammars tried in forks; not on macOS, whose libraries may not be forked."""
    if sys.platform == "darwin":
        return
    forks = {function: Forks(function) for function in FUNCTIONS}

    def limited(function: str, given: Mapping[str, Any], nbytes: int, seconds: int) -> dict[str, Any]:
        asked = {"path": sys.path, "function": function, "given": given, "bytes": nbytes, "seconds": seconds}
        return forks[function].answer(asked)

    chat_template.limited = states.limited = limited


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each call, as the program has it: for tests of its limits."""
    for module in (chat_template, states):
        monkeypatch.setattr(module, "limited", processes.limited)

"""Scripts of the program (`engine.processes.answer_of`) in forks of a process that has imported what they need.

A chat template and a grammar are tried in a process of their own: 0.2 s for Python and its imports, once a prompt, for
what then takes a millisecond. Here that is paid once a worker. A fork has the limits that the script sets itself.
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
from engine.grammar import matcher
from engine.model import chat_template

IMPORTS = {
    chat_template._SCRIPT: ("jinja2.ext", "jinja2.sandbox", "engine.processes"),
    matcher._SCRIPT: ("engine.grammar.matcher", "engine.processes", "llguidance"),
}
"""By script, what it imports."""


class Forks:
    """Runs a script, once it was asked to.

    Args:
        script: Of `IMPORTS`.
    """

    def __init__(self, script: Path) -> None:
        own = str(Path(__file__).with_name("forked_process.py"))
        given = (str(script), json.dumps(sys.path), json.dumps(IMPORTS[script]))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", own, *given],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._asking = threading.Lock()

    def answer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the script writes; empty where it was ended first."""
        out, back = self._process.stdin, self._process.stdout
        assert out is not None
        assert back is not None
        asked = [processes.PATIENCE, json.dumps({"path": sys.path, **given})]
        with self._asking:
            out.write(json.dumps(asked).encode() + b"\n")
            out.flush()
            written = json.loads(back.readline())
        try:
            answer: dict[str, Any] = json.loads(written)
        except ValueError:
            return {}
        return answer


def begin() -> None:
    """Have chat templates filled and grammars tried in forks; not on macOS, whose libraries may not be forked."""
    if sys.platform == "darwin":
        return
    forks = {script: Forks(script) for script in IMPORTS}
    chat_template.answer_of = matcher.answer_of = lambda script, given: forks[script].answer(given)


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each script, as the program has it: for tests of its limits."""
    for module in (chat_template, matcher):
        monkeypatch.setattr(module, "answer_of", processes.answer_of)

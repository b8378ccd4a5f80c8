"""Tries a grammar in a process of its own before this one compiles it: a hostile one ends there, within 2 seconds.

llguidance bounds what compiling and a step may take, but its bounds are counts: `(a{1000}){1000}` stays within them and
takes 2.7 s and 270 MiB at its first token, in one call that nothing can interrupt. A trial takes some 0.2 s, once a
grammar.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from engine.errors import SettingsError
from engine.grammar.source import refusal
from engine.grammar_settings import Grammar

MEMORY = 1024 * 2**20
"""Bytes of address space of the process; some 300 MB are numpy's and llguidance's own. Not bounded on macOS."""
SECONDS = 1
"""Of processor time, beside the 0.2 that the imports take."""
PATIENCE = 6.0
"""Seconds until it is ended on a machine that gives it little processor time."""
_SCRIPT = str(Path(__file__).with_name("trial_process.py"))


@lru_cache(maxsize=256)
def _error(kind: str, text: str) -> str:
    given = {"path": sys.path, "kind": kind, "text": text, "bytes": MEMORY, "seconds": SECONDS}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", _SCRIPT],
            input=json.dumps(given).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            start_new_session=True,  # a Ctrl-C of the terminal is answered here
        )
        return str(json.loads(done.stdout)["error"])
    except (subprocess.TimeoutExpired, ValueError):  # it was ended
        return refusal("it takes too much time or memory").message
    except OSError as error:
        return refusal(f"it can't be tried ({error.strerror})").message


def try_out(grammar: Grammar) -> None:
    """Try a grammar.

    Raises:
        SettingsError: It can't be used, or takes too much time or memory.
    """
    if error := _error(grammar.kind, grammar.text):
        raise SettingsError("grammar", error, "Change it, or take it off.")

"""Tries a grammar in a process of its own before this one compiles it: a hostile one ends there, within 2 seconds.

llguidance bounds what compiling and a step may take, but its bounds are counts: `(a{1000}){1000}` stays within them and
takes 2.7 s and 270 MiB at its first token, in one call that nothing can interrupt. A trial takes some 0.2 s, once a
grammar.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from engine.errors import SettingsError
from engine.grammar.schema import refusal
from engine.grammar_settings import Grammar
from engine.processes.limited import answer_of

MEMORY = 1024 * 2**20
"""Bytes of address space of the process; some 300 MB are numpy's and llguidance's own. Not bounded on macOS."""
SECONDS = 1
"""Of processor time, beside the 0.2 that the imports take."""
_SCRIPT = Path(__file__).with_name("trial_process.py")
_AGAIN = "Try again when the machine is less busy, or take a simpler one."


@lru_cache(maxsize=256)
def _error(kind: str, text: str) -> str:
    """Why a grammar can't be used, empty where it can; only an answer is kept, since a busy machine may give none.

    Raises:
        SettingsError: The process was ended, or none can be started.
    """
    given = {"kind": kind, "text": text, "bytes": MEMORY, "seconds": SECONDS}
    try:
        answer = answer_of(_SCRIPT, given)
    except OSError as error:
        raise SettingsError("grammar", f"The grammar can't be tried: {error.strerror}.", _AGAIN) from error
    if "error" not in answer:
        raise SettingsError("grammar", refusal("it takes too much time or memory").message, _AGAIN)
    return str(answer["error"])


def try_out(grammar: Grammar) -> None:
    """Try a grammar.

    Raises:
        SettingsError: It can't be used, or takes too much time or memory.
    """
    if error := _error(grammar.kind, grammar.text):
        raise SettingsError("grammar", error, "Change it, or take it off.")

"""Tries one grammar in a process of its own, within a limit of memory and of processor time: run as a script.

Its standard input is a JSON object: `path` (where modules are found), `kind` and `text` of the grammar, and the limits
`bytes` and `seconds`. Its standard output is one with `error`, empty where the grammar can be used. It computes masks
over a vocabulary of the 256 bytes, along a text that the grammar allows.
"""

from __future__ import annotations

import json
import math
import resource
import sys

STEPS = 64
"""Bytes of the text along which masks are computed."""


def main() -> None:
    """Try the grammar of standard input."""
    given = json.load(sys.stdin)
    sys.path[:] = given["path"]
    from engine.errors import EngineError, StepError
    from engine.grammar.matcher import ByteVocabulary, Matcher
    from engine.grammar.source import NO_TOKEN, refusal
    from engine.grammar_settings import Grammar
    from engine.processes import limit

    used = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))  # by the imports
    limit(given["bytes"], given["seconds"] + used)
    error = ""
    try:
        step, matcher = 0, Matcher.of(Grammar(given["kind"], given["text"]), ByteVocabulary())
        while step < STEPS and (allowed := [byte for byte in matcher.allowed_ids() if byte < 256]):
            matcher.take(allowed[step * 7919 % len(allowed)])
            step += 1
    except StepError as failed:  # every byte is a token: where none is first, no text is matched
        why = "no text matches it" if matcher.why() == NO_TOKEN else matcher.why()
        error = failed.message if step else refusal(why).message
    except EngineError as refused:
        error = refused.message
    except MemoryError:
        error = f"The grammar can't be used: it takes more than {given['bytes'] >> 20} MiB of memory."
    sys.stdout.write(json.dumps({"error": error}))


if __name__ == "__main__":
    main()

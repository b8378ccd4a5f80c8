"""Fills a model's chat template, a program in jinja2 that came with the model, within limits of time and memory.

It runs in a process of its own, which the kernel limits: one expression, `'x' * 10**10`, is a single call of C that no
check within this process could interrupt, and jinja2 even computes it while it compiles. jinja2's sandbox bounds
`range` and what can be reached, neither time nor memory. It costs
0.15 to 0.2 s of processor time and 20 MB for as long, once a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import PromptError
from engine.files import TEXT_LIMIT
from engine.processes.limited import answer_of

MEMORY = 512 * 2**20
"""Bytes of address space of the process; 40 MB are its own. Not bounded on macOS, whose kernel has no such limit."""
SECONDS = 2
"""Of processor time. Templates that models come with take milliseconds."""
CHARACTERS = 2 * TEXT_LIMIT
"""Of the result at most."""
_SCRIPT = Path(__file__).with_name("template_process.py")
_RAW = "Use it as raw text."


def render(template: str, values: Mapping[str, Any], others: Sequence[Any] = ()) -> list[str | None]:
    """Fill a template as transformers does.

    Args:
        template: jinja2 source.
        values: What it may use: `messages` and the like, of values that JSON has.
        others: Conversations with which it is filled, too, in the place of `messages`, while that takes no time.

    Returns:
        The text, and those of the other conversations; None where there is none.

    Raises:
        PromptError: The template is wrong, refuses the messages, or takes too much time or memory.
    """
    given = {
        "template": template,
        "values": dict(values),
        "others": list(others),
        "bytes": MEMORY,
        "seconds": SECONDS,
        "characters": CHARACTERS,
    }
    try:
        answer = answer_of(_SCRIPT, given)
    except OSError as error:
        raise PromptError(f"The chat template can't be filled: {error.strerror}.", _RAW) from error
    if "text" not in answer:
        raise refusal(answer.get("error", f"it takes more than {SECONDS} s of processor time"))
    return [str(answer["text"]), *answer["others"]]


def refusal(why: object) -> PromptError:
    """That a template, or its model's own code, refuses a prompt."""
    first = next(iter(str(why).strip().splitlines()), "no reason given")
    return PromptError(f"The chat template refuses this prompt: {first[:200].rstrip('.')}.", _RAW)

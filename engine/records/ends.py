"""How commands and completions end."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.records.answer import Answer

FinishReason = Literal["eos", "stop", "length", "cancelled", "grammar"]


@frozen
class Finished:
    """A stop was reached. Stepping on past it stays possible, except past a hard window."""

    node: int
    reason: FinishReason
    detail: str
    """`<|im_end|>`, the stop string, `100 tokens`, `context window of 512 tokens`, the grammar."""


@frozen
class Ended(Answer):
    """A command is done; the engine waits for the next."""

    command: str
    """`Command.kind`."""
    cancelled: bool = False


@frozen
class Failure(Answer):
    """A command failed; the session's current node is the one before."""

    command: str
    """`Command.kind`."""
    message: str
    hint: str
    expected: bool = True
    """False for a bug of the program itself: then `trace` holds the traceback."""
    trace: str = ""
    lost_rank: int | None = None
    """The process that was lost of those that compute the model: this engine can't compute over ranks any more."""

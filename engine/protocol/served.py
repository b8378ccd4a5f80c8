"""A server's reply, generated again as mlx_lm.server generates it."""

from __future__ import annotations

from typing import ClassVar

from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count


class RepeatReply(Command, frozen=True):
    """Generate after a node as mlx_lm.server does, by the session's settings; answered by `ReplyRepeated` records.

    mlx_lm's own generator runs the path again in a cache of its own, and draws with MLX's random numbers, which repeat
    for a seed; the session's draws are others, and it doesn't move.
    """

    stoppable: ClassVar[bool] = True
    over_ranks: ClassVar[bool] = False
    node: Count
    """The prompt's last."""
    seed: Count | None = None
    """Of MLX's generator. Needed at a temperature above 0, unless the tokens are given."""
    ids: tuple[Count, ...] = ()
    """Tokens that are taken whatever is drawn, to have their logprobs; none to generate."""
    cached: Count = 0
    """Tokens of the prompt that the server had in its KV cache: its penalties don't see them."""


class ReplyRepeated(Record, frozen=True):
    """The tokens that mlx_lm's generator made so far."""

    lasting: ClassVar[bool] = False
    node: Count
    """The one of the command."""
    ids: tuple[Count, ...]
    """An end-of-sequence token included."""
    logprobs: tuple[float, ...]
    """Of each of them, as mlx_lm.server names them: after penalties and biases, before temperature and filters."""
    margins: tuple[float, ...]
    """By how much each logprob is larger than the largest of all other tokens; negative where it is smaller."""
    raws: tuple[bytes, ...]
    """The bytes of each."""
    last: bool
    """True if it is the last record of the command."""

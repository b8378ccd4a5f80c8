"""Prompt logprobs: what the model makes of the tokens of a prompt, read once their first token is out.

A prefill leaves of each chunk the residual stream after the last layer, which is small, and lazy as long as little else
is kept alive by it. From there a few rows at a time go through the model's end and are read, whenever nothing else
is to be done: on 256,000 ids that takes several times as long as the prefill of a small model.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.logits.node_sampler import RowReader
from engine.model.layers import Tail
from engine.protocol import PromptReadings, PromptToken

PIECE_MS = 60.0
"""Target time of one piece of the readings: what comes meanwhile waits as long, or, with a large head, `LONGER` times
the quickest piece."""
LEAST = 4
"""Rows of a piece: one alone takes as long as four, since all of the head is read for it."""
LONGER = 3.0
"""Each piece reads the whole head: of 152,000 float32 rows of 1,024 that takes as long as some 14 rows. Pieces of four
took 13 s for a prompt of 480 tokens."""
PIECE_BYTES = 64 * 2**20
"""Bytes of a piece's logits in float32, at most."""
UNREAD_BYTES = 64 * 2**20
"""Bytes that are kept for readings to come; beyond, a prefill reads the oldest before it goes on."""
HELD_BYTES = 256 * 2**20
"""Bytes that lazy rows keep alive at most; beyond, a prefill computes what its last layer would be spared.

That is half of the work of a model of two layers: of one of hidden size 1024, which takes 1,760 tokens in some 25
chunks, 64 MiB leave 0.55 of the rate of a prefill without prompt logprobs, 256 MiB 0.8 to all of it.
"""


class UnreadRows(Struct):
    """The rows of one chunk, and the tokens that follow them."""

    tokens: Sequence[tuple[PromptToken, bytes]]
    """With the bytes that the text before each leaves unfinished."""
    states: mx.array
    """Residual streams, shape (..., tokens, size), or logits, (1, tokens, vocabulary)."""
    tail: Tail | None
    """From streams to logits; None where these are there."""
    candidates: int
    """To record for each token."""
    held: int
    """Bytes of the cache and of the chunk that are kept alive until the states are evaluated."""
    read: int = 0
    """Tokens that are read."""

    def logits(self, count: int) -> mx.array:
        """Those of the next rows, in the model's dtype, lazy, shape (count, vocabulary)."""
        states = self.states[..., self.read : self.read + count, :]
        return (states if self.tail is None else self.tail.logits(states))[0]


class Unread:
    """Rows of prompts whose readings are to come, in the order of their tokens.

    Args:
        reader: Makes the readings.
        vocabulary: Tokens of the model.
    """

    def __init__(self, reader: RowReader, vocabulary: int) -> None:
        self._reader = reader
        self._most = max(1, PIECE_BYTES // (4 * vocabulary))
        self._size, self._quickest = min(8, self._most), math.inf
        self.rows: deque[UnreadRows] = deque()
        """The rows that aren't read yet."""
        self._ms = 0.0
        """Milliseconds that were spent, and are not in a record yet."""

    def __len__(self) -> int:
        return sum(len(rows.tokens) - rows.read for rows in self.rows)

    @property
    def full(self) -> bool:
        """True if as much is kept as may be."""
        return sum(rows.states.nbytes for rows in self.rows) > UNREAD_BYTES

    @property
    def held(self) -> int:
        """Bytes of the cache and of chunks that are kept alive for what is lazy."""
        return sum(rows.held for rows in self.rows)

    def clear(self) -> None:
        """Read nothing of what is kept."""
        self.rows.clear()

    def add(self, rows: UnreadRows) -> None:
        """Keep the rows of a chunk."""
        self.rows.append(rows)
        if self.held > HELD_BYTES:
            begun = time.perf_counter()
            mx.eval([rows.states for rows in self.rows if rows.held])
            for rows in self.rows:
                rows.held = 0
            self._ms += (time.perf_counter() - begun) * 1000

    def read(self) -> PromptReadings | None:
        """Read the next few; None where all are read."""
        if not self.rows:
            return None
        rows, begun = self.rows[0], time.perf_counter()
        tokens = rows.tokens[rows.read : rows.read + self._size]
        logits = np.array(rows.logits(len(tokens)).astype(mx.float32))
        rows.held = 0
        read = tuple(self._reader.echoes(tokens, list(logits), rows.candidates))
        rows.read += len(read)
        if rows.read == len(rows.tokens):
            self.rows.popleft()
            mx.clear_cache()
        ms = (time.perf_counter() - begun) * 1000
        self._quickest = min(self._quickest, ms)
        target = max(PIECE_MS, LONGER * self._quickest)
        self._size = min(max(LEAST, min(int(len(read) * target / ms), 2 * len(read))), self._most)
        spent, self._ms = ms + self._ms, 0.0
        return PromptReadings(read, spent, len(self))

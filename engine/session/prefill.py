"""Prefill: the prompt runs through the model chunk by chunk.

Like mlx_lm's prefill, this one doesn't compute the logits of the prompt: it evaluates the caches, and stores the states
for the prompt logprobs, so that the first token never waits for these.

For each chunk the residual stream after the last layer is stored, which is small; it stays lazy as long as that keeps
little other memory alive. Later, when there is no other work, a few rows at a time run through the final norm and the
head, and their logprobs are read. With a vocabulary of 256,000 that takes several times as long as the prefill of a
small model.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.cache.live import MoveCost
from engine.errors import Cancelled
from engine.logits.node_sampler import echoes
from engine.model.forward import FIXED_CHUNK, ChunkSizer, Runner, Work
from engine.model.layers import Tail
from engine.model.tokens import Tokens
from engine.protocol import PrefillChunk, Prefilled, PromptOpened, PromptReadings, PromptToken
from engine.sampling.ranking import Row
from engine.task import Stopped

ECHO_TOKENS = 2048
"""Length in tokens up to which a prompt's logprobs are computed by default."""
ECHO_CANDIDATES = 20
"""Maximum number of candidates recorded for a token of the prompt."""
ECHO_BYTES = 64 * 2**20
"""Maximum bytes of the logits of one adaptive chunk, if the prompt logprobs need all of them at once."""


# ---- prompt logprobs, read later ---------------------------------------------------------------

PIECE_MS = 60.0
"""Target time in milliseconds of one piece of the readings, for which a new command may have to wait. With a large head
the target is `LONGER` times the quickest piece."""
LEAST = 4
"""Minimum number of rows of a piece: a single row takes as long as four, since each piece reads the entire head."""
LONGER = 3.0
"""Target time of a piece with a large head, as a multiple of the quickest piece. To read a head of 152,000 float32 rows
of 1,024 takes as long as about 14 rows of a piece; in pieces of four rows, a prompt of 480 tokens would take 13 s."""
PIECE_BYTES = 64 * 2**20
"""Maximum bytes of a piece's logits in float32."""
UNREAD_BYTES = 64 * 2**20
"""Maximum bytes of the stored states; above it, a prefill reads the oldest rows before it continues."""
HELD_BYTES = 256 * 2**20
"""Maximum bytes that lazy rows keep alive; above it, a prefill evaluates the rows, which costs the last layer's work.

That is half of the work of a model with two layers. With a hidden size of 1024, where 1,760 tokens take about 25
chunks, a limit of 64 MiB gives 0.55 of the rate of a prefill without prompt logprobs, and 256 MiB gives 0.8 to 1.
"""


class UnreadRows(Struct):
    """The states of one chunk, and the tokens that follow them."""

    tokens: Sequence[tuple[PromptToken, bytes]]
    """Each token, with the bytes of an unfinished character in the text before it."""
    states: mx.array
    """Residual streams, shape (..., tokens, hidden size), or logits, shape (1, tokens, vocabulary)."""
    tail: Tail | None
    """Computes logits from residual streams; None if `states` are logits."""
    candidates: int
    """Number of candidates to record for each token."""
    held: int
    """Bytes of the cache and of the chunk that the lazy states keep alive."""
    read: int = 0
    """Number of tokens read so far."""

    def logits(self, count: int) -> mx.array:
        """Logits of the next rows, in the model's dtype, lazy, shape (count, vocabulary)."""
        states = self.states[..., self.read : self.read + count, :]
        return (states if self.tail is None else self.tail.logits(states))[0]


class Unread:
    """Rows of prompts whose logprobs have not been read yet, in the order of their tokens.

    Args:
        tokens: The model's tokens.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._most = max(1, PIECE_BYTES // (4 * tokens.vocabulary))
        self._size, self._quickest = min(8, self._most), math.inf
        self.rows: deque[UnreadRows] = deque()
        """Rows that have not been read completely."""
        self._ms = 0.0
        """Milliseconds spent that are not in a record yet."""

    def __len__(self) -> int:
        return sum(len(rows.tokens) - rows.read for rows in self.rows)

    @property
    def full(self) -> bool:
        """True if the stored states exceed `UNREAD_BYTES`."""
        return sum(rows.states.nbytes for rows in self.rows) > UNREAD_BYTES

    @property
    def held(self) -> int:
        """Bytes of the cache and of chunks that the lazy rows keep alive."""
        return sum(rows.held for rows in self.rows)

    def clear(self) -> None:
        """Discard all rows."""
        self.rows.clear()

    def add(self, rows: UnreadRows) -> None:
        """Add the rows of a chunk."""
        self.rows.append(rows)
        if self.held > HELD_BYTES:
            begun = time.perf_counter()
            mx.eval([rows.states for rows in self.rows if rows.held])
            for rows in self.rows:
                rows.held = 0
            self._ms += (time.perf_counter() - begun) * 1000

    def read(self) -> PromptReadings | None:
        """Read the next few tokens; None if all are read."""
        if not self.rows:
            return None
        rows, begun = self.rows[0], time.perf_counter()
        tokens = rows.tokens[rows.read : rows.read + self._size]
        logits = np.array(rows.logits(len(tokens)).astype(mx.float32))
        rows.held = 0
        read = tuple(echoes(self._tokens, tokens, list(logits), rows.candidates))
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


# ---- prefill -----------------------------------------------------------------------------------

PromptRecord = PromptOpened | PrefillChunk | PromptReadings | Prefilled
"""Records that answer the prefill of a prompt."""


class PromptPath(Struct, frozen=True):
    """A prompt in the token tree, and the part of its path in the cache."""

    text: str
    """The prompt as encoded."""
    path: Sequence[int]
    """Token ids from the root to the prompt's end."""
    nodes: Sequence[int]
    """Nodes of the prompt's own tokens, which end the path."""
    parent: int
    pending: dict[int, bytes]
    """Bytes of unfinished characters by node; the prompt's are added."""
    before: Row | None
    """The logits after the tokens in the cache; None if they are not available."""
    cost: MoveCost
    """Tokens in the cache that needed no forward pass."""
    ms: float = 0.0
    """Milliseconds of adding the prompt to the tree and moving the cache."""


class PrefillRun:
    """The prefill of one prompt.

    Args:
        runner: The model and its cache, which contains a beginning of the path: at most all but the last token.
        unread: Receives the states that the prompt logprobs need.
        tail: The model's final norm and head; None if they can't be run separately.
        tokens: The tokenizer.
        candidates: Number of candidates recorded for a token, at most 20.
        prompt: The prompt in the tree.
        echo: True to compute prompt logprobs; None for prompts of up to 2,048 tokens.
    """

    def __init__(
        self,
        runner: Runner,
        unread: Unread,
        tail: Tail | None,
        tokens: Tokens,
        candidates: int,
        prompt: PromptPath,
        echo: bool | None,
    ) -> None:
        self.prompt = prompt
        self._before = len(prompt.path) - len(prompt.nodes)
        self._runner = runner
        self._unread = unread
        # Under interventions the path is computed by another function than the model, with a tail that may differ.
        self._tail = tail if runner.compute is runner.model else None
        self._candidates = min(candidates, ECHO_CANDIDATES)
        wanted = len(prompt.nodes) <= ECHO_TOKENS if echo is None else echo
        self.echo = wanted and runner.kv.reads_prompts
        self.tokens = self._tokens(tokens)
        self.ms = 0.0
        """Milliseconds of the forward passes so far."""
        self.cold = False
        """True if one of the forward passes was a cold start."""
        self._warm_tokens, self._warm_ms = 0, 0.0
        if self.echo and prompt.before is not None and (place := runner.kv.offset - self._before) >= 0:
            self._keep(mx.array(prompt.before)[None, None], None, slice(place, place + 1))
        whole = self.echo and self._tail is None
        self._limit = min(
            max(8, ECHO_BYTES // (4 * tokens.vocabulary)) if whole else FIXED_CHUNK,
            runner.kv.most_at_once or FIXED_CHUNK,
            FIXED_CHUNK,
        )
        self._sizes = runner.chunk_sizer(self._limit)

    def resize(self, size: int | None) -> None:
        """Change the chunk size from now on; no effect if the chunk boundaries change the numbers.

        Args:
            size: Tokens per chunk, limited by the memory bound; None changes nothing.
        """
        if size is not None and not self._runner.kv.chunks_matter:
            self._sizes = ChunkSizer(max(1, min(size, self._limit)))

    def _tokens(self, tokens: Tokens) -> list[PromptToken]:
        read, pending = [], self.prompt.pending.get(self.prompt.parent, b"")
        for position, node in enumerate(self.prompt.nodes, self._before):
            token = self.prompt.path[position]
            text, pending = tokens.text(token, pending)
            if pending:
                self.prompt.pending[node] = pending
            read.append(PromptToken(node, position, token, text, tokens.raw(token), tokens.is_special(token)))
        return read

    def chunks(self, stopped: Stopped) -> Iterator[PrefillChunk | PromptReadings]:
        """Run the remaining tokens except the last.

        Args:
            stopped: Polled before each chunk.

        Yields:
            A record for each chunk; and readings, if a prompt is too long to store the states for all of them.

        Raises:
            Cancelled: `stopped` returned True.
        """
        last = len(self.prompt.path) - 1
        while (done := self._runner.kv.offset) < last:
            if self._unread.full and (read := self._unread.read()) is not None:
                yield read
                continue
            if stopped():
                raise Cancelled
            chunk = self._chunk(done, min(done + self._sizes.size, last))
            self._sizes.learn(chunk.done - done, self._runner.kv.shared_ms(chunk.ms))
            yield chunk

    def _chunk(self, start: int, end: int) -> PrefillChunk:
        begun, kv = time.perf_counter(), self._runner.kv.reading()
        beside_kv = mx.get_active_memory() - kv.allocated_bytes
        if not self.echo or self._tail is None:
            states = self._runner.forward_chunk(self.prompt.path[start:end])
        else:
            with self._tail.watched() as streams:
                self._runner.forward_chunk(self.prompt.path[start:end])
            states = streams[0]
        ms, kv = (time.perf_counter() - begun) * 1000, self._runner.kv.reading()
        if self.echo:
            first = max(start + 1 - self._before, 0)  # in the prompt; each row predicts the next token
            # Lazy rows keep alive the arrays that they are computed from: those of their chunk, and the previous arrays
            # of the last layer's cache, which the next chunk copies and which the first chunk doesn't have yet.
            layers = sum(len(group.layers) for group in kv.groups)
            kept = max(0, mx.get_active_memory() - kv.allocated_bytes - beside_kv)
            self._keep(
                states[..., first + self._before - start - 1 :, :],
                self._tail,
                slice(first, max(end + 1 - self._before, 0)),
                max(kept, kv.allocated_bytes // layers if layers else 0),
            )
        mx.clear_cache()
        return PrefillChunk(end, len(self.prompt.path), ms, kv, self.count("chunk", end - start, ms))

    def _keep(self, states: mx.array, tail: Tail | None, following: slice, held: int = 0) -> None:
        """Store rows for the readings of the tokens that follow them, if any; `held` as in `UnreadRows`."""
        nodes, pending = [self.prompt.parent, *self.prompt.nodes], self.prompt.pending
        tokens = [
            (token, pending.get(node, b""))
            for token, node in zip(self.tokens[following], nodes[following], strict=False)
        ]
        if tokens:
            self._unread.add(UnreadRows(tokens, states, tail, self._candidates, held))

    def count(self, work: Work, tokens: int, ms: float) -> bool:
        """Add a forward pass of some tokens to the totals; returns True if it was a cold start."""
        self.ms += ms
        if cold := self._runner.is_first(work):
            self.cold = True
        else:
            self._warm_tokens, self._warm_ms = self._warm_tokens + tokens, self._warm_ms + ms
        return cold

    @property
    def tps(self) -> float:
        """Tokens per second of the forward passes without cold starts; 0 if there were none."""
        return self._warm_tokens / self._warm_ms * 1000 if self._warm_ms else 0.0

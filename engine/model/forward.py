"""Forwards of one model over one live KV cache: a chunk, a token, a path. All of MLX's arithmetic goes through here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from engine.cache.kinds import Snapshot
from engine.cache.live import KV
from engine.errors import Cancelled
from engine.sampling.ranking import Row
from engine.settings import LoadSettings

CHUNK_MS = 100.0
"""What a chunk aims at, so that a cancel takes effect within about 150 ms."""
FIXED_CHUNK = 2048
"""mlx_lm's default chunk, used where the cut into chunks changes the numbers."""
CLEAR_EVERY = 256
"""Tokens after which MLX's pool of free buffers is given back, as mlx_lm does it."""

Stopped = Callable[[], bool]


def never() -> bool:
    """For work that nobody stops."""
    return False


class Chunks:
    """How many tokens go through the model at once: a fixed number, or as many as take about 100 ms.

    Args:
        fixed: Tokens a chunk, None to adapt.
        limit: Tokens that a chunk may not exceed.
    """

    def __init__(self, fixed: int | None = None, limit: int = 2048) -> None:
        self._adapts = fixed is None
        self._limit = limit
        self.size = min(fixed or 32, limit)

    def learn(self, tokens: int, ms: float) -> None:
        """Take in how long a chunk took; the next grows at most fourfold."""
        if self._adapts and ms > 0:
            wanted = int(tokens * CHUNK_MS / ms) // 16 * 16
            self.size = max(8, min(wanted, 4 * self.size, self._limit))


class Runner:
    """A model and its live cache.

    Args:
        model: As mlx_lm loads it, in this thread.
        settings: How its cache is made.
    """

    def __init__(self, model: Any, settings: LoadSettings) -> None:
        self._model = model
        self._settings = settings
        self.kv = KV(model, settings)
        self.undo: tuple[Snapshot, ...] | None = None
        """What takes the last single token off again; None where trimming will do or nothing will."""

    def fresh(self) -> Runner:
        """A runner on the same model with empty caches of its own."""
        return Runner(self._model, self._settings)

    def feed(self, ids: Sequence[int]) -> mx.array:
        """Run a chunk of tokens, as mlx_lm's prefill does: the caches are evaluated, the logits stay lazy.

        Args:
            ids: Token ids, each with an embedding (checked by the caller: MLX would end the process).

        Returns:
            Logits, shape (1, len(ids), vocabulary), not evaluated: unused, they cost nothing.
        """
        offset = self.kv.offset
        try:
            logits: mx.array = self._model(mx.array([list(ids)]), cache=self.kv.caches)
            self.kv.advance(len(ids), chunk=True)
            mx.eval(self.kv.state())
        except BaseException:
            self.kv.recover(offset)
            raise
        return logits

    def forward(self, token: int) -> Row:
        """Run one token and bring its row of logits over.

        Returns:
            float32, shape (vocabulary,), in host memory.
        """
        offset = self.kv.offset
        self.undo = self.kv.record_undo()
        wanted = self.graph(mx.array([[token]]))
        try:
            mx.eval(wanted)
        except BaseException:
            self.kv.recover(offset)
            raise
        if self.kv.offset % CLEAR_EVERY == 0:
            mx.clear_cache()
        return np.array(wanted[0])

    def whole(self, ids: Sequence[int], stopped: Stopped = never) -> Row:
        """Run a sequence from nothing in one forward, as without a KV cache, and keep nothing of it.

        The logits of all its tokens are computed, as a loop without a cache computes them. Beyond `FIXED_CHUNK` tokens
        the beginning goes through in chunks of so many, over caches that last as long as the pass.

        Returns:
            float32, shape (vocabulary,), in host memory: what follows the last token.

        Raises:
            Cancelled: `stopped` said so before one of the chunks.
        """
        self.kv.clear()
        self.undo = None
        most = self._settings.prefill_step_size or FIXED_CHUNK
        try:
            while len(ids) - self.kv.offset > most:
                self._check(stopped)
                self.feed(ids[self.kv.offset : self.kv.offset + most])
            self._check(stopped)
            wanted = self.graph(mx.array([list(ids[self.kv.offset :])]))
            mx.eval(wanted)
        finally:
            self.kv.drop()
        row = np.array(wanted[0])
        mx.clear_cache()  # the next pass is longer by a token and can use none of these buffers
        return row

    def rows(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Run one token for each row of a cache of several; where that fails, the cache is of no more use.

        Returns:
            float32, shape (rows, vocabulary), in host memory.
        """
        logits: mx.array = self._model(mx.array([[token] for token in tokens]), cache=self.kv.caches)
        self.kv.advance(1)
        wanted = [logits[:, -1].astype(mx.float32), *self.kv.pending()]
        mx.eval(wanted)
        if self.kv.offset % (CLEAR_EVERY // 8) == 0:  # rows leave more behind, each time they are reordered
            mx.clear_cache()
        return np.array(wanted[0])

    def graph(self, tokens: mx.array) -> list[mx.array]:
        """The unevaluated forward of some tokens, which the cache counts from here on.

        Args:
            tokens: Ids, shape (1, n).

        Returns:
            The float32 logits after the last, shape (vocabulary,), and the states they don't depend on.
        """
        offset = self.kv.offset
        try:
            logits: mx.array = self._model(tokens, cache=self.kv.caches)
            self.kv.advance(tokens.shape[1])
        except BaseException:
            self.kv.recover(offset)
            raise
        return [logits[0, -1].astype(mx.float32), *self.kv.pending()]

    def chunks(self, limit: int = FIXED_CHUNK) -> Chunks:
        """The chunks in which a prompt goes through: as asked for, as mlx_lm's where they matter, else adapting.

        Args:
            limit: Tokens that an adapting chunk may not exceed.
        """
        fixed = self._settings.prefill_step_size or (FIXED_CHUNK if self.kv.chunked_matters else None)
        return Chunks(fixed, fixed) if fixed else Chunks(None, limit)

    def path(self, ids: Sequence[int], prompt: int, stopped: Stopped = never) -> Row:
        """Run what the cache lacks of a path, the way its tokens first went through.

        The prompt goes in chunks but for its last token. What follows goes in chunks too, which is faster, except
        where the cut into chunks changes the numbers: there it goes token by token, as it was stepped.

        Args:
            ids: The whole path; the cache holds a beginning of it, at most all but the last token.
            prompt: How many of them belong to the prompt.
            stopped: Asked before each chunk and token.

        Returns:
            The row after the last token.

        Raises:
            Cancelled: `stopped` said so; the caches hold the tokens up to there.
        """
        together = (prompt if self.kv.chunked_matters else len(ids)) - 1
        chunks = self.chunks()
        while (done := self.kv.offset) < together:
            self._check(stopped)
            begun = time.perf_counter()
            chunk = ids[done : min(done + chunks.size, together)]
            self.feed(chunk)
            mx.clear_cache()
            chunks.learn(len(chunk), (time.perf_counter() - begun) * 1000)
        for token in ids[self.kv.offset : -1]:
            self._check(stopped)
            self.forward(token)
        return self.forward(ids[-1])

    def _check(self, stopped: Stopped) -> None:
        if stopped():
            raise Cancelled


class PipelinedForward:
    """Builds the graph of the next forward before its token is known.

    Building costs Python time (half a millisecond for eight small layers) that mlx_lm hides by feeding the sampled
    token on unseen. Here the token is wanted first, so its place in the graph is an evaluated array whose memory is
    written once the token is known, before the graph is.

    Args:
        runner: The model and its cache.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._place = mx.zeros((1, 1), dtype=mx.int32)
        mx.eval(self._place)
        self._token = np.array(self._place, copy=False)
        self._prepared: list[mx.array] = []
        self._launched: list[mx.array] = []

    def prepare(self) -> None:
        """Build the graph of one more token; the cache counts it from here on."""
        self._prepared = self._runner.graph(self._place)

    def launch(self, token: int) -> None:
        """Begin to evaluate what was prepared, for a token (checked by the caller)."""
        self._token[0, 0] = token
        self._launched, self._prepared = self._prepared, []
        mx.async_eval(self._launched)

    def collect(self) -> Row:
        """Wait for what was launched.

        Returns:
            Its row of logits, float32, shape (vocabulary,), in host memory.
        """
        launched, self._launched = self._launched, []
        mx.eval(launched)
        if self._runner.kv.offset % CLEAR_EVERY == 0:
            mx.clear_cache()
        return np.array(launched[0])

    def drop(self, offset: int) -> None:
        """Take the cache back to `offset` tokens, where the run was broken off."""
        kv = self._runner.kv
        if kv.offset > offset:
            kv.rewind(offset)
            mx.eval(kv.state())  # what was written past the end must not wait as a graph for the next step

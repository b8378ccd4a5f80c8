"""Prefill: the prompt through the model chunk by chunk, and the logprobs of its tokens.

mlx_lm's prefill never computes the logits of the prompt. Here the caches are evaluated first, which is what
mlx_lm does and what TTFT counts, and only then the logits that the prompt logprobs need: the two costs stay separate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled
from engine.model.forward import FIXED_CHUNK, ChunkSizer, Runner, Stopped
from engine.model.tokens import Tokens
from engine.records import PrefillChunk, PromptToken
from engine.sampling.ranking import Row
from engine.session.readings import RowReader

ECHO_TOKENS = 2048
"""Prompt length up to which prompt logprobs are computed by default."""
ECHO_CANDIDATES = 20
"""Candidates recorded at most for a token of the prompt."""
ECHO_BYTES = 64 * 2**20
"""Bytes of one adapting chunk's logits at most while prompt logprobs are on."""
ECHO_ROWS = 64
"""Rows of a chunk's logits that are converted to float32 at a time."""


class PrefillRun:
    """The prefill of one prompt.

    Args:
        runner: The model and its cache, empty.
        reader: Makes the readings.
        tokens: The tokenizer.
        candidates: Candidates recorded for a token, at most 20.
        ids: The prompt.
        echo: Prompt logprobs; None for prompts of up to 2,048 tokens.
        text: The prompt as encoded, for the record.
    """

    def __init__(
        self,
        runner: Runner,
        reader: RowReader,
        tokens: Tokens,
        candidates: int,
        ids: Sequence[int],
        echo: bool | None,
        text: str = "",
    ) -> None:
        self.text = text
        self._runner = runner
        self._reader = reader
        self._candidates = min(candidates, ECHO_CANDIDATES)
        self.echo = len(ids) <= ECHO_TOKENS if echo is None else echo
        self.pending: dict[int, bytes] = {}
        """Bytes of unfinished characters by node."""
        self.read = self._tokens(tokens, ids)
        """The prompt's tokens; readings are filled in as they become known."""
        self.ms = 0.0
        """Milliseconds of the forwards so far."""
        self.echo_ms = 0.0
        """Milliseconds of the prompt logprobs so far."""
        self.done = 0
        """Tokens that the model has run."""
        limit = max(8, ECHO_BYTES // (4 * tokens.vocabulary)) if self.echo else FIXED_CHUNK
        self._limit = min(limit, FIXED_CHUNK)
        self._sizes = runner.chunk_sizer(self._limit)

    def resize(self, size: int | None) -> None:
        """Use chunks of another size from here on; without effect where the cut into chunks changes the numbers.

        Args:
            size: Tokens a chunk, at most what the memory bound allows; None changes nothing.
        """
        if size is not None and not self._runner.kv.chunks_matter:
            self._sizes = ChunkSizer(max(1, min(size, self._limit)))

    def _tokens(self, tokens: Tokens, ids: Sequence[int]) -> list[PromptToken]:
        prompt, pending = [], b""
        for position, token in enumerate(ids):
            node = position + 1  # a new tree numbers the prompt in order
            text, pending = tokens.text(token, pending)
            if pending:
                self.pending[node] = pending
            prompt.append(
                PromptToken(node, position, token, text, tokens.raw(token), tokens.is_special(token))
            )
        return prompt

    def chunks(self, stopped: Stopped) -> Iterator[PrefillChunk]:
        """Run the remaining tokens but the last.

        Args:
            stopped: Polled before each chunk.

        Yields:
            A record for each chunk.

        Raises:
            Cancelled: `stopped` returned True.
        """
        total = len(self.read)
        while self.done < total - 1:
            if stopped():
                raise Cancelled
            chunk = self._chunk(self.done, min(self.done + self._sizes.size, total - 1))
            self._sizes.learn(chunk.done - self.done, chunk.ms + chunk.echo_ms)
            self.done = chunk.done
            yield chunk

    def _chunk(self, start: int, end: int) -> PrefillChunk:
        begun = time.perf_counter()
        logits = self._runner.forward_chunk([token.id for token in self.read[start:end]])
        fed = time.perf_counter()
        known: tuple[PromptToken, ...] = ()
        if self.echo:
            known = self._known(logits, self.read[start + 1 : end + 1])
            self.read[start + 1 : end + 1] = known
        ended = time.perf_counter()
        mx.clear_cache()
        ms, echo_ms = (fed - begun) * 1000, (ended - fed) * 1000
        self.ms += ms
        self.echo_ms += echo_ms
        return PrefillChunk(end, len(self.read), ms, echo_ms, self._runner.kv.reading(), known)

    def _known(self, logits: mx.array, tokens: Sequence[PromptToken]) -> tuple[PromptToken, ...]:
        """The tokens that follow those of a chunk, with the model's readings of them."""
        logits = logits[0]
        mx.eval(logits)
        known: list[PromptToken] = []
        for start in range(0, len(tokens), ECHO_ROWS):
            part = tokens[start : start + ECHO_ROWS]
            rows = np.array(logits[start : start + len(part)].astype(mx.float32))
            known += map(self._echo, part, rows)
        return tuple(known)

    def _echo(self, token: PromptToken, row: Row) -> PromptToken:
        pending = self.pending.get(token.node - 1, b"")
        return self._reader.echo(token, row, self._candidates, pending)

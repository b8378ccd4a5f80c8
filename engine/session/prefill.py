"""Prefill: the prompt through the model chunk by chunk, and the logprobs of its tokens.

mlx_lm's prefill never computes the logits of the prompt. Here the caches are evaluated first, which is what
mlx_lm does and what TTFT counts, and only then the logits that the prompt logprobs need: the two costs stay separate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from engine.cache.moves import MoveCost
from engine.errors import Cancelled
from engine.frozen import frozen
from engine.logits.readings import RowReader
from engine.model.first_uses import Work
from engine.model.forward import FIXED_CHUNK, ChunkSizer, Runner, Stopped
from engine.model.tokens import Tokens
from engine.records import PrefillChunk, PromptToken
from engine.sampling.ranking import Row

ECHO_TOKENS = 2048
"""Prompt length up to which prompt logprobs are computed by default."""
ECHO_CANDIDATES = 20
"""Candidates recorded at most for a token of the prompt."""
ECHO_BYTES = 64 * 2**20
"""Bytes of one adapting chunk's logits at most while prompt logprobs are on."""
ECHO_ROWS = 64
"""Rows of a chunk's logits that are converted to float32 at a time."""


@frozen
class PromptPath:
    """A prompt in the token tree, and what the cache holds of its path."""

    text: str
    """As encoded."""
    path: Sequence[int]
    """Token ids from the root to the prompt's end."""
    nodes: Sequence[int]
    """Of the prompt's own tokens, which end the path."""
    parent: int
    """Node before the prompt."""
    pending: dict[int, bytes]
    """Bytes of unfinished characters by node; those of the prompt are added."""
    before: Row | None
    """The logits after the tokens that the cache holds, where they were kept."""
    cost: MoveCost
    """What the cache got without a forward."""
    ms: float = 0.0
    """Milliseconds that this took."""


class PrefillRun:
    """The prefill of one prompt.

    Args:
        runner: The model and its cache, which holds a beginning of the path, at most all but the last token.
        reader: Makes the readings.
        tokens: The tokenizer.
        candidates: Candidates recorded for a token, at most 20.
        prompt: Its tokens in the tree.
        echo: Prompt logprobs; None for prompts of up to 2,048 tokens.
    """

    def __init__(
        self,
        runner: Runner,
        reader: RowReader,
        tokens: Tokens,
        candidates: int,
        prompt: PromptPath,
        echo: bool | None,
    ) -> None:
        self.prompt = prompt
        self._before = len(prompt.path) - len(prompt.nodes)
        self._runner = runner
        self._reader = reader
        self._candidates = min(candidates, ECHO_CANDIDATES)
        self.echo = len(prompt.nodes) <= ECHO_TOKENS if echo is None else echo
        self.read = self._tokens(tokens)
        """The prompt's tokens; readings are filled in as they become known."""
        self.ms = 0.0
        """Milliseconds of the forwards so far."""
        self.cold = False
        """Whether one of them was a cold start."""
        self._warm_tokens, self._warm_ms = 0, 0.0
        self.echo_ms = 0.0
        """Milliseconds of the prompt logprobs so far."""
        if self.echo and prompt.before is not None and (place := runner.kv.offset - self._before) >= 0:
            self.read[place] = self._echo(self.read[place], prompt.before)
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

    def _tokens(self, tokens: Tokens) -> list[PromptToken]:
        read, pending = [], self.prompt.pending.get(self.prompt.parent, b"")
        for position, node in enumerate(self.prompt.nodes, self._before):
            token = self.prompt.path[position]
            text, pending = tokens.text(token, pending)
            if pending:
                self.prompt.pending[node] = pending
            read.append(PromptToken(node, position, token, text, tokens.raw(token), tokens.is_special(token)))
        return read

    def chunks(self, stopped: Stopped) -> Iterator[PrefillChunk]:
        """Run the remaining tokens but the last.

        Args:
            stopped: Polled before each chunk.

        Yields:
            A record for each chunk.

        Raises:
            Cancelled: `stopped` returned True.
        """
        last = len(self.prompt.path) - 1
        while (done := self._runner.kv.offset) < last:
            if stopped():
                raise Cancelled
            chunk = self._chunk(done, min(done + self._sizes.size, last))
            self._sizes.learn(chunk.done - done, chunk.ms + chunk.echo_ms)
            yield chunk

    def _chunk(self, start: int, end: int) -> PrefillChunk:
        begun = time.perf_counter()
        logits = self._runner.forward_chunk(self.prompt.path[start:end])
        fed = time.perf_counter()
        known: tuple[PromptToken, ...] = ()
        if self.echo:
            first = max(start + 1 - self._before, 0)  # of the prompt; a row is read for the token after it
            following = slice(first, max(end + 1 - self._before, 0))
            known = self._known(logits[:, first + self._before - start - 1 :], self.read[following])
            self.read[following] = known
        ended = time.perf_counter()
        mx.clear_cache()
        ms, echo_ms = (fed - begun) * 1000, (ended - fed) * 1000
        self.echo_ms += echo_ms
        cold = self.count("chunk", end - start, ms)
        return PrefillChunk(end, len(self.prompt.path), ms, echo_ms, self._runner.kv.reading(), known, cold)

    def count(self, work: Work, tokens: int, ms: float) -> bool:
        """Add up a forward of some tokens; returns whether it was a cold start."""
        self.ms += ms
        if cold := self._runner.first_uses.take(work):
            self.cold = True
        else:
            self._warm_tokens, self._warm_ms = self._warm_tokens + tokens, self._warm_ms + ms
        return cold

    @property
    def tps(self) -> float:
        """Tokens a second of the forwards that were no cold start; 0 where there was none."""
        return self._warm_tokens / self._warm_ms * 1000 if self._warm_ms else 0.0

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
        place = token.position - self._before
        above = self.prompt.nodes[place - 1] if place else self.prompt.parent
        return self._reader.echo(token, row, self._candidates, self.prompt.pending.get(above, b""))

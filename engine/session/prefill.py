"""Prefill: the prompt through the model chunk by chunk.

mlx_lm's prefill never computes the logits of the prompt, nor does this one: the caches are evaluated, and what the
prompt logprobs need is kept for later (`engine.session.unread`). The first token never waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import mlx.core as mx
from msgspec import Struct

from engine.cache.moves import MoveCost
from engine.errors import Cancelled
from engine.model.forward import FIXED_CHUNK, ChunkSizer, Runner, Work
from engine.model.layers import Tail
from engine.model.tokens import Tokens
from engine.protocol import PrefillChunk, Prefilled, PromptOpened, PromptReadings, PromptToken
from engine.sampling.ranking import Row
from engine.session.unread import Unread, UnreadRows
from engine.task import Stopped

ECHO_TOKENS = 2048
"""Prompt length up to which prompt logprobs are computed by default."""
ECHO_CANDIDATES = 20
"""Candidates recorded at most for a token of the prompt."""
ECHO_BYTES = 64 * 2**20
"""Bytes of one adapting chunk's logits at most, where the prompt logprobs need all of them at once."""


PromptRecord = PromptOpened | PrefillChunk | PromptReadings | Prefilled
"""What the prefill of a prompt is answered with."""


class PromptPath(Struct, frozen=True):
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
        unread: Takes what the prompt logprobs need.
        tail: The model's end; None where it can't be run alone.
        tokens: The tokenizer.
        candidates: Candidates recorded for a token, at most 20.
        prompt: Its tokens in the tree.
        echo: Prompt logprobs; None for prompts of up to 2,048 tokens.
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
        # under interventions something else than the model computes, and its end may not be the model's
        self._tail = tail if runner.compute is runner.model else None
        self._candidates = min(candidates, ECHO_CANDIDATES)
        wanted = len(prompt.nodes) <= ECHO_TOKENS if echo is None else echo
        self.echo = wanted and runner.kv.reads_prompts
        self.tokens = self._tokens(tokens)
        self.ms = 0.0
        """Milliseconds of the forwards so far."""
        self.cold = False
        """True if one of them was a cold start."""
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

    def chunks(self, stopped: Stopped) -> Iterator[PrefillChunk | PromptReadings]:
        """Run the remaining tokens but the last.

        Args:
            stopped: Polled before each chunk.

        Yields:
            A record for each chunk; and readings, where a prompt is too long to keep what they need.

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
            first = max(start + 1 - self._before, 0)  # of the prompt; a row is read for the token after it
            # While rows are lazy they keep alive what they are computed from: arrays of their chunk, and what the last
            # layer's cache was, which the next chunk copies. The first chunk has none of that yet.
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
        """Keep some rows for the readings of the tokens that follow them, if any do; `held` as in `UnreadRows`."""
        nodes, pending = [self.prompt.parent, *self.prompt.nodes], self.prompt.pending
        tokens = [
            (token, pending.get(node, b""))
            for token, node in zip(self.tokens[following], nodes[following], strict=False)
        ]
        if tokens:
            self._unread.add(UnreadRows(tokens, states, tail, self._candidates, held))

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

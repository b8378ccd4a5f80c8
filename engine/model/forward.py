"""Forwards of one model over one live KV cache: a chunk, a token, a path, several rows: all of MLX's arithmetic."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.cache.kinds import Snapshot
from engine.cache.live import KV
from engine.errors import Cancelled
from engine.memory import trim
from engine.patches.rotary import RotaryBlocks, shared_rotary_factors
from engine.sampling.ranking import Row
from engine.settings import LoadSettings
from engine.task import Stopped, never
from engine.tree import Chunks, chunk_end, cut_chunks, prompt_chunks

Work = Literal["chunk", "token", "step"]
"""A chunk of a prompt, a prompt's last token, a step."""


CHUNK_MS = 100.0
"""Target time of a chunk, so that a cancel takes effect within about 150 ms."""
LEAST_CHUNK, MOST_CHUNK_MS = 64, 1000.0
"""Tokens that a chunk has anyway, where they take no longer than this. Each chunk reads all weights: 0.6 B parameters
in float32 take 160 ms for one token and 1,100 for 64, so that chunks of 100 ms had 8 tokens each, and a prefill took
two and a half times as long."""
FIXED_CHUNK = 2048
"""mlx_lm's default chunk, used where the cut into chunks changes the numbers."""
CLEAR_EVERY = 256
"""Tokens after which MLX's pool of free buffers is released, as in mlx_lm."""
CLEAR_AT = 4
"""Tokens over a multiple of these: a cache takes longer arrays with the first one, and what they replace is free once
the forward of the next has run. Released just before instead, the pool would hold a second KV cache all the time."""
LOOK_EVERY, POOL_BYTES = 32, 16 * 2**20
"""Tokens after which the pool is released where it has more bytes: the buffers for the scores of a context of 8,000
tokens, which the next token can't use, are 32 MiB in 256 tokens. At every look it would cost pocket 0.9 of its rate."""

Compute = Callable[..., Any]
"""A model, or what is called in its place: with token ids and a cache it returns logits."""
MakeKV = Callable[[Any, LoadSettings], KV]
"""Makes an empty cache, given a model and settings."""
Changed = tuple[int, Compute]
"""A number of tokens of a path, and what computes those after them in the model's place."""


class ChunkSizer:
    """The number of tokens in a forward of prefill: fixed, or as many as take about 100 ms, but 64 of a large model.

    Args:
        fixed: Tokens a chunk, None to adapt.
        limit: Tokens of a chunk at most.
    """

    def __init__(self, fixed: int | None = None, limit: int = 2048) -> None:
        self._adapts = fixed is None
        self._limit = limit
        self.size = min(fixed or 32, limit)

    def learn(self, tokens: int, ms: float) -> None:
        """Adapt to the time of a chunk; the next grows at most fourfold."""
        if self._adapts and ms > 0:
            wanted = int(tokens * CHUNK_MS / ms) // 16 * 16
            if wanted < LEAST_CHUNK:
                wanted = min(LEAST_CHUNK, int(tokens * MOST_CHUNK_MS / ms) // 8 * 8)
            self.size = max(8, min(wanted, 4 * self.size, self._limit))


def release_buffers(offset: int) -> None:
    """Give back MLX's free buffers where they are many or it is time to, and to the system what the C library has free.

    The C library would fill what a cache's shorter arrays leave with the rows of logits that are kept, and so have no
    room for the next longer ones: after 8,000 steps of the bundled model it held 57 MiB that had become free in 2,000
    of them. It takes 1 to 4 ms.

    Args:
        offset: Tokens in the cache, `CLEAR_AT` over a multiple of `LOOK_EVERY`.
    """
    if offset % CLEAR_EVERY == CLEAR_AT or mx.get_cache_memory() > POOL_BYTES:
        mx.clear_cache()
        trim()


class Runner:
    """A model and its live cache.

    Args:
        model: As mlx_lm loads it, in this thread.
        settings: Those of its cache.
        done: Kinds of work that the model did already; None for a model that did nothing.
        make_kv: Makes its cache.
    """

    def __init__(
        self, model: Any, settings: LoadSettings, done: set[Work] | None = None, make_kv: MakeKV = KV
    ) -> None:
        self._done = set[Work]() if done is None else done
        self.model = model
        """As mlx_lm loads it; it keeps no state of a session."""
        self.compute: Compute = model
        """The function that forwards call: the model itself, except on a path that continues under interventions."""
        self._settings = settings
        self._make_kv = make_kv
        self._rotary_blocks = RotaryBlocks()
        self.kv = make_kv(model, settings)
        self.undo: tuple[Snapshot, ...] | None = None
        """Records that undo the last single token; None if trimming does it or nothing can."""

    @cached_property
    def on_cpu(self) -> bool:
        """True if MLX computes in the host's memory."""
        return mx.default_device() == mx.Device(mx.cpu)

    @cached_property
    def stays_lazy(self) -> bool:
        """True if a forward's graph can be built before its token is known.

        Of mlx_lm's families dbrx alone can't: its layers read which experts a token chose while the graph is built.
        """
        kinds = {type(module) for _, module in self.model.named_modules()}
        codes = [getattr(kind.__call__, "__code__", None) for kind in kinds]
        return all({"tolist", "item"}.isdisjoint(code.co_names) for code in codes if code is not None)

    def fresh(self) -> Runner:
        """A runner on the model itself with its own empty caches."""
        return Runner(self.model, self._settings, self._done, self._make_kv)

    def is_first(self, work: Work) -> bool:
        """Note that work is done; returns whether it is the first of its kind since the model was loaded.

        What is done once may be in the first of a kind: kernels are compiled or chosen, memory is taken from the
        system, weights are read in. How much that is depends on the backend, so that the first is marked and left out
        of rates.
        """
        first = work not in self._done
        self._done.add(work)
        return first

    def copy(self) -> Runner:
        """A runner whose caches hold what this one's hold, and can be written independently."""
        copied = copy.copy(self)
        copied.kv, copied.undo = self.kv.copied(), None
        return copied

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """The layers of a forward share the factors of their positions; if it fails, the caches are recovered."""
        offset = self.kv.offset
        try:
            with shared_rotary_factors(self._rotary_blocks):
                yield
        except BaseException:
            self.recover(offset)
            raise

    def forward_chunk(self, ids: Sequence[int]) -> mx.array:
        """Run a chunk of tokens, as mlx_lm's prefill does: the caches are evaluated, the logits stay lazy.

        Args:
            ids: Token ids below the rows of the embedding (checked by the caller: MLX would end the process).

        Returns:
            Logits in the model's dtype, shape (1, len(ids), vocabulary), not evaluated: unused, they cost nothing.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, mx.array([list(ids)]), chunk=True)
            mx.eval(self.kv.state())
        return logits

    def forward(self, token: int) -> Row:
        """Run a single token; `undo` then has what removes it again, if trimming can't.

        Args:
            token: Its id (checked by the caller).

        Returns:
            The logits after it, float32, shape (vocabulary,), in host memory.
        """
        self.undo = None if self.kv.can_step_back() else self.kv.undo_records()
        with self._forwarding():
            logits = self.kv.run(self.compute, mx.array([[token]]), begin=self.on_cpu)
            row = logits[0, -1].astype(mx.float32)
            mx.eval(row, self.kv.pending())
        if self.kv.offset % LOOK_EVERY == CLEAR_AT:
            release_buffers(self.kv.offset)
        return self.on_host(row)

    def on_host(self, row: mx.array) -> Row:
        """The logits of one token in host memory; on a CPU a view, which keeps the array alive.

        Copied, a row of 152,000 took 0.1 ms, and 0.4 where it was memory that the process had not had before.

        Args:
            row: float32, shape (vocabulary,), evaluated; of a forward of one token, so that no others' logits stay.
        """
        return np.array(row, copy=not self.on_cpu)

    def forward_uncached(self, ids: Sequence[int], stopped: Stopped = never) -> Row:
        """Run a sequence from nothing in one forward, as without a KV cache, and keep nothing of it.

        It computes the logits of all tokens, as a loop without a cache does. Beyond `FIXED_CHUNK` tokens the beginning
        runs in chunks of `FIXED_CHUNK` tokens, over caches that last as long as the pass.

        Returns:
            The logits after the last token, float32, shape (vocabulary,), in host memory.

        Raises:
            Cancelled: `stopped` returned True before one of the chunks.
        """
        self.kv.clear()
        self.undo = None
        chunk_size = self._settings.prefill_step_size or FIXED_CHUNK
        try:
            while len(ids) - self.kv.offset > chunk_size:
                self._check(stopped)
                self.forward_chunk(ids[self.kv.offset : self.kv.offset + chunk_size])
            self._check(stopped)
            last, _ = self.build_graph(mx.array([list(ids[self.kv.offset :])]))
            mx.eval(last)
        finally:
            self.kv.drop()
        row = np.array(last)
        mx.clear_cache()  # the next pass is longer by a token and can use none of these buffers
        return row

    def forward_logits(self, ids: Sequence[int]) -> mx.array:
        """Run some tokens in one forward, with the logits after each of them.

        Args:
            ids: Token ids below the rows of the embedding.

        Returns:
            float32, shape (len(ids), vocabulary), evaluated.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, mx.array([list(ids)]), chunk=len(ids) > 1)
            rows = logits[0].astype(mx.float32)
            mx.eval(rows, self.kv.state())
        return rows

    def forward_rows(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Run one token for each row of a cache of several rows; where it fails, the cache is unusable.

        Returns:
            Logits, float32, shape (rows, vocabulary), in host memory.
        """
        with shared_rotary_factors(self._rotary_blocks):
            logits = self.kv.run(self.compute, mx.array([[token] for token in tokens]))
        outputs = [logits[:, -1].astype(mx.float32), *self.kv.pending()]
        mx.eval(outputs)
        if self.kv.offset % (CLEAR_EVERY // 8) == 0:  # every reordering of rows leaves more free buffers
            mx.clear_cache()
        return np.array(outputs[0])

    def build_graph(self, tokens: mx.array, begin: bool = False) -> tuple[mx.array, list[mx.array]]:
        """Build the forward of some tokens, which the cache counts from here on; nothing is evaluated.

        Args:
            tokens: int32 ids, shape (1, n).

        Returns:
            The float32 logits after the last, shape (vocabulary,), and the states that they don't depend on.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, tokens, begin=begin)
        return logits[0, -1].astype(mx.float32), self.kv.pending()

    def chunk_sizer(self, limit: int = FIXED_CHUNK) -> ChunkSizer:
        """The chunk sizes of a prompt: those of the settings, mlx_lm's where they change the numbers, else adapting.

        Args:
            limit: Tokens of an adapting chunk at most.
        """
        limit = min(limit, self.kv.most_at_once or limit)
        fixed = self._settings.prefill_step_size or (FIXED_CHUNK if self.kv.chunks_matter else None)
        return ChunkSizer(fixed, fixed) if fixed else ChunkSizer(None, limit)

    def forward_path(
        self, ids: Sequence[int], chunks: Chunks, stopped: Stopped = never, changed: Changed | None = None
    ) -> Row:
        """Run the tokens of a path that the cache lacks, so that the numbers are those of the first time.

        All but the last token runs in chunks, which is faster, except if the cut into chunks changes the numbers:
        then stepped tokens run one by one again.

        Args:
            ids: The whole path; the cache holds a beginning of it, at most all but the last token.
            chunks: Which of them ran in chunks the first time: prompts without their last tokens.
            stopped: Polled before each chunk and token.
            changed: The token from which on another function computed the path, and that function; None if the model
                computed all.

        Returns:
            The logits after the last token, float32, shape (vocabulary,).

        Raises:
            Cancelled: `stopped` returned True; the caches hold the tokens up to there.
        """
        first, compute = changed or (0, self.model)
        before = self.compute
        try:
            if self.kv.offset < first:
                self.compute = self.model
                self._run_path(ids[:first], cut_chunks(chunks, first), stopped)
            self.compute = compute
            return self._run_path(ids, chunks, stopped)
        finally:
            self.compute = before

    def _run_path(self, ids: Sequence[int], chunks: Chunks, stopped: Stopped) -> Row:
        """Run the tokens that the cache lacks of a path that one function computes."""
        if not self.kv.chunks_matter:
            chunks = prompt_chunks(len(ids))
        sizer = self.chunk_sizer()
        while (done := self.kv.offset) < len(ids) - 1:
            self._check(stopped)
            if (end := chunk_end(chunks, done)) == done:
                self.forward(ids[done])
                continue
            begun = time.perf_counter()
            chunk = ids[done : min(done + sizer.size, end)]
            self.forward_chunk(chunk)
            mx.clear_cache()
            sizer.learn(len(chunk), self.kv.shared_ms((time.perf_counter() - begun) * 1000))
        return self.forward(ids[-1])

    def recover(self, offset: int) -> None:
        """Hold `offset` tokens again after a forward that failed half-way, or start over."""
        if not self.kv.recovered(offset):
            self.kv.clear()

    def _check(self, stopped: Stopped) -> None:
        if stopped():
            raise Cancelled


class _Forward(Struct, frozen=True):
    """One token's forward, built or begun."""

    row: mx.array
    """The logits, float32, shape (vocabulary,)."""
    states: list[mx.array]
    """The states that the logits don't depend on; empty once it has begun."""
    undo: tuple[Snapshot, ...] | None
    """Records that remove its token from the cache; None if trimming does."""

    def begin(self) -> None:
        """Evaluate it in the background.

        The states are dropped: a cache writes its arrays in place, so that from the next forward's graph on the same
        objects stand for that graph, and waiting for them would evaluate it before its token is known.
        """
        mx.async_eval(self.row, self.states)
        self.states.clear()


class PipelinedForward:
    """Starts or builds the next forward before its token is known, so that the device need not wait for Python.

    The token's slot in the graph is an evaluated array whose memory is written once the token is known, before the
    graph is evaluated. With guesses the device continues without waiting for the host, as in mlx_lm's own loop: the
    next forward begins with the most probable token, and is taken back if the host's sampler picks another. On a
    CPU there is no slot: each layer is begun while the next one is built (`BegunByLayer`), which saves more.

    Args:
        runner: The model and its cache.
        guesses: Whether the most probable token is guessed; useful if the sampler takes it.
    """

    def __init__(self, runner: Runner, guesses: bool) -> None:
        self._runner, self._guesses = runner, guesses
        self._by_layer = runner.on_cpu
        """True if each layer of a forward is begun while the next one is built: then only a guess goes ahead."""
        self._slot = mx.zeros((1, 1), dtype=mx.int32)
        mx.eval(self._slot)
        self._token = np.array(self._slot, copy=False)
        self._under_way: _Forward | None = None
        """The forward of a known token, which becomes the newest that `collect` waited for."""
        self._ahead: _Forward | None = None
        """The one after it."""
        self._guess: mx.array | None = None
        """The token that `_ahead` was begun with, shape (1, 1); None if its token isn't known yet."""

    @property
    def undo(self) -> tuple[Snapshot, ...] | None:
        """Records that remove the token that was launched last; None if trimming does it or nothing can."""
        return None if self._under_way is None else self._under_way.undo

    def prepare(self) -> bool:
        """Go ahead by one more token, which the cache counts from here on.

        Returns:
            True if that succeeded; behind a forward under way an error is left to the step that meets it again.
        """
        if not self._guesses or self._under_way is None:
            return self._by_layer or self._built(self._slot)
        guess = self.most_probable(self._under_way.row)
        if not self._built(guess, begin=self._by_layer):
            return False
        assert self._ahead is not None
        self._ahead.begin()
        self._guess = guess
        return True

    def most_probable(self, row: mx.array) -> mx.array:
        """The guess of the token after a row of logits, shape (1, 1), on the device."""
        return mx.argmax(row).reshape(1, 1)

    def _built(self, token: mx.array, begin: bool = False) -> bool:
        """Build the forward of a token; True if that succeeded, as in `prepare`."""
        kv = self._runner.kv
        try:
            undo = None if kv.can_step_back() else kv.undo_records()
            self._ahead = _Forward(*self._runner.build_graph(token, begin), undo)
        except Exception:
            self._ahead = None
            if self._under_way is None:
                raise
        return self._ahead is not None

    def launch(self, token: int) -> bool:
        """Begin the forward of a token (checked by the caller), unless it began with a guess that was right.

        Returns:
            True if that succeeded, as in `prepare`.
        """
        right = self._guess is not None and self._guess.item() == token
        if self._guess is not None and not right:
            self._take_back(self._runner.kv.offset - 1)
        if not right:
            token_array = mx.array([[token]]) if self._by_layer else self._slot
            if self._ahead is None and not self._built(token_array, begin=self._by_layer):
                return False
            assert self._ahead is not None
            if not self._by_layer:
                mx.synchronize()  # states of the forward before may still read its token
                self._token[0, 0] = token
            self._ahead.begin()
        self._under_way, self._ahead, self._guess = self._ahead, None, None
        return True

    def collect(self) -> Row:
        """Wait for the launched forward.

        Returns:
            Its logits, float32, shape (vocabulary,), in host memory.
        """
        assert self._under_way is not None
        mx.eval([each for each in (self._under_way.row, self._guess) if each is not None])
        if self._runner.kv.offset % LOOK_EVERY == CLEAR_AT:
            release_buffers(self._runner.kv.offset)
        return self._runner.on_host(self._under_way.row)

    def drop(self, offset: int) -> None:
        """Rewind the cache to `offset` tokens, if the run ended early."""
        kv = self._runner.kv
        if kv.offset > offset:
            self._take_back(offset)
            mx.eval(kv.state())  # what was written past the end must not stay a graph for the next step

    def _take_back(self, offset: int) -> None:
        """Hold `offset` tokens, without one or both of the last two."""
        newest = [each.undo for each in (self._ahead, self._under_way) if each is not None]
        undo = [records for records in newest[: self._runner.kv.offset - offset] if records is not None]
        if undo:
            self._runner.kv.undo(undo)
        else:
            self._runner.kv.rewind(offset)
        self._ahead = self._guess = None


# ---- how much logits may differ where the same tokens run in other chunks or batches -----------

SHARES = {"float32": 4e-6, "float16": 8e-3, "bfloat16": 0.06}
"""Shares of the largest logit by which rounding may change logits. Measured over 14 families with OpenBLAS: up to
8.7e-7 in float32, 0.023 in bfloat16; deep models sum up more roundings. Wrong keys and values make differences of
whole logits."""
COARSE = 1e-5
"""Error of a float32 product, as a share of its largest number, from which on it counts as one of 16 bits: a CPU's is
2e-7, and one in TF32, which has as many bits as float16, 3e-4 (emulated)."""


@cache
def product_error() -> float:
    """The error of a float32 product of several rows here, as a share of its largest number; measured once."""
    one, other = (mx.random.normal((256, 256), key=mx.random.key(seed)) for seed in (0, 1))
    truth = np.array(one).astype(np.float64) @ np.array(other).astype(np.float64)
    found = np.array(one @ other)
    return float(np.abs(found - truth).max() / np.abs(truth).max())


def precision(dtype: str) -> str:
    """The type whose bounds hold for a computation: `float16` for float32 whose products are no better here.

    Args:
        dtype: Of the computation.
    """
    return "float16" if dtype == "float32" and product_error() > COARSE else dtype


def tf32_note(dtype: str) -> str:
    """A sentence that says that float32 is not computed in float32; empty if it is."""
    if precision(dtype) == dtype:
        return ""
    return (
        f"float32 products are off by {product_error():.0e} here (TF32): numbers agree as far as in float16, and "
        "checks allow as much. MLX_ENABLE_TF32=0 computes in float32."
    )


def rounding_of(logits: Row, dtype: str) -> float:
    """The largest difference of a logit that rounding explains.

    A fast library adds up the products of several rows in another order than those of one. The numbers of a path that
    ran in chunks then differ in their last bits from those of one that ran token by token.

    Args:
        logits: A row, of shape (vocabulary,).
        dtype: Of the computation.
    """
    return SHARES.get(precision(dtype), SHARES["float32"]) * float(max(logits.max(), -logits.min()))

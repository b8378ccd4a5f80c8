"""Forward passes of one model over one live KV cache: a chunk, a token, a path, or several rows."""

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
"""A chunk of a prompt, a prompt's last token, or a step."""


CHUNK_MS = 100.0
"""Target time of a chunk, so that a cancel takes effect within about 150 ms."""
LEAST_CHUNK, MOST_CHUNK_MS = 64, 1000.0
"""Minimum number of tokens of a chunk, unless they take longer than this time. Each chunk reads all weights: with 0.6 B
parameters in float32, one token takes 160 ms and 64 tokens take 1,100 ms. Chunks of 100 ms would have 8 tokens each,
and a prefill would take two and a half times as long."""
FIXED_CHUNK = 2048
"""mlx_lm's default chunk size, used if the chunk boundaries change the numbers."""
CLEAR_EVERY = 256
"""Number of tokens after which MLX's pool of free buffers is released, as in mlx_lm."""
CLEAR_AT = 4
"""Number of tokens after such a multiple at which this happens. A cache allocates longer arrays with the first token,
and the old arrays are free after the next forward pass. If the pool were released just before the multiple, it would
always contain a second KV cache."""
LOOK_EVERY, POOL_BYTES = 32, 16 * 2**20
"""Number of tokens after which the pool is checked, and its size from which it is released. With a context of 8,000
tokens, buffers for attention scores, which the next token can't reuse, grow to 32 MiB in 256 tokens. Releasing the pool
at every check would reduce pocket's rate to 0.9."""

Compute = Callable[..., Any]
"""A model, or a function called instead of it: from token ids and a cache to logits."""
MakeKV = Callable[[Any, LoadSettings], KV]
"""Makes an empty cache from a model and settings."""
Changed = tuple[int, Compute]
"""A number of tokens of a path, and the function that computes the later ones instead of the model."""


class ChunkSizer:
    """Chooses the size of prefill chunks: fixed, or as many tokens as take about 100 ms (64 with a large model).

    Args:
        fixed: Tokens per chunk; None to adapt.
        limit: Maximum number of tokens of a chunk.
    """

    def __init__(self, fixed: int | None = None, limit: int = 2048) -> None:
        self._adapts = fixed is None
        self._limit = limit
        self.size = min(fixed or 32, limit)

    def learn(self, tokens: int, ms: float) -> None:
        """Adapt to the time of a chunk; the next chunk is at most four times the current size."""
        if self._adapts and ms > 0:
            wanted = int(tokens * CHUNK_MS / ms) // 16 * 16
            if wanted < LEAST_CHUNK:
                wanted = min(LEAST_CHUNK, int(tokens * MOST_CHUNK_MS / ms) // 8 * 8)
            self.size = max(8, min(wanted, 4 * self.size, self._limit))


def release_buffers(offset: int) -> None:
    """Release MLX's free buffers if they are large or it is time for it, and return free memory to the system.

    Otherwise the C library would put cached rows of logits into the space of a cache's old arrays, and have no room for
    the next longer ones: after 8,000 steps of the bundled model it held 57 MiB that became free in 2,000 of them. The
    call takes 1 to 4 ms.

    Args:
        offset: Number of tokens in the cache: `CLEAR_AT` more than a multiple of `LOOK_EVERY`.
    """
    if offset % CLEAR_EVERY == CLEAR_AT or mx.get_cache_memory() > POOL_BYTES:
        mx.clear_cache()
        trim()


class Runner:
    """A model and its live cache.

    Args:
        model: The model, loaded by mlx_lm in this thread.
        settings: Settings of its cache.
        done: Kinds of work that the model has done before; None for none.
        make_kv: Makes its cache.
    """

    def __init__(
        self, model: Any, settings: LoadSettings, done: set[Work] | None = None, make_kv: MakeKV = KV
    ) -> None:
        self._done = set[Work]() if done is None else done
        self.model = model
        """The model as loaded by mlx_lm; it has no state of a session."""
        self.compute: Compute = model
        """The function called in a forward pass: the model itself, except on a path under interventions."""
        self._settings = settings
        self._make_kv = make_kv
        self._rotary_blocks = RotaryBlocks()
        self.kv = make_kv(model, settings)
        self.undo: tuple[Snapshot, ...] | None = None
        """Records that undo the last single token; None if trimming does it or nothing can."""

    @cached_property
    def on_cpu(self) -> bool:
        """True if MLX computes on the CPU, and so in the host's memory."""
        return mx.default_device() == mx.Device(mx.cpu)

    @cached_property
    def stays_lazy(self) -> bool:
        """True if the graph of a forward pass can be built before its token is known.

        Of mlx_lm's families only dbrx doesn't allow it: its layers read the chosen experts while the graph is built.
        """
        kinds = {type(module) for _, module in self.model.named_modules()}
        codes = [getattr(kind.__call__, "__code__", None) for kind in kinds]
        return all({"tolist", "item"}.isdisjoint(code.co_names) for code in codes if code is not None)

    def fresh(self) -> Runner:
        """A runner on the model itself with new, empty caches."""
        return Runner(self.model, self._settings, self._done, self._make_kv)

    def is_first(self, work: Work) -> bool:
        """Record that work of a kind is done; returns True if it is the first of its kind since the model was loaded.

        The first may include one-time work: kernels are compiled or chosen, memory is allocated by the system, weights
        are read. The amount depends on the backend, so the first is marked as a cold start and left out of rates.
        """
        first = work not in self._done
        self._done.add(work)
        return first

    def copy(self) -> Runner:
        """A runner with copies of this one's caches, which can be written independently."""
        copied = copy.copy(self)
        copied.kv, copied.undo = self.kv.copied(), None
        return copied

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Context of a forward pass: its layers share rotary factors, and the caches are recovered if it fails."""
        offset = self.kv.offset
        try:
            with shared_rotary_factors(self._rotary_blocks):
                yield
        except BaseException:
            self.recover(offset)
            raise

    def forward_chunk(self, ids: Sequence[int]) -> mx.array:
        """Run a chunk of tokens like mlx_lm's prefill: the caches are evaluated, and the logits stay lazy.

        Args:
            ids: Token ids with a row in the embedding (checked by the caller, since MLX would end the process).

        Returns:
            Logits in the model's dtype, shape (1, len(ids), vocabulary), lazy: if unused, they cost nothing.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, mx.array([list(ids)]), chunk=True)
            mx.eval(self.kv.state())
        return logits

    def forward(self, token: int) -> Row:
        """Run a single token; `undo` is then set to the records that remove it again, if trimming can't.

        Args:
            token: Token id (checked by the caller).

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

        To copy a row of 152,000 takes 0.1 ms, and 0.4 ms if the process has to allocate new memory for it.

        Args:
            row: float32, shape (vocabulary,), evaluated; from a forward pass of one token, since a view would keep the
                logits of all its tokens alive.
        """
        return np.array(row, copy=not self.on_cpu)

    def forward_uncached(self, ids: Sequence[int], stopped: Stopped = never) -> Row:
        """Run a complete sequence in one forward pass, like a loop without a KV cache, and keep nothing of it.

        As in such a loop, the logits of all tokens are computed. If there are more tokens than fit into a chunk
        (`prefill_step_size` or `FIXED_CHUNK`), the beginning runs in chunks, with caches that are dropped afterwards.

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
        mx.clear_cache()  # the next pass is one token longer and can't reuse these buffers
        return row

    def forward_logits(self, ids: Sequence[int]) -> mx.array:
        """Run some tokens in one forward pass, and return the logits after each of them.

        Args:
            ids: Token ids with a row in the embedding.

        Returns:
            float32, shape (len(ids), vocabulary), evaluated.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, mx.array([list(ids)]), chunk=len(ids) > 1)
            rows = logits[0].astype(mx.float32)
            mx.eval(rows, self.kv.state())
        return rows

    def forward_rows(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Run one token for each row of a cache with several rows; after an error the cache is unusable.

        Returns:
            Logits, float32, shape (rows, vocabulary), in host memory.
        """
        with shared_rotary_factors(self._rotary_blocks):
            logits = self.kv.run(self.compute, mx.array([[token] for token in tokens]))
        outputs = [logits[:, -1].astype(mx.float32), *self.kv.pending()]
        mx.eval(outputs)
        if self.kv.offset % (CLEAR_EVERY // 8) == 0:  # each reordering of rows leaves free buffers
            mx.clear_cache()
        return np.array(outputs[0])

    def build_graph(self, tokens: mx.array, begin: bool = False) -> tuple[mx.array, list[mx.array]]:
        """Build the graph of a forward pass; the cache counts its tokens from now on, but nothing is evaluated.

        Args:
            tokens: int32 ids, shape (1, n).
            begin: See `KV.run`.

        Returns:
            The float32 logits after the last token, shape (vocabulary,), and the states that they don't depend on.
        """
        with self._forwarding():
            logits = self.kv.run(self.compute, tokens, begin=begin)
        return logits[0, -1].astype(mx.float32), self.kv.pending()

    def chunk_sizer(self, limit: int = FIXED_CHUNK) -> ChunkSizer:
        """The chunk sizes for a prompt: from the settings, mlx_lm's if they change the numbers, or adaptive.

        Args:
            limit: Maximum number of tokens of an adaptive chunk.
        """
        limit = min(limit, self.kv.most_at_once or limit)
        fixed = self._settings.prefill_step_size or (FIXED_CHUNK if self.kv.chunks_matter else None)
        return ChunkSizer(fixed, fixed) if fixed else ChunkSizer(None, limit)

    def forward_path(
        self, ids: Sequence[int], chunks: Chunks, stopped: Stopped = never, changed: Changed | None = None
    ) -> Row:
        """Run the tokens of a path that are not in the cache, with the same results as the first time.

        All tokens except the last run in chunks, which is faster, unless the chunk boundaries change the numbers: then
        tokens that were stepped run one by one again.

        Args:
            ids: The complete path; the cache contains a beginning of it, at most all but the last token.
            chunks: The stretches that ran in chunks the first time: prompts without their last tokens.
            stopped: Polled before each chunk and token.
            changed: Index of the first token that another function computed, and that function; None if the model
                computed all.

        Returns:
            The logits after the last token, float32, shape (vocabulary,).

        Raises:
            Cancelled: `stopped` returned True; the caches contain the tokens so far.
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
        """See `forward_path`, for a path that a single function computes."""
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
        """Return the caches to `offset` tokens after a failed forward pass; if that is impossible, empty them."""
        if not self.kv.recovered(offset):
            self.kv.clear()

    def _check(self, stopped: Stopped) -> None:
        if stopped():
            raise Cancelled


class _Forward(Struct, frozen=True):
    """The forward pass of one token, built or begun."""

    row: mx.array
    """The logits, float32, shape (vocabulary,)."""
    states: list[mx.array]
    """The states that the logits don't depend on; empty after `begin`."""
    undo: tuple[Snapshot, ...] | None
    """Records that remove its token from the cache; None if trimming does."""

    def begin(self) -> None:
        """Start the evaluation in the background.

        The list of states is emptied: a cache writes its arrays in place, so that the same objects will belong to the
        next graph, and waiting for them would evaluate that graph before its token is known.
        """
        mx.async_eval(self.row, self.states)
        self.states.clear()


class PipelinedForward:
    """Builds or starts the next forward pass before its token is known, so that the device need not wait for Python.

    The token's slot in the graph is an evaluated array; its memory is written when the token is known, before the graph
    is evaluated. With guesses, the device continues without waiting for the host, as in mlx_lm's own loop: the next
    forward pass starts with the most probable token, and is undone if the sampler picks another. On a CPU there is no
    slot; instead each layer starts while the next one is built (`BegunByLayer`), which saves more.

    Args:
        runner: The model and its cache.
        guesses: True to guess the most probable token, which helps if the sampler picks it.
    """

    def __init__(self, runner: Runner, guesses: bool) -> None:
        self._runner, self._guesses = runner, guesses
        self._by_layer = runner.on_cpu
        """True if each layer starts while the next one is built; a graph is then built ahead only for a guess."""
        self._slot = mx.zeros((1, 1), dtype=mx.int32)
        mx.eval(self._slot)
        self._token = np.array(self._slot, copy=False)
        self._under_way: _Forward | None = None
        """The forward pass of the last launched token, for which `collect` waits."""
        self._ahead: _Forward | None = None
        """The forward pass after it."""
        self._guess: mx.array | None = None
        """The guessed token that `_ahead` was started with, shape (1, 1); None without a guess."""

    @property
    def undo(self) -> tuple[Snapshot, ...] | None:
        """Records that remove the last launched token; None if trimming does it or nothing can."""
        return None if self._under_way is None else self._under_way.undo

    def prepare(self) -> bool:
        """Build the next forward pass, or start it with a guess; the cache counts its token from now on.

        Returns:
            True if that succeeded. While a forward pass is running, an error is not raised; it will occur again in a
            single step.
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
        """The guessed token for a row of logits, shape (1, 1), on the device."""
        return mx.argmax(row).reshape(1, 1)

    def _built(self, token: mx.array, begin: bool = False) -> bool:
        """Build the forward pass of a token; the result is the same as in `prepare`."""
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
        """Start the forward pass of a token (checked by the caller), unless it was started with the right guess.

        Returns:
            The same as `prepare`.
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
                mx.synchronize()  # states of the previous forward pass may still read its token
                self._token[0, 0] = token
            self._ahead.begin()
        self._under_way, self._ahead, self._guess = self._ahead, None, None
        return True

    def collect(self) -> Row:
        """Wait for the launched forward pass.

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
            mx.eval(kv.state())  # arrays written past the end must not stay lazy for the next step

    def _take_back(self, offset: int) -> None:
        """Return the cache to `offset` tokens by removing one or both of the last two."""
        newest = [each.undo for each in (self._ahead, self._under_way) if each is not None]
        undo = [records for records in newest[: self._runner.kv.offset - offset] if records is not None]
        if undo:
            self._runner.kv.undo(undo)
        else:
            self._runner.kv.rewind(offset)
        self._ahead = self._guess = None


# ---- differences of logits if the same tokens run in other chunks or batches -------------------

SHARES = {"float32": 4e-6, "float16": 8e-3, "bfloat16": 0.06}
"""Largest change of logits by rounding, as a share of the largest logit. Measured over 14 families with OpenBLAS: up to
8.7e-7 in float32 and 0.023 in bfloat16; rounding errors add up in deep models. Wrong keys and values change logits by 1
or more."""
COARSE = 1e-5
"""Error of a float32 matrix product, as a share of its largest number, above which it counts as a 16-bit product: it is
2e-7 on a CPU, and 3e-4 (emulated) with TF32, which has as many significant bits as float16."""


@cache
def product_error() -> float:
    """Error of a float32 matrix product of several rows on this device, as a share of its largest number; cached."""
    one, other = (mx.random.normal((256, 256), key=mx.random.key(seed)) for seed in (0, 1))
    truth = np.array(one).astype(np.float64) @ np.array(other).astype(np.float64)
    found = np.array(one @ other)
    return float(np.abs(found - truth).max() / np.abs(truth).max())


def precision(dtype: str) -> str:
    """The type that matches the precision of a computation: `float16` for float32 if its products are no better.

    Args:
        dtype: Type that the model computes in.
    """
    return "float16" if dtype == "float32" and product_error() > COARSE else dtype


def tf32_note(dtype: str) -> str:
    """A sentence that float32 products are less precise than float32; empty if they aren't."""
    if precision(dtype) == dtype:
        return ""
    return (
        f"float32 products are off by {product_error():.0e} here (TF32): numbers agree as far as in float16, and "
        "checks allow as much. MLX_ENABLE_TF32=0 computes in float32."
    )


def rounding_of(logits: Row, dtype: str) -> float:
    """The largest difference of a logit that rounding can explain.

    A fast library sums the products of several rows in another order than those of a single row. So the numbers of a
    path that ran in chunks differ in their last bits from those of a path that ran token by token.

    Args:
        logits: Logits, shape (vocabulary,).
        dtype: Type that the model computes in.
    """
    return SHARES.get(precision(dtype), SHARES["float32"]) * float(max(logits.max(), -logits.min()))

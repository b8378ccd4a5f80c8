"""The roofline: prefill and decode of this model compared with the limits of this machine; and the machine itself.

The limits are measured, not looked up: on the CPU backend MLX is far from the processor's peak, and MLX runs the model.
The time of an empty evaluation, some 0.2 ms on a Mac and 40 us on CUDA, is subtracted: a large GPU reads 128 MiB in
less time.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import cache as caches
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import kind_named
from engine.measuring.profile import RepeatedStep, measured_session, timed
from engine.memory import memory_available, memory_installed
from engine.model.facts import SWITCHED, experts_of, free_bytes, own_arrays, own_parameters
from engine.model.forward import Runner, precision, product_error
from engine.model.layers import calls, patched
from engine.model.load import Loaded
from engine.protocol import (
    KVGroup,
    Machine,
    MachineRead,
    MeasureRoofline,
    Measuring,
    ModelFacts,
    ReadMachine,
    Record,
    RooflineMeasured,
    Work,
)
from engine.session.context import Context
from engine.session.session import Session
from engine.task import Stopped, Task, poll

# ---- rates that MLX reaches on this machine ----------------------------------------------------

ARRAY_BYTES = 128 * 2**20
"""Bytes of the array to read, more than most processors' caches."""
MOST_TIMES = 64
"""Maximum number of passes through the array in one evaluation."""
EVALUATIONS = 20
"""Minimum time of the passes of one evaluation, in empty evaluations."""
BANDWIDTH_SECONDS = 0.4
MATMUL_SECONDS = 0.5
LONG_ENOUGH = 0.04
"""Seconds of a matrix product; a larger product gives no higher rate."""
SMALLEST, LARGEST = 256, 8192
"""Smallest and largest number of rows of the square matrices."""


class Rate(Struct, frozen=True):
    """Best of several measurements, in 10^9 per second."""

    value: float
    median: float
    how: str
    """Description of the measurement."""


def memory_bandwidth(stopped: Stopped) -> Rate:
    """Bytes read and written per second: the best of several operations on an array of 128 MiB.

    Raises:
        Cancelled: `stopped` returned True.
    """
    array = mx.ones((ARRAY_BYTES // 4,), dtype=mx.float32)
    mx.eval(array)
    ways: dict[str, tuple[int, Callable[[int], list[mx.array]]]] = {
        "reading it for its largest number": (1, lambda times: [mx.max(array) for _ in range(times)]),
        "reading it for its sum": (1, lambda times: [mx.sum(array) for _ in range(times)]),
        "reading it and writing its negative": (2, lambda times: [_negated(array, times)]),
    }
    nothing = seconds_of_nothing()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    times = dict.fromkeys(ways, 1)
    for name in _in_turn(list(ways), BANDWIDTH_SECONDS, stopped):
        factor, run = ways[name]
        while (took := _seconds(partial(run, times[name]))) < EVALUATIONS * nothing:
            if times[name] >= MOST_TIMES:
                break
            times[name] *= 2
        rates[name].append(factor * times[name] * ARRAY_BYTES / _net(took, nothing) / 1e9)
    name = max(rates, key=lambda way: max(rates[way]))
    mx.clear_cache()
    how = (
        f"an array of {ARRAY_BYTES // 2**20} MiB of float32, {name}, {times[name]} times an evaluation, less the time "
        "of an empty one: the best of its repeats"
    )
    return Rate(max(rates[name]), statistics.median(rates[name]), how)


def _negated(array: mx.array, times: int) -> mx.array:
    """Negate an array several times, each time from the last result."""
    for _ in range(times):
        array = mx.negative(array)
    return array


def seconds_of_nothing() -> float:
    """Seconds of an almost empty evaluation, the best of several."""
    one = mx.ones((1,))
    mx.eval(one)
    return min(_seconds(lambda: [mx.negative(one)]) for _ in range(8))


def _net(seconds: float, nothing: float) -> float:
    """Seconds of an evaluation without those of an empty one, but at least half of them."""
    return max(seconds - nothing, seconds / 2)


def matmul_rate(model: Any, facts: ModelFacts, stopped: Stopped) -> Rate:
    """Operations per second of a square matrix product in the weights' type, the best of growing sizes.

    Raises:
        Cancelled: `stopped` returned True.
    """
    quantized = next((m for _, m in model.named_modules() if isinstance(m, nn.QuantizedLinear)), None)
    dtype = getattr(mx, facts.dtype)
    ends, nothing = time.perf_counter() + MATMUL_SECONDS, seconds_of_nothing()
    rows, rates, at = SMALLEST, [0.0], SMALLEST
    while True:
        poll(stopped)
        run = _product(rows, dtype, quantized)
        times = [_net(_seconds(run), nothing) for _ in range(2)]
        took = min(times)
        if 2 * rows**3 / took > max(rates):
            rates, at = [2 * rows**3 / each for each in times], rows
        # the next product takes eight times as long and must fit into the remaining time
        if rows >= LARGEST or took >= LONG_ENOUGH or time.perf_counter() + 8 * took >= ends:
            break
        rows *= 2
    run = run if at == rows else _product(at, dtype, quantized)
    for _ in _in_turn([""], ends - time.perf_counter(), stopped):
        rates.append(2 * at**3 / _net(_seconds(run), nothing))
    mx.clear_cache()
    kind = facts.quantization if quantized is not None else facts.dtype
    how = f"the product of two matrices of {at} x {at}, weights in {kind}: the best of its repeats"
    return Rate(max(rates) / 1e9, statistics.median(rates) / 1e9, how)


SLOW_EXPONENTIALS = 4.0
"""Ratio of MLX's time to numpy's above which a note is given; it is 27 with MLX's wheel for x86."""
BOUND = (
    "An exponential takes {:.1f} ns in MLX here and {:.1f} in numpy: MLX's wheel for x86 is built without FMA. Softmax "
    "and activations bound a prefill as much as the matrices do (39 % of the bundled model's); no setting changes that."
)
NUMBERS = 2**18


def exponentials() -> tuple[float, float]:
    """Nanoseconds of an exponential in MLX and in numpy, each the best of several measurements."""
    array = mx.random.uniform(-4, 4, (NUMBERS,), key=mx.random.key(0))
    mx.eval(array)
    same = np.array(array)
    ours = timeit.repeat(lambda: mx.eval(mx.exp(array)), number=1, repeat=5)
    theirs = timeit.repeat(lambda: np.exp(same), number=1, repeat=5)
    return min(ours) / NUMBERS * 1e9, min(theirs) / NUMBERS * 1e9


def bound(facts: ModelFacts) -> tuple[str, ...]:
    """Note if MLX's own build limits the speed of a prefill."""
    if facts.backend != "cpu" or platform.machine() != "x86_64":
        return ()
    ours, theirs = exponentials()
    return (BOUND.format(ours, theirs),) if ours >= SLOW_EXPONENTIALS * theirs else ()


def _product(rows: int, dtype: mx.Dtype, like: Any) -> Callable[[], list[mx.array]]:
    """A product of two square matrices, the second quantized like the layer `like`, if given."""
    x, w = (mx.random.normal((rows, rows), key=mx.random.key(n)).astype(dtype) for n in (0, 1))
    if like is None:
        mx.eval(x, w)
        return lambda: [x @ w]
    kind = {"group_size": like.group_size, "bits": like.bits, "mode": getattr(like, "mode", "affine")}
    packed = mx.quantize(w, **kind)
    mx.eval(x, packed)
    return lambda: [mx.quantized_matmul(x, *packed, transpose=True, **kind)]


def _in_turn(names: list[str], seconds: float, stopped: Stopped) -> Iterator[str]:
    """Repeat the names in turn until the time is up, each at least once."""
    ends, turn = time.perf_counter() + seconds, 0
    while turn < len(names) or time.perf_counter() < ends:
        poll(stopped)
        yield names[turn % len(names)]
        turn += 1


def _seconds(run: Callable[[], list[mx.array]]) -> float:
    begun = time.perf_counter()
    mx.eval(run())
    return time.perf_counter() - begun


# ---- the reads and operations of a forward pass, by formula ------------------------------------
# - **Operations**: 2 for each active parameter and token, and for attention 4 x heads x head size for each layer, token
#   and attended token (queries by keys, weights by values; a multiplication and an addition each). This is the count of
#   PaLM (Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T for forward and backward) without the two thirds of the
#   backward pass. Softmax, norms and the arithmetic of recurrent states are negligible.
# - **Bytes**: each forward pass reads the active weights once, and the cached keys, values and states. Activations are
#   left out: they are small compared with the weights and stay in the processor's caches.

CHOSEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
    "top_k_experts", "num_selected_experts", "top_k",
)  # fmt: skip
"""Names of the number of experts per token in the configs of different families."""
WORK_HOW = (
    "By formula: 2 operations for each parameter and token, 4 x heads x head size for each layer, token and token"
    " attended to; weights, keys, values and states are read once a forward pass, activations are not counted."
)


class Weights(Struct, frozen=True):
    """Weights that a forward pass of one or several tokens reads."""

    parameters: int
    """Number of parameters that a token is multiplied with; an embedding's table is only looked up."""
    read_bytes: int
    """Bytes read for one token: one row of an embedding's table, and only the selected experts."""
    expert_bytes: int
    """Bytes of all experts together."""
    chosen: float
    """Fraction of the experts that one token uses."""
    notes: tuple[str, ...]

    def read(self, tokens: int) -> int:
        """Bytes that a forward pass of some tokens reads, if they use different experts until all are read."""
        share = min(1.0, self.chosen * tokens)
        return self.read_bytes + round(self.expert_bytes * (share - self.chosen))


def weights_of(model: Any) -> Weights:
    """Count the weights of a model, module by module."""
    tied, chosen = _heads(model), _chosen(model)
    parameters = read = experts = 0
    for _, module in model.named_modules():
        own = own_arrays(module).values()
        size, count = sum(array.nbytes for array in own), own_parameters(module)
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding) and id(module) not in tied:
            read += size // module.weight.shape[0]
        elif isinstance(module, SWITCHED):
            share = min(1.0, chosen / module.num_experts) if chosen else 1.0
            parameters += round(count * share)
            read += round(size * share)
            experts += size
        else:
            parameters += count
            read += size
    count = experts_of(model)
    share = min(1.0, chosen / count) if chosen and count else 1.0
    unknown = "How many experts a token goes through isn't known: all of them are counted."
    return Weights(parameters, read, experts, share, (unknown,) if experts and not chosen else ())


def _chosen(model: Any) -> int | None:
    """Number of experts per token; None if the model's arguments don't contain it."""
    for holder in (model, getattr(model, "language_model", None)):
        args = getattr(holder, "args", None)
        for name in CHOSEN:
            value = getattr(args, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


def _heads(model: Any) -> set[int]:
    """The `id()` of each embedding that is also used to compute the logits. Nothing is evaluated."""
    heads: set[int] = set()

    def noted(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        heads.add(id(module))
        return original(module, *args, **kwargs)

    tables = [
        each for _, each in model.named_modules() if isinstance(each, nn.Embedding | nn.QuantizedEmbedding)
    ]
    with patched(*calls(tables, noted, "as_linear")):
        model(mx.array([[0]]), cache=caches.make_prompt_cache(model))
    return heads


# ---- one forward pass --------------------------------------------------------------------------


def attention_operations(facts: ModelFacts, groups: Sequence[KVGroup], before: int, tokens: int) -> int:
    """Number of attention operations of one forward pass; 0 if the heads are unknown.

    Args:
        facts: The model's heads and their size.
        groups: The model's caches: a layer attends to at most as many tokens as its cache can contain.
        before: Number of cached tokens before the forward pass.
        tokens: Number of tokens of the forward pass.
    """
    attending = [group for group in groups if kind_named(group.kind).attended]
    attended = sum(len(group.layers) * _attended(before, tokens, group.limit) for group in attending)
    return 4 * (facts.heads or 0) * (facts.head_size or 0) * attended


def _attended(before: int, tokens: int, limit: int | None) -> int:
    """Number of (token, attended token) pairs: each token attends to itself and all before it in the window."""
    top = before + tokens
    full = max(0, top - max(before, limit)) if limit is not None else 0
    growing = tokens - full
    return full * (limit or 0) + growing * before + growing * (growing + 1) // 2


# ---- the roofline ------------------------------------------------------------------------------

REPEATS = 7
LEAST_TOKENS, MOST_TOKENS = 16, 256
"""Minimum and maximum number of tokens of the prefill."""
PREFILL_MS = 1000.0
"""Maximum milliseconds of one prefill, estimated as if each token took as long as a decode step; it is faster."""
NO_HEADS = "The attention heads aren't known: the operations of attention are not counted."
NOISY = 1.25
"""Ratio of median to best above which a note is given; it is 1.02 to 1.15 on quiet machines."""
BUSY = (
    "The machine was busy: half of the measurements of {} took {:.1f} times as long as the best or longer. "
    "The figures are of the best; measure again when nothing else runs."
)
ABOVE = (
    "{} reaches {:.1f} times the roof, which was measured twice: what it reads fits into the processor's caches, which "
    "are faster than memory, or other programs slowed those measurements."
)
HOW = (
    "Decode: the forward pass of the next step on a copy of the cache, without sampling, best of {} after a warm-up, "
    "waited for to its end. "
)
HOW_PREFILL = (
    "Prefill: one forward pass of the path's first {} tokens from nothing, with the logits of all, best of {} after a "
    "warm-up. "
)


def measure_roofline(context: Context, command: MeasureRoofline, task: Task) -> Iterator[Record]:
    """Compare prefill and decode with the machine's limits.

    Yields:
        Progress records, then the result.

    Raises:
        StepError: There is no prompt, or no room for one more token.
        Cancelled: The task was cancelled.
    """
    loaded, session, stopped = context.model, measured_session(context), task.cancel.is_set
    begun, model, facts = time.perf_counter(), loaded.model, loaded.facts
    weights = weights_of(model)
    yield Measuring("MeasureRoofline", 0, 4, "decode")
    decode = _decode(loaded, session, weights, stopped)
    yield Measuring("MeasureRoofline", 1, 4, "prefill")
    prefill, repeats = _prefill(loaded, session, weights, decode.ms, stopped)
    yield Measuring("MeasureRoofline", 2, 4, "memory bandwidth")
    bandwidth = memory_bandwidth(stopped)
    yield Measuring("MeasureRoofline", 3, 4, "matrix product")
    matmul = matmul_rate(model, facts, stopped)
    how_prefill = HOW_PREFILL.format(prefill.tokens, repeats) if prefill else ""
    measured = RooflineMeasured(
        node=session.node,
        bandwidth_gbs=bandwidth.value,
        bandwidth_how=bandwidth.how,
        matmul_gflops=matmul.value,
        matmul_how=matmul.how,
        decode=decode,
        prefill=prefill,
        active_parameters=weights.parameters,
        how=HOW.format(REPEATS) + how_prefill + WORK_HOW,
    )
    if any(_above(measured)):  # the machine may have been busy
        yield Measuring("MeasureRoofline", 3, 4, "memory bandwidth and matrix product again")
        bandwidth = max(bandwidth, memory_bandwidth(stopped), key=attrgetter("value"))
        matmul = max(matmul, matmul_rate(model, facts, stopped), key=attrgetter("value"))
        measured = replace(measured, bandwidth_gbs=bandwidth.value, bandwidth_how=bandwidth.how,
                           matmul_gflops=matmul.value, matmul_how=matmul.how)  # fmt: skip
    attends = any(kind_named(name).attended for name in facts.cache_kinds)
    no_heads = attends and not (facts.heads and facts.head_size)
    notes = (
        *weights.notes,
        *((NO_HEADS,) if no_heads else ()),
        *bound(facts),
        *_busy(decode, prefill, bandwidth, matmul),
        *_above(measured),
    )
    yield replace(measured, notes=notes, ms=(time.perf_counter() - begun) * 1000)


def _busy(decode: Work, prefill: Work | None, *rates: Rate) -> Iterator[str]:
    """Note if the machine was busy."""
    spreads = {
        "decode": decode.median_ms / decode.ms,
        "prefill": prefill.median_ms / prefill.ms if prefill else 1.0,
        "the machine's own rates": max(rate.value / rate.median for rate in rates),
    }
    what = max(spreads, key=lambda name: spreads[name])
    if spreads[what] >= NOISY:
        yield BUSY.format(what, spreads[what])


def _above(measured: RooflineMeasured) -> Iterator[str]:
    """Note for each forward pass that is faster than the measured limits allow."""
    for name, forward in (("Decode", measured.decode), ("Prefill", measured.prefill)):
        if forward is not None and (share := measured.share(forward)) > 1:
            yield ABOVE.format(name, share)


def _decode(loaded: Loaded, session: Session, weights: Weights, stopped: Stopped) -> Work:
    """Measure the next step; without a KV cache that is a pass over the complete path."""
    trial, times, read = RepeatedStep(session), list[float](), 0
    for _ in range(REPEATS + 1):
        poll(stopped)
        times.append(timed(trial.forward)[1])
        read = trial.bytes_read()
        trial.undo()
    held = session.tree[session.node].depth
    tokens, before = (1, held) if session.cached else (held + 1, 0)
    return _work(loaded, session, weights, tokens, before, read, times[1:])


def _prefill(
    loaded: Loaded, session: Session, weights: Weights, decode_ms: float, stopped: Stopped
) -> tuple[Work | None, int]:
    """Measure a prefill of the path's first tokens, as many as the time allows; None if that is a single token.

    Returns:
        The measured prefill, and the number of repeats.
    """
    affordable = int(PREFILL_MS / max(decode_ms, 0.01))
    ids = session.tree.tokens(session.node)[: max(LEAST_TOKENS, min(MOST_TOKENS, affordable))]
    if len(ids) < 2:
        return None, 0
    settings = replace(loaded.settings, kv_bits=None, max_kv_size=None, prefill_step_size=None)
    runner = Runner(loaded.model, settings)
    times: list[float] = []
    while len(times) < 2 or (len(times) < 4 and sum(times) < PREFILL_MS):
        poll(stopped)
        times.append(timed(runner.forward_uncached, ids)[1])
    work = _work(loaded, session, weights, len(ids), 0, runner.kv.last_pass[1], times[1:])
    return work, len(times) - 1


def _work(
    loaded: Loaded, session: Session, weights: Weights,
    tokens: int, before: int, kv_bytes: int, times: Sequence[float],
) -> Work:  # fmt: skip
    flops = 2 * weights.parameters * tokens
    flops += attention_operations(loaded.facts, session.kv.reading().groups, before, tokens)
    read = weights.read(tokens)
    return Work(tokens, before + tokens, read, kv_bytes, flops, min(times), statistics.median(times))


# ---- the machine -------------------------------------------------------------------------------


def machine(facts: ModelFacts) -> Machine:
    """This machine, and the versions that matter."""
    from importlib import metadata  # slow to import, and used only here

    return Machine(
        system=f"{platform.system()} {platform.release()}",
        # MLX's name of the device: `Apple M2 Pro`, a GPU or a CPU; on every Mac `platform` says only `arm`
        processor=str(mx.device_info().get("device_name") or platform.machine()),
        cores=os.cpu_count() or 1,
        memory_bytes=memory_installed(),
        python=platform.python_version(),
        mlx=metadata.version("mlx"),
        mlx_lm=metadata.version("mlx-lm"),
        backend=facts.backend,
        blas=facts.blas,
    )


def read_machine(context: Context, command: ReadMachine, task: Task) -> Iterator[Record]:
    """Measure the properties of this machine that a model's numbers depend on."""
    yield MachineRead(
        machine=machine(context.model.facts),
        numpy=np.__version__,
        memory_available=memory_available(),
        memory_for_models=free_bytes(),
        product_error=product_error(),
        product_type=precision("float32"),
        nothing_ms=seconds_of_nothing() * 1000,
        late_token=_reads_a_late_token(),
    )


def _reads_a_late_token() -> bool:
    """True if a lazy graph reads a token that numpy writes into its array after the graph was built.

    `PipelinedForward` needs this. It works if host and device share the array's memory; otherwise the graph reads a
    copy, and a run would continue with the previous token.
    """
    slot, table = mx.zeros((1, 1), dtype=mx.int32), mx.arange(8)
    mx.eval(slot, table)
    token = np.array(slot, copy=False)
    for expected in (3, 5):
        built = table[slot] * 2
        token[0, 0] = expected
        mx.async_eval(built)
        if np.array(built)[0, 0] != 2 * expected:
            return False
    return True

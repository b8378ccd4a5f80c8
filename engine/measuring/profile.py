"""The fenced profile of one step: the time of its parts without overlap, and of the step without fences.

A fence itself takes time and keeps MLX from overlapping two parts. So the parts are compared with their own sum, and
that sum with the step without fences; both are measured alternately in the same call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import itemgetter
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.cache.kinds import arrays
from engine.errors import PathError, SettingsError, StepError, first_line
from engine.files import free, typed
from engine.model.forward import Runner
from engine.model.layers import calls, decoder_layers, is_stack, parts_of, patched, role_of
from engine.protocol import (
    CaptureMetal,
    Measuring,
    MetalCaptured,
    Profile,
    Profiled,
    ProfilePart,
    Record,
    Role,
)
from engine.sampling.ranking import Row
from engine.session.context import Context
from engine.session.session import Session
from engine.task import Task, poll


def measured_session(context: Context) -> Session:
    """The session, if its current node was computed without interventions. Measurements use separate caches, so that
    it doesn't change.

    Raises:
        StepError: No model is loaded, or the node was computed under interventions.
    """
    session = context.session
    session.interventions.refuse(session.node, "measurements are")
    return session


def timed(forward: Callable[..., Row], *given: Any) -> tuple[Row, float]:
    """The logits of a forward pass with these arguments, and its milliseconds."""
    begun = time.perf_counter()
    row = forward(*given)
    return row, (time.perf_counter() - begun) * 1000


class RepeatedStep:
    """One step on a copy of the live cache, which is only read.

    MLX copies the arrays when the first step writes to them: the copy takes as much memory as the cache has allocated,
    and the time of the first step must be discarded.

    Args:
        session: The session; the step begins at its current node.

    Raises:
        StepError: There is no prompt, or no room for one more token.
    """

    def __init__(self, session: Session) -> None:
        session.prepare_step()
        self._session = session
        self.token = session.next.picked
        """The token that the step runs."""
        self._path = session.tree.tokens(session.node)
        self._runner: Runner = session.runner.copy()
        self.copies = session.cached and session.kv.without_snapshots() is not None
        """True if every step copies the cache, which adds to its time."""

    def forward(self) -> Row:
        """Run the token over the cache, or, in a session without a cache, the complete path with it."""
        if not self._session.cached:
            return self._runner.forward_uncached([*self._path, self.token])
        return self._runner.forward(self.token)

    def pending(self) -> list[mx.array]:
        """States that the logits don't depend on; see `KV.pending`."""
        return self._runner.kv.pending()

    def bytes_read(self) -> int:
        """Bytes of keys, values and states that the step read, including its own; call it before `undo`."""
        kv = self._runner.kv
        return kv.reading().used_bytes if self._session.cached else kv.last_pass[1]

    def undo(self) -> None:
        """Remove the token from the cache, so that the next step is the same."""
        if not self._session.cached:
            return
        runner, offset = self._runner, self._session.kv.offset
        if not self.copies and runner.undo is not None:
            runner.kv.undo([runner.undo])
        elif not self.copies:
            runner.kv.rewind(offset)
        if self.copies or runner.kv.offset != offset:  # undo fails if mlx_lm quantized at this token
            self._runner = self._session.runner.copy()


# ---- one step recorded by Metal ----------------------------------------------------------------

METAL_SUFFIX = ".gputrace"
"""Suffix of the files that Xcode opens."""


def capture_metal(context: Context, command: CaptureMetal, task: Task) -> Iterator[Record]:
    """Record the next step with Metal.

    Raises:
        StepError: There is no prompt, no room for one more token, or no Metal.
        PathError: The file can't be written, or Metal refuses because the process was not started for captures.
    """
    session, path = measured_session(context), typed(command.path)
    if not mx.metal.is_available():
        raise StepError("This MLX has no Metal: no step can be captured.", "Capture one on a Mac.")
    if path.suffix != METAL_SUFFIX:
        raise PathError(
            f"A Metal capture is a file whose name ends with {METAL_SUFFIX}.",
            f"Give {path.stem}{METAL_SUFFIX}.",
        )
    step = RepeatedStep(session)
    step.forward()  # the first step creates shaders and buffers
    step.undo()
    try:
        mx.metal.start_capture(str(free(path, force=False)))
    except (RuntimeError, ValueError) as error:
        hint = "MTL_CAPTURE_ENABLED=1 has to be set when the program starts."
        raise PathError(f"Metal can't capture the step: {first_line(str(error))}", hint) from error
    begun = time.perf_counter()
    try:
        step.forward()
        mx.eval(step.pending())
    finally:
        mx.metal.stop_capture()
    yield MetalCaptured(str(path), (time.perf_counter() - begun) * 1000)


# ---- times of a model's parts ------------------------------------------------------------------
# The parts are the decoder layers and their direct children (`engine.model.layers`), and each module outside the layers
# that has no submodules.
#
# Python looks up a module's call in its class, so the classes are patched while the fences are installed.


FencedPlace = tuple[str, Role, int | None]
"""A part's path in the model, its role, and its layer."""
Times = dict[FencedPlace, float]
"""Milliseconds of each part, without the parts inside it, in the order in which they end."""


def places(model: Any, vocabulary: int) -> dict[int, FencedPlace]:
    """The parts of a model by the `id()` of their modules.

    Args:
        model: The model as mlx_lm loads it.
        vocabulary: Number of rows of its embedding: a projection to that size is the head.
    """
    names = {id(module): name for name, module in model.named_modules()}
    parts: dict[int, FencedPlace] = {}
    inside: set[int] = set()
    for index, layer in enumerate(decoder_layers(model)):
        inside |= {id(module) for _, module in layer.named_modules()}
        path = names.get(id(layer), f"layers.{index}")
        parts[id(layer)] = path, "residual", index
        for attribute, child in parts_of(layer):
            parts[id(child)] = f"{path}.{attribute}", role_of(child, attribute), index
    for name, module in model.named_modules():
        children = module.children().values()
        holds_modules = any(isinstance(child, nn.Module) or is_stack(child) for child in children)
        if name and id(module) not in inside and not holds_modules:
            parts[id(module)] = name, _outer_role(module, name.split(".")[-1], vocabulary), None
    return parts


def _outer_role(module: Any, attribute: str, vocabulary: int) -> Role:
    if isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
        return "embedding"
    weight = getattr(module, "weight", None)
    if isinstance(weight, mx.array) and weight.ndim == 2 and weight.shape[0] == vocabulary:
        return "head"
    role = role_of(module, attribute)
    return role if role == "norm" else "other"


@contextmanager
def fences(
    model: Any, places: Mapping[int, FencedPlace], pending: Callable[[], list[mx.array]]
) -> Iterator[Times]:
    """Install fences around a model's parts; they are removed on exit, also after an exception.

    Args:
        model: The model as mlx_lm loads it.
        places: Its parts, by the `id()` of their modules.
        pending: Returns arrays of a part that its result doesn't depend on, such as recurrent states.

    Yields:
        The times of the parts, updated while they run.
    """
    times: Times = {}
    inner: list[float] = []
    """Milliseconds spent inside each running part, outermost first."""

    def fenced(place: FencedPlace, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        mx.eval(list(_arrays((args, kwargs))))
        inner.append(0.0)
        begun = time.perf_counter()
        result = original(module, *args, **kwargs)
        mx.eval([*_arrays(result), *pending()])
        ms = (time.perf_counter() - begun) * 1000
        own = ms - inner.pop()
        if inner:
            inner[-1] += ms
        times[place] = times.get(place, 0.0) + own
        return result

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        return fenced(places[id(module)], original, module, args, kwargs)

    def as_linear(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        # tied weights: the embedding is also the head
        path, *_ = places[id(module)]
        return fenced((f"{path}.as_linear", "head", None), original, module, args, kwargs)

    parts = [module for _, module in model.named_modules() if id(module) in places]
    tied = [module for module in parts if hasattr(module, "as_linear")]
    with patched(*calls(parts, call), *calls(tied, as_linear, "as_linear")):
        yield times


def _arrays(value: Any) -> Iterator[mx.array]:
    """The arrays in a module's inputs or outputs."""
    if isinstance(value, dict) and not isinstance(value, nn.Module):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
    else:
        yield from arrays(value)


# ---- the profile -------------------------------------------------------------------------------

WARM_UP = 2
"""Number of rounds that are not counted: the first copies the cache and may grow it."""
HOW = (
    "Part by part: the input of each part is evaluated before it starts, its output before it ends; mean of the {}"
    " middle ones of {} repeats after {} rounds of warm-up. The whole step took turns with it. Both are the"
    " forward pass, the sampler and the token's text, without the inspector's own readings, on a copy of the KV cache."
)
COPIED = " The kind of cache can't take a token off again, so each step copies it: the attention's share is too large."
UNCACHED = " There is no KV cache: the step runs the whole path."


def profile(context: Context, command: Profile, task: Task) -> Iterator[Record]:
    """Measure the parts of the next step.

    Yields:
        A progress record before each round, then the profile.

    Raises:
        SettingsError: There are no repeats.
        StepError: There is no prompt, or no room for one more token.
        Cancelled: The task was cancelled.
    """
    model, session, repeats = context.model.model, measured_session(context), command.repeats
    if repeats < 1:
        raise SettingsError("repeats", f"The repeats must be a whole number of at least 1, not {repeats}.")
    trial = RepeatedStep(session)
    parts = places(model, session.facts.vocabulary)
    fenced: list[tuple[float, Times]] = []
    plain: list[tuple[float, Times]] = []
    for turn in range(WARM_UP + repeats):
        yield Measuring("Profile", turn, WARM_UP + repeats, "warm-up" if turn < WARM_UP else "one step")
        for rounds in ((fenced, plain), (plain, fenced))[turn % 2]:
            poll(task.cancel.is_set)
            fenced_or_not: AbstractContextManager[Times] = (
                fences(model, parts, trial.pending) if rounds is fenced else nullcontext({})
            )
            with fenced_or_not as times:
                rounds.append((_timed_step(session, trial, times), times))
    middle = _middle(fenced[WARM_UP:])
    how = HOW.format(len(middle), repeats, WARM_UP) + (COPIED if trial.copies else "")
    yield Profiled(
        node=session.node,
        tokens=session.tree[session.node].depth,
        repeats=repeats,
        parts=tuple(
            ProfilePart(*place, statistics.fmean(times.get(place, 0.0) for _, times in middle))
            for place in fenced[WARM_UP][1]
        ),
        fenced_ms=statistics.fmean(total for total, _ in middle),
        unfenced_ms=statistics.fmean(total for total, _ in _middle(plain[WARM_UP:])),
        how=how + ("" if session.cached else UNCACHED),
    )


def _timed_step(session: Session, trial: RepeatedStep, times: Times) -> float:
    """Run one step: the forward pass, the draw of the next token, and that token's text.

    Args:
        session: The session.
        trial: The step; it is undone afterwards.
        times: Receives the milliseconds of the draw and the text.

    Returns:
        Milliseconds of the step.
    """
    begun = time.perf_counter()
    row = trial.forward()
    ran = time.perf_counter()
    node_logits = session.node_reader.sample(session.node, row, session.settings)
    drawn = time.perf_counter()
    session.tokens.text(node_logits.sampled.picked, session.pending.get(session.node, b""))
    ended = time.perf_counter()
    times["sampling", "sampling", None] = (drawn - ran) * 1000
    times["detokenizing", "detokenizing", None] = (ended - drawn) * 1000
    trial.undo()
    return (ended - begun) * 1000


def _middle(rounds: Sequence[tuple[float, Times]]) -> Sequence[tuple[float, Times]]:
    """The middle half of the rounds by total, at least one: as stable as a median, with parts that add up."""
    ordered, cut = sorted(rounds, key=itemgetter(0)), len(rounds) // 4
    return ordered[cut : len(ordered) - cut]

"""The modules of a model in the order in which a token goes through them, with equal layers in one entry; and for one
token the experts that it went through, with their weights, and the states of recurrent layers after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import cache as caches
from msgspec import Struct, field
from msgspec.structs import replace

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.inside.taps import flat_caches, fused_attention, softmax, unit_of
from engine.inside.view import Capture, capture, layer_check, runner_before
from engine.inside.wiring import CLOSE, CLOSE_LESS, PartVectors, Vector, joined, mlp_facts, vector
from engine.model.facts import SWITCHED, dtype_of, experts_of, is_packed, own_arrays, own_parameters
from engine.model.layers import Patch, calls, decoder_layers, hidden, kept, patched, role_of
from engine.protocol import (
    NEITHER,
    Check,
    ExpertFacts,
    ExpertLayer,
    ExpertsRead,
    HeadFacts,
    LayerBlock,
    LayerSum,
    MlpFacts,
    ModelModules,
    ModulePart,
    NormFacts,
    ReadExperts,
    ReadModules,
    Record,
    Role,
    RopeFacts,
    StateArray,
    WeightArray,
)
from engine.session.session import Session
from engine.task import Stopped, never


def read_modules(session: Session, command: ReadModules, stopped: Stopped = never) -> Iterator[Record]:
    """Run one token through the model, on new caches, and describe its modules."""
    model = session.runner.model
    observed = ObservedForward(model)
    observed.run()
    yield _Reader(model, observed).read(session.facts.path)


class _Reader:
    """Makes the record of an observed forward pass."""

    def __init__(self, model: Any, observed: ObservedForward) -> None:
        self._model, self._observed = model, observed
        # products of one token are summed in float32, even if those of several rows use TF32
        dtype = dtype_of(model)
        self._close, self._unit = CLOSE if dtype == "float32" else CLOSE_LESS, unit_of(getattr(mx, dtype))
        self._layers = decoder_layers(model)
        self._numbers = {id(layer): index for index, layer in enumerate(self._layers)}
        self._met: set[int] = set()

    def read(self, name: str) -> ModelModules:
        """Return the record; `name` is `ModelFacts.path`."""
        root = self._tree("", self._model)
        nodes = {id(node.module): node for node in root.walk()}
        layers = [nodes[id(layer)] for layer in self._layers if id(layer) in nodes]
        blocks = self._blocks(layers)
        inside = {id(node) for layer in layers for node in layer.walk()}
        outside = [
            (node.first, self._part(node, "", 0, alone=True))
            for node in sorted(root.walk(), key=attrgetter("first"))
            if id(node) not in inside and own_arrays(node.module)
        ]
        first = min((node.first for node in layers), default=NEVER)
        parts = [part for _, part in outside]
        logits = self._observed.logits
        assert logits is not None
        given = (self._observed.of(layer).input for layer in self._layers)
        return ModelModules(
            name,
            sum(part.parameters for part in parts) + sum(block.parameters for block in blocks),
            sum(part.bytes for part in parts) + sum(block.bytes for block in blocks),
            tuple(part for order, part in outside if order < first),
            blocks,
            tuple(part for order, part in outside if first < order < NEVER),
            tuple(part for order, part in outside if order == NEVER),
            self._head_path(parts, logits.shape[-1]),
            logits.shape[-1],
            next((int(array.shape[-1]) for array in given if array is not None), 0),
        )

    def _head_path(self, parts: Sequence[ModulePart], vocabulary: int) -> str:
        """The path of the module that computes the logits: the last with an output of the vocabulary's size, or an
        embedding that is used as the head."""
        made = [part for part in parts if part.returned[-1:] == (vocabulary,) and part.role != "embedding"]
        if made:
            return made[-1].path
        tables = {
            id(module): path for path, module in self._model.named_modules() if isinstance(module, EMBEDDINGS)
        }
        return next((path for each, path in tables.items() if each in self._observed.linear), "")

    def _tree(self, path: str, module: Any) -> ModuleCalls:
        """A module with its submodules, in the order of their first calls; one referenced twice appears once."""
        self._met.add(id(module))
        node = self._observed.of(module)
        node.path = path
        for name, child in _children(module):
            if id(child) not in self._met:
                node.children.append(self._tree(f"{path}.{name}".lstrip("."), child))
        node.children.sort(key=attrgetter("first"))
        node.first = min([node.order, *(child.first for child in node.children)])
        return node

    # ---- layers ---------------------------------------------------------------------------------

    def _blocks(self, layers: Sequence[ModuleCalls]) -> tuple[LayerBlock, ...]:
        """The layers, with equal ones in one block."""
        blocks: dict[Any, LayerBlock] = {}
        for block in _completed([self._block(node) for node in layers]):
            key = block.prefix, block.parts, block.sums
            known = blocks.setdefault(key, block)
            if known is not block:
                blocks[key] = replace(known, layers=known.layers + block.layers)
        return tuple(blocks.values())

    def _block(self, node: ModuleCalls) -> LayerBlock:
        reads, sums = self._wiring(node)
        parts = (replace(part, reads=reads.get(part.path, "")) for part in self._parts(node, node.path, 0))
        prefix = node.path.rpartition(".")[0]
        return LayerBlock((self._numbers[id(node.module)],), prefix, tuple(parts), sums)

    def _parts(self, node: ModuleCalls, root: str, depth: int) -> Iterator[ModulePart]:
        part = self._part(node, root, depth)
        if part.parameters or part.rope or part.norm or not depth:
            yield part
            for child in node.children:
                yield from self._parts(child, root, depth + 1)

    def _wiring(self, layer: ModuleCalls) -> tuple[dict[str, str], tuple[LayerSum, ...]]:
        """The inputs of a layer's parts, and its sums; see `joined`."""
        if layer.input is None or layer.output is None:
            return {}, ()
        known: list[tuple[mx.array | None, Vector]] = []

        def numbers(array: mx.array | None, values: mx.array) -> Vector:
            """The vector of an array: the same object whenever it is passed on, unless it was changed in place."""
            found = vector(values)
            for other, vector_of_other in known:
                if other is array and np.array_equal(vector_of_other, found):
                    return vector_of_other
            known.append((array, found))
            return found

        stream, parts = numbers(layer.input_array, layer.input), []
        for part in layer.children:
            if part.input is not None and part.output is not None and part.input.ndim:
                given, returned = (
                    numbers(part.input_array, part.input),
                    numbers(part.output_array, part.output),
                )
                parts.append(PartVectors(_below(part.path, layer.path), given, returned))
        return joined(stream, numbers(layer.output_array, layer.output), parts, self._unit)

    # ---- one module -----------------------------------------------------------------------------

    def _part(self, node: ModuleCalls, root: str, depth: int, alone: bool = False) -> ModulePart:
        """The facts of a module.

        Args:
            node: The module.
            root: Path that the part's path is relative to.
            depth: Depth of the part below it.
            alone: True to count only the module's own weights.
        """
        module, role = node.module, self._role(node)
        inner = [node] if alone else list(node.walk())
        return ModulePart(
            _below(node.path, root),
            depth,
            type(module).__name__,
            role,
            tuple(_array(module, name, array) for name, array in own_arrays(module).items()),
            sum(own_parameters(each.module) for each in inner),
            sum(array.nbytes for each in inner for array in own_arrays(each.module).values()),
            node.runs,
            tuple(node.input.shape) if node.input is not None else (),
            tuple(node.output.shape) if node.output is not None else (),
            heads=node.heads,
            rope=self._rope(node),
            norm=node.norm if not node.children else None,
            mlp=self._mlp(node, role),
            experts=_experts(node),
        )

    def _role(self, node: ModuleCalls) -> Role:
        if isinstance(node.module, EMBEDDINGS):
            return "embedding"
        if node.heads is not None:
            return "attention"
        if node.norm is not None and not node.children:
            return "norm"
        role = role_of(node.module, node.path.rpartition(".")[2])
        return "other" if isinstance(node.module, nn.Linear | nn.QuantizedLinear) else role

    def _rope(self, node: ModuleCalls) -> RopeFacts | None:
        """The rotation. A table of frequencies doesn't show its base, which is taken from the model's arguments."""
        if node.rope is None or node.rope.base is not None:
            return node.rope
        for holder in (self._model, getattr(self._model, "language_model", None)):
            base = getattr(getattr(holder, "args", None), "rope_theta", None)
            if isinstance(base, int | float):
                return replace(node.rope, base=float(base))
        return node.rope

    def _mlp(self, node: ModuleCalls, role: Role) -> MlpFacts | None:
        """The facts of an MLP: its last matrix reads an activation of the other matrices' outputs."""
        if role in ("attention", "recurrence") or any(child.children for child in node.children):
            return None
        runs = [
            child
            for child in node.children
            if own_arrays(child.module) and child.input is not None and child.output is not None
        ]
        last = runs[-1].input if len(runs) >= 2 else None
        if last is None or not last.ndim:
            return None
        outputs = [vector(run.output) for run in runs[:-1] if run.output is not None]
        facts = mlp_facts(outputs, vector(last), self._close)
        return facts if facts is not None and (facts.activation or role == "mlp") else None


def _completed(layers: list[LayerBlock]) -> list[LayerBlock]:
    """The layers; an unknown activation is taken from layers that are otherwise equal.

    In bfloat16 one token's numbers may be too coarse to tell SiLU from GELU in one layer, but not in the next.
    """

    def without_activation(parts: tuple[ModulePart, ...]) -> tuple[ModulePart, ...]:
        return tuple(replace(part, mlp=part.mlp and replace(part.mlp, activation="")) for part in parts)

    known: dict[tuple[ModulePart, ...], set[tuple[ModulePart, ...]]] = {}
    for layer in layers:
        if layer.parts != (bare := without_activation(layer.parts)):
            known.setdefault(bare, set()).add(layer.parts)
    complete = {bare: next(iter(parts)) for bare, parts in known.items() if len(parts) == 1}
    return [replace(layer, parts=complete.get(layer.parts, layer.parts)) for layer in layers]


def _children(module: Any) -> Iterator[tuple[str, Any]]:
    """The direct submodules of a module, with those in lists, tuples and dicts."""

    def inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, nn.Module):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in pairs:
                yield from inside(f"{name}.{key}", item)

    for name, value in module.children().items():
        yield from inside(name, value)


def _below(path: str, root: str) -> str:
    return path[len(root) :].lstrip(".") if root else path


def _experts(node: ModuleCalls) -> ExpertFacts | None:
    """The number of experts and of chosen ones, for a module that is called with the indices of the chosen experts."""
    if node.indices is None:
        return None
    counts = [child.module.num_experts for child in node.children if isinstance(child.module, SWITCHED)]
    return ExpertFacts(int(max(counts)), int(node.indices.shape[-1])) if counts else None


def _array(module: Any, name: str, array: mx.array) -> WeightArray:
    dtype = str(array.dtype).removeprefix("mlx.core.")
    if name != "weight" or not is_packed(module):
        return WeightArray(name, tuple(array.shape), dtype, array.nbytes)
    shape = (*array.shape[:-1], array.shape[-1] * 32 // module.bits)
    quantization = module.bits, module.group_size, getattr(module, "mode", "affine")
    return WeightArray(name, shape, dtype, array.nbytes, *quantization)


# ---- one forward pass of one token, observed ---------------------------------------------------
# A module's role is derived from what it computes, since names and configs differ from family to family: the number of
# heads is read from the queries and keys, RoPE's base from the call of the rotation, and so on.

EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)
NEVER = 1 << 30
"""Order of a module that wasn't called."""
rope = mx.fast.rope
rms_norm, layer_norm = mx.fast.rms_norm, mx.fast.layer_norm


class ModuleCalls(Struct):
    """A module, its calls, and its submodules."""

    module: Any
    order: int
    """Place of its first call among the first calls of all modules."""
    runs: int = 0
    input: mx.array | None = None
    """Copy of the first array argument of its first call: some modules change that array later."""
    output: mx.array | None = None
    """Copy of the array that this call returned."""
    input_array: mx.array | None = None
    """The argument itself, to recognize it if another part returned it or is also given it."""
    output_array: mx.array | None = None
    """The returned array itself."""
    indices: mx.array | None = None
    """The first array of integers among the later arguments: a mixture's chosen experts."""
    heads: HeadFacts | None = None
    rope: RopeFacts | None = None
    norm: NormFacts | None = None
    path: str = ""
    first: int = NEVER
    """Place of the first call of it or of one of its submodules."""
    children: list[ModuleCalls] = field(default_factory=list)
    """Its submodules, in the order of their first calls."""

    def walk(self) -> Iterator[ModuleCalls]:
        """The module and all submodules at every depth."""
        yield self
        for child in self.children:
            yield from child.walk()


class ObservedForward(Struct):
    """A forward pass of token 0 on new caches, as `run` observes it.

    Args:
        model: The model as mlx_lm loads it; not changed.
    """

    model: Any
    seen: dict[int, ModuleCalls] = field(default_factory=dict)
    """Calls of each module, by its `id()`."""
    linear: set[int] = field(default_factory=set)
    """`id()` of the embeddings that were used as the head, by `as_linear`."""
    logits: mx.array | None = None
    _stack: list[Any] = field(default_factory=list)
    _window: int | None = None
    """Window of the cache that was read last."""

    def run(self) -> None:
        cache = caches.make_prompt_cache(self.model)
        modules = list({id(each): each for _, each in self.model.named_modules() if _callable(each)}.values())
        tables = [module for module in modules if isinstance(module, EMBEDDINGS)]
        patches: list[Patch] = [
            *calls(modules, self._call),
            *calls(tables, self._as_linear, "as_linear"),
            *calls(list(flat_caches(cache, "update_and_fetch")), self._fetch, "update_and_fetch"),
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (mx, "softmax", self._softmax),
            (mx.fast, "rope", self._rope),
            (mx.fast, "rms_norm", self._rms_norm),
            (mx.fast, "layer_norm", self._layer_norm),
        ]
        with patched(*patches):
            self.logits = self.model(mx.array([[0]]), cache=cache)
        mx.eval(self.logits)

    def of(self, module: Any) -> ModuleCalls:
        """The calls of a module; one that wasn't called comes last."""
        return self.seen.get(id(module)) or ModuleCalls(module, NEVER)

    def _now(self, module: Any) -> ModuleCalls:
        return self.seen.setdefault(id(module), ModuleCalls(module, len(self.seen)))

    def _call(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        seen = self._now(module)
        first = seen.runs == 0
        seen.runs += 1
        if first:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, mx.array)]
            seen.input_array = given[0] if given else None
            seen.input = kept(given[0]) if given else None
            integers = (value for value in given[1:] if mx.issubdtype(value.dtype, mx.integer) and value.ndim)
            seen.indices = next(integers, None)
        self._stack.append(module)
        try:
            result = original(module, *args, **kwargs)
        finally:
            self._stack.pop()
        if first and result is not None and isinstance(hidden(result), mx.array):
            seen.output_array, seen.output = hidden(result), kept(hidden(result))
        return result

    def _as_linear(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        self.linear.add(id(module))
        return original(module, *args, **kwargs)

    def _fetch(self, original: Any, cache: Any, args: Any, kwargs: Any) -> Any:
        self._window = kind_of(cache).read(cache)[2]
        return original(cache, *args, **kwargs)

    def _fused(self, q: mx.array, k: mx.array, v: mx.array, **more: Any) -> mx.array:
        if self._stack:
            sinks = more.get("sinks") is not None
            sizes = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
            self._now(self._stack[-1]).heads = HeadFacts(*sizes, self._window, sinks)
        return fused_attention(q, k, v, **more)

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        """Count the heads of an attention in the model's own code: its softmax has the shape (rows, heads, queries,
        keys), or the heads in groups."""
        if self._stack and x.ndim >= 4 and (seen := self._now(self._stack[-1])).heads is None:
            seen.heads = HeadFacts(math.prod(x.shape[1:-2]), 0, 0, 0, self._window)
        return softmax(x, *args, **kwargs)

    def _rope(self, *args: Any, **how: Any) -> mx.array:
        if self._stack:
            dims = args[1] if len(args) > 1 else how["dims"]
            self._now(self._stack[-1]).rope = _rope_facts(dims, self._stack[-1], how)
        return rope(*args, **how)

    def _rms_norm(self, x: mx.array, weight: Any, eps: float, **more: Any) -> mx.array:
        self._norm("RMSNorm", eps)
        return rms_norm(x, weight, eps, **more)

    def _layer_norm(self, x: mx.array, weight: Any, bias: Any, eps: float, **more: Any) -> mx.array:
        self._norm("LayerNorm", eps)
        return layer_norm(x, weight, bias, eps, **more)

    def _norm(self, kind: str, eps: float) -> None:
        if self._stack:
            self._now(self._stack[-1]).norm = NormFacts(kind, eps)


def _callable(module: Any) -> bool:
    """True if its class defines `__call__`: otherwise a patch would change `type`."""
    return any("__call__" in vars(cls) for cls in type(module).__mro__)


def _rope_facts(dims: int, module: Any, how: dict[str, Any]) -> RopeFacts:
    """The facts of a call of MLX's rotation.

    Args:
        dims: Number of dimensions of each head that are rotated.
        module: Module that calls it, which may store the base that its table was made from.
        how: The other arguments.
    """
    theta, scale, table = how.get("base"), float(how.get("scale", 1.0)), how.get("freqs")
    if table is not None:
        periods = np.array(table.astype(mx.float32))
        longest = float(periods.max()) * 2 * math.pi / scale
        known = getattr(module, "base", None)
        theta = float(known) if isinstance(known, int | float) else None
    else:
        longest = 2 * math.pi * float(theta or 1.0) ** ((dims - 2) / dims) / scale
    slowest = longest if math.isfinite(longest) else None
    return RopeFacts(int(dims), None if theta is None else float(theta), scale, slowest, table is not None)


# ---- the experts that one token went through, and the states of recurrent layers after it ------
# Routers are not read, since their names and formulas differ from family to family. A mixture passes the indices of the
# chosen experts to mlx_lm's switched matrices, and that call is tapped. The weight of each expert's output is read by
# running the mixture again with outputs that are 0 except for one number each. As a check, the sum of the experts' own
# outputs with these weights must be what the mixture returned.

MARK = 256.0
"""The number in an expert's output when its weight is read; large, so that the rounding of the mixture's other parts,
such as a shared expert, is small beside it."""


class MixtureRun(Struct):
    """A mixture of experts in the forward pass of one token."""

    layer: int
    path: str
    experts: int
    chosen: list[int]
    outputs: mx.array
    """Outputs of the chosen experts, shape (chosen, size)."""
    weights: list[float] = field(default_factory=list)
    error: float | None = None
    """Largest difference of the outputs' weighted sum from the mixture's result, for each number as a share of the sum
    of its terms' absolute values."""


def read_experts(session: Session, command: ReadExperts, stopped: Stopped = never) -> Iterator[Record]:
    """Run a token again, and read the experts that it went through and the states of recurrent layers after it.

    Raises:
        StepError: There is no such node, or it is the root; the model has neither experts nor recurrent layers.
        Cancelled: `stopped` returned True.
    """
    runs: list[MixtureRun] = []
    captured = capture(session, command.node, also=_mixture_taps(session.runner.model, runs), stopped=stopped)
    layers = tuple(_layer(run, captured.bound) for run in runs)
    states = tuple(_states(session, captured, stopped))
    mixes = experts_of(session.runner.model) > 0
    if not (mixes or states):
        raise StepError(NEITHER, "Look at its modules instead: they show what it is made of.")
    missing = tuple(_missing(mixes, layers, states))
    read = [(layer.error, layer.layer) for layer in layers if layer.weights and layer.error is not None]
    checks: list[Check] = [layer_check("experts", max(read)[0], captured.bound, max(read)[1])] if read else []
    yield ExpertsRead(command.node, layers, states, missing, captured.facts(*checks))


# ---- mixtures ----------------------------------------------------------------------------------


def _mixture_taps(model: Any, runs: list[MixtureRun]) -> list[Patch]:
    """Patches that record each mixture's run in `runs`, with the weights of the chosen experts.

    The switched matrices of a mixture are in one module, which is a child of the mixture that weighs their outputs.
    """
    # the layer, path and number of experts of each group of matrices
    known: dict[int, tuple[int, str, int]] = {}
    groups, holders = [], []
    for index, layer in enumerate(decoder_layers(model)):
        named = list(layer.named_modules())
        for path, module in named:
            own = [child for child in module.children().values() if isinstance(child, SWITCHED)]
            if own:
                known[id(module)] = index, path, max(child.num_experts for child in own)
                groups.append(module)
        above = {path.rpartition(".")[0] for path, module in named if id(module) in known}
        holders += [module for path, module in named if path and path in above]
    replacement: mx.array | None = None

    def switch(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if replacement is not None:
            return replacement
        result = original(module, *args, **kwargs)
        arrays = [value for value in (*args, *kwargs.values()) if isinstance(value, mx.array)]
        indices = next((value for value in arrays if mx.issubdtype(value.dtype, mx.integer)), None)
        if indices is not None and indices.size == indices.shape[-1]:  # a single token
            chosen = [int(number) for number in np.array(indices.reshape(-1))]
            runs.append(MixtureRun(*known[id(module)], chosen, result))
        return result

    def hold(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        def with_outputs(outputs: mx.array) -> Any:
            nonlocal replacement
            replacement = outputs
            try:
                return original(module, *args, **kwargs)
            finally:
                replacement = None

        count = len(runs)
        result = original(module, *args, **kwargs)
        for run in runs[count:]:
            _read_weights(run, with_outputs, result)
        return result

    return [*calls(groups, switch), *calls(holders, hold)]


def _read_weights(run: MixtureRun, with_outputs: Callable[[mx.array], Any], result: Any) -> None:
    """Read the weights of the chosen experts, if the mixture is a weighted sum of their outputs.

    Args:
        run: The mixture's run; its weights and error are set.
        with_outputs: Runs the mixture again with other outputs of the experts.
        result: The mixture's result.
    """
    outputs, count = run.outputs, len(run.chosen)
    if outputs.shape[-2:-1] != (count,) or outputs.shape[-1] < count:
        return
    if not isinstance(hidden(result), mx.array):
        return
    marks = MARK * mx.eye(count, outputs.shape[-1])
    rest, marked = (
        hidden(with_outputs((marks * on).reshape(outputs.shape).astype(outputs.dtype))) for on in (0, 1)
    )
    if hidden(result).size != outputs.shape[-1]:
        return
    made, without, one = (_numbers(each) for each in (hidden(result), rest, marked))
    weights = (one - without)[:count] / MARK
    terms = [*(weights[:, None] * _numbers(outputs).reshape(count, -1)), without]
    sizes = np.maximum(np.abs(terms).sum(axis=0), np.abs(made))
    run.error = float((np.abs(np.sum(terms, axis=0) - made) / np.maximum(sizes, 1e-9)).max())
    run.weights = [float(weight) for weight in weights]


def _layer(run: MixtureRun, bound: float) -> ExpertLayer:
    chosen, weights = tuple(run.chosen), ()
    if run.error is not None and run.error <= bound:
        ordered = sorted(zip(run.weights, run.chosen, strict=True), key=lambda pair: (-pair[0], pair[1]))
        weights, chosen = zip(*ordered, strict=True)
    return ExpertLayer(run.layer, run.path, run.experts, chosen, weights, run.error)


def _numbers(array: mx.array) -> Vector:
    return np.array(array.astype(mx.float32), dtype=np.float64).reshape(-1)


# ---- recurrent layers ---------------------------------------------------------------------------


def _states(session: Session, captured: Capture, stopped: Stopped) -> Iterator[StateArray]:
    """The arrays of the recurrent caches after the token, with those before it."""
    after = list(flat_caches(captured.taps[-1].caches))
    if all(kind_of(cache).attended for cache in after):
        return
    layers = {  # not every layer has a cache
        id(cache): number
        for number, run in captured.taps[-1].layers.items()
        for value in (*run.args, *run.kwargs.values())
        for cache in flat_caches([value])
    }
    before = list(flat_caches(runner_before(session, captured.node, stopped)[0].kv.caches))
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        if kind_of(other).attended:
            continue
        earlier = [_numbers(array) for array in kind_of(one).buffers(one)]
        for place, array in enumerate(kind_of(other).buffers(other)):
            numbers = _numbers(array)
            was = earlier[place] if place < len(earlier) else np.zeros(0)
            was = was if was.shape == numbers.shape else np.zeros_like(numbers)
            norm, old = float(np.linalg.norm(numbers)), float(np.linalg.norm(was))
            changed = float(np.linalg.norm(numbers - was)) / old if old else None
            dtype = str(array.dtype).removeprefix("mlx.core.")
            layer = layers.get(id(other), index)
            yield StateArray(layer, tuple(array.shape), dtype, array.nbytes, norm, old, changed)


def _missing(mixes: bool, layers: tuple[ExpertLayer, ...], states: tuple[StateArray, ...]) -> Iterator[str]:
    """Sentences about weights, experts and states that can't be shown."""
    lacking = [layer for layer in layers if not layer.weights]
    if lacking:
        error = max((layer.error for layer in lacking if layer.error is not None), default=None)
        why = "the mixture is not a plain sum of its experts"
        if error is not None:
            why = f"their outputs under the weights that were read are off by {error:.2g}"
        count = "1 layer" if len(lacking) == 1 else f"{len(lacking)} layers"
        yield f"The weights of {count} are not known: {why}."
    if mixes and not layers:
        yield "The chosen experts are not known: this model calls them in its own way."
    if states:
        yield (
            "A recurrent layer has no weights over earlier tokens: its state mixes them all, and does "
            "not show which token a number came from."
        )

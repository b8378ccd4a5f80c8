"""What a forward must read and compute, by formula: the estimates of the roofline, which are labelled as such.

- **Operations**: 2 for each parameter that takes part and each token, and for attention 4 x heads x head size for each
  layer, token and token attended to (queries by keys, weights by values; a multiplication and an addition each). This
  is the count of PaLM (Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T for forward and backward) without its
  backward two thirds. Softmax, norms and the arithmetic of recurrent states are left out: they are few.
- **Bytes**: the weights that take part are read once a forward, and so are the keys, values and states held.
  Activations are left out: they are small against the weights and stay in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import cache as caches
from mlx_lm.models import switch_layers

from engine.cache.kinds import kind_named
from engine.frozen import frozen
from engine.model.weights import own_arrays, own_parameters
from engine.protocol import KVGroup, ModelFacts

CHOSEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
    "top_k_experts", "num_selected_experts", "top_k",
)  # fmt: skip
"""Names, in the configs of different families, of the number of experts that one token goes through."""
HOW = (
    "By formula: 2 operations for each parameter and token, 4 x heads x head size for each layer, token and token"
    " attended to; weights, keys, values and states are read once a forward, activations are not counted."
)


@frozen
class Weights:
    """The weights that one token needs, and those that several tokens do."""

    parameters: int
    """Parameters that a token is multiplied with; the table of an embedding is only looked up."""
    read_bytes: int
    """For one token: of an embedding's table its row, of the experts those that are chosen."""
    expert_bytes: int
    """Of all experts together."""
    chosen: float
    """Share of the experts that one token goes through."""
    notes: tuple[str, ...]

    def read(self, tokens: int) -> int:
        """Bytes that a forward of some tokens reads; its tokens choose different experts until all are read."""
        share = min(1.0, self.chosen * tokens)
        return self.read_bytes + round(self.expert_bytes * (share - self.chosen))


def weights(model: Any) -> Weights:
    """Count the weights of a model, module by module.

    Args:
        model: As mlx_lm loads it.
    """
    tied, chosen = _heads(model), _chosen(model)
    parameters = read = experts = 0
    notes: list[str] = []
    for _, module in model.named_modules():
        own = own_arrays(module).values()
        size, count = sum(array.nbytes for array in own), own_parameters(module)
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding) and id(module) not in tied:
            read += size // module.weight.shape[0]
        elif isinstance(module, switch_layers.SwitchLinear | switch_layers.QuantizedSwitchLinear):
            share = min(1.0, chosen / module.num_experts) if chosen else 1.0
            parameters, read, experts = (
                parameters + round(count * share),
                read + round(size * share),
                experts + size,
            )
        else:
            parameters, read = parameters + count, read + size
    share = _share(model, chosen)
    if experts and not chosen:
        notes.append("How many experts a token goes through isn't known: all of them are counted.")
    return Weights(parameters, read, experts, share, tuple(notes))


def _share(model: Any, chosen: int | None) -> float:
    experts = [
        module.num_experts for _, module in model.named_modules()
        if isinstance(module, switch_layers.SwitchLinear | switch_layers.QuantizedSwitchLinear)
    ]  # fmt: skip
    return min(1.0, chosen / max(experts)) if chosen and experts else 1.0


def _chosen(model: Any) -> int | None:
    """Experts that one token goes through, None where the model's arguments don't have it."""
    for holder in (model, getattr(model, "language_model", None)):
        args = getattr(holder, "args", None)
        for name in CHOSEN:
            value = getattr(args, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


def _heads(model: Any) -> set[int]:
    """Embeddings that are the head too, by `id()`: a forward computes its logits with them. Nothing is evaluated."""
    heads: set[int] = set()
    patched = []
    for kind in (nn.Embedding, nn.QuantizedEmbedding):
        original = kind.as_linear
        patched.append((kind, original))

        def noted(module: Any, x: mx.array, _original: Any = original) -> mx.array:
            heads.add(id(module))
            logits: mx.array = _original(module, x)
            return logits

        kind.as_linear = noted  # type: ignore[method-assign]
    try:
        model(mx.array([[0]]), cache=caches.make_prompt_cache(model))
    finally:
        for kind, original in patched:
            kind.as_linear = original  # type: ignore[method-assign]
    return heads


# ---- one forward ------------------------------------------------------------------------------


def attention(facts: ModelFacts, groups: Sequence[KVGroup], before: int, tokens: int) -> int:
    """Operations of attention in one forward; 0 where the heads aren't known.

    Args:
        facts: The model's heads and their size.
        groups: Its caches: a layer attends to no more than its cache can hold.
        before: Tokens held before it.
        tokens: Tokens of the forward.
    """
    attending = [group for group in groups if kind_named(group.kind).attended]
    attended = sum(len(group.layers) * _attended(before, tokens, group.limit) for group in attending)
    return 4 * (facts.heads or 0) * (facts.head_size or 0) * attended


def _attended(before: int, tokens: int, limit: int | None) -> int:
    """Sum over the tokens of a forward of those that each attends to: all before it and itself, within the window."""
    top = before + tokens
    full = max(0, top - max(before, limit)) if limit is not None else 0
    growing = tokens - full
    return full * (limit or 0) + growing * before + growing * (growing + 1) // 2

"""Names of a model's parts, as they are typed: labels, hooks in TransformerLens's style, and paths of modules.

A label counts layers and heads from 1, as a person reads them; hooks and paths count from 0, as where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from engine.protocol.numbers import Count

HookPart = Literal[
    "embedding", "positions", "stream before", "first norm", "queries", "keys", "values", "rope", "scores", "pattern",
    "head", "attention", "stream between", "second norm", "gate", "up", "neurons", "experts", "mlp", "stream after",
    "final norm", "layer", "recurrence",
]  # fmt: skip
HookUnit = Literal["head", "attention", "mlp", "recurrence", "layer"]


class Hook(Struct, frozen=True):
    """One thing of a forward that has a name elsewhere."""

    name: str
    """With `N` for the layer; empty for what has none in TransformerLens."""
    part: HookPart
    """Of the model that it belongs to."""
    what: str
    """It in words, which follow `is`."""
    unit: HookUnit | None = None
    """The unit that is switched off by it; None where nothing is."""
    heads: bool = False
    """True if each head has its own, so that the head's number may follow: `[1]` or `.1`."""


HOOKS: tuple[Hook, ...] = (
    Hook("hook_embed", "embedding", "what the embedding gives each token"),
    Hook("hook_pos_embed", "positions", "a learned vector for each position"),
    Hook("blocks.N.hook_resid_pre", "stream before", "the residual stream before the layer"),
    Hook("blocks.N.ln1.hook_scale", "first norm", "what the norm before the attention divides by"),
    Hook("blocks.N.ln1.hook_normalized", "first norm", "the stream as the attention reads it"),
    Hook("blocks.N.attn.hook_q", "queries", "the queries of the heads", heads=True),
    Hook("blocks.N.attn.hook_k", "keys", "the keys of the heads", heads=True),
    Hook("blocks.N.attn.hook_v", "values", "the values of the heads", heads=True),
    Hook("blocks.N.attn.hook_rot_q", "rope", "the queries, turned by their positions", heads=True),
    Hook("blocks.N.attn.hook_rot_k", "rope", "the keys, turned by their positions", heads=True),
    Hook("blocks.N.attn.hook_attn_scores", "scores", "queries times keys, before the softmax", heads=True),
    Hook("blocks.N.attn.hook_pattern", "pattern", "the weights with which the heads look", heads=True),
    Hook("blocks.N.attn.hook_z", "head", "what the heads read of the values", "head", heads=True),
    Hook("blocks.N.attn.hook_result", "head", "what each head adds to the stream", "head", heads=True),
    Hook("blocks.N.hook_attn_out", "attention", "what the attention returns", "attention"),
    Hook("blocks.N.hook_resid_mid", "stream between", "the residual stream between attention and MLP"),
    Hook("blocks.N.ln2.hook_scale", "second norm", "what the norm before the MLP divides by"),
    Hook("blocks.N.ln2.hook_normalized", "second norm", "the stream as the MLP reads it"),
    Hook("blocks.N.mlp.hook_pre", "gate", "the MLP's numbers before the activation"),
    Hook("blocks.N.mlp.hook_pre_linear", "up", "what the activated numbers are multiplied by, where gated"),
    Hook("blocks.N.mlp.hook_post", "neurons", "the MLP's numbers after the activation"),
    Hook("blocks.N.mlp.hook_expert_weights", "experts", "the weights of the experts of a token"),
    Hook("blocks.N.mlp.hook_expert_indices", "experts", "the numbers of the experts of a token"),
    Hook("blocks.N.hook_mlp_out", "mlp", "what the MLP returns", "mlp"),
    Hook("blocks.N.hook_resid_post", "stream after", "the residual stream after the layer"),
    Hook("ln_final.hook_scale", "final norm", "what the final norm divides by"),
    Hook("ln_final.hook_normalized", "final norm", "the stream as the head of the model reads it"),
)  # fmt: skip
"""All hooks that are known, in the order in which a token meets them."""
_BY_NAME: Mapping[str, Hook] = {hook.name: hook for hook in HOOKS}
_UNITS: Mapping[str, Hook] = {
    "head": _BY_NAME["blocks.N.attn.hook_z"],
    "attention": _BY_NAME["blocks.N.hook_attn_out"],
    "mlp": _BY_NAME["blocks.N.hook_mlp_out"],
    "recurrence": Hook("", "recurrence", "what the recurrence returns", "recurrence"),
    "layer": Hook("blocks.N", "layer", "what the layer adds to the stream", "layer"),
}
_MODULES: Mapping[str, str] = {
    "self_attn": "attention", "attn": "attention", "attention": "attention", "self_attention": "attention",
    "mlp": "mlp", "feed_forward": "mlp", "block_sparse_moe": "mlp", "linear_attn": "recurrence",
}  # fmt: skip
"""The units that a module below a layer is, by the names that are the same thing in every family."""

_NUMBER = r"(\d{1,6})"
_LABEL = rf"(?i)L{_NUMBER}(?:\s*h{_NUMBER}|\s+(attention|mlp|recurrence|layer))?"
_HOOK = rf"(?:blocks(?:\.{_NUMBER}|\[{_NUMBER}\])\.)?((?:\w+\.)?hook_[a-z_]+)(?:\.{_NUMBER}|\[{_NUMBER}\])?"
_PATH = (
    rf"(?:\w+\.){{0,4}}(?:layers|h|blocks)(?:\.{_NUMBER}|\[{_NUMBER}\])"
    r"(?:\.([a-z_]+))??(?:\.(input|output)(?:\[0\])?)?"
)
LONGEST = 120
"""Characters of a name at most."""
UNITS = "L6 h1, L3 mlp or L4"
"""Labels, as an example."""
SWITCHED = "hook_z and hook_result with a head, hook_attn_out, hook_mlp_out, and blocks.N for a layer"
"""The hooks by which something is switched off."""


class NamedPart(Struct, frozen=True):
    """A part of a model that somebody named."""

    hook: Hook
    layer: Count | None = None
    """From 0; None for what is outside of the layers."""
    head: Count | None = None
    """From 0; None for no head, or for all of them."""

    @property
    def place(self) -> tuple[int, ...]:
        """Its layer and its head as a person counts them, as far as it has them; of the stream before a layer it is
        the layer that wrote to it last, 0 for none."""
        if self.layer is None:
            return ()
        before = self.hook.part == "stream before"
        return (self.layer if before else self.layer + 1, *(() if self.head is None else (self.head + 1,)))


def named_part(text: str) -> NamedPart:
    """The part that a text names: `L6 h1`, `blocks.5.attn.hook_pattern[0]`, `model.layers.3.mlp`.

    Raises:
        ValueError: It names none, with what can be written.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"{text[:20]!r}... is not a unit: write {UNITS}")
    if (label := re.fullmatch(_LABEL, text)) is not None:
        return _labelled(text, *label.groups())
    if (hook := re.fullmatch(_HOOK, text)) is not None:
        return _hooked(text, *hook.groups())
    if (path := re.fullmatch(_PATH, text)) is not None:
        return _at_path(text, *path.groups())
    if "." in text or "hook_" in text:
        raise ValueError(
            f"{text!r} is not a known hook or module: write blocks.5.attn.hook_z[0], "
            f"blocks.2.hook_mlp_out, model.layers.2.mlp, or {UNITS}"
        )
    raise ValueError(f"{text!r} is not a unit: write {UNITS}")


def _labelled(text: str, layer: str, head: str | None, kind: str | None) -> NamedPart:
    if 0 in (int(layer), int(head or 1)):
        raise ValueError(f"{text!r} is not a unit: layers and heads count from 1")
    unit = "head" if head else (kind or "layer").lower()
    return NamedPart(_UNITS[unit], int(layer) - 1, int(head) - 1 if head else None)


def _hooked(text: str, dotted: str | None, bracketed: str | None, name: str, *heads: str | None) -> NamedPart:
    layer, head = dotted or bracketed, next(filter(None, heads), None)
    hook = _BY_NAME.get(f"blocks.N.{name}" if layer else name)
    if hook is None:
        inside = f"blocks.N.{name}" in _BY_NAME
        known = f"write it with its layer, blocks.0.{name}" if inside else "the help lists the known ones"
        raise ValueError(f"{text!r} is not a known hook: {known}")
    if head is not None and not hook.heads:
        raise ValueError(f"{text!r} has no heads: leave the number at its end out")
    return NamedPart(hook, int(layer) if layer else None, int(head) if head else None)


def _at_path(
    text: str, dotted: str | None, bracketed: str | None, module: str | None, end: str | None
) -> NamedPart:
    layer = int(dotted or bracketed or 0)
    if module is None and end is not None:
        return NamedPart(_BY_NAME[f"blocks.N.hook_resid_{'pre' if end == 'input' else 'post'}"], layer)
    unit = "layer" if module is None else _MODULES.get(module)
    if unit is None or end == "input":
        known = ", ".join(each for each in _MODULES if each not in ("attention", "self_attention"))
        raise ValueError(
            f"{text!r} could be several things: of a layer there are {known} and the layer itself"
        )
    return NamedPart(_UNITS[unit], layer)

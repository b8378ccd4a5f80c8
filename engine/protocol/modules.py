"""The inside of a model: its modules in the order in which a token goes through them, and what a token chose there.

Shapes come from the arrays, and what a part does from one observed forward of one token. Layers are counted from 0.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.measuring import Role
from engine.protocol.numbers import Count, Finite


class ReadModules(Look, frozen=True):
    """What is inside the model: one token runs on caches of its own; answered by `ModelModules`."""


NEITHER = "This model has neither experts nor recurrent layers."


class ReadExperts(Look, frozen=True):
    """Which experts a token goes through, and what recurrent layers keep after it; answered by `ExpertsRead`."""

    node: Count


class WeightArray(Struct, frozen=True):
    """One array of weights."""

    name: str
    """Of the module's attribute: `weight`, `bias`, `scales`."""
    shape: tuple[Count, ...]
    """As it is used: that of a packed weight unpacked."""
    dtype: str
    bytes: Count
    bits: Count | None = None
    """Of each number in a packed array, None for a plain one."""
    group_size: Count | None = None
    """Numbers that share a scale."""
    mode: str = ""
    """How it was packed: `affine`, `mxfp4`."""


class HeadFacts(Struct, frozen=True):
    """The heads of an attention, as its queries and keys have them in a step."""

    heads: Count
    kv_heads: Count
    """Each is shared by `heads / kv_heads` heads; 0 where the model computes its attention itself."""
    key_size: Count
    value_size: Count
    window: Count | None = None
    """Tokens that it can look back at, where its cache holds no more."""
    sinks: bool = False


class RopeFacts(Struct, frozen=True):
    """Rotary positions (RoPE, Su et al. 2021), as they were computed."""

    dims: Count
    """Of each head: so many of its numbers are rotated, in pairs."""
    base: Finite | None
    """Theta; None where a table of frequencies is used and the model's arguments have no base either."""
    scale: Finite
    """Positions are multiplied by it."""
    slowest: Finite | None
    """Tokens in which the slowest pair turns once; None where one doesn't turn at all."""
    table: bool
    """True if the frequencies come from a table, which stretches the base's: Llama 3, YaRN and others."""


class NormFacts(Struct, frozen=True):
    """A norm, as it was computed."""

    kind: str
    """`RMSNorm` or `LayerNorm`."""
    eps: Finite


class MlpFacts(Struct, frozen=True):
    """An MLP: what was computed between its matrices, found by computing it again."""

    inner: Count
    """Numbers between them."""
    gated: bool
    activation: str
    """`SwiGLU`, `GELU` and the like; empty where it is none of those that are known."""


class ExpertFacts(Struct, frozen=True):
    """A mixture of experts, as one token went through it."""

    experts: Count
    active: Count
    """That one token goes through."""


class ModulePart(Struct, frozen=True):
    """One module."""

    path: str
    """In the model; in a block of layers below the layer: `self_attn.q_proj`, empty for the layer itself."""
    depth: Count
    """How many of the parts before it hold it."""
    kind: str
    """Name of its class."""
    role: Role
    arrays: tuple[WeightArray, ...]
    """Its own, not those of the modules in it."""
    parameters: Count
    """With those of the modules in it."""
    bytes: Count
    runs: Count
    """Calls in one forward of a token; 0: none of its own."""
    given: tuple[Count, ...] = ()
    """Shape of what it was given for one token."""
    returned: tuple[Count, ...] = ()
    reads: str = ""
    """Of a layer's direct part: `stream`, or the path of the part whose output it was given; of several,
    joined by ` + `, the sum; empty where unknown."""
    heads: HeadFacts | None = None
    rope: RopeFacts | None = None
    norm: NormFacts | None = None
    mlp: MlpFacts | None = None
    experts: ExpertFacts | None = None

    @property
    def name(self) -> str:
        """The attribute that holds it."""
        return self.path.rpartition(".")[2]


class LayerSum(Struct, frozen=True):
    """Where a layer adds to the residual stream."""

    after: str
    """Path of the direct part that ran last before it."""
    parts: tuple[str, ...]
    """Paths of the parts whose outputs are added."""
    factors: tuple[Finite, ...]
    """What each is multiplied by: 1 in most models."""


class LayerBlock(Struct, frozen=True):
    """Layers that are alike in all of this record's facts, in one entry."""

    layers: tuple[Count, ...]
    prefix: str
    """Of the layers' paths: a layer's is `prefix.number`."""
    parts: tuple[ModulePart, ...]
    """Of one of them; the first is the layer itself."""
    sums: tuple[LayerSum, ...]
    """Found by comparing what its parts were given and returned; empty where that didn't tell."""

    @property
    def parameters(self) -> int:
        """Of all of them together."""
        return len(self.layers) * self.parts[0].parameters if self.parts else 0

    @property
    def bytes(self) -> int:
        """Of all of them together."""
        return len(self.layers) * self.parts[0].bytes if self.parts else 0


class ModelModules(Record, frozen=True):
    """The modules of the loaded model in the order in which a token goes through them."""

    model: str
    """Path of the loaded model, as in `ModelFacts`."""
    parameters: Count
    """The sum over all entries below, which is that of `ModelFacts`."""
    bytes: Count
    before: tuple[ModulePart, ...]
    """What runs before the layers."""
    blocks: tuple[LayerBlock, ...]
    """In the order of their first layers; the layers of a block need not follow one another."""
    after: tuple[ModulePart, ...]
    unused: tuple[ModulePart, ...]
    """What a token of text doesn't go through, but is loaded."""
    head: str
    """Path of the module that makes the logits; an embedding's where the head is tied to it; empty where unknown."""
    vocabulary: Count
    """Logits."""
    hidden_size: Count
    """Numbers of the residual stream for each token."""

    @property
    def tied(self) -> bool:
        """True if the logits are computed with the embedding's table."""
        return any(part.path == self.head and part.role == "embedding" for part in self.before)

    @property
    def depth(self) -> int:
        """Layers."""
        return sum(len(block.layers) for block in self.blocks)


class ExpertLayer(Struct, frozen=True):
    """The experts of one layer that a token went through."""

    layer: Count
    path: str
    """Of the experts, below the layer."""
    experts: Count
    """How many there are."""
    chosen: tuple[Count, ...]
    """Those with the largest weights first; in the model's order where the weights aren't known."""
    weights: tuple[Finite, ...]
    """What each one's output was multiplied by; empty where that couldn't be read."""
    error: float | None
    """The weighted sum of the experts against what the layer's mixture added, relative; None where it wasn't made."""


class StateArray(Struct, frozen=True):
    """One array of a recurrent layer's state, after the token."""

    layer: Count
    shape: tuple[Count, ...]
    dtype: str
    bytes: Count
    norm: Finite
    """Euclidean."""
    before: Finite
    """The norm before the token."""
    changed: float | None
    """The norm of the difference, as a share of `before`; None where the state was empty."""


class ExpertsRead(Record, frozen=True):
    """Which experts a token went through, and what recurrent layers keep after it."""

    node: Count
    layers: tuple[ExpertLayer, ...]
    states: tuple[StateArray, ...]
    missing: tuple[str, ...]
    """What can't be shown, and why: a sentence each."""
    facts: CaptureFacts

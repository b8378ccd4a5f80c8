"""The inside of a model: its modules in the order in which a token goes through them, and what a token chose there.

Shapes come from the arrays, and what a part does from one observed forward of one token. Layers are counted from 0.
"""

from __future__ import annotations

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.floats import Endless
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.measuring import Role


@frozen
class ReadModules(Look):
    """What is inside the model: one token runs on caches of its own; answered by `ModelModules`."""


NEITHER = "This model has neither experts nor recurrent layers."


@frozen
class ReadExperts(Look):
    """Which experts a token goes through, and what recurrent layers keep after it; answered by `ExpertsRead`."""

    node: int


@frozen
class WeightArray:
    """One array of weights."""

    name: str
    """Of the module's attribute: `weight`, `bias`, `scales`."""
    shape: tuple[int, ...]
    """As it is used: that of a packed weight unpacked."""
    dtype: str
    bytes: int
    bits: int | None = None
    """Of each number in a packed array, None for a plain one."""
    group_size: int | None = None
    """Numbers that share a scale."""
    mode: str = ""
    """How it was packed: `affine`, `mxfp4`."""


@frozen
class HeadFacts:
    """The heads of an attention, as its queries and keys have them in a step."""

    heads: int
    kv_heads: int
    """Each is shared by `heads / kv_heads` heads; 0 where the model computes its attention itself."""
    key_size: int
    value_size: int
    window: int | None = None
    """Tokens that it can look back at, where its cache holds no more."""
    sinks: bool = False


@frozen
class RopeFacts:
    """Rotary positions (RoPE, Su et al. 2021), as they were computed."""

    dims: int
    """Of each head: so many of its numbers are rotated, in pairs."""
    base: float | None
    """Theta; None where a table of frequencies is used and the model's arguments have no base either."""
    scale: float
    """Positions are multiplied by it."""
    slowest: float | None
    """Tokens in which the slowest pair turns once; None where one doesn't turn at all."""
    table: bool
    """True if the frequencies come from a table, which stretches the base's: Llama 3, YaRN and others."""


@frozen
class NormFacts:
    """A norm, as it was computed."""

    kind: str
    """`RMSNorm` or `LayerNorm`."""
    eps: float


@frozen
class MlpFacts:
    """An MLP: what was computed between its matrices, found by computing it again."""

    inner: int
    """Numbers between them."""
    gated: bool
    activation: str
    """`SwiGLU`, `GELU` and the like; empty where it is none of those that are known."""


@frozen
class ExpertFacts:
    """A mixture of experts, as one token went through it."""

    experts: int
    active: int
    """That one token goes through."""


@frozen
class ModulePart:
    """One module."""

    path: str
    """In the model; in a block of layers below the layer: `self_attn.q_proj`, empty for the layer itself."""
    depth: int
    """How many of the parts before it hold it."""
    kind: str
    """Name of its class."""
    role: Role
    arrays: tuple[WeightArray, ...]
    """Its own, not those of the modules in it."""
    parameters: int
    """With those of the modules in it."""
    bytes: int
    runs: int
    """Calls in one forward of a token; 0: none of its own."""
    given: tuple[int, ...] = ()
    """Shape of what it was given for one token."""
    returned: tuple[int, ...] = ()
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


@frozen
class LayerSum:
    """Where a layer adds to the residual stream."""

    after: str
    """Path of the direct part that ran last before it."""
    parts: tuple[str, ...]
    """Paths of the parts whose outputs are added."""
    factors: tuple[float, ...]
    """What each is multiplied by: 1 in most models."""


@frozen
class LayerBlock:
    """Layers that are alike in all of this record's facts, in one entry."""

    layers: tuple[int, ...]
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


@frozen
class ModelModules(Record):
    """The modules of the loaded model in the order in which a token goes through them."""

    model: str
    """Path of the loaded model, as in `ModelFacts`."""
    parameters: int
    """The sum over all entries below, which is that of `ModelFacts`."""
    bytes: int
    before: tuple[ModulePart, ...]
    """What runs before the layers."""
    blocks: tuple[LayerBlock, ...]
    """In the order of their first layers; the layers of a block need not follow one another."""
    after: tuple[ModulePart, ...]
    unused: tuple[ModulePart, ...]
    """What a token of text doesn't go through, but is loaded."""
    head: str
    """Path of the module that makes the logits; an embedding's where the head is tied to it; empty where unknown."""
    vocabulary: int
    """Logits."""
    hidden_size: int
    """Numbers of the residual stream for each token."""

    @property
    def tied(self) -> bool:
        """True if the logits are computed with the embedding's table."""
        return any(part.path == self.head and part.role == "embedding" for part in self.before)

    @property
    def depth(self) -> int:
        """Layers."""
        return sum(len(block.layers) for block in self.blocks)


@frozen
class ExpertLayer:
    """The experts of one layer that a token went through."""

    layer: int
    path: str
    """Of the experts, below the layer."""
    experts: int
    """How many there are."""
    chosen: tuple[int, ...]
    """Those with the largest weights first; in the model's order where the weights aren't known."""
    weights: tuple[float, ...]
    """What each one's output was multiplied by; empty where that couldn't be read."""
    error: Endless | None
    """The weighted sum of the experts against what the layer's mixture added, relative; None where it wasn't made."""


@frozen
class StateArray:
    """One array of a recurrent layer's state, after the token."""

    layer: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    norm: float
    """Euclidean."""
    before: float
    """The norm before the token."""
    changed: Endless | None
    """The norm of the difference, as a share of `before`; None where the state was empty."""


@frozen
class ExpertsRead(Record):
    """Which experts a token went through, and what recurrent layers keep after it."""

    node: int
    layers: tuple[ExpertLayer, ...]
    states: tuple[StateArray, ...]
    missing: tuple[str, ...]
    """What can't be shown, and why: a sentence each."""
    facts: CaptureFacts

"""Inside the model: where the attention of a token looks, and what its layers would predict.

A capture runs one token of the tree again on a copy of the cache. `node` is that token's node: what is read is its
forward, whose logits are the distribution after it. Layers are counted from 0, positions in the path too.
"""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.floats import Floats

CheckName = Literal[
    "forward",
    "session",
    "attention",
    "rows",
    "lens",
    "parts",
    "experts",
    "keys",
    "single",
    "same",
    "restored",
]


@frozen
class Check:
    """One comparison that a capture made with what the model itself computes, and how far off it was.

    - `forward`: the logits of the tapped forward and of a plain one; no tap may change them.
    - `session`: the logits of the plain one, and those that the session computed for the same token; relative.
    - `attention`: the values under the recomputed weights, and what the fused attention returned; relative.
    - `rows`: the sum of each row of weights (with its sink), and 1.
    - `lens`: the lens of the last layer, and the logits; relative.
    - `parts`: the sum of all contributions, and the logits; relative.
    - `experts`: the experts' outputs under the weights that are shown, and what the mixture returned; relative.
    - `keys`: the keys that an attention saw with a position changed, and without; a count.
    - `single`: one of several interventions in a batch, and the same one alone; relative.
    - `same`: the effect of activations before the first difference of two paths, and 0.
    - `restored`: the effect of the last layer's activation at the last position, and all of it.
    """

    name: CheckName
    error: float
    """The largest difference; infinite where it could not be computed."""
    bound: float
    where: str = ""
    """Of the largest difference: `layer 3`; or why there is none."""

    @property
    def passed(self) -> bool:
        """Whether what was checked can be shown."""
        return self.error <= self.bound


@frozen
class CaptureFacts:
    """What each view of a capture is accompanied by."""

    checks: tuple[Check, ...]
    ms: float
    """From the command to the record."""
    step_ms: float
    """Of one plain forward of the same token, for comparison."""
    family: str
    """The model's architecture, which a failed check names."""
    note: str = ""
    """Why a part of the path was recomputed, or left out; empty where none was."""

    @property
    def failed(self) -> Check | None:
        """The first check that failed: its view is not shown."""
        return next((check for check in self.checks if not check.passed), None)


@frozen
class AttentionLayer:
    """The attention of one layer, a row of weights for each head."""

    layer: int
    kind: Literal["fused", "quantized", "softmax"]
    """`softmax`: the model's own attention, whose weights were read as it computed them."""
    kv_heads: int
    """Heads of keys and values; 0 where they are not known."""
    weights: Floats
    """Shape (heads, keys); the keys in the order of the path."""
    keep: int
    """The first keys are those of the path's first `keep` tokens, the others those of its last ones."""
    sinks: tuple[float, ...] = ()
    """What each head's sink takes, which no token has; empty without sinks."""

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.weights.shape[0] if len(self.weights.shape) == 2 else 0

    def over(self, head: int, tokens: int) -> tuple[float, ...]:
        """A head's weights over the whole path; those that it can't see are 0.

        Args:
            head: From 0.
            tokens: Of the path, this one included.
        """
        row = self.weights.row(head)
        gap = max(0, tokens - len(row))
        return (*row[: self.keep], *[0.0] * gap, *row[self.keep :])[:tokens]


@frozen
class AttentionRead(Answer):
    """Where each head of each layer looked while one token went through the model."""

    node: int
    tokens: int
    """Of the path, this one included."""
    layers: tuple[AttentionLayer, ...]
    """Those that have an attention whose weights are known; more than once where they have several, or run again."""
    depth: int
    """Layers of the model."""
    missing: tuple[str, ...]
    """A sentence for each layer, or for all, that has no weights to show, with the reason."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(len(layer.weights.packed) for layer in self.layers)


@frozen
class LensToken:
    """A token that the lens of a layer ranks high."""

    id: int
    text: str
    prob: float


@frozen
class LensCell:
    """What the model's own end makes of the residual stream after one layer, at one position."""

    top: tuple[LensToken, ...]
    """The most probable first."""
    entropy_bits: float
    final_rank: int
    """Of the token that the last layer ranks first, from 1."""
    followed: tuple[float, ...] = ()
    """Probability of each followed token."""
    followed_ranks: tuple[int, ...] = ()


@frozen
class LensColumn:
    """One position: a cell for the embedding, then one for each layer."""

    node: int
    cells: tuple[LensCell, ...]

    @property
    def leads_from(self) -> int:
        """The first cell from which on the final token is ranked first."""
        late = [index for index, cell in enumerate(self.cells) if cell.final_rank != 1]
        return late[-1] + 1 if late else 0


@frozen
class LensRead(Answer):
    """The logit lens (nostalgebraist 2020): final norm and head over the residual stream after each layer.

    Early layers were not trained to be read by the model's end: what the lens says of them is rough.
    """

    node: int
    columns: tuple[LensColumn, ...]
    """The last positions of the path up to this token; none where the check `lens` could not be made."""
    followed: tuple[int, ...]
    facts: CaptureFacts

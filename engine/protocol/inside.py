"""Views of the inside of a forward pass: bases of their commands, and the commands and records of each view.

Layers, heads and positions are counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from engine.protocol.base import Count, Finite, Floats, OneProcess, Record
from engine.protocol.measuring import Role

# ---- common to all views ---------------------------------------------------------------------------


class Inside(OneProcess, frozen=True):
    """Base of the commands that look inside the model, without changing the session's current node or its tree."""


class Look(Inside, frozen=True, kw_only=True):
    """Base of the commands that can look inside the session's model or the second model (`OpenLockstep`)."""

    second: bool = False
    """True to look inside the second model along the session's path, instead of the session's model."""


Scope = Literal["token", "context"]
"""Tokens that run through the changed model. `token`: only the node's token, with the KV of the unchanged model.
`context`: the path, completely or from a given position."""
CheckName = Literal[
    "forward", "session", "attention", "rows", "lens", "parts", "scores", "weights", "experts", "keys",
    "single", "same", "restored", "derivative", "swaps", "complete", "zero",
]  # fmt: skip


class Check(Struct, frozen=True):
    """A comparison of a view's result with the model's own computation. Each name stands for the two compared values:

    - `forward`: the logits of the tapped forward pass and of a plain one; equal, or within rounding for gradients and
      for positions of a whole path.
    - `session`: the recomputed logits, and those that the session computed for the same token; relative.
    - `attention`: the values under the recomputed weights, and the output of the model's attention; relative.
    - `rows`: the sum of each row of weights (with its sink), and 1.
    - `lens`: the lens of the last layer, and the logits; relative.
    - `parts`: the sum of all contributions, and the logits; relative.
    - `scores`: the sums of all writers' shares, and a head's scores; relative.
    - `weights`: the softmax of the sums in `scores`, and the head's own weights.
    - `experts`: the weighted sum of the experts' outputs, and the output of the mixture; relative.
    - `keys`: the number of keys that an attention saw with a position changed, and without.
    - `single`: one of several interventions in a batch, and the same one alone; relative.
    - `same`: the effect of activations before the first difference of two paths, and 0.
    - `restored`: the effect of the last layer's activation at the last position, and the whole effect.
    - `derivative`: the gradient along two directions, and finite differences; relative to the gradient's length.
    - `swaps`: the change of the logit by another token at a position with a gradient of almost 0, and 0; relative.
    - `complete`: the sum of integrated gradients, and the difference between text and baseline; relative.
    - `zero`: the logits with a direction added at strength 0, and those of the model itself.
    """

    name: CheckName
    error: float
    """Largest difference; infinite if it could not be computed."""
    bound: Finite
    where: str = ""
    """Place of the largest difference, such as `layer 3`, or a remark, such as the reason why it is infinite."""

    @property
    def passed(self) -> bool:
        """True if the error is within the bound, so that the view can be shown."""
        return self.error <= self.bound


class CaptureFacts(Struct, frozen=True):
    """Checks, times and notes that come with each view."""

    checks: tuple[Check, ...]
    ms: Finite
    """Time of the view's computation."""
    step_ms: Finite
    """Time of a plain forward pass of the same tokens, or of the last one, for comparison."""
    family: str
    """Architecture of the model, named in the message of a failed check."""
    note: str = ""
    """Reason why tokens of the path ran again, were left out, or ran in other chunks; empty otherwise."""
    model: str = ""
    """Title of the second model if the view is of that model; empty for the session's model."""

    @property
    def failed(self) -> Check | None:
        """The first failed check, because of which the view is not shown; None if all passed."""
        for check in self.checks:
            if not check.passed:
                return check
        return None


# ---- logit lens ------------------------------------------------------------------------------------


class ReadLens(Look, frozen=True):
    """Read the prediction of each layer at the last tokens of a path; answered by `LensRead`."""

    node: Count
    positions: Count = 12
    """Number of tokens to read at the end of the path; each is a column of the table."""
    top: Count = 3
    """Number of most probable tokens in each cell."""
    followed: tuple[Count, ...] = ()
    """Ids of tokens to read the probability and rank of in each cell."""


class LensToken(Struct, frozen=True):
    """One of the most probable tokens of a cell."""

    id: Count
    text: str
    prob: Finite


class LensCell(Struct, frozen=True):
    """Prediction by the model's final norm and head from the residual stream after one layer, at one position."""

    top: tuple[LensToken, ...]
    """Most probable tokens, best first."""
    entropy_bits: Finite
    final_rank: Count
    """Rank in this cell, from 1, of the model's most probable token."""
    followed: tuple[Finite, ...] = ()
    """Probability of each followed token."""
    followed_ranks: tuple[Count, ...] = ()


class LensColumn(Struct, frozen=True):
    """Cells of one position: for the embedding, then for each layer."""

    node: Count
    cells: tuple[LensCell, ...]

    @property
    def leads_from(self) -> int:
        """Index of the first cell from which on the model's most probable token stays ranked first."""
        late = [index for index, cell in enumerate(self.cells) if cell.final_rank != 1]
        return late[-1] + 1 if late else 0


class LensRead(Record, frozen=True):
    """The logit lens (nostalgebraist 2020): final norm and head over the residual stream after each layer.

    The final norm and head were not trained to read early layers, so those predictions are rough.
    """

    node: Count
    columns: tuple[LensColumn, ...]
    """Columns of the last positions on the path to the node; empty if the check `lens` could not be made."""
    followed: tuple[Count, ...]
    facts: CaptureFacts


# ---- attention -------------------------------------------------------------------------------------


class ReadAttention(Look, frozen=True):
    """Read the attention weights of all heads at one token; answered by `AttentionRead`."""

    node: Count
    """Node of the token that attends; its forward pass predicts the token after it."""


TRIANGLE_TOKENS = 2048
"""Largest number of tokens of a path for `ReadTriangle`: 4 MiB of 16-bit weights."""


class ReadTriangle(Look, frozen=True):
    """Read one head's attention weights at each token of a path.

    Answered by `Measuring` records and a `TriangleRead`.
    """

    node: Count
    """Last token of the path, which has at most `TRIANGLE_TOKENS` tokens."""
    layer: Count
    """Index of the layer, from 0."""
    head: Count
    """Index of the head, from 0."""


HALF_TOKENS = 512
"""Largest number of tokens in one half of a repeated text."""
MOST_TEXTS = 100
"""Largest number of repeated texts to score heads over."""


class RepeatedTexts(Struct, frozen=True):
    """Texts to compare models on: random tokens, then the same tokens again, with nothing before them."""

    length: Count = 50
    """Number of tokens in each half, 2 to `HALF_TOKENS`."""
    count: Count = 10
    """Number of texts, 1 to `MOST_TEXTS`."""
    seed: Count = 0
    """Seed of NumPy's default generator, which draws the tokens from the whole vocabulary, with repeats."""


class ScoreHeads(Look, frozen=True):
    """Score each head for known kinds, such as induction; answered by `Measuring` records and a `HeadsScored`."""

    node: Count
    """Last token of the path."""
    texts: RepeatedTexts | None = None
    """Texts to score the heads over instead of the path; None for the path."""


class AttentionLayer(Struct, frozen=True):
    """Attention of one layer at one token, with a row of weights for each head."""

    layer: Count
    kind: Literal["fused", "quantized", "softmax"]
    """Code that computes the attention. `fused`: MLX's. `quantized`: mlx_lm's, for a quantized cache. `softmax`: the
    model's own; its weights were read at its softmax."""
    kv_heads: Count
    """Number of heads of keys and values; 0 if unknown."""
    weights: Floats
    """Attention weights, shape (heads, keys), with the keys in the order of the path."""
    keep: Count
    """Number of keys that belong to the path's first tokens; the others belong to its last tokens."""
    sinks: tuple[Finite, ...] = ()
    """Share of each head's attention that goes to its sink instead of a token; empty without sinks."""

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.weights.shape[0] if len(self.weights.shape) == 2 else 0

    def over(self, head: int, tokens: int) -> tuple[float, ...]:
        """Weights of a head over the whole path; 0 for tokens that it can't see.

        Args:
            head: Index of the head, from 0.
            tokens: Number of tokens of the path, including this one.
        """
        row: tuple[float, ...] = ()
        if 0 <= head < self.heads:
            keys = self.weights.shape[1]
            row = self.weights.stretch(head * keys, keys)
        gap = max(0, tokens - len(row))
        return (*row[: self.keep], *[0.0] * gap, *row[self.keep :])[:tokens]


class AttentionRead(Record, frozen=True):
    """Attention weights of each head of each layer in the forward pass of one token."""

    node: Count
    tokens: Count
    """Number of tokens of the path, including this one."""
    layers: tuple[AttentionLayer, ...]
    """Attentions with known weights; a layer occurs repeatedly if it has several attentions or runs more than once."""
    depth: Count
    """Number of layers of the model."""
    missing: tuple[str, ...]
    """Sentences on layers that have no weights to show, with the reason, and on layers that attend several times."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        total = 0
        for layer in self.layers:
            total += len(layer.weights.packed)
        return total


class TriangleRead(Record, frozen=True):
    """Attention weights of one head at each token of a path."""

    node: Count
    """Last token of the path."""
    layer: Count
    head: Count
    tokens: Count
    """Number of tokens of the path."""
    weights: Floats
    """Rows of all tokens, one after another; the row of a token has its weights on the tokens up to itself. Exactly 0
    means that a window or a mask hides the token; a weight too small for 16 bits is given as 6e-8."""
    sinks: Floats
    """Share of each row that goes to the head's sink; of length 0 without sinks."""
    facts: CaptureFacts

    def row(self, position: int) -> tuple[float, ...]:
        """Weights of a token on the tokens up to it; empty if there is no such token.

        Args:
            position: Position of the token in the path, from 0.
        """
        if not 0 <= position < self.tokens:
            return ()
        return self.weights.stretch(position * (position + 1) // 2, position + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return len(self.weights.packed)


class HeadScore(Struct, frozen=True):
    """Scores of one head, each a mean over the relevant tokens of a path or of repeated texts.

    All except the entropy are shares of the attention, from 0 to 1. Over repeated texts of 2n tokens they are defined
    as in ARENA's exercises; TransformerLens's `head_detector` averages over all tokens of a text instead.
    """

    layer: Count
    head: Count
    previous: Finite
    """Attention to the previous token, from each token except the first (a previous-token head: Elhage et al. 2021).
    Over repeated texts only from the tokens 2 to n + 1, counted from 1, to exclude effects of the repetition."""
    induction: Finite | None
    """Attention to the tokens after earlier occurrences of the same token, from each token that has earlier
    occurrences: the prefix matching score of Olsson et al. 2022, but over the text itself instead of repeated random
    tokens. A token that repeats the previous one doesn't count itself. None if `HeadsScored.repeats` is 0. Over
    repeated texts: attention from the tokens of the second half to the token n - 1 before."""
    first: Finite
    """Attention to the path's first token, from each token except the first (an attention sink: Xiao et al. 2023)."""
    entropy_bits: Finite
    """Entropy of a row, with the sink's share as one more outcome; equal attention to 8 tokens has 3 bits."""
    duplicate: Finite | None = None
    """Attention to earlier occurrences of the same token, from each token that has any (a duplicate-token head: Wang et
    al. 2022). None if no token of the path occurs again. Over repeated texts: attention from the tokens of the second
    half to the token n before."""


class HeadsScored(Record, frozen=True):
    """Scores of each head for known kinds of heads, over one path or over repeated texts."""

    node: Count
    """Last token of the path."""
    tokens: Count
    """Number of tokens of the path, or of all texts."""
    heads: tuple[HeadScore, ...]
    """Scores by layer and head, without heads whose keys have unknown positions."""
    repeats: Count
    """Number of tokens in the mean of the induction score: those that also occur at least two positions earlier in the
    path. Over repeated texts: the tokens of all second halves."""
    facts: CaptureFacts
    texts: RepeatedTexts | None = None
    """Repeated texts that the heads were scored over; None for the path."""


# ---- direct logit attribution ----------------------------------------------------------------------


class Attribute(Look, frozen=True):
    """Decompose a logit into contributions of embedding, attentions, heads and MLPs; answered by `AttributionRead`."""

    node: Count
    """Node after which the tokens are predicted."""
    tokens: tuple[Count, ...]
    """One token id, or two whose logit difference is decomposed: the first minus the second."""


WriterKind = Literal["embedding", "attention", "mlp", "recurrence", "other", "residual", "layer", "constant"]
"""Kind of a part that writes to the residual stream. `residual`: a layer's own operation on the stream, such as scaling
it. `layer`: a whole layer, if its parts can't be separated. `constant`: the biases of the final norm and head."""


class AttributedToken(Struct, frozen=True):
    """A token whose logit is decomposed."""

    id: Count
    text: str
    prob: Finite
    """Probability of the token in the model's prediction, at temperature 1."""
    rank: Count
    """Rank of the token in the model's prediction, from 1."""
    logit: Finite
    """The model's own logit of the token, after a softcap if the model has one."""
    reached: Finite
    """Sum that the contributions must reach: the logit, before a softcap if the model has one."""


class Contribution(Struct, frozen=True):
    """Direct contribution of one writer to the logit of each token."""

    kind: WriterKind
    layer: Count | None
    """Index of the layer, from 0; None for the embedding and the constant."""
    name: str
    """Name of the module in its layer; empty if there is none."""
    logits: tuple[float, ...]
    """Contribution to the logit of each token, for an attention including its heads."""
    heads: Floats = Floats((0, 0), b"")
    """Contribution of each head of an attention, shape (heads, tokens); no rows if they can't be separated."""
    rest: tuple[Finite, ...] = ()
    """Part of an attention's contribution that comes from no head, such as its bias: heads and rest sum to `logits`."""

    def head(self, index: int) -> tuple[float, ...]:
        """Contribution of a head to the logit of each token; empty if the heads can't be separated.

        Args:
            index: Index of the head, from 0.
        """
        return self.heads.row(index)


class AttributionRead(Record, frozen=True):
    """Logit of a token, or difference of two tokens' logits, as a sum of contributions."""

    node: Count
    tokens: tuple[AttributedToken, ...]
    """One token, or two whose logit difference is decomposed: the first minus the second."""
    parts: tuple[Contribution, ...]
    """Contributions in the order of writing: the embedding, the parts of each layer, the constant."""
    depth: Count
    """Number of layers of the model."""
    softcap: bool
    """True if the model applies a softcap (tanh) to its logits: the contributions are to the logits before it."""
    notes: tuple[str, ...]
    """A sentence for each kind of part that could not be separated, with the layers."""
    facts: CaptureFacts

    def bar(self, logits: Sequence[float]) -> float:
        """The contribution to the only token, or the contribution to the first minus that to the second.

        Args:
            logits: Contribution to each token, as in `Contribution`.
        """
        return logits[0] - logits[1] if len(logits) > 1 else logits[0]

    @property
    def reached(self) -> float:
        """Sum that the bars of all parts must reach."""
        return self.bar([token.reached for token in self.tokens])

    @property
    def total(self) -> float:
        """Sum of the bars of all parts; the check `parts` compares it with `reached` for each token."""
        return sum(self.bar(part.logits) for part in self.parts)


# ---- attention scores by the writers of queries and keys -------------------------------------------

MOST_KEYS = 16
"""Largest number of keys that a command may name."""


class ReadScore(Look, frozen=True):
    """Decompose the attention scores of one head at one token; answered by `Measuring` records and a `ScoreRead`."""

    node: Count
    """Node of the token that attends, with its query."""
    layer: Count | None = None
    """Index of the layer, from 0. None for the layer of the head with the largest weight on a token that is neither the
    first nor one of the last two; heads of the first layer are considered last."""
    head: Count | None = None
    """Index of the head, from 0; None for the one with the largest such weight."""
    keys: tuple[Count, ...] = ()
    """Positions in the path, from 0, of keys to include whatever their weights; at most `MOST_KEYS`."""


class ScoreWriter(Struct, frozen=True):
    """A part of the model that wrote to the residual stream before the layer."""

    kind: WriterKind
    """Kind of the writer. `constant`: the layer's queries and keys for a stream of zeros, such as biases."""
    layer: Count | None
    """Index of the writer's layer, from 0; None for the embedding and the constant."""
    name: str
    """Name of the module in its layer, with ` without its heads` for the rest of an attention; empty if none."""
    head: Count | None = None
    """Index of the head, from 0; None if the writer is not a single head."""


class ScoreRead(Record, frozen=True):
    """Attention scores of one head at one token, as sums over the writers of the query and of the keys.

    Scores are scaled as in the model before its softmax, and taken before a softcap.
    """

    node: Count
    layer: Count
    head: Count
    tokens: Count
    """Number of tokens of the path, including the one that attends."""
    visible: Count
    """Number of keys that the head sees."""
    keys: tuple[Count, ...]
    """Positions in the path of the listed keys: the first one, the last ones, those with the largest weights, and those
    in the command."""
    scores: Floats
    """Score of each listed key."""
    weights: Floats
    """Attention weight of the head on each listed key."""
    writers: tuple[ScoreWriter, ...]
    by_key: Floats
    """Scores of each writer's part of the key with the whole query, shape (writers, keys); they sum to `scores`."""
    by_query: Floats
    """Scores of each writer's part of the query with the whole key, shape (writers, keys); they sum to `scores`."""
    pairs: tuple[tuple[Count, Count], ...]
    """Pairs of a query's writer and a key's writer, as indices into `writers`: those with the largest deviation of a
    score from the mean over the keys. Empty if the scores can't be decomposed by pairs."""
    pair_scores: Floats
    """Score of each pair at each listed key, shape (pairs, keys)."""
    depth: Count
    """Number of layers of the model."""
    softcap: bool
    """True if the model applies a softcap (tanh) to its scores before the softmax."""
    notes: tuple[str, ...]
    """Sentences on parts that were not separated, such as the heads of some layers."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all packed numbers."""
        packed = self.scores, self.weights, self.by_key, self.by_query, self.pair_scores
        return sum(len(each.packed) for each in packed)


# ---- gradients -------------------------------------------------------------------------------------

GradientMethod = Literal["input", "integrated"]
"""`input`: gradient x input. `integrated`: integrated gradients."""
GradientBaseline = Literal["mean", "first", "token", "zero"]
"""Vector of every token at the baseline: the mean of all embeddings, the embedding of the path's first token or of a
given token, or zeros. The integral needs most steps with zeros, near which norms divide by almost nothing."""


class ReadGradients(Look, frozen=True):
    """Attribute a logit to the tokens of the context; answered by `Measuring` records and a `GradientsRead`."""

    node: Count
    """Node after which the tokens are predicted."""
    token: Count | None = None
    """Id of the token whose logit is attributed, such as the next token of the path; None for the most probable one."""
    other: Count | None = None
    """Id of a token whose logit is subtracted; None for none."""
    method: GradientMethod = "input"
    baseline: GradientBaseline = "mean"
    """Baseline of integrated gradients."""
    baseline_text: str = " the"
    """Text of the token for the baseline `token`; it must be a single token."""
    steps: Count = 32
    """Number of steps from baseline to text, 1 to 512; it is tripled, up to 512, until the shares are complete."""
    held_experts: bool = False
    """True to use the experts chosen for the real text at all steps, which is a different function; only for integrated
    gradients."""


class GradientToken(Struct, frozen=True):
    """A token whose logit is attributed."""

    id: Count
    text: str
    prob: Finite
    """Probability of the token in the model's prediction, at temperature 1."""
    logit: Finite


class GradientsRead(Record, frozen=True):
    """Share of each token of the context in a logit, or in the difference of two tokens' logits."""

    node: Count
    tokens: tuple[GradientToken, ...]
    """One token, or two whose logit difference is attributed: the first minus the second."""
    method: GradientMethod
    baseline: GradientBaseline
    baseline_text: str
    """Text of the baseline's token; empty for the baselines `zero` and `mean`, and for gradient x input."""
    held_experts: bool
    chooses: bool
    """True if the model chooses experts or keys by their scores: the function jumps where the choice changes."""
    first: Count
    """Number of tokens at the beginning of the path without a share; their vectors are not varied."""
    shares: Floats
    """Shares in logits, shape (tokens,), from the token at position `first`."""
    value: Finite
    """Value of the function for the real text: a logit, or the difference of two."""
    base_value: float
    """Value of the function for the baseline; 0 for gradient x input, which has no baseline."""
    tried: tuple[tuple[Count, float], ...]
    """The numbers of steps tried, each with the difference of `total` from `reached` as a share of `reached`. `shares`
    are those of the last one. Empty for gradient x input."""
    flat: tuple[Count, ...]
    """Positions in the path of tokens with a gradient of almost 0 although another token there moves the logit."""
    swapped: Count
    """Number of tokens with a gradient of almost 0 that were replaced by another token, as a test."""
    rows: Count
    """Largest number of texts in one forward pass."""
    forwards: Count
    """Number of texts that ran through the model, with and without a derivative; not all runs of the checks count."""
    notes: tuple[str, ...]
    """Sentences on limits of the result, such as tokens without a share."""
    facts: CaptureFacts

    @property
    def values(self) -> tuple[float, ...]:
        """Shares of the tokens."""
        return self.shares.row() if len(self.shares.shape) == 1 else ()

    @property
    def total(self) -> float:
        """Sum of the shares."""
        return sum(self.values)

    @property
    def reached(self) -> float:
        """Sum that the shares of integrated gradients must reach."""
        return self.value - self.base_value

    @property
    def steps(self) -> int:
        """Number of steps for `shares`; 0 for gradient x input."""
        return self.tried[-1][0] if self.tried else 0

    @property
    def residual(self) -> float | None:
        """Difference between `total` and `reached`, as a share of `reached`; None for gradient x input."""
        return self.tried[-1][1] if self.tried else None


# ---- position embeddings ---------------------------------------------------------------------------

PositionChange = Literal["token", "path", "mask"]
"""Change of positions or of the mask. `token`: only this token gets another position, with the keys in the cache
unchanged. `path`: all tokens of the path are shifted by the same number. `mask`: the positions are right, but every
token of the path also sees the tokens after it."""
PositionWay = Literal["rotary", "learned", "own", "none"]
"""Use of positions in a model. `rotary`: queries and keys are rotated by an angle for each position (RoPE). `learned`:
a learned vector for each position is added to the token's embedding. `own`: the model reads the offset and uses it in
its own way. `none`: it never reads the offset."""


class Rotation(Struct, frozen=True):
    """Rotation of queries and keys (RoPE) in some layers, as called by the layers."""

    layers: tuple[Count, ...]
    dims: Count
    """Number of dimensions of a head that are rotated, in pairs."""
    base: Finite | None
    """Theta: the slowest pair rotates by about 1 / base radians per token; None for a table of frequencies."""
    scale: Finite
    """Factor that positions are multiplied by."""
    offset: Count
    """Position that the layers received for the first token of the forward pass."""


class PositionUse(Struct, frozen=True):
    """Use of positions in the forward pass of one token, with nothing changed."""

    way: PositionWay
    position: Count
    """Position of the token in the path: the offset of the cache before the token."""
    keys: Count
    """Number of keys that the widest attention saw, including the token's own; 0 without attention."""
    rotations: tuple[Rotation, ...]
    unturned: tuple[Count, ...]
    """Layers without rotation in a model with rotation in other layers."""
    table: Count
    """Number of positions in the learned table; 0 without one."""


class TokenShift(Struct, frozen=True):
    """A possible next token, before and after the change."""

    id: Count
    text: str
    before: Finite
    """Probability of the token before the change."""
    after: Finite
    rank_before: Count
    rank_after: Count


class PositionTried(Record, frozen=True):
    """Prediction after a node with a wrong position, or without the causal mask."""

    node: Count
    change: PositionChange
    offset: int
    """Number added to the positions; 0 for the mask."""
    use: PositionUse
    """Use of positions without the change."""
    tokens: tuple[TokenShift, ...]
    """Most probable tokens before the change, best first, then those most probable only after it."""
    kl_bits: float
    """KL divergence of the predictions, KL(before || after)."""
    largest_change: float
    """Largest absolute change of a logit."""
    largest_text: str
    """Text of the token whose logit changes most."""
    later: Count
    """Number of later tokens that the node's token sees without the mask."""
    tokens_run: Count
    """Number of tokens that ran through the changed model."""
    facts: CaptureFacts


class TryPosition(Look, frozen=True):
    """Compute the model's prediction at a wrong position or without its causal mask; answered by `PositionTried`."""

    node: Count
    change: PositionChange = "token"
    offset: int = 0
    """Number to add to the positions, from -2**30 to 2**30; unused for the mask."""
    top: Count = 8
    """Number of most probable tokens to list, before and after the change."""
    until: Count | None = None
    """Later node of the path, up to which tokens are visible without the mask; None for `node`."""


# ---- modules ---------------------------------------------------------------------------------------


class ReadModules(Look, frozen=True):
    """List the modules of the model by running one token on separate caches; answered by `ModelModules`."""


NEITHER = "This model has neither experts nor recurrent layers."


class ReadExperts(Look, frozen=True):
    """Read the experts of a token and the recurrent states after it; answered by `ExpertsRead`."""

    node: Count


class WeightArray(Struct, frozen=True):
    """One array of a module's weights."""

    name: str
    """Name of the array in its module, such as `weight`, `bias` or `scales`."""
    shape: tuple[Count, ...]
    """Shape of the array in use; for a packed weight, the unpacked shape."""
    dtype: str
    bytes: Count
    bits: Count | None = None
    """Bits of each number in a packed array; None if the array is not packed."""
    group_size: Count | None = None
    """Number of values that share a scale; None if the array is not packed."""
    mode: str = ""
    """Packing mode, such as `affine` or `mxfp4`; empty if the array is not packed."""


class HeadFacts(Struct, frozen=True):
    """Heads of an attention, from the shapes of its queries and keys in a step."""

    heads: Count
    kv_heads: Count
    """Number of KV heads, each shared by `heads / kv_heads` heads. If the model computes its attention with its own
    code, this and both sizes are 0."""
    key_size: Count
    value_size: Count
    window: Count | None = None
    """Number of tokens that the attention can see; None if its cache has no limit."""
    sinks: bool = False


class RopeFacts(Struct, frozen=True):
    """Rotary positions (RoPE), as computed in a step; see Su et al. 2021."""

    dims: Count
    """Number of dimensions of each head that are rotated, in pairs."""
    base: Finite | None
    """Theta; None if a table of frequencies is used and neither module nor model arguments have a base."""
    scale: Finite
    """Factor that positions are multiplied by."""
    slowest: Finite | None
    """Number of tokens in which the slowest pair makes one turn; None if a pair never turns."""
    table: bool
    """True if the frequencies come from a table instead of the base alone: Llama 3, YaRN and others."""


class NormFacts(Struct, frozen=True):
    """A norm, as computed in a step."""

    kind: str
    """`RMSNorm` or `LayerNorm`."""
    eps: Finite


class MlpFacts(Struct, frozen=True):
    """An MLP: the operation between its matrices, identified by computing it again."""

    inner: Count
    """Width between the matrices."""
    gated: bool
    activation: str
    """Name of the activation, such as `SwiGLU` or `GELU`; empty if it is not recognized."""


class ExpertFacts(Struct, frozen=True):
    """Numbers of experts in a mixture, as used by one token."""

    experts: Count
    active: Count
    """Number of experts that one token uses."""


class ModulePart(Struct, frozen=True):
    """One module of the model."""

    path: str
    """Path in the model; in a block of layers, the path within the layer: `self_attn.q_proj`, empty for the layer."""
    depth: Count
    """Number of listed modules that contain this one; 0 for a layer itself and outside the layers."""
    kind: str
    """Name of the module's class."""
    role: Role
    arrays: tuple[WeightArray, ...]
    """Arrays of the module itself, without those of its submodules."""
    parameters: Count
    """Number of parameters, including submodules; outside the layers, only the module's own."""
    bytes: Count
    runs: Count
    """Number of calls in one forward pass of a token; 0 if the module itself is not called."""
    given: tuple[Count, ...] = ()
    """Shape of the first input array for one token; empty if there is none."""
    returned: tuple[Count, ...] = ()
    reads: str = ""
    """Input of a direct part of a layer: `stream`, or the path of the part that computed the input. The terms of a sum
    are joined by ` + `. Empty if unknown."""
    heads: HeadFacts | None = None
    rope: RopeFacts | None = None
    norm: NormFacts | None = None
    mlp: MlpFacts | None = None
    experts: ExpertFacts | None = None

    @property
    def name(self) -> str:
        """Name of the module in its parent."""
        return self.path.rpartition(".")[2]


class LayerSum(Struct, frozen=True):
    """A point at which a layer adds to the residual stream."""

    after: str
    """Path of the direct part that ran last before the sum."""
    parts: tuple[str, ...]
    """Paths of the parts whose outputs are added."""
    factors: tuple[Finite, ...]
    """Factor of each output; 1 in most models."""


class LayerBlock(Struct, frozen=True):
    """Layers that are equal in all facts of this record."""

    layers: tuple[Count, ...]
    prefix: str
    """Path of the list of layers: the path of a layer is `prefix.number`."""
    parts: tuple[ModulePart, ...]
    """Modules of one of the layers; the first is the layer itself."""
    sums: tuple[LayerSum, ...]
    """Sums found by comparing the inputs and outputs of the parts; empty if they don't explain the layer."""

    @property
    def parameters(self) -> int:
        """Number of parameters of all layers together."""
        return len(self.layers) * self.parts[0].parameters if self.parts else 0

    @property
    def bytes(self) -> int:
        """Bytes of the weights of all layers together."""
        return len(self.layers) * self.parts[0].bytes if self.parts else 0


class ModelModules(Record, frozen=True):
    """Modules of the loaded model, in the order in which they process a token."""

    model: str
    """Path of the loaded model, as in `ModelFacts`."""
    parameters: Count
    """Number of parameters over all entries, equal to that of `ModelFacts`."""
    bytes: Count
    before: tuple[ModulePart, ...]
    """Modules with weights that run before the layers."""
    blocks: tuple[LayerBlock, ...]
    """Layers, ordered by the first layer of each block; the layers of a block need not be adjacent."""
    after: tuple[ModulePart, ...]
    unused: tuple[ModulePart, ...]
    """Modules with weights that are loaded but not used for a token of text."""
    head: str
    """Path of the module that computes the logits, or of the embedding if the head is tied to it; empty if unknown."""
    vocabulary: Count
    """Number of logits."""
    hidden_size: Count
    """Width of the residual stream for each token."""

    @property
    def tied(self) -> bool:
        """True if the logits are computed with the embedding's table."""
        return any(part.path == self.head and part.role == "embedding" for part in self.before)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(len(block.layers) for block in self.blocks)


class ExpertLayer(Struct, frozen=True):
    """Experts of one layer that a token used."""

    layer: Count
    path: str
    """Path of the experts' module within the layer."""
    experts: Count
    """Number of experts in the layer."""
    chosen: tuple[Count, ...]
    """Indices of the chosen experts, largest weight first; in the model's order if the weights are unknown."""
    weights: tuple[Finite, ...]
    """Factor of each chosen expert's output; empty if the factors could not be read or `error` is too large."""
    error: float | None
    """Relative error of the experts' weighted sum against the mixture's output; None if it was not computed."""


class StateArray(Struct, frozen=True):
    """One array of a recurrent layer's state, after the token."""

    layer: Count
    shape: tuple[Count, ...]
    dtype: str
    bytes: Count
    norm: Finite
    """Euclidean norm after the token."""
    before: Finite
    """Euclidean norm before the token."""
    changed: float | None
    """Norm of the difference, as a share of `before`; None if `before` is 0."""


class ExpertsRead(Record, frozen=True):
    """Experts that a token used, and the states of recurrent layers after it."""

    node: Count
    layers: tuple[ExpertLayer, ...]
    states: tuple[StateArray, ...]
    missing: tuple[str, ...]
    """Sentences on data that can't be shown, with the reason."""
    facts: CaptureFacts

"""Views of the inside of a forward: what the commands have in common, and the commands and records of each view.

Layers, heads and positions are counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Floats, Record
from engine.protocol.measuring import Role

# ---- what the views have in common -----------------------------------------------------------------


class Inside(Command, frozen=True):
    """Base of the commands that look inside; the session doesn't move and nothing is added to its tree."""

    over_ranks: ClassVar[bool] = False


class Look(Inside, frozen=True, kw_only=True):
    """Base of those that only look: at the session's model, or at the second one beside it (`OpenLockstep`)."""

    second: bool = False
    """True if the engine looks into the second model, along the session's path, in place of the session's own."""


Scope = Literal["token", "context"]
"""`token`: this token's forward alone is changed, and the KV before it is the model's own. `context`: the path goes
through the changed model, all of it or from a position on."""
CheckName = Literal[
    "forward",
    "session",
    "attention",
    "rows",
    "lens",
    "parts",
    "scores",
    "weights",
    "experts",
    "keys",
    "single",
    "same",
    "restored",
    "derivative",
    "swaps",
    "complete",
    "zero",
]


class Check(Struct, frozen=True):
    """One comparison that a capture made with what the model itself computes, and how far off it was.

    - `forward`: the logits of the tapped forward and of a plain one; no tap may change them.
    - `session`: the logits of the plain one, and those that the session computed for the same token; relative.
    - `attention`: the values under the recomputed weights, and what the fused attention returned; relative.
    - `rows`: the sum of each row of weights (with its sink), and 1.
    - `lens`: the lens of the last layer, and the logits; relative.
    - `parts`: the sum of all contributions, and the logits; relative.
    - `scores`: the sums of all writers' shares, and a head's scores; relative.
    - `weights`: the weights that a softmax makes of these sums, and the head's own.
    - `experts`: the experts' outputs under the weights that are shown, and what the mixture returned; relative.
    - `keys`: the keys that an attention saw with a position changed, and without; a count.
    - `single`: one of several interventions in a batch, and the same one alone; relative.
    - `same`: the effect of activations before the first difference of two paths, and 0.
    - `restored`: the effect of the last layer's activation at the last position, and all of it.
    - `derivative`: the gradient along two directions, and finite differences; as a share of its length.
    - `swaps`: how far another token moves the logit in a place whose gradient is next to 0; relative.
    - `complete`: the sum of integrated gradients, and what lies between baseline and text; relative.
    - `zero`: the logits with a direction added at strength 0, and those of the model itself.
    """

    name: CheckName
    error: float
    """The largest difference; infinite where it could not be computed."""
    bound: Finite
    where: str = ""
    """Of the largest difference: `layer 3`; or why there is none."""

    @property
    def passed(self) -> bool:
        """True if what was checked can be shown."""
        return self.error <= self.bound


class CaptureFacts(Struct, frozen=True):
    """The facts that come with each view of a capture."""

    checks: tuple[Check, ...]
    ms: Finite
    """From the command to the record."""
    step_ms: Finite
    """Of one plain forward of the same token, for comparison."""
    family: str
    """The model's architecture, which a failed check names."""
    note: str = ""
    """Why a part of the path was recomputed, or left out; empty where none was."""
    model: str = ""
    """The title of the second model, where the engine looked into that; empty for the session's model."""

    @property
    def failed(self) -> Check | None:
        """The first check that failed: its view is not shown."""
        for check in self.checks:
            if not check.passed:
                return check
        return None


# ---- logit lens ------------------------------------------------------------------------------------


class ReadLens(Look, frozen=True):
    """The prediction of each layer; answered by `LensRead`."""

    node: Count
    positions: Count = 12
    """Of the path, at its end: columns of the table."""
    top: Count = 3
    """Tokens in each cell."""
    followed: tuple[Count, ...] = ()
    """Tokens whose probability and rank are wanted in each cell."""


class LensToken(Struct, frozen=True):
    """A token that the lens of a layer ranks high."""

    id: Count
    text: str
    prob: Finite


class LensCell(Struct, frozen=True):
    """What the model's own end makes of the residual stream after one layer, at one position."""

    top: tuple[LensToken, ...]
    """The most probable first."""
    entropy_bits: Finite
    final_rank: Count
    """Of the token that the last layer ranks first, from 1."""
    followed: tuple[Finite, ...] = ()
    """Probability of each followed token."""
    followed_ranks: tuple[Count, ...] = ()


class LensColumn(Struct, frozen=True):
    """One position: a cell for the embedding, then one for each layer."""

    node: Count
    cells: tuple[LensCell, ...]

    @property
    def leads_from(self) -> int:
        """The first cell from which on the final token is ranked first."""
        late = [index for index, cell in enumerate(self.cells) if cell.final_rank != 1]
        return late[-1] + 1 if late else 0


class LensRead(Record, frozen=True):
    """The logit lens (nostalgebraist 2020): final norm and head over the residual stream after each layer.

    Early layers were not trained to be read by the model's end: what the lens says of them is rough.
    """

    node: Count
    columns: tuple[LensColumn, ...]
    """The last positions of the path up to this token; none where the check `lens` could not be made."""
    followed: tuple[Count, ...]
    facts: CaptureFacts


# ---- attention -------------------------------------------------------------------------------------


class ReadAttention(Look, frozen=True):
    """Where each head of each layer looks; answered by `AttentionRead`."""

    node: Count
    """The token that looks; its distribution is the one after it."""


TRIANGLE_TOKENS = 2048
"""Tokens of a path whose triangle is read, at most: 4 MiB of weights of 16 bits."""


class ReadTriangle(Look, frozen=True):
    """Where one head looks from each token of a path; answered by `Measuring` records and a `TriangleRead`."""

    node: Count
    """The path's last token; the path has at most `TRIANGLE_TOKENS`."""
    layer: Count
    """From 0."""
    head: Count
    """From 0."""


HALF_TOKENS = 512
"""Tokens of the half of a repeated text, at most."""
MOST_TEXTS = 100
"""Repeated texts over which heads are scored, at most."""


class RepeatedTexts(Struct, frozen=True):
    """Texts that all models can be measured on alike: random tokens, then the same ones again, with nothing before."""

    length: Count = 50
    """Tokens of each half, 2 to `HALF_TOKENS`."""
    count: Count = 10
    """Texts, 1 to `MOST_TEXTS`."""
    seed: Count = 0
    """Of the tokens: drawn from the whole vocabulary with NumPy's default generator, with repeats."""


class ScoreHeads(Look, frozen=True):
    """How much each head does what heads are known to do; answered by `Measuring` records and a `HeadsScored`."""

    node: Count
    """The path's last token."""
    texts: RepeatedTexts | None = None
    """Score them over these, and not over the path."""


class AttentionLayer(Struct, frozen=True):
    """The attention of one layer, a row of weights for each head."""

    layer: Count
    kind: Literal["fused", "quantized", "softmax"]
    """`softmax`: the model's own attention, whose weights were read as it computed them."""
    kv_heads: Count
    """Heads of keys and values; 0 where they are not known."""
    weights: Floats
    """Shape (heads, keys); the keys in the order of the path."""
    keep: Count
    """The first keys are those of the path's first `keep` tokens, the others those of its last ones."""
    sinks: tuple[Finite, ...] = ()
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
        row: tuple[float, ...] = ()
        if 0 <= head < self.heads:
            keys = self.weights.shape[1]
            row = self.weights.stretch(head * keys, keys)
        gap = max(0, tokens - len(row))
        return (*row[: self.keep], *[0.0] * gap, *row[self.keep :])[:tokens]


class AttentionRead(Record, frozen=True):
    """Where each head of each layer looked while one token went through the model."""

    node: Count
    tokens: Count
    """Of the path, this one included."""
    layers: tuple[AttentionLayer, ...]
    """Those that have an attention whose weights are known; more than once where they have several, or run again."""
    depth: Count
    """Layers of the model."""
    missing: tuple[str, ...]
    """A sentence for each layer, or for all, that has no weights to show, with the reason."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        total = 0
        for layer in self.layers:
            total += len(layer.weights.packed)
        return total


class TriangleRead(Record, frozen=True):
    """Where one head looks from each token of a path."""

    node: Count
    """The path's last token."""
    layer: Count
    head: Count
    tokens: Count
    """Of the path."""
    weights: Floats
    """The rows of the tokens one after another, each as long as there are tokens up to its own: what comes later is
    hidden by the causal mask. Exactly 0 is what a window or a mask hides; what is too small for 16 bits is 6e-8."""
    sinks: Floats
    """The share of each row that the head's sink takes; of length 0 without sinks."""
    facts: CaptureFacts

    def row(self, position: int) -> tuple[float, ...]:
        """A token's weights over the tokens up to it; empty where there is no such token.

        Args:
            position: In the path, from 0.
        """
        if not 0 <= position < self.tokens:
            return ()
        return self.weights.stretch(position * (position + 1) // 2, position + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return len(self.weights.packed)


class HeadScore(Struct, frozen=True):
    """What one head did, on average over the tokens that each score is about: over a path, or over repeated texts.

    All but the entropy are shares of the attention, 0 to 1. Over repeated texts of twice n tokens they are defined as
    in ARENA's exercises and TransformerLens's `head_detector`, without its zeroing of other heads.
    """

    layer: Count
    head: Count
    previous: Finite
    """On the token right before, from each token but the first (a previous-token head: Elhage et al. 2021). Over
    repeated texts from the tokens 2 to n + 1 alone: what a repeated text adds is left out."""
    induction: Finite | None
    """On the tokens that followed earlier occurrences of the same token, from each token that occurred before: the
    prefix matching score of Olsson et al. 2022, here over the text itself instead of a random text repeated. A token
    that repeats the one right before it doesn't count itself. None where no token of the path occurs again. Over
    repeated texts from the tokens of the second half on the one that followed n tokens before."""
    first: Finite
    """On the path's first token, from each token but the first (an attention sink: Xiao et al. 2023)."""
    entropy_bits: Finite
    """Entropy of the row, its sink's share as one more outcome: 3 bits are as wide as 8 tokens looked at equally."""
    duplicate: Finite | None = None
    """On earlier occurrences of the same token, from each token that occurred before (a duplicate-token head: Wang et
    al. 2022). None where no token of the path occurs again. Over repeated texts from the tokens of the second half on
    the one n tokens before."""


class HeadsScored(Record, frozen=True):
    """How much each head does what heads are known to do, over one path or over repeated texts."""

    node: Count
    """The path's last token."""
    tokens: Count
    """Of the path, or of all texts."""
    heads: tuple[HeadScore, ...]
    """By layer and head; without those whose keys' positions are not known."""
    repeats: Count
    """Tokens whose id occurs earlier in the path, and was followed by another token than the one itself: those that
    the induction score is about. Over repeated texts those of all second halves."""
    facts: CaptureFacts
    texts: RepeatedTexts | None = None
    """What they were scored over; None for the path."""


# ---- direct logit attribution ----------------------------------------------------------------------


class Attribute(Look, frozen=True):
    """What the embedding, each attention, head and MLP add to a logit; answered by `AttributionRead`."""

    node: Count
    """The token after which they are predicted."""
    tokens: tuple[Count, ...]
    """One id, or two whose difference is taken apart: the first less the second."""


WriterKind = Literal["embedding", "attention", "mlp", "recurrence", "other", "residual", "layer", "constant"]
"""`residual`: what a layer does to the stream itself, such as scaling it. `layer`: a layer as a whole, where its parts
can't be told apart. `constant`: what the model's end adds to any stream, the biases of its norm and head."""


class AttributedToken(Struct, frozen=True):
    """A token whose logit is taken apart."""

    id: Count
    text: str
    prob: Finite
    """As the model predicts it, at temperature 1."""
    rank: Count
    """From 1."""
    logit: Finite
    """The model's own."""
    reached: Finite
    """What the contributions have to sum to: the logit, in a model with a softcap the one before it."""


class Contribution(Struct, frozen=True):
    """The direct contribution of one writer to the logit of each token."""

    kind: WriterKind
    layer: Count | None
    """None for the embedding and the constant."""
    name: str
    """The layer's attribute that holds the module; empty where there is none."""
    logits: tuple[float, ...]
    """For each token, in logits; of an attention with its heads in it."""
    heads: Floats = Floats((0, 0), b"")
    """Shape (heads, tokens), what each head of an attention adds; no rows where they can't be told apart."""
    rest: tuple[Finite, ...] = ()
    """For each token what the attention adds without any head, such as its bias: heads and rest sum to `logits`."""

    def head(self, index: int) -> tuple[float, ...]:
        """The contribution of a head to the logit of each token; empty where the heads can't be told apart.

        Args:
            index: From 0.
        """
        return self.heads.row(index)


class AttributionRead(Record, frozen=True):
    """The logit of a token, or the difference of two tokens' logits, as a sum of contributions."""

    node: Count
    tokens: tuple[AttributedToken, ...]
    """One, or two whose difference is meant: the first less the second."""
    parts: tuple[Contribution, ...]
    """From the embedding through the layers to the constant, in the order in which they write."""
    depth: Count
    """Layers of the model."""
    softcap: bool
    """True if the model bends its logits after the sum (tanh): the contributions are to the logits before that."""
    notes: tuple[str, ...]
    """A sentence for each kind of thing that could not be split, with the layers."""
    facts: CaptureFacts

    def bar(self, logits: Sequence[float]) -> float:
        """One number of contributions to each token: that to the one token, or to the first less that to the second.

        Args:
            logits: For each token, as `Contribution` has them.
        """
        return logits[0] - logits[1] if len(logits) > 1 else logits[0]

    @property
    def reached(self) -> float:
        """What the bars of all parts have to sum to."""
        return self.bar([token.reached for token in self.tokens])

    @property
    def total(self) -> float:
        """Their sum; the check `parts` compares the two for each token."""
        return sum(self.bar(part.logits) for part in self.parts)


# ---- attention scores by what wrote queries and keys -----------------------------------------------

MOST_KEYS = 16
"""That a command may name."""


class ReadScore(Look, frozen=True):
    """What made one head look where it looks; answered by `Measuring` records and a `ScoreRead`."""

    node: Count
    """The token that looks: its query."""
    layer: Count | None = None
    """From 0; None for that of the head with the largest weight on one token, neither the first nor the last two."""
    head: Count | None = None
    """From 0; None for the one with the largest weight so."""
    keys: tuple[Count, ...] = ()
    """Some to keep whatever their weights, by their places in the path, from 0; at most `MOST_KEYS`."""


class ScoreWriter(Struct, frozen=True):
    """What wrote to the residual stream before the layer."""

    kind: WriterKind
    """`constant`: what the layer makes of a stream of zeros, such as the biases of queries and keys."""
    layer: Count | None
    """None for the embedding and the constant."""
    name: str
    """The layer's attribute that holds the module; empty where there is none."""
    head: Count | None = None
    """Of an attention whose heads are told apart, from 0."""


class ScoreRead(Record, frozen=True):
    """The scores of one head from one token, as sums over what wrote the query and the keys.

    Scores are scaled as the model scales them before its softmax, and taken before a softcap.
    """

    node: Count
    layer: Count
    head: Count
    tokens: Count
    """Of the path, the one that looks included."""
    visible: Count
    """Keys that the head sees."""
    keys: tuple[Count, ...]
    """Places in the path of those that are kept: the heaviest, the first, and the last ones."""
    scores: Floats
    """Of each kept key."""
    weights: Floats
    """The head's own on each kept key."""
    writers: tuple[ScoreWriter, ...]
    by_key: Floats
    """Shape (writers, keys): what each writer's part of the key makes with the whole query. Sums to the scores."""
    by_query: Floats
    """Shape (writers, keys): what each writer's part of the query makes with the whole key. Sums to the scores."""
    pairs: tuple[tuple[Count, Count], ...]
    """Places of a writer of the query and of one of the key: those that matter most to a key, against the mean over the
    keys. None where a part of the score can't be told by pairs."""
    pair_scores: Floats
    """Shape (pairs, keys)."""
    depth: Count
    """Layers of the model."""
    softcap: bool
    """True if the model bends its scores (tanh) before the softmax."""
    notes: tuple[str, ...]
    """A sentence for each kind of thing that was not told apart, with the layers."""
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
"""What stands in the place of every token at the baseline: the mean of all embeddings, that of the path's first token,
that of a given token, or zeros. Norms divide by next to nothing near zero: there the integral needs most steps."""


class ReadGradients(Look, frozen=True):
    """Ask which tokens a logit hangs on; answered by progress and `GradientsRead`."""

    node: Count
    """The token after which they are predicted."""
    token: Count | None = None
    """Whose logit it is, such as that of the token that was taken next; None for the most probable one."""
    other: Count | None = None
    """Whose logit is taken off."""
    method: GradientMethod = "input"
    baseline: GradientBaseline = "mean"
    """Of integrated gradients."""
    baseline_text: str = " the"
    """Of the baseline `token`: the text of one token."""
    steps: Count = 32
    """On the line from baseline to text, to begin with: three times as many until the shares are complete."""
    held_experts: bool = False
    """True if a mixture chooses its experts everywhere as it does in the real text, which is another function."""


class GradientToken(Struct, frozen=True):
    """A token whose logit is looked at."""

    id: Count
    text: str
    prob: Finite
    """As the model predicts it, at temperature 1."""
    logit: Finite


class GradientsRead(Record, frozen=True):
    """What each token of the context has of a logit, or of the difference of two tokens' logits."""

    node: Count
    tokens: tuple[GradientToken, ...]
    """One, or two whose difference is meant: the first less the second."""
    method: GradientMethod
    baseline: GradientBaseline
    baseline_text: str
    """Of the token that the baseline has everywhere; empty for zeros, and for the mean."""
    held_experts: bool
    chooses: bool
    """True if the model chooses experts, or keys, by their scores: the function jumps where another one is chosen."""
    first: Count
    """Tokens of the path before those that have a share: they stay as they are."""
    shares: Floats
    """In logits, shape (tokens,), from the token `first` on."""
    value: Finite
    """The function of the real text: a logit, or the difference of two."""
    base_value: float
    """The function of the baseline; 0 for gradient x input, which has none."""
    tried: tuple[tuple[Count, float], ...]
    """Steps, and how far the shares were from complete with so many, as a share of what they have to sum to; the last
    is the one that is shown. Empty for gradient x input."""
    flat: tuple[Count, ...]
    """Places in the path of tokens whose gradient is next to 0, though another token there moves the logit."""
    swapped: Count
    """Tokens with next to no gradient in whose place another one was tried."""
    rows: Count
    """Texts that went through the model in one forward at most."""
    forwards: Count
    """Texts that went through the model, with and without a derivative."""
    notes: tuple[str, ...]
    """A sentence for each thing that one has to know."""
    facts: CaptureFacts

    @property
    def values(self) -> tuple[float, ...]:
        """The shares."""
        return self.shares.row() if len(self.shares.shape) == 1 else ()

    @property
    def total(self) -> float:
        """The sum of the shares."""
        return sum(self.values)

    @property
    def reached(self) -> float:
        """What those of integrated gradients have to sum to."""
        return self.value - self.base_value

    @property
    def steps(self) -> int:
        """Steps of what is shown; 0 for gradient x input."""
        return self.tried[-1][0] if self.tried else 0

    @property
    def residual(self) -> float | None:
        """How far the shares are from complete, as a share of what they have to sum to; None where they needn't be."""
        return self.tried[-1][1] if self.tried else None


# ---- position embeddings ---------------------------------------------------------------------------

PositionChange = Literal["token", "path", "mask"]
"""`token`: this token alone is given another position, over the keys that the cache holds. `path`: every token of the
path is, by the same number. `mask`: the positions are right, and every token of the path sees those after it, too."""
PositionWay = Literal["rotary", "learned", "own", "none"]
"""`rotary`: queries and keys are turned by an angle for each position (RoPE). `learned`: a table has a vector for each
position, which is added to the token's. `own`: the model asks for the offset and uses it in a way of its own. `none`:
it is never asked for."""


class Rotation(Struct, frozen=True):
    """How some layers turn their queries and keys, as they asked for it (RoPE, Su et al. 2021)."""

    layers: tuple[Count, ...]
    dims: Count
    """Numbers of a head that are turned, two by two."""
    base: Finite | None
    """The slowest pair turns by about 1 / base radians a token; None for a list of frequencies."""
    scale: Finite
    """By which positions are multiplied."""
    offset: Count
    """The position that the layers were given for the first token of the forward."""


class PositionUse(Struct, frozen=True):
    """The position handling of one token's own forward, nothing changed."""

    way: PositionWay
    position: Count
    """Of the token in the path: what the cache calls its offset before the token."""
    keys: Count
    """That the widest attention saw, the token's own included; 0 without attention."""
    rotations: tuple[Rotation, ...]
    unturned: tuple[Count, ...]
    """Layers that turn nothing, of a model that turns in others."""
    table: Count
    """Positions that a learned table has; 0 without one."""


class TokenShift(Struct, frozen=True):
    """A token that could be next, before and after the change."""

    id: Count
    text: str
    before: Finite
    """Probability."""
    after: Finite
    rank_before: Count
    rank_after: Count


class PositionTried(Record, frozen=True):
    """The prediction after a node with a position, or the mask, changed."""

    node: Count
    change: PositionChange
    offset: int
    """What was added to the position; 0 for the mask."""
    use: PositionUse
    """Without the change."""
    tokens: tuple[TokenShift, ...]
    """The most probable before, best first; then those that are so only after."""
    kl_bits: float
    """KL(before || after)."""
    largest_change: float
    """Of a logit, absolute."""
    largest_text: str
    """The token whose logit it is."""
    later: Count
    """Tokens after it that it sees without the mask."""
    tokens_run: Count
    """That went through the changed model."""
    facts: CaptureFacts


class TryPosition(Look, frozen=True):
    """Ask for the model's prediction at a wrong position, or without its causal mask.

    Answered by `PositionTried`.
    """

    node: Count
    change: PositionChange = "token"
    """This token alone, the whole path, or the mask."""
    offset: int = 0
    """What is added to positions."""
    top: Count = 8
    """Tokens that are listed of each side."""
    until: Count | None = None
    """A node further down the path: without the mask its tokens are seen, too. None for the token itself."""


# ---- modules ---------------------------------------------------------------------------------------


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

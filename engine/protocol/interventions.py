"""Interventions: parts of the model switched off, scaled, replaced or steered, their names, and the predictions under
them.

Layers, heads and positions are counted from 0, but in labels from 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Count, Finite, Floats, OneProcess, Record
from engine.protocol.inside import CaptureFacts, Inside, Scope
from engine.protocol.steps import Candidate

# ---- names of parts --------------------------------------------------------------------------------

HookPart = Literal[
    "embedding", "positions", "stream before", "first norm", "queries", "keys", "values", "rope", "scores", "pattern",
    "head", "attention", "stream between", "second norm", "gate", "up", "neurons", "experts", "mlp", "stream after",
    "final norm", "layer", "recurrence",
]  # fmt: skip
HookUnit = Literal["head", "attention", "mlp", "recurrence", "layer"]


class Hook(Struct, frozen=True):
    """A value or unit of a forward pass, with its name in TransformerLens."""

    name: str
    """TransformerLens's name, with `N` for the layer's index; empty if it has none."""
    part: HookPart
    """Part of the model that the hook belongs to."""
    what: str
    """Description for a sentence, after `is`."""
    unit: HookUnit | None = None
    """Kind of unit that can be switched off at this hook; None if none can."""
    heads: bool = False
    """True if each head has its own value, so that the head's index may follow the name: `[1]` or `.1`."""


HOOKS: tuple[Hook, ...] = (
    Hook("hook_embed", "embedding", "the embedding of each token"),
    Hook("hook_pos_embed", "positions", "a learned vector for each position"),
    Hook("blocks.N.hook_resid_pre", "stream before", "the residual stream before the layer"),
    Hook("blocks.N.ln1.hook_scale", "first norm", "the divisor of the norm before the attention"),
    Hook("blocks.N.ln1.hook_normalized", "first norm", "the stream as the attention reads it"),
    Hook("blocks.N.attn.hook_q", "queries", "the queries of the heads", heads=True),
    Hook("blocks.N.attn.hook_k", "keys", "the keys of the heads", heads=True),
    Hook("blocks.N.attn.hook_v", "values", "the values of the heads", heads=True),
    Hook("blocks.N.attn.hook_rot_q", "rope", "the queries, rotated by their positions", heads=True),
    Hook("blocks.N.attn.hook_rot_k", "rope", "the keys, rotated by their positions", heads=True),
    Hook("blocks.N.attn.hook_attn_scores", "scores", "queries times keys, before the softmax", heads=True),
    Hook("blocks.N.attn.hook_pattern", "pattern", "the attention weights of the heads", heads=True),
    Hook("blocks.N.attn.hook_z", "head", "the values of each head, weighted by its attention", "head", heads=True),
    Hook("blocks.N.attn.hook_result", "head", "what each head adds to the stream", "head", heads=True),
    Hook("blocks.N.hook_attn_out", "attention", "the output of the attention", "attention"),
    Hook("blocks.N.hook_resid_mid", "stream between", "the residual stream between attention and MLP"),
    Hook("blocks.N.ln2.hook_scale", "second norm", "the divisor of the norm before the MLP"),
    Hook("blocks.N.ln2.hook_normalized", "second norm", "the stream as the MLP reads it"),
    Hook("blocks.N.mlp.hook_pre", "gate", "the MLP's values before the activation"),
    Hook("blocks.N.mlp.hook_pre_linear", "up", "the factors of the activated values, if the MLP is gated"),
    Hook("blocks.N.mlp.hook_post", "neurons", "the MLP's values after the activation"),
    Hook("blocks.N.mlp.hook_expert_weights", "experts", "the weights of the experts of a token"),
    Hook("blocks.N.mlp.hook_expert_indices", "experts", "the indices of a token's experts"),
    Hook("blocks.N.hook_mlp_out", "mlp", "the output of the MLP", "mlp"),
    Hook("blocks.N.hook_resid_post", "stream after", "the residual stream after the layer"),
    Hook("ln_final.hook_scale", "final norm", "the divisor of the final norm"),
    Hook("ln_final.hook_normalized", "final norm", "the stream as the head of the model reads it"),
)  # fmt: skip
"""All known hooks, in the order in which a token passes them."""
_BY_NAME: Mapping[str, Hook] = {hook.name: hook for hook in HOOKS}
_UNITS: Mapping[str, Hook] = {
    "head": _BY_NAME["blocks.N.attn.hook_z"],
    "attention": _BY_NAME["blocks.N.hook_attn_out"],
    "mlp": _BY_NAME["blocks.N.hook_mlp_out"],
    "recurrence": Hook("", "recurrence", "the output of the recurrence", "recurrence"),
    "layer": Hook("blocks.N", "layer", "what the layer adds to the stream", "layer"),
}
_MODULES: Mapping[str, str] = {
    "self_attn": "attention", "attn": "attention", "attention": "attention", "self_attention": "attention",
    "mlp": "mlp", "feed_forward": "mlp", "block_sparse_moe": "mlp", "linear_attn": "recurrence",
}  # fmt: skip
"""Kind of unit by a module's name in a layer, for names with the same meaning in every family."""

_NUMBER = r"(\d{1,6})"
_LABEL = rf"(?i)L{_NUMBER}(?:\s*h{_NUMBER}|\s+(attention|mlp|recurrence|layer))?"
_HOOK = rf"(?:blocks(?:\.{_NUMBER}|\[{_NUMBER}\])\.)?((?:\w+\.)?hook_[a-z_]+)(?:\.{_NUMBER}|\[{_NUMBER}\])?"
_PATH = (
    rf"(?:\w+\.){{0,4}}(?:layers|h|blocks)(?:\.{_NUMBER}|\[{_NUMBER}\])"
    r"(?:\.([a-z_]+))??(?:\.(input|output)(?:\[0\])?)?"
)
LONGEST = 120
"""Maximum length of a name, in characters."""
UNITS = "L6 h1, L3 mlp or L4"
"""Examples of labels."""
SWITCHED = "hook_z and hook_result with a head, hook_attn_out, hook_mlp_out, and blocks.N for a layer"
"""The hooks at which a unit can be switched off, in words."""


class NamedPart(Struct, frozen=True):
    """A part of a model that the user named."""

    hook: Hook
    layer: Count | None = None
    """Index of the layer, from 0; None for a part outside the layers."""
    head: Count | None = None
    """Index of the head, from 0; None for no head, or for all of them."""

    @property
    def place(self) -> tuple[int, ...]:
        """Layer and head if the part has them, counted from 1 as on the screen. For the stream before a layer, the
        previous layer is given, or 0 for the embedding."""
        if self.layer is None:
            return ()
        before = self.hook.part == "stream before"
        return (self.layer if before else self.layer + 1, *(() if self.head is None else (self.head + 1,)))


def named_part(text: str) -> NamedPart:
    """Parse the name of a part: `L6 h1`, `blocks.5.attn.hook_pattern[0]`, `model.layers.3.mlp`.

    Raises:
        ValueError: The text is not the name of a part; the message says what to write.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"{text[:20]!r}... is not a unit: write {UNITS}")
    if (label := re.fullmatch(_LABEL, text)) is not None:
        layer, head, kind = label.groups()
        if 0 in (int(layer), int(head or 1)):
            raise ValueError(f"{text!r} is not a unit: layers and heads count from 1")
        unit = "head" if head else (kind or "layer").lower()
        return NamedPart(_UNITS[unit], int(layer) - 1, int(head) - 1 if head else None)
    if (hooked := re.fullmatch(_HOOK, text)) is not None:
        dotted, bracketed, name, *heads = hooked.groups()
        layer, head = dotted or bracketed, next(filter(None, heads), None)
        hook = _BY_NAME.get(f"blocks.N.{name}" if layer else name)
        if hook is None:
            inside = f"blocks.N.{name}" in _BY_NAME
            known = f"write it with its layer, blocks.0.{name}" if inside else "the help lists the known ones"
            raise ValueError(f"{text!r} is not a known hook: {known}")
        if head is not None and not hook.heads:
            raise ValueError(f"{text!r} has no heads: leave the number at its end out")
        return NamedPart(hook, int(layer) if layer else None, int(head) if head else None)
    if (path := re.fullmatch(_PATH, text)) is not None:
        dotted, bracketed, module, end = path.groups()
        layer = int(dotted or bracketed)
        if module is None and end is not None:
            return NamedPart(_BY_NAME[f"blocks.N.hook_resid_{'pre' if end == 'input' else 'post'}"], layer)
        unit = "layer" if module is None else _MODULES.get(module)
        if unit is None or end == "input":
            known = ", ".join(each for each in _MODULES if each not in ("attention", "self_attention"))
            raise ValueError(
                f"{text!r} could be several things: of a layer there are {known} and the layer itself"
            )
        return NamedPart(_UNITS[unit], layer)
    if "." in text or "hook_" in text:
        raise ValueError(
            f"{text!r} is not a known hook or module: write blocks.5.attn.hook_z[0], "
            f"blocks.2.hook_mlp_out, model.layers.2.mlp, or {UNITS}"
        )
    raise ValueError(f"{text!r} is not a unit: write {UNITS}")


# ---- steering --------------------------------------------------------------------------------------

STRENGTHS = (-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Default strengths of a sweep."""
RANDOM_DIRECTIONS = 32
"""Number of random directions that each strength is compared with."""
LONGEST_NAME = 40
"""Maximum length of a direction's name, in characters."""


class Direction(Struct, frozen=True):
    """A vector of the residual stream's width."""

    name: str
    """Name for display, such as `happy-sad`."""
    layer: Count
    """Index of the layer after which the direction was read, from 0."""
    vector: Floats
    """Shape (width,)."""
    model: str = ""
    """Short name of the model that the direction was made with."""
    fingerprint: str = ""
    """Fingerprint of that model, as in `ModelFacts`; empty if unknown."""

    @property
    def digest(self) -> str:
        """Digest of the vector, 8 hexadecimal digits."""
        from hashlib import blake2b  # loads OpenSSL, 2 ms; not needed for the first screen

        return blake2b(self.vector.packed, digest_size=4).hexdigest()

    @property
    def label(self) -> str:
        """Printable characters of the name, such as `happy-sad`, cut to `LONGEST_NAME`."""
        return "".join(each for each in self.name[:LONGEST_NAME] if each.isprintable())


def named_places(name: str, texts: Sequence[str]) -> tuple[int, int]:
    """Return the places of the two tokens that a direction is named after, `happy-sad`, or else those of the first two.

    Args:
        name: Name of the direction.
        texts: Texts of the candidates, the most probable first.
    """
    words = [text.strip() for text in texts]
    named = [words.index(word) for word in name.split("-") if word in words]
    return (named[0], named[1]) if len(set(named)) == 2 else (0, 1)


class MakeDirection(Inside, frozen=True):
    """Make a direction in the residual stream after a layer: the difference of the means over two sets of texts, each
    at its last token, or the difference between two nodes. Answered by `Measuring` records and one `DirectionMade`."""

    layer: Count
    toward: tuple[str, ...] = ()
    """Texts to point to, tokenized like a prompt without a chat template."""
    away: tuple[str, ...] = ()
    """Texts to subtract, tokenized in the same way."""
    nodes: tuple[Count, ...] = ()
    """Two nodes, instead of the texts: the stream at the first minus the stream at the second."""
    name: str = ""


class DirectionMade(Record, frozen=True):
    """A direction, and how it was made."""

    direction: Direction
    toward: tuple[str, ...]
    away: tuple[str, ...]
    nodes: tuple[Count, ...]
    norm: Finite
    """Norm of the direction."""
    stream_norm: Finite
    """Mean norm of the streams that the direction was made from."""
    tokens_run: Count
    """Number of tokens that ran through the model for this."""
    facts: CaptureFacts


class SweepStrengths(Inside, frozen=True):
    """Add a direction to the stream after a layer at several strengths, each compared with `RANDOM_DIRECTIONS` random
    directions of the same norm; answered by `Measuring` records and one `StrengthsSwept`."""

    node: Count
    direction: Direction
    layer: Count
    scope: Scope = "token"
    begin: Count = 0
    """First position at which the direction is added, from 0, in the scope `context`; ignored in the scope `token`."""
    token: Count | None = None
    """Id of the followed token; its logit minus that of `other` is measured. None for the most probable token; if both
    are None, for the two that the direction is named after, if the candidates include them."""
    other: Count | None = None
    """Id of the token whose logit is subtracted; None for the most probable one except `token`."""
    strengths: tuple[Finite, ...] = STRENGTHS


class SteeredStrength(Struct, frozen=True):
    """The effect of a direction at one strength, and the band of 90 % of the random directions of the same norm."""

    strength: Finite
    kl_bits: float
    """KL divergence of the steered distribution from the model's own, KL(own || steered), in bits."""
    kl_low: float
    """5th percentile of the random directions' KL divergences."""
    kl_high: float
    """95th percentile of the random directions' KL divergences."""
    change: float
    """Change of the followed logit difference."""
    change_low: float
    """5th percentile of the random directions' changes."""
    change_high: float
    """95th percentile of the random directions' changes."""
    prob: Finite
    """Probability of the followed token."""
    other_prob: Finite
    top: Count
    """Id of the most probable token."""
    top_text: str
    top_prob: Finite

    @property
    def beyond(self) -> bool:
        """True if `change` lies outside the band of the random directions."""
        return not self.change_low <= self.change <= self.change_high


class StrengthsSwept(Record, frozen=True):
    """The effect of a direction as a function of its strength, with a band of random directions."""

    node: Count
    direction: Direction
    layer: Count
    """Index of the layer after which the direction was added, from 0."""
    scope: Scope
    """`token`: added only at the node's token, with the model's own KV. `context`: added from `begin` on, so that the
    KV of those positions is steered, too."""
    begin: Count
    """First position at which the direction was added, from 0."""
    steered: Count
    """Number of positions at which the direction was added."""
    token: Count
    """Id of the followed token."""
    text: str
    other: Count
    """Id of the token whose logit is subtracted."""
    other_text: str
    difference: float
    """Logit of `token` minus that of `other`, without steering."""
    prob: Finite
    """Probability of `token`, without steering."""
    other_prob: Finite
    norm: Finite
    """Norm of the direction."""
    stream_norm: Finite
    """Norm of the stream after the layer at the node's token, without steering."""
    strengths: tuple[SteeredStrength, ...]
    """Results in ascending order of strength; strength 0 is always among them."""
    random: Count
    """Number of random directions at each strength."""
    seed: Count
    """Seed of the random directions."""
    rows: Count
    """Number of directions in one forward pass; 1 if they ran one after another."""
    tokens_run: Count
    note: str
    facts: CaptureFacts

    def at(self, strength: float) -> SteeredStrength | None:
        """The result at one strength; None if it was not tried."""
        return next((each for each in self.strengths if each.strength == strength), None)

    @property
    def share(self) -> float:
        """Norm of the direction as a share of the stream's norm."""
        return self.norm / self.stream_norm if self.stream_norm else 0.0


# ---- interventions ---------------------------------------------------------------------------------

InterventionKind = Literal["head", "attention", "mlp", "recurrence", "layer", "direction"]
PatchKind = Literal["layer", "attention", "mlp"]


class Intervention(Struct, frozen=True):
    """A change of the model: the output of one unit is multiplied by a number, or a direction is added to the residual
    stream."""

    kind: InterventionKind
    """Changed value. `head`: the output of one head of the attention. `attention`, `mlp`, `recurrence`: the output of
    the layer's parts with that role. `layer`: what the layer adds to the residual stream; at scale 0 the layer is the
    identity. `direction`: the stream after the layer, to which a direction is added."""
    layer: Count
    head: Count | None = None
    """Index of the head, from 0; None unless the kind is `head`."""
    scale: Finite = 0.0
    """Factor of the output: 0 switches the unit off, 1 changes nothing. For a direction, its strength: 0 changes
    nothing."""
    direction: Direction | None = None
    """Direction to add; None unless the kind is `direction`."""

    @property
    def label(self) -> str:
        """Label for display: `L6 h1`, `L6 attention`, `L6 MLP` or `L6`, with the scale if it isn't 0. For a direction,
        with its strength and a digest of the vector: `L4 +happy-sad x2 #e3cfec11`."""
        if self.direction is not None:
            return f"L{self.layer + 1} +{self.direction.label} x{self.scale:g} #{self.direction.digest}"
        words = {
            "head": f" h{self.head + 1}" if self.head is not None else " head",
            "mlp": " MLP",
            "layer": "",
        }
        scale = f" x{self.scale:g}" if self.scale else ""
        return f"L{self.layer + 1}{words.get(self.kind, f' {self.kind}')}{scale}"


_SCALED = r"(?is)(.*?)(?:\s+x(-?\d{0,9}\.?\d{1,9}))?"


def units_from(text: str) -> tuple[Intervention, ...]:
    """Parse a list of names: `L6 h1, L3 mlp x0.5, blocks.5.attn.hook_z[0], model.layers.3.mlp`.

    Raises:
        ValueError: A name is not the name of a part, or the part can't be switched off.
    """
    return tuple(_unit(part.strip()) for part in text.split(","))


def _unit(text: str) -> Intervention:
    scaled = re.fullmatch(_SCALED, text)
    assert scaled is not None, "the pattern takes any text"
    name, scale = scaled.groups()
    named = named_part(name)
    unit, layer = named.hook.unit, named.layer
    if unit is None or layer is None:
        raise ValueError(f"{name!r} is {named.hook.what}: that can't be switched off. These can: {SWITCHED}")
    if unit == "head" and named.head is None:
        one, all_of_them = f"{named.hook.name.replace('N', str(layer))}[0]", f"blocks.{layer}.hook_attn_out"
        raise ValueError(f"{name!r} is all heads of a layer: write {one} for one, {all_of_them} for all")
    return Intervention(unit, layer, named.head, float(scale or 0))


class CandidateChange(Struct, frozen=True):
    """One candidate for the next token, without and with the interventions."""

    before: Candidate
    after: Candidate
    logit_before: float
    logit_after: float

    @property
    def logit_change(self) -> float:
        """Change of the candidate's logit by the interventions."""
        return self.logit_after - self.logit_before

    @property
    def ranks_up(self) -> int:
        """Number of ranks that the candidate rises; negative if it falls."""
        return self.before.rank - self.after.rank


class Intervened(Record, frozen=True):
    """The model's prediction after a node with and without interventions."""

    node: Count
    interventions: tuple[Intervention, ...]
    scope: Scope
    candidates: tuple[CandidateChange, ...]
    """The most probable tokens without the interventions, best first; then those most probable only with them."""
    kl_bits: float
    """KL divergence of the changed distribution from the model's own, KL(own || changed), in bits."""
    largest_change: float
    """Largest absolute change of a logit."""
    largest_change_id: Count
    """Id of the token with the largest change."""
    largest_change_text: str
    entropy_before_bits: Finite
    entropy_after_bits: Finite
    rounding: Finite
    """Largest logit change that rounding can explain; above 0 if the path may have run in other chunks."""
    tokens_run: Count
    """Number of tokens that ran through the model for this."""
    note: str
    facts: CaptureFacts
    begin: Count = 0
    """First position that ran through the changed model, from 0; 0 in the scope `token`."""


class SweptUnit(Struct, frozen=True):
    """The effect of switching off one unit of the model alone."""

    intervention: Intervention
    kl_bits: float
    """KL divergence of the changed distribution from the model's own, KL(own || changed), in bits."""
    logit_change: float
    """Change of the followed token's logit; negative if the unit raises it."""
    difference_change: float | None
    """Change of the logit difference between the followed and the other token; None if there is no other token."""
    prob: Finite
    """Probability of the followed token with the unit switched off."""
    top: Count
    """Id of the most probable token with the unit switched off."""
    top_text: str
    top_prob: Finite


class HeadsSwept(Record, frozen=True):
    """The effects of heads, attentions, MLPs, recurrences and layers switched off one at a time, for one token's
    forward pass or for its whole path."""

    node: Count
    token: Count
    """Id of the token whose logit after the node is followed."""
    text: str
    prob: Finite
    """Probability of `token` with nothing switched off."""
    logit: Finite
    other: Count | None
    """Id of the token whose logit is subtracted; None for none."""
    other_text: str
    difference: float | None
    """Logit of `token` minus that of `other` with nothing switched off; None if `other` is None."""
    top: Count
    """Id of the most probable token with nothing switched off."""
    top_text: str
    units: tuple[SweptUnit, ...]
    """Units in the order of the layers; for each layer its heads, its parts, then the layer itself."""
    missing: tuple[str, ...]
    """A sentence for each group of units that can't be switched off alone, with the reason."""
    rows: Count
    """Number of units in one forward pass; 1 if they ran one after another."""
    row_bytes: Count
    """Bytes of one row of that forward pass: its copy of the KV and its logits."""
    tokens_run: Count
    note: str
    facts: CaptureFacts
    scope: Scope = "token"

    @property
    def by_kl(self) -> list[SweptUnit]:
        """The units by their KL divergence, largest first."""
        return sorted(self.units, key=lambda each: -each.kl_bits)


class InterventionsHeld(Record, frozen=True):
    """The session moved to a branch under interventions, or back to a node without interventions."""

    node: Count
    """The current node: the first one of the branch under interventions, or `own` after a release. All nodes below the
    first one are under the same interventions."""
    own: Count
    """Node of the same token without interventions; after a release, its parent if there is no such node."""
    interventions: tuple[Intervention, ...]
    """Interventions of the branch; empty if they were released."""
    ms: Finite


class PatchColumn(Struct, frozen=True):
    """One position of the path, and the token of the source that it is aligned with."""

    position: Count
    """Position in the path, from 0."""
    node: Count
    id: Count
    text: str
    source_node: Count
    source_id: Count
    source_text: str
    source_position: Count | None = None
    """Position in the source's path, from 0. None in older recordings: it is then `position`, plus `shift` from the
    first difference on."""


Facing = tuple[tuple[int, int], ...]
"""Pairs of aligned positions in two paths, from 0; both sides are in ascending order."""


class ActivationsPatched(Record, frozen=True):
    """Activation patching: activations are replaced by those of the source's path, one layer and position at a time.

    A share says how far the replacement moves this path's logit difference towards the source's: 0 not at all, 1
    completely.
    """

    node: Count
    source: Count
    part: PatchKind
    token: Count
    text: str
    other: Count
    other_text: str
    difference: float
    """Logit of `token` minus that of `other` after the node."""
    source_difference: float
    """The same logit difference after the source."""
    first: Count
    """First position that differs in the source or is aligned with another position; all shares before it are 0, since
    both paths compute the same there."""
    columns: tuple[PatchColumn, ...]
    """Replaced positions: from the one before the first difference, if there is one, to the end, without positions that
    are not aligned."""
    layers: tuple[Count, ...]
    """Indices of the layers that have such a part, from 0."""
    shares: Floats
    """Shares of shape (layers, columns)."""
    rows: Count
    """Number of positions in one forward pass."""
    tokens_run: Count
    note: str
    facts: CaptureFacts
    shift: int = 0
    """Number of tokens by which the source is longer; negative if it is shorter."""
    aligned: bool = False
    """True if the user chose the alignment."""
    floor: float | None = None
    """Absolute change of the logit difference if this path runs after a copy of its first tokens, as many as the
    lengths differ by: an effect of the positions alone. None if the lengths are equal, or the path is too long to run
    again."""

    def share(self, layer: int, position: int) -> float | None:
        """The share at a layer and position of the path: 0 before the first difference, None if not measured."""
        if layer not in self.layers or position < 0:
            return None
        if position < min(self.first, self.columns[0].position):
            return 0.0
        places = [column.position for column in self.columns]
        row = self.shares.row(self.layers.index(layer))
        return row[places.index(position)] if position in places else None


MOST_PAIRS = 200
"""Maximum number of pairs of texts in one command."""
PAIR_TOKENS = 512
"""Maximum number of tokens in a text of a pair."""
PatchPlace = Literal["changed", "last changed", "after", "last"]
"""A class of positions. `last changed`: the last position with another token in the source; `changed`: all other such
positions. `after`: positions with the same token in both, after the first difference. `last`: the text's last token,
whether it differs or not."""


class PatchPair(Struct, frozen=True):
    """Two texts to compare: activations of the first are replaced by those of the second, the source."""

    text: str
    source: str
    token: str = ""
    """Answer that the source prefers, a single token. If both answers are empty, the likely tokens with the largest
    rise and fall of probability in the source are used."""
    other: str = ""
    """Answer that the text prefers, a single token."""


class PairPatched(Struct, frozen=True):
    """The result for one pair."""

    pair: PatchPair
    token: str
    """Text of the followed answer that the source prefers; empty if the pair failed."""
    other: str
    """Text of the followed answer that the text prefers; empty if the pair failed."""
    difference: float
    """Logit of `token` minus that of `other` after the text."""
    source_difference: float
    """The same logit difference after the source."""
    tokens: Count
    """Number of tokens of the text."""
    source_tokens: Count
    """Number of tokens of the source."""
    failure: str = ""
    """Reason why the pair is left out of the means; empty if it isn't."""


class PlaceShares(Struct, frozen=True):
    """The shares at one class of positions, over the pairs that have such a position."""

    place: PatchPlace
    pairs: Count
    """Number of pairs that have such a position."""
    means: tuple[Finite, ...]
    """Mean share over the pairs, for each layer; the share of a pair is the mean over its positions in the class."""
    spreads: tuple[Finite, ...]
    """Standard deviation over the pairs, for each layer; 0 for a single pair."""


class PairsPatched(Record, frozen=True):
    """Activation patching over a set of pairs: the mean share of each layer at each class of positions."""

    part: PatchKind
    pairs: tuple[PairPatched, ...]
    layers: tuple[Count, ...]
    """Indices of the layers that have such a part, from 0."""
    places: tuple[PlaceShares, ...]
    """Results for each class of positions that occurs in a pair, in the order of `PatchPlace`."""
    facts: CaptureFacts


class Intervene(Inside, frozen=True):
    """Compute what the model predicts after a node under interventions; answered by `Intervened`."""

    node: Count
    interventions: tuple[Intervention, ...]
    scope: Scope = "token"
    top: Count = 10
    """Number of most probable tokens to list without the interventions, and as many with them."""
    begin: Count = 0
    """First position that runs through the changed model, from 0, in the scope `context`; ignored in the scope `token`.
    """
    also: tuple[Count, ...] = ()
    """Ids of further tokens to list, however improbable they are."""


class SweepHeads(Inside, frozen=True):
    """Switch off heads, parts and layers one at a time; answered by `Measuring` records and one `HeadsSwept`."""

    node: Count
    token: Count | None = None
    """Id of the token whose logit is followed, such as the next token of the path; None for the most probable one."""
    other: Count | None = None
    """Id of the token whose logit is subtracted; None for none."""
    heads: tuple[Count, ...] | None = None
    """Indices of the layers whose heads are switched off, from 0; None for all layers."""
    parts: bool = True
    """True to switch off parts and layers as well."""
    scope: Scope = "token"


class HoldInterventions(OneProcess, frozen=True):
    """Continue under interventions: the node's token runs again under them, as the first token of a new branch.

    All tokens after it are computed under them, too, until the session moves to a node without interventions. Answered
    by `Moved` (unless the session is right before the token), `Step` and `InterventionsHeld`.

    With empty interventions, the session moves back to the token without interventions that the branch was made from;
    answered by `Moved` and `InterventionsHeld`.
    """

    stoppable: ClassVar[bool] = True
    node: Count
    interventions: tuple[Intervention, ...] = ()
    """Interventions of the new branch; empty to release the current ones."""


class PatchActivations(Inside, frozen=True):
    """Replace activations by those of another path, one layer and position at a time; answered by `Measuring` records
    and one `ActivationsPatched`."""

    node: Count
    source: Count
    """Node of the last token of another prompt or branch."""
    token: Count
    """Id of the first token of the logit difference: the logit of `token` minus that of `other`."""
    other: Count
    part: PatchKind = "layer"
    """Replaced activations: the residual stream after each layer, or the output of each layer's attention or MLP."""
    alignment: Facing | None = None
    """Pairs of aligned positions; None to align common blocks (see `engine.tree.aligned`)."""


class PatchPairs(Inside, frozen=True):
    """Patch each of several pairs of texts, as raw text in separate sessions, and average the shares; answered by
    `Measuring` records and one `PairsPatched`."""

    pairs: tuple[PatchPair, ...]
    """Pairs of texts, 1 to `MOST_PAIRS` of them."""
    part: PatchKind = "layer"

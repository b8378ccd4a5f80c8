"""Interventions: parts of the model switched off, scaled, replaced or steered, how they are named, and what the model
then predicts.

Layers, heads and positions are counted from 0; labels count from 1, as they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Floats, Record
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


# ---- steering --------------------------------------------------------------------------------------

STRENGTHS = (-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""That are tried where none are asked for."""
RANDOM_DIRECTIONS = 32
"""Random directions that each strength is compared with."""
LONGEST_NAME = 40
"""Characters of a direction's name at most."""


class Direction(Struct, frozen=True):
    """A vector of the residual stream's width."""

    name: str
    """For a person: `happy-sad`."""
    layer: Count
    """It was read after this one."""
    vector: Floats
    """Shape (width,)."""
    model: str = ""
    """Short name of the model that it was made with."""
    fingerprint: str = ""
    """Of that model, as `ModelFacts` has it; empty where it isn't known."""

    @property
    def digest(self) -> str:
        """Of the vector, 8 hexadecimal digits."""
        from hashlib import blake2b  # OpenSSL: 2 ms, and nothing else of the first screen needs it

        return blake2b(self.vector.packed, digest_size=4).hexdigest()

    @property
    def label(self) -> str:
        """Its name without what can't be printed: `happy-sad`."""
        return "".join(each for each in self.name[:LONGEST_NAME] if each.isprintable())


class MakeDirection(Inside, frozen=True):
    """Make a direction after a layer: the mean stream of some texts less that of others, each at its last token; or the
    stream at one node less that at another. Answered by `DirectionMade`."""

    layer: Count
    toward: tuple[str, ...] = ()
    """Texts, cut into tokens as a prompt without a chat template is."""
    away: tuple[str, ...] = ()
    nodes: tuple[Count, ...] = ()
    """Two nodes, in place of the texts: the first less the second."""
    name: str = ""


class DirectionMade(Record, frozen=True):
    """A direction, and how it was made."""

    direction: Direction
    toward: tuple[str, ...]
    away: tuple[str, ...]
    nodes: tuple[Count, ...]
    norm: Finite
    """Its length."""
    stream_norm: Finite
    """The mean length of the streams that it was made of."""
    tokens_run: Count
    facts: CaptureFacts


class SweepStrengths(Inside, frozen=True):
    """Add a direction with one strength after another, and as many random ones of the same norm, to the stream after a
    layer; answered by `Measuring` records and one `StrengthsSwept`."""

    node: Count
    direction: Direction
    layer: Count
    scope: Scope = "token"
    begin: Count = 0
    """In the context: the first position that it is added at."""
    token: Count | None = None
    """Its logit, less that of `other`, is followed; None for the most probable one."""
    other: Count | None = None
    """None for the most probable one besides the token."""
    strengths: tuple[Finite, ...] = STRENGTHS


class SteeredStrength(Struct, frozen=True):
    """What a direction does with one strength, and between what most random directions of the same norm do."""

    strength: Finite
    kl_bits: float
    """KL divergence of the steered distribution from the model's own, KL(own || steered)."""
    kl_low: float
    """The 5th percentile of the random directions."""
    kl_high: float
    """The 95th."""
    change: float
    """What is added to the difference of the two logits."""
    change_low: float
    change_high: float
    prob: Finite
    """Of the followed token."""
    other_prob: Finite
    top: Count
    """The most probable token."""
    top_text: str
    top_prob: Finite

    @property
    def beyond(self) -> bool:
        """True if the change of the difference lies outside of what most random directions do."""
        return not self.change_low <= self.change <= self.change_high


class StrengthsSwept(Record, frozen=True):
    """The effect of a direction as a function of its strength, with a band of random directions."""

    node: Count
    direction: Direction
    layer: Count
    """It was added after this one."""
    scope: Scope
    """`token`: at the node's token alone, over the model's own KV. `context`: from `begin` on, so that the KV of those
    positions is steered, too."""
    begin: Count
    """The first position that it was added at, from 0."""
    steered: Count
    """Positions that it was added at."""
    token: Count
    text: str
    other: Count
    other_text: str
    difference: float
    """The logit of the token less that of the other one, without steering."""
    prob: Finite
    """Of the token, without steering."""
    other_prob: Finite
    norm: Finite
    """The direction's length."""
    stream_norm: Finite
    """That of the stream after the layer at the node's token, without steering."""
    strengths: tuple[SteeredStrength, ...]
    """Ascending."""
    random: Count
    """Random directions."""
    seed: Count
    """Of those."""
    rows: Count
    """Directions in one forward."""
    tokens_run: Count
    note: str
    facts: CaptureFacts

    def at(self, strength: float) -> SteeredStrength | None:
        """What one strength does; None where it was not tried."""
        return next((each for each in self.strengths if each.strength == strength), None)

    @property
    def share(self) -> float:
        """The direction's length as a share of the stream's."""
        return self.norm / self.stream_norm if self.stream_norm else 0.0


# ---- interventions ---------------------------------------------------------------------------------

InterventionKind = Literal["head", "attention", "mlp", "recurrence", "layer", "direction"]
PatchKind = Literal["layer", "attention", "mlp"]


class Intervention(Struct, frozen=True):
    """What one unit of the model writes is multiplied by a number; or a direction is added to the residual stream."""

    kind: InterventionKind
    """`head`: what a head of the attention returns. `attention`, `mlp`, `recurrence`: what the layer's parts of that
    role return. `layer`: what the layer adds to the residual stream; at scale 0 it is the identity. `direction`: the
    stream after the layer, to which a direction is added."""
    layer: Count
    head: Count | None = None
    """Of a head alone."""
    scale: Finite = 0.0
    """0 switches it off, 1 changes nothing. Of a direction its strength: 0 changes nothing."""
    direction: Direction | None = None
    """Of the kind `direction` alone."""

    @property
    def label(self) -> str:
        """For a person: `L6 h1`, `L6 attention`, `L6 MLP`, `L6`, with the scale where it isn't 0; of a direction
        `L4 +happy-sad x2 #e3cfec11`, with the strength and a digest of the vector."""
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
    """The interventions that a list of names names: `L6 h1, L3 mlp x0.5, blocks.5.attn.hook_z[0], model.layers.3.mlp`.

    Raises:
        ValueError: One of them names no part, or one that can't be switched off.
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
    """One token that could be next, without and with the interventions."""

    before: Candidate
    after: Candidate
    logit_before: float
    logit_after: float

    @property
    def logit_change(self) -> float:
        """The change of its logit by the interventions."""
        return self.logit_after - self.logit_before

    @property
    def ranks_up(self) -> int:
        """How many ranks it rises; below 0 it falls."""
        return self.before.rank - self.after.rank


class Intervened(Record, frozen=True):
    """What the model predicts after a node under interventions, beside what it predicts itself."""

    node: Count
    interventions: tuple[Intervention, ...]
    scope: Scope
    candidates: tuple[CandidateChange, ...]
    """The most probable without the interventions, best first; then those that are so only with them."""
    kl_bits: float
    """Kullback-Leibler divergence of the changed distribution from the model's own, KL(own || changed)."""
    largest_change: float
    """Of a logit, absolute."""
    largest_change_id: Count
    """The token whose logit it is."""
    largest_change_text: str
    entropy_before_bits: Finite
    entropy_after_bits: Finite
    rounding: Finite
    """The largest logit change that rounding explains: above 0 where the path may have run in other chunks."""
    tokens_run: Count
    """Tokens that went through the model for this."""
    note: str
    facts: CaptureFacts
    begin: Count = 0
    """In the context: the first position that went through the changed model."""


class SweptUnit(Struct, frozen=True):
    """One unit of the model, switched off alone."""

    intervention: Intervention
    kl_bits: float
    logit_change: float
    """Of the token that the sweep looks at; below 0 where the unit spoke for it."""
    difference_change: float | None
    """Of the logit of that token less that of the other one; None without another one."""
    prob: Finite
    """Of the token, with the unit switched off."""
    top: Count
    """The most probable token then."""
    top_text: str
    top_prob: Finite


class HeadsSwept(Record, frozen=True):
    """Heads, attentions, MLPs, recurrences and layers switched off one at a time, for one token's forward or for its
    whole path: all of them, or those that were asked for."""

    node: Count
    token: Count
    """The token after the node whose logit is followed."""
    text: str
    prob: Finite
    """With nothing switched off."""
    logit: Finite
    other: Count | None
    other_text: str
    difference: float | None
    """The logit of the token less that of the other one, with nothing switched off."""
    top: Count
    """The most probable token with nothing switched off."""
    top_text: str
    units: tuple[SweptUnit, ...]
    """In the order of the layers; of each its heads, its parts, then the layer."""
    missing: tuple[str, ...]
    """A sentence for each group of units that can't be switched off alone, with the reason."""
    rows: Count
    """Units in one forward; 1 where they ran one by one."""
    row_bytes: Count
    """Memory of one of those rows: its copy of the KV and its logits."""
    tokens_run: Count
    note: str
    facts: CaptureFacts
    scope: Scope = "token"

    @property
    def by_kl(self) -> list[SweptUnit]:
        """The units, first the one that moves all probabilities furthest."""
        return sorted(self.units, key=lambda each: -each.kl_bits)


class InterventionsHeld(Record, frozen=True):
    """The session stands on a branch under interventions, or on the model's own again."""

    node: Count
    """The current node: the first of the branch. All nodes after it are under the same interventions, by their parents
    alone; none of the model's own follows one that is under some."""
    own: Count
    """The same token as the model itself computes it."""
    interventions: tuple[Intervention, ...]
    """Empty where they were released."""
    ms: Finite


class PatchColumn(Struct, frozen=True):
    """One position of both paths."""

    position: Count
    node: Count
    id: Count
    text: str
    source_node: Count
    source_id: Count
    source_text: str
    source_position: Count | None = None
    """The source's; None in recordings of before, where it is the same before the difference and shifted after it."""


Facing = tuple[tuple[int, int], ...]
"""Which token of a path faces which of another, both counted from 0: rising on both sides."""


class ActivationsPatched(Record, frozen=True):
    """Activation patching: at one layer and position after another, what the source's path has there is put in.

    A share is how much of the way from this path's logit difference to the source's the replacement goes: 0 changes
    nothing, 1 restores all of it.
    """

    node: Count
    source: Count
    part: PatchKind
    token: Count
    text: str
    other: Count
    other_text: str
    difference: float
    """The logit of `token` less that of `other` after the node."""
    source_difference: float
    """The same after the source."""
    first: Count
    """The first position where the paths differ; all columns before it are 0: there both have computed the same."""
    columns: tuple[PatchColumn, ...]
    """The positions that were replaced: from the one before the first difference, where there is one, to the end,
    without those that face none of the source's."""
    layers: tuple[Count, ...]
    """The layers that have such a part."""
    shares: Floats
    """Shape (layers, columns)."""
    rows: Count
    """Positions in one forward."""
    tokens_run: Count
    note: str
    facts: CaptureFacts
    shift: int = 0
    """Tokens that the source has more; below 0 fewer. After the difference it has them so many places later."""
    aligned: bool = False
    """True if a person said which tokens face each other."""
    floor: float | None = None
    """Where the source has more tokens or fewer: how far the logit difference moves where this text stands as many
    places later, behind its own first tokens. As much of an effect may come from the places alone. None where both are
    as long, or the path is too long to run again."""

    def share(self, layer: int, position: int) -> float | None:
        """The share at a layer and position of the path; 0 before the first difference, None where there is none."""
        if layer not in self.layers or position < 0:
            return None
        if position < min(self.first, self.columns[0].position):
            return 0.0
        places = [column.position for column in self.columns]
        row = self.shares.row(self.layers.index(layer))
        return row[places.index(position)] if position in places else None


MOST_PAIRS = 200
"""Pairs of texts that are patched together, at most."""
PAIR_TOKENS = 512
"""Tokens of a text of a pair, at most."""
PatchPlace = Literal["changed", "last changed", "after", "last"]
"""A class of positions. `last changed`: the last one whose token is another in the source; `changed`: the others of
those. `after`: the same token in both, behind the first difference. `last`: the text's last token, whatever it is."""


class PatchPair(Struct, frozen=True):
    """Two texts whose difference is looked for: what the second computes is put into the first."""

    text: str
    source: str
    token: str = ""
    """The answer that the source prefers, a single token; empty, with the other one, for the two that tell the texts
    apart most."""
    other: str = ""
    """The one that the text prefers."""


class PairPatched(Struct, frozen=True):
    """The result for one pair."""

    pair: PatchPair
    token: str
    """The answers that were followed; empty where it came to none."""
    other: str
    difference: float
    """The logit of `token` less that of `other` after the text."""
    source_difference: float
    """The same after the source."""
    tokens: Count
    """Of the text."""
    source_tokens: Count
    failure: str = ""
    """Why it is left out; empty where it is not."""


class PlaceShares(Struct, frozen=True):
    """The shares at one class of positions, over the pairs that have such a position."""

    place: PatchPlace
    pairs: Count
    means: tuple[Finite, ...]
    """For each layer the mean over the pairs, each with the mean over its positions of that class."""
    spreads: tuple[Finite, ...]
    """Standard deviations over the pairs; 0 for a single one."""


class PairsPatched(Record, frozen=True):
    """Activation patching over a set of pairs: of how many what share of the difference sits where."""

    part: PatchKind
    pairs: tuple[PairPatched, ...]
    layers: tuple[Count, ...]
    places: tuple[PlaceShares, ...]
    """Those that any pair has, in the order of `PatchPlace`."""
    facts: CaptureFacts


class Intervene(Inside, frozen=True):
    """What the model predicts after a node under interventions; answered by `Intervened`."""

    node: Count
    interventions: tuple[Intervention, ...]
    scope: Scope = "token"
    top: Count = 10
    """The most probable tokens that are listed, of those without and of those with the interventions."""
    begin: Count = 0
    """In the context: the first position that goes through the changed model; those before it through the model."""


class SweepHeads(Inside, frozen=True):
    """Switch off heads, parts and layers one at a time, all of them unless some are named; answered by `Measuring`
    records and one `HeadsSwept`."""

    node: Count
    token: Count | None = None
    """Whose logit is followed, such as that of the token that was taken next; None for the most probable one."""
    other: Count | None = None
    """The logit of this one is taken off."""
    heads: tuple[Count, ...] | None = None
    """The layers whose heads are switched off; None for all layers."""
    parts: bool = True
    """True if parts and layers are."""
    scope: Scope = "token"


class HoldInterventions(Command, frozen=True):
    """Go on under interventions: the token is run again under them, as the first of a branch that stays under them.

    Every token after it, however it is chosen, is computed so until the session goes to a node of the model's own.
    Answered by `Moved`, unless the session stands before the token, `Step` and `InterventionsHeld`; where the
    interventions are empty by `Moved`, to the token of the model's own that the branch was made from, and
    `InterventionsHeld`.
    """

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: Count
    interventions: tuple[Intervention, ...] = ()


class PatchActivations(Inside, frozen=True):
    """Replace activations by those of another path, one layer and position at a time; answered by `Measuring` records
    and one `ActivationsPatched`."""

    node: Count
    source: Count
    """The last token of another prompt or branch."""
    token: Count
    """Its logit, less that of `other`, is what the replacement moves towards the source's."""
    other: Count
    part: PatchKind = "layer"
    """Whole layers, that is the residual stream after each, or what their attention or MLP returns."""
    alignment: Facing | None = None
    """Which token faces which of the source; None for common blocks, see `engine.tree.aligned`."""


class PatchPairs(Inside, frozen=True):
    """Patch each of a set of pairs of texts, raw and in sessions of their own, and take the means; answered by
    `Measuring` records and one `PairsPatched`."""

    pairs: tuple[PatchPair, ...]
    """1 to `MOST_PAIRS`."""
    part: PatchKind = "layer"

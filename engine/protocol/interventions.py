"""Interventions: parts of the model switched off, scaled or replaced, and what the model then predicts.

Layers, heads and positions are counted from 0; `label` counts from 1, as a person reads them.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Record
from engine.protocol.hooks import SWITCHED, named_part
from engine.protocol.inside import CaptureFacts, Inside, Scope
from engine.protocol.numbers import Count, Finite, Floats
from engine.protocol.steering import Direction
from engine.protocol.steps import Candidate

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

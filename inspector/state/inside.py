"""What was looked at inside the model, by the token whose forward it was: for exports."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from msgspec import Struct, field
from msgspec.structs import fields, replace
from rich.cells import cell_len

from engine.protocol import (
    ActivationsPatched,
    AttentionRead,
    AttributionRead,
    CaptureFacts,
    Check,
    Direction,
    DirectionMade,
    ExpertsRead,
    GradientMethod,
    GradientsRead,
    HeadsScored,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    LensRead,
    LockstepClosed,
    LockstepOpened,
    ModelFacts,
    ModelModules,
    PairsPatched,
    PatchKind,
    PositionChange,
    PositionTried,
    PromptOpened,
    Record,
    RepeatedTexts,
    Scope,
    ScoreRead,
    StrengthsSwept,
    SweepStrengths,
    SweptUnit,
)
from inspector.display import visible
from inspector.scales import milliseconds
from inspector.state.capability import CapabilityState

CHECKS = {
    "forward": "logits unchanged", "attention": "attention", "rows": "rows sum to 1", "lens": "lens = logits",
    "parts": "parts sum to logits", "session": "as the session computed",
    "scores": "shares sum to scores", "weights": "sums make its weights",
    "experts": "weights make the output", "keys": "same keys", "single": "as one alone",
    "same": "nothing before the difference",
    "restored": "all restored at the end", "zero": "strength 0 changes nothing",
    "derivative": "as finite differences", "swaps": "no gradient, no effect", "complete": "shares complete",
}  # fmt: skip
"""What each check says."""


def checks_words(facts: CaptureFacts) -> tuple[str, str]:
    """The checks of a view, each with its error: in words, and by its name alone; printable."""
    words, names = [], []
    for check in facts.checks:
        words.append(f"{CHECKS.get(check.name, check.name)} ({check.error:.1g})")
        names.append(f"{check.name} {check.error:.1g}")
    return visible(", ".join(words)), visible(", ".join(names))


def checked(facts: CaptureFacts, width: int) -> str:
    """The checks of a view, and what it cost, in the longest words that there is room for.

    Args:
        facts: Of the view.
        width: Cells of the line.
    """
    times = facts.ms / facts.step_ms if facts.step_ms else 0.0
    state = "Checked" if facts.failed is None else "Not shown"
    cost = milliseconds(facts.ms)
    long, short = checks_words(facts)
    note = f" · {visible(facts.note)}" if facts.note else ""
    for form in (
        f"{state} · {cost}, {times:.1f} plain steps · {long}{note}",
        f"{state} · {cost}, {times:.1f} plain steps · {short}{note}",
        f"{state} · {cost}, {times:.1f} plain steps · {short}",
    ):
        if cell_len(form) <= width:
            return form
    return f"{state} · {cost} · {short}"


def interventions_words(interventions: Sequence[Intervention]) -> str:
    """Units as a person reads them: `L6 h1 and L3 MLP off`, `L6 h1 x0.5`, `L4 +happy-sad x2 #e3cfec11`; printable."""
    off = [visible(each.label) for each in interventions if not each.scale and each.direction is None]
    scaled = [visible(each.label) for each in interventions if each.scale or each.direction is not None]
    return ", ".join(([" and ".join(off) + " off"] if off else []) + scaled)


def sides(interventions: Sequence[Intervention]) -> tuple[str, str]:
    """The words over the model's own numbers and over those that it has under interventions, on screens, in tables and
    in documents: what is switched off is there in the first ones, and a direction is not."""
    if any(each.direction is not None for each in interventions):
        return "model", "steered"
    return ("model", "scaled") if any(each.scale for each in interventions) else ("with it", "without")


def steered_words(scope: Scope, begin: int) -> str:
    """How much of a path is changed: `this token`, `whole context`, `from token 9 on`."""
    if scope == "token":
        return "this token"
    return f"from token {begin + 1} on" if begin else "whole context"


_LAST = {"head": 0, "layer": 2}
"""The order of a layer's units: heads, parts, the layer."""


def layer_of_heads(swept: HeadsSwept) -> int | None:
    """The layer whose heads a sweep has and nothing else; None for one with parts and layers."""
    layers = {each.intervention.layer for each in swept.units}
    only_heads = all(each.intervention.kind == "head" for each in swept.units)
    return next(iter(layers)) if only_heads and len(layers) == 1 else None


def joined(whole: HeadsSwept, more: HeadsSwept) -> HeadsSwept:
    """A sweep with the units of another one of the same node, and the worse of each check. Of two that follow other
    logits, or are of other scopes, the later one that has parts.

    Args:
        whole: Has what both have in common.
        more: Its units are added, or take the place of the same ones.
    """
    if (whole.token, whole.other, whole.scope) != (more.token, more.other, more.scope):
        return more if layer_of_heads(more) is None else whole
    units = {each.intervention: each for each in (*whole.units, *more.units)}
    checks = {check.name: check for check in whole.facts.checks}
    for check in more.facts.checks:
        worse = checks.get(check.name)
        checks[check.name] = check if worse is None else max(worse, check, key=_excess)
    facts = replace(whole.facts, checks=tuple(checks.values()), ms=whole.facts.ms + more.facts.ms)
    run = whole.tokens_run + more.tokens_run
    return replace(whole, units=tuple(sorted(units.values(), key=_place)), facts=facts, tokens_run=run)


def _excess(check: Check) -> float:
    return check.error / check.bound if check.bound else check.error


def _place(unit: SweptUnit) -> tuple[int, int, int]:
    each = unit.intervention
    return each.layer, _LAST.get(each.kind, 1), each.head or 0


KEPT = 64
"""Of each kind at most; the first ones go first."""
LARGEST = 2 * 2**20
"""Bytes of packed numbers of one at most: what a trace wouldn't keep either."""

Tried = tuple[int, tuple[Intervention, ...], Scope, int]
"""What was tried: after which node, what was changed, in how much of the path, and from which position on."""
Added = tuple[int, Direction, int, Scope, int]
"""What was added with all strengths: after which node, what, after which layer, in how much of the path, and from which
position on."""
Moved = tuple[int, PositionChange, int, int]
"""What was tried of a position: of which node, how, by how much, and how many later tokens it saw."""
Patched = tuple[int, int, PatchKind, int]
"""What was patched: after which node, from the path to which, which part of the layers, and whose logit is followed."""
Explained = tuple[int, int]
"""A node, and the token after it that is explained: other branches may have taken other ones there."""
ScoredHead = tuple[int, int, int]
"""Whose scores were divided: from which node, in which layer, of which head."""


def tried_key(tried: Intervene | Intervened) -> Tried:
    """What was tried, of its question as of the answer."""
    return tried.node, tried.interventions, tried.scope, tried.begin if tried.scope == "context" else 0


def swept_key(swept: SweepStrengths | StrengthsSwept) -> Added:
    """What was added with all strengths, of its question as of the answer."""
    begin = swept.begin if swept.scope == "context" else 0
    return swept.node, swept.direction, swept.layer, swept.scope, begin


def is_vector(direction: Direction) -> bool:
    """True if a direction that a file brought is one, and none that a trace wouldn't keep."""
    return direction.vector.fits and len(direction.vector.packed) <= LARGEST


class InsideViews(Struct, CapabilityState):
    """The last views of a session that passed their checks."""

    TAKES: ClassVar[tuple[type[Record], ...]] = (
        AttentionRead, LensRead, AttributionRead, HeadsScored, HeadsSwept, Intervened, ActivationsPatched, PairsPatched,
        DirectionMade, StrengthsSwept, GradientsRead, ScoreRead, ModelModules, ExpertsRead, PositionTried,
        PromptOpened,
    )  # fmt: skip
    SECOND: ClassVar[bool] = False
    """True if they are of the second model."""

    attention: OrderedDict[int, AttentionRead] = field(default_factory=OrderedDict)
    """By node."""
    scored: OrderedDict[tuple[int, RepeatedTexts | None], HeadsScored] = field(default_factory=OrderedDict)
    """By node and the texts."""
    lens: OrderedDict[int, LensRead] = field(default_factory=OrderedDict)
    contributions: OrderedDict[Explained, AttributionRead] = field(default_factory=OrderedDict)
    gradients: OrderedDict[tuple[Explained, GradientMethod], GradientsRead] = field(
        default_factory=OrderedDict
    )
    sweeps: OrderedDict[tuple[Explained, Scope], HeadsSwept] = field(default_factory=OrderedDict)
    tried: OrderedDict[Tried, Intervened] = field(default_factory=OrderedDict)
    patched: OrderedDict[Patched, ActivationsPatched] = field(default_factory=OrderedDict)
    pairs: OrderedDict[PatchKind, PairsPatched] = field(default_factory=OrderedDict)
    """The last set of each part."""
    directions: OrderedDict[Direction, DirectionMade] = field(default_factory=OrderedDict)
    strengths: OrderedDict[tuple[Added, int], StrengthsSwept] = field(default_factory=OrderedDict)
    """By what was added and the token whose logit is followed."""
    scores: OrderedDict[ScoredHead, ScoreRead] = field(default_factory=OrderedDict)
    experts: OrderedDict[int, ExpertsRead] = field(default_factory=OrderedDict)
    """By node."""
    positions: OrderedDict[Moved, PositionTried] = field(default_factory=OrderedDict)
    modules: OrderedDict[tuple[str, int], ModelModules] = field(default_factory=OrderedDict)
    """Of any model, by its path and its bytes."""

    def apply(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case (
                AttentionRead()
                | LensRead()
                | AttributionRead()
                | HeadsScored()
                | GradientsRead()
                | ScoreRead()
            ) if bool(record.facts.model) != self.SECOND:
                pass
            case ExpertsRead() | PositionTried() if bool(record.facts.model) != self.SECOND:
                pass
            case LockstepOpened() | LockstepClosed() | ModelFacts():
                self.forget()  # the second model is another one, or none
            case PromptOpened(new_tree=True):
                modules = self.modules
                self.forget()
                self.modules = modules  # those of the model are the same for every prompt
            case ModelModules():
                _keep(self.modules, (record.model, record.bytes), record)
            case ExpertsRead() if record.facts.failed is None:
                _keep(self.experts, record.node, record)
            case PositionTried() if record.facts.failed is None:
                _keep(self.positions, (record.node, record.change, record.offset, record.later), record)
            case AttentionRead() if record.facts.failed is None and record.nbytes <= LARGEST:
                _keep(self.attention, record.node, record)
            case HeadsScored(heads=(_, *_)) if record.facts.failed is None:
                _keep(self.scored, (record.node, record.texts), record)
            case LensRead() if record.facts.failed is None:
                _keep(self.lens, record.node, record)
            case AttributionRead(tokens=(token, *_)) if record.facts.failed is None:
                _keep(self.contributions, (record.node, token.id), record)
            case GradientsRead(tokens=(token, *_)) if record.facts.failed is None:
                _keep(self.gradients, ((record.node, token.id), record.method), record)
            case HeadsSwept() if record.facts.failed is None:
                key = (record.node, record.token), record.scope
                before = self.sweeps.get(key)
                _keep(self.sweeps, key, record if before is None else joined(before, record))
            case Intervened() if record.facts.failed is None:
                _keep(self.tried, tried_key(record), record)
            case ActivationsPatched() if record.facts.failed is None and self.sound(record):
                _keep(self.patched, (record.node, record.source, record.part, record.token), record)
            case PairsPatched() if record.facts.failed is None and self.sound(record):
                _keep(self.pairs, record.part, record)
            case DirectionMade() if record.facts.failed is None and is_vector(record.direction):
                _keep(self.directions, record.direction, record)
            case StrengthsSwept() if record.facts.failed is None and is_vector(record.direction):
                _keep(self.strengths, (swept_key(record), record.token), record)
            case ScoreRead() if record.facts.failed is None and record.nbytes <= LARGEST:
                _keep(self.scores, (record.node, record.layer, record.head), record)
            case _:
                pass

    @classmethod
    def sound(cls, record: Record) -> bool:
        """Tell whether experts have a weight each, or none has one; whether layers have parts, embeddings a size; and
        whether what was put in has a number for each layer."""
        match record:
            case ActivationsPatched(layers=layers, columns=columns, shares=shares):
                return (
                    bool(layers and columns) and shares.fits and shares.shape == (len(layers), len(columns))
                )
            case PairsPatched(layers=layers, places=places):
                return all(len(each.means) == len(each.spreads) == len(layers) for each in places)
            case ExpertsRead():
                return all(
                    len(layer.weights) in (0, len(layer.chosen)) and all(map(math.isfinite, layer.weights))
                    for layer in record.layers
                )
            case ModelModules():
                inside = (part for block in record.blocks for part in block.parts)
                parts = (*record.before, *inside, *record.after, *record.unused)
                tables = (part.arrays[0] for part in parts if part.role == "embedding" and part.arrays)
                return all(block.layers and block.parts for block in record.blocks) and all(
                    table.shape for table in tables
                )
            case _:
                return True

    def forget(self) -> None:
        """Forget all of them."""
        for each in fields(self):
            setattr(self, each.name, OrderedDict())


class SecondInside(InsideViews):
    """The same of the second model in lockstep, until it is another one."""

    TAKES = (
        AttentionRead, LensRead, AttributionRead, HeadsScored, GradientsRead, ScoreRead, LockstepOpened, LockstepClosed,
        ModelFacts, ExpertsRead, PositionTried, PromptOpened,
    )  # fmt: skip
    SECOND = True


Key = TypeVar("Key")
View = TypeVar("View")


def _keep(views: OrderedDict[Key, View], key: Key, view: View) -> None:
    views[key] = view
    views.move_to_end(key)
    while len(views) > KEPT:
        views.popitem(last=False)

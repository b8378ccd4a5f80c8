"""Answers about the models' internals: one store for views, exports, lessons and replays."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from engine import protocol
from engine.protocol import CaptureFacts, Check, Failure, HeadsSwept, Intervention, Record
from inspector.display import first_fitting, visible
from inspector.scales import milliseconds
from inspector.state import merges
from inspector.state.capability import CapabilityState

# ---- checks and interventions in words ----------------------------------------------------------

CHECKS = {
    "forward": "logits unchanged", "attention": "attention", "rows": "rows sum to 1", "lens": "lens = logits",
    "parts": "parts sum to logits", "session": "as the session computed",
    "scores": "shares sum to scores", "weights": "sums make its weights",
    "experts": "weights make the output", "keys": "same keys", "single": "as one alone",
    "same": "nothing before the difference",
    "restored": "all restored at the end", "zero": "strength 0 changes nothing",
    "derivative": "as finite differences", "swaps": "no gradient, no effect", "complete": "shares complete",
}  # fmt: skip
"""Words for each check."""
ABSOLUTE = {"forward", "rows", "weights", "keys", "same", "restored", "zero"}
"""The checks with an absolute error; the error of the others is relative to the largest value."""


def checks_words(facts: CaptureFacts) -> str:
    """The checks of a view in words, each with its error; printable."""
    return visible(", ".join(f"{_check_name(check)} ({check.error:.1g})" for check in facts.checks))


def checked(facts: CaptureFacts, width: int) -> str:
    """The result of a view's checks with the largest error and the time taken, shortened to the width.

    Args:
        facts: Checks and times of the view.
        width: Cells of the line.
    """
    if (failed := facts.failed) is not None:
        error = f"off by {failed.error:.2g}, where {failed.bound:.2g} is allowed"
        said = visible(f"Not shown: the check “{_check_name(failed)}” failed")
        return first_fitting(width, f"{said}, {error}", said)
    largest = max(facts.checks, key=lambda check: check.error, default=Check("rows", 0.0, 0.0))
    said = f"Verified, largest {'' if largest.name in ABSOLUTE else 'relative '}error {largest.error:.1g}"
    note = f" · {visible(facts.note)}" if facts.note else ""
    return first_fitting(width, f"{said} · {milliseconds(facts.ms)}{note}", f"{said}{note}", said)


def _check_name(check: Check) -> str:
    return CHECKS.get(check.name, check.name)


def interventions_words(interventions: Sequence[Intervention], exact: bool = False) -> str:
    """Interventions in words: `L6 h1 and L3 MLP off`, `L6 h1 x0.5`, `L4 +happy-sad x2`; printable.

    Args:
        interventions: The interventions.
        exact: Whether to append the digest of a direction's vector to its name and strength.
    """
    off: list[str] = []
    changed: list[str] = []
    for each in interventions:
        label = each.label.rpartition(" #")[0] if each.direction is not None and not exact else each.label
        (changed if each.scale or each.direction is not None else off).append(visible(label))
    return ", ".join(([" and ".join(off) + " off"] if off else []) + changed).replace(" x-", " x−")


def sides(interventions: Sequence[Intervention]) -> tuple[str, str]:
    """Headings for the numbers of the unmodified model and for those under interventions."""
    if any(each.direction is not None for each in interventions):
        return "model", "steered"
    return "model", "scaled" if any(each.scale for each in interventions) else "off"


def steered_words(scope: protocol.Scope, begin: int) -> str:
    """The part of a path that is changed: `this token`, `whole context`, `from token 9 on`."""
    if scope == "token":
        return "this token"
    return f"from token {begin + 1} on" if begin else "whole context"


# ---- sweeps -------------------------------------------------------------------------------------


def layer_of_heads(swept: HeadsSwept) -> int | None:
    """The layer, if a sweep has nothing but heads of one layer; None for one with parts and layers."""
    layers = {each.intervention.layer for each in swept.units}
    only_heads = all(each.intervention.kind == "head" for each in swept.units)
    return next(iter(layers)) if only_heads and len(layers) == 1 else None


def joined(whole: HeadsSwept, more: HeadsSwept) -> HeadsSwept:
    """A sweep with the units of a second one at the same node, and the worse result of each check.

    Sweeps that follow different logits or have different scopes aren't joined: `more` replaces `whole` unless it has
    heads of one layer alone.

    Args:
        whole: The sweep to extend.
        more: Its units are added, or replace the same ones.
    """
    if (whole.token, whole.other, whole.scope) != (more.token, more.other, more.scope):
        return more if layer_of_heads(more) is None else whole
    units = {each.intervention: each for each in (*whole.units, *more.units)}
    checks = {check.name: check for check in whole.facts.checks}
    for check in more.facts.checks:
        worse = (checks.get(check.name, check), check)
        checks[check.name] = max(worse, key=lambda each: each.error / (each.bound or 1.0))
    facts = replace(whole.facts, checks=tuple(checks.values()), ms=whole.facts.ms + more.facts.ms)
    run = whole.tokens_run + more.tokens_run
    return replace(whole, units=tuple(sorted(units.values(), key=_place)), facts=facts, tokens_run=run)


def _place(unit: protocol.SweptUnit) -> tuple[int, int, int]:
    """Sort key of a unit: by layer, and in each layer heads, parts, the layer itself."""
    each = unit.intervention
    return each.layer, {"head": 0, "layer": 2}.get(each.kind, 1), each.head or 0


# ---- the keys of answers ------------------------------------------------------------------------


def tried_key(tried: protocol.Intervene | protocol.Intervened) -> Hashable:
    """Key of a trial of interventions, from the question or the answer."""
    return tried.node, tried.interventions, tried.scope, tried.begin if tried.scope == "context" else 0


def swept_key(swept: protocol.SweepStrengths | protocol.StrengthsSwept) -> tuple[Hashable, ...]:
    """Key of a sweep over a direction's strengths, from the question or the answer."""
    begin = swept.begin if swept.scope == "context" else 0
    return swept.node, swept.direction, swept.layer, swept.scope, begin


def _gradients_key(read: protocol.GradientsRead) -> Hashable:
    begun = read.tried[0][0] if read.tried else 0
    line = (read.baseline, begun, read.held_experts) if read.method == "integrated" else ()
    return read.node, tuple(token.id for token in read.tokens), read.method, *line


def _patched_key(read: protocol.ActivationsPatched) -> Hashable:
    faced = tuple((each.position, each.source_position) for each in read.columns) if read.aligned else None
    return read.node, read.source, read.part, (read.token, read.other), faced


KEYS: dict[type[Record], Callable[[Any], Hashable]] = {
    protocol.AttentionRead: lambda read: read.node,
    protocol.TriangleRead: lambda read: (read.node, read.layer, read.head),
    protocol.HeadsScored: lambda read: (read.texts or read.node,),
    protocol.LensRead: lambda read: read.node,
    protocol.AttributionRead: lambda read: (read.node, tuple(token.id for token in read.tokens)),
    protocol.GradientsRead: _gradients_key,
    protocol.ScoreRead: lambda read: (read.node, read.layer, read.head),
    protocol.ExpertsRead: lambda read: read.node,
    protocol.PositionTried: lambda read: (read.node, read.change, read.offset, read.later),
    HeadsSwept: lambda read: (read.node, read.token, read.scope, layer_of_heads(read)),
    protocol.Intervened: tried_key,
    protocol.ActivationsPatched: _patched_key,
    protocol.PairsPatched: lambda read: (read.part, tuple(each.pair for each in read.pairs)),
    protocol.DirectionMade: lambda read: (read.direction.layer, read.toward, read.away, read.nodes),
    protocol.StrengthsSwept: lambda read: (*swept_key(read), read.token, read.other),
    protocol.ModelModules: lambda read: (read.model, read.bytes),
    protocol.TakenApart: lambda read: read.node if read.words and not read.name else None,
}
"""Functions from an answer to its key, by the answer's class; views find live and recorded answers by key."""
_SUBJECTS: dict[type[Record], Callable[[Any], Hashable]] = {
    protocol.AttributionRead: lambda read: (read.node, read.tokens[0].id),
    protocol.GradientsRead: lambda read: (read.node, read.tokens[0].id, read.method),
    HeadsSwept: lambda read: (read.node, read.token, read.scope),
    protocol.ActivationsPatched: lambda read: (read.node, read.source, read.part, read.token),
    protocol.PairsPatched: lambda read: read.part,
    protocol.StrengthsSwept: lambda read: (*swept_key(read), read.token),
}
"""The same for an export, which joins or replaces answers about one subject."""
OF_BOTH = (
    protocol.AttentionRead, protocol.TriangleRead, protocol.HeadsScored, protocol.LensRead,
    protocol.AttributionRead, protocol.GradientsRead, protocol.ScoreRead, protocol.ExpertsRead, protocol.PositionTried,
)  # fmt: skip
"""Answers that can also be about the second model."""
_OF_MODEL = (protocol.ModelModules, protocol.PairsPatched)
"""Answers that aren't about a token of the tree."""
KEPT = 128
"""Maximum number of kept answers of a class; the least recently used is dropped first."""
KEPT_BYTES = 64 * 2**20
"""Maximum bytes of packed numbers in a class's answers: a large model's attention over a long text takes 16 MiB."""
LARGEST = 2 * 2**20
"""Maximum bytes of packed numbers of one answer in an export; a larger one isn't recorded either."""


# ---- the store ----------------------------------------------------------------------------------

Answer = TypeVar("Answer", bound=Record)
Asked = tuple[bool, Hashable]
"""A question: true if the second model was asked, and its key."""


class Answers(CapabilityState):
    """The answers about one tree, or the failures, by class and question."""

    def __init__(self) -> None:
        self._kept: dict[type[Record], OrderedDict[Asked, tuple[Any, int]]] = defaultdict(OrderedDict)
        """Answers, each with its number."""
        self._came = self._tree = 0
        """Number of answers so far, and number before the current tree."""
        self.head: tuple[int, int] | None = None
        """Layer and number, from 0, of the attention head viewed last; an export opens with it."""

    def __deepcopy__(self, memo: object) -> Answers:
        """An independent store that shares the answers: records never change."""
        made = Answers()
        made._kept.update((kind, kept.copy()) for kind, kept in self._kept.items())
        made._came, made._tree, made.head = self._came, self._tree, self.head
        return made

    def apply(self, record: Record) -> None:
        match record:
            case protocol.PromptOpened():
                if record.new_tree:  # node numbers now stand for other tokens
                    self._tree = self._came
                    self._forget(lambda kind, asked: kind not in _OF_MODEL)
            case protocol.LockstepOpened() | protocol.LockstepClosed():
                self._forget(lambda kind, asked: asked[0])
            case _ if type(record) in KEYS:
                facts = getattr(record, "facts", None)
                second = isinstance(facts, CaptureFacts) and bool(facts.model)
                self.keep(type(record), (second, KEYS[type(record)](record)), record)

    def _forget(self, which: Callable[[type[Record], Asked], bool]) -> None:
        for kind, kept in self._kept.items():
            for asked in [asked for asked in kept if which(kind, asked)]:
                del kept[asked]

    def keep(self, kind: type[Record], asked: Asked, answer: Record) -> None:
        """Keep the answer or the failure of a question, instead of an earlier one."""
        kept = self._kept[kind]
        self._came += 1
        kept[asked] = answer, self._came
        kept.move_to_end(asked)
        nbytes = sum(getattr(each, "nbytes", 0) for each, _ in kept.values())
        while len(kept) > KEPT or (len(kept) > 1 and nbytes > KEPT_BYTES):
            _, (dropped, _) = kept.popitem(last=False)
            nbytes -= getattr(dropped, "nbytes", 0)

    def drop(self, kind: type[Record], asked: Asked) -> None:
        """Forget the answer to a question."""
        self._kept[kind].pop(asked, None)

    # ---- queries ----------------------------------------------------------------------------

    def get(self, kind: type[Answer], asked: Asked) -> Answer | Failure | None:
        """The answer or the failure of a question; None if there is neither."""
        kept = self._kept[kind]
        if asked not in kept:
            return None
        kept.move_to_end(asked)
        return kept[asked][0]  # type: ignore[no-any-return]

    def asked(self, kind: type[Record]) -> list[Asked]:
        """The questions that have an answer of a class, the most recently used last."""
        return [asked for asked, (answer, _) in self._kept[kind].items() if isinstance(answer, kind)]

    def found(self, kind: type[Answer], second: bool = False) -> list[Answer]:
        """The answers of a class about the current tree that an export can show, in the order in which they came.

        Of several about one subject only the last is returned; sweeps are joined.

        Args:
            kind: Class of the answers.
            second: True for answers about the second model, False for the session's.
        """
        subject = _SUBJECTS.get(kind, KEYS[kind])
        kept = sorted(self._kept[kind].items(), key=lambda each: each[1][1])
        found: dict[Hashable, Any] = {}
        for (of_second, _), (answer, came) in kept:
            if of_second is second and came > self._tree and _shown(answer):
                about = subject(answer)
                before = found.pop(about, None)
                found[about] = joined(before, answer) if isinstance(before, HeadsSwept) else answer
        return list(found.values())

    @classmethod
    def sound(cls, record: Record) -> bool:
        """True if the shapes of an answer are consistent: weights match experts, and numbers match layers and columns;
        blocks have parts, embeddings a shape; the merges of a word lead from its symbols to its tokens."""
        match record:
            case protocol.ActivationsPatched(layers=layers, columns=columns, shares=shares):
                return (
                    bool(layers and columns) and shares.fits and shares.shape == (len(layers), len(columns))
                )
            case protocol.PairsPatched(layers=layers, places=places):
                return all(len(each.means) == len(each.spreads) == len(layers) for each in places)
            case protocol.ExpertsRead():
                return all(
                    len(layer.weights) in (0, len(layer.chosen)) and all(map(math.isfinite, layer.weights))
                    for layer in record.layers
                )
            case protocol.ModelModules():
                inside = (part for block in record.blocks for part in block.parts)
                parts = (*record.before, *inside, *record.after, *record.unused)
                tables = (part.arrays[0] for part in parts if part.role == "embedding" and part.arrays)
                blocks = all(block.layers and block.parts for block in record.blocks)
                return blocks and all(table.shape for table in tables)
            case protocol.TakenApart():
                return all(map(merges.is_sound, record.words))
        return True


def _shown(answer: Any) -> bool:
    """True if an export can show an answer: its checks passed, it isn't empty, and it isn't too large."""
    if isinstance(answer, Failure):
        return False
    if isinstance(answer, protocol.TakenApart):
        return answer.node is not None and bool(answer.words) and not answer.name
    if isinstance(answer, protocol.ModelModules):
        return True
    if answer.facts.failed is not None or not Answers.sound(answer):
        return False
    match answer:
        case protocol.AttentionRead() | protocol.ScoreRead():
            return answer.nbytes <= LARGEST
        case protocol.HeadsScored(heads=()) | protocol.AttributionRead(tokens=()):
            return False
        case protocol.GradientsRead(tokens=()):
            return False
        case protocol.StrengthsSwept(direction=protocol.Direction(vector=vector)):
            return vector.fits and len(vector.packed) <= LARGEST
    return True

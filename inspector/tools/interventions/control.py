"""The chosen interventions and the answers of the engine, the numbers and colours of their maps, and the keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import reduce
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style

from engine.protocol import (
    ActivationsPatched,
    Facing,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    InterventionKind,
    PairsPatched,
    PatchKind,
    PatchPair,
    Scope,
    SweptUnit,
)
from inspector import scales
from inspector.display import quoted, token_label
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.main.tool import OfferedHeat, ToolActions
from inspector.session.requests import Replies
from inspector.state.inside import joined, tried_key
from inspector.widgets.actions import Action, applies, both, dialog_table, note
from inspector.widgets.canvas import Canvas, colourful, is_dark, rgb_style
from inspector.widgets.token_lines import heat_style

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

SCALES = (0.0, 0.5, 2.0)
"""The factors that a key goes through: off, half, twice."""
_ORDER = ("head", "attention", "recurrence", "mlp", "layer")
Column = tuple[str, int | None]
"""A column of the map: the kind of its units, and which head."""


class InterventionsActions(ToolActions):
    """The unit under the cursor, those that are switched off together, what is patched, and the answers of the engine.

    A unit is an intervention at scale 0.
    """

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        client = host.controller.client
        self.sweeps = Replies(client, HeadsSwept)
        self._joined: tuple[tuple[HeadsSwept, ...], HeadsSwept] | None = None
        """The sweeps that were joined last, and what came of it: thousands of units, drawn at each key."""
        self.tried = Replies(client, Intervened)
        self.patched = Replies(client, ActivationsPatched)
        self.pairs = Replies(client, PairsPatched)
        self.set: tuple[PatchPair, ...] = ()
        """The pairs that were given last."""
        self.together: dict[Intervention, float] = {}
        """The units that are scaled at once, and by how much; some may be of a model that was left."""
        self.scale = 0.0
        """The scale of a unit that is not among them."""
        self.scope: Scope = "token"
        self.part: PatchKind = "layer"
        self.source: int | None = None
        """The last token of the path whose activations are put in; None for the first path that can be the source."""
        self.followed: tuple[int, int] | None = None
        """The two tokens that were chosen; None for those that tell both paths apart."""
        self.facing: Facing | None = None
        """The chosen alignment of both paths; None for common blocks."""
        self.chosen_at: tuple[int, int] = (-1, -1)
        """Ends of both paths for which those two were chosen."""
        self.cursor: tuple[int, int] | None = None
        """Row and column of the map of patching that are looked at; None for the largest share."""
        self.measure = MEASURES[0]
        """The measure that the map of units is coloured by."""
        self.chosen: Intervention | None = None
        """The unit under the cursor, or the one whose neighbour is; None before the first."""
        self._heat: tuple[ActivationsPatched, int, OfferedHeat] | None = None
        """The latest offer, and what it was made of."""

    def heat(self) -> OfferedHeat | None:
        """The share that each token of the map of patching restores, at the layer that was looked at last."""
        known, tree = map(self.patched.get, reversed(self.patched.keys)), self.timeline.tree
        read = next((each for each in known if each is not None and each.facts.failed is None), None)
        if read is None or read.node not in tree.nodes:
            return None
        layer, _ = self.place(read)
        if self._heat is None or self._heat[0] is not read or self._heat[1] != layer:
            item = tree.nodes[read.node]
            what = Intervention(read.part, read.layers[layer]).label
            title = f"what {what} restores after {quoted(token_label(item.text, item.raw))}"
            shares = {
                column.node: max(-1.0, min(1.0, share))
                for column, share in zip(read.columns, read.shares.row(layer), strict=True)
                if math.isfinite(share)
            }
            self._heat = read, layer, OfferedHeat(title, shares, signed=True)
        return self._heat[2]

    def point(self, *place: int) -> None:
        """Choose a layer as a whole; of a layer and a head the head."""
        layer, *head = place
        kind: InterventionKind = "head" if head else "layer"
        self.chosen = Intervention(kind, layer - 1, head[0] - 1 if head else None)

    def place(self, patched: ActivationsPatched) -> tuple[int, int]:
        """Row and column of a map of patching that are looked at: at first the largest share of a position before the
        last, where all ends up."""
        layers, columns = len(patched.layers), len(patched.columns)
        if self.cursor is None:
            places = [(row, at) for row in range(layers) for at in range(max(1, columns - 1))]
            return max(places, key=lambda place: patched.shares.row(place[0])[place[1]])
        return max(0, min(layers - 1, self.cursor[0])), max(0, min(columns - 1, self.cursor[1]))

    def sweep(self, node: int, token: int | None) -> HeadsSwept | None:
        """The known sweep that follows a token after a node, in the present scope or else in the other one: that of
        layers and parts, with the heads of those layers that were asked for."""
        scopes: tuple[Scope, ...] = ("token", "context") if self.scope == "token" else ("context", "token")
        for scope in scopes:
            of = node, token, scope
            if (whole := self.sweeps.get((*of, None))) is None:
                continue
            keys = [
                key
                for key in self.sweeps.keys
                if isinstance(key, tuple) and key[:3] == of and key[3] is not None
            ]
            found = (whole, *(more for key in sorted(keys) if (more := self.sweeps.get(key)) is not None))
            if self._joined is None or self._joined[0] != found:
                self._joined = found, reduce(joined, found)
            return self._joined[1]
        return None

    def drop(self) -> None:
        """Wait for no answer any more."""
        for answers in (self.sweeps, self.tried, self.patched, self.pairs):
            answers.drop()

    def turn_measure(self) -> None:
        """Colour by the next measure."""
        self.measure = MEASURES[(MEASURES.index(self.measure) + 1) % len(MEASURES)]

    def unit(self, swept: HeadsSwept) -> Intervention:
        """The unit under the cursor; the first time the head, or else the unit, that did most."""
        units = [each.intervention for each in swept.units]
        if self.chosen in units:
            return self.chosen
        if self.chosen is not None and (near := in_layer(units, self.chosen.layer, self.chosen)):
            return near
        heads = [each for each in swept.units if each.intervention.kind == "head"]
        return max(heads or swept.units, key=self.measure.strength).intervention

    def marked(self, swept: HeadsSwept) -> dict[Intervention, float]:
        """The units that are scaled together, as far as the model has them."""
        units = {each.intervention for each in swept.units}
        return {unit: scale for unit, scale in self.together.items() if unit in units}

    def interventions(self, swept: HeadsSwept) -> tuple[Intervention, ...]:
        """The interventions to try: those together, or else the unit under the cursor."""
        marked = self.marked(swept) or {self.unit(swept): self.scale}
        return tuple(replace(unit, scale=scale) for unit, scale in marked.items())

    def question(self, node: int, swept: HeadsSwept) -> tuple[Hashable, Intervene]:
        """The question about the chosen units, and its key."""
        question = Intervene(node, self.interventions(swept), self.scope)
        return tried_key(question), question


def column_of(unit: Intervention) -> Column:
    """The column of the map that a unit stands in."""
    return unit.kind, unit.head


def place(column: Column) -> tuple[int, int]:
    """The order of columns: heads, parts, whole layers."""
    return _ORDER.index(column[0]), column[1] or 0


def in_layer(units: list[Intervention], layer: int, like: Intervention) -> Intervention | None:
    """The unit of a layer that is the most like another unit, by its column."""
    kind, head = place(column_of(like))

    def distance(unit: Intervention) -> tuple[int, int]:
        return abs(_ORDER.index(unit.kind) - kind), abs((unit.head or 0) - head)

    return min((unit for unit in units if unit.layer == layer), key=distance, default=None)


# ---- what a unit did, as a number ---------------------------------------------------------------


class UnitMeasure(Struct, frozen=True):
    """A number for the effect of switching off a unit."""

    name: str
    unit: str
    says: str
    """The words of the legend."""
    value: Callable[[SweptUnit], float]
    edges: tuple[float, ...]
    """The value at which each step of the colours begins, without its sign."""
    signed: bool

    def strength(self, unit: SweptUnit) -> float:
        """The size of its effect, without its sign."""
        return abs(self.value(unit))


MEASURES = (
    UnitMeasure(
        "KL", "KL in bits", "KL in bits, how far all probabilities move, from",
        lambda unit: unit.kl_bits, scales.KL_BITS, False,
    ),
    UnitMeasure(
        "logit", "change of the logit", "change of the followed token's logit, from",
        lambda unit: unit.logit_change, (0.1, 0.5, 1.0, 2.0, 4.0), True,
    ),
)  # fmt: skip
"""The measures, in the order in which a key goes through them."""


def step_of(value: float, edges: tuple[float, ...]) -> int:
    """The step of a value among the colours: 0 for none to 5, below 0 for a value below 0."""
    step = sum(abs(value) >= edge for edge in edges)
    return -step if value < 0 else step


# ---- a cell of a map: its number, its colours, and a glyph where there are none -----------------

SHARE_EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
"""The share at which each step of the colours begins."""
GLYPHS, BELOW = "·:░▒▓█", "·-~=≡#"
"""The glyphs of the steps above 0, and below, from calm to strongest."""
NOTHING = "·"
"""A number too small for its cells."""


def figure(value: float, cells: int, signed: bool = False) -> str:
    """A number in so many cells, 3 or more: `1.20`, `.12`, `-1.2`, `+12`; a dot for next to nothing."""
    sign = ("-" if value < 0 else "+") if signed else ""
    size, room = abs(value), cells - len(sign)
    for digits in (2, 1, 0):
        text = f"{size:.{digits}f}"
        if not float(text):
            return NOTHING
        if len(text) <= room:
            return sign + text
        if text.startswith("0.") and len(text) - 1 <= room:
            return sign + text[1:]
    return sign + "9" * room


def ground(on: Canvas, step: int, signed: bool = True) -> Style:
    """The colours of a step: of signed ones blue above 0 and orange below; underlines if there are no colours."""
    if not step:
        return Style()
    dark = is_dark(on.app)
    if not signed or not colourful(on.app):
        return heat_style(abs(step), dark, colourful(on.app))
    return rgb_style(*scales.opposed_heat(step, dark))


def glyph(on: Canvas, step: int) -> str:
    """The sign for a number that there is no room for: a blank where there are colours."""
    return " " if colourful(on.app) else GLYPHS[step] if step >= 0 else BELOW[-step]


def legend(on: Canvas, steps: Iterable[tuple[int, str]], glyphs: bool, signed: bool = True) -> list[Segment]:
    """Each step's edge on its own colour.

    Args:
        on: Where it is drawn.
        steps: With the words for each.
        glyphs: Whether the cells have glyphs.
        signed: Whether values can be below 0.
    """
    return [
        Segment(f" {glyph(on, step).strip() * glyphs}{text} ", on.rich_style + ground(on, step, signed))
        for step, text in steps
    ]


# ---- keys ---------------------------------------------------------------------------------------

INTERVENTIONS_SCREEN = look_table(
    "While parts are switched off",
    *both(("interventions.later_layer", "interventions.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a unit of a later layer, or of an earlier one.", lambda own, by: own.turn_layer(by), by=(1, -1),
          hint="unit", worth=8),
    *both(("interventions.unit_before", "interventions.next_unit"), ("Previous unit", "Next unit"),
          "Choose the previous or next unit in the layer: heads, attention, MLP, layer.",
          lambda own, by: own.turn_column(by), hint="unit", worth=8),
    Action("interventions.heads", "Heads",
           "In a large model: switch off each head of this layer alone (all layers would take minutes). In the whole "
           "context: switch off each part along the whole path.",
           lambda own: own.switch_off_more(), worth=8, hint=lambda own: own.more),
    Action("interventions.together", "Together",
           "Switch this unit off together with others (`×`), or take it out; `{interventions.clear}` takes out all.",
           lambda own: own.turn_together(), hint="add", worth=7),
    Action("interventions.clear", "Clear", "Take out all units that are switched off together.",
           lambda own: own.clear(), listed=False),
    *both(("interventions.less", "interventions.more"), ("Less", "More"), "Scale it: off, half, twice.",
          lambda own, by: own.turn_scale(by), hint="scale", worth=4),
    Action("interventions.scope", "Scope", "Change only this token's forward, or run the whole context again.",
           lambda own: own.change_scope(), hint=lambda own: own.scope, worth=6),
    Action("interventions.measure", "Measure",
           "Colour by KL (how far all probabilities move), or by the change of the followed token's logit.",
           lambda own: own.control.turn_measure(), hint=lambda own: f"colour: {own.control.measure.name}", worth=4,
           place=1),
    Action("interventions.hold", "Hold", "Continue with it, in a branch that begins with this token.",
           lambda own: own.hold(), hint="hold", worth=7),
    Action("interventions.release", "Release",
           "Leave a branch under interventions: return to the model's own token where it begins.",
           lambda own: own.release(),
           hint=lambda own: "release" if own.timeline.under else "", worth=7),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
    text="The map shows what happens when only one unit is switched off at this token. Under it are the candidates "
    "with and without the chosen units.",
)  # fmt: skip
_MOVE = "Look at another layer, or at another position."
PATCHING_SCREEN = look_table(
    "In activation patching",
    *both(("patching.later_layer", "patching.earlier_layer"), ("Later layer", "Earlier layer"), _MOVE,
          lambda own, by: own.move_cursor(by, 0), by=(1, -1), hint=lambda own: own.words[0], worth=7),
    *both(("patching.position_before", "patching.next_position"), ("Previous position", "Next position"), _MOVE,
          lambda own, by: own.move_cursor(0, by), hint=lambda own: own.words[1], worth=7),
    Action("patching.source", "Source",
           "Take the activations from another prompt or branch; of another length, common blocks face each other.",
           lambda own: own.change_source(), hint=lambda own: "source" if len(own.sources) > 1 and own.mapping else "",
           worth=7),
    Action("patching.edit", "Edit",
           "Edit the text on show as the counterfactual prompt, whose activations are put in.",
           lambda own: own.edit(), hint=lambda own: "edit source" if own.live and own.mapping else "", worth=8),
    Action("patching.part", "Part",
           "Patch whole layers (the stream after each), or the outputs of their attention or MLP.",
           lambda own: own.change_part(), hint=lambda own: "" if own.aligning else f"put in: {own.control.part}",
           worth=6),
    *both(("patching.next_token", "patching.token_before"), ("Next token", "Previous token"),
          "Follow the logit of another token, which the source should favour.",
          lambda own, by: own.follow_other(0, by), by=(1, -1), hint=lambda own: "token" if own.mapping else "", worth=5,
          one=True),
    *both(("patching.compare", "patching.compare_back"), ("Against the next", "Against the previous"),
          "Subtract the logit of another token, which this text should favour.",
          lambda own, by: own.follow_other(1, by), by=(1, -1), hint=lambda own: "against" if own.mapping else "",
          worth=5, one=True),
    Action("patching.facing", "Alignment",
           "Show which token faces which of the source; there `{patching.position_before}` `{patching.next_position}` "
           "change it, and this key puts it in force.",
           lambda own: own.turn_facing(),
           hint=lambda own: "use it" if own.aligning else "alignment" if own.live and own.mapping else "", worth=6),
    Action("patching.unface", "Face none", "In the alignment: let this token face none, so that its activations stay.",
           lambda own: own.unface(), hint=lambda own: "none" if own.aligning else "", worth=6),
    Action("patching.usual", "Common blocks", "Align by common blocks again, and follow the tokens that differ most.",
           lambda own: own.usual(), worth=4,
           hint=lambda own: "usual" if own.chosen and not own.over_pairs else ""),
    Action("patching.pairs", "Pairs",
           "Patch a set of pairs of texts, from a file or as they are typed: means and spread by layer and kind of "
           "position. Again: back to the single path.",
           lambda own: own.turn_pairs(),
           hint=lambda own: "one path" if own.over_pairs else "" if own.aligning else "set of pairs", worth=5),
    *walking(""),
    shared=False,
)  # fmt: skip
PAIRS_DIALOG, COUNTERFACTUAL_DIALOG = (
    dialog_table(title, note("tab", hint="next field", worth=3), applies(help))
    for title, help in (
        ("While a set of pairs is given", "Patch each pair, and show the means."),
        (
            "While a counterfactual prompt is edited",
            "Read it, and put what it computes into the path on show.",
        ),
    )
)

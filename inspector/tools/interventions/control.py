"""What interventions are chosen and what the engine answered, the numbers and colours of their maps, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace
from rich.style import Style

from engine.protocol import (
    ActivationsPatched,
    Facing,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    PairsPatched,
    PatchKind,
    PatchPair,
    Scope,
    SweptUnit,
)
from inspector import scales
from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.session.client import EngineClient
from inspector.session.requests import Replies
from inspector.state.inside import joined, tried_key
from inspector.widgets.actions import Action, applies, both, dialog_table, note
from inspector.widgets.canvas import Canvas, colourful, is_dark, rgb_style
from inspector.widgets.token_lines import heat_style

SCALES = (0.0, 0.5, 2.0)
"""What a key goes through: off, half, twice."""
_ORDER = ("head", "attention", "recurrence", "mlp", "layer")
Column = tuple[str, int | None]
"""A column of the map: the kind of its units, and which head."""


class SwitchControl:
    """The unit under the cursor, those that are switched off together, and the answers of the engine.

    A unit is an intervention at scale 0.

    Args:
        client: Of the engine.
    """

    def __init__(self, client: EngineClient) -> None:
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
        """Of a unit that is not among them."""
        self.scope: Scope = "token"
        self.part: PatchKind = "layer"
        self.source: int | None = None
        """The path whose activations are put in; None for the first that can be."""
        self.followed: tuple[int, int] | None = None
        """The two tokens that a person chose; None for those that tell both paths apart."""
        self.facing: Facing | None = None
        """Which tokens face each other, as a person said; None for common blocks."""
        self.chosen_at: tuple[int, int] = (-1, -1)
        """Ends of both paths for which those two were chosen."""
        self.cursor: tuple[int, int] | None = None
        """Row and column of the map of patching that are looked at; None for the largest share."""
        self._measure = 0
        self._unit: Intervention | None = None

    def at(self, node: int, source: int) -> None:
        """Look at two paths: what was chosen for others is forgotten."""
        if self.chosen_at != (node, source):
            self.chosen_at, self.followed, self.facing = (node, source), None, None

    @property
    def latest_patched(self) -> ActivationsPatched | None:
        """The map of patching that was looked at last, of those whose checks passed."""
        known = (self.patched.get(key) for key in reversed(self.patched.keys))
        return next((each for each in known if each is not None and each.facts.failed is None), None)

    def place(self, patched: ActivationsPatched) -> tuple[int, int]:
        """Row and column of a map of patching that are looked at: at first the largest share of a position before the
        last, where all ends up."""
        layers, columns = len(patched.layers), len(patched.columns)
        if self.cursor is None:
            places = [(row, at) for row in range(layers) for at in range(max(1, columns - 1))]
            return max(places, key=lambda place: patched.shares.row(place[0])[place[1]])
        return max(0, min(layers - 1, self.cursor[0])), max(0, min(columns - 1, self.cursor[1]))

    def swept_tokens(self, node: int) -> list[int]:
        """The tokens that the known sweeps of a node follow."""
        return [key[1] for key in self.sweeps.keys if isinstance(key, tuple) and key[0] == node]

    def sweep(self, node: int, token: int | None) -> HeadsSwept | None:
        """The known sweep that follows a token after a node, in the present scope or else in the other one."""
        other: Scope = "context" if self.scope == "token" else "token"
        return self._sweep_in((node, token, self.scope)) or self._sweep_in((node, token, other))

    def _sweep_in(self, of: tuple[int, int | None, Scope]) -> HeadsSwept | None:
        """That of layers and parts, with the heads of those layers that were asked for."""
        if (whole := self.sweeps.get((*of, None))) is None:
            return None
        keys = [
            key for key in self.sweeps.keys if isinstance(key, tuple) and key[:3] == of and key[3] is not None
        ]
        found = (whole, *(more for key in sorted(keys) if (more := self.sweeps.get(key)) is not None))
        if self._joined is None or self._joined[0] != found:
            self._joined = found, reduce(joined, found)
        return self._joined[1]

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.sweeps, self.tried, self.patched, self.pairs):
            answers.drop()

    @property
    def measure(self) -> UnitMeasure:
        """The measure that the map is coloured by."""
        return MEASURES[self._measure]

    def turn_measure(self) -> None:
        """Colour by the next measure."""
        self._measure = (self._measure + 1) % len(MEASURES)

    # ---- the cursor -----------------------------------------------------------------------------

    def unit(self, swept: HeadsSwept) -> Intervention:
        """The unit under the cursor; the first time the head, or else the unit, that did most."""
        units = [each.intervention for each in swept.units]
        if self._unit in units:
            return self._unit
        if self._unit is not None and (near := _in_layer(units, self._unit.layer, column_of(self._unit))):
            return near
        heads = [each for each in swept.units if each.intervention.kind == "head"]
        return strongest(heads or swept.units, self.measure).intervention

    def choose(self, unit: Intervention) -> None:
        """Put the cursor on a unit, or on the nearest one of its layer."""
        self._unit = unit

    def turn_layer(self, swept: HeadsSwept, by: int) -> None:
        """Choose the unit of another layer that is the most alike."""
        now, units = self.unit(swept), [each.intervention for each in swept.units]
        layer = max(0, min(units[-1].layer, now.layer + by))
        self._unit = _in_layer(units, layer, column_of(now)) or now

    def turn_column(self, swept: HeadsSwept, by: int) -> None:
        """Choose the next unit of the layer; they go round."""
        now = self.unit(swept)
        own = sorted(
            (each.intervention for each in swept.units if each.intervention.layer == now.layer),
            key=lambda each: place(column_of(each)),
        )
        self._unit = own[(own.index(now) + by) % len(own)]

    # ---- what is switched off --------------------------------------------------------------------

    def marked(self, swept: HeadsSwept) -> dict[Intervention, float]:
        """The units that are scaled together, as far as the model has them."""
        units = {each.intervention for each in swept.units}
        return {unit: scale for unit, scale in self.together.items() if unit in units}

    def interventions(self, swept: HeadsSwept) -> tuple[Intervention, ...]:
        """The interventions to try: those together, or else the unit under the cursor."""
        marked = self.marked(swept) or {self.unit(swept): self.scale}
        return tuple(replace(unit, scale=scale) for unit, scale in marked.items())

    def toggle(self, swept: HeadsSwept) -> None:
        """Add the unit under the cursor to those together, or take it out."""
        unit = self.unit(swept)
        self._unit = unit  # the cursor stays, whatever the next sweep finds strongest
        if self.together.pop(unit, None) is None:
            self.together[unit] = self.scale

    def turn_scale(self, swept: HeadsSwept, by: int) -> None:
        """Scale the unit under the cursor by the next factor, or by the one before."""
        unit = self.unit(swept)
        now = self.together.get(unit, self.scale)
        scale = SCALES[max(0, min(len(SCALES) - 1, SCALES.index(now) + by))]
        if unit in self.together:
            self.together[unit] = scale
        else:
            self.scale = scale

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


def strongest(units: tuple[SweptUnit, ...] | list[SweptUnit], measure: UnitMeasure) -> SweptUnit:
    """The unit that did most."""
    return max(units, key=measure.strength)


def _in_layer(units: list[Intervention], layer: int, column: Column) -> Intervention | None:
    """The unit of a layer in a column, or in the nearest one."""
    own = [unit for unit in units if unit.layer == layer]
    kind, number = place(column)
    return min(
        own,
        key=lambda unit: (abs(place(column_of(unit))[0] - kind), abs((unit.head or 0) - number)),
        default=None,
    )


# ---- what a unit did, as a number ---------------------------------------------------------------


class UnitMeasure(Struct, frozen=True):
    """A number for the effect of switching off a unit."""

    name: str
    unit: str
    says: str
    """For the legend."""
    value: Callable[[SweptUnit], float]
    edges: tuple[float, ...]
    """Where each step of the colours begins, of the value without its sign."""
    signed: bool

    def step(self, value: float) -> int:
        """Of the colours: 0 for none to 5, below 0 for a value below 0."""
        return step_of(value, self.edges)

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
"""In the order in which a key goes through them."""


def step_of(value: float, edges: tuple[float, ...]) -> int:
    """The step of a value, with its sign."""
    step = sum(abs(value) >= edge for edge in edges)
    return -step if value < 0 else step


# ---- a cell of a map: its number, its colours, and a glyph where there are none -----------------

GLYPHS, BELOW = "·:░▒▓█", "·-~=≡#"
"""For each step of a value above 0, and of one below, from calm to strongest."""
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
    """The colours of a step: of signed ones blue above 0 and orange below; underlines where there are no colours."""
    if not step:
        return Style()
    dark = is_dark(on.app)
    if not signed or not colourful(on.app):
        return heat_style(abs(step), dark, colourful(on.app))
    return rgb_style(*scales.opposed_heat(step, dark))


def glyph(on: Canvas, step: int) -> str:
    """The sign for a number that there is no room for: a blank where there are colours."""
    return " " if colourful(on.app) else GLYPHS[step] if step >= 0 else BELOW[-step]


# ---- keys ---------------------------------------------------------------------------------------

INTERVENTIONS_SCREEN = inside_table(
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
PATCHING_SCREEN = inside_table(
    "In activation patching",
    *both(("patching.later_layer", "patching.earlier_layer"), ("Later layer", "Earlier layer"), _MOVE,
          lambda own, by: own.move_cursor(by, 0), by=(1, -1), hint=lambda own: own.rows_word, worth=7),
    *both(("patching.position_before", "patching.next_position"), ("Previous position", "Next position"), _MOVE,
          lambda own, by: own.move_cursor(0, by), hint=lambda own: own.columns_word, worth=7),
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
           lambda own: own.usual(), hint=lambda own: "usual" if own.chosen and not own.over_pairs else "", worth=4),
    Action("patching.pairs", "Pairs",
           "Patch a set of pairs of texts, from a file or as they are typed: means and spread by layer and kind of "
           "position. Again: back to the single path.",
           lambda own: own.turn_pairs(),
           hint=lambda own: "one path" if own.over_pairs else "" if own.aligning else "set of pairs", worth=5),
    *walking(""),
    shared=False,
)  # fmt: skip
PAIRS_DIALOG = dialog_table(
    "While a set of pairs is given",
    note("tab", hint="next field", worth=3),
    applies("Patch each pair, and show the means."),
)
SHARE_EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
"""Where each step of the colours of a share begins."""
COUNTERFACTUAL_DIALOG = dialog_table(
    "While a counterfactual prompt is edited",
    note("tab", hint="next field", worth=3),
    applies("Read it, and put what it computes into the path on show."),
)  # fmt: skip

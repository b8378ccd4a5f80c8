"""Interventions: the map of all units, each switched off alone, and what the chosen ones do to the candidates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from textual.geometry import clamp

from engine.protocol import (
    Command,
    HeadsSwept,
    HoldInterventions,
    Intervene,
    Intervened,
    Intervention,
    Scope,
    SweepHeads,
    SweptUnit,
)
from inspector.blocks.blocks import GAP, Drawn, sentence, sentences
from inspector.blocks.heat_map import LABEL, NUMBERED, HeatMap, Scale, figure
from inspector.blocks.paint import Painter
from inspector.display import first_fitting, pad, quoted, token_label, truncate
from inspector.documents.interventions import KINDS, effect
from inspector.keys import key_for
from inspector.main.inside_view import (
    LOW,
    SCROLLS,
    TITLED,
    InsideView,
    instead_of,
    look_table,
    noticed,
    told,
    under_way,
    walking,
)
from inspector.scales import KL_BITS, percent
from inspector.session.requests import Replies
from inspector.state.candidates import ranked, told_here
from inspector.state.inside import interventions_words, joined, steered_words, tried_key
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.charts import in_sight

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

AT_ONCE = 600
"""Units of a model up to which its heads are swept with the other units: 94 layers of 64 heads would take 6,298
forward passes of one token, ten minutes if they run one by one."""
UNDER = 5
"""Minimum rows below the map, unless the screen is small."""
FACTORS = (0.0, 0.5, 2.0)
"""The factors that a key goes through: off, half, twice."""
WIDEST = 8
"""Maximum cells of a column of the map."""
ORDER = tuple(KINDS)
"""The kinds of units, in the order of the columns."""
NAMES = {"attention": "attn", "mlp": "MLP", "recurrence": "rec", "layer": "layer"}
SHORT = {"attention": "att", "layer": "all"}
"""The names over the columns of parts."""


class UnitMeasure(Struct, frozen=True):
    """A number for the effect of switching off a unit."""

    name: str
    unit: str
    says: str
    """The words of the legend."""
    value: Callable[[SweptUnit], float]
    scale: Scale

    def strength(self, unit: SweptUnit) -> float:
        """The size of a unit's effect, without its sign."""
        return abs(self.value(unit))


MEASURES = (
    UnitMeasure(
        "KL", "KL in bits", "KL in bits, how far all probabilities move, from",
        lambda unit: unit.kl_bits, Scale(KL_BITS, signed=False),
    ),
    UnitMeasure(
        "logit", "change of the logit", "change of the followed token's logit, from",
        lambda unit: unit.logit_change, Scale((0.1, 0.5, 1.0, 2.0, 4.0), "+"),
    ),
)  # fmt: skip
"""The measures, in the order in which a key goes through them."""

SWITCH_OFF_KEYS = look_table(
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
    *both(("interventions.less", "interventions.more"), ("Less", "More"),
          "Scale it, or those together: off, half, twice.", lambda own, by: own.turn_factor(by), hint="scale", worth=4),
    Action("interventions.scope", "Scope", "Change only this token's forward pass, or run the whole context again.",
           lambda own: own.change_scope(), hint=lambda own: steered_words(own.scope, 0), worth=8),
    Action("interventions.measure", "Measure",
           "Colour by KL (how far all probabilities move), or by the change of the followed token's logit.",
           lambda own: own.turn_measure(), hint=lambda own: f"colour: {own.measure.name}", worth=4, place=1),
    Action("interventions.hold", "Keep off", "Continue with it, in a branch that begins with this token.",
           lambda own: own.hold(), hint="keep off", worth=7),
    Action("interventions.release", "Turn back on",
           "Leave a branch under interventions: return to the model's own token where it begins.",
           lambda own: own.release(),
           hint=lambda own: "turn back on" if own.timeline.under else "", worth=7),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
    text="The map shows what happens when only one unit is switched off at this token. Under it are the candidates "
    "with and without the chosen units.",
)  # fmt: skip


class SwitchOff(InsideView[HeadsSwept]):
    """Units of the model switched off, alone or together. A unit is an intervention at scale 0."""

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = SWITCH_OFF_KEYS

    def __init__(self, host: MainScreen) -> None:
        client = host.controller.client
        super().__init__(host, Replies(client, HeadsSwept))
        self.tried = Replies(client, Intervened)
        self.together: dict[Intervention, float] = {}
        """The units that are scaled together, with their scales; some may belong to an earlier model."""
        self.factor = 0.0
        """The scale of a unit that is not one of these."""
        self.scope: Scope = "token"
        self.measure = MEASURES[0]
        """The measure that the map is coloured by."""
        self.swept: HeadsSwept | None = None
        """The sweep of the token, if it passed its checks. `look` sets this and the next three."""
        self.units: list[Intervention] = []
        """All units, layer by layer."""
        self.unit = Intervention("layer", 0)
        """The unit under the cursor."""
        self.trial: tuple[Hashable, Intervene] | None = None
        """The question about the chosen units, and its key."""
        self._chosen: Intervention | None = None
        """The unit that was chosen; None before the first."""
        self._pointed = False
        """True if `together` was set by `point`."""
        self._joined: tuple[tuple[HeadsSwept, ...], HeadsSwept] | None = None
        """The sweeps that were joined last, and the result: it has thousands of units and is drawn at each key."""

    def point(self, *place: int) -> None:
        """Choose a layer, or a head by layer and head, or the heads of several such pairs together; all from 1."""
        pairs = zip(place[::2], place[1::2], strict=False)
        heads = [Intervention("head", layer - 1, head - 1) for layer, head in pairs]
        self._chosen = heads[0] if heads else Intervention("layer", place[0] - 1)
        several = len(heads) > 1
        if several or self._pointed:
            self.together, self._pointed = dict.fromkeys(heads, 0.0) if several else {}, several

    # ---- asking ---------------------------------------------------------------------------------

    def question(self, scope: Scope = "token") -> tuple[Hashable, Command]:
        command = SweepHeads(self.node, self._followed, heads=() if self._large else None, scope=scope)
        return (self.node, self._followed, scope, None), command

    @property
    def _followed(self) -> int | None:
        """The token whose logit is followed: the selected one, or at the end of the text the most probable candidate;
        in a recording another candidate, if that one's logit was not recorded."""
        own = next(iter(ranked(self.timeline)), None)
        known = [key[1] for key in self.answers.about(self.node)]
        if self.live or own in known:
            return own
        here = told_here(self.timeline, known)
        return next((each for each in reversed(known) if each in here), own)

    @property
    def _large(self) -> bool:
        """True if heads are swept only on request, one layer at a time."""
        facts = self.timeline.facts
        return facts is not None and facts.layers * ((facts.heads or 0) + 3) > AT_ONCE

    def look(self) -> None:
        """See `InsideView`; with the heads that were asked for, and the question about the chosen units."""
        super().look()
        self.found(self._sweep() if self.path else None, self.failure)
        self.swept, self.units, self.trial = None, [], None
        if self.answer is not None and self.failed is None and self.answer.units:
            self.swept = self.answer
            self.units = [each.intervention for each in self.swept.units]
            self.unit = self._unit(self.swept)
            trial = Intervene(self.node, self.interventions, self.scope, also=(self.swept.token,))
            self.trial = tried_key(trial), trial

    def _sweep(self) -> HeadsSwept | None:
        """The known sweep of the token, in the present scope or else in the other one: layers and parts, with the
        heads that were swept on request."""
        for scope in sorted(("token", "context"), key=lambda each: each != self.scope):
            of = self.node, self._followed, scope
            if (whole := self.answers.get((*of, None))) is None:
                continue
            layers = sorted(key for key in self.answers.about(*of) if key[3] is not None)
            found = (whole, *filter(None, map(self.answers.get, layers)))
            if self._joined is None or self._joined[0] != found:
                self._joined = found, reduce(joined, found)
            return self._joined[1]
        return None

    def _unit(self, swept: HeadsSwept) -> Intervention:
        """The chosen unit, or the nearest one; at first the head, or else the unit, with the largest effect."""
        if self._chosen is not None and (near := nearest(self.units, self._chosen.layer, self._chosen)):
            return near
        heads = [each for each in swept.units if each.intervention.kind == "head"]
        return max(heads or swept.units, key=self.measure.strength).intervention

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """The interventions to try: the units together that the model has, or else the unit under the cursor."""
        units = {*self.units}
        marked = [(unit, factor) for unit, factor in self.together.items() if unit in units]
        return tuple(replace(unit, scale=factor) for unit, factor in marked or [(self.unit, self.factor)])

    @property
    def lacks_heads(self) -> int | None:
        """The cursor's layer, if it has heads that were not swept yet."""
        if (swept := self.swept) is None or not self._large:
            return None
        kinds = {unit.kind for unit in self.units if unit.layer == self.unit.layer} & {"attention", "head"}
        refused = self.answers.failure((self.node, swept.token, swept.scope, self.unit.layer))
        return self.unit.layer if kinds == {"attention"} and refused is None else None

    def ask(self) -> None:
        """See `InsideView`; once the units are known, ask for the effect of the chosen ones."""
        if self.answer is None:
            super().ask()
        if self.trial is not None:
            self.tried.want(*self.trial)

    @property
    def effect(self) -> Intervened | None:
        """The answer about the chosen units."""
        return self.tried.get(self.trial[0]) if self.trial is not None else None

    def drop(self) -> None:
        self.tried.drop()
        super().drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: HeadsSwept | None) -> str:
        if answer is None:
            return "Switching off one part of the model at a time"
        name = quoted(token_label(answer.text))
        heads = any(each.intervention.kind == "head" for each in answer.units)
        what = "head or part" if heads else "part"
        where, prob = " in the whole context" if answer.scope == "context" else "", percent(answer.prob)
        return first_fitting(
            self.area.width - TITLED,
            f"Switching off one {what} at a time{where}: effect on {name} ({prob})",
            f"One {what} off{where}: effect on {name} ({prob})",
            f"Effect on {name} ({prob}){where}",
            f"Effect on {name}{where}",
        )

    def situation(self) -> str:
        words = under_way(self.answers) if self.answer is not None else ""
        if not words and self.trial is not None and self.effect is None:
            words = told(self.tried, self.trial[0], self.app.size.width - 2)
        return words or super().situation()

    def draw(self, answer: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        missing = sentences(answer.missing)
        if not answer.units:
            return Painter(on).draw(missing, width, height)
        short, depth = height < LOW // 2, answer.units[-1].intervention.layer + 1
        scope = f"Map: {steered_words(answer.scope, 0)} · " if answer.scope != self.scope else ""
        forms = [scope + form for form in strongest(answer, self.measure)]
        said = [] if short else [sentence(*forms, tone="accent")]
        room = height - len(said) - (3 if short else max(UNDER, height // 3))
        lines = max(3, min(depth + 3, room))
        mapped = Drawn(lambda painter, width, height: self._map(on, answer, width, height), (lines, lines))
        live = f"not recorded. {key_for('go_live')} continues live"
        waiting = f"{interventions_words(self.interventions)}: {'computing' if self.live else live}."
        why = instead_of(on, self.tried, self.trial[0] if self.trial is not None else None, waiting)
        below = [noticed(why)] if why or self.effect is None else [*effect(self.effect, answer.token)]
        return Painter(on).draw([*said, mapped, GAP, *below, *missing], width, height)

    def _map(self, on: Canvas, swept: HeadsSwept, width: int, height: int) -> list[Row]:
        """As many layers as fit, the last on top, below the names of the columns, and the legend.

        A cell is the effect of switching off that unit alone.
        """
        measure, at = self.measure, _cell(self.unit)
        values = {_cell(each.intervention): measure.value(each) for each in swept.units}
        marked = {*map(_cell, self.together)}
        every = sorted({column for _, column in values})
        across = max(1, width - LABEL)
        cell = max(1, min(WIDEST, across // len(every)))
        shown = [every[place] for place in in_sight(len(every), across // cell, every.index(at[1]))]
        heads = [head for kind, head in shown if not kind]
        # parts are wide enough for numbers if the narrow heads leave room
        left = (across - cell * len(heads)) // (len(shown) - len(heads)) if len(shown) > len(heads) else 0
        wide = cell if left <= NUMBERED else min(WIDEST, left)
        cells = {column: wide if column[0] else cell for column in shown}
        part = "heads", heads, sum(not kind for kind, _ in every)
        layers = range(swept.units[-1].intervention.layer + 1)
        mapped = HeatMap(measure.scale, layers, lambda *place: values.get(place), at, marked)
        says = [f"{what}{measure.says} " for what in ("Number and colour: ", "Colour: ", "")]
        legend = measure.scale.legend(on, cell, width, *says, f"{measure.name} from ", "")
        rows = mapped.draw(on, [_names(on, cells, at[1])], cells, part, width, height - 1)
        return [*rows, legend]

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose the most similar unit of another layer."""
        if units := self.units:
            layer = clamp(self.unit.layer + by, 0, units[-1].layer)
            self._chosen = nearest(units, layer, self.unit) or self.unit

    def turn_column(self, by: int) -> None:
        """Choose the next unit of the layer; after the last comes the first."""
        if own := sorted((unit for unit in self.units if unit.layer == self.unit.layer), key=column_of):
            self._chosen = own[(own.index(self.unit) + by) % len(own)]

    def turn_together(self) -> None:
        """Add the unit under the cursor to those that are switched off together, or take it out."""
        if self.swept is not None:
            self._chosen = self.unit  # the cursor stays, whatever the next sweep finds strongest
            if self.together.pop(self.unit, None) is None:
                self.together[self.unit] = self.factor

    def turn_factor(self, by: int) -> None:
        """Scale the unit under the cursor by the next factor, or the one before. If units are switched off together,
        and it isn't one of them, scale them instead."""
        if self.swept is None:
            return
        scaled = [self.unit] if self.unit in self.together else [*self.together]
        to = by + FACTORS.index(self.together[scaled[0]] if scaled else self.factor)
        if not 0 <= to < len(FACTORS):
            self.say("Off is the least" if by < 0 else "Twice is the most")
        elif scaled:
            self.together |= dict.fromkeys(scaled, FACTORS[to])
        else:
            self.factor = FACTORS[to]

    @property
    def more(self) -> str:
        """A word for the line of keys: what can still be swept; empty for nothing."""
        if self.swept is not None and self.swept.scope != self.scope == "context":
            return "sweep context"
        return "" if self.lacks_heads is None else f"heads of L{self.lacks_heads + 1}"

    def switch_off_more(self) -> None:
        """Switch off each part in the whole context, or, of a large model, each head of the cursor's layer."""
        layer, swept = self.lacks_heads, self.swept
        if swept is None or not self.more or not self.live:
            return
        self.tried.drop()
        if swept.scope != self.scope:
            self.answers.want(*self.question("context"))
        elif layer is not None:
            question = SweepHeads(self.node, swept.token, swept.other, (layer,), False, swept.scope)
            self.answers.want((self.node, swept.token, swept.scope, layer), question)

    def clear(self) -> None:
        """Remove all units that are switched off together."""
        self.together.clear()
        self.factor = 0.0

    def change_scope(self) -> None:
        """Change this token alone, or the whole context."""
        self.scope = "context" if self.scope == "token" else "token"

    def turn_measure(self) -> None:
        self.measure = MEASURES[(MEASURES.index(self.measure) + 1) % len(MEASURES)]

    def hold(self) -> None:
        """Continue under the chosen interventions, in a branch that begins with this token."""
        if self.swept is not None:
            self.continue_under(HoldInterventions(self.node, self.interventions), self.scope)


def column_of(unit: Intervention) -> tuple[int, int]:
    """The column of a unit: the index of its kind, and its head, 0 for a part."""
    return ORDER.index(unit.kind), unit.head or 0


def _cell(unit: Intervention) -> tuple[int, tuple[int, int]]:
    return unit.layer, column_of(unit)


def nearest(units: Sequence[Intervention], layer: int, like: Intervention) -> Intervention | None:
    """The unit of a layer in the column nearest to another unit's; None if the layer has no units."""
    kind, head = column_of(like)
    own = {column_of(unit): unit for unit in units if unit.layer == layer}
    column = min(own, key=lambda column: (abs(column[0] - kind), abs(column[1] - head)), default=None)
    return own[column] if column is not None else None


def strongest(swept: HeadsSwept, measure: UnitMeasure) -> tuple[str, ...]:
    """Sentences on the strongest unit of each kind, heads first; shorter ones leave out the weakest."""
    found: dict[str, list[SweptUnit]] = {kind: [] for kind in KINDS}
    for each in swept.units:
        found[each.intervention.kind].append(each)
    best = [max(units, key=measure.strength) for units in found.values() if units]
    forms = [f"Largest effects ({measure.unit}): "]
    while best:
        words = (
            f"{each.intervention.label} {figure(measure.value(each), 5, measure.scale.plus)}" for each in best
        )
        forms.append(" · ".join(words))
        best.remove(min(best, key=measure.strength))
    return forms[0] + forms[1], *(f"Largest: {form}" for form in forms[1:]), forms[-1]


def _names(on: Canvas, cells: Mapping[tuple[int, int], int], cursor: tuple[int, int]) -> Row:
    """The names of the columns; if they are narrow, the numbers of some heads, and a letter for each part."""
    begin, narrow = LABEL, min(cells.values())
    line, every, accent = [" "] * (LABEL + sum(cells.values()) + NUMBERED), -(-NUMBERED // narrow), range(0)
    for (index, head), wide in cells.items():
        kind = ORDER[index]
        name = NAMES.get(kind, f"h{head + 1}")
        if wide >= NUMBERED:
            name = name if len(name) < wide else SHORT.get(kind, name)
            name = pad(truncate(name, wide - 1), wide, right=True)
            accent = range(begin, begin + wide) if (index, head) == cursor else accent
        elif index:
            name = name[0].upper()
        else:
            name = "" if head % every else f"{head + 1}"
        line[begin : begin + len(name)] = name
        begin += wide
    text, muted, first, last = "".join(line[:begin]), on.ink("muted"), accent.start, accent.stop
    return [
        Segment(text[:first], muted),
        Segment(text[first:last], on.ink("accent")),
        Segment(text[last:], muted),
    ]

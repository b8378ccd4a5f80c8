"""The screen of interventions: the map of all units, and what the chosen ones do to the candidates."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import (
    CandidateChange,
    Command,
    HeadsSwept,
    HoldInterventions,
    Intervened,
    Intervention,
    Scope,
    Step,
    SweepHeads,
    SweptUnit,
)
from inspector.blocks.paint import part_shown
from inspector.display import first_fitting, pad, quoted, token_label, truncate
from inspector.keys import key_for, with_keys
from inspector.main.inside_view import (
    LOW,
    TALL,
    TITLED,
    InsideView,
    Notice,
    told,
    under_way,
    why_missing,
)
from inspector.scales import bits, count, left_over, milliseconds, percent
from inspector.state.candidates import told_here
from inspector.state.inside import interventions_words, sides
from inspector.tools.interventions.control import (
    INTERVENTIONS_SCREEN,
    SCALES,
    Column,
    InterventionsActions,
    UnitMeasure,
    column_of,
    figure,
    glyph,
    ground,
    in_layer,
    legend,
    place,
    step_of,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, paragraph
from inspector.widgets.charts import bar, in_sight

AT_ONCE = 600
"""Units of a model up to which its heads are switched off with the rest: at 94 layers of 64 heads that takes 6,298
forwards of one token, ten minutes where they run one by one."""
UNDER = 5
"""Rows of what stands under the map at least, where the screen isn't small."""


class InterventionsScreen(InsideView[HeadsSwept]):
    """Units of the model switched off, alone or together.

    Args:
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = INTERVENTIONS_SCREEN

    def __init__(self, control: InterventionsActions) -> None:
        super().__init__(control.host, control.sweeps)
        self.control = control

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        return self._sweep_in("token")

    def _sweep_in(self, scope: Scope) -> tuple[Hashable, Command]:
        command = SweepHeads(self.node, self._followed, heads=() if self._large else None, scope=scope)
        return (self.node, self._followed, scope, None), command

    @property
    def _followed(self) -> int | None:
        """The token whose logit is followed: the slot's own, at the tip the most probable one; in a recording another
        candidate if that one's was not recorded."""
        best = min(self.timeline.candidates, key=lambda each: each.rank, default=None)
        chosen = self.timeline.selected or best
        own = chosen.id if chosen is not None else None
        keys = self.control.sweeps.keys
        known = [key[1] for key in keys if isinstance(key, tuple) and key[0] == self.node]
        if self.live or own in known:
            return own
        here = told_here(self.timeline, known)
        return next((each for each in reversed(known) if each in here), own)

    @property
    def _large(self) -> bool:
        """True if heads are switched off a layer at a time, when they are asked for."""
        facts = self.timeline.facts
        return facts is not None and facts.layers * ((facts.heads or 0) + 3) > AT_ONCE

    def look(self) -> None:
        """See `InsideView`; of the sweep of the token, with the heads that were asked for."""
        super().look()
        self.found(self.control.sweep(self.node, self._followed) if self.path else None, self.failure)

    @property
    def lacks_heads(self) -> int | None:
        """The layer of the cursor, if its heads were not switched off yet though there are some."""
        if (swept := self._swept) is None or not self._large:
            return None
        layer = self.control.unit(swept).layer
        kinds = {each.intervention.kind for each in swept.units if each.intervention.layer == layer}
        key = self.node, swept.token, swept.scope, layer
        refused = self.control.sweeps.failure(key) is not None  # none can be told apart
        return layer if "attention" in kinds and "head" not in kinds and not refused else None

    def ask(self) -> None:
        """See `InsideView`; once the units are known, what the chosen ones do."""
        if self.answer is None:
            super().ask()
        if (swept := self._swept) is not None:
            self.control.tried.want(*self.control.question(self.node, swept))

    @property
    def _swept(self) -> HeadsSwept | None:
        """The sweep of the token, if it passed its checks."""
        answer = self.answer
        return answer if answer is not None and self.failed is None and answer.units else None

    def _tried(self, swept: HeadsSwept) -> Intervened | None:
        return self.control.tried.get(self.control.question(self.node, swept)[0])

    def drop(self) -> None:
        self.control.drop()
        super().drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: HeadsSwept | None) -> str:
        if answer is None:
            return "What each part of the model does here, seen by switching it off"
        name = quoted(token_label(answer.text))
        heads = any(each.intervention.kind == "head" for each in answer.units)
        what = "Each head and part" if heads else "Each part"
        where = " in the whole context" if answer.scope == "context" else ""
        return first_fitting(
            self.area.width - TITLED,
            f"{what} switched off alone{where}: what becomes of {name} ({percent(answer.prob)})",
            f"{what} off alone{where}: {name} ({percent(answer.prob)})",
            f"{what} off alone{where}: {name}",
        )

    def situation(self) -> str:
        if self.answer is not None and (going := under_way(self.control.sweeps)):
            return going
        if (swept := self._swept) is not None:
            key = self.control.question(self.node, swept)[0]
            words = told(self.control.tried, key, self.app.size.width - 2)
            if words and self._tried(swept) is None:
                return words
        return super().situation()

    def draw(self, answer: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        missing = paragraph(on.ink("muted"), width, *answer.missing)
        if not answer.units:
            return missing
        control, measure = self.control, self.control.measure
        short, tight = height < LOW // 2, height < TALL - 8
        said: list[Row] = []
        if not short:
            said = [[Segment(strongest_line(answer, measure, width), on.ink("accent"))]]
        depth = answer.units[-1].intervention.layer + 1
        under = 3 if short else max(UNDER, height // 3, height - len(said) - depth - 3 + tight)
        mapped = unit_map(
            on, answer, measure, control.unit(answer), control.marked(answer), width,
            max(3, height - len(said) - under),
        )  # fmt: skip
        room = height - len(said) - len(mapped) - (not tight)
        below = self._effect(answer, on, width, room)
        return [*said, *mapped, *([] if tight else [[]]), *below, *missing]

    def _instead(self, on: Canvas) -> Notice:
        last = self.path[-1] if self.path else None
        if self.answer is None and isinstance(last, Step) and last.origin == "intervened":
            return [
                (f"This token was computed under {interventions_words(self.timeline.under)}.", on.rich_style),
                ("Views of the inside are for the model's own tokens: ← goes to those before this branch.",
                 on.ink("muted")),
                (f"{key_for('interventions.release')} releases them: it goes back to the model's own token, where "
                 "the branch begins.", on.ink("muted")),
            ]  # fmt: skip
        return super()._instead(on)

    def _effect(self, swept: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        """The effect of the chosen units, or why it isn't there."""
        key, tried = self.control.question(self.node, swept)[0], self._tried(swept)
        facts = tried.facts if tried is not None else None
        texts = why_missing(on, facts, self.control.tried.failure(key))
        if tried is not None and tried.facts.failed is None:
            return effect(on, tried, width, height)
        if not texts:
            live = f"was not recorded. {key_for('go_live')} on the main screen continues live"
            what = "is being computed" if self.live else live
            words = interventions_words(self.control.interventions(swept))
            texts = [(f"{words}: this {what}.", on.ink("muted"))]
        return [row for text, style in texts for row in paragraph(style, width, text)]

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose the unit of another layer that is the most alike."""
        if (swept := self._swept) is not None:
            now, units = self.control.unit(swept), [each.intervention for each in swept.units]
            layer = max(0, min(units[-1].layer, now.layer + by))
            self.control.chosen = in_layer(units, layer, now) or now

    def turn_column(self, by: int) -> None:
        """Choose the next unit of the layer; they go round."""
        if (swept := self._swept) is not None:
            now = self.control.unit(swept)
            own = [each.intervention for each in swept.units if each.intervention.layer == now.layer]
            own.sort(key=lambda each: place(column_of(each)))
            self.control.chosen = own[(own.index(now) + by) % len(own)]

    def turn_together(self) -> None:
        """Add the unit under the cursor to those that are switched off together, or take it out."""
        if (swept := self._swept) is not None:
            unit, together = self.control.unit(swept), self.control.together
            self.control.chosen = unit  # the cursor stays, whatever the next sweep finds strongest
            if together.pop(unit, None) is None:
                together[unit] = self.control.scale

    def turn_scale(self, by: int) -> None:
        """Scale the unit under the cursor by the next factor, or by the one before."""
        if (swept := self._swept) is not None:
            unit, control = self.control.unit(swept), self.control
            now = control.together.get(unit, control.scale)
            scale = SCALES[max(0, min(len(SCALES) - 1, SCALES.index(now) + by))]
            if unit in control.together:
                control.together[unit] = scale
            else:
                control.scale = scale

    @property
    def more(self) -> str:
        """A word for what else can be switched off unit by unit; empty for nothing."""
        swept = self._swept
        if swept is not None and swept.scope != self.control.scope == "context":
            return "sweep the context"
        return "" if self.lacks_heads is None else f"heads of L{self.lacks_heads + 1}"

    def switch_off_more(self) -> None:
        """Switch off each part in the whole context, or, of a large model, each head of the cursor's layer."""
        layer, swept = self.lacks_heads, self._swept
        if swept is None or not self.more or not self.live:
            return
        self.control.tried.drop()
        if swept.scope != self.control.scope:
            self.control.sweeps.want(*self._sweep_in("context"))
        elif layer is not None:
            question = SweepHeads(self.node, swept.token, swept.other, (layer,), False, swept.scope)
            self.control.sweeps.want((self.node, swept.token, swept.scope, layer), question)

    def clear(self) -> None:
        """Switch off nothing together."""
        self.control.together.clear()
        self.control.scale = 0.0

    @property
    def scope(self) -> str:
        """The scope of the change, in a word."""
        return SCOPES[self.control.scope][0]

    def change_scope(self) -> None:
        """Change this token alone, or the whole context."""
        self.control.scope = "context" if self.control.scope == "token" else "token"

    def hold(self) -> None:
        """Continue under what is chosen, in a branch that begins with this token."""
        if (swept := self._swept) is not None:
            self.continue_under(HoldInterventions(self.node, self.control.interventions(swept)))

    def release(self) -> None:
        """Go back to the model's own."""
        if self.timeline.under:
            self.continue_under(HoldInterventions(self.timeline.tip))


# ---- the map: layers by heads and parts, each cell the effect of switching off that unit alone -----

LAYER = 5
"""Cells of a layer's name."""
NUMBERED, WIDEST = 4, 8
"""Cells of a column from which on it has numbers, and at most."""
MARK = "×"
_HEADS = {"attention": "attn", "mlp": "MLP", "recurrence": "rec", "layer": "layer"}
_SHORT = {"attention": "att", "layer": "all"}
_KINDS = ("head", "attention", "mlp", "recurrence", "layer")


def unit_map(
    on: Canvas, swept: HeadsSwept, measure: UnitMeasure, cursor: Intervention,
    marked: Collection[Intervention], width: int, height: int,
) -> list[Row]:  # fmt: skip
    """As many layers as fit under the names of their units, upwards, and what the colours mean.

    Args:
        on: Where it is drawn.
        swept: All units.
        measure: What number and colour are.
        cursor: The unit that is looked at.
        marked: Those that are switched off together.
        width: Cells.
        height: Rows, 3 or more.
    """
    every = sorted({column_of(each.intervention) for each in swept.units}, key=place)
    depth, across, room = swept.units[-1].intervention.layer + 1, width - LAYER, max(1, height - 2)
    cell = max(1, min(WIDEST, across // len(every)))
    shown = [every[at] for at in in_sight(len(every), across // cell, every.index(column_of(cursor)))]
    heads = [head for _, head in shown if head is not None]
    said = part_shown(
        width,
        ("layers", in_sight(depth, max(1, room - 1), cursor.layer), depth),
        ("heads", heads, sum(head is not None for _, head in every)),
    )
    room -= bool(said) and room > 2
    layers = in_sight(depth, room, cursor.layer)
    rows = [[Segment(said, on.ink("warn"))]] if said and len(layers) == room > 1 else []
    # parts have numbers if many narrow heads leave room for those
    parts = len(shown) - len(heads)
    left = (across - cell * len(heads)) // parts if parts else 0
    cells = {
        (kind, head): cell if head is not None or left <= NUMBERED else min(WIDEST, left)
        for kind, head in shown
    }
    rows.append(_head(on, cells, column_of(cursor)))
    units = {(each.intervention.layer, column_of(each.intervention)): each for each in swept.units}
    for layer in reversed(layers):
        row: Row = [
            Segment(pad(f"L{layer + 1}", LAYER), on.ink("accent" if layer == cursor.layer else "muted"))
        ]
        for column, wide in cells.items():
            if (unit := units.get((layer, column))) is None:
                row.append(Segment(" " * wide))
                continue
            value = measure.value(unit)
            step, mark = step_of(value, measure.edges), unit.intervention in marked
            if wide >= NUMBERED:
                number = figure(value, min(wide - 1, 5), measure.signed)
                text = (MARK if mark else " ") + number.rjust(wide - 1)
            else:
                text = (MARK if mark else glyph(on, step)) * wide
            here, plain = unit.intervention == cursor, on.rich_style + ground(on, step, measure.signed)
            row.append(Segment(text, on.ink("cursor") if here else plain))
        rows.append(row)
    steps = [
        (side * step, f"{'+' if side > 0 else '-'}{edge:g}" if measure.signed else f"{edge:g}")
        for side in ((1, -1) if measure.signed else (1,))
        for step, edge in enumerate(measure.edges, 1)
    ]
    drawn = legend(on, steps, cell < NUMBERED, measure.signed)
    says = first_fitting(
        width - sum(part.cell_length for part in drawn),
        f"Number and colour: {measure.says} ", f"Colour: {measure.says} ", f"{measure.says} ",
        f"{measure.name} from ", "",
    )  # fmt: skip
    return [*rows, [Segment(says, on.ink("muted")), *drawn]]


def _head(on: Canvas, cells: Mapping[Column, int], cursor: Column) -> Row:
    """The names of the columns, of narrow ones the number of every so many heads and a letter for each part."""
    narrow = [column for column, wide in cells.items() if wide < NUMBERED]
    row: Row = [Segment(" " * LAYER)]
    if narrow:
        cell = cells[narrow[0]]
        row = [Segment(" " * LAYER + _short_head(cell, narrow)[: cell * len(narrow)], on.ink("muted"))]
    for (kind, head), wide in cells.items():
        if wide >= NUMBERED:
            name = f"h{head + 1}" if head is not None else _HEADS[kind]
            name = name if len(name) < wide else _SHORT.get(kind, name)
            ink = on.ink("accent" if (kind, head) == cursor else "muted")
            row.append(Segment(pad(truncate(name, wide - 1), wide, right=True), ink))
    return row


def _short_head(cell: int, shown: Sequence[Column]) -> str:
    """Over narrow columns: the number of every so many heads, and a letter for each part."""
    text = [" "] * (cell * len(shown) + 4)
    every = -(-4 // cell)
    for at, (kind, head) in enumerate(shown):
        if head is None or head % every == 0:
            name = f"{head + 1}" if head is not None else _HEADS[kind][0].upper()
            text[at * cell : at * cell + len(name)] = name
    return "".join(text)


def strongest_line(swept: HeadsSwept, measure: UnitMeasure, width: int) -> str:
    """The strongest unit of each kind, heads first; without the weakest if there is no room for all."""
    found: dict[str, list[SweptUnit]] = {}
    for each in swept.units:
        found.setdefault(each.intervention.kind, []).append(each)
    line = f"Strongest ({measure.unit}): " if width >= 60 else "Most: "
    best = [max(found[kind], key=measure.strength) for kind in _KINDS if kind in found]
    parts = {
        each: f"{each.intervention.label} {figure(measure.value(each), 5, measure.signed)}" for each in best
    }
    while len(parts) > 1 and cell_len(line + " · ".join(parts.values())) > width:
        del parts[min(parts, key=measure.strength)]
    return line + " · ".join(parts.values())


# ---- under the map: the candidates with and without the chosen units ----------------------------

NARROW, WIDE = 56, 100
RANKS = 22
"""Cells of the ranks and of the change of the logit."""
SCOPES: dict[Scope, tuple[str, str]] = {
    "token": (
        "this token",
        "This token's forward alone is changed: the KV of the tokens before it stays the model's own. "
        "{interventions.hold} holds this for all tokens that follow.",
    ),
    "context": (
        "whole context",
        "The whole path runs anew through the changed model, so that its KV is changed too. "
        "{interventions.hold} holds from this token on alone.",
    ),
}
"""Each scope's name, and what it means; `{step}` is the key of that action."""
TOTAL = (
    "This is the total effect: later layers react to what is missing, and may make up for it. "
    "What a unit adds by itself, its direct effect, is in Contributions."
)


def effect(on: Canvas, answer: Intervened, width: int, height: int) -> list[Row]:
    """The rows of an answer: all of them, with as many candidates as fit, three at least.

    Args:
        on: Where they are drawn.
        answer: Its checks passed.
        width: Cells.
        height: Rows that there is room for.
    """
    head = paragraph(on.ink("accent"), width, _figures(answer, width))
    tokens = "1 token" if answer.tokens_run == 1 else f"{count(answer.tokens_run)} tokens"
    cost = f"{with_keys(SCOPES[answer.scope][1])} It ran {tokens}, {milliseconds(answer.facts.ms)}."
    words = paragraph(on.ink("muted"), width, *filter(None, [answer.note]), cost, TOTAL)
    room = height - len(head) - len(words) - 2
    listed = answer.candidates[: max(3, min(len(answer.candidates), room))]
    return [*head, *_candidates(on, listed, sides(answer.interventions), width), *words]


def _figures(answer: Intervened, width: int) -> str:
    """The figures of the whole distribution."""
    what = interventions_words(answer.interventions)
    if width < NARROW:
        return f"{what}: KL {bits(answer.kl_bits)}"
    what = f"{what}, {SCOPES[answer.scope][0]}: KL {answer.kl_bits:.3f} bits"
    entropy = f"model entropy {bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)}"
    if width < WIDE:
        return f"{what}, {entropy}"
    largest = quoted(token_label(answer.largest_change_text))
    below = " (rounding explains it)" if answer.largest_change <= answer.rounding else ""
    return f"{what} · {entropy} bits · largest logit change {answer.largest_change:.2f} ({largest}){below}"


def _candidates(
    on: Canvas, listed: Sequence[CandidateChange], named: tuple[str, str], width: int
) -> list[Row]:
    """Candidates with their probability, rank and logit on both sides."""
    wide = width >= NARROW
    figures = RANKS if wide else 0
    longest = max((cell_len(token_label(each.before.text, each.before.raw)) for each in listed), default=0)
    label = min(14, longest, width - figures - 24)
    each_side = (width - label - figures - 5) // 2
    length = min(24, max(0, each_side - 10))
    side = length + 10 if wide else 10
    ranks = f"{'rank':>13}{'logit':>9}" if wide else ""
    own, changed = (pad(f"   {name}", side) for name in named)
    head = f"{pad('', label + 2)}{own} {changed}{ranks}"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for change in listed:
        arrow = "↑" if change.ranks_up > 0 else "↓" if change.ranks_up < 0 else " "
        row: Row = [Segment(f"  {pad(token_label(change.before.text, change.before.raw), label)}")]
        for candidate, mark in ((change.before, " "), (change.after, arrow)):
            row += [Segment(f"{percent(candidate.prob):>8}"), Segment(mark, on.ink("accent"))]
            drawn = bar(candidate.prob, length) if wide else ""
            row.append(Segment(drawn + "  ", on.data(candidate.prob) if wide else None))
        if wide:
            moved = f"#{count(change.before.rank)}"
            if change.ranks_up:
                moved += f"→#{count(change.after.rank)}"
            row.append(Segment(f"{moved:>12}{figure(change.logit_change, 5, True):>9}", on.rich_style))
        rows.append(row)
    rest = f"  {pad('others', label)}"
    for side_of in (attrgetter("before.prob"), attrgetter("after.prob")):
        rest += f"{percent(left_over(map(side_of, listed))):>8}{pad('', side - 7)}"
    return [*rows, [Segment(rest, on.ink("muted"))]]

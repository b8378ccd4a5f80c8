"""The screen of interventions: the map of all units, and what the chosen ones do to the candidates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct
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
from inspector.display import pad, quoted, token_label, truncate, visible
from inspector.keys import key_for, with_keys
from inspector.main.inside.screen import (
    LOW,
    TALL,
    TITLED,
    InsideScreen,
    Notice,
    refused,
    told,
    under_way,
)
from inspector.main.tool import Host
from inspector.scales import bits, count, left_over, milliseconds, percent
from inspector.state.attribution import told_here
from inspector.state.inside import interventions_words, sides
from inspector.tools.interventions.control import (
    INTERVENTIONS_SCREEN,
    Column,
    SwitchControl,
    UnitMeasure,
    column_of,
    figure,
    glyph,
    ground,
    place,
    strongest,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

AT_ONCE = 600
"""Units of a model up to which its heads are switched off with the rest: at 94 layers of 64 heads that takes 6,298
forwards of one token, ten minutes where they run one by one."""
UNDER = 5
"""Rows of what stands under the map at least, where the screen isn't small."""


class InterventionsScreen(InsideScreen[HeadsSwept]):
    """Units of the model switched off, alone or together.

    Args:
        host: The main screen.
        control: What is chosen, and what is known.
    """

    TOOL: ClassVar[str] = "interventions"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = INTERVENTIONS_SCREEN

    def __init__(self, host: Host, control: SwitchControl) -> None:
        super().__init__(host, control.sweeps)
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
        selected, known = self.timeline.selected, self.control.swept_tokens(self.node)
        best = min(self.timeline.candidates, key=lambda each: each.rank, default=None)
        own = selected.id if selected is not None else best.id if best is not None else None
        if not self.host.controller.transport.recorded or own in known:
            return own
        here = told_here(self.timeline, known)
        return next((each for each in reversed(known) if each in here), own)

    @property
    def _large(self) -> bool:
        """True if heads are switched off a layer at a time, when they are asked for."""
        facts = self.timeline.facts
        return facts is not None and facts.layers * ((facts.heads or 0) + 3) > AT_ONCE

    def look(self) -> None:
        """See `InsideScreen`; of the sweep of the token, with the heads that were asked for."""
        super().look()
        self.found(self.control.sweep(self.node, self._followed) if self.path else None, self.failure)

    @property
    def lacks_heads(self) -> int | None:
        """The layer of the cursor, where its heads were not switched off yet though there are some."""
        if (swept := self._swept) is None or not self._large:
            return None
        layer = self.control.unit(swept).layer
        kinds = {each.intervention.kind for each in swept.units if each.intervention.layer == layer}
        key = self.node, swept.token, swept.scope, layer
        refused = self.control.sweeps.failure(key) is not None  # none can be told apart
        return layer if "attention" in kinds and "head" not in kinds and not refused else None

    def ask(self) -> None:
        """See `InsideScreen`; once the units are known, what the chosen ones do."""
        if self.answer is None:
            super().ask()
        if (swept := self._swept) is not None:
            self.control.tried.want(*self.control.question(self.node, swept))

    @property
    def _swept(self) -> HeadsSwept | None:
        """The sweep of the token, where it passed its checks."""
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
        what = (
            "Each head and part"
            if any(each.intervention.kind == "head" for each in answer.units)
            else "Each part"
        )
        where = " in the whole context" if answer.scope == "context" else ""
        long = f"{what} switched off alone{where}: what becomes of {name} ({percent(answer.prob)})"
        forms = (
            long,
            f"{what} off alone{where}: {name} ({percent(answer.prob)})",
            f"{what} off alone{where}: {name}",
        )
        return next((form for form in forms if cell_len(form) <= self.area.width - TITLED), forms[-1])

    def situation(self) -> str:
        if self.answer is not None and (going := under_way(self.control.sweeps)):
            return going
        if (swept := self._swept) is not None:
            key = self.control.question(self.node, swept)[0]
            if self._tried(swept) is None and (
                words := told(self.control.tried, key, self.app.size.width - 2)
            ):
                return words
        return super().situation()

    def draw(self, answer: HeadsSwept, on: Canvas, width: int, height: int) -> list[Row]:
        if not answer.units:
            return [
                [Segment(line, on.ink("muted"))] for text in answer.missing for line in wrapped(text, width)
            ]
        control = self.control
        units = UnitMap(answer, control.measure, control.unit(answer), control.marked(answer))
        short, tight = height < LOW // 2, height < TALL - 8
        said: list[Row] = (
            [] if short else [[Segment(strongest_line(answer, control.measure, width), on.ink("accent"))]]
        )
        under = 3 if short else max(UNDER, height // 3, height - len(said) - units.depth - 3 + tight)
        mapped = units.rows(on, width, max(3, height - len(said) - under))
        missing = [
            [Segment(line, on.ink("muted"))] for text in answer.missing for line in wrapped(text, width)
        ]
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
        tried = self._tried(swept)
        key = self.control.question(self.node, swept)[0]
        failure = self.control.tried.failure(key)
        if tried is not None and tried.facts.failed is None:
            return effect(on, tried, width, height)
        if tried is not None and tried.facts.failed is not None:
            texts = refused(on, tried.facts.failed, tried.facts.family)
        elif failure is not None:
            texts = [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        else:
            recorded = self.host.controller.transport.recorded
            what = (
                f"was not recorded. {key_for('go_live')} on the main screen continues live"
                if recorded
                else "is being computed"
            )
            texts = [
                (f"{interventions_words(self.control.interventions(swept))}: this {what}.", on.ink("muted"))
            ]
        return [[Segment(line, style)] for text, style in texts for line in wrapped(text, width)]

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose a unit of another layer."""
        if (swept := self._swept) is not None:
            self.control.turn_layer(swept, by)

    def turn_column(self, by: int) -> None:
        """Choose another unit of the layer."""
        if (swept := self._swept) is not None:
            self.control.turn_column(swept, by)

    def turn_together(self) -> None:
        """Switch the unit off together with others, or no more."""
        if (swept := self._swept) is not None:
            self.control.toggle(swept)

    def turn_scale(self, by: int) -> None:
        """Scale the unit by another factor."""
        if (swept := self._swept) is not None:
            self.control.turn_scale(swept, by)

    @property
    def more(self) -> str:
        """What else can be switched off unit by unit, in a word; empty for nothing."""
        swept = self._swept
        if swept is not None and swept.scope != self.control.scope == "context":
            return "sweep the context"
        return "" if self.lacks_heads is None else f"heads of L{self.lacks_heads + 1}"

    def switch_off_more(self) -> None:
        """Switch off each part in the whole context, or, of a large model, each head of the cursor's layer."""
        layer, swept = self.lacks_heads, self._swept
        if swept is None or not self.more or self.host.controller.transport.recorded:
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
        """Go on under what is chosen, in a branch that begins with this token."""
        if (swept := self._swept) is not None:
            self.continue_under(HoldInterventions(self.node, self.control.interventions(swept)))

    def release(self) -> None:
        """Go back to the model's own."""
        if self.timeline.under:
            self.continue_under(HoldInterventions(self.timeline.tip))


# ---- the map: layers by heads and parts, each cell what happens where that unit alone is switched off ---

LAYER = 5
"""Cells of a layer's name."""
NUMBERED, WIDEST = 4, 8
"""Cells of a column from which on it has numbers, and at most."""
MARK = "×"
_HEADS = {"attention": "attn", "mlp": "MLP", "recurrence": "rec", "layer": "layer"}
_SHORT = {"attention": "att", "layer": "all"}
_KINDS = ("head", "attention", "mlp", "recurrence", "layer")


class UnitMap(Struct, frozen=True):
    """The map, ready to be drawn.

    Args:
        swept: All units.
        measure: What number and colour are.
        cursor: The unit that is looked at.
        marked: Those that are switched off together.
    """

    swept: HeadsSwept
    measure: UnitMeasure
    cursor: Intervention
    marked: Mapping[Intervention, float]

    @property
    def depth(self) -> int:
        """Layers."""
        return self.swept.units[-1].intervention.layer + 1

    def rows(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The heads of the as many layers as fit, upwards, and what the colours mean.

        Args:
            on: Where it is drawn.
            width: Cells.
            height: Rows, 3 or more.
        """
        cell, shown = self._columns(width)
        room = max(1, height - 2)
        every = columns(self.swept)
        said = part_shown(
            width,
            ("layers", self._layers(room - 1), self.depth),
            (
                "heads",
                [head for _, head in shown if head is not None],
                sum(head is not None for _, head in every),
            ),
        )
        room -= bool(said) and room > 2
        layers = self._layers(room)
        units = {(each.intervention.layer, column_of(each.intervention)): each for each in self.swept.units}
        rows = [[Segment(said, on.ink("warn"))]] if said and len(layers) == room > 1 else []
        parts = self._part_cells(width, cell, shown)
        rows.append(self._head(on, cell, parts, shown))
        for layer in reversed(layers):
            here = layer == self.cursor.layer
            row: Row = [Segment(pad(f"L{layer + 1}", LAYER), on.ink("accent" if here else "muted"))]
            row += [
                self._cell(on, cell if column[1] is not None else parts, units.get((layer, column)))
                for column in shown
            ]
            rows.append(row)
        return [*rows, legend(on, self.measure, width, cell < NUMBERED)]

    def _layers(self, room: int) -> range:
        """As many layers as there is room for, around the cursor."""
        first = max(0, min(self.cursor.layer - room // 2, self.depth - room))
        return range(first, min(self.depth, first + max(1, room)))

    def _columns(self, width: int) -> tuple[int, list[Column]]:
        """Cells of a column, and the columns there is room for, around the cursor."""
        every = columns(self.swept)
        room = width - LAYER
        cell = max(1, min(WIDEST, room // len(every)))
        fit = room // cell
        first = max(0, min(every.index(column_of(self.cursor)) - fit // 2, len(every) - fit))
        return cell, every[first : first + fit]

    def _part_cells(self, width: int, cell: int, shown: Sequence[Column]) -> int:
        """Cells of the columns after the heads': they have numbers where many narrow heads leave room for those."""
        parts = sum(head is None for _, head in shown)
        room = (width - LAYER - cell * (len(shown) - parts)) // parts if parts else 0
        return min(WIDEST, room) if room > NUMBERED else cell

    def _head(self, on: Canvas, cell: int, parts: int, shown: Sequence[Column]) -> Row:
        narrow = [column for column in shown if (cell if column[1] is not None else parts) < NUMBERED]
        row: Row = [Segment(" " * LAYER)]
        if narrow:
            short = _short_head(cell, narrow)
            row = [Segment(" " * LAYER + short[: cell * len(narrow)], on.ink("muted"))]
        for kind, head in (column for column in shown if column not in narrow):
            cells = cell if head is not None else parts
            name = f"h{head + 1}" if head is not None else _HEADS[kind]
            name = name if len(name) < cells else _SHORT.get(kind, name)
            ink = on.ink("accent" if (kind, head) == column_of(self.cursor) else "muted")
            row.append(Segment(pad(truncate(name, cells - 1), cells, right=True), ink))
        return row

    def _cell(self, on: Canvas, cell: int, unit: SweptUnit | None) -> Segment:
        if unit is None:
            return Segment(" " * cell)
        value = self.measure.value(unit)
        step = self.measure.step(value)
        mark = unit.intervention in self.marked
        if cell >= NUMBERED:
            number = figure(value, min(cell - 1, 5), self.measure.signed)
            text = (MARK if mark else " ") + number.rjust(cell - 1)
        else:
            text = (MARK if mark else glyph(on, step)) * cell
        here = unit.intervention == self.cursor
        return Segment(
            text, on.ink("cursor") if here else on.rich_style + ground(on, step, self.measure.signed)
        )


def columns(swept: HeadsSwept) -> list[Column]:
    """The columns of the map."""
    return sorted({column_of(each.intervention) for each in swept.units}, key=place)


def _short_head(cell: int, shown: Sequence[Column]) -> str:
    """Over narrow columns: the number of every so many heads, and a letter for each part."""
    text = [" "] * (cell * len(shown) + 4)
    every = -(-4 // cell)
    for at, (kind, head) in enumerate(shown):
        if head is None or head % every == 0:
            name = f"{head + 1}" if head is not None else _HEADS[kind][0].upper()
            text[at * cell : at * cell + len(name)] = name
    return "".join(text)


def legend(on: Canvas, measure: UnitMeasure, width: int, glyphs: bool) -> Row:
    """Each step on its own colour; with its glyph where the cells have those."""
    sides = [1, -1] if measure.signed else [1]
    drawn: Row = []
    for side in sides:
        sign = {1: "+", -1: "-"}[side] if measure.signed else ""
        for step, edge in enumerate(measure.edges, 1):
            shown = glyph(on, side * step).strip() if glyphs else ""
            text = f" {shown}{sign}{edge:g} "
            drawn.append(Segment(text, on.rich_style + ground(on, side * step, measure.signed)))
    room = width - sum(part.cell_length for part in drawn)
    choices = (
        f"Number and colour: {measure.says} ",
        f"Colour: {measure.says} ",
        f"{measure.says} ",
        f"{measure.name} from ",
        "",
    )
    says = next((words for words in choices if cell_len(words) <= room), "")
    return [Segment(says, on.ink("muted")), *drawn]


def strongest_line(swept: HeadsSwept, measure: UnitMeasure, width: int) -> str:
    """The strongest unit of each kind, heads first; where there is no room for all, without the weakest."""
    found: dict[str, list[SweptUnit]] = {}
    for each in swept.units:
        found.setdefault(each.intervention.kind, []).append(each)
    line = f"Strongest ({measure.unit}): " if width >= 60 else "Most: "
    best = [strongest(found[kind], measure) for kind in _KINDS if kind in found]
    parts = {
        each: f"{each.intervention.label} {figure(measure.value(each), 5, measure.signed)}" for each in best
    }
    while len(parts) > 1 and cell_len(line + " · ".join(parts.values())) > width:
        del parts[min(parts, key=lambda each: abs(measure.value(each)))]
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
    head = [Segment(line, on.ink("accent")) for line in wrapped(_figures(answer, width), width)]
    words: list[Row] = [
        [Segment(line, on.ink("muted"))]
        for text in (answer.note, f"{with_keys(SCOPES[answer.scope][1])} {_cost(answer)}", TOTAL)
        if text
        for line in wrapped(text, width)
    ]
    room = height - len(head) - len(words) - 2
    listed = answer.candidates[: max(3, min(len(answer.candidates), room))]
    return [*([part] for part in head), *_candidates(on, listed, sides(answer.interventions), width), *words]


def _figures(answer: Intervened, width: int) -> str:
    """Of the whole distribution."""
    scope = SCOPES[answer.scope][0]
    if width < NARROW:
        return f"{interventions_words(answer.interventions)}: KL {bits(answer.kl_bits)}"
    if width < WIDE:
        entropy = f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)}"
        what = f"{interventions_words(answer.interventions)}, {scope}"
        return f"{what}: KL {answer.kl_bits:.3f} bits, model entropy {entropy}"
    largest = quoted(token_label(answer.largest_change_text))
    below = " (rounding explains it)" if answer.largest_change <= answer.rounding else ""
    return (
        f"{interventions_words(answer.interventions)}, {scope}: KL {answer.kl_bits:.3f} bits · model entropy "
        f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)} bits · largest logit change "
        f"{answer.largest_change:.2f} ({largest}){below}"
    )


def _cost(answer: Intervened) -> str:
    tokens = "1 token" if answer.tokens_run == 1 else f"{count(answer.tokens_run)} tokens"
    return f"It ran {tokens}, {milliseconds(answer.facts.ms)}."


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
            if wide:
                row.append(Segment(bar(candidate.prob, length) + "  ", on.data(candidate.prob)))
            else:
                row.append(Segment("  "))
        if wide:
            row.append(
                Segment(f"{_ranks(change):>12}{figure(change.logit_change, 5, True):>9}", on.rich_style)
            )
        rows.append(row)
    rest: Row = [Segment(f"  {pad('others', label)}", on.ink("muted"))]
    for side_of in (attrgetter("before.prob"), attrgetter("after.prob")):
        rest.append(
            Segment(f"{percent(left_over(map(side_of, listed))):>8}{pad('', side - 7)}", on.ink("muted"))
        )
    return [*rows, rest]


def _ranks(change: CandidateChange) -> str:
    if not change.ranks_up:
        return f"#{count(change.before.rank)}"
    return f"#{count(change.before.rank)}→#{count(change.after.rank)}"

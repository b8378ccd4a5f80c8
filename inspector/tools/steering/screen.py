"""The screen of steering: what each strength does beside random directions, and the candidates with the present one;
the dialogs for what a direction is made of, and for its file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.files import typed
from engine.protocol import (
    CandidateChange,
    Command,
    Direction,
    HoldInterventions,
    Intervened,
    Intervention,
    SteeredStrength,
    Step,
    StrengthsSwept,
)
from inspector.config.directions import END, name_of, read_direction, write_direction
from inspector.display import pad, quoted, token_label, token_text, truncate, truncate_start, visible
from inspector.keys import key_for
from inspector.main.dialogs.destination import Destination, directory_hint
from inspector.main.inside.screen import InsideScreen, Notice, not_recorded, refused, under_way
from inspector.main.tool import Host
from inspector.scales import bits, left_over, percent
from inspector.state.inside import interventions_words, sides, steered_words
from inspector.state.session_tree import Item
from inspector.state.steering import EXAMPLE, Contrast
from inspector.tools.steering.control import (
    DIRECTION_DIALOG,
    REACHES,
    SAVING_DIALOG,
    STEERING_SCREEN,
    Source,
    SteeringControl,
    other_ends,
)
from inspector.widgets.actions import ActionTable, KeyLine
from inspector.widgets.canvas import Canvas, Row, centred, wrapped
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SafeTextArea

MOST_ENDS, ENDING = 6, 28
"""Branches that are offered to make a direction of, and cells of the end of the text of each."""


class SteeringScreen(InsideScreen[StrengthsSwept]):
    """A direction added with one strength after another.

    Args:
        host: The main screen.
        control: The direction, how it is added, and what is known.
    """

    TOOL: ClassVar[str] = "steering"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = STEERING_SCREEN

    def __init__(self, host: Host, control: SteeringControl) -> None:
        super().__init__(host, control.swept)
        self.control = control

    # ---- asking ---------------------------------------------------------------------------------

    @property
    def _recorded(self) -> StrengthsSwept | None:
        """What a recording has of this token."""
        return self.control.recorded(self.node) if self.host.controller.transport.recorded else None

    @property
    def direction(self) -> Direction | None:
        """What is added: in a recording what was."""
        recorded = self._recorded
        return recorded.direction if recorded is not None else self.control.direction

    @property
    def _path(self) -> tuple[Item, ...]:
        return tuple(self.path)

    def question(self) -> tuple[Hashable, Command] | None:
        direction = self.control.direction
        return self.control.sweeping(self.node, self._path, direction) if direction is not None else None

    def look(self) -> None:
        """See `InsideScreen`; in a recording what it has, and without a direction why that could not be made."""
        super().look()
        failure, making = self.failure, self.control.making
        if self.control.direction is None and making is not None:
            failure = self.control.made.failure(making[0])
        recorded = self._recorded
        self.found(recorded if recorded is not None else self.answer, failure)

    @property
    def _tried(self) -> Intervened | None:
        if (recorded := self._recorded) is not None:
            unit = Intervention("direction", recorded.layer, None, self.control.strength, recorded.direction)
            begin = recorded.begin if recorded.scope == "context" else 0
            return self.control.tried.get((recorded.node, (unit,), recorded.scope, begin))
        direction = self.control.direction
        return (
            self.control.tried.get(self.control.trying(self.node, self._path, direction)[0])
            if direction
            else None
        )

    def ask(self) -> None:
        """See `InsideScreen`: the direction, then the candidates with the present strength, then all strengths."""
        control, direction = self.control, self.control.direction
        if self._under:
            return
        if direction is None:
            if (making := control.making) is not None:
                control.made.want(*making)
            return
        key, asked = control.trying(self.node, self._path, direction)
        if control.tried.get(key) is None and control.tried.failure(key) is None:
            control.swept.drop()  # a strength is turned live: what takes longer waits
            control.tried.want(key, asked)
        else:
            super().ask()

    @property
    def _under(self) -> bool:
        """True if this token was computed under interventions: steering is tried at the model's own."""
        last = self.path[-1] if self.path else None
        return isinstance(last, Step) and last.origin == "intervened"

    def drop(self) -> None:
        self.control.drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: StrengthsSwept | None) -> str:
        return "Steering, beside random directions"

    def situation(self) -> str:
        control = self.control
        if control.made.waiting or control.tried.waiting:
            return under_way(control.made) or "Computing"
        if self.answer is None and (going := under_way(control.swept)):
            return going
        return super().situation() if self.direction is not None else ""

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        direction, answer = self.direction, self.answer
        if direction is None or self._under or self.failure is not None or self.failed is not None:
            return centred(self._instead(on), width, height)
        tried = self._tried
        page = SteeringPage(
            self._unit(direction), self._reach_words(answer), answer, tried, self._why(on, tried)
        )
        return page.rows(on, width, height)

    def _unit(self, direction: Direction) -> Intervention:
        recorded = self._recorded
        layer = recorded.layer if recorded is not None else self.control.layer_now
        return Intervention("direction", layer, None, self.control.strength, direction)

    def _reach_words(self, answer: StrengthsSwept | None) -> str:
        if answer is not None:
            return steered_words(answer.scope, answer.begin)
        return steered_words(*self.control.span(self._path))

    def _why(self, on: Canvas, tried: Intervened | None) -> list[tuple[str, Style]]:
        """Why there are no candidates."""
        if tried is not None:
            return (
                refused(on, tried.facts.failed, tried.facts.family) if tried.facts.failed is not None else []
            )
        if self.host.controller.transport.recorded:
            return [("The candidates with this strength were not recorded.", on.ink("muted"))]
        direction = self.control.direction
        key = self.control.trying(self.node, self._path, direction)[0] if direction is not None else None
        if (failure := self.control.tried.failure(key)) is not None:
            return [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        return [("The candidates are being computed.", on.ink("muted"))]

    def _instead(self, on: Canvas) -> Notice:
        if self._under:
            return [
                (f"This token was computed under {interventions_words(self.timeline.under)}.", on.rich_style),
                ("Steering is tried at the model's own tokens: ← goes to those before this branch.", on.ink("muted")),
                (f"{key_for('steering.release')} releases it: it goes back to the model's own token, where the "
                 "branch begins.", on.ink("muted")),
            ]  # fmt: skip
        if self.failure is None and self.path and self.direction is None:
            if self.host.controller.transport.recorded:
                return not_recorded(on)
            if self.control.making is not None:
                return [("The direction is being made.", on.rich_style)]
            return [
                ("There is no direction yet.", on.rich_style),
                (f"{key_for('steering.make')} makes one: of texts that say one thing and texts that say another,",
                 on.ink("muted")),
                ("of two branches, or from a file. An example is filled in.", on.ink("muted")),
            ]  # fmt: skip
        return super()._instead(on)

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def reach(self) -> str:
        """How much of the path is steered, in a word or two."""
        return REACHES[self.control.reach] if self.control.direction is not None else ""

    def turn_layer(self, by: int) -> None:
        """Add it after another layer."""
        self.control.turn_layer(by)

    def turn_strength(self, by: int) -> None:
        """Add it with another strength."""
        self.control.turn_strength(by)

    def make(self) -> None:
        """Ask what a direction is made of."""
        if self.host.controller.transport.recorded:
            self.say(f"A recording computes nothing: {key_for('go_live')} continues live")
            return
        tree = self.timeline.tree
        ends = list(other_ends(self.timeline, self._path))[-MOST_ENDS:]
        named = [(node, _ending(tree.path(node))) for node in ends]
        self.host.open(DirectionDialog(self.control.source, self.node, named), self._made)

    def _made(self, source: Source | None) -> None:
        if source is None:
            return
        self.drop()
        self.control.use(source)
        if isinstance(source, Contrast) and (making := self.control.making) is not None:
            self.control.made.again(*making)
        self.changed()

    def hold(self) -> None:
        """Go on with it, in a branch that begins with this token."""
        if self.direction is not None:
            self.continue_under(HoldInterventions(self.node, (self._unit(self.direction),)))

    def release(self) -> None:
        """Go back to the model's own."""
        if self.timeline.under:
            self.continue_under(HoldInterventions(self.timeline.tip))

    def save(self) -> None:
        """Ask for a file, and save the direction to it."""
        if (direction := self.direction) is None:
            return

        def saved(wanted: tuple[Path, bool] | None) -> None:
            if wanted is None:
                return
            try:
                write_direction(wanted[0], direction, wanted[1])
            except PathError as error:
                self.say(visible(str(error)))
            else:
                self.say(f"Saved to {visible(str(wanted[0]))}")

        self.host.open(SavingDialog(direction.label), saved)


def _ending(path: Sequence[Item]) -> str:
    """The end of a path's text; printable."""
    text = "".join(token_text(item.text, item.raw) for item in path[-12:])
    return truncate_start(text, ENDING)


# ---- the page -----------------------------------------------------------------------------------

NAME, NUMBER = 6, 7
"""Cells of a strength, and of a number."""
SIDE_BY_SIDE, WIDE = 116, 74
"""Cells from which on the candidates stand beside the curve, and from which on it has the leading token."""
TOP = 14
DOT, BAND, NONE, AXIS = "●", "░", " ", "┊"
_HEADS = ("KL bits", "logits")


class SteeringPage(Struct, frozen=True):
    """The page, ready to be drawn.

    Args:
        unit: The direction as it is added now.
        reach: How much of the path is steered.
        swept: What all strengths do; None while that isn't known.
        tried: The candidates with the present one.
        why: Why there are none.
    """

    unit: Intervention
    reach: str
    swept: StrengthsSwept | None
    tried: Intervened | None
    why: list[tuple[str, Style]]

    def rows(self, on: Canvas, width: int, height: int) -> list[Row]:
        """All of it, as far as there is room."""
        head = self._head(on, width)
        beside = width >= SIDE_BY_SIDE
        left = width * 3 // 5 if beside else width
        room = height - len(head)
        curve = self._curve(on, left - (2 if beside else 0), room if beside else max(5, min(14, room - 5)))
        if not beside:
            gap: list[Row] = [[]] if room - len(curve) > 6 else []
            return [*head, *curve, *gap, *self._candidates(on, width, room - len(curve) - len(gap))]
        right = self._candidates(on, width - left, room)
        lines = max(len(curve), len(right))
        both = zip(
            [*curve, *[[]] * (lines - len(curve))], [*right, *[[]] * (lines - len(right))], strict=True
        )
        return [*head, *([*_filled(one, left), *other] for one, other in both)]

    def _head(self, on: Canvas, width: int) -> list[Row]:
        label = visible(self.unit.label)
        swept = self.swept
        says = f"{label}, {self.reach}"
        if swept is None:
            return [[Segment(truncate(says, width), on.ink("accent"))]]
        long = f"{says} · {swept.share:.2f} of the stream's length"
        first = long if cell_len(long) <= width else says
        token, other = (quoted(token_label(text)) for text in (swept.text, swept.other_text))
        probs = percent(swept.prob), percent(swept.other_prob)
        forms = (
            f"Followed: the logit of {token} ({probs[0]}) less that of {other} ({probs[1]})",
            f"Followed: logit of {token} less that of {other}",
            f"{token} - {other}",
        )
        second = next((form for form in forms if cell_len(form) <= width), forms[-1])
        return [
            [Segment(truncate(first, width), on.ink("accent"))],
            [Segment(truncate(second, width), on.ink("muted"))],
        ]

    # ---- the curve --------------------------------------------------------------------------------

    def _curve(self, on: Canvas, width: int, height: int) -> list[Row]:
        """A row for each strength: what the direction does, as a dot on the band of random ones."""
        swept = self.swept
        if swept is None:
            return [[Segment("All strengths are tried next, with random directions.", on.ink("muted"))]]
        legend = self._legend(on, width, swept)
        shown = self._shown(swept, max(3, height - 1 - len(legend)))
        leads = width >= WIDE
        cells = max(4, (width - NAME - 2 * NUMBER - 4 - (TOP if leads else 0)) // 2)
        kl, change = _Scale.of(swept, "kl"), _Scale.of(swept, "change")
        first, second = (f"{name:>{NUMBER}}  {'':{cells}}" for name in _HEADS)
        rows: list[Row] = [
            [Segment(f"{'':{NAME}}{first}{second}{'leads' if leads else ''}", on.ink("muted"))]
        ]
        for each in shown:
            here = each.strength == self.unit.scale
            name = Segment(f"x{each.strength:g}".rjust(NAME), on.ink("cursor" if here else "base"))
            top = [Segment(truncate(f" {token_label(each.top_text)}", TOP), on.ink("base"))] if leads else []
            rows.append([
                name,
                Segment(f"{each.kl_bits:>{NUMBER}.2f}  ", on.ink("base")),
                *kl.drawn(on, cells, each.kl_bits, each.kl_low, each.kl_high),
                Segment(f"{each.change:>+{NUMBER}.2f}  ", on.ink("base")),
                *change.drawn(on, cells, each.change, each.change_low, each.change_high),
                *top,
            ])  # fmt: skip
        return [*rows, *legend]

    def _shown(self, swept: StrengthsSwept, room: int) -> Sequence[SteeredStrength]:
        """As many strengths as fit, around the present one."""
        every = swept.strengths
        if len(every) <= room:
            return every
        at = min(range(len(every)), key=lambda place: abs(every[place].strength - self.unit.scale))
        first = max(0, min(at - room // 2, len(every) - room))
        return every[first : first + room]

    def _legend(self, on: Canvas, width: int, swept: StrengthsSwept) -> list[Row]:
        forms = (
            f"{DOT} this direction   {BAND * 2} 90 % of {swept.random} random ones of the same length: "
            "outside of it, the effect is no chance",
            f"{DOT} this direction   {BAND * 2} 90 % of {swept.random} random ones as long",
            f"{DOT} this   {BAND * 2} random ones",
        )
        return [
            [Segment(next((form for form in forms if cell_len(form) <= width), forms[-1]), on.ink("muted"))]
        ]

    # ---- the candidates ---------------------------------------------------------------------------

    def _candidates(self, on: Canvas, width: int, height: int) -> list[Row]:
        if self.tried is None or self.tried.facts.failed is not None:
            return [[Segment(line, style)] for text, style in self.why for line in wrapped(text, width)]
        said = f"With x{self.unit.scale:g}: KL {bits(self.tried.kl_bits)} bits"
        label = min(24, max(8, width - 38))
        rows: list[Row] = (
            [] if cell_len(said) <= label else [[Segment(truncate(said, width), on.ink("accent"))]]
        )
        first = Segment(pad("" if rows else said, label), on.ink("accent"))
        rows.append(
            [
                first,
                Segment("".join(f"{name:>9}" for name in sides(self.tried.interventions)), on.ink("muted")),
            ]
        )
        likely = sorted(self.tried.candidates, key=lambda each: -max(each.before.prob, each.after.prob))
        shown = {id(each) for each in likely[: max(1, height - len(rows) - 1)]}
        listed = [each for each in self.tried.candidates if id(each) in shown]
        sides_left = (
            left_over(each.before.prob for each in listed),
            left_over(each.after.prob for each in listed),
        )
        rest = pad("others", label) + "".join(f"{percent(share):>9}" for share in sides_left)
        made = [self._candidate(on, each, label, width) for each in listed]
        return [*rows, *made, [Segment(rest, on.ink("muted"))]]

    def _candidate(self, on: Canvas, each: CandidateChange, label: int, width: int) -> Row:
        arrow = "↑" if each.ranks_up > 0 else "↓" if each.ranks_up < 0 else " "
        row: Row = [
            Segment(pad(truncate(token_label(each.before.text, each.before.raw), label), label)),
            Segment(f"{percent(each.before.prob):>9}", on.ink("muted")),
            Segment(f"{percent(each.after.prob):>9}"),
            Segment(f"{arrow} ", on.ink("accent")),
        ]
        if (room := min(24, width - label - 20)) >= 4:
            row.append(Segment(bar(each.after.prob, room), on.data(each.after.prob)))
        return row


def _filled(row: Row, width: int) -> Row:
    """A row of so many cells."""
    return [*row, Segment(" " * max(0, width - Segment.get_line_length(row)))]


class _Scale(Struct, frozen=True):
    """From numbers to the cells of a row."""

    low: float
    high: float

    @classmethod
    def of(cls, swept: StrengthsSwept, name: str) -> _Scale:
        """The scale that all strengths have room on; 0 is on it."""
        values = [0.0]
        for each in swept.strengths:
            three = (
                (each.kl_bits, each.kl_low, each.kl_high)
                if name == "kl"
                else (each.change, each.change_low, each.change_high)
            )
            values += filter(math.isfinite, three)
        return cls(min(values), max(values))

    def drawn(self, on: Canvas, cells: int, value: float, low: float, high: float) -> list[Segment]:
        """A value as a dot on the band between two others."""
        first, last, zero = self._at(low, cells), self._at(high, cells), self._at(0.0, cells)
        beyond = not low <= value <= high
        drawn = [Segment(BAND if first <= at <= last else AXIS if at == zero else NONE, on.ink("faint"))
                 for at in range(cells)]  # fmt: skip
        if math.isfinite(value):
            drawn[self._at(value, cells)] = Segment(DOT, on.ink("accent" if beyond else "base"))
        return drawn

    def _at(self, value: float, cells: int) -> int:
        span = self.high - self.low
        if not math.isfinite(value) or not span:
            return 0 if value <= 0 or not span else cells - 1
        return max(0, min(cells - 1, round((value - self.low) / span * (cells - 1))))


# ---- dialogs ------------------------------------------------------------------------------------

KINDS = ("texts", "a branch", "a file")
_TEXTS = "A text on each line. The direction is the mean stream at the ends of the upper texts, less the lower ones'."
_BRANCHES = "The stream at this token, less that at the end of the other one."
_FILE = "One that was saved here, or a safetensors file with one tensor `direction` of one axis."


class DirectionDialog(Dialog[Source]):
    """Asks what a direction is made of.

    Args:
        before: What the one before was made of; None for an example.
        node: The token that is looked at.
        ends: The ends of other branches, and their texts, printable.
    """

    ACTIONS: ClassVar[ActionTable] = DIRECTION_DIALOG
    HEADING: ClassVar[str] = "Direction: what the model is pushed toward, and away from"
    APPLY: ClassVar[str] = "Make it"

    def __init__(self, before: Source | None, node: int, ends: Sequence[tuple[int, str]]) -> None:
        super().__init__()
        texts = isinstance(before, Contrast) and before.toward
        self._before = before if isinstance(before, Contrast) and texts else EXAMPLE
        self._node, self._ends = node, ends

    def body(self) -> Iterable[Widget]:
        yield Label("made of", classes="field-label", markup=False)
        yield Choice(KINDS, 0, id="direction-kind")
        with VerticalGroup(id="direction-texts"):
            yield Label("toward", classes="field-label", markup=False)
            yield SafeTextArea("\n".join(self._before.toward), id="direction-toward", tab_behavior="focus")
            yield Label("away from", classes="field-label", markup=False)
            yield SafeTextArea("\n".join(self._before.away), id="direction-away", tab_behavior="focus")
        with VerticalGroup(id="direction-branches") as branches:
            branches.display = False
            yield Label("other branch or prompt", classes="field-label", markup=False)
            if self._ends:
                yield Choice([text for _, text in self._ends], id="direction-end")
        with VerticalGroup(id="direction-file") as file:
            file.display = False
            yield Label("file", classes="field-label", markup=False)
            yield SafeInput("", f"happy-sad{END}", id="direction-path")
        yield Remark(_TEXTS, id="direction-remark")

    def on_mount(self) -> None:
        """Begin in the first field."""
        self.query_one("#direction-toward", SafeTextArea).focus()

    def on_descendant_focus(self) -> None:
        """The line of keys has those of the field."""
        self.query_one(KeyLine).show()

    @property
    def _kind(self) -> int:
        return self.query_one("#direction-kind", Choice).chosen

    @on(Choice.Changed, "#direction-kind")
    def _chosen(self) -> None:
        for place, name in enumerate(("texts", "branches", "file")):
            self.query_one(f"#direction-{name}").display = place == self._kind
        if self._kind == 1 and not self._ends:
            self._remark(
                "There is no other branch or prompt yet: take another token, or give a prompt.", wrong=True
            )
        else:
            self._remark((_TEXTS, _BRANCHES, _FILE)[self._kind])

    @on(Input.Changed, "#direction-path")
    def _typed(self) -> None:
        self._remark(_FILE)

    def _remark(self, text: str, wrong: bool = False) -> None:
        self.query_one("#direction-remark", Remark).say(text, wrong)

    def apply(self) -> None:
        """Hand on what was given, or tell what is the matter with it."""
        try:
            self.dismiss((self._from_texts, self._from_branch, self._from_file)[self._kind]())
        except EngineError as error:
            self._remark(visible(str(error)), wrong=True)

    def _from_texts(self) -> Source:
        toward, away = (
            tuple(
                line
                for line in self.query_one(f"#direction-{name}", SafeTextArea).text.splitlines()
                if line.strip()
            )
            for name in ("toward", "away")
        )
        if not toward or not away:
            raise EngineError("One of the two has no text.", "Write one on each line of both.")
        return Contrast(name_of(toward, away), toward, away)

    def _from_branch(self) -> Source:
        if not self._ends:
            raise EngineError(
                "There is no other branch or prompt yet.", "Take another token, or give a prompt."
            )
        node, text = self._ends[self.query_one("#direction-end", Choice).chosen]
        return Contrast(" ".join(("less", *text.split()[-2:])), nodes=(self._node, node))

    def _from_file(self) -> Source:
        name = self.query_one("#direction-path", SafeInput).value.strip()
        if not name:
            raise PathError("No file was named.", "Give a name.")
        return read_direction(typed(name))


class SavingDialog(Dialog[tuple[Path, bool]]):
    """Asks for the file that a direction is saved to; one that is there is replaced on the second request.

    Args:
        name: Of the direction.
    """

    ACTIONS: ClassVar[ActionTable] = SAVING_DIALOG
    HEADING: ClassVar[str] = "Save the direction"
    APPLY: ClassVar[str] = "Save"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._called = name
        self._destination = Destination("Save")

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        stem = (
            "".join(each if each.isalnum() or each in "-_" else "-" for each in self._called) or "direction"
        )
        yield SafeInput(f"{stem}{END}", f"direction{END}", id="saving-path")
        yield Remark(visible(directory_hint()), id="saving-remark")

    def on_mount(self) -> None:
        """Begin in the name."""
        self.query_one("#saving-path", SafeInput).focus()

    def apply(self) -> None:
        """Hand on the path, or tell what is the matter with it."""
        try:
            self.dismiss(self._destination.check(self.query_one("#saving-path", SafeInput).value.strip()))
        except PathError as error:
            self.query_one("#saving-remark", Remark).say(visible(str(error)), wrong=True)

"""The screen of steering: what each strength does beside random directions, and the candidates with the present one;
the dialogs for what a direction is made of, and for its file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.files import typed
from engine.protocol import (
    Command,
    Direction,
    HoldInterventions,
    Intervened,
    Intervention,
    Step,
    StrengthsSwept,
)
from inspector.blocks.blocks import GAP, Beside
from inspector.blocks.paint import Painter
from inspector.config.directions import END, name_of, read_direction, write_direction
from inspector.display import token_text, truncate_start, visible
from inspector.documents.steering import EXAMPLE, Contrast, candidates, curve, head
from inspector.keys import key_for
from inspector.main.dialogs.destination import Destination, directory_hint
from inspector.main.inside_view import InsideView, Notice, not_recorded, noticed, refused, under_way
from inspector.state.inside import interventions_words, steered_words
from inspector.state.session_tree import Item
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
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SafeTextArea

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

SIDE_BY_SIDE = 116
"""Cells from which on the candidates stand beside the curve."""
MOST_ENDS, ENDING = 6, 28
"""Branches that are offered to make a direction of, and cells of the end of the text of each."""


class SteeringScreen(InsideView[StrengthsSwept]):
    """A direction added with one strength after another.

    Args:
        host: The main screen.
        control: The direction, how it is added, and what is known.
    """

    TOOL: ClassVar[str] = "steering"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = STEERING_SCREEN

    def __init__(self, host: MainScreen, control: SteeringControl) -> None:
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
        """See `InsideView`; in a recording what it has, and without a direction why that could not be made."""
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
        """See `InsideView`: the direction, then the candidates with the present strength, then all strengths."""
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
        unit, tried, why = self._unit(direction), self._tried, self._why(on, self._tried)
        main = *curve(answer, unit.scale), GAP
        side = [*candidates(tried, unit.scale)] if tried is not None and not why else [noticed(why)]
        blocks = *head(unit, self._reach_words(answer), answer), Beside(main, side, SIDE_BY_SIDE, (0, width))
        return Painter(on).draw(blocks, width, height)

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

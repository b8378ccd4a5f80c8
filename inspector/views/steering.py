"""Steering: a direction added to the residual stream, and the effect of each strength against random directions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.files import typed
from engine.protocol import (
    STRENGTHS,
    Command,
    Direction,
    DirectionMade,
    HoldInterventions,
    Intervene,
    Intervened,
    Intervention,
    MakeDirection,
    Prefilled,
    PromptToken,
    Record,
    Scope,
    StrengthsSwept,
    SweepStrengths,
    named_places,
)
from inspector.blocks.blocks import GAP, Beside
from inspector.blocks.paint import Painter
from inspector.config.directions import END, Steering, name_of, read_direction, write_direction
from inspector.display import token_text, truncate_start, visible
from inspector.documents.steering import EXAMPLE, Contrast, candidates, curve, head
from inspector.keys import key_for, with_keys
from inspector.main.dialogs.field import PathDialog, directory_hint
from inspector.main.inside_view import (
    SCROLLS,
    InsideView,
    Notice,
    instead_of,
    look_table,
    not_recorded,
    noticed,
    under_way,
    walking,
)
from inspector.main.tool import ToolActions
from inspector.session.requests import Replies
from inspector.state.inside import steered_words, swept_key, tried_key
from inspector.widgets.actions import (
    NEW_LINE,
    Action,
    ActionTable,
    KeyLine,
    applies,
    both,
    dialog_table,
    fields,
)
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SafeTextArea

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

SIDE_BY_SIDE = 116
"""Cells from which the candidates stand beside the curve."""
MOST_ENDS, ENDING = 6, 28
"""Maximum number of branches offered for building a direction, and cells of the end of each one's text."""
REACHES = ("this token", "the completion", "whole context")
"""The part of the path that is steered: this token's forward pass alone; from the prompt's last token on, which
predicts the first of the completion; all of it."""
Source = Contrast | Direction
"""The texts or nodes that a direction is built from, or a direction from a file."""

STEERING_KEYS = look_table(
    "While the model is steered",
    *both(("steering.later_layer", "steering.earlier_layer"), ("Later layer", "Earlier layer"),
          "Add the direction after a later layer, or after an earlier one; one of texts or branches is made of the "
          "streams there.",
          lambda own, by: own.turn_layer(by), by=(1, -1), hint=lambda own: "layer" if own.trial else "", worth=7),
    *both(("steering.less", "steering.more"), ("Weaker", "Stronger"),
          "Add it with another strength; below 0 it is subtracted.", lambda own, by: own.turn_strength(by),
          hint=lambda own: "strength" if own.trial else "", worth=8),
    Action("steering.make", "Direction",
           "Build a direction from two sets of texts, from two branches, or from a file.",
           lambda own: own.make(), worth=9, place=1,
           hint=lambda own: "" if not own.live else "another direction" if own.trial else "build a direction"),
    Action("steering.scope", "Scope",
           "Steer only this token's forward pass, all tokens from the prompt's last one on, or the whole context.",
           lambda own: own.turn_reach(), hint=lambda own: REACHES[own.reach] if own.wanted else "", worth=6),
    Action("steering.follow", "Follow", "Follow the logit of another candidate.",
           lambda own: own.follow(0), hint=lambda own: "follow" if own.trial else "", worth=5),
    Action("steering.against", "Against", "Subtract the logit of another candidate.",
           lambda own: own.follow(1), hint=lambda own: "against" if own.trial else "", worth=5),
    Action("steering.hold", "Keep steering", "Continue with it, in a branch that begins with this token.",
           lambda own: own.hold(), hint=lambda own: "keep steering" if own.trial else "", worth=7),
    Action("steering.release", "End the change",
           "Leave a branch that is steered, or has parts off: return to the model's own token where it begins.",
           lambda own: own.release(), hint=lambda own: "end the change" if own.timeline.under else "", worth=7),
    Action("steering.save", "Save", "Save the direction to a file, for `--steer FILE` and for another session.",
           lambda own: own.save(), hint=lambda own: "save direction" if own.trial else "", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
    text="Any vector of that length changes what the model predicts. So every strength is tried with 32 random "
    "directions of the same length, too: only an effect outside their band is due to the direction.",
)  # fmt: skip
DIRECTION_KEYS = dialog_table(
    "While a direction is built",
    NEW_LINE,
    *fields(),
    applies("Build it, or read it from the file."),
)


class SteeredStart(ToolActions):
    """Steers the completion of the first prompt.

    Args:
        host: The main screen.
        how: The direction, layer and strength.
    """

    def __init__(self, host: MainScreen, how: Steering) -> None:
        super().__init__(host)
        self.how = how
        self.controller.client.listen(self._receive, Prefilled)

    def _receive(self, record: Record) -> None:
        if isinstance(record, Prefilled) and not self.timeline.recorded:
            self.controller.client.ignore(self._receive)
            self.controller.client.do(HoldInterventions(record.tokens[-1].node, (self.how.intervention,)))


class SteeringView(InsideView[StrengthsSwept]):
    """A direction added with one strength after another."""

    TOOL: ClassVar[str] = "steering"
    OF_BOTH: ClassVar[bool] = False
    ACTIONS: ClassVar[ActionTable] = STEERING_KEYS
    DIALOGS: ClassVar[tuple[ActionTable, ...]] = (DIRECTION_KEYS,)

    def __init__(self, host: MainScreen) -> None:
        client = host.controller.client
        super().__init__(host, Replies(client, StrengthsSwept))
        self.made = Replies(client, DirectionMade)
        self.tried = Replies(client, Intervened)
        self.source: Source | None = None
        self.chosen_layer: int | None = None
        """The chosen layer, or that of a direction from a file; None for the one in the middle."""
        self.strength = 2.0
        self.reach = 0
        """The part of the path that is steered: an index of `REACHES`."""
        self.followed: tuple[int, int] | None = None
        """Ranks from 0 of the two candidates whose logits are followed; None for those that the direction is named
        after, or else the first two."""
        self.layer_now = 0
        """The layer after which the direction is added. `look` sets this and the next three."""
        self.making: tuple[Hashable, MakeDirection] | None = None
        """The question that builds the direction, and its key; None if it is from a file, or there is none."""
        self.direction: Direction | None = None
        """The chosen direction, once it is built."""
        self.trial: tuple[Hashable, Intervene] | None = None
        """The question about the candidates with the present strength, and its key; None if there is no direction."""
        if isinstance(start := host.actions.get("steering"), SteeredStart):
            how = start.how
            self.source, self.chosen_layer, self.strength = how.direction, how.layer, how.strength

    def begin(self) -> None:
        """Begin with the direction that a lesson built, if there is no other."""
        if self.source is None and self.live and (read := self.made.newest()) is not None:
            self.source = Contrast(read.direction.name, read.toward, read.away, read.nodes)
            self.chosen_layer = read.direction.layer

    def point(self, *place: int) -> None:
        """Choose a layer, from 1 (0 for the present one), and a strength."""
        layer, *strength = place
        self.chosen_layer = layer - 1 if layer else self.chosen_layer
        self.strength = float(strength[0]) if strength else self.strength

    def use(self, source: Source) -> None:
        """Steer by another direction, after the layer that it comes with."""
        self.source = source
        if isinstance(source, Direction):
            self.chosen_layer = source.layer

    # ---- asking ---------------------------------------------------------------------------------

    def look(self) -> None:
        """See `InsideView`; find the direction and the questions about it; in a recording, the recorded ones."""
        depth = self.timeline.facts.layers if self.timeline.facts is not None else 1
        self.layer_now = min(depth - 1, depth // 2 if self.chosen_layer is None else self.chosen_layer)
        self.direction, self.making = self.source if isinstance(self.source, Direction) else None, None
        of = self.source if isinstance(self.source, Contrast) else None
        # if another prompt was given, its nodes have other tokens
        if of is not None and all(node in self.timeline.tree.nodes for node in of.nodes):
            asked = MakeDirection(self.layer_now, of.toward, of.away, of.nodes, of.name)
            self.making = (asked.layer, asked.toward, asked.away, asked.nodes), asked
            made = self.made.get(self.making[0])
            self.direction = made.direction if made is not None and made.facts.failed is None else None
        super().look()
        if self.direction is None and self.making is not None:
            self.failure = self.made.failure(self.making[0])
        direction, layer, (scope, begin) = self.direction, self.layer_now, self._span
        keys = [] if self.live else self.answers.about(self.node)
        if keys and (recorded := self.answers.get(keys[-1])) is not None:
            self.answer, direction, layer = recorded, recorded.direction, recorded.layer
            scope, begin = recorded.scope, recorded.begin
        self.found(self.answer, self.failure)
        self.trial = None
        if direction is not None:
            unit = Intervention("direction", layer, None, self.strength, direction)
            trial = Intervene(self.node, (unit,), scope, begin=begin)
            self.trial = tried_key(trial), trial

    @property
    def _span(self) -> tuple[Scope, int]:
        """The part of the path that is steered, and its first position."""
        prompt = [place for place, item in enumerate(self.path) if isinstance(item, PromptToken)]
        return "context" if self.reach else "token", prompt[-1] if prompt and self.reach == 1 else 0

    def question(self) -> tuple[Hashable, Command] | None:
        """See `InsideView`; all strengths of the direction."""
        if self.direction is None:
            return None
        scope, begin = self._span
        best = sorted(self.timeline.candidates, key=lambda each: each.rank)
        places = self.followed or named_places(self.direction.name, [each.text for each in best])
        token, other = (best[at].id if at < len(best) else None for at in places)
        asked = SweepStrengths(self.node, self.direction, self.layer_now, scope, begin, token, other)
        return (*swept_key(asked), token, other), asked

    def ask(self) -> None:
        """See `InsideView`: the direction, then the candidates with the present strength, then all strengths."""
        if self.trial is None:
            if self.making is not None:
                self.made.want(*self.making)
        elif self.effect is None and self.tried.failure(self.trial[0]) is None:
            self.answers.drop()  # the strength is being turned: the longer sweep waits
            self.tried.want(*self.trial)
        else:
            super().ask()

    @property
    def effect(self) -> Intervened | None:
        """The candidates with the present strength."""
        return self.tried.get(self.trial[0]) if self.trial is not None else None

    def drop(self) -> None:
        for answers in (self.made, self.tried, self.answers):
            answers.drop()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: StrengthsSwept | None) -> str:
        return "Steering against random directions"

    def situation(self) -> str:
        if self.made.waiting or self.tried.waiting:
            return under_way(self.made) or "Computing"
        return super().situation() if self.trial is not None else ""

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        if self.trial is None or self.failure is not None or self.failed is not None:
            return centred(self._instead(on), width, height)
        key, asked = self.trial
        tried, (unit,) = self.effect, asked.interventions
        waiting = "are being computed" if self.live else "with this strength were not recorded"
        why = instead_of(on, self.tried, key, f"The candidates {waiting}.")
        main = *curve(self.answer, unit.scale), GAP
        side = [*candidates(tried, unit.scale)] if tried is not None and not why else [noticed(why)]
        above = head(unit, steered_words(asked.scope, asked.begin), self.answer)
        blocks = *above, Beside(main, side, SIDE_BY_SIDE, (0, width))
        return Painter(on).draw(blocks, width, height)

    def _instead(self, on: Canvas) -> Notice:
        if self.failure is not None or not self.path or self.trial is not None:
            return super()._instead(on)
        if not self.live:
            return not_recorded(on)
        if self.making is not None:
            return [("The direction is being built.", on.rich_style)]
        what = "Steering adds a direction to what a layer computes, and compares the effect with random directions."
        make = "{steering.make} builds one from two sets of texts, two branches, or a file. An example is filled in."
        return [(what, on.rich_style), (with_keys(make), on.ink("muted"))]

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Add the direction after another layer."""
        self.chosen_layer = max(0, self.layer_now + by)

    def turn_strength(self, by: int) -> None:
        """Add the direction with the next strength, or with the one before."""
        others = [each for each in STRENGTHS if (each - self.strength) * by > 0]
        self.strength = min(others, key=lambda each: abs(each - self.strength), default=self.strength)

    def turn_reach(self) -> None:
        self.reach = (self.reach + 1) % len(REACHES)

    def follow(self, which: int) -> None:
        """Follow the next candidate's logit.

        Args:
            which: 0 for the first of the two, 1 for the one whose logit is subtracted.
        """
        best = sorted(self.timeline.candidates, key=lambda each: each.rank)
        if len(best) < 3 or self.direction is None:
            return
        places = self.followed or named_places(self.direction.name, [each.text for each in best])
        other = (places[which] + 1) % len(best)
        if other == places[1 - which]:
            other = (other + 1) % len(best)
        self.followed = (places[0], other) if which else (other, places[1])

    def make(self) -> None:
        """Ask what to build a direction from."""
        if not self.live:
            self.say(f"A recording computes nothing: {key_for('go_live')} continues live")
            return
        tree, own = self.timeline.tree, {item.node for item in (*self.path, *self.timeline.items)}
        ends = [node for node in tree.nodes.keys() - own if not tree.children.get(node)]
        ends = sorted(node for node in ends if tree.under(tree.nodes[node]) is None)[-MOST_ENDS:]
        texts = ("".join(token_text(item.text, item.raw) for item in tree.path(node)[-12:]) for node in ends)
        named = [(node, truncate_start(text, ENDING)) for node, text in zip(ends, texts, strict=True)]
        self.host.open(DirectionDialog(self.source, self.node, named), self._made)

    def _made(self, source: Source | None) -> None:
        if source is None:
            return
        self.drop()
        self.use(source)
        self.look()
        if self.making is not None:
            self.made.again(*self.making)
        self.changed()

    def hold(self) -> None:
        """Continue with the direction, in a branch that begins with this token."""
        if self.trial is not None:
            self.continue_under(
                HoldInterventions(self.node, self.trial[1].interventions), self.trial[1].scope
            )

    def save(self) -> None:
        """Ask for a file, and save the direction to it."""
        if self.trial is not None and (direction := self.trial[1].interventions[0].direction) is not None:
            self.host.open(
                SavingDialog(direction), lambda path: self.say(f"Saved to {path}") if path else None
            )


# ---- dialogs ------------------------------------------------------------------------------------

KINDS = ("texts", "a branch", "a file")
EXPLAINED = (
    "A text on each line. Direction: mean residual stream at their ends, upper minus lower ones.",
    "The residual stream at this token minus that at the end of the other branch.",
    "A direction that was saved here, or a safetensors file with one tensor `direction` of one axis.",
)
NO_BRANCH = "There is no other branch or prompt yet."


class DirectionDialog(Dialog[Source]):
    """Asks what to build a direction from.

    Args:
        before: What the last direction was built from; None for an example.
        node: The token that is looked at.
        ends: The ends of other branches, and their texts, printable.
    """

    ACTIONS: ClassVar[ActionTable] = DIRECTION_KEYS
    HEADING: ClassVar[str] = "Direction: push the model toward one thing, away from another"
    APPLY: ClassVar[str] = "Build"
    AUTO_FOCUS = "#direction-toward"

    def __init__(self, before: Source | None, node: int, ends: Sequence[tuple[int, str]]) -> None:
        super().__init__()
        self._before = before if isinstance(before, Contrast) and before.toward else EXAMPLE
        self._node, self._ends = node, ends

    def body(self) -> Iterable[Widget]:
        yield Label("built from", classes="field-label", markup=False)
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
        yield Remark(EXPLAINED[0], id="direction-remark")

    def on_descendant_focus(self) -> None:
        """Show the keys of the field that has the focus."""
        self.query_one(KeyLine).show()

    @property
    def _kind(self) -> int:
        return self.query_one("#direction-kind", Choice).chosen

    @on(Choice.Changed, "#direction-kind")
    @on(Input.Changed, "#direction-path")
    def _changed(self) -> None:
        for place, name in enumerate(("texts", "branches", "file")):
            self.query_one(f"#direction-{name}").display = place == self._kind
        if self._kind == 1 and not self._ends:
            self._remark(f"{NO_BRANCH} Take another token, or give a prompt.", wrong=True)
        else:
            self._remark(EXPLAINED[self._kind])

    def _remark(self, text: str, wrong: bool = False) -> None:
        self.query_one("#direction-remark", Remark).say(text, wrong)

    def apply(self) -> None:
        """Return the source, or say what is wrong with it."""
        try:
            self.dismiss(self._source())
        except EngineError as error:
            self._remark(visible(str(error)), wrong=True)

    def _source(self) -> Source:
        """The source in the fields.

        Raises:
            EngineError: A field is empty, or the file can't be read.
        """
        if self._kind == 0:
            fields = (self.query_one(f"#direction-{name}", SafeTextArea) for name in ("toward", "away"))
            toward, away = (tuple(filter(str.strip, field.text.splitlines())) for field in fields)
            if not toward or not away:
                raise EngineError("One of the two has no text.", "Write at least one line in both.")
            return Contrast(name_of(toward, away), toward, away)
        if self._kind == 2:
            if not (name := self.query_one("#direction-path", SafeInput).value.strip()):
                raise PathError("No file was named.", "Give a name.")
            return read_direction(typed(name))
        if not self._ends:
            raise EngineError(NO_BRANCH, "Take another token, or give a prompt.")
        node, text = self._ends[self.query_one("#direction-end", Choice).chosen]
        return Contrast(" ".join(("minus", *text.split()[-2:])), nodes=(self._node, node))


class SavingDialog(PathDialog[str]):
    """Saves a direction to a file and returns its path; an existing file is replaced on the second request."""

    ACTIONS: ClassVar[ActionTable] = dialog_table("While a direction is saved", *fields(), told=False)
    HEADING: ClassVar[str] = "Save the direction"
    APPLY: ClassVar[str] = "Save"
    FIELD: ClassVar[str] = "saving-path"

    def __init__(self, direction: Direction) -> None:
        stem = "".join(each if each.isalnum() or each in "-_" else "-" for each in direction.label)
        super().__init__(f"{stem or 'direction'}{END}", f"direction{END}", directory_hint())
        self._direction = direction

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield from super().body()

    def changed(self) -> None:
        """Keep an error about the path in sight until the next attempt to save."""

    def apply(self) -> None:
        """Save the direction, or say what is wrong with the path."""
        if (place := self.destination()) is None:
            return
        try:
            write_direction(place[0], self._direction, force=place[1])
        except PathError as error:
            self.say(str(error), wrong=True)
        else:
            self.dismiss(visible(str(place[0])))

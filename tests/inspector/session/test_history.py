"""Undo and redo: each change by itself, and walks of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.protocol import (
    Deleted,
    Ended,
    Intervention,
    InterventionsHeld,
    Marked,
    Moved,
    Prefill,
    PromptOpened,
    Record,
    Resampled,
    Step,
    Undeleted,
    Undone,
)
from engine.settings import LoadSettings, Settings
from inspector.keys import with_keys
from inspector.scales import counted
from inspector.session.controller import Controller
from inspector.session.history import NOTHING, NOTHING_AGAIN
from tests.inspector.fakes import Session
from tests.inspector.rig import FakeEngine, take_in

MADE = Settings(temp=0.8)


class Editing:
    """A controller on a fake engine that answers moves and settings at once, and all records that it heard."""

    def __init__(self) -> None:
        self.engine, self.made = FakeEngine(), Session()
        self.controller = Controller(self.engine, LoadSettings(), MADE, Prefill("", False))
        self.owns: dict[int, int] = {}
        """By the first nodes of branches under interventions, the same tokens as the model itself has them."""
        self.kept: list[Record | Settings] = []
        self.controller.client.listen(self.kept.append)
        self.push([*self.made.load(), *self.made.open(), *self.made.steps(4)])

    @property
    def timeline(self):
        return self.controller.timeline

    def push(self, records: Sequence[Record]) -> None:
        for record in records:
            take_in(self.controller.client, record)

    def end(self) -> None:
        """Do what is outstanding, as the engine would."""
        for command in tuple(self.controller.client.outstanding):
            self.end_one(command)

    def end_one(self, command: protocol.Command) -> None:
        """Do one command."""
        match command:
            case protocol.MoveTo(node):
                self.push([self.made.move(node)])
            case protocol.Reroll(count, node):
                self.push([*self.moved(node), self.drawn(count)])
            case protocol.HoldInterventions():
                self.push(self.held(command))
            case protocol.TakeStep():
                choice = self.made.tips[self.made.node]
                other = next(each.id for each in choice.candidates if each.id != choice.picked)
                self.push([self.made.step(other if choice.reroll else None, "sampled")])
            case protocol.Configure(settings, node):
                self.push([*self.moved(node), Resampled(self.made.tips[self.made.node])])
                self.kept.append(settings)
        self.push([Ended(command.kind)])

    def choose(self, slot: int) -> int:
        """Choose another candidate at a step; returns its node."""
        node = self.timeline.items[slot].parent
        tip = self.made.tips[node]
        other = next(each.id for each in tip.candidates if each.id != self.timeline.items[slot].id)
        self.push([*self.made.choose(node, other), Ended("Choose")])
        return self.timeline.tip

    def drawn(self, count: int | None) -> Resampled:
        """The distribution at the tip, drawn again so often."""
        before = self.made.tips[self.made.node]
        self.made.tips[self.made.node] = replace(before, reroll=before.reroll + 1 if count is None else count)
        return Resampled(self.made.tips[self.made.node])

    def draw_again(self) -> None:
        """Draw again where the person looks."""
        assert self.controller.navigation.reroll() == ""
        self.end()

    def held(self, command: protocol.HoldInterventions) -> list[Record]:
        """Go on under interventions from a token on, or as the model does."""
        node, interventions = command.node, command.interventions
        if not interventions:
            first = next(item.node for item in reversed(self.timeline.items) if item.node in self.owns)
            move = self.made.move(self.owns[first])
            return [move, InterventionsHeld(self.owns[first], self.owns[first], (), 1.0)]
        item = self.timeline.tree.nodes[node]
        parent = self.timeline.tree.parent[node]
        moves = [self.made.move(parent)] if self.made.node != parent else []
        step = self.made.step(item.id, "intervened")
        self.owns[step.node] = node
        return [*moves, step, InterventionsHeld(step.node, node, interventions, 1.0)]

    def moved(self, node: int | None) -> list[Record]:
        """The move to where a command is to be carried out."""
        return [] if node in (None, self.made.node) else [self.made.move(node)]

    def hold(self, node: int, *interventions: Intervention) -> None:
        """Have interventions held from a token on, or let go."""
        self.controller.client.do(protocol.HoldInterventions(node, interventions))
        self.end()

    def give(self, prompt: Sequence[str]) -> None:
        """Give another prompt in the same tree."""
        made = self.made
        made.node = 0
        tokens = tuple(made._prompt_token(place, piece) for place, piece in enumerate(prompt))
        opened = PromptOpened("".join(prompt), False, tokens, True, new_tree=False)
        self.push([opened, made.prefilled(opened), Ended("Prefill")])

    def undo(self) -> str:
        answer = self.controller.history.undo()
        self.end()
        return answer

    def redo(self) -> str:
        answer = self.controller.history.redo()
        self.end()
        return answer


@pytest.fixture
def editing() -> Editing:
    return Editing()


def test_marks_are_undone_one_after_another_and_done_again(editing):
    node = editing.timeline.tip
    changes = [
        Marked(node, bookmarked=True),
        Marked(node, "end", True),
        Marked(node, "end", True, "why", "see"),
    ]
    editing.push(changes)
    for before, what in zip(
        (*changes[-2::-1], Marked(node)), ("note and caption", "name", "bookmark"), strict=True
    ):
        assert editing.undo() == f"Undone: the {what} at “␣little”. U redoes it"
        assert editing.timeline.tree.marks.at(node) == before
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo() == "Redone: the bookmark at “␣little”. u undoes it"
    assert editing.redo().startswith("Redone: the name")
    assert editing.timeline.tree.marks.at(node) == changes[1]
    editing.push([Marked(node, "other")])
    assert editing.redo() == with_keys(NOTHING_AGAIN), "something else was changed"


def test_another_panel_for_a_caption_is_undone_by_its_name(editing):
    node = editing.timeline.tip
    editing.push([Marked(node, caption="see"), Marked(node, caption="see", tool="kv")])
    assert editing.undo() == "Undone: the panel of the caption at “␣little”. U redoes it"
    assert editing.timeline.tree.marks.at(node).tool == ""


def test_a_bookmark_that_was_taken_off_comes_back(editing):
    node = editing.timeline.tip
    editing.push([Marked(node, bookmarked=True), Marked(node)])
    assert editing.undo().startswith("Undone: taking the bookmark off at")
    assert editing.timeline.tree.marks.at(node).bookmarked


def test_settings_are_undone_and_the_others_stay(editing):
    editing.controller.setup.configure(Settings(temp=0.3, top_p=0.9))
    editing.end()
    editing.push([Marked(editing.timeline.tip, bookmarked=True)])
    editing.undo()
    assert editing.controller.setup.settings.temp == 0.3
    assert editing.undo() == "Undone: the change of settings: temperature is 0.8, top-p is 1 now. U redoes it"
    assert editing.controller.setup.settings == editing.controller.queries.in_force == MADE
    assert editing.undo() == with_keys(NOTHING)
    assert (
        editing.redo() == "Redone: the change of settings: temperature is 0.3, top-p is 0.9 now. u undoes it"
    )
    assert editing.controller.queries.in_force == Settings(temp=0.3, top_p=0.9)


def test_a_chosen_token_is_undone_by_going_back_to_the_path_before(editing):
    tip, boundary = editing.timeline.tip, editing.timeline.step_slots[0]
    chosen = editing.choose(boundary + 1)
    editing.push(editing.made.steps(2))
    end = editing.timeline.tip
    assert editing.undo().startswith("Undone: continuing with “")
    assert editing.timeline.tip == tip
    assert chosen in editing.timeline.tree.branches, "the branch stays"
    editing.redo()
    assert editing.timeline.tip == end
    editing.push([editing.made.move(tip)])
    assert editing.undo() == with_keys(NOTHING), "the path has left it already"


def test_several_tokens_of_one_command_are_undone_as_one_change_after_others(editing):
    tip = editing.timeline.tip
    editing.push([Marked(tip, bookmarked=True)])
    typed = [editing.made.step(None, "inserted") for _ in range(3)]
    editing.push([*typed, Ended("Take")])
    assert editing.undo() == "Undone: 3 tokens inserted; its branch stays. U redoes it"
    assert editing.timeline.tip == tip
    assert editing.redo() == "Redone: 3 tokens inserted; that branch stays. u undoes it"
    assert editing.timeline.tip == typed[-1].node
    assert editing.undo().startswith("Undone: 3 tokens inserted")
    assert editing.undo().startswith("Undone: the bookmark")
    assert editing.undo() == with_keys(NOTHING)


def test_another_tree_leaves_the_settings_to_undo_and_another_model_leaves_nothing(editing):
    editing.push([Marked(editing.timeline.tip, bookmarked=True)])
    editing.controller.setup.configure(Settings(temp=0.3))
    editing.end()
    editing.push(editing.made.open())
    assert editing.undo().startswith("Undone: the change of settings: temperature is 0.8 now.")
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo().startswith("Redone: the change of settings")
    editing.push([*editing.made.load(), *editing.made.open()])
    assert editing.undo() == with_keys(NOTHING)


def test_deletions_are_undone_in_their_place_among_other_changes(editing):
    tip, boundary = editing.timeline.tip, editing.timeline.step_slots[0]
    chosen = editing.choose(boundary + 1)
    editing.push([editing.made.move(tip), Ended("MoveTo"), Deleted(chosen), Marked(tip, bookmarked=True)])
    assert editing.undo().startswith("Undone: the bookmark")
    assert editing.undo() == "Undone: deleting 1 token. U redoes it"
    assert chosen in editing.timeline.tree.branches
    assert editing.redo() == "Redone: deleting 1 token. u undoes it"
    editing.undo()
    editing.push([editing.made.move(chosen)])
    assert editing.redo().startswith("Not deleted again: the path runs through it now.")


@pytest.mark.parametrize("undone", [0, 1, 2, 3, 4])
def test_a_session_that_is_gone_on_with_knows_what_to_undo(editing, undone: int):
    """The records as a trace holds them, settings among them, make the same log."""
    tip, boundary = editing.timeline.tip, editing.timeline.step_slots[0]
    chosen = editing.choose(boundary + 1)
    editing.push([editing.made.move(tip), Ended("MoveTo"), Marked(tip, bookmarked=True)])
    editing.controller.setup.configure(Settings(temp=0.3))
    editing.end()
    editing.push([Deleted(chosen), Marked(tip, "end", True)])
    for _ in range(undone):
        editing.undo()
    assert resumed(editing).history.undo() == editing.undo()
    assert resumed(editing).history.redo() == editing.redo()


def resumed(editing: Editing) -> Controller:
    """A session that hears what a trace holds, as a replay shows it."""
    controller = Controller(FakeEngine(), LoadSettings(), MADE, Prefill("", False))
    for value in editing.kept:
        if isinstance(value, Settings):
            controller.setup.use(value)
        else:
            controller.client.receive(value)
    return controller


def test_a_deletion_undone_by_a_program_before_this_one_is_not_undone_twice(editing):
    chosen, parent = editing.choose(editing.timeline.step_slots[1]), editing.timeline.items[-3].node
    editing.push([editing.made.move(parent), Ended("MoveTo"), Deleted(chosen), Undeleted(chosen)])
    assert not any(isinstance(record, Undone) for record in editing.kept)
    assert editing.undo() == with_keys(NOTHING)


def test_going_elsewhere_is_no_change(editing):
    editing.push([editing.made.move(editing.timeline.items[-3].node), Ended("MoveTo")])
    assert isinstance(editing.kept[-2], Moved)
    assert editing.undo() == with_keys(NOTHING)


def test_tokens_taken_back_come_again_one_by_one(editing):
    *_, before, last, tip = (item.node for item in editing.timeline.items)
    for _ in range(2):
        editing.controller.transport.back()
        editing.end()
    assert editing.timeline.tip == before
    assert editing.undo() == "Undone: taking back “␣a”. U redoes it"
    assert editing.timeline.tip == last
    assert resumed(editing).history.undo() == "Undone: taking back “␣little”. U redoes it"
    editing.undo()
    assert editing.timeline.tip == tip
    assert editing.undo() == with_keys(NOTHING)
    editing.redo()
    assert editing.timeline.tip == last
    editing.redo()
    assert editing.timeline.tip == before
    assert editing.redo() == with_keys(NOTHING_AGAIN)


def test_going_back_to_an_older_step_with_the_settings_in_force_is_undone(editing):
    tip = editing.timeline.tip
    editing.timeline.select(len(editing.timeline.items) - 2)
    editing.controller.setup.apply(editing.controller.queries.in_force)
    editing.end()
    editing.push(editing.made.steps(2))
    after = editing.timeline.tip
    assert resumed(editing).history.undo() == "Undone: taking back 2 tokens. U redoes it"
    assert editing.undo() == "Undone: taking back 2 tokens. U redoes it"
    assert editing.timeline.tip == tip
    assert editing.redo() == "Redone: taking back 2 tokens. u undoes it"
    assert editing.timeline.tip == after
    editing.undo()
    assert editing.timeline.tip == tip
    assert editing.undo() == with_keys(NOTHING)


@pytest.mark.parametrize("back", [1, 2])
def test_settings_from_an_older_step_on_are_one_change_with_the_move(editing, back: int):
    warm, tip = Settings(temp=1.3), editing.timeline.tip
    editing.controller.transport.back()
    editing.end()
    end = editing.timeline.tip
    editing.timeline.select(len(editing.timeline.items) - back)
    older = editing.timeline.before
    editing.controller.setup.apply(warm)
    editing.end()
    editing.push(editing.made.steps(1))
    after = editing.timeline.tip

    def state() -> tuple[int, Settings]:
        return editing.timeline.tip, editing.controller.queries.in_force

    assert (editing.made.tips[after], resumed(editing).history.undo()) == (
        editing.timeline.next, "Undone: the change of settings: temperature is 0.8 now. U redoes it"
    )  # fmt: skip
    assert editing.undo() == "Undone: the change of settings: temperature is 0.8 now. U redoes it"
    assert state() == (end, MADE)
    editing.undo()
    assert state() == (tip, MADE)
    assert editing.undo() == with_keys(NOTHING)
    editing.redo()
    assert state() == (end, MADE)
    assert editing.redo() == "Redone: the change of settings: temperature is 1.3 now. u undoes it"
    assert state() == (after, warm)
    assert older in {item.node for item in editing.timeline.items}
    assert editing.redo() == with_keys(NOTHING_AGAIN)


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_branch_that_was_left_to_be_deleted_is_on_show_again(editing, tokens: int):
    tip, first = editing.timeline.tip, editing.timeline.items[-tokens]
    client = editing.controller.client
    client.do(protocol.MoveTo(first.parent), lambda _: client.receive(Deleted(first.node)))
    editing.end()
    assert editing.timeline.tip == first.parent
    assert resumed(editing).history.undo() == f"Undone: deleting {counted(tokens, 'token')}. U redoes it"
    assert editing.undo() == f"Undone: deleting {counted(tokens, 'token')}. U redoes it"
    assert editing.timeline.tip == tip
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo() == f"Redone: deleting {counted(tokens, 'token')}. u undoes it"
    assert (editing.timeline.tip, tip in editing.timeline.tree.branches) == (first.parent, False)
    editing.undo()
    assert editing.timeline.tip == tip


def test_a_token_drawn_again_at_an_older_step_is_undone_as_one_change(editing):
    """It is a draw elsewhere, and a step: two commands, of which the first has ended when the step comes."""
    tip, old = editing.timeline.tip, editing.timeline.items[-2]
    editing.timeline.select(len(editing.timeline.items) - 2)
    editing.draw_again()
    drawn = editing.timeline.tip
    assert editing.timeline.items[-1].parent == old.parent
    assert drawn not in (tip, old.node)
    assert resumed(editing).history.undo().startswith("Undone: drawing again after")
    assert editing.undo().startswith("Undone: drawing again after")
    assert editing.timeline.tip == tip
    assert editing.made.tips[old.parent].reroll == 0, "it would be drawn again as it was"
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo().startswith("Redone: drawing again after")
    assert (editing.timeline.tip, editing.made.tips[old.parent].reroll) == (drawn, 1)


def test_draws_at_the_tip_are_undone_one_after_another(editing):
    tip = editing.timeline.tip
    editing.draw_again()
    editing.draw_again()
    assert editing.timeline.next.reroll == 2
    assert editing.undo() == "Undone: drawing again after “␣little”. U redoes it"
    assert editing.engine.sent[-1].count == editing.timeline.next.reroll == 1
    editing.undo()
    assert editing.timeline.next.reroll == 0
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo() == "Redone: drawing again after “␣little”. u undoes it"
    editing.push(editing.made.steps(2))
    assert editing.undo() == "Undone: drawing again after “␣little”; the branch after it stays. U redoes it"
    assert (editing.timeline.tip, editing.timeline.next.reroll) == (tip, 0)


def test_a_draw_of_a_branch_that_was_left_is_not_undone(editing):
    editing.draw_again()
    editing.push([editing.made.move(editing.timeline.items[-3].node), Ended("MoveTo")])
    assert editing.undo() == with_keys(NOTHING)


def test_a_hold_and_its_release_are_undone(editing):
    tip, node = editing.timeline.tip, editing.timeline.items[-2].node
    editing.hold(node, Intervention("head", 5, 0), Intervention("mlp", 2))
    editing.push([editing.made.step(origin="intervened") for _ in range(2)])
    under = editing.timeline.tip
    assert editing.timeline.under
    editing.hold(editing.timeline.tip)
    assert (editing.timeline.tip, editing.timeline.under) == (node, ())
    assert editing.undo() == "Undone: going back to the model's own; its branch stays. U redoes it"
    assert editing.timeline.tip == under
    assert editing.undo().startswith("Undone: continuing with L6 h1 and L3 MLP off; its branch stays.")
    assert (editing.timeline.tip, editing.timeline.under) == (tip, ())
    assert editing.undo() == with_keys(NOTHING)
    editing.redo()
    assert editing.timeline.tip == under
    editing.redo()
    assert editing.timeline.tip == node, "where it was when it was undone"


def test_a_hold_at_the_tip_is_undone(editing):
    tip, parent = editing.timeline.tip, editing.timeline.items[-2].node
    editing.hold(tip, Intervention("layer", 1))
    assert editing.undo().startswith("Undone: continuing with L2 off")
    assert editing.timeline.tip == tip != parent


def test_a_prompt_is_undone_by_going_back_to_the_path_before(editing):
    tip = editing.timeline.tip
    editing.give(["Once", " upon", " a", " hill"])
    end = editing.timeline.tip
    editing.push(editing.made.steps(1))
    assert editing.undo() == "Undone: giving the prompt “Once upon a hill”; its branch stays. U redoes it"
    assert editing.timeline.tip == tip
    editing.redo()
    assert editing.timeline.tree.parent[editing.timeline.tip] == end


def test_breakpoints_are_undone_and_kept_for_the_next_start():
    editing, kept = Editing(), []
    editing.controller.runs.keep = lambda points: kept.append(points) or ". Not remembered: full"
    first, second = Breakpoints(prob_below=0.05), Breakpoints(prob_below=0.05, tokens=3)
    editing.controller.runs.break_at(first)
    editing.controller.runs.break_at(second)
    editing.push([Marked(editing.timeline.tip, bookmarked=True)])
    editing.undo()
    assert (
        editing.undo()
        == "Undone: the change of breakpoints: runs stop at p < 5 % now. U redoes it. Not remembered: full"
    )
    assert editing.controller.runs.breakpoints.points == kept[-1] == first
    assert editing.undo().startswith("Undone: the change of breakpoints: none is set now.")
    assert editing.undo() == with_keys(NOTHING)
    assert editing.redo().startswith("Redone: the change of breakpoints: runs stop at p < 5 % now.")
    assert sum(isinstance(record, Undone) for record in editing.kept) == 1, "breakpoints are in no record"


# ---- random orders of all changes, on the state alone -----------------------------------------


Facts = tuple[object, ...]


@dataclass
class Entry:
    """A change, by all that it can change."""

    kind: str
    before: Facts
    after: Facts


class Changes(RuleBasedStateMachine):
    """A person who changes things, takes them back and makes them again."""

    def __init__(self) -> None:
        super().__init__()
        self.editing = Editing()
        self.done: list[Entry] = []
        self.undone: list[Entry] = []
        self.prompts = 0
        self.start = self.facts()

    @property
    def timeline(self):
        return self.editing.timeline

    def facts(self) -> Facts:
        """Marks, what is deleted, settings, breakpoints, draws, and where the path ends."""
        tree, controller = self.timeline.tree, self.editing.controller
        marks = {node: mark for node, mark in tree.marks.of.items() if mark != replace(mark, **PLAIN)}
        hidden = frozenset(node for node in tree.nodes if tree.marks.hides(node))
        draws = {node: next.reroll for node, next in self.editing.made.tips.items() if next.reroll}
        return (
            marks, hidden, controller.queries.in_force, controller.runs.breakpoints.points, draws, self.timeline.tip,
        )  # fmt: skip

    def change(self, kind: str, make: Callable[[], object]) -> None:
        """Make a change, and note it where it is one."""
        before = self.facts()
        make()
        self.editing.end()
        if (after := self.facts()) != before:
            self.done.append(Entry(kind, before, after))
            self.undone.clear()

    # ---- changes --------------------------------------------------------------------------------

    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        shown = [item.node for item in self.timeline.items]
        texts = st.sampled_from(("", "why", "see"))
        mark = replace(
            self.timeline.tree.marks.at(data.draw(st.sampled_from(shown))),
            name=data.draw(texts), bookmarked=data.draw(st.booleans()), note=data.draw(texts), caption=data.draw(texts),
        )  # fmt: skip
        self.change("marks", lambda: self.editing.push([mark]))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Not what a release would go to: going to a deleted token shows it again, and leaves nothing to undo."""
        tree, path = self.timeline.tree, {item.node for item in self.timeline.items}
        owns = [own for own in self.editing.owns.values() if own in tree.branches]
        others = [
            node
            for node in tree.nodes
            if node in tree.branches
            and node not in path
            and not any(tree.branches.leads(node, own) for own in owns)
        ]
        if others:
            node = data.draw(st.sampled_from(others))
            self.change("deleted", lambda: self.editing.push([Deleted(node)]))

    @rule(temp=st.sampled_from((0.3, 0.8, 1.2)), top_p=st.sampled_from((0.9, 1.0)))
    def configure(self, temp: float, top_p: float) -> None:
        wanted = Settings(temp=temp, top_p=top_p)
        self.change("settings", lambda: self.editing.controller.setup.configure(wanted))

    @rule(
        points=st.sampled_from((Breakpoints(), Breakpoints(tokens=3), Breakpoints(prob_below=0.1, eos=True)))
    )
    def break_at(self, points: Breakpoints) -> None:
        self.change("breakpoints", lambda: self.editing.controller.runs.break_at(points))

    @rule(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        if steps := self.timeline.step_slots:
            slot = data.draw(st.sampled_from(steps))
            if not self.under(slot):
                self.change("path", lambda: self.editing.choose(slot))

    @rule()
    def draw_again(self) -> None:
        self.timeline.select(None)
        self.change("draw", self.editing.draw_again)

    @rule(data=st.data())
    def draw_an_older_one_again(self, data: st.DataObject) -> None:
        if steps := self.timeline.step_slots:
            slot = data.draw(st.sampled_from(steps))
            if not self.under(slot):
                self.timeline.select(slot)
                self.change("path", self.editing.draw_again)

    @rule(data=st.data(), layer=st.integers(0, 2))
    def hold(self, data: st.DataObject, layer: int) -> None:
        slots = [slot for slot in self.timeline.step_slots if not self.under(slot)]
        if slots:
            node = self.timeline.items[data.draw(st.sampled_from(slots))].node
            self.change("path", lambda: self.editing.hold(node, Intervention("layer", layer)))

    @precondition(lambda self: self.timeline.under)
    @rule()
    def release(self) -> None:
        self.change("path", lambda: self.editing.hold(self.timeline.tip))

    @rule()
    def give(self) -> None:
        self.prompts += 1
        self.change("path", lambda: self.editing.give(["Once", " upon", f" a hill {self.prompts}"]))

    @precondition(lambda self: self.timeline.steps and not self.timeline.under)
    @rule()
    def take_back(self) -> None:
        self.change("path", self.editing.controller.transport.back)

    @rule(temp=st.sampled_from((0.3, 0.8, 1.2)), data=st.data())
    def configure_an_older_one(self, temp: float, data: st.DataObject) -> None:
        if steps := self.timeline.step_slots:
            self.timeline.select(data.draw(st.sampled_from(steps)))
            if self.timeline.before != self.timeline.tip:
                self.change("path", lambda: self.editing.controller.setup.apply(Settings(temp=temp)))

    @rule()
    def step(self) -> None:
        """No change: what was undone can still be done again."""
        self.timeline.select(None)
        origin = "intervened" if self.timeline.under else None
        self.editing.push([self.editing.made.step(origin=origin)])

    def under(self, slot: int) -> bool:
        item = self.timeline.items[slot]
        return isinstance(item, Step) and item.origin == "intervened"

    # ---- and back -------------------------------------------------------------------------------

    @rule()
    def undo(self) -> None:
        if not self.done:
            assert self.editing.undo() == with_keys(NOTHING)
            return
        entry = self.done.pop()
        assert self.editing.undo().startswith("Undone: ")
        self.undone.append(entry)
        assert self.of(entry, self.facts()) == self.of(entry, entry.before)

    @rule()
    def redo(self) -> None:
        if not self.undone:
            assert self.editing.redo() == with_keys(NOTHING_AGAIN)
            return
        entry = self.undone.pop()
        assert self.editing.redo().startswith("Redone: ")
        self.done.append(entry)
        now = self.facts()
        assert self.of(entry, now)[:-1] == self.of(entry, entry.after)[:-1]
        if entry.kind == "path":  # it may have continued since
            assert entry.after[-1] in {item.node for item in self.timeline.items}

    def of(self, entry: Entry, facts: Facts) -> Facts:
        """What a change can change, and what it can't; a step since then moved the end of the path alone."""
        return facts if entry.kind in ("path", "draw") else (*facts[:-1], None)

    @invariant()
    def nothing_is_outstanding(self) -> None:
        assert not self.editing.controller.client.outstanding

    def teardown(self) -> None:
        """After undoing all, everything is as it was at the start."""
        moved = [entry.before[-1] for entry in self.done if entry.kind in ("path", "draw")]
        end = moved[0] if moved else self.timeline.tip
        while self.done:
            self.undo()
        assert self.editing.undo() == with_keys(NOTHING)
        assert self.facts() == (*self.start[:-1], end)


PLAIN = {"name": "", "bookmarked": False, "note": "", "caption": ""}


def test_after_undoing_all_everything_is_as_it_was() -> None:
    run_state_machine_as_test(
        Changes,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

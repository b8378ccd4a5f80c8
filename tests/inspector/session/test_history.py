"""Undo and redo: what is taken back, what is said, and that a resumed session knows it from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine import commands
from engine.records import Deleted, Ended, Marked, Moved, Record, Undeleted, Undone
from engine.settings import LoadSettings, Settings
from inspector.session.controller import Controller
from inspector.session.history import NOTHING, NOTHING_AGAIN
from inspector.session.prefill import Prompt
from tests.inspector.fakes import Session
from tests.inspector.rig import FakeEngine

MADE = Settings(temp=0.8)


class Desk:
    """A controller on a fake engine that answers moves and settings at once, and all records that it heard."""

    def __init__(self) -> None:
        self.engine, self.made = FakeEngine(), Session()
        self.controller = Controller(self.engine, LoadSettings(), MADE, Prompt("", False))
        self.kept: list[Record | Settings] = []
        self.controller.client.listeners.append(self.kept.append)
        self.push([*self.made.load(), *self.made.open(), *self.made.steps(4)])

    @property
    def timeline(self):
        return self.controller.timeline

    def push(self, records: Sequence[Record]) -> None:
        for record in records:
            self.controller.client.receive(record)

    def end(self) -> None:
        """Do what is outstanding, as the engine would."""
        for command in tuple(self.controller.client.outstanding):
            if isinstance(command, commands.MoveTo):
                self.push([self.made.move(command.node)])
            if isinstance(command, commands.Configure):
                self.kept.append(command.settings)
            self.push([Ended(command.kind, id=command.id)])

    def choose(self, slot: int) -> int:
        """Choose another candidate at a step; returns its node."""
        node = self.timeline.items[slot].parent
        tip = self.made.tips[node]
        other = next(each.id for each in tip.candidates if each.id != self.timeline.items[slot].id)
        self.push([*self.made.choose(node, other), Ended("Choose")])
        return self.timeline.tip

    def undo(self) -> str:
        answer = self.controller.history.undo()
        self.end()
        return answer

    def redo(self) -> str:
        answer = self.controller.history.redo()
        self.end()
        return answer


def test_marks_are_undone_one_after_another_and_done_again():
    desk = Desk()
    node = desk.timeline.tip
    changes = [
        Marked(node, bookmarked=True),
        Marked(node, "end", True),
        Marked(node, "end", True, "why", "see"),
    ]
    desk.push(changes)
    for before, what in zip(
        (*changes[-2::-1], Marked(node)), ("note and caption", "name", "bookmark"), strict=True
    ):
        assert desk.undo() == f"Undone: the {what} at “␣little”. U does it again"
        assert desk.timeline.tree.marks.at(node) == before
    assert desk.undo() == NOTHING
    assert desk.redo() == "Done again: the bookmark at “␣little”. u undoes it"
    assert desk.redo().startswith("Done again: the name")
    assert desk.timeline.tree.marks.at(node) == changes[1]
    desk.push([Marked(node, "other")])
    assert desk.redo() == NOTHING_AGAIN, "something else was changed"


def test_another_panel_for_a_caption_is_undone_by_its_name():
    desk = Desk()
    node = desk.timeline.tip
    desk.push([Marked(node, caption="see"), Marked(node, caption="see", tool="kv")])
    assert desk.undo() == "Undone: the panel of the caption at “␣little”. U does it again"
    assert desk.timeline.tree.marks.at(node).tool == ""


def test_a_bookmark_that_was_taken_off_comes_back():
    desk = Desk()
    node = desk.timeline.tip
    desk.push([Marked(node, bookmarked=True), Marked(node)])
    assert desk.undo().startswith("Undone: taking the bookmark off at")
    assert desk.timeline.tree.marks.at(node).bookmarked


def test_settings_are_undone_and_the_others_stay():
    desk = Desk()
    desk.controller.setup.configure(Settings(temp=0.3, top_p=0.9))
    desk.end()
    desk.push([Marked(desk.timeline.tip, bookmarked=True)])
    desk.undo()
    assert desk.controller.setup.settings.temp == 0.3
    assert (
        desk.undo() == "Undone: the change of settings: temperature is 0.8, top-p is 1 now. U does it again"
    )
    assert desk.controller.setup.settings == desk.controller.queries.in_force == MADE
    assert desk.undo() == NOTHING
    assert (
        desk.redo() == "Done again: the change of settings: temperature is 0.3, top-p is 0.9 now. u undoes it"
    )
    assert desk.controller.queries.in_force == Settings(temp=0.3, top_p=0.9)


def test_a_chosen_token_is_undone_by_going_back_to_the_path_before():
    desk = Desk()
    tip, boundary = desk.timeline.tip, desk.timeline.step_slots[0]
    chosen = desk.choose(boundary + 1)
    desk.push(desk.made.steps(2))
    end = desk.timeline.tip
    assert desk.undo().startswith("Undone: going on with “")
    assert desk.timeline.tip == tip
    assert chosen in desk.timeline.tree.branches, "the branch stays"
    desk.redo()
    assert desk.timeline.tip == end
    desk.push([desk.made.move(tip)])
    assert desk.undo() == NOTHING, "the path has left it already"


def test_deletions_are_undone_in_their_place_among_other_changes():
    desk = Desk()
    tip, boundary = desk.timeline.tip, desk.timeline.step_slots[0]
    chosen = desk.choose(boundary + 1)
    desk.push([desk.made.move(tip), Ended("MoveTo"), Deleted(chosen), Marked(tip, bookmarked=True)])
    assert desk.undo().startswith("Undone: the bookmark")
    assert desk.undo() == "Undone: deleting 1 token. U does it again"
    assert chosen in desk.timeline.tree.branches
    assert desk.redo() == "Done again: deleting 1 token. u undoes it"
    desk.undo()
    desk.push([desk.made.move(chosen)])
    assert desk.redo().startswith("Not deleted again: the path runs through it now.")


@pytest.mark.parametrize("undone", [0, 1, 2, 3, 4])
def test_a_session_that_is_gone_on_with_knows_what_to_undo(undone: int):
    """The records as a trace holds them, settings among them, make the same log."""
    desk = Desk()
    tip, boundary = desk.timeline.tip, desk.timeline.step_slots[0]
    chosen = desk.choose(boundary + 1)
    desk.push([desk.made.move(tip), Ended("MoveTo"), Marked(tip, bookmarked=True)])
    desk.controller.setup.configure(Settings(temp=0.3))
    desk.end()
    desk.push([Deleted(chosen), Marked(tip, "end", True)])
    for _ in range(undone):
        desk.undo()
    assert resumed(desk).history.undo() == desk.undo()
    assert resumed(desk).history.redo() == desk.redo()


def resumed(desk: Desk) -> Controller:
    """A session that hears what a trace holds, as a replay shows it."""
    controller = Controller(FakeEngine(), LoadSettings(), MADE, Prompt("", False))
    for value in desk.kept:
        if isinstance(value, Settings):
            controller.setup.use(value)
        elif not isinstance(value, Ended):
            controller.client.receive(value)
    return controller


def test_a_deletion_undone_by_a_program_before_this_one_is_not_undone_twice():
    desk = Desk()
    last = desk.timeline.items[-1]
    desk.push([desk.made.move(last.parent), Ended("MoveTo"), Deleted(last.node), Undeleted(last.node)])
    assert not any(isinstance(record, Undone) for record in desk.kept)
    assert desk.undo() == NOTHING


def test_what_waits_for_a_move_is_another_change_than_the_move():
    desk = Desk()
    desk.push([desk.made.move(desk.timeline.items[-2].node), Ended("MoveTo")])
    assert isinstance(desk.kept[-2], Moved)
    assert desk.undo() == NOTHING, "going elsewhere changes nothing"


def test_a_token_drawn_again_at_an_older_step_is_undone_as_one_change():
    """It is a move, a draw and a step: three commands, of which the first has ended when the step comes."""
    desk = Desk()
    tip, old = desk.timeline.tip, desk.timeline.items[-2]
    desk.timeline.select(len(desk.timeline.items) - 2)
    assert desk.controller.navigation.reroll() == ""
    move, draw, step = tuple(desk.controller.client.outstanding)
    desk.push([desk.made.move(old.parent), Ended("MoveTo", id=move.id), Ended("Reroll", id=draw.id)])
    other = next(each.id for each in desk.made.tips[old.parent].candidates if each.id != old.id)
    drawn = desk.made.step(other)
    desk.push([replace(drawn, choice=replace(drawn.choice, reroll=1)), Ended("TakeStep", id=step.id)])
    assert desk.undo().startswith("Undone: going on with")
    assert desk.timeline.tip == tip

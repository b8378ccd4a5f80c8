"""Undo and redo over random orders of every change that can be undone, on the state alone: no screen, no model.

Beside the history stands the plainest thing that could be: a stack of how it was before each change and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.breakpoints import Breakpoints
from engine.protocol import Deleted, Intervention, Step
from engine.settings import Settings
from inspector.keys import with_keys
from inspector.session.history import NOTHING, NOTHING_AGAIN
from tests.inspector.session.test_history import Desk

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
        self.desk = Desk()
        self.done: list[Entry] = []
        self.undone: list[Entry] = []
        self.prompts = 0
        self.start = self.facts()

    @property
    def timeline(self):
        return self.desk.timeline

    def facts(self) -> Facts:
        """Marks, what is deleted, settings, breakpoints, draws, and where the path ends."""
        tree, controller = self.timeline.tree, self.desk.controller
        marks = {node: mark for node, mark in tree.marks.of.items() if mark != replace(mark, **PLAIN)}
        hidden = frozenset(node for node in tree.nodes if tree.marks.hides(node))
        draws = {node: next.reroll for node, next in self.desk.made.tips.items() if next.reroll}
        return (
            marks, hidden, controller.queries.in_force, controller.runs.breakpoints.points, draws, self.timeline.tip,
        )  # fmt: skip

    def change(self, kind: str, make: Callable[[], object]) -> None:
        """Make a change, and note it where it is one."""
        before = self.facts()
        make()
        self.desk.end()
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
        self.change("marks", lambda: self.desk.push([mark]))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Not what a release would go to: going to a deleted token shows it again, and leaves nothing to undo."""
        tree, path = self.timeline.tree, {item.node for item in self.timeline.items}
        owns = [own for own in self.desk.owns.values() if own in tree.branches]
        others = [
            node
            for node in tree.nodes
            if node in tree.branches
            and node not in path
            and not any(tree.branches.leads(node, own) for own in owns)
        ]
        if others:
            node = data.draw(st.sampled_from(others))
            self.change("deleted", lambda: self.desk.push([Deleted(node)]))

    @rule(temp=st.sampled_from((0.3, 0.8, 1.2)), top_p=st.sampled_from((0.9, 1.0)))
    def configure(self, temp: float, top_p: float) -> None:
        wanted = Settings(temp=temp, top_p=top_p)
        self.change("settings", lambda: self.desk.controller.setup.configure(wanted))

    @rule(
        points=st.sampled_from((Breakpoints(), Breakpoints(tokens=3), Breakpoints(prob_below=0.1, eos=True)))
    )
    def break_at(self, points: Breakpoints) -> None:
        self.change("breakpoints", lambda: self.desk.controller.runs.break_at(points))

    @rule(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        if steps := self.timeline.step_slots:
            slot = data.draw(st.sampled_from(steps))
            if not self.under(slot):
                self.change("path", lambda: self.desk.choose(slot))

    @rule()
    def draw_again(self) -> None:
        self.timeline.select(None)
        self.change("draw", self.desk.draw_again)

    @rule(data=st.data())
    def draw_an_older_one_again(self, data: st.DataObject) -> None:
        if steps := self.timeline.step_slots:
            slot = data.draw(st.sampled_from(steps))
            if not self.under(slot):
                self.timeline.select(slot)
                self.change("path", self.desk.draw_again)

    @rule(data=st.data(), layer=st.integers(0, 2))
    def hold(self, data: st.DataObject, layer: int) -> None:
        slots = [slot for slot in self.timeline.step_slots if not self.under(slot)]
        if slots:
            node = self.timeline.items[data.draw(st.sampled_from(slots))].node
            self.change("path", lambda: self.desk.hold(node, Intervention("layer", layer)))

    @precondition(lambda self: self.timeline.under)
    @rule()
    def release(self) -> None:
        self.change("path", lambda: self.desk.hold(self.timeline.tip))

    @rule()
    def give(self) -> None:
        self.prompts += 1
        self.change("path", lambda: self.desk.give(["Once", " upon", f" a hill {self.prompts}"]))

    @rule()
    def step(self) -> None:
        """No change: what was undone can still be done again."""
        self.timeline.select(None)
        origin = "intervened" if self.timeline.under else None
        self.desk.push([self.desk.made.step(origin=origin)])

    def under(self, slot: int) -> bool:
        item = self.timeline.items[slot]
        return isinstance(item, Step) and item.origin == "intervened"

    # ---- and back -------------------------------------------------------------------------------

    @rule()
    def undo(self) -> None:
        if not self.done:
            assert self.desk.undo() == with_keys(NOTHING)
            return
        entry = self.done.pop()
        assert self.desk.undo().startswith("Undone: ")
        self.undone.append(entry)
        assert self.of(entry, self.facts()) == self.of(entry, entry.before)

    @rule()
    def redo(self) -> None:
        if not self.undone:
            assert self.desk.redo() == with_keys(NOTHING_AGAIN)
            return
        entry = self.undone.pop()
        assert self.desk.redo().startswith("Done again: ")
        self.done.append(entry)
        now = self.facts()
        assert self.of(entry, now)[:-1] == self.of(entry, entry.after)[:-1]
        if entry.kind == "path":  # it may have gone on since
            assert entry.after[-1] in {item.node for item in self.timeline.items}

    def of(self, entry: Entry, facts: Facts) -> Facts:
        """What a change can change, and what it can't; a step since then moved the end of the path alone."""
        return facts if entry.kind in ("path", "draw") else (*facts[:-1], None)

    @invariant()
    def nothing_is_outstanding(self) -> None:
        assert not self.desk.controller.client.outstanding

    def teardown(self) -> None:
        """After undoing all, everything is as it was at the start."""
        moved = [entry.before[-1] for entry in self.done if entry.kind in ("path", "draw")]
        end = moved[0] if moved else self.timeline.tip
        while self.done:
            self.undo()
        assert self.desk.undo() == with_keys(NOTHING)
        assert self.facts() == (*self.start[:-1], end)


PLAIN = {"name": "", "bookmarked": False, "note": "", "caption": ""}


def test_after_undoing_all_everything_is_as_it_was() -> None:
    run_state_machine_as_test(
        Changes,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

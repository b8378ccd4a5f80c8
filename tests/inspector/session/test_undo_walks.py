"""What a person sees of a session's tree, against a plain list of paths: walks of keys over a real engine.

Steps, choices, branches, prompts, draws, settings, marks and deletions, taken back and made again in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.session.controller import Controller
from tests.zoo import Zoo

# ---- a person at a session: all names of the program are in this part --------------------------

PATIENCE = 60.0
SAMPLING = (
    Settings(temp=1.0, seed=5, candidates=6, max_tokens=3),
    Settings(temp=0.0, candidates=6, max_tokens=2),
    Settings(temp=0.7, top_p=0.9, seed=8, candidates=4, max_tokens=4),
)
POINTS = (Breakpoints(), Breakpoints(tokens=2), Breakpoints(prob_below=0.5))
WORDS = (" the", " cat", " dog", " ran")


class Person:
    """A person at a session: what their keys do, and what they see, without a screen.

    Args:
        thread: Started, with the model loaded.
        load: How it was loaded.
    """

    def __init__(self, thread: EngineThread, load: LoadSettings) -> None:
        self._came: SimpleQueue[protocol.Record] = SimpleQueue()
        self._backend = thread.side_session(self._came.put)
        self._controller = Controller(self._backend, load, SAMPLING[0], protocol.Prefill("", False))
        self._controller.setup.open(load)
        self.settle()

    def close(self) -> None:
        self._backend.close()

    def settle(self) -> None:
        """Wait until all that was asked for is done."""
        client = self._controller.client
        while client.requests:
            received = self._came.get(timeout=PATIENCE)
            client.receive(received.record, received.id)
        while True:
            try:
                received = self._came.get_nowait()
                client.receive(received.record, received.id)
            except Empty:
                return

    # keys

    def look(self, slot: int | None) -> None:
        self._controller.timeline.select(slot)

    def do(self, name: str, *values: Any) -> str:
        """Do what a key does; returns what is said of it."""
        it = self._controller
        keys: dict[str, Callable[..., Any]] = {
            "step": it.transport.step,
            "run": it.transport.run,
            "back": it.transport.back,
            "choose": it.navigation.choose,
            "branch": it.navigation.branch,
            "draw again": it.navigation.reroll,
            "type": lambda node, text: it.client.do(protocol.Insert(node, text)),
            "give": lambda text: it.setup.give(protocol.Prefill(text, False)),
            "sample": it.setup.configure,
            "apply": it.setup.apply,
            "break at": it.runs.break_at,
            "mark": lambda *mark: it.client.receive(protocol.Marked(*mark)),
            "delete": lambda node: it.client.receive(protocol.Deleted(node)),
            "undo": it.history.undo,
            "redo": it.history.redo,
        }
        answer = keys[name](*values)
        self.settle()
        return answer if isinstance(answer, str) else ""

    # what is shown

    @property
    def path(self) -> list[tuple[int, int]]:
        """The tokens of the path, by number and id."""
        return [(item.node, item.id) for item in self._controller.timeline.items]

    def beside(self, slot: int) -> list[int]:
        """The numbers of the tokens that stand in a slot of the path, oldest first."""
        return list(self._controller.timeline.siblings(slot))

    @property
    def ends(self) -> list[int]:
        """The ends of all branches."""
        return self._controller.timeline.tree.leaves()

    def goes_on(self, node: int) -> int | None:
        """The token after one that was visited last."""
        return self._controller.timeline.tree.latest(node)

    @property
    def next(self) -> tuple[int, int, tuple[int, ...]]:
        """Of the token to come what is picked, how often that was drawn again, and the candidates."""
        found = self._controller.timeline.next
        assert found is not None
        return found.picked, found.reroll, tuple(each.id for each in found.candidates)

    @property
    def sampling(self) -> Settings:
        return self._controller.queries.in_force

    @property
    def points(self) -> Breakpoints:
        return self._controller.runs.breakpoints.points

    def marked(self, node: int) -> tuple[str, bool]:
        mark = self._controller.timeline.tree.marks.at(node)
        return mark.name, mark.bookmarked

    @property
    def hidden(self) -> int:
        return len(self._controller.timeline.tree.marks.deleted)


# ---- the plain model ---------------------------------------------------------------------------


@dataclass(eq=False)
class Token:
    """A token of the tree, as a person knows it."""

    id: int
    parent: Token | None
    number: int = 0
    given: bool = True
    """Of a prompt."""
    children: list[Token] = field(default_factory=list)
    """Oldest first, deleted ones too."""
    visited: Token | None = None
    """That of them that was visited last."""
    deleted: Token | None = None
    """The token with which it was deleted."""
    mark: tuple[str, bool] = ("", False)
    draws: int = 0

    @property
    def path(self) -> list[Token]:
        found, at = [], self
        while at.parent is not None:
            found.append(at)
            at = at.parent
        return found[::-1]

    @property
    def shown(self) -> list[Token]:
        """Its children that aren't deleted."""
        return [child for child in self.children if child.deleted is None]

    @property
    def latest(self) -> Token | None:
        """That of them that was visited last; where that is deleted the newest."""
        if self.visited is not None and self.visited.deleted is None:
            return self.visited
        return self.shown[-1] if self.shown else None

    @property
    def leaf(self) -> Token:
        at = self
        while (after := at.latest) is not None:
            at = after
        return at

    @property
    def below(self) -> list[Token]:
        return [self, *(token for child in self.children for token in child.below)]

    @property
    def ends(self) -> list[Token]:
        return [end for child in self.shown for end in (child.ends or [child])]


@dataclass
class Change:
    """Something that a person did and may take back."""

    holds: Callable[[], bool]
    """Whether there is still something to take back."""
    undo: Callable[[], object]
    redo: Callable[[], object]
    refused: Callable[[], bool] = lambda: False
    """Whether it can't be made again now."""


def walk(person_of: Callable[[], Person]) -> type[RuleBasedStateMachine]:
    """All that a person can do to a session's tree."""
    words = st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=4)

    class Walk(RuleBasedStateMachine):
        @initialize(words=words)
        def begin(self, words: list[int]) -> None:
            self.person = person_of()
            self.root = self.at = Token(-1, None)
            self.sampling, self.points = SAMPLING[0], POINTS[0]
            self.done: list[Change] = []
            self.undone: list[Change] = []
            self.seen: dict[Any, Any] = {}
            self.read(words)

        def teardown(self) -> None:
            if hasattr(self, "person"):
                self.person.close()

        # the model

        def go(self, token: Token) -> None:
            """Show the path to a token, and what of it was deleted."""
            self.at = token
            for each in token.path:
                each.deleted = None
                assert each.parent is not None
                each.parent.visited = each

        def child(self, parent: Token, id: int, given: bool) -> Token:
            found = next((each for each in parent.children if each.id == id), None)
            if found is None:
                found = Token(id, parent)
                parent.children.append(found)
            found.given = given
            return found

        def grow(self, ids: list[int], given: bool = False) -> Token:
            """Add tokens after where the path ends; returns the first."""
            tokens = []
            for id in ids:
                tokens.append(self.child(tokens[-1] if tokens else self.at, id, given))
            self.go(tokens[-1])
            return tokens[0]

        def number(self) -> None:
            """Learn the numbers of new tokens: each has one, and keeps it."""
            path = self.at.path
            assert [id for _, id in self.person.path] == [token.id for token in path]
            for token, (number, _) in zip(path, self.person.path, strict=True):
                assert token.number in (0, number)
                token.number = number

        def change(self, change: Change) -> None:
            self.done.append(change)
            self.undone.clear()

        def change_path(self, before: Token, first: Token) -> None:
            """The person chose another path."""
            self.change(
                Change(
                    lambda: self.at is not before and first in self.at.path,
                    *self.there_and_back(before),
                )
            )

        def there_and_back(self, before: Token) -> tuple[Callable[[], object], Callable[[], object]]:
            """How to go to where the path ended before, and to where it ended then."""
            ends: list[Token] = []

            def back() -> None:
                ends.append(self.at)
                self.go(before)

            return back, lambda: self.go(ends[-1])

        # what a person does

        def read(self, words: list[int]) -> None:
            before = self.at
            self.person.do("give", "".join(WORDS[word] for word in words))
            self.at = self.root
            self.grow([id for _, id in self.person.path], given=True)
            assert len(self.at.path) == len(words)
            if before is not self.root:
                self.change_path(before, self.at)

        @rule(words=words)
        def give(self, words: list[int]) -> None:
            self.read(words)

        @rule()
        def step(self) -> None:
            self.person.look(None)
            picked = self.person.next[0]
            self.person.do("step")
            self.grow([picked])

        @rule()
        def run(self) -> None:
            self.person.look(None)
            length = len(self.person.path)
            self.person.do("run")
            taken = [id for _, id in self.person.path[length:]]
            assert taken
            self.grow(taken)

        @rule()
        def back(self) -> None:
            self.person.do("back")
            if not (before := self.at).given:
                assert before.parent is not None
                self.go(before.parent)
                self.change_path(before, self.at)

        @rule(place=st.integers(0, 3))
        def choose_at_the_tip(self, place: int) -> None:
            self.person.look(None)
            id, before = self.person.next[2][place], self.at
            self.person.do("choose", id)
            first = self.grow([id])
            self.change_path(before, first)

        @rule(data=st.data())
        def choose_at_an_older_step(self, data: st.DataObject) -> None:
            steps = [slot for slot, token in enumerate(self.at.path) if not token.given]
            if not steps:
                return
            slot, id, before = data.draw(st.sampled_from(steps)), data.draw(st.integers(3, 4000)), self.at
            self.person.look(slot)
            self.person.do("choose", id)
            old = before.path[slot]
            if old.id == id:
                return
            assert old.parent is not None
            self.go(old.parent)
            first = self.grow([id])
            self.change_path(before, first)

        @rule(words=words)
        def type(self, words: list[int]) -> None:
            before, length = self.at, len(self.person.path)
            self.person.do("type", self.at.number, "".join(WORDS[word] for word in words))
            ids = [id for _, id in self.person.path[length:]]
            assert len(ids) == len(words)
            self.change_path(before, self.grow(ids))

        @rule(by=st.sampled_from((1, -1)))
        def branch(self, by: int) -> None:
            self.person.look(None)
            self.person.do("branch", by)
            if self.at.latest is not None:
                self.go(self.at.leaf)
                return
            for token in reversed(self.at.path):
                assert token.parent is not None
                beside = token.parent.shown
                if len(beside) > 1:
                    self.go(beside[(beside.index(token) + by) % len(beside)].leaf)
                    return

        @rule()
        def draw_again(self) -> None:
            self.person.look(None)
            self.person.do("draw again")
            if self.sampling.temp == 0:
                return
            token = self.at
            before, after = token.draws, token.draws + 1
            token.draws = after

            def draw(count: int) -> None:
                token.draws = count
                self.go(token)

            self.change(
                Change(
                    lambda: token.draws == after and token in self.at.path,
                    lambda: draw(before),
                    lambda: draw(after),
                )
            )

        def put(self, owner: Any, name: str, after: Any) -> None:
            """Change a value of the model, which may be taken back while it is that."""
            before = getattr(owner, name)
            setattr(owner, name, after)
            if before != after:
                self.change(
                    Change(
                        lambda: getattr(owner, name) == after,
                        lambda: setattr(owner, name, before),
                        lambda: setattr(owner, name, after),
                    )
                )

        @rule(sampling=st.sampled_from(SAMPLING))
        def sample(self, sampling: Settings) -> None:
            self.person.do("sample", sampling)
            self.put(self, "sampling", sampling)

        @rule(data=st.data(), sampling=st.sampled_from(SAMPLING))
        def sample_from_an_older_step_on(self, data: st.DataObject, sampling: Settings) -> None:
            steps = [slot for slot, token in enumerate(self.at.path) if not token.given]
            if not steps or sampling == self.sampling:
                return
            slot, before, used = data.draw(st.sampled_from(steps)), self.at, self.sampling
            self.person.look(slot)
            self.person.do("apply", sampling)
            older = before.path[slot].parent
            assert older is not None
            self.go(older)
            self.sampling = sampling
            back, there = self.there_and_back(before)
            self.change(
                Change(
                    lambda: self.sampling == sampling,
                    lambda: (setattr(self, "sampling", used), back()),
                    lambda: (setattr(self, "sampling", sampling), there()),
                )
            )

        @rule(points=st.sampled_from(POINTS))
        def break_at(self, points: Breakpoints) -> None:
            self.person.do("break at", points)
            self.put(self, "points", points)

        @rule(data=st.data(), name=st.sampled_from(("", "one", "two")), bookmarked=st.booleans())
        def mark(self, data: st.DataObject, name: str, bookmarked: bool) -> None:
            token = data.draw(st.sampled_from(self.at.path))
            self.person.do("mark", token.number, name, bookmarked)
            self.put(token, "mark", (name, bookmarked))

        @rule(data=st.data())
        def delete(self, data: st.DataObject) -> None:
            path = set(self.at.path)
            others = [
                token
                for token in self.root.below[1:]
                if token not in path and token.number and not any(each.deleted for each in token.below)
            ]
            if not others:
                return
            token = data.draw(st.sampled_from(others))
            self.person.do("delete", token.number)

            def hide() -> None:
                for each in token.below:
                    each.deleted = each.deleted or token

            def bring_back() -> None:
                for each in token.below:
                    each.deleted = None if each.deleted is token else each.deleted

            hide()
            self.change(
                Change(
                    lambda: any(each.deleted is token for each in token.below),
                    bring_back,
                    hide,
                    lambda: token.deleted is None and token in self.at.path,
                )
            )

        # and back

        @rule()
        def undo(self) -> None:
            assert self.person.do("undo")
            while self.done and not self.done[-1].holds():
                self.done.pop()
            if self.done:
                self.undone.append(change := self.done.pop())
                change.undo()

        @rule(times=st.integers(2, 4))
        def undo_several(self, times: int) -> None:
            for _ in range(times):
                self.undo()

        @rule()
        def redo(self) -> None:
            assert self.person.do("redo")
            if self.undone and not self.undone[-1].refused():
                self.done.append(change := self.undone.pop())
                change.redo()

        @invariant()
        def what_is_shown_is_what_the_paths_say(self) -> None:
            if not hasattr(self, "person"):
                return
            self.number()
            path = self.at.path
            for slot, token in enumerate(path):
                assert token.parent is not None
                assert self.person.beside(slot) == [each.number for each in token.parent.shown]
                assert self.person.marked(token.number) == token.mark
            for token in self.root.below[1:]:
                if token.number and token.deleted is None:
                    after = token.latest
                    assert self.person.goes_on(token.number) == (after.number if after is not None else None)
            assert self.person.ends == [end.number for end in self.root.ends]
            assert self.person.hidden == sum(token.deleted is not None for token in self.root.below)
            assert (self.person.sampling, self.person.points) == (self.sampling, self.points)
            assert self.person.next[1] == self.at.draws
            key = tuple(token.id for token in path), self.sampling, self.at.draws
            assert self.seen.setdefault(key, self.person.next) == self.person.next

    return Walk


@pytest.fixture
def person_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Person]]:
    """Makes sessions of one engine, with the model loaded."""
    model = Zoo(tmp_path_factory.mktemp("zoo")).path("llama")
    load, came = LoadSettings(str(model)), SimpleQueue[protocol.Received]()
    thread = EngineThread(came.put)
    thread.start()
    thread.send(protocol.Sent(protocol.Load(load), 0))
    while not isinstance(came.get(timeout=PATIENCE).record, protocol.Ended):
        pass
    yield lambda: Person(thread, load)
    assert thread.close(10)


def run_walk(machine: type[RuleBasedStateMachine], examples: int, rules: int) -> None:
    """Run a machine so many times, with at most so many rules each."""
    how = settings(
        max_examples=examples,
        stateful_step_count=rules,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=how)


def test_a_person_sees_the_paths_that_there_are(person_of: Callable[[], Person]) -> None:
    run_walk(walk(person_of), 20, 40)


@pytest.mark.slow
def test_a_person_sees_the_paths_that_there_are_for_long(person_of: Callable[[], Person]) -> None:
    run_walk(walk(person_of), 150, 80)

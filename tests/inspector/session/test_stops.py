"""Captions of a recording: each speaks at its own place, of a token that is there, forward and back alike."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.protocol import BeamStep, Marked, Measuring, RaceOpened, RaceStep, Record, Step
from engine.recording import Entry, save_as
from inspector.session.player import Player
from inspector.state.beams import BeamHistory
from inspector.state.measured import Measured
from inspector.state.timeline import Timeline
from tests.inspector.fake_beams import search
from tests.inspector.fakes import PROMPT, Session
from tests.inspector.session.test_player import Clock

LATE = 10.0
"""Seconds after which nobody who watches waits any more."""


class Watched:
    """A recording, and the timeline that it shows."""

    def __init__(self, path: Path, entries: list[Entry]) -> None:
        save_as(path, entries, "test 1")
        self.clock, self.timeline = Clock(), Timeline(recorded=True)
        self.player = Player(path, self._show, self._begin, from_start=True, clock=self.clock)
        self.settle()
        self.player.start()
        self.settle()

    def _show(self, value: object) -> None:
        self.timeline.apply(value)  # type: ignore[arg-type]

    def _begin(self) -> None:
        self.timeline = Timeline(recorded=True)

    def settle(self) -> None:
        for _ in range(10_000):
            if self.player.settled:
                return
            self.player.tick()
        raise AssertionError("it never settled")

    @property
    def told(self) -> tuple[int, str]:
        """The place, and the caption that speaks there."""
        telling = self.player.telling
        if telling is not None:
            assert telling.node in self.timeline.tree.branches, telling
        return self.player.position, telling.text if telling is not None else ""

    def walk(self, forward: bool, telling: tuple[type[Record], ...] = ()) -> list[tuple[int, str, int]]:
        """Step to the other end; returns what was told at each place, and of which node: two may have one text."""
        found: list[tuple[int, str, int]] = []
        for _ in range(10_000):
            before = (*self.told, self.node)
            if forward:
                self.player.step(telling)
            else:
                self.player.back(telling)
            self.settle()
            now = (*self.told, self.node)
            if now == before or (not forward and self.player.position == 0):
                return found
            found.append(now)
        raise AssertionError("it never came to its end")

    @property
    def node(self) -> int:
        """That the caption on show speaks of; 0 without one."""
        return self.player.telling.node if self.player.telling is not None else 0

    def play(self) -> list[tuple[float, str]]:
        """Play it; returns when each caption came, and which."""
        began, found = self.clock.now, [(0.0, "")]
        self.player.play()
        while self.player.playing:
            self.clock.now += 0.05
            self.player.tick()
            if self.told[1] != found[-1][1]:
                found.append((self.clock.now - began, self.told[1]))
        return found[1:]


class Lived:
    """Records of a session with their times."""

    def __init__(self) -> None:
        self.session, self.at = Session(), 0.0
        self.entries: list[Entry] = []
        self.add(self.session.load())

    def add(self, records: list[Record], seconds: float = 1.0) -> None:
        for record in records:
            self.at += seconds
            self.entries.append(Entry(record, self.at))

    def open(self) -> None:
        self.add(self.session.open())

    def steps(self, count: int, seconds: float = 1.0) -> list[Step]:
        found = self.session.steps(count)
        self.add(found, seconds)
        return [step for step in found if isinstance(step, Step)]

    def caption(self, node: int, text: str, tool: str = "", after: float = 0.0) -> None:
        self.add([Marked(node, caption=text, tool=tool)], after)

    def beams(self) -> list[int]:
        """A search from the tip; returns the nodes of its last step but one."""
        found = search(self.session.node)
        self.session.nodes += 12
        self.add(found)  # type: ignore[arg-type]
        return [beam.node for record in found if isinstance(record, BeamStep) for beam in record.live]


@pytest.fixture
def lived() -> Lived:
    made = Lived()
    made.open()
    return made


def where(watched: Watched, text: str) -> tuple[int, list[str]]:
    """The place at which a caption speaks first when it is stepped to, and the steps of the path there."""
    for _ in range(1000):
        if watched.told[1] == text:
            return watched.player.position, [step.text for step in watched.timeline.steps]
        watched.player.step()
        watched.settle()
    raise AssertionError(f"{text!r} is never given")


def test_a_caption_comes_with_its_step_and_goes_with_the_next(lived, tmp_path):
    steps = lived.steps(3)
    lived.caption(steps[-1].node, "here")
    lived.steps(2)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    told = [text for _, text, _ in watched.walk(True)]
    # two chunks and the prompt, then the steps: none is added
    assert told == [*[""] * 5, "here", "", ""]
    assert watched.player.stop == (8, 8)


def test_one_that_was_written_afterwards_speaks_where_its_token_came(lived, tmp_path):
    steps = lived.steps(6)
    lived.caption(steps[1].node, "look back", after=LATE)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    _, path = where(watched, "look back")
    assert path == [step.text for step in steps[:2]]


def test_one_at_a_token_that_was_gone_back_to_speaks_then_and_not_before(lived, tmp_path):
    steps = lived.steps(3)
    other = next(each.id for each in steps[1].choice.candidates if each.id != steps[1].id)
    lived.add(lived.session.choose(steps[1].parent, other))
    lived.add([lived.session.move(steps[-1].node)])
    lived.caption(steps[-1].node, "back at the first story", after=LATE)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    place, path = where(watched, "back at the first story")
    assert place == len(lived.entries)
    assert path == [step.text for step in steps]
    watched.player.go(next(n for n, each in enumerate(lived.entries, 1) if each.value is steps[-1]))
    watched.settle()
    assert watched.player.caption(steps[-1].node) == ""  # nothing was gone back to yet


def test_typed_text_and_beams_have_theirs_when_they_came(lived, tmp_path):
    lived.steps(2)
    typed = [replace(step, origin="inserted") for step in lived.steps(4, seconds=0.0)]
    lived.caption(typed[0].node, "typed", "steps")
    nodes = lived.beams()
    lived.caption(nodes[-1], "beams", "beams")
    watched = Watched(tmp_path / "a.trace", lived.entries)
    _, path = where(watched, "typed")
    assert len(path) == 6  # all of it is there
    where(watched, "beams")
    assert watched.timeline.of(BeamHistory).search.ended is not None


def test_a_caption_of_the_prompt_waits_for_the_prompt(lived, tmp_path):
    lived.steps(2)
    lived.caption(1, "the first token", after=LATE)
    lived.caption(2, "the second", after=LATE)
    lived.steps(1)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    told = watched.walk(True)
    prompt = next(n for n, each in enumerate(lived.entries, 1) if getattr(each.value, "left", None) == 0)
    assert [each[:2] for each in told if each[1]] == [(prompt, "the first token"), (prompt, "the second")]
    assert watched.walk(False)[::-1] == told[:-1]


def test_a_correction_takes_the_place_and_undoing_takes_it_back(lived, tmp_path):
    steps = lived.steps(2)
    lived.caption(steps[-1].node, "teh first")
    lived.steps(2)
    lived.caption(steps[-1].node, "the first", after=LATE)
    lived.caption(steps[0].node, "a slip", after=LATE)
    lived.caption(steps[0].node, "", after=1.0)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    assert [text for _, text, _ in watched.walk(True) if text] == ["the first"]


def test_a_bookmark_on_its_token_tells_nothing_twice(lived, tmp_path):
    steps = lived.steps(2)
    lived.caption(steps[-1].node, "once")
    lived.add([Marked(steps[-1].node, bookmarked=True, caption="once")], LATE)
    lived.steps(1)
    watched = Watched(tmp_path / "a.trace", [*lived.entries])
    assert [text for _, text, _ in watched.walk(True)].count("once") == 1


def test_it_speaks_while_what_it_announces_is_measured(lived, tmp_path):
    node = lived.steps(2)[-1].node
    lived.caption(node, "watch", "race")
    race = [RaceStep(n, 1, "x", 1.0, 2.0, 1.0, 2.0, 1, 1, 0.0, 1, 1) for n in range(17, 20)]
    lived.add([Measuring("Race", 0, 3, "warm-up"), RaceOpened(node, 16, 19, 4, "How."), *race])
    lived.steps(1)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    where(watched, "watch")
    assert watched.timeline.of(Measured).race is None
    tokens = []
    while True:
        watched.player.step((RaceStep,))
        watched.settle()
        if watched.told[1] != "watch":
            break
        tokens.append(watched.timeline.of(Measured).race.tokens)
    assert tokens == [17, 18, 19]
    watched.player.back((RaceStep,))
    watched.player.back((RaceStep,))
    watched.settle()
    assert watched.timeline.of(Measured).race.tokens == 18


def test_while_it_plays_each_is_given_time_to_be_read(lived, tmp_path):
    words = "one two three four five six"  # two seconds
    steps = lived.steps(3)
    lived.caption(steps[-1].node, words, "candidates")
    lived.steps(1, seconds=0.1)
    lived.caption(steps[0].node, words, after=LATE)
    lived.caption(steps[0].node + 1, "", after=LATE)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    came = watched.play()
    assert [text for _, text in came] == [words, "", words, ""]
    assert came[1][0] - came[0][0] == pytest.approx(2.0, abs=0.2)
    assert came[3][0] - came[2][0] == pytest.approx(2.0, abs=0.2)


def test_the_writing_of_a_caption_is_not_watched(lived, tmp_path):
    steps = lived.steps(2)
    lived.caption(steps[-1].node, "typed slowly", after=LATE)
    lived.steps(1)
    watched = Watched(tmp_path / "a.trace", lived.entries)
    ((came, _), (went, _)) = watched.play()
    assert came < 11.0  # ten entries before it, and not the ten seconds of its writing
    assert went - came == pytest.approx(1.0, abs=0.2)


# ---- any recording ------------------------------------------------------------------------------


class Anything(Lived):
    """Steps, forks, moves, beams, races, prompts and captions in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.again()

    def again(self) -> None:
        """Another prompt, and another tree."""
        self.open()
        self.nodes, self.taken = list(range(1, len(PROMPT) + 1)), set[tuple[int, int]]()

    @property
    def pause(self) -> float:
        """Seconds before what comes next."""
        return self.rng.choice((0.0, 0.5, LATE))

    def step(self, node: int) -> None:
        """Take a token that nobody took there."""
        free = (each.id for each in self.session.tips[node].candidates if (node, each.id) not in self.taken)
        token = next(free)
        self.taken.add((node, token))
        self.add(self.session.choose(node, token), self.pause)
        self.nodes.append(self.session.node)

    def known(self) -> int:
        """A token that the session stood at."""
        return self.rng.choice([node for node in self.nodes if node in self.session.tips])

    def race(self) -> None:
        """As much of a race as there is."""
        steps = [RaceStep(n, 1, "x", 1.0, 2.0, 1.0, 2.0, 1, 1, 0.0, 1, 1) for n in range(17, 20)]
        told: list[Record] = [RaceOpened(self.session.node, 16, 19, 4, "How."), *steps]
        self.add(told[: self.rng.randrange(5)], self.pause)

    def search(self) -> None:
        """A beam search, whose nodes follow on the one where it begins."""
        if self.session.node == self.session.nodes:
            self.nodes += self.beams()

    def write(self, number: int) -> None:
        """A caption where the session stands."""
        tool = self.rng.choice(("", "text", "race", "beams", "nowhere"))
        self.caption(self.session.node, f"caption {number}", tool, self.pause)

    def write_late(self, number: int) -> None:
        """One anywhere: also one that is taken back, one at a node that never was, one that was told before."""
        text = self.rng.choice((f"late {number}", "", "caption 3"))
        self.caption(self.rng.choice((*self.nodes, 999)), text, after=self.pause)

    def do(self, number: int) -> None:
        """Whatever comes next."""
        kinds = [
            "step",
            "step",
            "step",
            "fork",
            "move",
            "search",
            "race",
            "again",
            "write",
            "write",
            "late",
            "late",
        ]
        match self.rng.choice(kinds):
            case "step":
                self.step(self.session.node)
            case "fork":
                self.step(self.known())
            case "move":
                self.add([self.session.move(self.known())], self.pause)
            case "search":
                self.search()
            case "race":
                self.race()
            case "again":
                self.again()
            case "write":
                self.write(number)
            case _:
                self.write_late(number)


def recording(seed: int, count: int) -> list[Entry]:
    """So many things in any order."""
    lived = Anything(seed)
    for number in range(count):
        lived.do(number)
    lived.step(lived.session.node)  # the end is a place where a step ends
    return lived.entries


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
@example(13311, 32, False)  # two tokens of one prompt with the same caption
def test_forward_back_and_forward_again_tell_the_same_at_the_same_places(tmp_path, seed, count, closely):
    telling = (RaceStep, BeamStep) if closely else ()
    watched = Watched(tmp_path / "a.trace", recording(seed, count))
    assert watched.player.file.failure is None
    forward = watched.walk(True, telling)
    assert watched.player.file.failure is None
    assert watched.walk(False, telling)[::-1] == forward[:-1]
    watched.player.start()
    watched.settle()
    assert watched.walk(True, telling) == forward

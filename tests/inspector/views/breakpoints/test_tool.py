"""Surprises and fork points: where they are, and the way from one to the next."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.protocol import Moved, Step
from inspector.scales import SURPRISE_BITS
from inspector.state.timeline import Timeline
from inspector.views.breakpoints import FORK, FORK_MARGIN, SURPRISE, go, surprisal
from tests.inspector.fakes import Session, session


def surprising(timeline: Timeline, *slots: int) -> None:
    """Make these tokens surprises of 7.2 bits and all others none."""
    for slot, item in enumerate(timeline.items):
        bits = 7.2 if slot in slots else 1.0
        change = {"surprisal_bits": bits} if isinstance(item, Step) else {"logprob": -bits * 0.6931472}
        timeline.items[slot] = replace(item, rank=31 if slot in slots else 1, **change)


def closing(timeline: Timeline, *slots: int) -> None:
    """Make these tokens fork points and all others none."""
    for slot, item in enumerate(timeline.items):
        first, second, *rest = (item.choice if isinstance(item, Step) else item).candidates or session(
            1
        ).timeline().candidates
        two = replace(first, prob=0.34), replace(second, prob=0.31 if slot in slots else 0.1)
        if isinstance(item, Step):
            timeline.items[slot] = replace(item, choice=replace(item.choice, candidates=(*two, *rest)))
        else:
            timeline.items[slot] = replace(item, candidates=(*two, *rest))


@pytest.mark.parametrize(("kind", "mark"), [(SURPRISE, surprising), (FORK, closing)])
def test_it_goes_from_one_to_the_next_and_back_in_the_prompt_too(kind, mark) -> None:
    timeline = session(12).timeline()
    mark(timeline, 2, 7, 9)
    assert kind.slots(timeline) == [2, 7, 9]
    visited = []
    for by in (-1, -1, -1, -1, 1, 1, 1):
        go(timeline, kind, by)
        visited.append(timeline.slot)
    assert visited == [9, 7, 2, 2, 7, 9, 9]
    timeline.select(8)
    go(timeline, kind, 1)
    assert timeline.slot == 9


def test_a_surprise_is_told_with_its_figures() -> None:
    timeline = session(12).timeline()
    surprising(timeline, 7, 9)
    assert timeline.items[7].text == " a"
    timeline.select(8)
    assert go(timeline, SURPRISE, -1) == "Surprise 1 of 2: “␣a”, 7.2 bits, rank 31"
    assert go(timeline, SURPRISE, -1) == "No surprise before this token: there is 1 after it"
    timeline.select(None)
    assert go(timeline, SURPRISE, 1) == "No surprise after this token: there are 2 before it"


def test_one_alone_says_so() -> None:
    timeline = session(12).timeline()
    surprising(timeline, 7)
    go(timeline, SURPRISE, -1)
    assert go(timeline, SURPRISE, -1) == "No surprise before this token: this is the only one"


def test_a_surprise_begins_at_its_bits_and_not_below() -> None:
    timeline = session(2).timeline()
    surprising(timeline)
    for slot, bits in ((5, SURPRISE_BITS), (6, SURPRISE_BITS - 0.01)):
        timeline.items[slot] = replace(timeline.items[slot], surprisal_bits=bits)
    assert SURPRISE.slots(timeline) == [5]


def test_a_path_without_any_says_what_one_is() -> None:
    timeline = session(6).timeline()
    surprising(timeline)
    closing(timeline)
    assert go(timeline, SURPRISE, 1) == (
        "No surprise on this path: one has 4 bits of surprisal or more, a probability of 6.25 % or less"
    )
    assert go(timeline, FORK, -1) == (
        "No fork point on this path: one has less than 10 % between its first two candidates, or branches"
    )
    assert timeline.following


def test_the_rules_are_those_that_are_told() -> None:
    assert f"{SURPRISE_BITS:g} bits" in SURPRISE.rule
    assert f"{2**-SURPRISE_BITS * 100:g} %" in SURPRISE.rule
    assert f"{FORK_MARGIN * 100:g} %" in FORK.rule


def test_a_prompt_without_readings_has_none_and_that_is_said() -> None:
    made = Session()
    made.load()
    made.open(echo=False)
    timeline = made.timeline()
    assert [surprisal(item) for item in timeline.items] == [None] * 5
    assert go(timeline, SURPRISE, -1).endswith("; prompt logprobs are off")


def test_a_fork_point_tells_the_two_that_were_close() -> None:
    timeline = session(12).timeline()
    closing(timeline, 7)
    step = timeline.items[7]
    assert isinstance(step, Step)
    first, second = (each.text.replace(" ", "␣") for each in step.choice.candidates[:2])
    assert go(timeline, FORK, -1) == f"Fork point 1 of 1: “{first}” 34.0 % against “{second}” 31.0 %"


def test_branches_make_a_fork_point_however_sure_the_model_was() -> None:
    made = session(8)
    timeline = made.timeline()
    closing(timeline)
    step = timeline.items[7]
    assert isinstance(step, Step)
    other = next(each for each in step.choice.candidates if each.id != step.id)
    for record in made.choose(step.parent, other.id):
        timeline.apply(record)
    closing(timeline)
    assert FORK.slots(timeline) == [7]
    assert go(timeline, FORK, -1).endswith(", 2 branches")


def test_a_second_candidate_that_was_only_picked_makes_no_fork_point() -> None:
    timeline = session(3).timeline()
    closing(timeline, 6)
    step = timeline.items[6]
    assert isinstance(step, Step)
    first, second, *_ = step.choice.candidates
    far = replace(step.choice, candidates=(first, replace(second, rank=9)))  # --candidates 1
    timeline.items[6] = replace(step, choice=far)
    assert FORK.slots(timeline) == []


def test_a_model_text_is_printable_in_the_answer() -> None:
    made = Session(story=("\x1b[31m", "[@click=app.quit]x[/]"))
    made.load()
    made.open()
    made.steps(2)
    timeline = made.timeline()
    surprising(timeline, 5)
    assert "\x1b" not in go(timeline, SURPRISE, -1)


def test_moving_to_another_branch_looks_at_its_landmarks() -> None:
    made = session(8)
    timeline = made.timeline()
    surprising(timeline, 11)
    assert SURPRISE.slots(timeline) == [11]
    moved = made.move(timeline.items[6].node)
    assert isinstance(moved, Moved)
    timeline.apply(moved)
    surprising(timeline)
    assert SURPRISE.slots(timeline) == []


@pytest.mark.parametrize(("kind", "mark"), [(SURPRISE, surprising), (FORK, closing)])
def test_on_a_long_path_the_tokens_up_to_the_next_one_alone_are_looked_at(kind, mark, monkeypatch) -> None:
    timeline = session(12).timeline()
    mark(timeline, 2, 7, 9)
    monkeypatch.setattr("inspector.views.breakpoints.COUNTED", 12)
    looked: list[int] = []
    seen = replace(kind, stands=lambda timeline, slot: looked.append(slot) or kind.stands(timeline, slot))
    timeline.select(8)
    assert go(timeline, seen, -1).startswith(f"{kind.name.capitalize()}: “")
    assert (timeline.slot, looked) == (7, [7])
    looked.clear()
    go(timeline, seen, 1)
    assert (timeline.slot, looked) == (9, [8, 9])
    assert go(timeline, seen, 1) == f"No {kind.name} after this token"
    timeline.select(2)
    assert go(timeline, seen, -1) == f"No {kind.name} before this token"

"""The timeline: what is on show follows from the records, in whatever order a person goes through the tree."""

from __future__ import annotations

from msgspec.structs import replace

from engine.protocol import AttentionRead, CaptureFacts, Ended, Resampled, Step
from engine.timing import tpot
from inspector.state.inside import Answers
from inspector.state.timeline import ROOT, Phase, Timeline
from tests.inspector.fakes import PROMPT, Session, session


def test_phases_from_nothing_to_a_step() -> None:
    made = Session()
    timeline = Timeline()
    assert timeline.phase is Phase.LOADING
    for record in made.load():
        timeline.apply(record)
    assert timeline.phase is Phase.EMPTY
    opened = made.begin()
    timeline.apply(opened)
    assert timeline.phase is Phase.PREFILL
    timeline.apply(made.chunk(opened, 3))
    assert timeline.phase is Phase.PREFILL
    timeline.apply(made.prefilled(opened))
    assert timeline.phase is Phase.READY
    timeline.running = True
    assert timeline.phase is Phase.RUNNING


def test_a_load_failure_is_kept_until_a_model_is_there() -> None:
    made = Session()
    made.fail("There is no directory ./missing.", "Give the path of a model directory.")
    assert made.timeline().phase is Phase.FAILED
    made.load()
    assert made.timeline().phase is Phase.EMPTY


def test_readings_of_the_prompt_arrive_after_it() -> None:
    made = Session()
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    assert timeline.items[1].prob is None
    before = timeline.readings
    timeline.apply(made.chunk(opened, 3))
    assert timeline.readings == before
    timeline.apply(made.readings(opened)[0])
    assert timeline.items[1].prob is not None
    assert timeline.items[4].prob is None
    assert timeline.readings == before + 1


def test_a_look_inside_changes_no_panel_of_records() -> None:
    timeline = session(4).timeline()
    before = timeline.place
    timeline.apply(AttentionRead(timeline.tip, 12, (), 3, (), CaptureFacts((), 2.0, 1.0, "llama")))
    timeline.apply(Ended("ReadAttention"))
    assert [each.node for each in timeline.of(Answers).found(AttentionRead)] == [timeline.tip]
    assert timeline.place == before


def test_steps_are_known_by_their_slots() -> None:
    timeline = session(4).timeline()
    assert timeline.step_slots == [len(PROMPT) + place for place in range(4)]
    assert [timeline.items[slot] for slot in timeline.step_slots] == timeline.steps
    assert timeline.steps_before(len(PROMPT) + 2) == 2
    assert timeline.steps_before(1) == 0
    assert Timeline().step_slots == []


def test_a_branch_inside_the_prompt_has_fewer_of_its_tokens() -> None:
    made = session(2)
    timeline = made.timeline()
    node = timeline.items[2].node
    made.tips[node] = made._distribution(node)
    for record in made.choose(node, made.tips[node].candidates[1].id):
        timeline.apply(record)
    assert timeline.step_slots == [3]
    assert len(timeline.items) == 4


def test_following_stays_at_the_tip_and_a_selected_slot_stays_where_it_is() -> None:
    made = session(3)
    timeline = made.timeline()
    assert timeline.following
    assert timeline.slot == 8
    timeline.apply(made.step())
    assert timeline.slot == 9
    timeline.select(5)
    timeline.apply(made.step())
    assert timeline.slot == 5
    timeline.select(99)
    assert timeline.following


def test_a_selected_step_shows_what_it_was_taken_from() -> None:
    timeline = session(3).timeline()
    timeline.select(6)
    step = timeline.items[6]
    assert isinstance(step, Step)
    assert timeline.step is step
    assert timeline.distribution is step.choice
    assert timeline.taken == step.id
    assert timeline.before == timeline.items[5].node
    timeline.select(0)
    assert timeline.distribution is None
    assert timeline.step is None
    assert timeline.before == ROOT


def test_another_token_makes_a_sibling_and_the_first_branch_can_be_walked_again() -> None:
    made = session(6)
    timeline = made.timeline()
    first = [item.node for item in timeline.items]
    node = timeline.items[7].node
    other = next(c for c in made.tips[node].candidates if c.id != made.tips[node].picked)
    generation = timeline.generation
    for record in made.choose(node, other.id):
        timeline.apply(record)
    assert timeline.items[-1].id == other.id
    assert timeline.generation > generation
    assert len(timeline.siblings(8)) == 2
    assert timeline.tree.leaf(first[8]) == first[-1]
    timeline.apply(made.move(timeline.tree.leaf(first[8])))
    assert [item.node for item in timeline.items] == first


def test_the_bill_of_a_move_stands_until_the_next_step() -> None:
    made = session(6)
    made.move(made.timeline().items[7].node)
    timeline = made.timeline()
    assert timeline.moved is not None
    timeline.apply(made.step())
    assert timeline.moved is None


def test_a_new_prompt_is_a_new_tree() -> None:
    made = session(6)
    made.finish()
    made.begin(("A", " new", " one"))
    timeline = made.timeline()
    assert [item.text for item in timeline.items] == ["A", " new", " one"]
    assert not timeline.finished
    assert timeline.next is None
    assert timeline.following


def test_time_per_token_is_of_the_current_path() -> None:
    timeline = session(5).timeline()
    times = tpot([step.ms.total for step in timeline.steps])
    assert times is not None
    assert times.steps == 5
    assert times.p50 <= times.p95
    assert tpot([]) is None


def test_a_recording_that_draws_again_goes_to_where_it_was_drawn() -> None:
    """A person who looks at a recording may have gone to another token meanwhile, where no engine follows."""
    timeline = session(4).timeline()
    steps = timeline.steps
    timeline.visit(steps[1].node)
    again = replace(steps[3].next, reroll=1)
    timeline.apply(Resampled(again))
    assert timeline.tip == steps[3].node
    assert timeline.next is again
    assert timeline.kv == steps[3].kv
    assert timeline.steps == steps

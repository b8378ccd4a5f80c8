"""Which commands the controller sends, and when it cancels them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Ended, Failure, Loading, Prefill
from engine.settings import LoadSettings, Settings
from inspector.session.controller import Controller
from inspector.session.transport import MAX_QUEUED_STEPS, PACES
from inspector.state.timeline import Phase
from tests.inspector.fakes import Session
from tests.inspector.rig import FakeEngine, take_in


class Made:
    def __init__(self, steps: int = 6, temp: float = 0.8, prompt: str = "Once") -> None:
        self.engine, self.session = FakeEngine(), Session()
        self.controller = Controller(self.engine, LoadSettings(), Settings(temp=temp), Prefill(prompt, False))
        self.controller.setup.open(self.controller.setup.load)
        self.push(self.session.load())
        if prompt:
            self.push([Ended("Configure"), *self.session.open(), *self.session.steps(steps)])
            self.engine.sent.clear()

    def push(self, records) -> None:
        for record in records:
            take_in(self.controller.client, record)

    @property
    def timeline(self):
        return self.controller.timeline


@pytest.fixture
def made() -> Made:
    return Made()


def test_the_prompt_follows_the_model():
    made = Made(prompt="")
    assert made.engine.names == ["Load", "Configure"]
    made.controller.setup.give(Prefill("Hello", True, "Be kind.", True))
    assert made.engine.last(protocol.Prefill) == protocol.Prefill("Hello", True, "Be kind.", True)


def test_a_prompt_given_while_the_model_loads_waits_for_it():
    made = Made(prompt="")
    made.controller.setup.open(LoadSettings("other"))
    made.engine.sent.clear()
    made.controller.setup.give(Prefill("Later", False))
    assert made.engine.names == []
    made.push([Ended("Configure"), *made.session.load()])
    assert made.engine.names == ["Configure", "Prefill"]


def test_settings_changed_while_loading_are_sent_once_with_the_model():
    engine = FakeEngine()
    controller = Controller(engine, LoadSettings(), Settings(), Prefill("", False))
    controller.setup.open(LoadSettings())
    controller.setup.configure(Settings(temp=1.5))
    assert engine.names == ["Load"]
    for record in Session().load():
        take_in(controller.client, record)
    assert engine.last(protocol.Configure) == protocol.Configure(Settings(temp=1.5))


def test_held_space_queues_no_more_than_a_few_steps(made):
    for _ in range(50):
        made.controller.transport.step()
    assert made.engine.names == ["TakeStep"] * MAX_QUEUED_STEPS
    made.push([Ended("TakeStep")])
    made.controller.transport.step()
    assert len(made.engine.sent) == MAX_QUEUED_STEPS + 1


def test_stepping_at_an_older_token_walks_and_asks_nothing(made):
    made.controller.timeline.walk(-3)
    made.controller.transport.step()
    assert made.timeline.slot == len(made.timeline.items) - 2
    assert made.engine.sent == []


def test_a_run_is_running_until_it_ended(made):
    made.controller.transport.run()
    assert made.timeline.phase is Phase.RUNNING
    made.controller.transport.step()
    assert made.engine.names == ["Run"]
    assert made.engine.cancelled(made.engine.sent[0])
    assert made.timeline.phase is Phase.RUNNING
    made.push([Ended("Run", cancelled=True)])
    assert made.timeline.phase is Phase.READY


def test_another_pace_goes_on_running(made):
    made.controller.transport.run()
    made.controller.transport.change_pace(-1)
    first, second = made.engine.sent
    assert made.engine.cancelled(first)
    assert not made.engine.cancelled(second)
    assert second.pace == 20
    made.push([Ended("Run", cancelled=True)])
    assert made.timeline.running
    made.push([Ended("Run")])
    assert not made.timeline.running


def test_the_pace_stays_within_its_steps(made):
    for _ in range(20):
        made.controller.transport.change_pace(-1)
    assert made.controller.runs.pace == PACES[0]
    for _ in range(20):
        made.controller.transport.change_pace(1)
    assert made.controller.runs.pace is None


def test_settings_changed_during_a_run_let_it_go_on(made):
    made.controller.transport.run()
    made.controller.setup.configure(Settings(temp=0.1))
    assert made.engine.names == ["Run", "Configure", "Run"]
    assert made.engine.cancelled(made.engine.sent[0])


def test_a_choice_branches_where_the_person_looks(made):
    made.controller.timeline.walk(-2)
    before = made.timeline.before
    other = next(c.id for c in made.timeline.candidates if c.id != made.timeline.selected.id)
    assert made.controller.navigation.choose(other) == ""
    assert made.engine.last(protocol.Choose) == protocol.Choose(before, other)
    made.push([*made.session.choose(before, other), Ended("Choose")])
    assert made.timeline.following
    assert made.timeline.items[-1].id == other


def test_choosing_what_stands_there_says_so_and_does_nothing(made):
    made.controller.timeline.walk(-2)
    answer = made.controller.navigation.choose(made.timeline.selected.id)
    assert "is here already" in answer
    assert made.engine.sent == []


def test_taking_back_moves_to_the_parent_and_quick_presses_add_up():
    made = Made(steps=3)
    nodes = [item.node for item in made.timeline.items]
    assert [made.controller.transport.back() for _ in range(3)] == ["", "", ""]
    assert [command.node for command in made.engine.sent] == [nodes[-2], nodes[-3], nodes[-4]]
    assert "Nothing to take back" in made.controller.transport.back()
    assert len(made.engine.sent) == 3


def test_what_was_taken_back_can_be_had_again():
    made = Made(steps=3)
    last = made.timeline.tip
    made.controller.transport.back()
    made.push([made.session.move(made.timeline.tree.parent[last]), Ended("MoveTo")])
    assert made.controller.navigation.branch(1) == ""
    assert made.engine.last(protocol.MoveTo).node == last


def test_neighbouring_branches_go_round_and_keep_the_place():
    made = Made(steps=4)
    made.controller.timeline.walk(-2)
    slot, old = made.timeline.slot, made.timeline.tip
    other = next(c.id for c in made.timeline.candidates if c.id != made.timeline.selected.id)
    made.controller.navigation.choose(other)
    made.push([*made.session.choose(made.timeline.before, other), Ended("Choose")])
    assert made.controller.navigation.branch(1) == ""
    assert made.engine.last(protocol.MoveTo).node == old
    made.push([made.session.move(old), Ended("MoveTo")])
    assert made.timeline.slot == slot
    assert made.timeline.tip == old


def test_no_other_branch_is_said(made):
    assert "No other branch" in made.controller.navigation.branch(1)
    made.controller.timeline.walk(-2)
    assert "No other branch" in made.controller.navigation.branch(-1)
    assert made.engine.sent == []


def test_greedy_has_no_draw_to_make_again():
    made = Made(temp=0.0)
    assert "temperature" in made.controller.navigation.reroll()
    assert made.engine.sent == []
    made.controller.setup.configure(Settings(temp=1.0))
    assert made.controller.navigation.reroll() == ""
    assert made.engine.names[-1] == "Reroll"


def test_a_new_prompt_cancels_what_is_under_way_but_no_settings(made):
    made.controller.transport.step()
    made.controller.setup.configure(Settings(temp=0.3))
    made.controller.transport.run()
    made.controller.setup.give(Prefill("Anew", False))
    assert made.engine.names == ["TakeStep", "Configure", "Run", "Prefill"]
    assert [made.engine.cancelled(command) for command in made.engine.sent] == [True, False, True, False]


def test_stop_tells_whether_there_was_anything(made):
    assert not made.controller.transport.stop()
    made.controller.navigation.verify()
    assert made.controller.transport.stop()
    assert made.engine.cancelled(made.engine.sent[0])


def test_jumping_looks_at_the_step_of_that_number():
    made = Made(steps=6)
    assert made.controller.navigation.steps_range() == (1, 6)
    made.controller.navigation.jump(2)
    assert made.timeline.selected.index == 1
    assert made.engine.sent == []


def test_first_is_the_completion_and_then_the_prompt():
    made = Made(steps=6)
    made.controller.navigation.first()
    assert made.timeline.selected.index == 0
    made.controller.navigation.first()
    assert made.timeline.slot == 0
    made.controller.navigation.tip()
    assert made.timeline.following


@pytest.mark.parametrize(
    "record", [Loading("weights", 0, 0, ""), Failure("Load", "No such model.", "Check the name.")]
)
def test_another_model_leaves_nothing_of_the_old_one(made, record):
    made.controller.setup.open(LoadSettings("other"))
    made.push([record])
    assert made.timeline.items == []
    assert made.timeline.phase in (Phase.LOADING, Phase.FAILED)


def test_a_late_step_of_a_cancelled_run_is_still_shown(made):
    made.controller.transport.run()
    made.controller.client.pause()
    count = len(made.timeline.items)
    made.push([*made.session.steps(1), Ended("Run", cancelled=True)])
    assert len(made.timeline.items) == count + 1
    assert not made.controller.client.outstanding


def test_what_the_user_did_not_give_is_that_of_the_model_that_is_loaded():
    made = Made(prompt="")
    setup = made.controller.setup

    def loaded(*sampling: tuple[str, float]) -> Settings:
        made.push([Ended("Configure")])
        setup.open(LoadSettings())
        made.push(made.session.load(sampling=sampling))
        return made.engine.last(protocol.Configure).settings

    setup.settings, setup.given = Settings(top_k=3, seed=5), {"top_k", "seed"}
    assert loaded(("temp", 0.6), ("top_k", 20)) == Settings(temp=0.6, top_k=3, seed=5)
    assert loaded() == Settings(top_k=3, seed=5)  # another model without any
    made.push([Ended("Configure")])
    setup.configure(replace(setup.settings, temp=1.5))  # from now on the user's
    assert loaded(("temp", 0.6), ("top_p", 0.9)) == Settings(temp=1.5, top_p=0.9, top_k=3, seed=5)

"""No panel ever shows a number of other settings or of another token.

A person steps, runs, applies settings, tries some, goes back, undoes, chooses, draws again, opens panels and has the
terminal resized, on the real engine. After each the numbers that were painted are compared with the records that they
belong to, computed anew in float64 from the logits of the node and the settings that were in force there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.timing import TimingPanel
from inspector.views.sampling_dialog import SamplingDialog
from tests.inspector.fakes import Session
from tests.inspector.painting import Terminal, painting
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig
from tests.inspector.screen_numbers import ScreenNumbers, Told

BEGINS = Settings(temp=1.0, seed=3, max_tokens=4)
SIZES = ((120, 40), (120, 33), (160, 50), (100, 30))
KEYS = (
    "space", "space", "r", "backspace", "left", "right", "end", "home", "choose", "d", "u", "U", "w",
    "left_square_bracket", "right_square_bracket", "down", "frame", "minus", "minus", "plus", "enter", "escape",
)  # fmt: skip
ACTIONS = st.one_of(
    st.sampled_from(KEYS),
    st.tuples(st.sampled_from(("apply", "try")), st.sampled_from(("0.5", "1", "2.5"))),
    st.tuples(st.just("resize"), st.sampled_from(SIZES)),
)
"""Keys, settings, sizes of the terminal, and whether the KV cache and the time have a frame."""


class Looking:
    """A person at the screen who computes everything anew."""

    def __init__(self, rig: Rig, terminal: Terminal, told: Told) -> None:
        self.rig, self.terminal = rig, terminal
        self.numbers = ScreenNumbers(rig.app, terminal, told)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way, and all that is known is painted."""
        return self.numbers.settled and self.terminal.text == self.rig.screen_text()

    async def settle(self) -> None:
        await self.rig.until(lambda: self.settled, PATIENCE)
        await self.rig.pilot.pause()
        await self.rig.until(lambda: self.settled, PATIENCE)

    def check(self) -> None:
        """Compare every number with what it belongs to."""
        self.numbers.check(covered=isinstance(self.rig.app.top, SamplingDialog))


async def act(looking: Looking, action: str | tuple[str, object]) -> None:
    """Do one thing, and look at every number when nothing moves any more."""
    rig = looking.rig
    match action:
        case ("resize", (int(columns), int(rows))):
            rig.resize(columns, rows)
        case ("apply" | "try" as what, str(temp)):
            await rig.press("s")
            await rig.type_in("temp", temp)
            await looking.settle()
            looking.check()
            await rig.press("ctrl+s" if what == "apply" else "escape")
        case "frame":
            for panel in (KVPanel, TimingPanel):
                rig.app.main.panel(panel).toggle_class("-line")
        case "choose":
            await rig.press("down", "enter")
        case str(key):
            await rig.press(key)
    await looking.settle()
    looking.check()


def live_through(actions: Sequence[str | tuple[str, object]]) -> None:
    """Begin after a prompt, and do some things."""
    app = InspectorApp(
        LoadSettings("pocket", record_logits=True),
        BEGINS,
        Prefill("Once upon a time", False),
        begins=Preferences(),
    )
    told, terminal = Told(app), Terminal(app)  # before it paints

    async def body() -> None:
        async with app.run_test(size=SIZES[0]) as pilot:
            looking = Looking(Rig(pilot, FakeEngine(), Session()), terminal, told)
            await looking.rig.until(lambda: app.controller.timeline.prompts.prefilled)
            await looking.settle()
            for number, action in enumerate(actions):
                try:
                    await act(looking, action)
                except AssertionError as error:
                    error.add_note(f"after {actions[: number + 1]}\n{looking.terminal.text}")
                    raise

    with painting():
        run_quickly(body())
    assert app.closed_in_time


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Nothing is made shorter: each run takes seconds."""
PATIENCE = 20.0
"""Seconds for what takes one: machines are busy."""
WALK: Sequence[str | tuple[str, object]] = (
    "space", "frame", "r", ("apply", "0.5"), "frame", ("resize", (120, 33)), "left", "left", ("apply", "2.5"), "w",
    "space", ("try", "0.5"), "u", "home", ("resize", (160, 50)), "U", "choose", "right_square_bracket", "backspace",
)  # fmt: skip
"""Each action at least once."""


TURNING: Sequence[str | tuple[str, object]] = (
    ("apply", "0.5"), "space", "space", "w", "minus", "plus", "plus", "left", "right", "space", "enter", "space",
    "left", "minus", ("resize", (100, 30)), "enter", "u", "plus", "escape", "minus", "r", "end", ("apply", "1"), "w",
)  # fmt: skip
"""The temperature is turned, at the tip and at an older step, applied, discarded, and undone."""


@pytest.mark.wide(1)
@pytest.mark.parametrize("walk", [WALK, TURNING])
def test_every_number_belongs_to_what_is_on_show(walk: Sequence[str | tuple[str, object]]) -> None:
    live_through(walk)


@pytest.mark.slow
@given(st.lists(ACTIONS, min_size=4, max_size=8))
@settings(
    max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=PHASES
)
def test_every_number_belongs_to_what_is_on_show_after_random_actions(
    actions: list[str | tuple[str, object]],
) -> None:
    live_through(actions)


@pytest.mark.slow
@given(st.lists(ACTIONS, min_size=20, max_size=60))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
def test_every_number_belongs_to_what_is_on_show_for_long(actions: list[str | tuple[str, object]]) -> None:
    live_through(actions)

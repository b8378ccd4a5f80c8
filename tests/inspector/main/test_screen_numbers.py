"""No panel ever shows a number of other settings or of another token.

A person steps, runs, applies settings, tries some, goes back, undoes, chooses, draws again, opens panels and has the
terminal resized, on the real engine. After each the numbers that were painted are compared with the records that they
belong to, computed anew in float64 from the logits of the node and the settings that were in force there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from textual.widget import Widget

from engine import protocol
from engine.logits.packing import unpack_row
from engine.protocol import Configure, PromptToken, Record, Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.tools.sampler.dialog import SamplingDialog
from inspector.tools.sampler.panel import SamplerPanel
from inspector.widgets.safety import SafeInput
from tests.inspector.fakes import Session
from tests.inspector.painting import Terminal, painting
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig

Row = npt.NDArray[np.float64]
BEGINS = Settings(temp=1.0, seed=3, max_tokens=4)
SIZES = ((120, 40), (120, 33), (160, 50), (100, 30))
KEYS = (
    "space", "space", "r", "backspace", "left", "right", "end", "home", "choose", "d", "u", "U", "w",
    "left_square_bracket", "right_square_bracket", "down",
)  # fmt: skip
ACTIONS = st.one_of(
    st.sampled_from(KEYS),
    st.tuples(st.sampled_from(("apply", "try")), st.sampled_from(("0.5", "1", "2.5"))),
    st.tuples(st.just("resize"), st.sampled_from(SIZES)),
)
"""Keys, settings and sizes of the terminal."""


class Told:
    """What the engine told, by itself: the path, and the settings with which each token was picked, or will be.

    Args:
        app: Its client receives the records.
    """

    def __init__(self, app: InspectorApp) -> None:
        self._client = app.controller.client
        self._client.listeners.append(self.receive)
        self.rows: dict[int, Row] = {}
        self.tokens: dict[int, Step | PromptToken] = {}
        self.parents: dict[int, int] = {}
        self.made: dict[int, Settings] = {}
        """By the step's node."""
        self.held: dict[int, int] = {}
        """Tokens in the KV cache after a step, or after the chunk that a prompt's token was in, by node."""
        self.tip, self.in_force = 0, BEGINS

    def receive(self, record: Record) -> None:
        doing = self._client.doing
        match record:
            case protocol.LogitsRow():
                self.rows[record.node] = unpack_row(record).astype(np.float64)
            case protocol.PromptOpened():
                parent = record.parent
                for token in record.tokens:
                    self.tokens[token.node], self.parents[token.node], parent = token, parent, token.node
                self.tip = parent
            case protocol.PrefillChunk():
                for node in self.path[: record.done]:
                    self.held.setdefault(node, record.done)
            case protocol.Prefilled():
                for node in self.path:
                    self.held.setdefault(node, len(self.path))
            case Step():
                self.held[record.node] = len(self.path) + 1
                self.tokens[record.node], self.parents[record.node] = record, record.parent
                self.made[record.node], self.tip = self.in_force, record.node
            case protocol.Moved():
                self.tip = record.node
            case protocol.Resampled() if isinstance(doing, Configure):
                self.in_force = doing.settings

    @property
    def path(self) -> list[int]:
        """Nodes of the path."""
        nodes, node = list[int](), self.tip
        while node:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


def shares(row: Row, used: Settings | None = None) -> Row:
    """The model's probabilities, or those that the sampler draws from."""
    logits = row / used.temp if used is not None else row
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def bits(probs: Row) -> float:
    """Entropy."""
    kept = probs[probs > 0]
    return float(-(kept * np.log2(kept)).sum())


def close(shown: str, true: float, what: str, by: float = 0.0052) -> None:
    """A number as it was painted is the true one, rounded."""
    number = float(re.sub(r"[<>%\s]", "", shown))
    assert abs(number - true) <= by + (0.01 if shown[0] in "<>" else 0), f"{what}: {shown}, true {true:.4f}"


class Looking:
    """A person at the screen who computes everything anew."""

    def __init__(self, rig: Rig, terminal: Terminal, told: Told) -> None:
        self.rig, self.terminal, self.told = rig, terminal, told

    @property
    def settled(self) -> bool:
        """Whether nothing is under way, and all that is known is painted."""
        app = self.rig.app
        queries = app.controller.queries
        asking = queries._explain.waiting or queries._what_if.waiting
        return (
            app.controller.resting
            and not (asking or app.inbox.waiting or app.main._stale)
            and self.terminal.text == self.rig.screen_text()
        )

    async def settle(self) -> None:
        await self.rig.until(lambda: self.settled, PATIENCE)
        await self.rig.pilot.pause()
        await self.rig.until(lambda: self.settled, PATIENCE)

    def lines(self, kind: type[Widget]) -> list[str]:
        """The lines of a panel with its frame; none where it is hidden."""
        panel = self.rig.app.main.query_one(kind)
        if (
            not panel.display
            or not panel.region.area
            or panel not in self.rig.app.main._compositor.visible_widgets
        ):
            return []
        region = panel.region
        lines = self.terminal.text.split("\n")[region.y : region.bottom]
        return [line.ljust(region.right)[region.x : region.right] for line in lines]

    # ---- what was painted ---------------------------------------------------------------------

    def check(self) -> None:
        """Compare every number with what it belongs to."""
        timeline, path = self.rig.timeline, self.told.path
        assert [item.node for item in timeline.items] == path
        self._header(path)
        if not isinstance(self.rig.app.screen, SamplingDialog):
            self._kv(path)
            self._steps(path)
        slot = timeline.slot
        node = path[slot - 1] if slot else 0
        item = self.told.tokens[path[slot]] if slot < len(path) else None
        if isinstance(item, PromptToken) or node not in self.told.rows:
            return
        used = self.told.in_force if item is None else self.told.made[item.node]
        row = self.told.rows[node]
        if not isinstance(self.rig.app.screen, SamplingDialog):
            self._candidates(row, used)
        tried = timeline.trial.settings if timeline.trial is not None else used
        self._sampler(row, tried)

    def _header(self, path: Sequence[int]) -> None:
        line = self.lines(HeaderLine)[0]
        if shown := re.search(r"T ([\d.]+)", line):
            close(shown[1], self.told.in_force.temp, line)
        if shown := re.search(r"context (\d+)/", line):
            assert int(shown[1]) == len(path), line
        if shown := re.search(r"DECODE step (\d+)", line):
            assert int(shown[1]) == sum(isinstance(self.told.tokens[node], Step) for node in path), line

    def _kv(self, path: Sequence[int]) -> None:
        lines = self.lines(KVPanel)
        if lines and (shown := re.search(r"KV cache · (\d+) tokens", lines[0])):
            slot = self.rig.timeline.slot
            assert int(shown[1]) == (self.told.held[path[slot]] if slot < len(path) else len(path)), lines[0]

    def _steps(self, path: Sequence[int]) -> None:
        lines = self.lines(StepsPanel)
        steps = [each for node in path if isinstance(each := self.told.tokens[node], Step)]
        probs = [float(shares(self.told.rows[step.parent])[step.id]) for step in steps]
        for line in lines:
            if shown := re.match(r"│[▶ ] +(\d+) .*? ([<>]?[\d.]+ %) +([\d.]+) ", line):
                prob = probs[int(shown[1]) - steps[0].index - 1]
                close(shown[2], prob * 100, line)
                close(shown[3], -np.log2(prob), line)
        if steps and lines and (shown := re.search(r"([\d.]+) bits a token", lines[-1])):
            close(shown[1], float(np.mean(-np.log2(probs))), lines[-1])

    def _candidates(self, row: Row, used: Settings) -> None:
        lines = self.lines(CandidatesPanel)
        if not lines:
            return
        model, sampler = shares(row), shares(row, used)
        if shown := re.search(r"model entropy ([\d.]+) bits", lines[0]):
            close(shown[1], bits(model), lines[0])
        if shown := re.search(r"sampler entropy ([\d.]+) bits", lines[-1]):
            close(shown[1], bits(sampler), lines[-1])
        count = 0
        for line in lines[1:-1]:
            if shown := re.search(r" ([<>]?[\d.]+ %) +([<>]?[\d.]+ %) +(\d+(?:\s\d{3})?) +(\d+) .$", line):
                count += 1
                close(shown[1], model[int(shown[4])] * 100, line)
                close(shown[2], sampler[int(shown[4])] * 100, line)
                assert int(re.sub(r"\s", "", shown[3])) == 1 + (row > row[int(shown[4])]).sum(), line
        if count and (shown := re.search(r"(\d+) more rows", lines[-1])):
            assert int(shown[1]) + count == len(self.rig.app.main.query_one(CandidatesPanel)._rows), lines

    def _sampler(self, row: Row, used: Settings) -> None:
        """The last column is what was, or would be, drawn from; a row is known by its logit and the model's share."""
        lines = self.lines(SamplerPanel)
        model, final = shares(row) * 100, shares(row, used) * 100
        for line in lines[1:-1]:
            if "others" not in line and (
                shown := re.search(r" (-?\d+\.\d\d) +([<>]?[\d.]+) .* ([<>]?[\d.]+) .$", line)
            ):
                ids = np.flatnonzero(np.abs(row - float(shown[1])) <= 0.0052)
                own = [id for id in ids if agrees(shown[2], model[id])]
                assert own, line
                assert any(agrees(shown[3], final[id]) for id in own), (line, used.temp)


def agrees(shown: str, true: float) -> bool:
    """Whether a painted number is the true one, rounded."""
    try:
        close(shown, true, "")
    except AssertionError:
        return False
    return True


async def act(looking: Looking, action: str | tuple[str, object]) -> None:
    """Do one thing, and look at every number when nothing moves any more."""
    rig = looking.rig
    match action:
        case ("resize", (int(columns), int(rows))):
            rig.resize(columns, rows)
        case ("apply" | "try" as what, str(temp)):
            await rig.press("s")
            rig.app.screen.query_one("#field-temp", SafeInput).value = temp
            await looking.settle()
            looking.check()
            await rig.press("ctrl+s" if what == "apply" else "escape")
        case "choose":
            await rig.press("down", "enter")
        case str(key):
            await rig.press(key)
    await looking.settle()
    looking.check()


def live_through(actions: Sequence[str | tuple[str, object]]) -> None:
    """Begin after a prompt, and do some things."""
    app = InspectorApp(
        LoadSettings("pocket", record_logits=True), BEGINS, "Once upon a time", False, begins=Preferences()
    )
    told = Told(app)

    async def body() -> None:
        async with app.run_test(size=SIZES[0]) as pilot:
            looking = Looking(Rig(pilot, FakeEngine(), Session()), Terminal(app), told)
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
    "space", "r", ("apply", "0.5"), ("resize", (120, 33)), "left", "left", ("apply", "2.5"), "w", "space",
    ("try", "0.5"), "u", "home", ("resize", (160, 50)), "U", "choose", "right_square_bracket", "backspace",
)  # fmt: skip
"""Each action at least once."""


def test_every_number_belongs_to_what_is_on_show() -> None:
    live_through(WALK)


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

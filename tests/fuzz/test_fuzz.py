"""Random use ends nothing and leaves nothing stuck: some 800 actions here, 40,000 more with `-m slow`."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.state.timeline import Timeline
from tests.fuzz.__main__ import KINDS, host_in
from tests.fuzz.actions import MODES, TABLE, Action, Scenario, Script, scripts
from tests.fuzz.driver import Outcome, play, run, shortest
from tests.fuzz.faults import Fault, Host
from tests.fuzz.sandbox import sandbox
from tests.inspector.painting import painting


def driven(seed: int, keys: int, pty: bool = False, kinds: tuple[str, ...] = KINDS) -> Outcome:
    """Random use of the program; whatever goes wrong is told with the command that does it again."""
    with sandbox() as folder, painting():
        outcome = run(host_in(folder, pty), seed, keys, kinds, minimise=False)
    command = f"python -m tests.fuzz --seed {seed} --keys {keys}{' --pty' * pty} --kinds {' '.join(kinds)}"
    assert not outcome.failures, "\n\n".join(
        [command, *(f"{fault.detail}\n{fault.signature}" for _, fault in outcome.failures)]
    )
    return outcome


@pytest.mark.wide(1)
@pytest.mark.parametrize("keys", [30, pytest.param(280, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_random_use_ends_nothing(kind: str, keys: int) -> None:
    driven(1, keys, kinds=(kind,))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODES)
def test_random_use_of_a_mode_ends_nothing(kind: str) -> None:
    driven(1, 60, kinds=(kind,))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODES)
def test_random_use_of_a_mode_ends_nothing_for_long(kind: str) -> None:
    driven(2, 2000, kinds=(kind,))


@pytest.mark.parametrize("keys", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_random_use_on_a_terminal_ends_nothing(keys: int) -> None:
    driven(1, keys, pty=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_random_use_ends_nothing_for_long(seed: int) -> None:
    driven(seed, 1800)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_random_use_on_a_terminal_ends_nothing_for_long(seed: int) -> None:
    driven(seed, 200, pty=True)


# ---- the driver itself ------------------------------------------------------------------------


class FaultyHost:
    """Breaks at an enter some time after an `s`; otherwise as a program that stays."""

    def __init__(self) -> None:
        self.visits: dict[str, int] = {}
        self.over = self.lost = False
        self.plays = 0

    def start(self, scenario: Scenario) -> None:
        self._names: list[str] = []
        self.plays += 1

    def do(self, action: Action) -> Fault | None:
        self._names += action.values[:1] if action.kind == "key" else []
        broken = "s" in self._names and self._names[-1:] == ["enter"]
        return Fault("broken", "") if broken else None

    def probe(self) -> Fault | None:
        return None

    def end(self) -> Fault | None:
        return None

    def resident(self) -> int:
        return 0


def test_the_list_of_a_failure_is_made_short() -> None:
    host: Host = FaultyHost()
    outcome = run(host, 3, 20_000, KINDS, tell=lambda _: None)
    script, fault = outcome.failures[0]
    assert [action.values for action in script.actions] == [("s",), ("enter",)]
    assert play(host, script) == (fault, 2)
    assert shortest(host, script, fault) == script


def test_a_number_of_another_token_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """All panels but the steps show what the first token was drawn from."""
    look = Timeline._look

    def wrong(timeline: Timeline) -> None:
        look(timeline)
        if timeline.steps:
            timeline.distribution = timeline.steps[0].choice

    monkeypatch.setattr(Timeline, "_look", wrong)
    one = (Action("key", ("space",)), Action("records", (100,)), Action("settle"))
    script = Script(1, Scenario("held"), (*[Action("records", (1000,)), Action("settle")] * 5, *one, *one))
    with sandbox() as folder, painting():
        fault, _ = play(host_in(folder, False), script)
    assert fault.signature == "WrongNumberError(candidates) in screen_numbers.py:place"


def test_a_panel_that_is_painted_before_its_layout_is_painted_again() -> None:
    """Random use found this: the text stayed unpainted where the panel of the beginning had been."""
    told = Action("records", (1000,)), Action("records", (1000,)), Action("records", (60,))
    keys = *(Action("key", (key,)) for key in ("space", "J")), Action("settle"), Action("key", ("escape",))
    actions = Action("settle"), *told, *keys, Action("records", (100,)), Action("settle")
    scenario = Scenario("lesson", "pocket", "a " * 400, True, 0.0, (80, 24), True, False, 974)
    with sandbox() as folder, painting():
        fault, done = play(host_in(folder, False), Script(20261402, scenario, actions))
    assert fault is None, fault.detail
    assert done == len(actions)


def test_the_same_seed_draws_the_same_and_a_file_keeps_it(tmp_path: Path) -> None:
    first, second = (list(scripts(5, 900, KINDS)) for _ in range(2))
    assert first == second
    assert first != list(scripts(6, 900, KINDS))
    assert sum(script.keys for script in first) == 900
    first[0].write(tmp_path / "a.trace")
    assert Script.read(tmp_path / "a.trace") == first[0]


def test_all_keys_and_kinds_of_actions_are_drawn() -> None:
    actions = [action for script in scripts(1, 40_000, KINDS) for action in script.actions]
    assert {action.kind for action in actions} == {
        "key", "text", "paste", "bytes", "mouse", "resize", "records", "settle",
    }  # fmt: skip
    assert {*TABLE, "ctrl+q"} <= {action.values[0] for action in actions if action.kind == "key"}


def test_every_key_of_a_mode_is_one_that_a_terminal_sends() -> None:
    for script in scripts(1, 8_000, tuple(MODES)):
        assert all(action.sent for action in script.actions if action.kind == "key")
    assert {*MODES}.isdisjoint(KINDS)


def test_nothing_is_written_outside_the_sandbox(tmp_path: Path) -> None:
    from tests.fuzz.sandbox import inside

    with sandbox() as folder, inside(folder):
        Path("a.txt").write_text("x")
        Path("a.txt").rename("b.txt")
        for change in (lambda: (tmp_path / "c").write_text("x"), lambda: Path("b.txt").rename(tmp_path / "c"),
                       lambda: (tmp_path / "d").mkdir(), lambda: Path("../../../up").write_text("x")):  # fmt: skip
            with pytest.raises(PermissionError):
                change()
    assert list(tmp_path.iterdir()) == []

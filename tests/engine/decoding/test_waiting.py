"""How often the host waits for the device: once a step, and in a run only after the next forward was begun.

A GPU stands idle from a wait until the next forward is begun. What waits is `mx.eval`, `mx.synchronize`, and whatever
makes numbers of an array that was not evaluated; `mx.async_eval` begins work and waits for nothing. Counted on a CPU,
where the same calls are made once a forward is no longer begun layer by layer.

| | waits a step | before the next forward is begun |
|---|---|---|
| a step | 1 | it begins with the next key |
| a run whose tokens are guessed: greedy | 1 | 0 |
| a run of others, on a GPU | 2: the second one for the states beside the logits, which are there by then | 1 |
| a run of others, on a CPU, layer by layer | 1 | 1 |
| a batch | 1, for all lanes | 1 |
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import protocol
from engine.model.forward import Runner
from engine.protocol import BatchStep, Command, Step
from engine.settings import LoadSettings, Settings
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

STEPS = 12


class Waiting:
    """Notes each wait and each beginning, in order, while it is on."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._known: list[mx.array] = []
        """Arrays that were waited for; kept, so that no other one gets the id of one of them."""

    def wait(self, *arrays: Any) -> None:
        """Arrays are waited for."""
        self.events.append("wait")
        self._known += [each for each in arrays if isinstance(each, mx.array)]

    def read(self, array: Any) -> None:
        """Numbers are made of an array: a wait, unless it was waited for."""
        if isinstance(array, mx.array) and not any(each is array for each in self._known):
            self.wait(array)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    noted = Waiting()

    def before(holder: Any, name: str, note: Any) -> None:
        own = getattr(holder, name)

        def call(*args: Any, **named: Any) -> Any:
            note(*args)
            return own(*args, **named)

        monkeypatch.setattr(holder, name, call)

    before(mx, "eval", lambda *args: noted.wait(*(each for arg in args for each in _flat(arg))))
    before(mx, "synchronize", lambda *_: noted.wait())
    before(mx, "async_eval", lambda *_: noted.events.append("begin"))
    for name in ("item", "tolist"):
        before(mx.array, name, noted.read)
    for name in ("array", "asarray"):
        before(np, name, lambda *args: noted.read(args[0]) if args else None)
    return noted


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [each for part in value for each in _flat(part)]
    return [value]


def counted(
    zoo: Zoo, waiting: Waiting, settings: Settings, command: Command, kind: type[Any]
) -> tuple[list[str], int]:
    """What happened after the first steps, which make shapes and buffers, and the steps there were."""
    worker = Unthreaded(LoadSettings(model=str(zoo.path("llama"))), settings, "Once upon a time there was")
    worker.do(protocol.TakeStep())
    waiting.events.clear()
    records = worker.do(command)
    return waiting.events, sum(isinstance(record, kind) for record in records)


SAMPLED = Settings(temp=0.8, top_p=0.95, seed=7, max_tokens=STEPS + 1, stop=())
GREEDY = Settings(temp=0.0, max_tokens=STEPS + 1)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards are begun whole."""
    monkeypatch.setattr(Runner, "on_cpu", False)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_step_waits_once(zoo: Zoo, waiting: Waiting, settings: Settings) -> None:
    events, steps = counted(zoo, waiting, settings, protocol.TakeStep(), Step)
    assert (events, steps) == (["wait"], 1)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_run_waits_once_a_step_when_the_next_forward_was_begun(zoo: Zoo, waiting: Waiting) -> None:
    events, steps = counted(zoo, waiting, GREEDY, protocol.Run(), Step)
    assert steps > 6
    middle = "".join(event[0] for event in events)
    assert "bw" * (steps - 2) in middle
    assert events.count("wait") <= steps + 3


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_run_without_a_guess_waits_twice(zoo: Zoo, waiting: Waiting) -> None:
    events, steps = counted(zoo, waiting, SAMPLED, protocol.Run(), Step)
    assert 2 * steps - 2 <= events.count("wait") <= 2 * steps + 2


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("command", [protocol.TakeStep(), protocol.Run()], ids=["step", "run"])
def test_layer_by_layer_a_step_waits_once_behind_what_was_begun(
    zoo: Zoo, waiting: Waiting, settings: Settings, command: Command
) -> None:
    events, steps = counted(zoo, waiting, settings, command, Step)
    assert events.count("wait") <= steps + 2
    assert events.count("begin") >= steps


def test_a_batch_waits_once_a_step_for_all_lanes(zoo: Zoo, waiting: Waiting) -> None:
    lanes = tuple(protocol.LanePrompt(text) for text in ("Once upon", "A dog", "The cat", "One day"))
    started = protocol.StartBatch(lanes, steps=STEPS)
    events, steps = counted(zoo, waiting, GREEDY, started, BatchStep)
    assert steps == STEPS
    assert events.count("wait") <= steps + 2 * len(lanes) + 4, "those beyond a step are of the prompts"

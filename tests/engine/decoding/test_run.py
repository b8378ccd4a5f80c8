"""A run back to back tells what single steps tell, for every kind of cache, whenever it is broken off."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from threading import Event

import numpy as np
import pytest

from engine.decoding.run import paced, run
from engine.model.forward import never
from engine.protocol import Step
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.session.test_walks import KINDS
from tests.zoo import Zoo

PROMPT = [5, 77, 300, 12, 9, 1000, 44, 8]


def plain(step: Step) -> Step:
    """A step without what differs from run to run: times and memory."""
    return replace(step, ms=None, memory=None)  # type: ignore[arg-type]


def begun(zoo: Zoo, kind: str, **settings: object) -> Session:
    name, options, _ = KINDS[kind]
    session = Session(zoo.load(name, **options), Settings(**settings))  # type: ignore[arg-type]
    list(session.prefill("", PROMPT, echo=False))
    return session


@pytest.mark.wide(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_a_run_tells_what_steps_tell(zoo: Zoo, kind: str, temp: float) -> None:
    settings = {"temp": temp, "top_p": 0.95, "seed": 3, "max_tokens": 30}
    by_steps, by_run = begun(zoo, kind, **settings), begun(zoo, kind, **settings)
    steps = [by_steps.step() for _ in range(30)]
    ran = list(run(by_run, never))
    assert len(ran) == 30 or ran[-1].id in by_run.tokens.eos_ids
    assert [plain(step) for step in ran] == [plain(step) for step in steps[: len(ran)]]
    assert np.array_equal(by_run.kv.reading().offset, len(PROMPT) + len(ran))


@pytest.mark.wide(1)
@pytest.mark.parametrize("kind", ["plain float32", "quantized 8 bits", "rotating", "recurrent"])
def test_a_run_broken_off_anywhere_goes_on_as_steps(zoo: Zoo, kind: str) -> None:
    expected = [begun(zoo, kind, temp=1.0, seed=5)]
    steps = [expected[0].step() for _ in range(12)]
    for cut in range(1, 8):
        session = begun(zoo, kind, temp=1.0, seed=5)
        taken = list(islice(run(session, never), cut))  # closed while the next forward is under way
        assert session.kv.offset == len(PROMPT) + cut
        taken += [session.step() for _ in range(12 - cut)]
        assert [plain(step) for step in taken] == [plain(step) for step in steps]


def test_a_run_ends_at_a_stop_and_goes_on_past_it(zoo: Zoo) -> None:
    session = begun(zoo, "plain float32", max_tokens=4)
    assert [step.index for step in run(session, never)] == [0, 1, 2, 3]
    assert [step.index for step in run(session, never)] == [4, 5, 6, 7]


def test_a_pace_is_kept_and_a_cancel_cuts_the_wait_short(zoo: Zoo) -> None:
    session, cancel = begun(zoo, "plain float32"), Event()
    steps = paced(session, 0.01, cancel, cancel.is_set)
    next(steps)
    cancel.set()
    assert list(steps) == []  # would wait 100 s

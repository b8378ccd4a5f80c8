"""Sweeps measure every point as often as asked for, on what the model can do, and leave sessions alone."""

from __future__ import annotations

import sys

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, SettingsError
from engine.measuring import sweeps
from engine.measuring.machine import machine
from engine.measuring.sweeps import sweep
from engine.model import blas
from engine.protocol import Measuring, Swept
from engine.sweep_settings import SweepSettings
from tests.engine.sessions import begun
from tests.zoo import Zoo

SMALL = SweepSettings(("ttft", "tpot", "batch", "inspection"), rounds=2, steps=3, longest=40, largest_batch=4)


def swept(zoo: Zoo, name: str, settings: SweepSettings = SMALL) -> tuple[list[Measuring], Swept]:
    *progress, end = sweep(zoo.load(name), settings, lambda: False)
    assert isinstance(end, Swept)
    return [each for each in progress if isinstance(each, Measuring)], end


def test_every_point_is_measured_in_every_round(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "bound", lambda facts: ("It is bound.",))
    progress, end = swept(zoo, "llama")
    places = [(point.sweep, point.at) for point in end.points]
    assert places == [
        ("ttft", 16), ("ttft", 32), ("ttft", 40), ("tpot", 16), ("tpot", 32), ("tpot", 40),
        ("batch", 1), ("batch", 2), ("batch", 4), ("inspection", 3),
    ]  # fmt: skip
    assert [each.done for each in progress] == list(range(3 * len(places)))
    assert {each.total for each in progress} == {3 * len(places)}
    assert all(len(figure.values) == 2 for point in end.points for figure in point.figures)
    assert all(value > 0 for point in end.points for figure in point.figures for value in figure.values)
    assert end.notes == ("It is bound.",)


@pytest.mark.wide(1)
@pytest.mark.skipif(sys.platform != "linux", reason="MLX's BLAS is replaced on Linux alone")
@pytest.mark.parametrize(
    ("name", "held", "ways"),
    [
        pytest.param("pocket", "bfloat16", "float32", marks=pytest.mark.slow),
        ("llama:bfloat16", "bfloat16", "float32"),
        ("llama:4bit", "4-bit, group 32, affine", "dequantized"),
    ],
)
def test_every_way_to_multiply_is_measured_and_the_models_own_comes_back(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str, held: str, ways: str
) -> None:
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    loaded = zoo.load(name)
    _, end = swept(zoo, name, SweepSettings(("blas",), rounds=1, steps=2))
    fast = blas.install("auto").name
    assert [point.label for point in end.points] == [
        f"{held}, bundled BLAS", f"{ways}, bundled BLAS", f"{ways}, {fast}",
    ]  # fmt: skip
    assert all(value > 0 for point in end.points for figure in point.figures for value in figure.values)
    assert end.machine.blas == loaded.facts.blas
    monkeypatch.setattr(blas, "candidates", lambda: iter(()))
    _, end = swept(zoo, name, SweepSettings(("blas",), rounds=1, steps=2))
    assert end.points == ()
    assert end.notes == ("blas can't be measured with this model: there is no fast BLAS here",)
    monkeypatch.undo()
    blas.install("auto")


@pytest.mark.skipif(sys.platform != "linux", reason="MLX's BLAS is replaced on Linux alone")
def test_a_window_that_is_too_short_is_said(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    _, end = swept(zoo, "pocket", SweepSettings(("blas",), rounds=1, steps=500))
    assert end.points == ()
    assert "its context window holds no 256 tokens" in end.notes[0]


def test_results_and_time_left_come_from_the_first_counted_round_on(zoo: Zoo) -> None:
    told = list(sweep(zoo.load("llama"), SweepSettings(("ttft",), 2, 3, 40, 4), lambda: False))
    progress = [each for each in told if isinstance(each, Measuring)]
    results = [each for each in told if isinstance(each, Swept)]
    assert [each.left_ms is None for each in progress] == [True] * 3 + [False] * 6
    left = [each.left_ms or 0.0 for each in progress[3:]]
    assert all(ms > 0 for ms in left)
    assert [len(each.points) for each in results] == [1, 2, 3, 3, 3, 3]
    assert [each.last for each in results] == [False] * 5 + [True]
    assert [len(point.figures[0].values) for point in results[3].points] == [2, 1, 1]


def test_kv_bytes_are_those_of_the_formula(zoo: Zoo) -> None:
    _, end = swept(zoo, "llama", SweepSettings(("ttft", "batch"), 1, 3, 40, 4))
    each = zoo.load("llama").facts.kv_bytes_per_token
    used = {point.at: point.figures[2].median for point in end.points if point.sweep == "ttft"}
    assert used == {at: at * each for at in (16, 32, 40)}
    allocated = {point.at: point.figures[2].median for point in end.points if point.sweep == "batch"}
    assert allocated[4] == 4 * allocated[1]


def test_a_live_session_is_left_alone(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), [5, 6, 7], echo=None)
    logits, offset = session.logits.copy(), session.kv.offset
    swept(zoo, "llama", SweepSettings(rounds=1, steps=2, longest=32, largest_batch=2))
    assert np.array_equal(session.logits, logits)
    assert session.kv.offset == offset
    session.step()
    verified = session.verify()
    assert verified.largest_difference <= verified.rounding


def test_what_cannot_be_batched_is_said_and_the_rest_measured(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    settings = SweepSettings(("ttft", "batch"), 1, 2, 32, 2)

    class Unbatched:
        def __getattr__(self, name: str) -> object:
            return getattr(loaded.model, name)

        def __call__(self, tokens, cache=None):  # type: ignore[no-untyped-def]
            if tokens.shape[0] > 1:
                raise ValueError("no batches here")
            return loaded.model(tokens, cache=cache)

    from dataclasses import replace

    *_, end = sweep(replace(loaded, model=Unbatched()), settings, lambda: False)
    assert {point.sweep for point in end.points} == {"ttft"}
    assert end.notes[-1] == "batch can't be measured with this model: no batches here"


def test_it_can_be_cancelled_between_measurements(zoo: Zoo) -> None:
    seen = 0
    running = sweep(zoo.load("llama"), SMALL, lambda: seen >= 2)
    for _ in range(2):
        next(running)
        seen += 1
    with pytest.raises(Cancelled):
        next(running)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SweepSettings(sweeps=("speed",)), "there is no sweep 'speed'"),
        (SweepSettings(sweeps=()), "none was asked for"),
        (SweepSettings(rounds=0), "must be from 1 to 1,000, not 0"),
        (SweepSettings(largest_batch=17), "must be from 1 to 16, not 17"),
    ],
)
def test_what_cannot_be_measured_is_refused(zoo: Zoo, settings: SweepSettings, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        next(sweep(zoo.load("llama"), settings, lambda: False))


def test_the_machine_is_named_as_mlx_names_it(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Mac `platform.processor()` is `arm`, and on CUDA the CPU is not what computes."""
    monkeypatch.setattr(
        mx, "device_info", lambda: {"device_name": "Apple M2 Pro", "architecture": "applegpu_g14s"}
    )
    assert machine(zoo.load("llama").facts).processor == "Apple M2 Pro"

"""Models that take more memory than there is: told before their weights are read."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.model import load as loading
from engine.model import memory
from engine.model.load import load
from engine.model.memory import free_bytes, warning_of
from engine.records import Loading
from engine.settings import LoadSettings
from tests.zoo import Zoo

GIB = 2**30


@pytest.mark.parametrize(("needed", "free", "warned"), [(9, 10, False), (9.1, 10, True), (50, None, False)])
def test_weights_that_leave_no_room_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, needed: float, free: int | None, warned: bool
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: None if free is None else free * GIB)
    told = warning_of(int(needed * GIB))
    assert bool(told) == warned
    if warned:
        assert told.startswith("The weights take 9.1 GiB, and 10.0 GiB are free")


def test_it_is_told_before_the_first_tensor_is_read_and_stays_in_the_facts(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**20)
    found: list[Loading] = []
    loaded = load(LoadSettings(), found.append)
    weights = [each for each in found if each.stage == "weights"]
    assert weights[0].done == 0
    assert {each.warning for each in weights} == {loaded.facts.notes[-1]}
    assert "the machine will swap" in weights[0].warning
    monkeypatch.undo()
    assert not any("swap" in note for note in zoo.load("pocket").facts.notes)


def test_on_metal_what_is_free_is_what_it_recommends_and_that_may_be_wired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Metal is not here: its answers are, as mlx_lm reads them."""
    wired: list[int] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 20 * GIB})
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIB)
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)
    assert free_bytes() == 17 * GIB
    monkeypatch.setattr(loading, "warning_of", lambda needed: "")
    load(LoadSettings())
    assert wired == [20 * GIB]


def test_elsewhere_nothing_is_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    wired: list[int] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "cpu"})
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)
    memory.keep_in_memory()
    assert wired == []
    monkeypatch.setattr(memory, "memory_available", lambda: None)
    monkeypatch.setattr(memory, "memory_installed", lambda: None)
    assert free_bytes() is None

"""Models that take more memory than there is: told before their weights are read."""

from __future__ import annotations

import sys
from pathlib import Path

import mlx.core as mx
import pytest

from engine import memory as host
from engine.model import load as loading
from engine.model import memory
from engine.model.load import load
from engine.model.memory import free_bytes, warning_of
from engine.protocol import Loading
from engine.settings import LoadSettings
from tests.zoo import Zoo

GIB = 2**30
METAL: dict[str, str | int] = {
    "device_name": "Apple M2 Pro", "architecture": "applegpu_g14s", "max_buffer_length": 16 * GIB,
    "max_recommended_working_set_size": 20 * GIB, "memory_size": 32 * GIB, "resource_limit": 499000,
}  # fmt: skip
CUDA: dict[str, str | int] = {
    "device_name": "NVIDIA H200", "uuid": "GPU-1", "architecture": "sm_90", "pci_bus_id": "0000:01:00.0",
    "compute_capability_major": 9, "compute_capability_minor": 0, "free_memory": 80 * GIB, "total_memory": 139 * GIB,
}  # fmt: skip
"""The keys of MLX 0.32's device_info() on each backend, as its sources have them; neither is here."""
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               65536.
Pages active:                            300000.
Pages inactive:                          131072.
Pages speculative:                        65536.
Pages throttled:                              0.
Pages wired down:                        150000.
Pages purgeable:                           1234.
"""
"""As a Mac prints it: 4 GiB that a program can take."""


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
    monkeypatch.setattr(mx, "device_info", lambda: METAL)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIB)
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)
    for available, free in ((None, 17), (30, 17), (5, 5)):
        monkeypatch.setattr(memory, "memory_available", lambda of=available: of and of * GIB)
        assert free_bytes() == free * GIB
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


def test_on_cuda_what_is_free_is_what_the_gpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's memory nor what this process holds changes it."""
    monkeypatch.setattr(mx, "device_info", lambda: CUDA)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIB)
    monkeypatch.setattr(memory, "memory_available", lambda: GIB)
    assert free_bytes() == 80 * GIB
    assert warning_of(70 * GIB) == ""
    assert "80.0 GiB are free" in warning_of(75 * GIB)
    assert load(LoadSettings()).facts.free_bytes == 80 * GIB


def test_a_listing_counts_the_gpus_memory_where_mlx_computes_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MLX isn't imported for it: the driver's own program is asked, for the GPU that MLX takes."""
    monkeypatch.setattr(host.metadata, "version", {"mlx-cuda-12": "0.32.4"}.__getitem__)
    monkeypatch.setattr(host.metadata, "PackageNotFoundError", KeyError)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.memory_for_models() is None
    asked = tmp_path / "nvidia-smi"
    asked.write_text(
        '#!/bin/sh\ncase "$*" in *"memory.free"*"--id=3"*) echo 4096 ;; *) echo "[N/A]" ;; esac\n'
    )
    asked.chmod(0o755)
    assert host.memory_for_models() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert host.memory_for_models() == 4 * GIB


def test_a_listing_on_a_mac_counts_what_is_free_and_no_more_than_metal_wires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(host, "memory_installed", lambda: 24 * GIB)
    for told, free in ((VM_STAT, 4 * GIB), (VM_STAT.replace("131072", "9131072"), 16 * GIB), ("", 16 * GIB)):
        monkeypatch.setattr(host, "_output", lambda *_, told=told: told)
        assert host.memory_for_models() == free

"""The type that a model computes in, and the memory that it takes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import mlx.core as mx
import pytest

from engine import memory as host
from engine import memory as resident
from engine.errors import SettingsError
from engine.model import load as loading
from engine.model import weights
from engine.model.load import load
from engine.model.weights import dtype_of, free_bytes, set_dtype, warning_of
from engine.protocol import Loading
from engine.settings import LoadSettings, check_load
from tests.zoo import Zoo


def test_the_files_type_is_kept_unless_another_is_asked_for(zoo: Zoo) -> None:
    own = zoo.load("llama").facts.dtype
    assert zoo.load("llama", dtype="auto", blas="bundled").facts.dtype == own
    assert zoo.load("llama", dtype="file").facts.notes == ()


@pytest.mark.parametrize("wanted", ["float32", "bfloat16", "float16"])
def test_a_type_that_is_asked_for_is_computed_in_and_told(zoo: Zoo, wanted: str) -> None:
    own, loaded = zoo.load("llama").facts, zoo.load("llama", dtype=wanted)
    assert loaded.facts.dtype == wanted == dtype_of(loaded.model)
    assert loaded.facts.notes == ()
    assert loaded.facts.stored == ("" if wanted == own.dtype else own.dtype)
    if wanted != own.dtype:
        times = {"float32": 4, "bfloat16": 2, "float16": 2}
        assert loaded.facts.kv_bytes_per_token is not None
        assert loaded.facts.kv_bytes_per_token * times[own.dtype] == own.kv_bytes_per_token * times[wanted]


def test_auto_takes_float32_with_a_fast_blas_where_memory_allows_it(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = zoo.load("llama", dtype="bfloat16").model
    assert set_dtype(model, "auto", fast_blas=False) == ()
    assert dtype_of(model) == "bfloat16"
    monkeypatch.setattr(weights, "memory_available", lambda: 1000)
    (told,) = set_dtype(model, "auto", fast_blas=True)
    assert "more than half" in told
    assert dtype_of(model) == "bfloat16"
    monkeypatch.setattr(weights, "memory_available", lambda: None)
    assert set_dtype(model, "auto", fast_blas=True) == ()
    assert dtype_of(model) == "float32"


def test_auto_leaves_quantized_weights_and_what_was_said_of_their_scales(zoo: Zoo) -> None:
    model = zoo.load("llama:4bit", dtype="bfloat16", float32_scales=False).model
    assert dtype_of(model) == "bfloat16"
    assert set_dtype(model, "auto", fast_blas=True) == ()
    assert dtype_of(model) == "bfloat16"


def test_quantized_weights_are_unpacked_when_asked_for(zoo: Zoo) -> None:
    packed, plain = zoo.load("llama:4bit"), zoo.load("llama:4bit", dtype="dequantized")
    assert packed.facts.quantization == plain.facts.stored == "4-bit, group 32, affine"
    assert (plain.facts.quantization, plain.facts.dtype, plain.facts.notes) == (None, "float32", ())
    assert plain.facts.weight_bytes > packed.facts.weight_bytes
    ids = mx.array([[5, 6, 7, 8]])
    difference = mx.abs(plain.model(ids) - packed.model(ids)).max().item()
    assert difference < 1e-4  # the same weights, multiplied in another order


def test_plain_weights_can_not_be_unpacked_and_that_is_said(zoo: Zoo) -> None:
    loaded = zoo.load("llama", dtype="dequantized")
    assert "not quantized" in loaded.facts.notes[0]
    assert loaded.facts.dtype == zoo.load("llama").facts.dtype


@pytest.mark.parametrize(("field", "value"), [("dtype", "int8"), ("blas", " ")])
def test_what_can_not_be_meant_is_refused(field: str, value: str) -> None:
    with pytest.raises(SettingsError, match=field):
        check_load(LoadSettings(**{field: value}))  # type: ignore[arg-type]


# ---- memory ------------------------------------------------------------------------------------

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
    monkeypatch.setattr(weights, "free_bytes", lambda: None if free is None else free * GIB)
    told = warning_of(int(needed * GIB))
    assert bool(told) == warned
    if warned:
        assert told.startswith("The weights take 9.1 GiB, and 10.0 GiB are free")


def test_it_is_told_before_the_first_tensor_is_read_and_stays_in_the_facts(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "free_bytes", lambda: 2**20)
    found: list[Loading] = []
    loaded = load(LoadSettings(), found.append)
    told = [each for each in found if each.stage == "weights"]
    assert told[0].done == 0
    assert {each.warning for each in told} == {loaded.facts.notes[-1]}
    assert "the machine will swap" in told[0].warning
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
        monkeypatch.setattr(weights, "memory_available", lambda of=available: of and of * GIB)
        assert free_bytes() == free * GIB
    monkeypatch.setattr(loading, "warning_of", lambda needed: "")
    load(LoadSettings())
    assert wired == [20 * GIB]


def test_elsewhere_nothing_is_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    wired: list[int] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "cpu"})
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)
    weights.keep_in_memory()
    assert wired == []
    monkeypatch.setattr(weights, "memory_available", lambda: None)
    monkeypatch.setattr(weights, "memory_installed", lambda: None)
    assert free_bytes() is None


def test_on_cuda_what_is_free_is_what_the_gpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's memory nor what this process holds changes it."""
    monkeypatch.setattr(mx, "device_info", lambda: CUDA)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIB)
    monkeypatch.setattr(weights, "memory_available", lambda: GIB)
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


# ---- resident memory ---------------------------------------------------------------------------


def test_resident_bytes_grow_with_what_is_held():
    before = resident.resident()
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    assert resident.resident() >= before + 32 * 2**20
    del held


def test_a_system_without_the_file_tells_the_most_so_far(monkeypatch):
    monkeypatch.setattr(resident, "STATM", "/nowhere")
    assert resident.reader()() >= 2**20


def test_reading_it_costs_next_to_nothing():
    begun = time.perf_counter()
    for _ in range(1000):
        resident.resident()
    assert (time.perf_counter() - begun) / 1000 < 200e-6  # about 2 us; a busy machine is forgiven

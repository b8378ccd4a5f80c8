"""The type that a model computes in, and the memory that it takes."""

from __future__ import annotations

import mmap
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear

from engine import memory as host
from engine import memory as resident
from engine.errors import LoadError, SettingsError
from engine.model import facts as weights
from engine.model import load as loading
from engine.model.facts import dtype_of, free_bytes, quantization_of, set_dtype, warning_of
from engine.model.load import load
from engine.patches import allowed
from engine.protocol import Loading
from engine.setting import check
from engine.settings import LoadSettings
from tests import synthetic
from tests.zoo import CONFIGS, Zoo

fast = pytest.mark.skipif(
    sys.platform != "linux" or not allowed("blas"), reason="MLX's BLAS is replaced on Linux alone"
)
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


@fast
@pytest.mark.parametrize("name", ["llama:4bit", "mixtral:4bit", "qwen3-next:4bit"])
def test_auto_unpacks_quantized_weights_where_they_fit_and_says_so(zoo: Zoo, name: str) -> None:
    packed, plain = zoo.load(name), zoo.load(name, dtype="auto")
    facts = plain.facts
    assert (facts.quantization, facts.dtype, facts.stored) == (None, "float32", packed.facts.quantization)
    assert facts.quantized == packed.facts.quantized == packed.facts.quantization
    assert facts.weight_bytes == 4 * facts.parameters == 4 * packed.facts.parameters
    (told,) = facts.notes
    assert "4-bit, group 32, affine in the files, are unpacked to float32" in told
    assert f"{facts.weight_bytes / 2**20:.1f} MiB in place of" in told
    assert "--dtype file keeps them packed" in told
    ids = mx.array([[5, 6, 7, 8]])
    assert mx.abs(plain.model(ids) - packed.model(ids)).max().item() < 1e-4


@fast
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama:4bit", {"dtype": "auto", "blas": "bundled"}),  # which is no faster with plain ones
        ("llama:4bit", {"dtype": "auto", "float32_scales": True}),
        ("llama:4bit", {"dtype": "auto", "float32_scales": False}),
        ("llama:4bit", {"dtype": "file"}),
        ("llama:4bit", {"dtype": "bfloat16"}),
    ],
)
def test_quantized_weights_stay_packed_where_that_was_asked_for_or_unpacking_brings_nothing(
    zoo: Zoo, name: str, settings: dict[str, Any]
) -> None:
    facts = zoo.load(name, **settings).facts
    assert facts.quantization == zoo.load(name).facts.quantization
    assert not any("unpacked" in note for note in facts.notes)
    scales = settings.get("float32_scales") is not False and settings["dtype"] in ("auto", "file")
    assert any("float32 scales" in note for note in facts.notes) == scales


@fast
def test_weights_that_would_take_half_of_the_memory_unpacked_stay_packed_and_that_is_said(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, needed = LoadSettings(str(zoo.path("llama:4bit"))), 4 * zoo.load("llama:4bit").facts.parameters
    monkeypatch.setattr(weights, "memory_available", lambda: 2 * needed - 1)
    facts = load(settings).facts
    assert facts.quantization == "4-bit, group 32, affine"
    assert facts.notes[0].startswith("Computed as they are, in 4-bit, group 32, affine: unpacked to float32")
    assert "--dtype dequantized asks for it" in facts.notes[0]
    for free in (2 * needed, None):
        monkeypatch.setattr(weights, "memory_available", lambda free=free: free)
        assert load(settings).facts.quantization is None


@pytest.mark.parametrize("device", [CUDA, METAL], ids=["CUDA", "Metal"])
def test_on_a_gpu_quantized_weights_stay_as_they_are(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, device: dict[str, str | int]
) -> None:
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(mx, "device_info", lambda: device)
    monkeypatch.setattr(loading, "maybe_set_recommended_wired_limit", lambda: None)
    facts = load(LoadSettings(str(zoo.path("llama:4bit")))).facts
    assert (facts.backend, facts.quantization, facts.stored) == ("gpu", "4-bit, group 32, affine", "")
    assert facts.notes == ()


def test_layers_that_no_group_divides_stay_plain_and_one_at_least_is_quantized() -> None:
    model = nn.Module()
    model.narrow, model.wide = nn.Linear(96, 8), nn.Linear(128, 8)
    weights.quantize(model, 4, 64)
    assert [weights.is_packed(each) for each in (model.narrow, model.wide)] == [False, True]
    del model["wide"]
    with pytest.raises(LoadError, match="No layer of this model can be divided into groups of 64"):
        weights.quantize(model, 4, 64)


def test_a_model_with_layers_that_mlx_lm_does_not_dequantize_stays_packed() -> None:
    model = nn.Module()
    model.plain, model.several = nn.Linear(64, 64), MultiLinear(64, 64, 2)
    nn.quantize(model, 32, 4)
    assert set_dtype(model, "auto", fast_blas=True) == ()
    assert weights.is_packed(model.plain)
    assert weights.is_packed(model.several)
    (told,) = set_dtype(model, "dequantized", fast_blas=True)
    assert told == "Some layers can't be dequantized and stay 4-bit, group 32, affine."


@fast
def test_bits_that_are_asked_for_are_kept(zoo: Zoo) -> None:
    facts = load(LoadSettings(str(zoo.path("llama"))), quantization=(4, 32)).facts
    assert facts.quantization == facts.quantized == "4-bit, group 32, affine"


def test_quantized_weights_are_unpacked_when_asked_for(zoo: Zoo) -> None:
    packed, plain = zoo.load("llama:4bit"), zoo.load("llama:4bit", dtype="dequantized")
    assert packed.facts.quantization == plain.facts.stored == "4-bit, group 32, affine"
    assert (plain.facts.quantization, plain.facts.dtype, plain.facts.notes) == (None, "float32", ())
    assert plain.facts.weight_bytes > packed.facts.weight_bytes
    ids = mx.array([[5, 6, 7, 8]])
    difference = mx.abs(plain.model(ids) - packed.model(ids)).max().item()
    assert difference < 1e-4  # the same weights, multiplied in another order


@pytest.mark.parametrize(("mode", "bits", "group"), [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)])
def test_weights_whose_scales_are_bytes_are_unpacked_to_float32_too(
    tmp_path: Path, mode: str, bits: int, group: int
) -> None:
    """MLX unpacks them to bfloat16; packed, their scales are no floating-point numbers."""
    synthetic.write(tmp_path / mode, CONFIGS["llama"], quantize=bits, group_size=group, mode=mode)
    path = str(tmp_path / mode)
    packed, plain = load(LoadSettings(path, dtype="file")), load(LoadSettings(path, dtype="dequantized"))
    stored = f"{bits}-bit, group {group}, {mode}"
    assert packed.facts.quantization == plain.facts.stored == stored
    assert (plain.facts.dtype, plain.facts.weight_bytes) == ("float32", 4 * plain.facts.parameters)
    for each in plain, packed:
        assert not any("float32 scales" in note for note in each.facts.notes)
    ids = mx.array([[5, 6, 7, 8]])
    assert mx.abs(plain.model(ids) - packed.model(ids)).max().item() < 1e-4


def test_weights_with_a_scale_for_a_whole_tensor_stay_packed(zoo: Zoo) -> None:
    """mlx_lm's `dequantize_model` leaves it out."""
    model = load(LoadSettings(str(zoo.path("mixtral:4bit")), dtype="file")).model
    switched = next(each for each in model.modules() if isinstance(each, QuantizedSwitchLinear))
    switched.global_scale = mx.ones(4)
    assert set_dtype(model, "auto", fast_blas=True) == ()
    assert quantization_of(model) is not None
    with pytest.raises(LoadError, match="a scale for a whole tensor"):
        set_dtype(model, "dequantized", fast_blas=True)


def test_plain_weights_can_not_be_unpacked_and_that_is_said(zoo: Zoo) -> None:
    loaded = zoo.load("llama", dtype="dequantized")
    assert "not quantized" in loaded.facts.notes[0]
    assert loaded.facts.dtype == zoo.load("llama").facts.dtype


@pytest.mark.parametrize(("field", "value"), [("dtype", "int8"), ("blas", " ")])
def test_what_can_not_be_meant_is_refused(field: str, value: str) -> None:
    with pytest.raises(SettingsError, match=field):
        check(LoadSettings(**{field: value}))  # type: ignore[arg-type]


# ---- memory ------------------------------------------------------------------------------------

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
        assert told.startswith("The weights take 9.1 GiB, and 10.0 GiB of the machine's memory are free")


@pytest.mark.parametrize(
    ("device", "of", "words"),
    [
        (
            CUDA,
            "gpu",
            "80.0 GiB of the GPU's memory are free: with the KV cache loading, or a later step, will end",
        ),
        (
            METAL,
            "metal",
            "17.0 GiB of what Metal recommends to take are free: with the KV cache macOS will swap",
        ),
        (
            {"device_name": "cpu"},
            "machine",
            "30.0 GiB of the machine's memory are free: with the KV cache the machine",
        ),
    ],
)
def test_whose_memory_it_is_and_what_happens_where_it_is_too_little(
    monkeypatch: pytest.MonkeyPatch, device: dict[str, str | int], of: str, words: str
) -> None:
    monkeypatch.setattr(mx, "device_info", lambda: device)
    monkeypatch.setattr(mx, "get_active_memory", lambda: 3 * GIB)
    monkeypatch.setattr(mx, "set_wired_limit", lambda limit: None)
    monkeypatch.setattr(weights, "memory_available", lambda: 30 * GIB)
    assert words in warning_of(100 * GIB)
    assert load(LoadSettings()).facts.memory_of == of


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
    monkeypatch.setattr(weights, "warning_of", lambda needed: "")
    load(LoadSettings())
    assert wired == [20 * GIB]


def test_elsewhere_nothing_is_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    wired: list[int] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "cpu"})
    monkeypatch.setattr(mx, "set_wired_limit", wired.append)
    load(LoadSettings())
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
    assert "80.0 GiB of the GPU's memory are free" in warning_of(75 * GIB)
    assert load(LoadSettings()).facts.free_bytes == 80 * GIB


def test_a_listing_counts_the_gpus_memory_where_mlx_computes_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MLX isn't imported for it: the driver's own program is asked, for the GPU that MLX takes."""
    monkeypatch.setattr(metadata, "version", {"mlx-cuda-12": "0.32.4"}.__getitem__)
    monkeypatch.setattr(metadata, "PackageNotFoundError", KeyError)
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


@pytest.mark.parametrize(
    ("of", "free", "installed", "room"),
    [
        ("machine", 8, 24, 8),
        ("machine", None, 24, 24),
        ("machine", None, None, None),
        ("metal", 8, 24, 8),
        ("metal", 20, 24, 16),
        ("metal", None, 24, 16),
        ("metal", 8, None, 8),
    ],
)
def test_the_room_for_models_is_what_is_free_or_else_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, of: str, free: int | None, installed: int | None, room: int | None
) -> None:
    monkeypatch.setattr(host, "memory_of", lambda: of)
    monkeypatch.setattr(host, "memory_available", lambda: free and free * GIB)
    monkeypatch.setattr(host, "memory_installed", lambda: installed and installed * GIB)
    assert host.memory_for_models() == (room and room * GIB)


def test_a_listing_on_a_mac_counts_what_is_free_and_no_more_than_metal_wires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(host, "memory_installed", lambda: 24 * GIB)
    for told, free in ((VM_STAT, 4 * GIB), (VM_STAT.replace("131072", "9131072"), 16 * GIB), ("", 16 * GIB)):
        monkeypatch.setattr(host, "_output", lambda *_, told=told: told)
        assert host.memory_for_models() == free


# ---- resident memory ---------------------------------------------------------------------------


@pytest.mark.skipif(
    sys.platform == "darwin", reason="macOS tells the most so far, which an earlier test may have held"
)
def test_resident_bytes_grow_with_what_is_held():
    before = resident.resident()
    # pages of its own: what malloc gives may be in memory already, freed by an earlier test
    with mmap.mmap(-1, 64 * 2**20) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert resident.resident() >= before + 32 * 2**20


def test_a_system_without_the_file_tells_the_most_so_far(monkeypatch):
    monkeypatch.setattr(resident, "STATM", "/nowhere")
    assert resident.reader()() >= 2**20


def test_reading_it_costs_next_to_nothing():
    begun = time.perf_counter()
    for _ in range(1000):
        resident.resident()
    assert (time.perf_counter() - begun) / 1000 < 200e-6  # about 2 us; a busy machine is forgiven

"""The facts of a model on the disk, held against an independent reading: MLX's own, and figures worked out by hand.

And against a loaded model of each of mlx_lm's families: a figure is right, or there is none. A dozen families, of every
way to keep keys and values, is in the usual suite; `-m slow` has the rest.
"""

from __future__ import annotations

import importlib
import os
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.errors import LoadError
from engine.memory import Room
from engine.models_on_disk import models as facts_on_disk
from engine.models_on_disk.models import (
    BY_KIND,
    KEEP_ALL,
    LATENT,
    LEFT_OUT,
    RECURRENT,
    UNGROUPED,
    DiskModel,
    KVSize,
    kv_size,
    listed,
)
from inspector.documents.disk_models import cells, facts
from tests.broken_models import CASES, copied
from tests.broken_models.breaking import put, safetensors
from tests.broken_models.places import CLOSED
from tests.engine.inside.looking import loaded
from tests.engine.models_on_disk import made_up
from tests.families import FAMILIES
from tests.system import python
from tests.zoo import Zoo

USUAL = (
    "cohere2", "deepseek_v2", "deepseek_v3", "exaone4", "falcon_h1", "gemma3n", "gemma4", "gpt_neox", "gpt_oss",
    "kimi_linear", "llama", "mamba2", "mistral3", "mixtral", "phi3", "qwen3", "qwen3_5", "qwen3_next",
)  # fmt: skip
KNOWN = KEEP_ALL | BY_KIND | UNGROUPED | LATENT | RECURRENT
"""Families of whose caches something is said."""


def one(path: Path) -> DiskModel:
    """The one model in a directory."""
    (found,) = listed([str(path)])
    return found


# ---- figures --------------------------------------------------------------------------------------


def test_a_plain_model(tmp_path: Path) -> None:
    found = one(made_up.model(tmp_path / "tiny"))
    assert (found.name, found.family, found.layers, found.context) == ("tiny", "llama", 2, 2048)
    assert found.weights.parameters == made_up.PARAMETERS
    assert found.weights.size == 2 * made_up.PARAMETERS
    assert (found.bits, found.weights.bits_a_parameter) == ("bf16", 16)
    assert found.kv == KVSize(2 * made_up.KV_NUMBERS)
    assert found.size == (tmp_path / "tiny" / "model.safetensors").stat().st_size
    assert (found.known, found.problem, found.spec) == (True, "", str(tmp_path / "tiny"))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("claim", [{"bits": 16, "group_size": 32}, {"bits": 4, "group_size": 32}])
def test_bits_are_those_of_the_arrays_whatever_the_config_claims(
    tmp_path: Path, bits: int, claim: Any
) -> None:
    found = one(made_up.model(tmp_path / "m", made_up.llama(bits=bits, group=32), quantization=claim))
    assert (found.weights.bits, found.weights.group_size) == ((bits,), 32)
    assert found.weights.parameters == made_up.PARAMETERS
    assert found.kv == KVSize(2 * made_up.KV_NUMBERS)


def test_weights_of_several_widths(tmp_path: Path) -> None:
    shapes = made_up.llama(bits=4, group=64)
    for layer in range(2):
        shapes |= made_up.packed(f"model.layers.{layer}.mlp.down_proj", 64, 128, 6, 64)
    found = one(made_up.model(tmp_path / "m", shapes))
    assert (found.weights.bits, found.bits) == ((4, 6), "4/6-bit")
    assert found.weights.parameters == made_up.PARAMETERS


@pytest.mark.parametrize(
    ("suffix", "dtype", "numbers", "bits"),
    [("qweight", "I32", 8, 4), ("weight_blocks", "U8", 2, 4), ("weight", "F8_E4M3", 1, 8)],
)
def test_the_packed_weights_of_other_formats_are_counted_as_parameters(
    tmp_path: Path, suffix: str, dtype: str, numbers: int, bits: int
) -> None:
    shapes = {
        (name.removesuffix("weight") + suffix if name.endswith("_proj.weight") else name): (
            (dtype, (rows[0], rows[1] // numbers)) if name.endswith("_proj.weight") else (kind, rows)
        )
        for name, (kind, rows) in made_up.llama().items()
    }
    claim = {"quant_method": "gptq", "bits": bits, "group_size": 64}
    found = one(made_up.model(tmp_path / "m", shapes, quantization_config=claim))
    assert (found.weights.parameters, found.weights.bits) == (made_up.PARAMETERS, (bits,))


@pytest.mark.parametrize("name", ["llama:4bit", "qwen3:8bit", "gpt2:4bit", "gemma3:bfloat16", "mamba2"])
def test_what_mlx_lm_loads_has_the_same_figures(zoo: Zoo, name: str) -> None:
    loaded = zoo.load(name).facts
    found = one(Path(loaded.path))
    assert found.weights.parameters == loaded.parameters
    assert found.weights.size == loaded.weight_bytes
    assert (found.layers, found.context) == (loaded.layers, loaded.context_window)
    assert found.kv.growing == (loaded.kv_bytes_per_token or 0)
    packed = f"{found.weights.bits[0]}-bit, group {found.weights.group_size}" if found.weights.bits else ""
    assert (loaded.quantization or "").startswith(packed)


def test_layers_with_a_window_add_nothing_beyond_it(zoo: Zoo) -> None:
    found = one(zoo.path("gemma3"))
    assert (found.kv.windowed, found.kv.window) == (found.kv.growing, 32)
    assert found.kv.at(100) == found.kv.growing * (100 + 32)


@pytest.mark.parametrize("size", [KVSize(10), KVSize(10, 30, 8), KVSize(0, 30, 8), KVSize(0)])
def test_the_context_that_fits_is_the_largest(size: KVSize) -> None:
    for room in range(0, 700, 7):
        tokens = size.tokens_in(room, 50)
        assert size.at(tokens) <= room
        assert tokens == 50 or size.at(tokens + 1) > room


def test_weights_and_context_share_the_memory(tmp_path: Path) -> None:
    found = one(made_up.model(tmp_path / "m"))
    weights = int(found.weights.size * 1.1)
    assert found.fits(weights) == 0
    assert found.fits(weights + 2 * made_up.KV_NUMBERS * 100) == 100
    assert found.fits(2**40) == 2048
    assert found.fits(None) is None


# ---- families ---------------------------------------------------------------------------------------


def test_families_are_those_that_mlx_lm_finds() -> None:
    import mlx_lm.models
    from mlx_lm.utils import MODEL_REMAPPING, _get_classes

    modules = [path.stem for path in Path(mlx_lm.models.__path__[0]).glob("*.py")]
    for name in [*modules, *MODEL_REMAPPING, "no-such-family", "../utils", "a/b", ""]:
        try:
            _get_classes({"model_type": name})
            loads = True
        except SystemExit:  # olmo's own package isn't there
            continue
        except (ValueError, AttributeError, TypeError):
            loads = False
        assert facts_on_disk.known_family(name) is loads, name


def test_an_unknown_family_is_said_to_be_so(tmp_path: Path) -> None:
    found = one(made_up.model(tmp_path / "m", model_type="x\x1b[2J" * 50))
    assert found.known is False
    assert found.problem.startswith("mlx_lm has no family x\x1b")
    assert not found.spec
    assert one(made_up.model(tmp_path / "m", model_type="own", model_file="own.py")).problem == ""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written."""
    return tmp_path_factory.mktemp("families")


@pytest.mark.wide(6)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in FAMILIES]
)
def test_the_figures_are_those_of_the_loaded_model(models: Path, family: str) -> None:
    try:
        facts = loaded(models, family).facts
    except LoadError:
        pytest.skip("mlx_lm runs it on Metal alone")
    (found,) = listed([facts.path])
    assert found.problem == ""
    assert (found.weights.parameters, found.weights.size) == (facts.parameters, facts.weight_bytes)
    assert found.context == facts.context_window
    assert (found.kv is None) is (family not in KNOWN)
    assert found.kv is None or found.kv.growing == (facts.kv_bytes_per_token or 0)


def test_numbers_that_configs_leave_out_are_those_of_mlx_lm() -> None:
    for family, numbers in LEFT_OUT.items():
        name = {"gemma3": "gemma3_text", "qwen3_5_moe": "qwen3_5"}.get(family, family)
        module = importlib.import_module(f"mlx_lm.models.{name}")
        classes = [each for each in vars(module).values() if is_dataclass(each) and isinstance(each, type)]
        usual = {field.name: field.default for each in classes for field in fields(each)}
        if family == "gemma3":
            usual |= importlib.import_module("mlx_lm.models.gemma3").ModelArgs(family, {}).text_config
        assert {name: usual[name] for name in numbers} == numbers


def test_a_config_may_leave_numbers_out() -> None:
    """gemma-3-4b-it's of March 2025; layers 6, 12, ... of 34 keep all tokens."""
    stated = {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    assert kv_size("gemma3", stated, "BF16") == KVSize(5 * 4096, 29 * 4096, 1024)
    assert kv_size("llama", stated, "BF16") is None
    assert kv_size("no_such_family", made_up.LLAMA, "BF16") is None


def test_families_that_unpack_fp8_are_those_whose_code_does() -> None:
    import mlx_lm.models
    from mlx_lm.utils import MODEL_REMAPPING

    folder = Path(mlx_lm.models.__path__[0])
    own = {path.stem for path in folder.glob("*.py") if "scale_inv" in path.read_text()}
    heirs = {"glm_moe_dsa", "kimi_k25", "kimi_vl"}
    assert own <= facts_on_disk.DEQUANTIZE
    assert all("from .deepseek_v3" in (folder / f"{name}.py").read_text() for name in heirs)
    mapped = {name for name, other in MODEL_REMAPPING.items() if other in own}
    assert own | heirs | mapped == facts_on_disk.DEQUANTIZE


# ---- what is not whole --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a": "model.safetensors", "b": "model-2.safetensors"}, "1 of its 2 weight files are missing."),
        ({"a": "../../../etc/passwd", "b": "/dev/zero"}, "2 of its 3 weight files are missing."),
        ({"a": "model.safetensors"}, ""),
    ],
)
def test_an_index_that_names_what_is_missing(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    path = made_up.model(tmp_path / "m")
    made_up.index(path, files)
    found = one(path)
    assert found.problem.startswith(problem)
    assert found.incomplete is bool(problem)
    assert bool(found.spec) is not found.incomplete


def test_parts_that_are_counted_in_their_names(tmp_path: Path) -> None:
    path = made_up.model(tmp_path / "m")
    (path / "model.safetensors").rename(path / "model-00002-of-00003.safetensors")
    assert one(path).problem.startswith("2 of its 3 weight files are missing.")


def test_other_programs_weights(tmp_path: Path) -> None:
    for name, reason in {"model.Q4.gguf": "GGUF", "pytorch_model.bin": "PyTorch"}.items():
        path = made_up.model(tmp_path / reason)
        (path / "model.safetensors").rename(path / name)
        assert reason in one(path).problem
        assert not one(path).incomplete


# ---- what is broken -----------------------------------------------------------------------------------


@pytest.mark.wide(40)
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("adapter-")])
def test_a_broken_model_is_one_line(zoo: Zoo, tmp_path: Path, name: str) -> None:
    """Every way of breaking a directory that the loader is tried with, between two models that are whole."""
    if os.geteuid() == 0 and name.removeprefix("place-") in CLOSED:
        pytest.skip("root reads everything")
    copied(zoo.path("llama"), tmp_path / "b")
    made_up.model(tmp_path / "a")
    made_up.model(tmp_path / "c")
    CASES[name](tmp_path / "b")
    try:
        found = list(listed([str(tmp_path)]))
        assert (found[0].name, found[-1].name) == ("a", "c")
        for each in found:
            assert all(dict(facts(each, Room(2**30, "machine"))).values())
            assert all(cells(each, 2**30).values())
            assert not each.problem or each.problem.endswith(".")
            assert "Traceback" not in each.problem
    finally:
        if (tmp_path / "b").is_dir() and not (tmp_path / "b").is_symlink():
            os.chmod(tmp_path / "b", 0o700)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"model_type": "llama", "num_hidden_layers": 1000000000}'),
        ("config.json", '{"a":' * 5000 + "1" + "}" * 5000),
        ("config.json", "[1]"),
        ("config.json", b"\xff\xfe"),
        ("model.safetensors.index.json", "[" * 5000),
        ("model.safetensors", b"\xff" * 64),
    ],
)
def test_why_a_file_is_of_no_use_is_said(tmp_path: Path, name: str, content: bytes | str) -> None:
    path = made_up.model(tmp_path / "m")
    put(path, name, content)
    found = one(path)
    assert found.problem
    assert not found.spec
    assert str(tmp_path) not in found.problem


FIELDS = (
    "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "sliding_window",
    "max_position_embeddings", "quantization", "layer_types", "sliding_window_pattern", "num_kv_shared_layers",
    "head_dim", "text_config", "model_file", "full_attention_interval",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1e308, float("nan"), "x", "\ud800", [], [[]], {}, {"bits": [], "group_size": {}}, 2**62,
    2**40,
)  # fmt: skip


@pytest.mark.wide(1)
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gemma4", "exaone4", "deepseek_v3"])
def test_no_field_of_a_config_ends_the_list(tmp_path: Path, family: str) -> None:
    """Nor in the text model's part of it; what comes of it can be shown."""
    path = made_up.model(tmp_path / "m", made_up.llama(bits=4))
    for name in FIELDS:
        for value in VALUES:
            change = {"model_type": family, "sliding_window": 8, name: value}
            for config in (change, {"model_type": family, "text_config": change}):
                put(path, "config.json", {**made_up.LLAMA, **config})
                found = one(path)
                assert all(text.isprintable() for text in cells(found, 2**20).values()), config
                assert all(text for _, text in facts(found, Room(2**20, "machine"))), config


def test_a_header_that_lies_about_its_length_is_refused_at_once(tmp_path: Path) -> None:
    path = made_up.model(tmp_path / "m")
    for length in (0, 2**26 + 1, 10**9, 2**63, 2**64 - 1):
        put(path, "model.safetensors", safetensors({}, b"", length))
        os.truncate(path / "model.safetensors", 2**31)
        begun = time.process_time()
        assert "it has no header" in one(path).problem
        assert time.process_time() - begun < 1


def test_a_tensor_of_no_known_type_is_not_counted(tmp_path: Path) -> None:
    path = made_up.model(tmp_path / "m")
    entry = {"dtype": "F7", "shape": [2**62] * 30, "data_offsets": [0, 4]}
    put(path, "model.safetensors", safetensors({"x": entry}, bytes(4)))
    assert one(path).problem.startswith("The weights are damaged or cut short (model.safetensors: ")


def test_what_waits_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        pipe, device = (made_up.model(tmp_path / f"{name}-{kind}") for kind in ("pipe", "device"))
        (pipe / name).unlink(missing_ok=True)
        (device / name).unlink(missing_ok=True)
        os.mkfifo(pipe / name)
        (device / name).symlink_to("/dev/zero")
    found = list(listed([str(tmp_path)]))
    assert len(found) == 6
    assert all("named pipe" in each.problem or "device" in each.problem for each in found), found


def test_mlx_is_not_imported(tmp_path: Path) -> None:
    made_up.model(tmp_path / "m")
    program = (
        "import sys; from engine.models_on_disk.models import listed; m = next(listed([sys.argv[1]]));"
        "print(m.known, [n for n in ('mlx', 'mlx_lm', 'huggingface_hub', 'transformers') if n in sys.modules])"
    )
    done = python(program, str(tmp_path))
    assert (done.stdout, done.stderr) == ("True []\n", "")

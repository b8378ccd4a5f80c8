"""Formats of the hub that mlx_lm can't load: said to be so, with what helps, and not listed as fitting."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.errors import LoadError
from engine.model.directory import IN_MLX_FORMAT
from engine.model.load import load, load_tokenizer
from engine.models_on_disk.models import DiskModel, read_model
from engine.settings import LoadSettings
from tests.broken_models.breaking import fields, file
from tests.zoo import Zoo

Weights = dict[str, mx.array]


def fp8(weights: Weights, suffix: str) -> Weights:
    """Bytes in the place of floats: mlx can't write FP8, which is read as bytes."""
    made = dict(weights)
    for name in matrices(weights):
        made |= {name: weights[name].astype(mx.uint8), name + suffix: mx.ones((1, 1))}
    return made


def gptq(weights: Weights, ordered: bool) -> Weights:
    made = dict(weights)
    for name in matrices(weights):
        rows, columns = made.pop(name).shape
        stem = name.removesuffix("weight")
        made |= {
            f"{stem}qweight": mx.zeros((columns, rows // 8), mx.int32),
            f"{stem}qzeros": mx.zeros((columns // 64, rows // 8), mx.int32),
            f"{stem}scales": mx.ones((columns // 64, rows)),
        }
        if ordered:
            made[f"{stem}g_idx"] = mx.zeros((columns,), mx.int32)
    return made


def bitsandbytes(weights: Weights) -> Weights:
    made = dict(weights)
    for name in matrices(weights):
        made |= {name: mx.zeros((weights[name].size // 2, 1), mx.uint8), f"{name}.absmax": mx.ones((16,))}
    return made


def matrices(weights: Weights) -> list[str]:
    return [name for name in weights if name.endswith("_proj.weight")]


def written(zoo: Zoo, directory: Path, stated: Any, weights: Weights, name: str = "config.json") -> Path:
    """A model of other weights, with what its config says of them."""
    path = directory / "model"
    shutil.copytree(zoo.path("llama"), path)
    mx.save_safetensors(str(path / "model.safetensors"), weights)
    if name == "config.json":
        fields(name, quantization_config=stated)(path)
    else:
        file(name, stated)(path)
    return path


def problem(path: Path) -> str:
    return read_model(DiskModel("model", path, "given")).problem


@pytest.mark.parametrize(
    ("stated", "make", "form"),
    [
        (
            {"quant_method": "compressed-tensors", "format": "float-quantized"},
            lambda weights: fp8(weights, "_scale"),
            "compressed-tensors in the format float-quantized",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda weights: fp8(weights, "_scale_inv"), "FP8"),
        ({"quant_method": "gptq"}, lambda weights: gptq(weights, True), "GPTQ with an order of its groups (g_idx)"),
        ({"quant_method": "gptq", "bits": 8}, lambda weights: gptq(weights, False), "GPTQ of 8 bits"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, lambda weights: fp8(weights, "_scale"), "ModelOpt's FP8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, bitsandbytes, "bitsandbytes"),
        ({"bits": 4}, lambda weights: gptq(weights, False), "a format that its config.json doesn't name"),
    ],
)  # fmt: skip
def test_mlx_lm_is_named_as_what_can_not_load_them(
    zoo: Zoo, tmp_path: Path, stated: Any, make: Any, form: str
) -> None:
    path = written(zoo, tmp_path, stated, make(mx.load(str(zoo.path("llama") / "model.safetensors"))))
    with pytest.raises(LoadError) as error:
        load(LoadSettings(str(path)))
    assert error.value.message == f"mlx_lm can't load the weights in {path}: they are in {form}."
    assert error.value.hint == IN_MLX_FORMAT
    assert problem(path) == f"mlx_lm can't load its weights: they are in {form}. {IN_MLX_FORMAT}"


def test_modelopts_own_file_is_read_too(zoo: Zoo, tmp_path: Path) -> None:
    weights = fp8(mx.load(str(zoo.path("llama") / "model.safetensors")), "_scale")
    stated = {"quantization": {"quant_algo": "FP8"}, "quant_method": "modelopt"}
    path = written(zoo, tmp_path, stated, weights, "hf_quant_config.json")
    with pytest.raises(LoadError, match="ModelOpt's FP8"):
        load(LoadSettings(str(path)))
    assert "ModelOpt's FP8" in problem(path)


@pytest.mark.parametrize(
    ("stated", "make"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, lambda weights: gptq(weights, False)),
        ({"quant_method": "bitsandbytes"}, dict),
        ({}, dict),
    ],
)
def test_what_it_can_load_is_loaded_and_listed(zoo: Zoo, tmp_path: Path, stated: Any, make: Any) -> None:
    path = written(zoo, tmp_path, stated, make(mx.load(str(zoo.path("llama") / "model.safetensors"))))
    load(LoadSettings(str(path)))
    assert problem(path) == ""


def test_families_that_unpack_fp8_by_themselves_are_no_problem(zoo: Zoo, tmp_path: Path) -> None:
    stated = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    path = written(zoo, tmp_path, stated, mx.load(str(zoo.path("llama") / "model.safetensors")))
    assert "FP8" in problem(path)
    fields("config.json", model_type="deepseek_v3")(path)
    assert problem(path) == ""


# ---- tokenizers and configs ----------------------------------------------------------------------


def changed(zoo: Zoo, directory: Path, name: str, **values: Any) -> Path:
    path = directory / "model"
    shutil.copytree(zoo.path("llama"), path)
    fields(name, **values)(path)
    return path


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("MistralCommonBackend", "is of the class MistralCommonBackend, which mlx_lm can't load here."),
        ("BertTokenizer", "is BPE, and its tokenizer_class, BertTokenizer, makes a WordPiece of it"),
    ],
)
def test_a_class_of_tokenizers_is_told_from_its_files(
    zoo: Zoo, tmp_path: Path, named: str, words: str
) -> None:
    path = changed(zoo, tmp_path, "tokenizer_config.json", tokenizer_class=named)
    with pytest.raises(LoadError) as error:
        load(LoadSettings(str(path)))
    assert words in error.value.message
    assert error.value.hint.startswith('Set tokenizer_class to "TokenizersBackend"')
    fields("tokenizer_config.json", tokenizer_class="TokenizersBackend")(path)
    assert load(LoadSettings(str(path))).tokens.encode("hi")


def test_a_config_that_transformers_can_not_read_is_no_fault_of_the_tokenizer(
    zoo: Zoo, tmp_path: Path
) -> None:
    path = changed(
        zoo, tmp_path, "config.json", model_type="exaone4", sliding_window_pattern="LLLG", rope_scaling=None
    )
    with pytest.raises(LoadError) as error:
        load_tokenizer(LoadSettings(str(path)))
    assert error.value.message.startswith(f"transformers can't read {path}/config.json")


# ---- adapters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lora_layers": 2, "lora_parameters": {"rank": 8, "scale": 1}}, "Rename lora_layers to num_layers"),
        ({"num_layers": 2}, "lacks something that mlx_lm needs"),
        ({"num_layers": 2, "lora_parameters": {}}, "lacks something that mlx_lm needs"),
    ],
)  # fmt: skip
def test_an_adapter_that_mlx_lm_does_not_read_is_not_blamed_on_the_model(
    zoo: Zoo, tmp_path: Path, config: Any, words: str
) -> None:
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), {"a": mx.ones(1)})
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError) as error:
        load(LoadSettings(str(zoo.path("llama")), adapter_path=str(tmp_path)))
    assert words in str(error.value)


def test_an_adapter_of_peft_is_said_to_be_one(zoo: Zoo, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(LoadError, match="is one of PEFT, which mlx_lm can't load"):
        load(LoadSettings(str(zoo.path("llama")), adapter_path=str(tmp_path)))

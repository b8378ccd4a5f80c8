"""The type that a model computes in."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.errors import SettingsError
from engine.model import weights
from engine.model.weights import dtype_of, set_dtype
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

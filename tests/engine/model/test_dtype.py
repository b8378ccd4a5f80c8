"""The type that a model computes in."""

from __future__ import annotations

import pytest

from engine.errors import SettingsError
from engine.model import dtype
from engine.model.dtype import dtype_of, set_dtype
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
    if wanted != own.dtype:
        assert loaded.facts.notes[0].startswith(f"The file's {own.dtype} is computed in {wanted}")
        times = {"float32": 4, "bfloat16": 2, "float16": 2}
        assert loaded.facts.kv_bytes_per_token is not None
        assert loaded.facts.kv_bytes_per_token * times[own.dtype] == own.kv_bytes_per_token * times[wanted]


def test_auto_takes_float32_with_a_fast_blas_where_memory_allows_it(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = zoo.load("llama", dtype="bfloat16").model
    assert set_dtype(model, "auto", fast_blas=False) == ()
    assert dtype_of(model) == "bfloat16"
    monkeypatch.setattr(dtype, "memory_available", lambda: 1000)
    (told,) = set_dtype(model, "auto", fast_blas=True)
    assert "more than half" in told
    assert dtype_of(model) == "bfloat16"
    monkeypatch.setattr(dtype, "memory_available", lambda: None)
    (told,) = set_dtype(model, "auto", fast_blas=True)
    assert told.endswith("weights and KV take 2 times the bytes.")
    assert dtype_of(model) == "float32"


@pytest.mark.parametrize(("field", "value"), [("dtype", "int8"), ("blas", " ")])
def test_what_can_not_be_meant_is_refused(field: str, value: str) -> None:
    with pytest.raises(SettingsError, match=field):
        check_load(LoadSettings(**{field: value}))  # type: ignore[arg-type]

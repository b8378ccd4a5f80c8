"""A model over ranks gives what one process gives: ids, costs, caches and, within a bound, logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.ranks.programs import on_ranks
from tests.engine.ranks.stateful import BOUND

TENSOR = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe",
    "glm4_moe_lite", "ministral3", "deepseek_v32", "exaone_moe", "longcat_flash", "minimax", "mistral4", "step3p5",
)  # fmt: skip
PIPELINE = (
    "qwen2", "qwen3_moe", "qwen3_next", "qwen3_5", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite",
    "ministral3", "deepseek_v32", "mistral4",
)  # fmt: skip
THREE = {"tensor": ("llama", "qwen3", "qwen3_moe"), "pipeline": ("qwen2", "qwen3_moe", "qwen3_next")}
REPLICATED = ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "longcat_flash", "mistral4")
"""Families of latent attention: with `tensor` each rank has all keys and values, which are one for all heads."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models are written."""
    return tmp_path_factory.mktemp("ranks")


def check(found: dict[str, Any], name: str, ranks: int, sharding: str) -> None:
    """One model's findings."""
    assert "failed" not in found, found
    assert found["same"]
    assert found["sharding"] == sharding
    assert found["largest"] < (BOUND if sharding == "tensor" else 1e-9), found["largest"]
    assert found["kinds"]
    assert found["weights"] == [True]
    over, alone = found["kv"]
    replicated = sharding == "tensor" and name in REPLICATED
    assert over == alone * (ranks if replicated else 1)
    assert found["groups"] is not replicated
    counted, of_all_ranks = found["saved"]
    assert counted == of_all_ranks > 0


def test_a_model_on_two_ranks(folder: Path) -> None:
    found = on_ranks("walks", 2, folder, 2, "tensor", "llama")
    check(found["llama"], "llama", 2, "tensor")


@pytest.mark.slow
def test_a_model_on_four_ranks(folder: Path) -> None:
    found = on_ranks("walks", 4, folder, 4, "tensor", "llama")
    check(found["llama"], "llama", 4, "tensor")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "sharding", "names"),
    [
        (2, "tensor", TENSOR[:6]),
        (2, "tensor", TENSOR[6:]),
        (2, "pipeline", PIPELINE[:5]),
        (2, "pipeline", PIPELINE[5:]),
        *((3, sharding, names) for sharding, names in THREE.items()),
    ],
)
def test_families(folder: Path, ranks: int, sharding: str, names: tuple[str, ...]) -> None:
    found = on_ranks("walks", ranks, folder, ranks, sharding, *names)
    assert sorted(found) == sorted(names)
    for name in names:
        check(found[name], name, ranks, sharding)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "sharding", "name", "given"),
    [
        (2, "tensor", "llama", ()),
        (2, "pipeline", "qwen3_5", ()),
        (2, "tensor", "gpt_oss", ()),
        (2, "tensor", "qwen3", ("max_kv_size=16",)),
        (2, "tensor", "qwen3", ("kv_bits=8", "kv_group_size=32", "quantized_kv_start=12")),
        (2, "pipeline", "qwen2", ("kv_bits=8", "kv_group_size=32", "quantized_kv_start=12")),
        (2, "tensor", "qwen3_5", ("kept_kv_mib=0", "kept_logits_mib=0")),
        (2, "tensor", "qwen2", ("no_kv_cache=1",)),
        (3, "pipeline", "qwen2", ()),
    ],
)
def test_random_walks(folder: Path, ranks: int, sharding: str, name: str, given: tuple[str, ...]) -> None:
    found = on_ranks("stateful", ranks, folder, ranks, sharding, name, 200, *given)
    assert found["rules"] >= 200


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["tensor", "pipeline"])
def test_the_logits_are_those_of_mlx_lms_own_sharded_load(folder: Path, sharding: str) -> None:
    """Of a family with an index file, which that function needs for a pipeline."""
    found = on_ranks("reference", 2, folder, sharding)
    assert found["ranks"] == 2
    assert found["largest"] == 0.0

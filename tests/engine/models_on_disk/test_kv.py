"""What headers tell of mlx_lm's families, held against a loaded model of each: a figure is right, or there is none.

A dozen families, of every way to keep keys and values, is in the usual suite; `-m slow` has the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import LoadError
from engine.models_on_disk.facts import UNTOLD
from engine.models_on_disk.places import listed
from tests.engine.inspection.inside.looking import loaded
from tests.families import FAMILIES

USUAL = (
    "cohere2", "deepseek_v2", "deepseek_v3", "exaone4", "falcon_h1", "gemma3n", "gemma4", "gpt_bigcode", "gpt_neox",
    "gpt_oss", "kimi_linear", "longcat_flash", "mamba2", "nanbeige", "phi3", "qwen3_next", "recurrent_gemma", "rwkv7",
)  # fmt: skip
NO_FIGURE = {*UNTOLD, "deepseek_v41", "hunyuan"}
"""Families of whose caches nothing is said."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written."""
    return tmp_path_factory.mktemp("families")


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
    assert (found.kv is None) is (family in NO_FIGURE)
    assert found.kv is None or found.kv.growing == (facts.kv_bytes_per_token or 0)

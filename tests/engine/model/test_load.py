"""Loading: what is known of a model, and one clear sentence for everything that can be wrong with its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from engine.errors import Cancelled, LoadError, SettingsError
from engine.model import synthetic
from engine.model.load import load
from engine.protocol import Loading
from engine.settings import LoadSettings
from tests.zoo import CONFIGS, Zoo


def test_the_facts_of_the_bundled_model(zoo: Zoo) -> None:
    facts = zoo.load("pocket", dtype="file").facts
    assert (facts.name, facts.family, facts.layers) == ("pocket", "llama", 8)
    assert (facts.heads, facts.kv_heads, facts.head_size, facts.hidden_size) == (4, 2, 64, 256)
    assert (facts.vocabulary, facts.context_window, facts.hard_window) == (4096, 512, False)
    assert (facts.parameters, facts.weight_bytes) == (7_344_384, 2 * 7_344_384)
    assert (facts.dtype, facts.quantization) == ("bfloat16", None)
    assert facts.cache_kinds == ("plain",) * 8
    assert facts.kv_bytes_per_token == 2 * 8 * 2 * 64 * 2
    assert facts.eos_ids == (0, 2)
    assert facts.has_chat_template
    assert facts.notes == ()


def test_a_quantized_model_is_computed_with_float32_scales_on_the_cpu_unless_refused(zoo: Zoo) -> None:
    assert zoo.load("llama:4bit").facts.quantization == "4-bit, group 32, affine"
    if zoo.load("llama:4bit").facts.backend == "cpu":
        assert "float32 scales" in zoo.load("llama:4bit").facts.notes[0]
        assert "the KV cache is float32 then, too" in zoo.load("llama:4bit").facts.notes[0]
        assert {array.dtype for array in state_of(zoo.load("llama:4bit").model)} == {mx.float32}
    assert zoo.load("llama:4bit", float32_scales=False).facts.notes == ()


@pytest.mark.parametrize(
    ("name", "options", "note"),
    [
        ("llama", {"max_kv_size": 64}, "--max-kv-size is not used: this model builds its own caches."),
        ("mamba2", {"kv_bits": 8}, "--kv-bits is not used: caches of kind recurrent can't be quantized."),
        ("phi3", {"kv_bits": 8, "max_kv_size": 32}, "--kv-bits is not used: caches of kind rotating"),
        (
            "gemma3",
            {"kv_bits": 8, "kv_group_size": 32},
            "--kv-bits is used for the plain caches alone; rotating stay",
        ),
        (
            "llama",
            {"kv_bits": 8, "kv_group_size": 64},
            "--kv-bits is not used. The heads of this model have 32 numbers, which can't be cut into groups of 64. "
            "Use --kv-group-size 32.",
        ),
        (
            "gpt-oss",
            {"kv_bits": 8, "kv_group_size": 32},
            "--kv-bits is not used. This model can't run with a quantized",
        ),
    ],
)
def test_a_flag_that_a_model_ignores_is_said(zoo: Zoo, name: str, options: dict[str, int], note: str) -> None:
    loaded = zoo.load(name, **options)
    assert any(each.startswith(note) for each in loaded.facts.notes), loaded.facts.notes
    if "is not used" in note:
        assert loaded.settings.kv_bits is None or "max-kv" in note


def test_progress_is_told_and_a_cancel_stops_it(zoo: Zoo) -> None:
    told: list[Loading] = []
    load(LoadSettings(model=str(zoo.path("llama"))), told.append)
    weights = [each for each in told if each.stage == "weights"]
    assert [each.done for each in weights] == list(range(weights[0].total + 1))
    assert told[-1].stage == "tokenizer"
    cancel = Event()
    cancel.set()
    with pytest.raises(Cancelled):
        load(LoadSettings(), cancel=cancel)


def state_of(model: Any) -> list[mx.array]:
    """The keys and values of one token."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([[5]]), cache=caches))
    return [array for cache in caches for array in (cache.keys, cache.values)]


@pytest.mark.parametrize(
    "scheme",
    [{"bits": 99, "group_size": 64}, {"bits": 4, "group_size": -64}, {"bits": "x", "group_size": None}],
)
def test_quantization_is_that_of_the_arrays(zoo: Zoo, tmp_path: Path, scheme: dict[str, Any]) -> None:
    path = copied(zoo, tmp_path)
    configured(quantization=scheme)(path)
    facts = load(LoadSettings(model=str(path))).facts
    assert facts.quantization is None
    assert facts.notes == ()


def test_the_head_size_is_that_of_the_keys(tmp_path: Path) -> None:
    """gemma's heads have 256 numbers where its config.json doesn't say: not hidden size / heads."""
    config = {name: value for name, value in CONFIGS["gemma3"].items() if name != "head_dim"}
    facts = load(LoadSettings(model=str(synthetic.write(tmp_path / "model", config)))).facts
    assert (facts.hidden_size, facts.heads, facts.head_size) == (64, 4, 256)


@pytest.mark.parametrize(
    "name", ["with [brackets]", "[a-z]*?", "new\nline", "emoji 🙂", "-dash", "'quotes\"", "x\u202ey"]
)
def test_a_directory_may_have_any_name(zoo: Zoo, tmp_path: Path, name: str) -> None:
    shutil.copytree(zoo.path("llama"), tmp_path / name)
    assert load(LoadSettings(model=str(tmp_path / name))).facts.name == name


def copied(zoo: Zoo, directory: Path) -> Path:
    target = directory / "model"
    shutil.copytree(zoo.path("llama"), target)
    return target


def cut(path: Path) -> None:
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])


def configured(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        config.update(changes)
        (path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return change


def removed(name: str) -> Callable[[Path], None]:
    def remove(path: Path) -> None:
        for each in path.glob(name):
            each.unlink()

    return remove


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_text(text) and None


def gguf(path: Path) -> None:
    removed("model.safetensors")(path)
    (path / "model.gguf").write_bytes(b"GGUF")


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (removed("config.json"), "has no config.json"),
    "config is not JSON": (written("config.json", "{"), "can't be read as JSON"),
    "config is a list": (written("config.json", "[]"), "holds no JSON object"),
    "no model type": (configured(model_type=None), "names no model_type"),
    "unknown model type": (configured(model_type="bert"), "mlx_lm does not know the model type bert"),
    "model type of a helper": (configured(model_type="cache"), "mlx_lm does not know the model type cache"),
    "a field is missing": (configured(hidden_size=None), "lacks something its model type needs"),
    "another size": (configured(hidden_size=96), "don't fit its config.json"),
    "another layer count": (configured(num_hidden_layers=9), "don't fit its config.json"),
    "code of its own": (configured(model_file="evil.py"), "needs code of its own to run"),
    "no weights": (removed("*.safetensors"), "has no weights"),
    "weights cut short": (cut, "are damaged or cut short"),
    "weights are empty": (written("model.safetensors", ""), "are damaged or cut short"),
    "weights are a pointer": (
        written("model.safetensors", "version https://git-lfs"),
        "are damaged or cut short",
    ),
    "GGUF in a directory": (gguf, "holds GGUF weights"),
    "no tokenizer": (removed("tokenizer*"), "has no tokenizer"),
    "tokenizer is not JSON": (written("tokenizer.json", "{"), "tokenizer.json can't be read as JSON"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_gets_one_clear_sentence(zoo: Zoo, tmp_path: Path, case: str) -> None:
    path = copied(zoo, tmp_path)
    damage, message = BROKEN[case]
    damage(path)
    with pytest.raises(LoadError) as error:
        load(LoadSettings(model=str(path)))
    assert message in error.value.message
    assert error.value.hint
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/directory", "No such directory: ./no/such/directory."),
        ("~/no-such-directory", "No such directory"),
        ("tests/no-such-model", "No such directory: tests/no-such-model."),
        ("a/b/c", "No such directory: a/b/c."),
        (
            "some-one/some-model",
            "There is no directory some-one/some-model, and it is not in the hub's cache",
        ),
        ("two words", "two words is neither a directory nor a hub id."),
        ("", "The model's name is empty."),
        ("README.md", "README.md is a file, not a model directory."),
    ],
)
def test_a_name_that_leads_nowhere_is_called_what_it_is(name: str, message: str) -> None:
    with pytest.raises(LoadError) as error:
        load(LoadSettings(model=name))
    assert error.value.message.startswith(message)


def test_a_gguf_file_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError, match="is a GGUF file"):
        load(LoadSettings(model=str(tmp_path / "x.gguf")))
    with pytest.raises(LoadError, match="No such directory"):
        load(LoadSettings(model=str(tmp_path / "y.gguf")))


def test_an_adapter_that_is_not_there_is_said(zoo: Zoo, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"has no adapter_config\.json"):
        load(LoadSettings(model=str(zoo.path("llama")), adapter_path=str(tmp_path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_bits": 7}, "KV bits must be one of 2, 3, 4, 5, 6, 8, not 7."),
        ({"kv_group_size": 5}, "KV group size must be one of 32, 64, 128, not 5."),
        ({"max_kv_size": 4}, "max KV size must be a whole number from 5 up"),
        ({"prefill_step_size": 0}, "prefill step size must be a whole number from 1 up, not 0."),
    ],
)
def test_load_settings_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(LoadSettings(**options))  # type: ignore[arg-type]
    assert error.value.message.startswith(message)


def test_a_load_leaves_nothing_behind_in_the_state_of_random_numbers(zoo: Zoo, tmp_path: Path) -> None:
    """A key that is not evaluated keeps the graph of all draws before it: 1 KB for each matrix of each model."""
    path = str(zoo.path("llama"))
    for settings in (LoadSettings(path), LoadSettings(path, dtype="file")):
        load(settings)
        mx.export_to_dot(str(tmp_path / "graph"), *mx.random.state)
        assert "Split" not in (tmp_path / "graph").read_text(encoding="utf-8")

"""Loading: models, tokenizers alone, and where models are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers

from engine import pocket, protocol
from engine.errors import Cancelled, EngineError, LoadError, SettingsError
from engine.model.load import cannot_run, load, load_tokenizer, prepare, read_weights
from engine.protocol import NO_OPTIONS, Loading, conversation
from engine.settings import LoadSettings
from tests import broken_models, synthetic
from tests.engine.models_on_disk.hub import FakeHub, serving
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
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
        assert "the KV cache is float32, too" in zoo.load("llama:4bit").facts.notes[0]
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
            "--kv-bits is used only for the plain caches; rotating stay",
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


def test_progress_is_told_and_a_cancel_stops_it(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Loading] = []
    monkeypatch.setattr("engine.model.load.READ_AT_ONCE", 20_000)
    load(LoadSettings(model=str(zoo.path("llama"))), told.append)
    weights = [each for each in told if each.stage == "weights"]
    done = [each.done for each in weights]
    assert done == sorted({*done})
    assert (done[0], done[-1]) == (0, weights[0].total)
    assert 4 < len(done) < weights[0].total
    assert told[-1].stage == "tokenizer"
    cancel = Event()
    cancel.set()
    with pytest.raises(Cancelled):
        load(LoadSettings(), cancel=cancel)


def test_weights_that_end_while_they_are_read_are_refused(zoo: Zoo, tmp_path: Path) -> None:
    path = copied(zoo, tmp_path)
    prepared = prepare(LoadSettings(model=str(path)))
    weights = path / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    with pytest.raises(LoadError, match=r"The weights are damaged at or before .*weight \(.*Download them"):
        read_weights(prepared.model, lambda record: None, Event())


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
    "config is a list": (written("config.json", "[]"), "is not a JSON object"),
    "config of many empty lists": (
        written("config.json", '{"x": [[]' + ",[]" * 500_000 + "]}"),
        "holds more values",
    ),
    "no model type": (configured(model_type=None), "names no model_type"),
    "unknown model type": (configured(model_type="bert"), "mlx_lm does not know the model type bert"),
    "model type of a helper": (configured(model_type="cache"), "mlx_lm does not know the model type cache"),
    "a field is missing": (
        configured(hidden_size=None),
        "lacks something that mlx_lm needs for its model type",
    ),
    "another size": (configured(hidden_size=96), "don't fit its config.json"),
    "another layer count": (configured(num_hidden_layers=9), "don't fit its config.json"),
    "code of its own": (configured(model_file="evil.py"), "needs code of its own to run"),
    "no weights": (removed("*.safetensors"), "has no weights"),
    "weights cut short": (cut, "are damaged or cut short"),
    "weights are empty": (written("model.safetensors", ""), "are damaged or cut short"),
    "weights without a tensor": (
        lambda path: mx.save_safetensors(str(path / "model.safetensors"), {}),
        "hold no tensors",
    ),
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


def test_what_no_tokenizer_reads_is_no_obstacle(zoo: Zoo, tmp_path: Path) -> None:
    path = copied(zoo, tmp_path)
    (path / "old.json").mkdir()
    os.mkfifo(path / "pipe")
    assert load(LoadSettings(model=str(path))).facts.layers == 2
    os.mkfifo(path / "more.txt")
    with pytest.raises(LoadError, match=r"more\.txt"):
        load(LoadSettings(model=str(path)))


def test_a_long_path_hides_no_reason(zoo: Zoo, tmp_path: Path) -> None:
    """mlx_lm's sentence names the path first; the hub's cache on a Mac makes long ones."""
    path = copied(zoo, tmp_path / ("long" * 50))
    configured(model_file="evil.py")(path)
    with pytest.raises(LoadError, match="needs code of its own to run"):
        load(LoadSettings(model=str(path)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/directory", "No such directory: ./no/such/directory."),
        ("~/no-such-directory", "No such directory"),
        ("tests/no-such-model", "No such directory: tests/no-such-model."),
        ("a/b/c", "No such directory: a/b/c."),
        (
            "some-one/some-model",
            "There is no directory some-one/some-model. some-one/some-model can't be downloaded: HF_HUB_OFFLINE",
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
        ({"prefill_step_size": 0}, "prefill step size must be a whole number of at least 1, not 0."),
    ],
)
def test_load_settings_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(LoadSettings(**options))  # type: ignore[arg-type]
    assert error.value.message.startswith(message)


# ---- a tokenizer alone -------------------------------------------------------------------------

TEXTS = ("Once upon a time", "a\n\n b\t狐狸 🦊", "<|im_start|>user", " ")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The bundled model's directory without its weights."""
    return Path(
        shutil.copytree(pocket.directory(), tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    )


def test_it_cuts_as_the_loaded_model_does_and_needs_no_weights(bare: Path) -> None:
    alone, whole = load_tokenizer(LoadSettings(model=str(bare))), load(LoadSettings()).tokens
    for text in TEXTS:
        assert alone.encode(text) == whole.encode(text)
    messages = conversation("Hi", "Be good")
    assert alone.chat(messages, NO_OPTIONS) == whole.chat(messages, NO_OPTIONS)
    assert (alone.vocabulary, alone.eos_ids) == (whole.vocabulary, whole.eos_ids)
    with pytest.raises(LoadError, match="has no weights"):
        load(LoadSettings(model=str(bare)))


def test_weights_that_are_there_are_not_read(bare: Path) -> None:
    (bare / "model.safetensors").write_bytes(b"\xff" * 100)
    assert load_tokenizer(LoadSettings(model=str(bare))).encode("Once") == load(LoadSettings()).tokens.encode(
        "Once"
    )


def test_without_a_vocabulary_in_the_config_no_id_is_refused(bare: Path) -> None:
    config = json.loads((bare / "config.json").read_text())
    for size, refused in ((None, False), ("many", False), (5, True)):
        (bare / "config.json").write_text(json.dumps({**config, "vocab_size": size}))
        tokens = load_tokenizer(LoadSettings(model=str(bare)))
        if refused:
            with pytest.raises(EngineError, match="outside the model's vocabulary of 5"):
                tokens.encode("Once upon")
        else:
            assert tokens.encode("Once upon") == load(LoadSettings()).tokens.encode("Once upon")


@pytest.mark.parametrize(
    "name", [name for name in broken_models.CASES if "tokenizer" in name or "config" in name][::4]
)
def test_broken_files_are_told_in_one_line_or_do_not_matter(zoo: Zoo, tmp_path: Path, name: str) -> None:
    made = broken_models.copied(zoo.path("llama"), tmp_path / "broken")
    broken_models.CASES[name](made)
    assert "\n" not in complaint(made)


def complaint(path: Path) -> str:
    """What is said against a directory; empty where its tokenizer serves."""
    try:
        load_tokenizer(LoadSettings(model=str(path))).encode("Once upon a time")
    except EngineError as error:
        return str(error)
    return ""


def test_the_command_needs_no_model_and_leaves_a_loaded_one_as_it_is() -> None:
    engine = Unthreaded()
    cut = engine.one(protocol.CutText(LoadSettings(), "Hi", chat=True, system="Be good"), protocol.Tokenized)
    assert cut.text.startswith("<|im_start|>system\nBe good<|im_end|>")
    assert "".join(piece.text for piece in cut.pieces) == cut.text
    assert [piece.special for piece in cut.pieces].count(True) == 5
    engine.do(protocol.Load(LoadSettings()))
    session = engine.session
    engine.do(protocol.CutText(LoadSettings(), "Hi"))
    failure, _ = engine.do(protocol.CutText(LoadSettings(model="/nowhere/at/all"), "Hi"))
    assert engine.session is session
    assert isinstance(failure, protocol.Failure)


def test_a_tokenizer_is_taken_apart_without_its_model() -> None:
    engine = Unthreaded()
    file = str(pocket.directory() / "tokenizer.json")
    for settings in (LoadSettings(), LoadSettings(model=file)):
        taken = engine.one(protocol.TakeApart("unhappiness", settings), protocol.TakenApart)
        assert (taken.name, taken.words[0].pieces()[-1]) == (settings.model, b"iness")
    failure, _ = engine.do(protocol.TakeApart("x"))
    assert isinstance(failure, protocol.Failure)
    assert "No model is loaded" in failure.message
    engine.do(protocol.Load(LoadSettings()))
    mine = engine.one(protocol.TakeApart("unhappiness", node=3), protocol.TakenApart)
    assert (mine.name, mine.node) == ("", 3)
    for name in ("/nowhere/tokenizer.json", str(pocket.directory() / "config.json")):
        failure, _ = engine.do(protocol.TakeApart("x", LoadSettings(model=name)))
        assert isinstance(failure, protocol.Failure)
        assert failure.expected


# ---- where models are --------------------------------------------------------------------------

LORA = {
    "num_layers": 2,
    "fine_tune_type": "lora",
    "lora_parameters": {"rank": 4, "scale": 2.0, "dropout": 0.0},
}


def adapter(zoo: Zoo, directory: Path) -> Path:
    """A LoRA adapter of random weights, as mlx_lm.lora writes it."""
    model, _ = utils.load_model(zoo.path("llama"))
    linear_to_lora_layers(model, LORA["num_layers"], LORA["lora_parameters"])
    mx.random.seed(1)
    found: Any = tree_flatten(model.parameters())
    weights = {name: mx.random.normal(array.shape) * 0.1 for name, array in found if "lora" in name}
    mx.save_safetensors(str(directory / "adapters.safetensors"), weights)
    (directory / "adapter_config.json").write_text(json.dumps(LORA))
    return directory


def logits(loaded: Any) -> np.ndarray:
    session = begun(loaded, [5, 6, 7])
    return session.logits


def test_an_adapter_changes_the_model_as_mlx_lm_does(zoo: Zoo, tmp_path: Path) -> None:
    path = str(adapter(zoo, tmp_path))
    mine = logits(load(LoadSettings(model=str(zoo.path("llama")), adapter_path=path)))
    model, _ = utils.load(str(zoo.path("llama")), adapter_path=path)  # type: ignore[misc]
    expected = np.array(model(mx.array([[5, 6, 7]]))[0, -1].astype(mx.float32))
    assert np.allclose(mine, expected, atol=1e-4)
    assert not np.allclose(mine, logits(zoo.load("llama")), atol=1e-2)


def test_an_adapter_goes_with_weights_that_are_unpacked(zoo: Zoo, tmp_path: Path) -> None:
    path, model = str(adapter(zoo, tmp_path)), str(zoo.path("llama:4bit"))
    packed, plain = (load(LoadSettings(model, path, dtype=dtype)) for dtype in ("file", "dequantized"))
    assert (packed.facts.quantization, plain.facts.quantization) == ("4-bit, group 32, affine", None)
    assert np.allclose(logits(packed), logits(plain), atol=1e-4)
    assert not np.allclose(logits(plain), logits(zoo.load("llama:4bit")), atol=1e-2)


def test_an_adapter_of_another_model_or_without_tensors_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    path = str(adapter(zoo, tmp_path))
    with pytest.raises(LoadError, match=r"The adapter in .* doesn't fit this model"):
        load(LoadSettings(model="pocket", adapter_path=path))
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), {})
    with pytest.raises(LoadError, match=r"adapters.safetensors holds no tensors"):
        load(LoadSettings(model=str(zoo.path("llama")), adapter_path=path))


@pytest.fixture
def hub(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that has a llama, and an empty cache."""
    files = {each.name: each.read_bytes() for each in zoo.path("llama").iterdir()}
    with serving(FakeHub(files)) as made:
        for name, value in made.environ(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_model_of_the_hub_is_downloaded_and_found_again_without_it(hub: FakeHub) -> None:
    told: list[Loading] = []
    settings = LoadSettings(model="some/tiny")
    assert load_tokenizer(settings).encode("Once") == load(LoadSettings()).tokens.encode("Once")
    assert not any(path.endswith(".safetensors") for path, *_ in hub.asked)
    assert load(settings, told.append).facts.family == "llama"
    done = [(each.done, each.total) for each in told if each.stage == "download"]
    assert done[0] == (0, 0)
    assert done[-1] == (sum(map(len, hub.files.values())),) * 2
    hub.asked.clear()
    load(settings)
    assert not any("/resolve/" in path for path, *_ in hub.asked)
    hub.status = 503
    assert load(settings).facts.family == "llama"


def test_a_model_whose_bytes_are_not_the_hubs_is_not_loaded(hub: FakeHub) -> None:
    hub.wrong = {"model.safetensors": bytes(len(hub.files["model.safetensors"]))}
    with pytest.raises(LoadError, match="another hash than the hub states"):
        load(LoadSettings(model="some/tiny"))


def test_a_download_can_be_stopped(hub: FakeHub) -> None:
    hub.hold, cancel = Event(), Event()

    def emit(now: Loading) -> None:
        if now.done:
            cancel.set()

    with pytest.raises(Cancelled):
        load(LoadSettings(model="some/tiny"), emit, cancel)


def test_a_load_leaves_nothing_behind_in_the_state_of_random_numbers(zoo: Zoo, tmp_path: Path) -> None:
    """A key that is not evaluated keeps the graph of all draws before it: 1 KB for each matrix of each model."""
    path = str(zoo.path("llama"))
    for settings in (LoadSettings(path), LoadSettings(path, dtype="file")):
        load(settings)
        mx.export_to_dot(str(tmp_path / "graph"), *mx.random.state)
        assert "Split" not in (tmp_path / "graph").read_text(encoding="utf-8")


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="other backends multiply them")
def test_experts_in_bfloat16_on_the_cpu_blame_the_machine(zoo: Zoo) -> None:
    folder = zoo.path("mixtral")
    with pytest.raises(LoadError) as failed:
        load(LoadSettings(model=str(folder), dtype="bfloat16"))
    assert (
        "can't run on the CPU here ([GatherMM::eval] Currently only supports float32)" in failed.value.message
    )
    assert failed.value.hint == "Load it with --dtype float32."


def test_a_kernel_of_metal_alone_blames_the_machine(tmp_path: Path) -> None:
    said = cannot_run(RuntimeError("[metal_kernel] No Metal back-end."), tmp_path, "auto")
    assert "config.json" not in said.message
    assert said.hint == "It needs an Apple GPU: run it on a Mac, or use another model."

"""Adapters, and models that come from the hub: with the hub's own downloader replaced, since no test has a network."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import huggingface_hub
import mlx.core as mx
import numpy as np
import pytest
from huggingface_hub import errors
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.tuner.utils import linear_to_lora_layers

from engine.errors import Cancelled, LoadError
from engine.model.load import load
from engine.protocol import Loading
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.zoo import Zoo

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
    session = Session(loaded, Settings())
    list(session.prefill("", [5, 6, 7], echo=False))
    return session.logits


def test_an_adapter_changes_the_model_as_mlx_lm_does(zoo: Zoo, tmp_path: Path) -> None:
    path = str(adapter(zoo, tmp_path))
    mine = logits(load(LoadSettings(model=str(zoo.path("llama")), adapter_path=path)))
    model, _ = utils.load(str(zoo.path("llama")), adapter_path=path)  # type: ignore[misc]
    expected = np.array(model(mx.array([[5, 6, 7]]))[0, -1].astype(mx.float32))
    assert np.allclose(mine, expected, atol=1e-4)
    assert not np.allclose(mine, logits(zoo.load("llama")), atol=1e-2)


def test_an_adapter_of_another_model_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    path = str(adapter(zoo, tmp_path))
    with pytest.raises(LoadError, match=r"The adapter in .* doesn't fit this model"):
        load(LoadSettings(model="pocket", adapter_path=path))


def test_a_download_is_told_in_bytes(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(spec: str, *, tqdm_class: Any, **_: Any) -> str:
        bar = tqdm_class(desc="Downloading", total=0, initial=0, unit="B", unit_scale=True)
        bar.total = 3000
        for _ in range(3):
            bar.update(1000)
        bar.close()
        return str(zoo.path("llama"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    told: list[Loading] = []
    facts = load(LoadSettings(model="some-one/some-model"), told.append).facts
    assert facts.family == "llama"
    downloaded = [(each.done, each.total) for each in told if each.stage == "download"]
    assert downloaded == [(0, 0), (1000, 3000), (2000, 3000), (3000, 3000)]


def test_a_download_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = Event()

    def download(spec: str, *, tqdm_class: Any, **_: Any) -> str:
        bar = tqdm_class(total=10, unit="B")
        cancel.set()
        bar.update(1)
        return "never"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(Cancelled):
        load(LoadSettings(model="some-one/some-model"), cancel=cancel)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.LocalEntryNotFoundError("Got: ConnectError"),
            "it is not in the hub's cache and can't be downloaded",
        ),
        (OSError("No space left on device"), "can't be downloaded now (No space left on device)"),
        (errors.HFValidationError("Repo id must be"), "is neither a directory nor a hub id"),
    ],
)
def test_what_the_hub_raises_is_said(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(LoadError) as raised:
        load(LoadSettings(model="some-one/some-model"))
    assert message in raised.value.message

"""The fingerprint of a model: the same for the same model wherever it lies, another for any other."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from engine import pocket
from engine.model.facts import BLOCK, BLOCKS, WHOLE_LIMIT, fingerprint
from engine.model.load import load
from engine.settings import LoadSettings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(pocket.directory(), tmp_path / "model")
    return tmp_path / "model"


def edit(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def test_the_same_model_elsewhere_has_the_same(model: Path) -> None:
    known = fingerprint(pocket.directory())
    assert len(known) == 32
    assert fingerprint(model) == known
    config = json.loads((model / "config.json").read_text())
    config |= {"_name_or_path": "elsewhere", "transformers_version": "99"}
    (model / "config.json").write_text(json.dumps(config, indent=8))
    (model / "README.md").write_text("other")
    assert fingerprint(model) == known


@pytest.mark.parametrize("place", [0, 20, 5000, 7_000_000, -1])
def test_one_bit_of_the_weights_makes_another(model: Path, place: int) -> None:
    known, weights = fingerprint(model), model / "model.safetensors"
    edit(weights, place % weights.stat().st_size)
    assert fingerprint(model) not in (known, "")


def test_another_config_or_adapter_or_name_makes_another(model: Path, tmp_path: Path) -> None:
    found = {fingerprint(model)}
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rope_theta": 1.0}))
    found.add(fingerprint(model))
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapters.safetensors").write_bytes(b"\0" * 100)
    found.add(fingerprint(model, tmp_path))
    edit(tmp_path / "adapters.safetensors", 50)
    found.add(fingerprint(model, tmp_path))
    (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
    found.add(fingerprint(model))
    assert len(found) == 5
    assert "" not in found


def test_what_can_not_be_read_has_none(model: Path, tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "none") == ""
    assert fingerprint(model, tmp_path / "none") == ""
    (model / "config.json").write_text("{")
    assert fingerprint(model) == ""
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").unlink()
    assert fingerprint(model) == ""


def test_eight_gigabytes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights, head = tmp_path / "model.safetensors", json.dumps({"__metadata__": {"a": "b" * 9000}}).encode()
    with weights.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 * 2**30)
    begun = time.perf_counter()
    known = fingerprint(tmp_path)
    assert time.perf_counter() - begun < 1
    for place in (8000, 8 + len(head), 8 * 2**30 - 1):  # the header, the first block and the last
        edit(weights, place)
        assert fingerprint(tmp_path) != known
        edit(weights, place)
    assert fingerprint(tmp_path) == known
    assert BLOCKS * BLOCK < WHOLE_LIMIT


def test_a_header_that_lies_about_its_length_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(b"\xff" * 8)
        file.truncate(WHOLE_LIMIT + 10)
    assert len(fingerprint(tmp_path)) == 32


def test_a_loaded_model_tells_its_fingerprint() -> None:
    assert load(LoadSettings()).facts.fingerprint == fingerprint(pocket.directory())

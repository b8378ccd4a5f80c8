"""A model's tokenizer alone: the same as with the model, and with no weights there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from engine import pocket, protocol
from engine.errors import EngineError, LoadError
from engine.model.load import load, load_tokenizer
from engine.protocol import NO_OPTIONS, conversation
from engine.settings import LoadSettings
from engine.task import Task
from engine.worker import Worker
from tests import broken_models
from tests.zoo import Zoo

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


def test_only_the_tokenizers_files_are_downloaded(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def download(spec: str, *, allow_patterns: list[str], **_: Any) -> str:
        asked.append(allow_patterns)
        return str(zoo.path("llama"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    load_tokenizer(LoadSettings(model="some-one/some-model"))
    load(LoadSettings(model="some-one/some-model"))
    assert "*.json" in asked[0]
    assert set(asked[1]) - set(asked[0]) == {"model*.safetensors"}


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
    told: list[protocol.Record] = []
    worker = Worker(told.append, lambda: False)
    worker.carry_out(Task(protocol.CutText(LoadSettings(), "Hi", chat=True, system="Be good")))
    cut = next(record for record in told if isinstance(record, protocol.Tokenized))
    assert cut.text.startswith("<|im_start|>system\nBe good<|im_end|>")
    assert "".join(piece.text for piece in cut.pieces) == cut.text
    assert [piece.special for piece in cut.pieces].count(True) == 5
    worker.carry_out(Task(protocol.Load(LoadSettings())))
    session = worker._desk.session
    worker.carry_out(Task(protocol.CutText(LoadSettings(), "Hi")))
    worker.carry_out(Task(protocol.CutText(LoadSettings(model="/nowhere/at/all"), "Hi")))
    assert worker._desk.session is session
    assert isinstance(told[-2], protocol.Failure)

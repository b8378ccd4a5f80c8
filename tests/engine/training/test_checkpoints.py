"""Checkpoints: loaded by mlx_lm, opened as a session, gone on from as if nothing had been, and damaged ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.model.tokens import plain_tokenizer
from engine.protocol import (
    CheckpointSaved,
    Failure,
    ResumeTraining,
    SaveCheckpoint,
    Train,
    TrainedStep,
    TrainingBegun,
)
from engine.settings import LoadSettings, Settings
from tests.engine.training.rig import text, tiny
from tests.engine.training.test_learner import begun, learner_of, trained
from tests.engine.unthreaded import Unthreaded


def saved(engine: Unthreaded, directory: Path) -> Path:
    return Path(engine.one(SaveCheckpoint(str(directory)), CheckpointSaved).directory)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unthreaded, Path]:
    """An engine with a training that goes on, and its checkpoint after five steps."""
    folder = tmp_path_factory.mktemp("five")
    engine = begun(replace(tiny(folder), steps=100))
    trained(engine, 5)
    return engine, saved(engine, folder / "out")


def test_mlx_lm_loads_a_checkpoint_with_equal_logits(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    trained(engine)
    folder = saved(engine, tmp_path / "out")
    learner = learner_of(engine)
    model, tokenizer = mlx_lm.load(str(folder))[:2]
    ids = tokenizer.encode("the dog saw a ball")
    assert ids == learner.tokenizer.encode("the dog saw a ball").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the dog saw a ball"
    assert folder.name == "step-000012"
    assert np.array_equal(np.array(model(mx.array([ids]))), np.array(learner.model(mx.array([ids]))))


def test_a_checkpoint_is_a_session_with_the_same_candidates(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    look = trained(engine)[-1].look
    folder = saved(engine, tmp_path / "out")
    engine.do(protocol.Load(LoadSettings(str(folder))), protocol.Configure(Settings(candidates=8)))
    prefilled = engine.one(protocol.Prefill("the dog", chat=False), protocol.Prefilled)
    assert look is not None
    assert [each.id for each in prefilled.next.candidates[:8]] == [each.id for each in look.candidates]
    probs = [each.prob for each in prefilled.next.candidates[:8]]
    assert probs == pytest.approx([each.prob for each in look.candidates], rel=1e-4)


def test_a_checkpoint_opens_without_transformers(tmp_path: Path) -> None:
    folder = saved(begun(tiny(tmp_path)), tmp_path / "out")
    assert plain_tokenizer(folder, json.loads((folder / "config.json").read_text())) is not None


def test_going_on_is_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole = trained(begun(tiny(tmp_path)))
    engine = begun(tiny(tmp_path))
    trained(engine, 5)
    folder = saved(engine, tmp_path / "out")
    trained(engine, 3)
    for fresh in (engine, Unthreaded()):
        opened = fresh.one(ResumeTraining(str(folder)), TrainingBegun)
        rest = trained(fresh)
        assert (opened.step, opened.settings, opened.tokenizer_ms) == (5, tiny(tmp_path), None)
        assert [(each.step, each.loss, each.norms) for each in rest] == [
            (each.step, each.loss, each.norms) for each in whole[5:]
        ]


def test_it_can_go_on_for_more_steps_than_it_was_begun_with(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    trained(engine)
    folder = saved(engine, tmp_path / "out")
    engine.one(ResumeTraining(str(folder), steps=15), TrainingBegun)
    assert [each.step for each in trained(engine)] == [13, 14, 15]
    failure, _ = engine.do(ResumeTraining(str(folder), steps=0))
    assert isinstance(failure, Failure)


def test_a_run_saves_every_few_steps_at_its_end_and_when_it_is_cancelled(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    engine.cancel_when = lambda record: isinstance(record, TrainedStep) and record.step == 11
    found = engine.do(Train(12, str(tmp_path / "out"), save_every=5))
    assert [each.step for each in engine.of(CheckpointSaved, found)] == [5, 10, 11]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "step-000005",
        "step-000010",
        "step-000011",
    ]
    engine.do(Train(12, str(tmp_path / "out"), save_every=5))
    assert (tmp_path / "out" / "step-000012").is_dir()


def test_a_checkpoint_takes_the_place_of_its_own_kind_alone(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    trained(engine, 1)
    assert saved(engine, tmp_path / "out") == saved(engine, tmp_path / "out")
    other = tmp_path / "other" / "step-000001"
    other.mkdir(parents=True)
    (other / "mine.txt").write_text("kept")
    failure, _ = engine.do(SaveCheckpoint(str(tmp_path / "other")))
    assert isinstance(failure, Failure)
    assert failure.message.endswith("already exists and is not a checkpoint.")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["step-000001"]
    assert (other / "mine.txt").read_text() == "kept"
    failure, _ = engine.do(SaveCheckpoint(str(tmp_path / "text.txt")))
    assert isinstance(failure, Failure)
    assert failure.expected


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **named: Any) -> None:
        raise RuntimeError("[write] Unable to write to file")

    engine = begun(tiny(tmp_path))
    monkeypatch.setattr(mx, "save_safetensors", full)
    failure, _ = engine.do(SaveCheckpoint(str(tmp_path / "out")))
    assert isinstance(failure, Failure)
    assert failure.expected
    assert list((tmp_path / "out").iterdir()) == []


# ---- damaged ones -------------------------------------------------------------------------------


def changed(name: str, value: Any) -> Any:
    def change(folder: Path) -> None:
        kept = json.loads((folder / "training.json").read_text())
        if name in kept["settings"]:
            kept["settings"][name] = value
        else:
            kept[name] = value
        (folder / "training.json").write_text(json.dumps(kept))

    return change


def far_token(folder: Path) -> None:
    file = json.loads((folder / "tokenizer.json").read_text())
    last = max(file["model"]["vocab"], key=file["model"]["vocab"].__getitem__)
    file["model"]["vocab"][last] = 10**6
    (folder / "tokenizer.json").write_text(json.dumps(file))


def more_tokens(folder: Path) -> None:
    file = json.loads((folder / "tokenizer.json").read_text())
    file["model"]["vocab"] |= {f"more{number}": 1000 + number for number in range(5000)}
    (folder / "tokenizer.json").write_text(json.dumps(file))


def cut(name: str) -> Any:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "training.json").unlink(), "is not a checkpoint of a training"),
        (lambda folder: (folder / "training.json").write_text("[]"), "is damaged"),
        (lambda folder: (folder / "training.json").write_text("[" * 100_000), "is damaged"),
        (lambda folder: (folder / "training.json").write_bytes(b"\xff"), "is damaged"),
        (changed("width", 24), "is damaged"),
        (changed("width", "16"), "is damaged"),
        (changed("layers", True), "is damaged"),
        (changed("layers", 10**9), "is damaged"),
        (changed("texts", "x"), "is damaged"),
        (changed("step", -1), "is damaged"),
        (changed("step", 10**30), "is damaged"),
        (changed("step", "5"), "is damaged"),
        (changed("text_sha256", "0" * 64), "has changed"),
        (changed("texts", ["/nowhere/at all.txt"]), "can't be read"),
        (cut("model.safetensors"), "is damaged"),
        (cut("optimizer.safetensors"), "is damaged"),
        (lambda folder: (folder / "optimizer.safetensors").unlink(), "is damaged"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), "is damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "is damaged"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "is damaged"),
        (far_token, "is damaged"),
        (more_tokens, "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_one_sentence(
    five: tuple[Unthreaded, Path], damage: Any, told: str, tmp_path: Path
) -> None:
    engine, whole = five
    folder, step = tmp_path / "out", learner_of(engine).step
    shutil.copytree(whole, folder)
    damage(folder)
    failure, _ = engine.do(ResumeTraining(str(folder)))
    assert isinstance(failure, Failure)
    assert failure.expected, failure
    assert told in failure.message
    assert failure.hint
    assert [each.step for each in trained(engine, 1)] == [step + 1], "the training that was there goes on"


def test_a_text_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    trained(engine, 2)
    folder = saved(engine, tmp_path / "out")
    (tmp_path / "text.txt").write_text(text(seed=9))
    failure, _ = engine.do(ResumeTraining(str(folder)))
    assert isinstance(failure, Failure)
    assert "has changed" in failure.message

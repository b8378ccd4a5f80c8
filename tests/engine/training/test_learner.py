"""A training step by step: against a plain MLX loop, by its seed, and what each step tells."""

from __future__ import annotations

import math
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.llama import Model, ModelArgs

from engine.errors import EngineError
from engine.model.load import prepare
from engine.protocol import BeginTraining, Ended, Failure, Train, TrainedStep, TrainingBegun
from engine.setting import check
from engine.settings import LoadSettings, TrainingSettings
from engine.training.learner import Learner, _learner
from tests.engine.training.rig import tiny
from tests.engine.unthreaded import Unthreaded


def begun(settings: TrainingSettings) -> Unthreaded:
    engine = Unthreaded()
    engine.one(BeginTraining(settings), TrainingBegun)
    return engine


def learner_of(engine: Unthreaded) -> Learner:
    return _learner(engine.context)


def trained(engine: Unthreaded, steps: int = 10**6) -> list[TrainedStep]:
    return engine.of(TrainedStep, engine.do(Train(steps)))


def plain_losses(learner: Learner, rates: list[float]) -> list[float]:
    """The same training as a person would write it with mlx_lm's class: as many steps as there are rates."""
    settings, row = learner.settings, learner.train
    mx.random.seed(settings.seed)
    model = Model(ModelArgs.from_dict(learner.config))
    optimizer = optim.AdamW(learning_rate=0.0, betas=[0.9, 0.95], weight_decay=0.01)

    def loss_of(x: Any, y: Any) -> Any:
        return nn.losses.cross_entropy(model(x), y).mean()

    losses = []
    for step, rate in enumerate(rates):
        starts = np.random.default_rng((settings.seed, step)).integers(
            0, len(row) - settings.row_tokens, settings.rows
        )
        x = mx.array([row[at : at + settings.row_tokens].tolist() for at in starts])
        y = mx.array([row[at + 1 : at + 1 + settings.row_tokens].tolist() for at in starts])
        loss, gradients = nn.value_and_grad(model, loss_of)(x, y)
        named: Any = tree_flatten(gradients)
        norm = math.sqrt(sum(float((g * g).sum()) for _, g in named))
        scale = min(1.0, 1 / (norm + 1e-6))
        gradients = tree_unflatten([(name, g * scale) for name, g in named])
        optimizer.learning_rate = rate
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        losses.append(loss.item())
    return losses


def test_losses_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path, steps=30))
    steps = trained(engine)
    plain = plain_losses(learner_of(engine), [each.rate for each in steps])
    assert [each.loss for each in steps] == pytest.approx(plain, rel=1e-5)
    assert steps[-1].loss < steps[0].loss - 0.5


def test_a_step_tells_what_it_is(tmp_path: Path) -> None:
    settings = tiny(tmp_path)
    engine = begun(settings)
    (opened,) = engine.of(TrainingBegun)
    steps = trained(engine)
    assert [each.step for each in steps] == [*range(1, 13)]
    assert [each.tokens for each in steps] == [32 * n for n in range(1, 13)]
    assert [each.step for each in steps if each.look is not None] == [1, 4, 8, 12]
    assert opened.parts == ("embedding", "layer 0", "layer 1", "norm")
    assert all(len(each.norms) == 4 and min(each.norms) > 0 for each in steps)
    assert steps[-1].left_ms == 0 < steps[0].left_ms
    assert steps[0].loss == pytest.approx(math.log(opened.vocabulary), rel=0.1)
    rates = [each.rate for each in steps]
    assert rates[0] == pytest.approx(settings.rate / 20)
    assert max(rates) <= settings.rate
    assert rates[-1] < max(rates)
    assert opened.parameters == sum(a.size for _, a in tree_flatten(learner_of(engine).model.parameters()))


def test_the_time_of_a_step_is_that_of_its_computation(tmp_path: Path) -> None:
    learner = learner_of(begun(tiny(tmp_path, width=64, rows=32, row_tokens=64)))
    learner.learn()
    started = time.perf_counter()
    told = learner.learn()
    took = (time.perf_counter() - started) * 1000
    assert 0.5 * took < told.ms <= took
    assert told.left_ms == pytest.approx(10 * fmean(learner._ms) + 10 * learner._look_ms / 4)


def test_held_out_loss_is_that_of_tokens_it_never_learns_from(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    last = trained(engine)[-1].look
    learner = learner_of(engine)
    row, width = learner.held_out, 17
    rows = [row[at : at + width] for at in range(0, len(row) - width + 1, width)][:32]
    losses = []
    for each in rows:
        logits = np.array(learner.model(mx.array([each[:-1].tolist()]))[0]).astype(np.float64)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        losses.append(-logits[np.arange(16), each[1:]].mean())
    assert last is not None
    assert last.held_out_loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert 0.04 < len(row) / (len(row) + len(learner.train)) < 0.06


@pytest.mark.slow
def test_the_same_seed_trains_the_same_model(tmp_path: Path) -> None:
    def told(seed: int) -> list[Any]:
        steps = trained(begun(tiny(tmp_path, seed=seed)))
        return [
            (each.loss, each.norms, each.look and (each.look.sample, each.look.candidates)) for each in steps
        ]

    assert told(5) == told(5)
    assert [each[0] for each in told(5)] != [each[0] for each in told(6)]


def test_single_steps_are_a_run_and_looks_change_nothing(tmp_path: Path) -> None:
    one, other = begun(tiny(tmp_path)), begun(tiny(tmp_path, every=100))
    single = [each for _ in range(12) for each in trained(one, 1)]
    assert [each.loss for each in single] == [each.loss for each in trained(other)]
    assert trained(one) == []


def test_a_run_that_is_cancelled_can_go_on(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path))
    engine.cancel_when = lambda record: isinstance(record, TrainedStep) and record.step == 5
    *steps, ended = engine.do(Train(12))
    assert ended == Ended("Train", cancelled=True)
    assert len(steps) == 5
    assert [each.step for each in trained(engine)] == [*range(6, 13)]


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="on a GPU MLX compiles by itself")
def test_neither_a_training_nor_a_model_has_mlx_call_a_compiler_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(mx, "disable_compile", lambda: calls.append("off"))
    begun(tiny(tmp_path))
    assert calls == ["off"]
    prepare(LoadSettings())
    assert calls == ["off"] * 2


def test_without_a_training_there_is_nothing_to_step() -> None:
    failure, _ = Unthreaded().do(Train())
    assert failure == Failure("Train", "No training was begun.", "Begin one.", error="StepError")


@pytest.mark.parametrize(
    "others",
    [
        {"layers": 0}, {"layers": 13}, {"width": 20}, {"width": 1000}, {"vocabulary": 256}, {"rows": 0},
        {"row_tokens": 1000}, {"steps": 0}, {"every": 0}, {"rate": 0.0}, {"rate": math.nan}, {"rate": math.inf},
        {"prompt": ""}, {"prompt": "x" * 201}, {"seed": -1}, {"texts": ("x",) * 101},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(others: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        check(tiny(tmp_path, **others))


@pytest.mark.slow
def test_a_rate_that_is_far_too_high_still_tells_its_steps(tmp_path: Path) -> None:
    engine = begun(tiny(tmp_path, rate=1.0, steps=30))
    assert len(trained(engine)) == 30

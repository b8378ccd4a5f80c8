"""The gate of `inspector diff` on fuses of a LoRA adapter: a right one, and some that were broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load, save

from engine import pocket
from inspector.cli.main import main

TEXT = """Once upon a time, there was a little girl named Lily. She loved to play with her toys in the park.
One day, she saw a big red ball. It was very high in a tree, and she could not reach it. Lily was sad.
Then a kind bird came and said, "Why are you sad?" Lily said, "My ball is in the tree." The bird flew up and
pushed the ball down. Lily was very happy. She said, "Thank you, bird!" They played with the ball all day.
When the sun went down, Lily went home and told her mom about the bird. Her mom smiled and said, "You have a
new friend." Lily went to bed and dreamed of the bird. The next day she took some bread to the park. The bird
came and ate the bread, and they were friends for ever. Tom had a dog. The dog liked to run and jump. One day the
dog ran away and Tom cried. He looked under the bed, behind the house and in the garden. Then he heard a bark. The
dog was in the box! Tom laughed and gave the dog a big hug."""
LINEARS = 56
GATE = ("--dtype", "float32", "--max-kld", "0.001", "--min-same-top", "0.98", "--max-ppl-ratio", "1.02")
"""What README suggests for a fuse. In bfloat16 rounding alone has 0.0013 bits."""


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter on every linear layer of the bundled model, of random weights that change what it says."""
    folder = tmp_path_factory.mktemp("adapter")
    parameters = {"rank": 8, "scale": 4.0, "dropout": 0.0}
    config = {"fine_tune_type": "lora", "num_layers": 8, "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    model, _ = load(str(pocket.directory()))
    model.freeze()
    mx.random.seed(2)
    linear_to_lora_layers(model, 8, dict(parameters))
    trained = dict(tree_flatten(model.trainable_parameters()))
    assert len(trained) == 2 * LINEARS
    weights = {
        name: mx.random.normal(each.shape) * 0.06 if name.endswith("lora_b") else each
        for name, each in trained.items()
    }
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


Change = Callable[[str, LoRALinear], None]
"""What is done wrong to a layer, by its name, before it is fused."""


def scaled(by: float) -> Change:
    def change(name: str, layer: LoRALinear) -> None:
        layer.scale *= by

    return change


def without(part: str) -> Change:
    def change(name: str, layer: LoRALinear) -> None:
        if part in name:
            layer.scale = 0.0

    return change


BROKEN = {
    "scale-1.1": scaled(1.1),
    "scale-0.5": scaled(0.5),
    "without-a-linear": without("layers.3.mlp.up_proj"),
    "without-a-layer": without(".layers.3."),
}


@pytest.fixture(scope="module")
def fused(adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Fuses the adapter as mlx_lm.fuse does it, with a change from `BROKEN`, or right."""
    base = str(pocket.directory())

    def make(name: str) -> Path:
        model, tokenizer, config = load(base, adapter_path=str(adapter), return_config=True)
        layers = [(path, module) for path, module in model.named_modules() if hasattr(module, "fuse")]
        assert len(layers) == LINEARS
        for path, module in layers:
            BROKEN.get(name, lambda *_: None)(path, module)
        model.update_modules(tree_unflatten([(path, module.fuse()) for path, module in layers]))
        folder = tmp_path_factory.mktemp(name)
        save(folder, base, model, tokenizer, config, donate_model=False)
        return folder

    return make


@pytest.fixture
def gate(adapter: Path, fused: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> Any:
    """The exit status of the comparison with the adapter live, the verdicts and the figures."""

    def run(name: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        given = [
            "diff",
            str(pocket.directory()),
            "--adapter-path",
            str(adapter),
            str(fused(name)),
            "-p",
            TEXT,
        ]
        status = main([*given, *GATE, "--json"])
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        figures = {name: last[name] for name in ("scored", "ratio", "same_top")} | {
            "kl": last["kl_bits"]["mean"]
        }
        return status, {each["name"]: each["verdict"] for each in last["gate"]}, figures

    return run


def test_a_right_fuse_holds(gate: Any) -> None:
    status, verdicts, figures = gate("right")
    assert status == 0
    assert set(verdicts.values()) == {"holds"}
    assert figures["kl"]["value"] < 0.001


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("scale-1.1", "broken"),
        ("scale-0.5", "broken"),  # it is below 1: the inverse of the bound finds it
        ("without-a-linear", "holds"),  # KL alone finds it
        ("without-a-layer", None),
    ],
)
def test_a_broken_fuse_is_found(gate: Any, name: str, ratio: str | None) -> None:
    status, verdicts, figures = gate(name)
    assert status == 3
    assert verdicts["mean KLD"] == "broken"
    assert ratio in (None, verdicts["PPL ratio"])
    if name == "scale-0.5":
        assert figures["ratio"]["value"] < 0.9

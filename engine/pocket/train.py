"""Train the pocket model with PyTorch and save it in the layout that mlx_lm loads.

Muon on the matrices, AdamW on the rest; the rate is constant, then falls in a line over the last 45 % of the
time; bfloat16 autocast. Needs torch 2.9 or newer, numpy and safetensors. Run it as
`python -m engine.pocket.train DATA TARGET --minutes 88`, after `engine.pocket.prepare`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from engine.frozen import frozen
from engine.pocket.network import Llama, Shape

WARM_UP_STEPS = 50
CONSTANT_SHARE = 0.55
"""Of the time, before the rate falls."""
LEAST_RATE = 0.02
"""As a share of the base rate."""
REPORT_STEPS = 150
HELD_OUT_ROWS = 60
EVALUATION_BATCH = 10


@frozen
class Data:
    """Token ids, one long row each."""

    train: torch.Tensor
    held_out: dict[str, torch.Tensor]
    """`raw`: stories alone; `chat`: each behind its request."""


def read_data(directory: Path) -> Data:
    """Read what `engine.pocket.prepare` wrote."""

    def read(name: str) -> torch.Tensor:
        return torch.from_numpy(np.fromfile(directory / f"{name}.bin", np.uint16).astype(np.int64))

    return Data(read("train"), {name: read(f"valid_{name}") for name in ("raw", "chat")})


def rate_factor(step: int, done: float) -> float:
    """The learning rate as a share of the base rate.

    Args:
        step: Steps already made.
        done: Share of the time that has passed, 0 to 1.
    """
    warm_up = min(1, (step + 1) / WARM_UP_STEPS)
    fall = 1.0 if done < CONSTANT_SHARE else max(LEAST_RATE, (1 - done) / (1 - CONSTANT_SHARE))
    return warm_up * fall


def make_optimizers(model: Llama) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    named = list(model.named_parameters())
    matrices = [weight for name, weight in named if weight.dim() == 2 and "embed" not in name]
    rest = [weight for name, weight in named if weight.dim() != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.02),
        torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class Trainer:
    """Trains one model on one device.

    Args:
        data: What to learn from.
        batch: Rows a step.
        device: `cpu` or `cuda`.
    """

    def __init__(self, data: Data, batch: int, device: str) -> None:
        self.data = data
        self.batch = batch
        self.device = device
        self.shape = Shape()
        self.model = Llama(self.shape).to(device)
        self.optimizers = make_optimizers(self.model)
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        self._rates = [(group, group["lr"]) for group in groups]
        self._rng = np.random.default_rng(0)
        self.steps = 0

    @property
    def tokens(self) -> int:
        """Tokens trained on so far."""
        return self.steps * self.batch * self.shape.context

    def step(self, done: float) -> float:
        """Make one step.

        Args:
            done: Share of the time that has passed, 0 to 1.

        Returns:
            The loss before the step, in nats per token.
        """
        factor = rate_factor(self.steps, done)
        for group, base in self._rates:
            group["lr"] = base * factor
        rows = self._draw()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return float(loss.item())

    def _draw(self) -> torch.Tensor:
        width = self.shape.context + 1
        starts = self._rng.integers(0, len(self.data.train) - width, self.batch)
        return torch.stack([self.data.train[start : start + width] for start in starts]).to(self.device)

    def evaluate(self) -> dict[str, float]:
        """Nats per token on the held-out stories, by kind."""
        self.model.eval()
        with torch.no_grad(), torch.autocast(self.device, torch.bfloat16):
            losses = {name: self._loss(row) for name, row in self.data.held_out.items()}
        self.model.train()
        return losses

    def _loss(self, row: torch.Tensor) -> float:
        width = self.shape.context
        count = min((len(row) - 1) // width, HELD_OUT_ROWS)
        ids = row[: count * width].view(count, width).to(self.device)
        targets = row[1 : count * width + 1].view(count, width).to(self.device)
        batches = [slice(start, start + EVALUATION_BATCH) for start in range(0, count, EVALUATION_BATCH)]
        return round(float(np.mean([self.model(ids[part], targets[part]).item() for part in batches])), 4)

    def save(self, path: Path) -> None:
        """Write the weights in bfloat16, under the names that mlx_lm reads."""
        weights = {
            f"model.{name}": weight.to(torch.bfloat16).cpu().contiguous()
            for name, weight in self.model.state_dict().items()
        }
        save_file(weights, path, metadata={"format": "mlx"})


def train(trainer: Trainer, minutes: float, target: Path) -> None:
    """Train for some minutes; weights and held-out figures are written every 150 steps and at the end."""
    weights = target / "model.safetensors"
    start = time.time()
    with open(target / "log.jsonl", "a", encoding="utf-8") as log:
        while (done := (time.time() - start) / (minutes * 60)) < 1:
            loss = trainer.step(done)
            if trainer.steps % REPORT_STEPS == 0:
                _report(log, trainer, train=round(loss, 4))
                trainer.save(weights)
        _report(log, trainer, final=True)
        trainer.save(weights)


def _report(log: TextIO, trainer: Trainer, **figures: Any) -> None:
    line = {"step": trainer.steps, "tokens": trainer.tokens, **figures, **trainer.evaluate()}
    log.write(json.dumps(line) + "\n")
    log.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Train a pocket model."""
    parser = argparse.ArgumentParser(description="Train the pocket model.")
    parser.add_argument("data", type=Path, help="directory that engine.pocket.prepare wrote")
    parser.add_argument("target", type=Path, help="directory for model.safetensors and log.jsonl")
    parser.add_argument("--minutes", type=float, default=88)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--batch", type=int, default=16, help="rows of 512 tokens a step")
    args = parser.parse_args(argv)
    args.target.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    train(Trainer(read_data(args.data), args.batch, args.device), args.minutes, args.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

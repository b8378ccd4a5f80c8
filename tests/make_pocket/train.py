"""The pocket model's network in PyTorch: a llama, with the parameter names that mlx_lm loads. Needs torch."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from msgspec import Struct
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

# ---- the network: a llama, with the parameter names that mlx_lm loads --------------------------


class Shape(Struct, frozen=True):
    """Sizes of the network; the defaults are the pocket model's, as in config.json."""

    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 768
    context: int = 512
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
    initial_deviation: float = 0.02

    @property
    def head_size(self) -> int:
        """Dimensions of one head."""
        return self.hidden // self.heads


class RMSNorm(nn.Module):
    """Scales a vector to unit root mean square, then by a learned weight."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.epsilon = shape.norm_epsilon
        self.weight = nn.Parameter(torch.ones(shape.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


def rope_tables(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions, float32, shape (context, head size) each."""
    exponents = torch.arange(0, shape.head_size, 2).float() / shape.head_size
    angles = torch.outer(torch.arange(shape.context).float(), 1 / shape.rope_base**exponents)
    return torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair of dimensions by its position's angle."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Attention(nn.Module):
    """Causal self-attention with grouped key/value heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv_size = shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        queries = rotate(self._split(self.q_proj(x), shape.heads), cos, sin)
        keys = rotate(self._split(self.k_proj(x), shape.kv_heads), cos, sin)
        values = self._split(self.v_proj(x), shape.kv_heads)
        group = shape.heads // shape.kv_heads
        keys, values = (side.repeat_interleave(group, 1).to(queries.dtype) for side in (keys, values))
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(x.shape))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.shape.head_size).transpose(1, 2)


class MLP(nn.Module):
    """The gated feed-forward part of a layer (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention, then the feed-forward part, each normed before and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape)
        self.mlp = MLP(shape)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The whole network; the output matrix is the embedding.

    Args:
        shape: Its sizes.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(shape)

    def _initialise(self, shape: Shape) -> None:
        """Normal weights; what writes to the stream is scaled down by the depth, so that the stream keeps its size."""
        into_stream = ("o_proj.weight", "down_proj.weight")
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = 1 / math.sqrt(2 * shape.layers) if name.endswith(into_stream) else 1.0
                nn.init.normal_(weight, std=shape.initial_deviation * scale)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss in nats per token, a float32 scalar.

        Args:
            ids: Token ids, int64, shape (texts, tokens).
            targets: The id after each, same shape and dtype.
        """
        stream = self.embed_tokens(ids)
        length = ids.shape[1]
        cos, sin = (table[:length].to(stream.dtype) for table in (self.cos, self.sin))
        for layer in self.layers:
            stream = layer(stream, cos, sin)
        logits = functional.linear(self.norm(stream), self.embed_tokens.weight)
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


# ---- training ----------------------------------------------------------------------------------

WARM_UP_STEPS = 50
CONSTANT_SHARE = 0.55
"""Share of the time before the rate falls."""
LEAST_RATE = 0.02
"""As a share of the base rate."""
REPORT_STEPS = 150
HELD_OUT_ROWS = 60
EVALUATION_BATCH = 10


class Data(Struct, frozen=True):
    """Token ids, one long row each."""

    train: torch.Tensor
    held_out: dict[str, torch.Tensor]
    """`raw`: stories alone; `chat`: each behind its request."""


def read_data(directory: Path) -> Data:
    """Read what `tests.make_pocket.prepare` wrote."""

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
    parser.add_argument("data", type=Path, help="directory that tests.make_pocket.prepare wrote")
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

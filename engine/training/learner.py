"""A small llama that learns: mlx_lm's own class and MLX's AdamW, a step at a time; in the thread that owns MLX."""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import fmean
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.llama import Model, ModelArgs

from engine.protocol import Continuation, TrainedStep, TrainingLook
from engine.settings import TrainingSettings
from engine.training.text import END_ID, TrainingTokens

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
LARGEST_NORM = 1.0
"""To which the gradient of all weights together is clipped."""
WARM_UP_STEPS = 20
LEAST_RATE = 0.05
"""To which the straight fall to the end goes."""
SLOWED = 150
"""Steps after which the rate is the highest one divided by the root of 2, beside that fall. Held-out loss in nats after
the same processor time, 23 s and 80 s, of 4 layers with a cosine from 3e-3 (steps 340 and 1,200): 2.90, 2.96, 3.01 by
seed, and 2.34. Of 2 layers with this from 8e-3 (steps 548 and 1,880): 2.70, 2.71, 2.71, and 2.33."""
HEADS = 4
"""Attention heads of every layer; the width is divided among them."""
HELD_OUT_ROWS = 32
"""At most, for a look."""
HELD_OUT_BATCH = 8
CANDIDATES = 8
SAMPLE_TOKENS = 48
SAMPLE_TEMPERATURE = 0.8
TIMED_STEPS = 50
"""By whose time the time left is estimated."""


def config_of(settings: TrainingSettings, vocabulary: int) -> dict[str, Any]:
    """The config.json of the model, as mlx_lm reads it.

    Args:
        settings: Its sizes.
        vocabulary: Tokens of its tokenizer.
    """
    return {
        "model_type": "llama",
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "intermediate_size": settings.width * 8 // 3 // 8 * 8,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "head_dim": settings.width // HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocabulary,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
        "eos_token_id": END_ID,
    }


def rate_at(settings: TrainingSettings, step: int) -> float:
    """The learning rate of a step: a warm-up, then a fall with the root of the steps and straight to the end.

    Args:
        settings: The highest rate, and the steps of the training.
        step: Steps made before.
    """
    fall = max(LEAST_RATE, 1 - step / settings.steps) / math.sqrt(1 + step / SLOWED)
    return settings.rate * min(1.0, (step + 1) / WARM_UP_STEPS) * fall


def batch_at(settings: TrainingSettings, row: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    """The token ids of a step's batch, which depend on seed and step alone: a training that is taken up goes on as it
    would have.

    Args:
        settings: Seed and sizes.
        row: The text, token ids.
        step: Steps made before.

    Returns:
        Shape (rows, tokens + 1), int32.
    """
    width = settings.row_tokens + 1
    starts = np.random.default_rng((settings.seed, step)).integers(0, len(row) - width + 1, settings.rows)
    return np.stack([row[start : start + width] for start in starts])


def part_of(name: str) -> str:
    """The part that a weight belongs to: `embedding`, `layer 0`, `norm`.

    Args:
        name: Of the weight, as mlx_lm has it: `model.layers.0.mlp.up_proj.weight`.
    """
    path = name.split(".")
    return f"layer {path[2]}" if path[1] == "layers" else {"embed_tokens": "embedding"}.get(path[1], path[1])


def _loss(model: Any, batch: Any) -> Any:
    return nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:], reduction="mean")


class Learner:
    """Trains one model.

    Args:
        settings: Its sizes, its seed and how long it learns.
        tokenizer: Its own.
        tokens: What it learns from.
    """

    def __init__(self, settings: TrainingSettings, tokenizer: Any, tokens: TrainingTokens) -> None:
        self.settings, self.tokenizer, self.tokens = settings, tokenizer, tokens
        self.config = config_of(settings, tokenizer.get_vocab_size())
        mx.random.seed(settings.seed)
        self.model = Model(ModelArgs.from_dict(self.config))
        self.optimizer = optim.AdamW(settings.rate, betas=list(BETAS), weight_decay=WEIGHT_DECAY)
        self.optimizer.init(self.model.trainable_parameters())
        mx.eval(self.model.parameters(), self.optimizer.state, mx.random.state)
        self.step = 0
        """Steps made."""
        named: Any = tree_flatten(self.model.parameters())
        self.parts = tuple(dict.fromkeys(part_of(name) for name, _ in named))
        self.parameters = sum(array.size for _, array in named)
        self._gradient = nn.value_and_grad(self.model, _loss)
        self._prompt = tokenizer.encode(settings.prompt).ids
        self._ms: deque[float] = deque(maxlen=TIMED_STEPS)
        self._look_ms = 0.0

    @property
    def done(self) -> bool:
        """True if the last step is made."""
        return self.step >= self.settings.steps

    def learn(self) -> TrainedStep:
        """Make one step, and look at what came of it where it is time to."""
        started = time.perf_counter()
        rate = rate_at(self.settings, self.step)
        self.optimizer.learning_rate = rate
        batch = mx.array(batch_at(self.settings, self.tokens.train, self.step))
        loss, gradients = self._gradient(self.model, batch)
        norms = self._norms(gradients)
        clipped, _ = optim.clip_grad_norm(gradients, LARGEST_NORM)
        self.optimizer.update(self.model, clipped)
        mx.eval(loss, norms, self.model.parameters(), self.optimizer.state)
        self.step += 1
        ms = (time.perf_counter() - started) * 1000
        self._ms.append(ms)
        look = self.look() if self.step % self.settings.every == 0 or self.step == 1 or self.done else None
        return TrainedStep(
            step=self.step,
            loss=loss.item(),
            rate=rate,
            norms=tuple(norm.item() for norm in norms),
            tokens=self.step * batch.shape[0] * (batch.shape[1] - 1),
            ms=ms,
            left_ms=self._left_ms(),
            look=look,
        )

    def look(self) -> TrainingLook:
        """What the model knows now; the training doesn't change by it."""
        started = time.perf_counter()
        held_out = self._held_out_loss()
        probs = np.array(mx.softmax(self.model(mx.array([self._prompt]))[0, -1]))
        best = np.argsort(-probs, kind="stable")[:CANDIDATES].tolist()
        found = tuple(Continuation(id, self._text_of(id), float(probs[id])) for id in best)
        sample = self.sample()
        self._look_ms = (time.perf_counter() - started) * 1000
        return TrainingLook(held_out, found, sample, self._look_ms)

    def sample(self) -> str:
        """How a text goes on after the prompt, drawn with the seed."""
        rng, cache = np.random.default_rng(self.settings.seed), make_prompt_cache(self.model)
        ids, drawn = self._prompt, list[int]()
        while len(drawn) < SAMPLE_TOKENS:
            logits = np.array(self.model(mx.array([ids]), cache=cache)[0, -1]).astype(np.float64)
            weights = np.exp((logits - logits.max()) / SAMPLE_TEMPERATURE)
            if (
                not np.isfinite(weights).all()
                or (picked := int(rng.choice(len(weights), p=weights / weights.sum()))) == END_ID
            ):
                break
            drawn.append(picked)
            ids = [picked]
        return str(self.tokenizer.decode(drawn))

    def _text_of(self, id: int) -> str:
        return str(self.tokenizer.decode([id], skip_special_tokens=False))

    def _norms(self, gradients: Any) -> list[Any]:
        """Norm of each part's gradient, in the order of `parts`."""
        squares: dict[str, Any] = {}
        named: Any = tree_flatten(gradients)
        for name, gradient in named:
            part = part_of(name)
            squares[part] = squares.get(part, 0) + mx.sum(gradient * gradient)
        return [mx.sqrt(squares[part]) for part in self.parts]

    def _held_out_loss(self) -> float:
        width, row = self.settings.row_tokens + 1, self.tokens.held_out
        count = min(HELD_OUT_ROWS, len(row) // width)
        rows = mx.array(row[: count * width].reshape(count, width))
        batches = [rows[start : start + HELD_OUT_BATCH] for start in range(0, count, HELD_OUT_BATCH)]
        return float(sum(_loss(self.model, batch).item() * len(batch) for batch in batches) / count)

    def _left_ms(self) -> float:
        left = max(0, self.settings.steps - self.step)
        return left * (fmean(self._ms) + self._look_ms / self.settings.every)

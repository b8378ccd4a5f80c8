"""A family's model read from the inside, and the same text run in one forward over empty caches to compare it with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.inside.attention import read_attention
from engine.inside.lens import read_lens
from engine.inside.taps import AttentionRun, Taps
from engine.model.load import Loaded, load
from engine.model.tokens import plain_tokenizer
from engine.protocol import AttentionLayer, AttentionRead, Check, LensRead, ReadAttention, ReadLens
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests import synthetic
from tests.engine.sessions import begun
from tests.families import FAMILIES

PROMPT = [5, 17, 250, 31, 8, 17, 250, 99, 301, 44, 8, 17]
"""Longer than the window of every model that has one."""


class Look(Struct, frozen=True):
    """What a session says of the inside of its model at its last token."""

    attention: AttentionRead
    lens: LensRead
    whole: float
    """The largest difference of a weight, over the text, from that of a forward of the whole text; infinite where the
    two have different attentions."""

    @property
    def checks(self) -> dict[str, Check]:
        """Those of all views, by name; of one that several have the worst."""
        every = [check for view in (self.attention, self.lens) for check in view.facts.checks]
        return {check.name: check for check in sorted(every, key=lambda check: check.error)}


def loaded(directory: Path, family: str, dtype: mx.Dtype = mx.float32, **settings: Any) -> Loaded:
    """A family's model, written where it isn't there, and computed in the type that it is written in."""
    path = directory / f"{family}-{dtype.size}"
    if not path.exists():
        synthetic.write(path, FAMILIES[family], dtype=dtype)
    with patch("engine.model.load._tokenizer", _pocket_tokenizer):
        return load(LoadSettings(model=str(path), dtype="file", **settings))


def _pocket_tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    """As a llama's: for most families transformers would be imported, and look for a tokenizer of that family."""
    return plain_tokenizer(path, {**config, "model_type": "llama"})


def opened(model: Loaded, steps: int = 2) -> Session:
    """A session some steps behind the prompt."""
    return begun(model, PROMPT, Settings(candidates=4), steps=steps)


Found = TypeVar("Found")


def answer(records: Iterable[Found]) -> Found:
    """The last record of a command."""
    *_, last = records
    return last


def look(session: Session, node: int | None = None) -> Look:
    """Read all views at a token, the session's own without one."""
    at = session.node if node is None else node
    attention = answer(read_attention(session, ReadAttention(at)))
    return Look(attention, answer(read_lens(session, ReadLens(at))), difference(session, attention))


def difference(session: Session, read: AttentionRead) -> float:
    """How far the weights are from those of one forward of the whole text, whose keys are in the text's order."""
    ids = session.tree.tokens(read.node)
    runner = session.runner.fresh()
    taps = Taps(session.runner.model, runner.kv.caches)
    with taps.set():
        runner.forward_logits(ids)
    runs = [run for run in taps.attended if run.positions is not None]
    if [run.layer for run in runs] != [layer.layer for layer in read.layers]:
        return float("inf")
    return max(map(_apart, runs, read.layers, [read.tokens] * len(runs)), default=0.0)


def _apart(run: AttentionRun, layer: AttentionLayer, tokens: int) -> float:
    weights = np.array(run.weights[:, -1].astype(mx.float32))
    mine = np.array([layer.over(head, tokens) for head in range(layer.heads)])
    return float(np.abs(weights - mine).max()) if weights.shape == mine.shape else float("inf")

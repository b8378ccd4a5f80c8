"""A family's model read from the inside, and the same text run in one forward over empty caches to compare it with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np

from engine.errors import EngineError
from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.lens import read_lens
from engine.inspection.inside.taps import Taps
from engine.model import synthetic
from engine.model.load import Loaded, load
from engine.model.plain_tokenizer import plain_tokenizer
from engine.records import AttentionRead, Check, LensRead
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.families import FAMILIES

PROMPT = [5, 17, 250, 31, 8, 17, 250, 99, 301, 44, 8, 17]
"""Longer than the window of every model that has one."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a session says of the inside of its model at its last token."""

    attention: AttentionRead | EngineError
    lens: LensRead | EngineError
    whole: float
    """The largest difference of a weight, over the text, from that of a forward of the whole text; infinite where the
    two have different attentions."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Those of all views that are there, once each."""
        views = [view for view in (self.attention, self.lens) if not isinstance(view, EngineError)]
        return tuple({check.name: check for view in views for check in view.facts.checks}.values())


def loaded(directory: Path, family: str, **settings: object) -> Loaded:
    """A family's model, written where it isn't there."""
    if not (directory / family).exists():
        synthetic.write(directory / family, FAMILIES[family])
    with patch("engine.model.load._tokenizer", _pocket_tokenizer):
        return load(LoadSettings(model=str(directory / family), **settings))  # type: ignore[arg-type]


def _pocket_tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    """As a llama's: for most families transformers would be imported, and look for a tokenizer of that family."""
    return plain_tokenizer(path, {**config, "model_type": "llama"})


def opened(model: Loaded, steps: int = 2) -> Session:
    """A session some steps behind the prompt."""
    session = Session(model, Settings(candidates=4))
    list(session.prefill("", PROMPT, echo=False))
    for _ in range(steps):
        session.step()
    return session


def look(session: Session) -> Look:
    """Read all views at the session's token."""
    attention = _read(read_attention, session)
    whole = 0.0 if isinstance(attention, EngineError) else difference(session, attention)
    return Look(attention, _read(read_lens, session), whole)


def _read(reader, session):  # type: ignore[no-untyped-def]
    try:
        return reader(session, session.node)
    except EngineError as error:
        return error


def difference(session: Session, read: AttentionRead) -> float:
    """How far the weights are from those of one forward of the whole text, whose keys are in the text's order."""
    ids = session.tree.tokens(read.node)
    runner, taps = session.runner.fresh(), Taps(session.runner.model)
    with taps.set():
        runner.forward_logits(ids)
    if [run.layer for run in taps.attended] != [layer.layer for layer in read.layers]:
        return float("inf")
    worst = 0.0
    for run, layer in zip(taps.attended, read.layers, strict=True):
        weights = np.array(run.weights[:, -1].astype(mx.float32))
        mine = np.array([layer.over(head, read.tokens) for head in range(layer.heads)])
        if weights.shape != mine.shape:
            return float("inf")
        worst = max(worst, float(np.abs(weights - mine).max()))
    return worst

"""Sessions that have read a prompt: their moves, their caches, and a model that fails under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from engine.model.load import Loaded
from engine.protocol import Moved
from engine.session.session import Session
from engine.settings import Settings


def begun(
    loaded: Loaded,
    prompt: str | Sequence[int],
    settings: Settings | None = None,
    steps: int = 0,
    echo: bool | None = False,
) -> Session:
    """A session some steps behind its prompt."""
    session = Session(loaded, settings or Settings())
    ids = session.tokens.encode(prompt) if isinstance(prompt, str) else list(prompt)
    list(session.prefill(prompt if isinstance(prompt, str) else "", ids, echo=echo))
    for _ in range(steps):
        session.step()
    return session


def go_back(session: Session, count: int = 1) -> Moved:
    """Move back some tokens, at most to the first."""
    node = session.node
    for _ in range(count):
        node = session.tree[node].parent if session.tree[node].depth > 1 else node
    return session.move(node)


def go_forward(session: Session, count: int = 1) -> Moved:
    """Move forward some tokens along the branch that was begun last, as far as it reaches."""
    node = session.node
    for _ in range(count):
        newest = session.tree[node].newest
        node = node if newest is None else newest
    return session.move(node)


def arrays(session: Session) -> list[np.ndarray]:
    """All arrays of the live cache, as they are."""
    return [np.array(array.astype(mx.float32)) for array in session.kv.state()]


class Breaks:
    """A model that fails at one of its forwards: with an error of these words, or without numbers for None."""

    def __init__(self, model: Any, after: int, said: str | None) -> None:
        self._model, self._left, self._said = model, after, said

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left >= 0:
            return self._model(*args, **options)
        if self._said is not None:
            raise RuntimeError(self._said)
        return self._model(*args, **options) * float("nan")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

"""Walks over a model on ranks and in one process, compared step by step; `main` runs on each rank.

Rank 0 prints one JSON object: for each model what was found, or why it could not be run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from engine.decoding.beam import search
from engine.decoding.lookahead import lines_ahead
from engine.errors import EngineError
from engine.model.load import load
from engine.ranks.group import joined
from engine.ranks.handlers import load as load_over_ranks
from engine.ranks.kv import RankedKV
from engine.session.run import run
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from tests import synthetic
from tests.engine.sessions import go_back
from tests.families import FAMILIES

PROMPT = [5, 9, 2, 77, 31, 8, 120, 44, 3, 17, 250, 6, 90, 11]
EVENLY: dict[str, Any] = {
    "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 192, "num_hidden_layers": 3,
    "vocab_size": 510, "moe_intermediate_size": 96, "shared_expert_intermediate_size": 96,
    "linear_num_key_heads": 3, "linear_num_value_heads": 6, "hidden_size": 192,
}  # fmt: skip
"""What three ranks can divide."""


def model_at(folder: Path, name: str, ranks: int) -> Path:
    """A tiny random model of a family, with what so many ranks can divide."""
    config = dict(FAMILIES[name])
    if ranks == 4:
        config["num_key_value_heads"] = 4
    if ranks == 3:
        text = config.get("text_config", config)
        text |= {key: value for key, value in EVENLY.items() if key in text}
    path = folder / f"{name}-{ranks}"
    if not path.exists():
        synthetic.write(path, config)
    return path


def written(folder: Path, name: str, ranks: int) -> Path:
    """As `model_at`; rank 0 writes it."""
    group = joined()
    if group.rank == 0:
        model_at(folder, name, ranks)
    group.gather(None)
    return model_at(folder, name, ranks)


def sessions(path: Path, ranks: int, shard: str, **settings: Any) -> tuple[Session, Session]:
    """One on ranks, and one in this process alone."""
    over = load_over_ranks(
        LoadSettings(model=str(path), ranks=ranks, shard=shard, **settings), lambda _: None, Event()
    )
    alone = load(LoadSettings(model=str(path), **settings))
    sampled = Settings(temp=1.0, seed=3, candidates=4, max_tokens=1000)
    return Session(over, sampled), Session(alone, sampled)


class Compared:
    """Does the same on both, and keeps the largest difference of a logit and whether all ids are equal.

    Args:
        over: The session on ranks.
        alone: The one of one process.
    """

    def __init__(self, over: Session, alone: Session) -> None:
        self.over, self.alone = over, alone
        self.largest, self.same, self.steps = 0.0, True, 0

    def do(self, what: Callable[[Session], Any], same: Callable[[Any], Any] = lambda result: None) -> Any:
        """Do it on both; `same` takes what must be equal from each result."""
        here, there = what(self.over), what(self.alone)
        self.largest = max(self.largest, float(np.abs(self.over.logits - self.alone.logits).max()))
        self.same &= same(here) == same(there) and self.over.node == self.alone.node
        self.same &= self.over.kv.offset == self.alone.kv.offset
        self.steps += 1
        return here

    def step(self) -> None:
        """A step."""
        self.do(lambda session: session.step(), lambda step: step.id)


def walk(both: Compared) -> None:
    """Steps, a run, back, another branch and back to the first, look-ahead, beams, verify."""
    both.do(lambda session: list(session.prefill("", PROMPT)))
    for _ in range(8):
        both.step()
    tip = both.over.node
    both.do(lambda session: go_back(session, 5), lambda moved: (moved.kept, moved.restored, moved.recomputed))
    other = next(each.id for each in both.over.next.candidates if each.id != both.over.next.picked)
    both.do(lambda session: session.choose(other))
    for _ in range(3):
        both.step()
    both.do(lambda session: session.move(tip), lambda moved: (moved.kept, moved.restored, moved.recomputed))
    ids = [each.id for each in both.over.next.candidates[:3]]
    both.do(
        lambda session: list(lines_ahead(session, session.node, ids, 4))[-1],
        lambda ahead: [line.ids for line in ahead.lines],
    )
    both.do(lambda session: list(search(session, BeamSettings(width=3, max_tokens=5))), _beams)
    settings = Settings(temp=0.0, candidates=4, max_tokens=both.over.tree[both.over.node].depth)
    both.do(lambda session: session.configure(settings))
    both.do(_run, lambda steps: steps)
    both.do(lambda session: session.verify(), lambda verified: verified.same_order)


def _run(session: Session) -> list[int]:
    steps = run(session, lambda: False)
    return [step.id for step, _ in zip(steps, range(5), strict=False)]


def _beams(found: list[Any]) -> Any:
    ended = found[-1]
    return [hypothesis.ids for hypothesis in ended.ranking]


def found(folder: Path, name: str, ranks: int, shard: str) -> dict[str, Any]:
    """What is found of one model."""
    path = written(folder, name, ranks)
    over, alone = sessions(path, ranks, shard)
    assert isinstance(over.kv, RankedKV)
    both = Compared(over, alone)
    walk(both)
    uncached = Compared(*sessions(path, ranks, shard, no_kv_cache=True))
    uncached.do(lambda session: list(session.prefill("", PROMPT)))
    for _ in range(3):
        uncached.step()
    used = [over.kv.reading().used_bytes, alone.kv.reading().used_bytes]
    saved = [each for segment in over.mover.store.segments() for each in segment.snapshots]
    own = sum(
        array.nbytes for each in saved for array in (*each.copies, *each.references) if array is not None
    )
    return {
        "same": both.same and uncached.same,
        "largest": max(both.largest, uncached.largest),
        "scale": float(np.abs(alone.logits).max()),
        "operations": both.steps + uncached.steps,
        "kv": used,
        "saved": [sum(each.nbytes for each in saved), sum(joined().gather(own))],
        "groups": over.kv.reading().groups == alone.kv.reading().groups,
        "kinds": over.facts.cache_kinds == alone.facts.cache_kinds,
        "weights": [over.facts.weight_bytes == alone.facts.weight_bytes],
        "sharding": over.kv.sharding,
    }


def main(folder: str, ranks: str, shard: str, *names: str) -> None:
    """Print what is found."""
    result: dict[str, Any] = {}
    for name in names:
        try:
            result[name] = found(Path(folder), name, int(ranks), shard)
        except (EngineError, ValueError, AttributeError, TypeError) as error:
            result[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
    if joined().rank == 0:
        print(json.dumps(result), flush=True)

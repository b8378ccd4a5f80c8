"""Buffers that the next pass can't use are given back: after each chunk, and after each pass without a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import pytest

from engine.decoding.rows import PaddedRows, SequentialRows
from engine.inside.attention import score_heads
from engine.inside.patching import forward_rows
from engine.inside.scores import read_score
from engine.inside.taps import Edits
from engine.lockstep.second import PathRows
from engine.model.forward import Runner
from engine.protocol import PrefillChunk, ReadScore, Record, ScoreHeads
from engine.session.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

IDS = list(range(5, 26))
CHUNK = 8


def prompts(rows: Any) -> int:
    return len(list(rows.begin([IDS]))) - 1


def path_rows(runner: Runner) -> int:
    rows = PathRows(runner, 4096)
    rows.follow(IDS, None, lambda: False)
    rows.after(len(IDS) - 1)
    return len(rows.ends)


def prefill(session: Session) -> int:
    return sum(isinstance(each, PrefillChunk) for each in session.prefill("", IDS, echo=False))


def stepped(session: Session) -> Session:
    """The session at the end of a prompt, with nothing given back so far."""
    list(session.prefill("", IDS, echo=False))
    mx.clear_cache.reset_mock()  # type: ignore[attr-defined]
    return session


def progress(records: Iterable[Record]) -> int:
    return len(list(records)) - 1


WORK: dict[str, Callable[[Session], int]] = {
    "uncached": lambda session: int(session.runner.forward_uncached(IDS).ndim),
    "path": lambda session: session.runner.fresh().forward_path(IDS, ()).ndim + 2,
    "rows one after another": lambda session: prompts(SequentialRows(session.runner.fresh())),
    "padded rows": lambda session: prompts(PaddedRows(session.runner.fresh())),
    "rows of a path": lambda session: path_rows(session.runner.fresh()),
    "prompt": prefill,
    "heads": lambda session: progress(score_heads(stepped(session), ScoreHeads(session.node))),
    "scores": lambda session: progress(read_score(stepped(session), ReadScore(session.node, 1, 0))),
    "changed rows": lambda session: forward_rows(session.runner, [[5]], 2, [Edits()]).ndim - 1,
}
"""Work, and how many chunks or passes it is."""


@pytest.mark.parametrize("name", WORK)
def test_buffers_are_given_back(zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    session, given_back = Session(zoo.load("llama", prefill_step_size=CHUNK), Settings()), Mock()
    monkeypatch.setattr(mx, "clear_cache", given_back)
    count = WORK[name](session)
    assert count > 0
    assert given_back.call_count == count


def test_reordered_rows_give_buffers_back_every_32_tokens(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, given_back = zoo.load("llama").runner(), Mock()
    runner.forward_path(range(5, 35), ())
    monkeypatch.setattr(mx, "clear_cache", given_back)
    calls = [runner.forward_rows([7]) is not None and given_back.call_count for _ in range(3)]
    assert calls == [0, 1, 1]

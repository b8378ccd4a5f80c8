"""The garbage collector: long sessions aren't paused, and what is let go of is freed."""

from __future__ import annotations

import gc
import platform
import weakref
from typing import Any

import pytest

from engine import protocol
from engine.memory import resident, trim
from engine.model import forward
from engine.session import handlers
from engine.session.context import free_garbage
from engine.settings import LoadSettings, Settings
from tests.engine.unthreaded import Unthreaded


class Knot:
    """Something that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_what_was_frozen_is_freed_when_it_is_let_go_of() -> None:
    knot: Any = Knot()
    gone = weakref.ref(knot)
    gc.freeze()
    del knot
    gc.collect()
    assert gone() is not None
    free_garbage()
    assert gone() is None


def test_the_first_model_is_waited_for_no_longer_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing of an earlier one to be freed: to look for it took 40 ms beside the screen's modules."""
    done: list[str] = []
    monkeypatch.setattr(handlers, "free_garbage", lambda: done.append("collect"))
    engine = Unthreaded()
    engine.do(protocol.Load(LoadSettings("/nowhere")))
    assert done == []
    engine.do(protocol.Load(LoadSettings()))  # what a failure may have left behind
    assert done == ["collect"]


@pytest.mark.wide(1)
@pytest.mark.parametrize("run", [False, True])
def test_what_a_longer_cache_leaves_is_given_back_once_its_step_is_done(
    monkeypatch: pytest.MonkeyPatch, run: bool
) -> None:
    """A plain cache takes longer arrays with token 257."""
    done: list[int] = []
    engine = Unthreaded(LoadSettings(), Settings(max_tokens=30), prompt="cat " * 250)
    monkeypatch.setattr(forward, "trim", lambda: done.append(engine.session.kv.offset))
    assert 230 < engine.session.kv.offset < 256
    engine.do(protocol.Run()) if run else engine.do(*(protocol.TakeStep() for _ in range(30)))
    assert engine.session.kv.offset > 261
    assert done == [260]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="gives memory back of its own, or not at all")
def test_holes_between_what_is_kept_are_given_back() -> None:
    """The C library keeps them, for what fits: rows of logits do, the next longer array of a KV cache doesn't."""
    size = 2**16
    kept = [b"x" * size for _ in range(1000)]
    del kept[::2]
    before = resident()
    trim()
    assert resident() < before - 400 * size

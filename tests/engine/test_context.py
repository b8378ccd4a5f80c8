"""The garbage collector: long sessions aren't paused, and what is let go of is freed."""

from __future__ import annotations

import gc
import platform
import weakref
from typing import Any

import pytest

from engine import context, protocol
from engine.context import collect_all, collect_and_freeze
from engine.memory import resident, trim
from engine.model import forward
from engine.session import handlers
from engine.settings import LoadSettings, Settings
from tests.engine.unthreaded import Unthreaded


class Knot:
    """Something that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_looks_see_only_what_came_since() -> None:
    try:
        collect_and_freeze()
        before = len(gc.get_objects())
        kept = [(object(), [n]) for n in range(1000)]
        assert len(gc.get_objects()) >= before + 1000
        collect_and_freeze()
        assert len(gc.get_objects()) < before + 1000
        assert len(kept) == 1000
    finally:
        gc.unfreeze()


def test_cycles_are_freed_before_they_are_set_aside() -> None:
    try:
        knot: Any = Knot()
        gone = weakref.ref(knot)
        del knot
        collect_and_freeze()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_what_was_set_aside_is_freed_when_it_is_let_go_of() -> None:
    knot: Any = Knot()
    gone = weakref.ref(knot)
    collect_and_freeze()
    del knot
    gc.collect()
    assert gone() is not None
    collect_all()
    assert gone() is None


def test_the_first_model_is_waited_for_no_longer_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing of an earlier one to be freed: to look for it took 40 ms beside the screen's modules."""
    done: list[str] = []
    monkeypatch.setattr(handlers, "collect_all", lambda: done.append("collect"))
    engine = Unthreaded()
    engine.do(protocol.Load(LoadSettings("/nowhere")))
    assert done == []
    engine.do(protocol.Load(LoadSettings()))  # what a failure may have left behind
    assert done == ["collect"]


def test_a_session_collects_after_every_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(context, "EVERY", 3)
    engine = Unthreaded(LoadSettings(), prompt="Once")
    monkeypatch.setattr(context, "collect_and_freeze", lambda: done.append("collect"))
    engine.do(*(protocol.TakeStep() for _ in range(7)))
    assert done == ["collect"] * 2


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

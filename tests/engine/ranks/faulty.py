"""A fault in one rank, installed before its engine begins."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

FAULT, RANK = "TESTED_FAULT", "TESTED_RANK"
"""Variables: `WAY:WORK:COUNT`, the fault at that occurrence of `load`, `chunk` or `token`, from 1; and the rank."""


def install() -> None:
    """Have this process fail if it is the rank."""
    if patience := os.environ.get("TESTED_PATIENCE"):
        from engine.ranks import group

        group.PATIENCE = float(patience)
    way, _, rest = os.environ.get(FAULT, "").partition(":")
    work, _, count = rest.partition(":")
    if way == "rounds":
        _elsewhere()
    if os.environ.get("MLX_RANK") != os.environ.get(RANK) or not way:
        return
    if way == "silent":
        time.sleep(1000)
    if way == "import":
        sys.modules["mlx_lm"] = None  # type: ignore[assignment]
        return
    from engine.ranks import handlers
    from engine.ranks.kv import RankedKV

    seen, run, prepare = 0, RankedKV.run, handlers.prepare

    def fail(kv: Any = None) -> None:
        nonlocal seen
        seen += 1
        if seen != int(count):
            return
        print("some words of this rank", file=sys.stderr, flush=True)
        match way:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise RuntimeError("no more memory here")
            case "disagree":
                kv._model.model.norm.weight = kv._model.model.norm.weight * 1.01
            case "rounds":
                kv._model.model.norm.weight = kv._model.model.norm.weight * 1.0001

    def faulty_run(kv: RankedKV, compute: Any, tokens: Any, **options: Any) -> Any:
        if (tokens.size > 1) == (work == "chunk"):
            if way == "raise":
                compute = _raising(kv, compute, fail)
            else:
                fail(kv)
        return run(kv, compute, tokens, **options)

    def faulty_prepare(*given: Any) -> Any:
        fail()
        return prepare(*given)

    if work == "load":
        handlers.prepare = faulty_prepare
    else:
        RankedKV.run = faulty_run  # type: ignore[method-assign]


def _elsewhere() -> None:
    """Have all ranks take rank 1 for one on another machine."""
    from engine.ranks.group import Group

    join = Group.__init__

    def joined(group: Group) -> None:
        join(group)
        group.names[1] = "rank 1 on mac-2"

    Group.__init__ = joined  # type: ignore[method-assign]


def _raising(kv: Any, compute: Any, fail: Any) -> Any:
    def model(*given: Any, **named: Any) -> Any:
        fail(kv)
        return compute(*given, **named)

    kv._model = model
    return model

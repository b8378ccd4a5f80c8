"""What all tests share."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

import hypothesis
import pytest

from engine.patches.imports import import_mlx_lm
from tests import forked

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

FORBIDDEN, sys.dont_write_bytecode = sys.dont_write_bytecode, False
"""Whether the environment forbids to write what was compiled. Until all tests are collected it is written nevertheless:
what pytest makes of 700 files with assertions is half of what a worker takes to collect them."""

import_mlx_lm()
"""As the program does: importing transformers takes longer than most tests."""

gc.set_threshold(100_000, 50, 50)
"""MLX, transformers and Textual leave so many objects that collecting at Python's own pace was a sixth of the suite."""

for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        # a shell has what it starts in the background ignore these, and so would the programs that tests end by them
        signal.signal(number, usual)


def pytest_xdist_auto_num_workers() -> int:
    """One more worker than cores: a test in six waits for a process, a socket or a timer of the program."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Set aside what lasts, libraries and all tests: once, and not anew with each model that is loaded, as the program
    does, which loads few. Tests load hundreds of small ones: before each the program scans all objects that there are,
    which was a twelfth of the suite; here they are left to the thresholds above."""
    from engine.lockstep import second as lockstep  # after mlx_lm was imported in the program's way
    from engine.session import handlers as session
    from tests import loaded_once

    sys.dont_write_bytecode = FORBIDDEN
    forked.begin()
    loaded_once.begin()
    gc.collect()
    gc.freeze()
    session.free_garbage = lockstep.free_garbage = lambda: None


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `wide(n)` leave n cases to the quick suite, spread over its parameters; the others are slow.

    Cases that are marked slow themselves are none of the n.

    Another family of models, another size of the screen or another signal shows the same code another input: each of
    them costs up to seconds, and together they were most of the suite.
    """
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("wide") and not item.get_closest_marker("slow"):
            families[item.nodeid.partition("[")[0]].append(item)
    for cases in families.values():
        mark = cases[0].get_closest_marker("wide")
        last, gaps = len(cases) - 1, max(1, mark.args[0] - 1)
        kept = {round(place * last / gaps) for place in range(mark.args[0])}
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


# On a busy machine a test may take its time: only what it finds counts.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("patient", _PATIENT)
hypothesis.settings.register_profile("quick", _PATIENT, max_examples=40)


def pytest_configure(config: pytest.Config) -> None:
    """Compile what all workers and the programs of the tests are about to import: else each would, where the
    environment forbids it to write what it compiled."""
    quick = (
        config.getoption("markexpr") == "not slow"
    )  # the slow suite has hypothesis' own 100 for each property
    hypothesis.settings.load_profile("quick" if quick else "patient")
    if not hasattr(config, "workerinput"):
        for package in ("engine", "inspector"):
            compileall.compile_dir(Path(__file__).parents[1] / package, quiet=2)

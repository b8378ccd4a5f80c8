"""What all tests share."""

from __future__ import annotations

import compileall
import gc
import os
import signal
from pathlib import Path

import pytest

from engine.model.light_import import import_mlx_lm

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

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


def pytest_collection_finish() -> None:
    """Set aside what lasts, libraries and all tests: once, and not anew with each model that is loaded, as the program
    does, which loads few. Scanning all of it takes half a second."""
    from engine.session import handlers  # after mlx_lm was imported in the program's way

    gc.collect()
    gc.freeze()
    handlers.collect_all = gc.collect
    handlers.set_aside = lambda: None


def pytest_configure(config: pytest.Config) -> None:
    """Compile what all workers and the programs of the tests are about to import: else each would, where the
    environment forbids it to write what it compiled."""
    if not hasattr(config, "workerinput"):
        for package in ("engine", "inspector"):
            compileall.compile_dir(Path(__file__).parents[1] / package, quiet=2)

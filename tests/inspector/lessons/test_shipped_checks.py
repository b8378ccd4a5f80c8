"""Each lesson that comes with the program passes the authors' check, in each type that the program may choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings import LoadSettings
from inspector.demo import LESSON
from inspector.lessons.authors.check import OWN_DTYPES, check_live, read_checked
from inspector.lessons.catalogue import shipped
from inspector.lessons.reading import text_of

PATHS = [listed.path for listed in shipped()]


@pytest.mark.parametrize("path", [*PATHS, LESSON], ids=lambda path: path.stem)
def test_nothing_is_wrong_that_needs_no_model(path: Path) -> None:
    _, faults = read_checked(text_of(path), path.stem)
    assert [fault.at(path.name) for fault in faults] == []


QUICK = ("pieces", "one-loop", "the-draw", "filters-and-order")
"""A second each; races without a cache take minutes in bfloat16."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow) for path in (*PATHS, LESSON)],
    ids=lambda path: path.stem,
)
def test_nothing_is_wrong_on_the_model(path: Path) -> None:
    lesson, _ = read_checked(text_of(path), path.stem)
    assert lesson is not None
    runs, faults = check_live(lesson, LoadSettings(lesson.model), OWN_DTYPES)
    assert [fault.at(path.name) for fault in faults] == []
    assert [len(run.findings) for run in runs] == [len(lesson.beats)] * len(OWN_DTYPES)

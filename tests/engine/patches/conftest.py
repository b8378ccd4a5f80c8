"""The tests of the patches are skipped where the environment switches patches off."""

from __future__ import annotations

import os

import pytest

from engine.patches import VARIABLE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(VARIABLE):
        for item in items:
            if "tests/engine/patches/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=f"{VARIABLE} is set"))

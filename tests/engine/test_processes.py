"""How processes ended, in words."""

from __future__ import annotations

import pytest

from engine.processes import ending_of


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-9, "was ended by SIGKILL"),
        (-300, "was ended by signal 300"),
    ],
)
def test_an_ending(status: int, words: str) -> None:
    assert ending_of(status) == words

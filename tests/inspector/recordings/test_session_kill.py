"""kill -9 at random moments of real sessions: every one resumes on the real model, and loses at most a second."""

from __future__ import annotations

import random

import pytest

from tests.inspector.recordings.session_kill import one


def check(result: dict[str, object]) -> None:
    assert float(str(result["lost_s"])) <= 1.0
    said = str(result["said"])
    assert "to the last bit" in said or "but for rounding" in said


def test_a_session_that_was_killed_is_gone_on_with(tmp_path):
    check(one(tmp_path / "sessions", random.Random(1)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_sessions_that_were_killed_are_gone_on_with(tmp_path, seed):
    check(one(tmp_path / "sessions", random.Random(seed)))

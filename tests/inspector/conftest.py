"""No test reads or writes the presets or the sessions of the person who runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.config import presets
from inspector.recordings import sessions
from tests.inspector.painting import paint_when_looked_at
from tests.inspector.style_sheets import parse_once

parse_once()
paint_when_looked_at()


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory of its own for each test; it doesn't exist yet."""
    folder = tmp_path / "config"
    monkeypatch.setattr(presets, "folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of its own for the sessions of each test; it doesn't exist yet."""
    folder = tmp_path / "sessions"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of programs that a test starts
    monkeypatch.setattr(sessions, "folder", lambda: folder)
    return folder

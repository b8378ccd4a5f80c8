"""No test reads or writes the presets or the sessions of the person who runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models_on_disk import places as model_places
from inspector import places
from inspector.recordings import sessions
from tests.inspector.painting import paint_when_looked_at
from tests.inspector.style_sheets import parse_once

parse_once()
paint_when_looked_at()


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory of its own for each test; it doesn't exist yet."""
    folder = tmp_path / "config"
    monkeypatch.setattr(places, "config", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of its own for the sessions of each test; it doesn't exist yet."""
    folder = tmp_path / "sessions"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of programs that a test starts
    monkeypatch.setattr(sessions, "folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory without models; returns the hub's cache, which doesn't exist yet."""
    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", model_places.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(model_places, "_home", lambda environ: tmp_path / "home")
    return tmp_path / "hub"

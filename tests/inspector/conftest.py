"""No test reads or writes the presets of the person who runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector import presets


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory of its own for each test; it doesn't exist yet."""
    folder = tmp_path / "config"
    monkeypatch.setattr(presets, "folder", lambda: folder)
    return folder

"""Subcommands run in this process: what they wrote, and what they complained about."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.lockstep import second
from engine.model.forward import FirstUses
from engine.model.load import Loaded, load
from engine.protocol import Record
from engine.session import handlers as session
from inspector.cli.main import main
from tests.inspector.cli.scripted import Complaint, Events

LOADED: dict[object, tuple[Loaded, list[Record]]] = {}
"""By what was asked for, the bundled model as this process has loaded it, and what was told meanwhile."""


@pytest.fixture(autouse=True)
def load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bundled model, which most subcommands here load, have each form loaded once."""

    def loaded(settings: Any, emit: Any, cancel: Any, *more: Any, **spread: Any) -> Loaded:
        if settings.model != "pocket" or settings.adapter_path or spread.get("spread"):
            return load(settings, emit, cancel, *more, **spread)
        if (key := (settings, *more)) not in LOADED:
            told: list[Record] = []
            LOADED[key] = load(settings, told.append, cancel, *more), told
        found, told = LOADED[key]
        for record in told:
            emit(record)
        return replace(found, first_uses=FirstUses())

    for module in (session, second):
        monkeypatch.setattr(module, "load", loaded)


@pytest.fixture
def events(capsys: pytest.CaptureFixture[str]) -> Events:
    """Run the command, which must go well; returns the JSON lines that it wrote."""

    def run(*argv: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(argv) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str]) -> Complaint:
    """Run the command, which must fail with one line and print nothing; returns the line."""

    def run(*argv: str, code: int = 2) -> str:
        assert main(argv) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "Traceback" not in printed.err
        return printed.err.removeprefix("inspector: error: ").rstrip("\n")

    return run

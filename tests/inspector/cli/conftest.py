"""Subcommands run in this process: what they wrote, and what they complained about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inspector.cli.main import main
from tests.inspector.cli.scripted import Complaint, Events


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

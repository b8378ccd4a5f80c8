"""The demonstration that comes with the program: a session with the bundled model, recorded with captions."""

from __future__ import annotations

from pathlib import Path

DEMONSTRATION = Path(__file__).with_name("pocket.jsonl.gz")
"""A trace; `inspector replay` without a file plays it."""

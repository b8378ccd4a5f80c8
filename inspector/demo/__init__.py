"""The demonstration: six questions about the bundled model, as a lesson and its recording."""

from __future__ import annotations

from pathlib import Path

LESSON = Path(__file__).with_name("demonstration.md")
DEMONSTRATION = Path(__file__).with_name("demonstration.trace.zst")
"""A trace; `inspector replay` without a file shows it, a beat at a time."""

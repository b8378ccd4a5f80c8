"""A recorded session with all that one may hold: branches, typed text, a beam search, marks and captions."""

from __future__ import annotations

from pathlib import Path

STORY = Path(__file__).with_name("story.trace.zst")
"""The demonstration of the first version."""

"""Recordings that come with the program: six questions about the bundled model as a lesson, a batch, a second model.

The scripts that made them are in `tests/make_demo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LESSON = Path(__file__).with_name("demonstration.md")
DEMONSTRATION = Path(__file__).with_name("demonstration.trace.zst")
"""A trace; `inspector replay` without a file shows it, a beat at a time."""
SCENES: Mapping[str, Path] = {
    name: Path(__file__).with_name(f"{name}.trace.zst") for name in ("batch", "second-model")
}
"""Traces with captions that open the view they are about; `inspector replay batch` shows one."""

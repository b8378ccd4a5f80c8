"""What all tests share."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

gc.set_threshold(100_000, 50, 50)
"""MLX, transformers and Textual leave so many objects that collecting at Python's own pace was a sixth of the suite."""

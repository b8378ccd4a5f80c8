"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

gc.set_threshold(100_000, 50, 50)
"""MLX, transformers and Textual leave so many objects that collecting at Python's own pace was a sixth of the suite."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    """A shell has what it starts in the background ignore Ctrl-C, and so would the programs that tests interrupt."""

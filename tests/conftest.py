"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

gc.set_threshold(100_000, 50, 50)
"""MLX, transformers and Textual leave so many objects that collecting at Python's own pace was a sixth of the suite."""

for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        # a shell has what it starts in the background ignore these, and so would the programs that tests end by them
        signal.signal(number, usual)

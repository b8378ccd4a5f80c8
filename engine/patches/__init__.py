"""Patches of other libraries, one file each: its reason, the measured gain, and what upstream could do.

No other module of the engine replaces a function of MLX, mlx_lm or transformers for good.
"""

from __future__ import annotations

import os

VARIABLE = "INSPECTOR_PATCHES"
"""An environment variable: `none`, or the names of the patches to allow, with commas; all are allowed without it."""


def allowed(name: str) -> bool:
    """True if the environment allows the patch with this name, the name of its module."""
    value = os.environ.get(VARIABLE, "").strip()
    return not value or name in [each.strip() for each in value.split(",")]

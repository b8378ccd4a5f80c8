"""mlx-inspector from Python: `open` a session, `run` it, go back `at` a step, `take` another token, and `compare`.

See `inspector.api` for all that these do.
"""

from engine.errors import EngineError
from inspector.api import (
    Attention,
    Branch,
    Comparison,
    Run,
    Sampler,
    Session,
    Step,
    WhatIf,
    compare,
    open,
)

__all__ = [
    "Attention",
    "Branch",
    "Comparison",
    "EngineError",
    "Run",
    "Sampler",
    "Session",
    "Step",
    "WhatIf",
    "compare",
    "open",
]

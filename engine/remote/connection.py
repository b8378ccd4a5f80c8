"""How it stands with an engine that is elsewhere, as a plain value."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen

Stage = Literal["starting", "connected", "away", "gone"]


@frozen
class Connection:
    """How it stands with an engine that is elsewhere."""

    where: str
    stage: Stage = "starting"
    """`away`: the connection was lost and is tried again; `gone`: it is not, and its session is lost."""
    why: str = ""
    """What went wrong, one line; not made printable."""
    attempts: int = 0
    """Since it was lost."""
    next_at: float = 0.0
    """When the next attempt is due, on the clock of `time.monotonic`."""
    since: float = 0.0
    """When this stage began, on the same clock."""
    round_trip: float | None = None
    """Seconds from the last ping to its answer."""

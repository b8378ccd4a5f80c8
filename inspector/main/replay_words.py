"""What the status line says while a recording is on show."""

from __future__ import annotations

import math

from inspector.display import visible
from inspector.session.player import Player
from inspector.state.timeline import Timeline

LIVE = "G goes on live"


def speed_text(speed: float) -> str:
    """A speed as a person reads it."""
    return "as fast as possible" if math.isinf(speed) else f"×{speed:g}"


def picture_words(timeline: Timeline) -> str:
    """What a picture of a recording tells its reader, who can press no key; printable."""
    steps = f" of {len(timeline.steps):,} steps" if timeline.steps else ""
    return f"A picture of a recording{steps}; `inspector replay` shows it token by token"


def replay_words(replay: Player) -> str:
    """How far the recording is, and the keys that matter now; printable."""
    if replay.failure is not None:
        return f"Cut off: {visible(str(replay.failure))}"
    shown, there = replay.stop
    if replay.reading:
        return f"Reading the recording: {replay.progress:.0%}. What is there can be looked at already"
    if not replay.settled and not replay.playing:
        return f"Going through the recording: {shown:,} of {there:,}"
    if replay.playing:
        return f"Playing {speed_text(replay.speed)}, {shown:,} of {there:,}. Space pauses, + and - change the speed"
    if replay.at_end:
        return f"Recorded, at its end. r plays it, ← → walk, ⌫ goes back, {LIVE}"
    return f"Recorded, {shown:,} of {there:,}. Space shows the next step, r plays, ⌫ goes back, {LIVE}"

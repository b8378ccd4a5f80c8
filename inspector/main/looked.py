"""The one of two models that the views of a token are of: the session's, P, or the second one in lockstep, Q."""

from __future__ import annotations

from engine.protocol import LockstepOpened
from inspector.state.lockstep import LockstepSoFar
from inspector.state.timeline import Timeline

NO_SECOND_MODEL = "There is no second model to look at: esc, then {lockstep} opens one"


def model_prefix(timeline: Timeline, looked: LockstepOpened | None) -> str:
    """The model that is looked at, before what is said of it, where there are two: `Q pocket, 4 bits · `.

    Args:
        timeline: Of the session.
        looked: The second model, where it is that one.
    """
    if timeline.of(LockstepSoFar).opened is None:
        return ""
    if looked is not None:
        return f"Q {looked.title} · "
    return f"P {timeline.facts.name} · " if timeline.facts is not None else "P · "


def switch_model(timeline: Timeline) -> bool:
    """Look at the other one of two models; returns whether there are two."""
    lockstep = timeline.of(LockstepSoFar)
    lockstep.look(second=lockstep.opened is not None and not lockstep.looking)
    return lockstep.opened is not None


def other_word(timeline: Timeline) -> str:
    """The word for the key that switches; empty if there is no second model."""
    lockstep = timeline.of(LockstepSoFar)
    word = "look at P" if lockstep.looking else "look at Q"
    return word if lockstep.opened is not None else ""

"""Whether a key means something now, by what it needs: greyed where it doesn't, refused where a word helps."""

from __future__ import annotations

from inspector.main.tool import LOOK, Key, Needs
from inspector.session.controller import Controller
from inspector.session.replay_backend import REFUSED
from inspector.state.timeline import Phase


def available(key: Key, controller: Controller) -> bool:
    """Whether a key is not to be greyed."""
    timeline = controller.timeline
    if Needs.MODEL in key.needs and timeline.facts is None and not key.refusal:
        return False
    if Needs.DISTRIBUTION not in key.needs or controller.stepping:
        return True
    if timeline.phase is Phase.RETURNING:
        return key.group == LOOK
    return key.moves in controller.transport.ready


def refusal(key: Key, controller: Controller) -> str:
    """Why a key that is not greyed can do nothing, and what to do about it; empty where it can."""
    if Needs.ENGINE in key.needs and controller.transport.recorded:
        return REFUSED
    if Needs.MODEL in key.needs and controller.timeline.facts is None:
        return key.refusal
    return ""

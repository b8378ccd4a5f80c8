"""Whether a key means something now, by what it needs: greyed where it doesn't, and answered when it is pressed."""

from __future__ import annotations

from inspector.keys import key_for
from inspector.main.tool import LOOK, Key, Needs, ToolActions
from inspector.session.controller import Controller
from inspector.session.replay.replay_backend import REFUSED
from inspector.state.timeline import Phase, Timeline

_ASKING = Needs.ENGINE | Needs.SESSION
OPENING = "A recording is being opened. Wait a moment"


def available(key: Key, controller: Controller) -> bool:
    """Whether a key is not to be greyed."""
    if key.needs and controller.opening:
        return False
    if Needs.MODEL in key.needs and controller.timeline.facts is None and not key.refusal:
        return False
    return _has_distribution(key, controller)


def refusal(key: Key, controller: Controller, actions: ToolActions) -> str:
    """Why a key can do nothing now, and what to do about it; printable, empty where it can.

    Args:
        key: That was pressed.
        controller: The session on the screen.
        actions: Those of the key's tool.
    """
    if key.needs and controller.opening:
        return OPENING
    if controller.away and (key.needs & _ASKING or key.moves) and not controller.transport.recorded:
        return controller.away
    if Needs.ENGINE in key.needs and controller.transport.recorded and not key.recorded(actions):
        return controller.transport.bound or REFUSED
    if Needs.MODEL in key.needs and controller.timeline.facts is None:
        return key.refusal or _not_yet(key, controller.timeline)
    return "" if _has_distribution(key, controller) else _not_yet(key, controller.timeline)


def _has_distribution(key: Key, controller: Controller) -> bool:
    """Whether a distribution is on show, where a key needs one."""
    if Needs.DISTRIBUTION not in key.needs or controller.stepping:
        return True
    if controller.timeline.phase is Phase.RETURNING:
        return key.group == LOOK
    return key.moves in controller.transport.ready


def _not_yet(key: Key, timeline: Timeline) -> str:
    """What a key waits for."""
    match timeline.phase:
        case Phase.RETURNING:
            return f"{key.shown} works once the session is live. Esc stops going live"
        case _ if timeline.recorded:
            return (
                f"{key.shown} works once the recording shows a token. {key_for('step').capitalize()} "
                "shows what comes next"
            )
        case Phase.LOADING:
            return f"The model is still loading: {key.shown} works once the prompt went through it"
        case Phase.FAILED:
            return f"No model is loaded. Press {key_for('open')} to open one"
        case Phase.EMPTY if timeline.prompts.failure is not None:
            return f"The prompt was refused. Press {key_for('prompt')} to change it"
        case Phase.EMPTY:
            return f"There is no prompt yet. Press {key_for('prompt')} to give one"
        case _:
            return f"The prompt is still going through the model: {key.shown} works after it"

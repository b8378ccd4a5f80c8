"""When a completion ends, and why. A stop is told, never forced: the person can go on past it."""

from __future__ import annotations

from engine.records import Finished, Step
from engine.session import Session


def finish(session: Session, step: Step) -> Finished | None:
    """The stop that a step reached, None where generation goes on.

    Args:
        session: Standing at the step's node.
        step: The step just taken.

    Returns:
        End-of-sequence, then a stop string, then the context window, then max tokens: the first that holds.
    """
    if step.id in session.tokens.eos_ids:
        return Finished(step.node, "eos", step.text or f"id {step.id}")
    if (text := stop_string(session, step)) is not None:
        return Finished(step.node, "stop", text)
    if (full := window_full(session)) is not None:
        return full
    most = session.settings.max_tokens
    if (step.index + 1) % most == 0:  # and again after so many more, once the person went on past it
        return Finished(step.node, "length", f"{step.index + 1} tokens")
    return None


def window_full(session: Session) -> Finished | None:
    """The stop of a context window that is just full."""
    window = session.facts.context_window
    if window is None or session.tree[session.node].depth != window:
        return None
    return Finished(session.node, "length", f"context window of {window} tokens")


def stop_string(session: Session, step: Step) -> str | None:
    """The stop string that this step's token completed, however tokens cut it; the earliest in the text wins.

    The prompt doesn't count: a stop string must begin in the completion.
    """
    stops = session.settings.stop
    if not stops or not step.raw:
        return None
    # A string of n bytes spans n tokens at most, but for tokens without bytes: those are few, and cost a miss only
    # where a dozen of them stand inside one stop string.
    reach = max(len(stop.encode()) for stop in stops) + 12
    tail = session.tree.tail(step.node, min(reach, step.index + 1))
    before = len(session.tokens.join(tail[:-1]))
    text = session.tokens.join(tail)
    found = [(at, stop) for stop in stops if (at := text.find(stop, max(0, before - len(stop) + 1))) >= 0]
    return min(found)[1] if found else None

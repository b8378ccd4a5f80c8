"""Goes on under interventions: a branch of the tree whose tokens a changed model computes, from one token on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from engine.errors import StepError
from engine.inspection.inside.capture import refuse
from engine.inspection.inside.interventions.intervene import ground
from engine.inspection.inside.interventions.scaling import Scaling, check_interventions, edited
from engine.model.forward import Compute, Stopped, never
from engine.protocol import Intervention, InterventionsHeld, Moved, Step
from engine.session.session import Session
from engine.tree import ROOT


def changed(model: Any, interventions: Sequence[Intervention]) -> Compute:
    """What is called in a model's place: it computes what the model does under interventions.

    Args:
        model: As mlx_lm loads it; it is changed during each call alone.
        interventions: As a file gave them, or a person.

    Raises:
        StepError: The model can't have one of them.
    """
    check_interventions(model, interventions)
    taps = edited(model, Scaling(model, interventions))

    def compute(tokens: Any, cache: Any = None) -> Any:
        with taps.set():
            return model(tokens, cache=cache)

    return compute


def hold(
    session: Session, node: int, interventions: tuple[Intervention, ...], stopped: Stopped = never
) -> Iterator[Moved | Step | InterventionsHeld]:
    """Run a token again under interventions, as the first of a branch that stays under them.

    Args:
        session: It moves to the branch.
        node: The token; one of the model's own.
        interventions: None to go back to the token that the current branch began with, as the model computes it.
        stopped: Polled before each chunk and forward.

    Yields:
        The move to the token before, the step, and what is held from here on.

    Raises:
        StepError: The session keeps no KV cache; the node isn't there, is the first token, or is under interventions
            already; the model has no such unit.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    if not interventions:
        yield from _release(session, stopped, begun)
        return
    if not session.cached:
        raise StepError(
            "Without a KV cache no intervention can be held: each step runs its whole path again.",
            "Load the model with its KV cache.",
        )
    session.check_node(node)
    session.held.refuse(node, "a new intervention is")
    check_interventions(session.runner.model, interventions)
    token, parent = session.tree[node].token, session.tree[node].parent
    if parent == ROOT:
        raise StepError("The first token has nothing before it to branch from.", "Hold at a later token.")
    at = ground(session, node, stopped)
    at.survey.check(interventions)
    if not at.check.passed:
        raise refuse(at.check, session.facts.family)
    model = session.runner.model
    if session.node != parent:
        yield from session.move_and_step(parent, stopped)
    held = session.held.add(interventions, changed(model, interventions))
    session.runner.compute = session.held.compute(held)
    try:
        step = session.take(token, "intervened", held)
    finally:
        session.node = session.node  # and with it what computes the token after it
    yield step
    yield InterventionsHeld(session.node, node, interventions, (time.perf_counter() - begun) * 1000)


def _release(session: Session, stopped: Stopped, begun: float) -> Iterator[Moved | Step | InterventionsHeld]:
    if not session.tree[session.node].held:
        raise StepError("No intervention is held here.", "Go to a branch under interventions, or hold some.")
    first = session.tree[session.held.first(session.node)]
    own = session.tree.child(first.parent, first.token)
    own = first.parent if own is None else own
    yield from session.move_and_step(own, stopped)
    yield InterventionsHeld(own, own, (), (time.perf_counter() - begun) * 1000)

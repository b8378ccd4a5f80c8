"""From a timeline that was recorded back to a session: what the engine is asked to build, and how well it agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.protocol import Grown, ModelFacts, PromptToken, Restore, Restored, Step
from inspector.state.beams import BeamHistory
from inspector.state.timeline import Timeline


def restore_of(timeline: Timeline, rerolls: dict[int, int]) -> Restore | None:
    """What brings the engine to where a timeline stands.

    Args:
        timeline: Its tree, with beams, and its path.
        rerolls: How often was drawn again after a node, where it was.

    Returns:
        None where no prompt was read to its end yet.
    """
    if all(read.prefilled is None for read in timeline.prompts.by_end.values()):
        return None
    grown = sorted(_grown(timeline), key=lambda each: each.node)
    again = tuple(sorted((node, count) for node, count in rerolls.items() if count))
    return Restore(tuple(grown), timeline.tip, again)


def _grown(timeline: Timeline) -> Iterator[Grown]:
    begins = {
        token.node: read.opened.tokens[0].position
        for read in timeline.prompts.by_end.values()
        for token in read.opened.tokens
    }
    for item in timeline.tree.nodes.values():
        if isinstance(item, Step):
            held = timeline.tree.interventions.get(item.node, ())
            yield Grown(item.node, item.parent, item.id, item.origin, has_step=True, interventions=held)
        else:
            parent = timeline.tree.parent[item.node]
            yield Grown(item.node, parent, item.id, "prompt", has_step=False, prompt_begin=begins[item.node])
    for beam in timeline.of(BeamHistory).nodes.values():
        if beam.node not in timeline.tree.nodes:
            yield Grown(beam.node, beam.parent, beam.id, "beam", has_step=False)


def differs(recorded: ModelFacts, loaded: ModelFacts) -> str:
    """Why a model is not the one of a recording, as the end of a sentence; empty where it is the same."""
    if recorded.vocabulary != loaded.vocabulary:
        return f"has {loaded.vocabulary:,} tokens in its vocabulary, not {recorded.vocabulary:,}"
    if not recorded.fingerprint or not loaded.fingerprint:
        return "may be another one: its files could not be compared"
    if recorded.fingerprint != loaded.fingerprint:
        return "has other weights or another configuration"
    return ""


def largest_difference(timeline: Timeline, restored: Restored) -> float | None:
    """The largest difference between a logprob that was recorded and what the model gives now.

    Returns:
        In nats; None where no step was compared.
    """
    if not restored.logprobs:
        return None
    steps = timeline.items[len(timeline.items) - len(restored.logprobs) :]
    pairs = zip(steps, restored.logprobs, strict=True)
    return max((_apart(item, now) for item, now in pairs), default=None)


def _apart(item: PromptToken | Step, now: float) -> float:
    before = item.logprob
    if before is None or before == now:
        return 0.0
    apart = abs(before - now)
    return math.inf if math.isnan(apart) else apart

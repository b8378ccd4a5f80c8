"""Decodes a stretch again by plain steps, in separate caches: the proof that speculation changed nothing."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from engine.errors import Cancelled, StepError
from engine.model.forward import Stopped
from engine.protocol import SpeculationVerified
from engine.sampling.ranking import absolute_difference
from engine.session.session import Session

NOT_SAMPLED = ("prompt", "chosen", "inserted", "beam")
"""Origins of tokens that no sampler took."""


def compare_with_plain(session: Session, begin: int, stopped: Stopped) -> SpeculationVerified:
    """Take plain steps over the path from a node to the current one, and compare each token with the one taken.

    Args:
        session: Doesn't change. Each node is sampled after with the settings that it had.
        begin: The node before the stretch, on the path; where a prompt follows it, the stretch begins at that one's
            end.
        stopped: Polled before each token.

    Raises:
        StepError: The node is none of the path, or there is nothing behind it.
        Cancelled: `stopped` returned True.
    """
    path = session.tree.nodes(session.node)
    prompts = [node for node in path if session.tree[node].origin == "prompt"]
    if begin in path and prompts and session.tree[begin].depth < session.tree[prompts[-1]].depth:
        begin = prompts[-1]  # a prompt runs in chunks, not in steps
    if begin not in path or begin == session.node:
        raise StepError("There is no text to compare with plain steps.", "Take a round first.")
    runner = session.runner.fresh()
    row = session.run_path(runner, begin, stopped)
    runner.compute = session.held.compute(session.tree[begin].held)
    ms: list[float] = []
    difference, chosen, compared, at = 0.0, 0, 0, begin
    plain: int | None = None
    for node in path[path.index(begin) + 1 :]:
        if stopped():
            raise Cancelled
        begun = time.perf_counter()
        settings, reroll = session.settings_at.get(at, session.settings), session.tree[node].drawn_reroll
        picked = session.node_reader.sample(at, row, settings, reroll=reroll).sampled.picked
        sampled, compared = time.perf_counter() - begun, compared + 1
        if (kept := session.row_at(at)) is not None:
            difference = max(difference, float(np.max(absolute_difference(kept, row))))
        taken = session.tree[node]
        chosen += taken.origin in NOT_SAMPLED
        if picked != taken.token and taken.origin not in NOT_SAMPLED:
            plain, at = picked, node
            break
        begun, at = time.perf_counter(), node
        runner.compute = session.held.compute(taken.held)
        row = runner.forward(taken.token)
        ms.append((sampled + time.perf_counter() - begun) * 1000)
    text = ""
    if plain is not None:
        text = session.tokens.text(plain, session.pending.get(session.tree[at].parent, b""))[0]
    return SpeculationVerified(
        begin=begin,
        end=session.node,
        tokens=compared,
        chosen=chosen,
        differs=None if plain is None else at,
        plain=plain,
        plain_text=text,
        difference=difference,
        plain_ms=median(ms) if ms else 0.0,
    )

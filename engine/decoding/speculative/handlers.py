"""The commands of speculative decoding: the draft, rounds and runs of them, the comparison with plain steps."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from statistics import median

import numpy as np

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding.run import BreakpointEvaluator
from engine.decoding.speculative.drafts import Drafter, DraftPaths, make_draft
from engine.decoding.speculative.round import Round
from engine.errors import Cancelled, StepError
from engine.protocol import Record, SpeculationVerified, Step
from engine.sampling.ranking import absolute_difference
from engine.session.context import Context, with_stop
from engine.session.node_records import window_full
from engine.session.session import Session
from engine.setting import check
from engine.settings import SpeculationSettings
from engine.task import Stopped, Task

# ---- a stretch again by plain steps, in separate caches: the proof that speculation changed nothing ----

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
    runner.compute = session.held.computes[session.tree[begin].held]
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
        runner.compute = session.held.computes[taken.held]
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


# ---- the commands ------------------------------------------------------------------------------


class _OfModel:
    """What is kept of a model between two commands."""

    draft: tuple[tuple[str, str], Drafter] | None = None
    """The draft that is ready, with its kind and the name of its model."""


class _OfTree:
    """What is kept of a tree between two commands."""

    paths: DraftPaths | None = None
    round: Round | None = None
    """A round that waits between two of its stages."""


def load_draft(context: Context, command: protocol.LoadDraft, task: Task) -> Iterator[Record]:
    """Load a draft."""
    yield from _ready(context, command.settings, task)


def _ready(context: Context, settings: SpeculationSettings, task: Task) -> Generator[Record, None, Drafter]:
    """Load the draft for some settings, unless it is there; returns it."""
    check(settings)
    kept, kind = context.of_model(_OfModel), (settings.draft, settings.draft_model)
    if kept.draft is not None and kept.draft[0] == kind:
        return kept.draft[1]
    kept.draft = None  # its memory is free before the next one takes more
    begun = time.perf_counter()
    draft = make_draft(settings, context.model, context.emit, task.cancel)
    kept.draft = kind, draft
    ms = (time.perf_counter() - begun) * 1000
    yield protocol.DraftReady(settings, draft.weight_bytes, ms, draft.note)
    return draft


def _new_round(
    context: Context, settings: SpeculationSettings, draft: Drafter, *, paused: bool = False
) -> Round:
    session, kept = context.session, context.of_tree(_OfTree)
    if kept.paths is None or kept.paths.tree is not session.tree:
        kept.paths = DraftPaths(session)
    return Round(session, draft, kept.paths, settings, paused=paused)


# ---- rounds ------------------------------------------------------------------------------------


def take_round(context: Context, command: protocol.TakeRound, task: Task) -> Iterator[Record]:
    """Take a round of speculative decoding, or its next stage."""
    kept, session, stopped = context.of_tree(_OfTree), context.session, task.cancel.is_set
    round, kept.round = kept.round, None
    if round is None or round.over or round.settings != command.settings:
        draft = yield from _ready(context, command.settings, task)
        round = _new_round(context, command.settings, draft, paused=command.inside)

    def taken(step: Step) -> Generator[Record, None, bool]:
        return (yield from with_stop(session, step)) or stopped()

    yield from (round.advance if command.inside else round.rest)(stopped, taken)
    kept.round = None if round.over else round


def run_rounds(context: Context, command: protocol.RunRounds, task: Task) -> Iterator[Record]:
    """Take rounds until a token reaches a stop or a breakpoint."""
    session, ended = context.session, False
    if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
        yield full
        return
    sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
    breaking = BreakpointEvaluator(session, sets)
    draft = yield from _ready(context, command.settings, task)

    def taken(step: Step) -> Generator[Record, None, bool]:
        nonlocal ended
        broken = breaking.evaluate(session.position.node_logits)
        ended = yield from with_stop(session, step, breaking.most)
        return ended or broken or task.cancel.is_set()

    for _ in range(command.plain):
        if (yield from taken(session.step())):
            break
    while not (ended or breaking.hits or task.cancel.is_set()):
        yield from _new_round(context, command.settings, draft).rest(task.cancel.is_set, taken)
    if breaking.hits:
        yield protocol.BreakpointHit(session.node, breaking.hits)
    elif not ended:
        raise Cancelled


# ---- comparison --------------------------------------------------------------------------------


def verify_speculation(context: Context, command: protocol.VerifySpeculation, task: Task) -> Iterator[Record]:
    """Compare the rounds' tokens with those of plain steps."""
    yield compare_with_plain(context.session, command.node, task.cancel.is_set)

"""The commands of speculative decoding: the draft, rounds and runs of them, the comparison with plain steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import numpy as np

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.context import Capability, EngineContext, Handler
from engine.decoding.run import BreakpointEvaluator
from engine.decoding.speculative.drafts import Drafter, DraftPaths, make_draft
from engine.decoding.speculative.round import Round
from engine.errors import Cancelled, StepError
from engine.protocol import Command, SpeculationVerified
from engine.sampling.ranking import absolute_difference
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


class SpeculationCommands(Capability):
    """Handlers of speculative decoding."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._draft: tuple[tuple[str, str], Drafter] | None = None
        """The draft that is ready, with its kind and the name of its model."""
        self._paths: DraftPaths | None = None
        self._round: Round | None = None
        """A round that waits between two of its stages."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.LoadDraft: self._load,
            protocol.TakeRound: self._take,
            protocol.RunRounds: self._run,
            protocol.VerifySpeculation: self._verify,
        }

    def forget(self, model: bool) -> None:
        """Drop the round that waits; with the model, the draft's too."""
        self._paths = self._round = None
        if model:
            self._draft = None

    # ---- drafts -----------------------------------------------------------------------------

    def _load(self, command: protocol.LoadDraft, task: Task) -> None:
        self._ready(command.settings, task)

    def _ready(self, settings: SpeculationSettings, task: Task) -> Drafter:
        """The draft for some settings, loaded where it isn't there."""
        check(settings)
        kind = settings.draft, settings.draft_model
        if self._draft is not None and self._draft[0] == kind:
            return self._draft[1]
        self._draft = None  # its memory is free before the next one takes more
        begun = time.perf_counter()
        draft = make_draft(settings, self._context.model, self._context.emit, task.cancel)
        self._draft = kind, draft
        ms = (time.perf_counter() - begun) * 1000
        self._context.emit(protocol.DraftReady(settings, draft.weight_bytes, ms, draft.note))
        return draft

    def _new_round(self, settings: SpeculationSettings, task: Task, *, paused: bool = False) -> Round:
        session, draft = self._context.session, self._ready(settings, task)
        if self._paths is None or self._paths.tree is not session.tree:
            self._paths = DraftPaths(session)
        return Round(session, draft, self._paths, settings, paused=paused)

    # ---- rounds -----------------------------------------------------------------------------

    def _take(self, command: protocol.TakeRound, task: Task) -> None:
        waiting, self._round = self._round, None
        if waiting is None or waiting.over or waiting.settings != command.settings:
            waiting = self._new_round(command.settings, task, paused=command.inside)

        def taken(step: protocol.Step) -> bool:
            return self._context.emit_step(step) or task.cancel.is_set()

        go = waiting.advance if command.inside else waiting.rest
        self._context.emit(go(task.cancel.is_set, taken))
        self._round = None if waiting.over else waiting

    def _run(self, command: protocol.RunRounds, task: Task) -> None:
        session, context, ended = self._context.session, self._context, False
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            context.emit(full)
            return
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        breaking = BreakpointEvaluator(session, sets)
        self._ready(command.settings, task)

        def taken(step: protocol.Step) -> bool:
            nonlocal ended
            broken = breaking.evaluate(session.position.node_logits)
            ended = context.emit_step(step, breaking.most)
            context.answer_asides()
            return ended or broken or task.cancel.is_set()

        for _ in range(command.plain):
            if taken(session.step()):
                break
        while not (ended or breaking.hits or task.cancel.is_set()):
            context.emit(self._new_round(command.settings, task).rest(task.cancel.is_set, taken))
        if breaking.hits:
            context.emit(protocol.BreakpointHit(session.node, breaking.hits))
        elif not ended:
            raise Cancelled

    # ---- comparison -------------------------------------------------------------------------

    def _verify(self, command: protocol.VerifySpeculation, task: Task) -> None:
        self._context.emit(compare_with_plain(self._context.session, command.node, task.cancel.is_set))

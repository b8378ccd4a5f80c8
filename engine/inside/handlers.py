"""The commands that look inside the model: each runs a token of the tree again on copies of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from engine import protocol
from engine.inside import (
    attention,
    attribution,
    experts,
    gradients,
    interventions,
    lens,
    modules,
    pairs,
    patching,
    positions,
    scores,
    steering,
)
from engine.protocol import Record
from engine.session.context import Context, with_stops
from engine.session.session import Session
from engine.task import Stopped, Task


def read_attention(session: Session, command: protocol.ReadAttention, stopped: Stopped) -> Iterator[Record]:
    yield attention.read_attention(session, command.node, stopped)


def read_triangle(session: Session, command: protocol.ReadTriangle, stopped: Stopped) -> Iterator[Record]:
    yield from attention.read_triangle(session, command.node, command.layer, command.head, stopped)


def score_heads(session: Session, command: protocol.ScoreHeads, stopped: Stopped) -> Iterator[Record]:
    yield from attention.score_heads(session, command.node, command.texts, stopped)


def read_lens(session: Session, command: protocol.ReadLens, stopped: Stopped) -> Iterator[Record]:
    yield lens.read_lens(session, command.node, command.positions, command.top, command.followed, stopped)


def attribute(session: Session, command: protocol.Attribute, stopped: Stopped) -> Iterator[Record]:
    yield attribution.attribute(session, command.node, command.tokens, stopped)


def read_gradients(session: Session, command: protocol.ReadGradients, stopped: Stopped) -> Iterator[Record]:
    yield from gradients.read_gradients(session, command, stopped)


def read_score(session: Session, command: protocol.ReadScore, stopped: Stopped) -> Iterator[Record]:
    yield from scores.read_score(session, command.node, command.layer, command.head, command.keys, stopped)


def read_modules(session: Session, command: protocol.ReadModules, stopped: Stopped) -> Iterator[Record]:
    yield modules.read_modules(session.runner.model, session.facts.path)


def read_experts(session: Session, command: protocol.ReadExperts, stopped: Stopped) -> Iterator[Record]:
    yield experts.read_experts(session, command.node, stopped)


def try_position(session: Session, command: protocol.TryPosition, stopped: Stopped) -> Iterator[Record]:
    how = command.change, command.offset, command.top, command.until
    yield positions.try_position(session, command.node, *how, stopped)


def intervene(session: Session, command: protocol.Intervene, stopped: Stopped) -> Iterator[Record]:
    how = command.scope, command.top, stopped, command.begin
    yield interventions.intervene(session, command.node, command.interventions, *how)


def sweep_heads(session: Session, command: protocol.SweepHeads, stopped: Stopped) -> Iterator[Record]:
    which = command.heads, command.parts, command.scope
    yield from patching.sweep_heads(session, command.node, command.token, command.other, stopped, *which)


def patch_activations(
    session: Session, command: protocol.PatchActivations, stopped: Stopped
) -> Iterator[Record]:
    yield from patching.patch_activations(
        session, command.node, command.source, command.token, command.other, command.part, stopped,
        command.alignment,
    )  # fmt: skip


def patch_pairs(session: Session, command: protocol.PatchPairs, stopped: Stopped) -> Iterator[Record]:
    yield from pairs.patch_pairs(session.loaded, command.pairs, command.part, stopped)


def hold_interventions(context: Context, command: protocol.HoldInterventions, task: Task) -> Iterator[Record]:
    session = context.session
    held = interventions.hold(session, command.node, command.interventions, task.cancel.is_set)
    yield from with_stops(session, held)


def make_direction(session: Session, command: protocol.MakeDirection, stopped: Stopped) -> Iterator[Record]:
    yield from steering.make_direction(session, command, stopped)


def sweep_strengths(session: Session, command: protocol.SweepStrengths, stopped: Stopped) -> Iterator[Record]:
    yield from steering.sweep_strengths(session, command, stopped)

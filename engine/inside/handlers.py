"""The commands that look inside the model."""

from __future__ import annotations

from collections.abc import Mapping

from engine import protocol
from engine.context import Capability, Handler
from engine.inside.attention import read_attention, read_triangle, score_heads
from engine.inside.attribution import attribute
from engine.inside.experts import read_experts
from engine.inside.gradients import read_gradients
from engine.inside.interventions import hold, intervene
from engine.inside.lens import read_lens
from engine.inside.modules import read_modules
from engine.inside.pairs import patch_pairs
from engine.inside.positions import try_position
from engine.inside.scores import read_score
from engine.inside.steering import make_direction, sweep_strengths
from engine.protocol import Command, Look, Step
from engine.session.session import Session
from engine.task import Task


class InsideCommands(Capability):
    """Handlers that run a token of the tree again on copies of the cache."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.ReadAttention: self._attention,
            protocol.ReadTriangle: self._triangle,
            protocol.ScoreHeads: self._scores,
            protocol.ReadLens: self._lens,
            protocol.Attribute: self._attribute,
            protocol.ReadGradients: self._gradients,
            protocol.ReadScore: self._score,
            protocol.ReadModules: self._modules,
            protocol.ReadExperts: self._experts,
            protocol.TryPosition: self._position,
            protocol.Intervene: self._intervene,
            protocol.PatchPairs: self._pairs,
            protocol.HoldInterventions: self._hold,
            protocol.MakeDirection: self._make_direction,
            protocol.SweepStrengths: self._sweep_strengths,
        }

    def _session(self, command: Look, node: int | None, task: Task) -> Session:
        """The session, or its path up to a node in the second model."""
        return self._context.second(node, task.cancel.is_set) if command.second else self._context.session

    def _attention(self, command: protocol.ReadAttention, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit(read_attention(session, command.node, task.cancel.is_set))

    def _triangle(self, command: protocol.ReadTriangle, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit_all(
            read_triangle(session, command.node, command.layer, command.head, task.cancel.is_set), asides=True
        )

    def _scores(self, command: protocol.ScoreHeads, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit_all(
            score_heads(session, command.node, command.texts, task.cancel.is_set), asides=True
        )

    def _lens(self, command: protocol.ReadLens, task: Task) -> None:
        session, how = self._session(command, command.node, task), (command.positions, command.top)
        self._context.emit(read_lens(session, command.node, *how, command.followed, task.cancel.is_set))

    def _attribute(self, command: protocol.Attribute, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit(attribute(session, command.node, command.tokens, task.cancel.is_set))

    def _gradients(self, command: protocol.ReadGradients, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit_all(read_gradients(session, command, task.cancel.is_set))

    def _score(self, command: protocol.ReadScore, task: Task) -> None:
        session, of = self._session(command, command.node, task), (command.layer, command.head, command.keys)
        self._context.emit_all(read_score(session, command.node, *of, task.cancel.is_set))

    def _modules(self, command: protocol.ReadModules, task: Task) -> None:
        session = self._session(command, None, task)
        self._context.emit(read_modules(session.runner.model, session.facts.path))

    def _experts(self, command: protocol.ReadExperts, task: Task) -> None:
        session = self._session(command, command.node, task)
        self._context.emit(read_experts(session, command.node, task.cancel.is_set))

    def _position(self, command: protocol.TryPosition, task: Task) -> None:
        end = command.node if command.until is None else command.until
        session = self._session(command, end, task)
        how = command.change, command.offset, command.top, command.until
        self._context.emit(try_position(session, command.node, *how, task.cancel.is_set))

    def _intervene(self, command: protocol.Intervene, task: Task) -> None:
        session, listed = self._context.session, command.interventions
        how = command.scope, command.top, task.cancel.is_set, command.begin
        self._context.emit(intervene(session, command.node, listed, *how))

    def _pairs(self, command: protocol.PatchPairs, task: Task) -> None:
        self._context.emit_all(
            patch_pairs(self._context.model, command.pairs, command.part, task.cancel.is_set)
        )

    def _hold(self, command: protocol.HoldInterventions, task: Task) -> None:
        for record in hold(self._context.session, command.node, command.interventions, task.cancel.is_set):
            if isinstance(record, Step):
                self._context.emit_step(record)
            else:
                self._context.emit(record)

    def _make_direction(self, command: protocol.MakeDirection, task: Task) -> None:
        self._context.emit_all(make_direction(self._context.session, command, task.cancel.is_set))

    def _sweep_strengths(self, command: protocol.SweepStrengths, task: Task) -> None:
        self._context.emit_all(sweep_strengths(self._context.session, command, task.cancel.is_set))

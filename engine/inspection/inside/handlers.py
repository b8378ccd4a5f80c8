"""The commands that look inside the model."""

from __future__ import annotations

from collections.abc import Mapping

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.attribution import attribute
from engine.inspection.inside.experts import read_experts
from engine.inspection.inside.heads import read_triangle, score_heads
from engine.inspection.inside.interventions.holding import changed, hold
from engine.inspection.inside.interventions.intervene import intervene
from engine.inspection.inside.interventions.patching import patch_activations
from engine.inspection.inside.interventions.sweep import sweep_heads
from engine.inspection.inside.lens import read_lens
from engine.inspection.inside.modules import read_modules
from engine.inspection.inside.positions import try_position
from engine.protocol import Command, Step


class InsideCommands:
    """Handlers that run a token of the tree again on copies of the cache.

    Args:
        desk: The session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        desk.change = changed

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.ReadAttention: self._attention,
            protocol.ReadTriangle: self._triangle,
            protocol.ScoreHeads: self._scores,
            protocol.ReadLens: self._lens,
            protocol.Attribute: self._attribute,
            protocol.ReadModules: self._modules,
            protocol.ReadExperts: self._experts,
            protocol.TryPosition: self._position,
            protocol.Intervene: self._intervene,
            protocol.SweepHeads: self._sweep,
            protocol.PatchActivations: self._patch,
            protocol.HoldInterventions: self._hold,
        }

    def forget(self, model: bool) -> None:
        """Nothing is kept from command to command."""

    def _attention(self, command: protocol.ReadAttention, call: Call) -> None:
        self._desk.emit(read_attention(self._desk.session, command.node, call.stopped))

    def _triangle(self, command: protocol.ReadTriangle, call: Call) -> None:
        session = self._desk.session
        for record in read_triangle(session, command.node, command.layer, command.head, call.stopped):
            self._desk.emit(record)
            self._desk.answer_asides()

    def _scores(self, command: protocol.ScoreHeads, call: Call) -> None:
        for record in score_heads(self._desk.session, command.node, call.stopped):
            self._desk.emit(record)
            self._desk.answer_asides()

    def _lens(self, command: protocol.ReadLens, call: Call) -> None:
        self._desk.emit(
            read_lens(
                self._desk.session,
                command.node,
                command.positions,
                command.top,
                command.followed,
                call.stopped,
            )
        )

    def _attribute(self, command: protocol.Attribute, call: Call) -> None:
        self._desk.emit(attribute(self._desk.session, command.node, command.tokens, call.stopped))

    def _modules(self, command: protocol.ReadModules, call: Call) -> None:
        session = self._desk.session
        self._desk.emit(read_modules(session.runner.model, session.facts.path))

    def _experts(self, command: protocol.ReadExperts, call: Call) -> None:
        self._desk.emit(read_experts(self._desk.session, command.node, call.stopped))

    def _position(self, command: protocol.TryPosition, call: Call) -> None:
        session = self._desk.session
        how = command.change, command.offset, command.top, command.until
        self._desk.emit(try_position(session, command.node, *how, call.stopped))

    def _intervene(self, command: protocol.Intervene, call: Call) -> None:
        session, listed = self._desk.session, command.interventions
        self._desk.emit(intervene(session, command.node, listed, command.scope, command.top, call.stopped))

    def _sweep(self, command: protocol.SweepHeads, call: Call) -> None:
        session, heads = self._desk.session, command.heads
        found = sweep_heads(
            session, command.node, command.token, command.other, call.stopped, heads, command.parts
        )
        for record in found:
            self._desk.emit(record)

    def _patch(self, command: protocol.PatchActivations, call: Call) -> None:
        for record in patch_activations(
            self._desk.session,
            command.node,
            command.source,
            command.token,
            command.other,
            command.part,
            call.stopped,
        ):
            self._desk.emit(record)

    def _hold(self, command: protocol.HoldInterventions, call: Call) -> None:
        for record in hold(self._desk.session, command.node, command.interventions, call.stopped):
            if isinstance(record, Step):
                self._desk.emit_step(record)
            else:
                self._desk.emit(record)

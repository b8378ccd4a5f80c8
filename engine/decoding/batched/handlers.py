"""The commands of a batch. It has caches and a tree of its own: the session doesn't change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine import protocol
from engine.decoding.batched.compare import compare
from engine.decoding.batched.draws import Draws
from engine.decoding.batched.lane import Batched
from engine.decoding.batched.opening import check_room, not_together, open_lanes
from engine.decoding.batched.rows import LaneRows, PaddedRows, SingleRows
from engine.decoding.batched.run import BatchRun
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled, StepError
from engine.protocol import Command


class BatchCommands:
    """Handlers of batches.

    Args:
        desk: The model, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._batch: BatchRun | None = None
        """The batch that was begun last; its caches are kept until the next batch or model."""
        self._single: str | None = None
        """Why lanes of this model go through it one after another, empty if together; None where not yet tried."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.StartBatch: self._start,
            protocol.AdvanceBatch: self._advance,
            protocol.AddLanes: self._add,
            protocol.RemoveLane: self._remove,
            protocol.CompareBatch: self._compare,
            protocol.DrawMany: self._draw,
        }

    def forget(self, model: bool) -> None:
        """Drop the batch of a model that goes; a batch doesn't depend on the session's tree."""
        if model:
            self._batch = self._single = None

    # ---- beginning --------------------------------------------------------------------------

    def _start(self, command: protocol.StartBatch, call: Call) -> None:
        session = self._desk.session
        if not command.prompts:
            raise StepError("A batch needs a prompt or more.", "Give one.")
        self._batch = None  # its memory is free before the next one takes more
        shared = Batched(session.tokens, session.facts)
        lanes = open_lanes(session, shared, command.prompts, 0)
        runner = session.runner.fresh()
        check_room(runner, [(len(lane.prompt), lane.settings) for lane in lanes], command.size)
        if self._single is None:
            self._single = not_together(runner, session.facts.dtype, lanes[0].prompt)
        rows: LaneRows = PaddedRows(runner)
        if self._single:
            rows = SingleRows(runner, f"The lanes run one after another: {self._single}.")
        run = BatchRun(rows, command.size, command.static)
        for lane in lanes:
            run.add(lane)
        self._open(run, shared)
        opened = tuple(lane.opened for lane in lanes)
        self._desk.emit(protocol.BatchOpened(opened, command.size, command.static, None, rows.note))
        self._go(command.steps, call)

    def _open(self, run: BatchRun, shared: Batched) -> None:
        self._batch, self._shared, self._going = run, shared, run.go()

    def _draw(self, command: protocol.DrawMany, call: Call) -> None:
        session = self._desk.session
        lane = session.tree[session.node if command.node is None else command.node].depth, session.settings
        if command.tokens > 1:
            self._batch = None
            limited = replace(session.settings, max_tokens=command.tokens)
            check_room(session.runner.fresh(), [(lane[0], limited)] * command.count, command.size)
        draws = Draws(session, command.node, command.count, command.tokens, command.size, call.stopped)
        self._desk.emit(draws.counted)
        if command.tokens > 1:
            self._open(draws.run, draws.shared)
            self._desk.emit(draws.opened)
            self._go(None, call)

    # ---- going on ---------------------------------------------------------------------------

    @property
    def _run(self) -> BatchRun:
        """The batch.

        Raises:
            StepError: There is none.
        """
        if self._batch is None:
            raise StepError("There is no batch to go on with.", "Start one.")
        return self._batch

    def _advance(self, command: protocol.AdvanceBatch, call: Call) -> None:
        if self._run.over:
            raise StepError("All lanes have ended.", "Add a prompt, or start another batch.")
        self._go(command.steps, call)

    def _go(self, steps: int | None, call: Call) -> None:
        """Go on until steps are taken, all lanes have ended, or the command is cancelled; a failure ends the batch."""
        run, self._batch = self._run, None
        for record in self._going:
            if record is not None:
                self._desk.emit(record)
            if isinstance(record, protocol.BatchEnded):
                self._open(run, self._shared)  # lanes that are added later have it go on
                return
            self._batch = run
            self._desk.answer_asides()
            if record is None and steps == 0:
                return
            if isinstance(record, protocol.BatchStep) and steps is not None:
                steps -= 1
            if call.stopped():
                raise Cancelled
            self._batch = None

    def _add(self, command: protocol.AddLanes, call: Call) -> None:
        run = self._run
        if not all(lane.opened.ids for lane in run.lanes):
            raise StepError("These lanes are draws of one prompt.", "Start a batch of prompts.")
        lanes = open_lanes(self._desk.session, self._shared, command.prompts, len(run.lanes))
        for lane in lanes:
            run.add(lane)
        self._desk.emit(protocol.LanesAdded(tuple(lane.opened for lane in lanes)))

    def _remove(self, command: protocol.RemoveLane, call: Call) -> None:
        self._desk.emit(self._run.remove(command.lane))

    def _compare(self, command: protocol.CompareBatch, call: Call) -> None:
        run = self._run
        if not run.over:
            raise StepError("Some lanes have not ended.", "Run the batch to its end first.")
        lanes = [lane for lane in run.lanes if lane.ended is not None and lane.ended.reason != "removed"]
        for record in compare(lanes, run.totals.ms, self._desk.session.runner.fresh(), call.stopped):
            self._desk.emit(record)
            self._desk.answer_asides()

"""What is exported: a session's timeline, the settings, and the path through its tree."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from engine.errors import EngineError
from engine.protocol import Step
from engine.settings import LoadSettings, Settings
from engine.trace import TraceReader, Unknown
from inspector.recordings.unfit import UNFIT, unfit
from inspector.state.beams import BeamHistory
from inspector.state.branches import ROOT
from inspector.state.conditions import Made, made_with
from inspector.state.inside import Looks
from inspector.state.lockstep import LockstepSoFar
from inspector.state.session_tree import Item
from inspector.state.speculation import Speculation
from inspector.state.timeline import Timeline


@dataclass(slots=True)
class Recording:
    """A session at one moment, and which path of it is exported."""

    timeline: Timeline
    settings: Settings | None = None
    """In force at the end of the session; None where that isn't known. See `in_force`."""
    load: LoadSettings | None = None
    program: str = ""
    """What recorded it, with its version."""
    created: str = ""
    """When, as ISO 8601 in UTC."""
    items: list[Item] = field(default_factory=list)
    """The path, prompt first."""
    chosen: int | None = None
    """Node that is selected first; None where none was named."""

    @property
    def in_force(self) -> Settings | None:
        """With which the path's last step was picked, or else those at the end of the session."""
        last = self.items[-1].node if self.items else ROOT
        return self.timeline.tree.settings.get(last, self.settings)

    @property
    def made(self) -> list[Made]:
        """What the path was made with, beside the model and its sampler."""
        return made_with(self.timeline.tree, self.items)

    @property
    def tip(self) -> int:
        """Node of the path's last token."""
        return self.items[-1].node if self.items else ROOT


def read(path: Path | str) -> Recording:
    """The session that a trace holds, with the current path at its end.

    Args:
        path: The file; one that is still written to is read as far as it is.

    Raises:
        TraceError: It can't be read.
        EngineError: There is no prompt in it.
    """
    recording = Recording(Timeline(recorded=True))
    with TraceReader(path, torn_ok=True) as reader:
        recording.program, recording.created = reader.header.program, reader.header.created
        for entry in reader:
            try:
                _take(recording, entry.value)
            except UNFIT as error:
                raise unfit(reader.entries, entry.value, error) from error
    if reader.problems:
        raise reader.problems[0]
    return line(recording)


def _take(recording: Recording, value: object) -> None:
    match value:
        case Settings():
            recording.settings = value
        case LoadSettings():
            recording.load = value
        case Unknown():
            pass
        case _:
            recording.timeline.apply(value)  # type: ignore[arg-type]
            if isinstance(value, Step) and recording.settings is not None:
                recording.timeline.tree.settings[value.node] = recording.settings


def snapshot(timeline: Timeline, settings: Settings, load: LoadSettings, program: str) -> Recording:
    """A running session at this moment: what comes later changes nothing in it, whichever thread reads it.

    Args:
        timeline: Of the session; its current path is exported, its selected token chosen.
        settings: In force.
        load: Of its model.
        program: Name and version of this one.

    Raises:
        EngineError: There is no prompt in it.
    """
    held = copy.copy(timeline)
    tree, marks = copy.copy(timeline.tree), copy.copy(timeline.tree.marks)
    tree.nodes, tree.parent, tree.latest = dict(tree.nodes), dict(tree.parent), dict(tree.latest)
    tree.held, tree.interventions = dict(tree.held), dict(tree.interventions)
    tree.settings, tree.drafts = dict(tree.settings), dict(tree.drafts)
    tree.children = {node: list(nodes) for node, nodes in tree.children.items()}
    marks.of, tree.marks, held.tree = dict(marks.of), marks, tree
    speculation, lockstep = timeline.of(Speculation), timeline.of(LockstepSoFar)
    held.states = timeline.states | {
        Looks: timeline.of(Looks).copy(),
        Speculation: replace(speculation, rounds=list(speculation.rounds)),
        LockstepSoFar: replace(lockstep, spans=dict(lockstep.spans)),
    }
    held.finished, held.prompts = dict(timeline.finished), timeline.prompts.snapshot()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    recording = line(Recording(held, settings, load, program, now))
    recording.chosen = timeline.selected.node if timeline.selected is not None else None
    return recording


def line(recording: Recording, to: str | int | None = None) -> Recording:
    """Choose the path that is exported.

    Args:
        recording: Its `items` and `chosen` are set.
        to: A node, or the name of a branch: the path goes through it to the end that was visited last. None for the
            path that is current.

    Returns:
        The recording.

    Raises:
        EngineError: There is nothing to export, or no such node.
    """
    timeline = recording.timeline
    if timeline.prompts.opened is None:
        raise EngineError(
            "There is nothing to export: no prompt was given yet.", "Give one, and take some steps."
        )
    if to is None:
        recording.items = list(timeline.items)
    else:
        recording.chosen = _node(timeline, to)
        recording.items = timeline.tree.path(timeline.tree.leaf(recording.chosen))
    return recording


def _node(timeline: Timeline, to: str | int) -> int:
    named = [node for node, mark in timeline.tree.marks.of.items() if mark.name and mark.name == to]
    if not named:
        try:
            named = [int(to)]
        except ValueError:
            known = ", ".join(sorted(mark.name for mark in timeline.tree.marks.of.values() if mark.name))
            raise EngineError(
                f"No branch is named {to!r}.", f"Its names: {known}." if known else "Give a node's number."
            ) from None
    if named[0] not in timeline.tree.nodes:
        beam = named[0] in timeline.of(BeamHistory).nodes
        what = (
            f"Node {named[0]} is of a beam that was never stepped on."
            if beam
            else f"There is no node {named[0]}."
        )
        raise EngineError(
            what, "The table of --to csv has the nodes of a path; leave --node out for the current one."
        )
    return named[0]

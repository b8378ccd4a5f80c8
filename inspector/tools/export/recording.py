"""What is exported: a session's timeline, the settings, and the path through its tree."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from engine.errors import EngineError
from engine.frozen import frozen
from engine.protocol import Step
from engine.settings import LoadSettings, Settings
from engine.trace import TraceReader, Unknown
from inspector.display import truncate, visible
from inspector.recordings.recorder import UNFIT, unfit
from inspector.state.beams import BeamHistory
from inspector.state.branches import ROOT, made
from inspector.state.conditions import Made, in_short, made_with
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
            hint = f"Its names: {known}." if known else "Give a node's number."
            raise EngineError(f"No branch is named {to!r}.", hint) from None
    if named[0] not in timeline.tree.nodes:
        beam = f"Node {named[0]} is of a beam that was never stepped on."
        what = beam if named[0] in timeline.of(BeamHistory).nodes else f"There is no node {named[0]}."
        hint = "The table of --to csv has the nodes of a path; leave --node out for the current one."
        raise EngineError(what, hint)
    return named[0]


# ---- the paths of its tree -------------------------------------------------------------------

TREE = 5000
"""Tokens of a tree that is exported with all its branches; of a larger one the current path alone."""
_TEXT = 60
"""Cells of how a branch goes on."""


@frozen
class TreePath:
    """One way through the tree, from the root to a leaf. Texts are printable."""

    items: list[Item]
    name: str
    """Of the branch that it ends with; empty where it has none."""
    made: str
    """How its first own token entered the tree; `current` for the exported one."""
    conditions: list[Made]
    """What its tokens were made with, beside the model and its sampler."""
    fork: int
    """The step at which it leaves those before it, from 1; 0 where it begins with the prompt."""
    text: str
    """How it goes on from there."""

    @property
    def title(self) -> str:
        """What a list of branches calls it, and what its tokens were made with."""
        begins = "as it stands" if self.made == "current" else f"{self.made} at step {self.fork}"
        found = self.name or begins
        return " · ".join(filter(None, (found, in_short(self.conditions))))

    @property
    def tokens(self) -> int:
        """Of the completion."""
        return sum(1 for item in self.items if isinstance(item, Step))

    @property
    def perplexity(self) -> str:
        """Of the completion; empty where it has none."""
        steps = (item.logprob for item in self.items if isinstance(item, Step))
        known = [logprob for logprob in steps if math.isfinite(logprob)]
        return f"{math.exp(min(700.0, -sum(known) / len(known))):.2f}" if known else ""


def paths(recording: Recording) -> list[TreePath]:
    """All paths that were stepped and are not deleted: the exported one first, then by age. See `TREE`."""
    timeline, current = recording.timeline, recording.items
    ends = [] if left_out(timeline) else sorted(_ends(timeline))
    others = [timeline.tree.path(node) for node in ends if not current or node != current[-1].node]
    met = {item.node for item in current}
    listed = [_path(recording, current, 0, "current")]
    for items in others:
        own = next((place for place, item in enumerate(items) if item.node not in met), len(items) - 1)
        met.update(item.node for item in items)
        listed.append(_path(recording, items, own, made(items[own])))
    return listed


def left_out(timeline: Timeline) -> bool:
    """Whether branches are left out."""
    forks = any(len(nodes) > 1 for nodes in timeline.tree.children.values())
    return len(timeline.tree.nodes) > TREE and forks


def _ends(timeline: Timeline) -> Iterator[int]:
    """Leaves of the tree, without what is deleted."""
    waiting = list(timeline.tree.children.get(ROOT, ()))
    while waiting:
        node = waiting.pop()
        following = timeline.tree.children.get(node)
        if following:
            waiting += following
        else:
            yield node


def _path(recording: Recording, items: list[Item], own: int, how: str) -> TreePath:
    marks = recording.timeline.tree.marks
    begins = own
    if how == "current":
        begins = next((place for place, item in enumerate(items) if isinstance(item, Step)), 0)
    names = [marks.at(item.node).name for item in items[begins:]]
    first = items[own] if items else None
    text = visible("".join(item.text for item in items[begins : begins + _TEXT])).strip(" ")
    return TreePath(
        items,
        visible(next(filter(None, reversed(names)), "")),
        how,
        made_with(recording.timeline.tree, items),
        first.index + 1 if isinstance(first, Step) else ROOT,
        truncate(text, _TEXT),
    )

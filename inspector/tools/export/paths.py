"""The paths of a recording's tree: where each leaves the ones before it, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.frozen import frozen
from engine.protocol import Step
from inspector.display import truncate, visible
from inspector.state.branches import ROOT, made
from inspector.state.conditions import Made, in_short, made_with
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export.recording import Recording

TREE = 5000
"""Tokens of a tree that is exported with all its branches; of a larger one the current path alone."""
_TEXT = 60
"""Cells of how a branch goes on."""


@frozen
class Path:
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
        found = self.name or (
            "as it stands" if self.made == "current" else f"{self.made} at step {self.fork}"
        )
        return " · ".join(filter(None, (found, in_short(self.conditions))))

    @property
    def tokens(self) -> int:
        """Of the completion."""
        return sum(1 for item in self.items if isinstance(item, Step))

    @property
    def perplexity(self) -> str:
        """Of the completion; empty where it has none."""
        known = [
            item.logprob for item in self.items if isinstance(item, Step) and math.isfinite(item.logprob)
        ]
        return f"{math.exp(min(700.0, -sum(known) / len(known))):.2f}" if known else ""


def paths(recording: Recording) -> list[Path]:
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
    return len(timeline.tree.nodes) > TREE and any(
        len(nodes) > 1 for nodes in timeline.tree.children.values()
    )


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


def _path(recording: Recording, items: list[Item], own: int, how: str) -> Path:
    marks = recording.timeline.tree.marks
    begins = (
        own if how != "current" else next((n for n, item in enumerate(items) if isinstance(item, Step)), 0)
    )
    names = [marks.at(item.node).name for item in items[begins:]]
    first = items[own] if items else None
    text = visible("".join(item.text for item in items[begins : begins + _TEXT])).strip(" ")
    return Path(
        items,
        visible(next(filter(None, reversed(names)), "")),
        how,
        made_with(recording.timeline.tree, items),
        first.index + 1 if isinstance(first, Step) else ROOT,
        truncate(text, _TEXT),
    )

"""What is known of what might come: the line that greedy decoding would bring after a candidate, by node and candidate.

Lines don't depend on the sampler's settings, so that they stay good until another prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import ClassVar

from engine import protocol
from engine.protocol import AheadLine, Candidate, LookAhead

CANDIDATES = 5
"""The most probable ones are looked ahead from, and the highlighted one."""
TOKENS = 8
"""Tokens of a line."""
NODES = 256
"""Nodes whose lines are kept; the least recently used go first."""
NOTHING: Mapping[int, AheadLine] = {}


class LookAheadLines:
    """True if lines of what might come are shown, and all that the engine sent.

    Args:
        nodes: How many nodes to keep the lines of.
    """

    TAKES: ClassVar[tuple[type[protocol.Record], ...]] = (
        protocol.PromptOpened, protocol.LookedAhead, protocol.ModelFacts,
    )  # fmt: skip
    """The records that change it."""

    def __init__(self, nodes: int = NODES) -> None:
        self.on = False
        self._nodes = nodes
        self._lines: OrderedDict[int, dict[int, AheadLine]] = OrderedDict()
        self._whole: set[tuple[int, int]] = set()
        """Node and candidate of the lines that need no further request, those without an answer too."""
        self._notes: dict[int, str] = {}
        self._pending: LookAhead | None = None
        """The request that waits for its answer."""

    def switch(self) -> None:
        """Show it, or don't any more; what failed is tried again."""
        self.on = not self.on
        self._try_again()

    # ---- what is known ----------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """True if there are any lines, shown or not."""
        return bool(self._lines)

    def lines(self, node: int) -> Mapping[int, AheadLine]:
        """The lines after a node by candidate, as far as they came; none while it is off."""
        return self._lines.get(node, NOTHING) if self.on else NOTHING

    def note(self, node: int) -> str:
        """The engine's note on the lines after a node."""
        return self._notes.get(node, "") if self.on else ""

    def waited_for(self, node: int) -> frozenset[int]:
        """Candidates after a node that were requested and have no line yet."""
        if not self.on or self._pending is None or self._pending.node != node:
            return frozenset()
        return frozenset(self._pending.ids) - self.lines(node).keys()

    def seen(self, node: int) -> tuple[object, ...]:
        """All that is shown after the candidates of a node while it is on: while that is equal, they look the same."""
        return *self.lines(node).items(), self.waited_for(node)

    # ---- questions and answers --------------------------------------------------------------

    def question(self, node: int, ids: Sequence[int]) -> LookAhead | None:
        """The question that brings what is not known; to be sent. None where all is known, or it is off."""
        if node in self._lines:
            self._lines.move_to_end(node)
        unknown = tuple(id for id in ids if (node, id) not in self._whole)
        if not self.on or not unknown:
            return None
        self._pending = LookAhead(node, unknown, TOKENS)
        return self._pending

    def receive(self, record: protocol.Record) -> None:
        """Take in one record."""
        match record:
            case protocol.PromptOpened():
                self._forget()
            case protocol.LookedAhead():
                self._take(record)
            case protocol.ModelFacts():
                self._try_again()

    def ended(self, question: LookAhead, cancelled: bool) -> None:
        """A question has ended: with lines, without, or in failure."""
        if not cancelled:
            self._whole |= {(question.node, id) for id in question.ids}
        if self._pending is question:
            self._pending = None

    def _try_again(self) -> None:
        """Request again what had no answer."""
        self._whole = {(node, id) for node, id in self._whole if id in self._lines.get(node, ())}

    def _forget(self) -> None:
        """Another tree: its nodes have the same numbers."""
        self._lines.clear()
        self._whole.clear()
        self._notes.clear()

    def _take(self, record: protocol.LookedAhead) -> None:
        known = self._lines.setdefault(record.node, {})
        self._lines.move_to_end(record.node)
        for line in record.lines:
            before = known.get(line.id)
            # else a line begun again is still catching up
            if before is None or len(before.ids) <= len(line.ids):
                known[line.id] = line
            if line.ended or record.last:
                self._whole.add((record.node, line.id))
        if record.note:
            self._notes[record.node] = record.note
        while len(self._lines) > self._nodes:
            self._drop(*self._lines.popitem(last=False))

    def _drop(self, node: int, lines: Mapping[int, AheadLine]) -> None:
        self._whole -= {(node, id) for id in lines}
        self._notes.pop(node, None)


def wanted(candidates: Sequence[Candidate], highlighted: Candidate | None) -> tuple[int, ...]:
    """Ids to look ahead from: those of the most probable candidates, and of the highlighted one.

    Args:
        candidates: Best first.
        highlighted: None where there is none.
    """
    ids = [candidate.id for candidate in candidates[:CANDIDATES]]
    if highlighted is not None and highlighted.id not in ids:
        ids.append(highlighted.id)
    return tuple(ids)

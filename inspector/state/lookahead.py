"""Look-ahead: the greedy continuation (line) after a candidate, by node and candidate.

Lines don't depend on the sampler's settings, so they stay valid until the next prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from engine import protocol
from engine.protocol import AheadLine, Candidate, LookAhead

CANDIDATES = 5
"""Number of the most probable candidates that get a line; the highlighted one gets one too."""
TOKENS = 8
"""Number of tokens of a line."""
NODES = 256
"""Maximum number of nodes with kept lines; the least recently used is dropped first."""
NOTHING: Mapping[int, AheadLine] = {}


class LinesAfter(Struct):
    """The lines after one node."""

    lines: dict[int, AheadLine] = field(default_factory=dict)
    """Lines by candidate, as far as they have arrived."""
    whole: set[int] = field(default_factory=set)
    """Candidates that need no further request: their lines are complete, or the request got no answer."""
    note: str = ""


class LookAheadLines:
    """All lines that the engine sent, and whether they are shown.

    Args:
        nodes: Maximum number of nodes with kept lines.
    """

    TAKES = protocol.PromptOpened, protocol.LookedAhead, protocol.ModelFacts

    def __init__(self, nodes: int = NODES) -> None:
        self.on = False
        self._nodes = nodes
        self._after: OrderedDict[int, LinesAfter] = OrderedDict()
        self._pending: LookAhead | None = None
        """The request that has no answer yet."""

    def switch(self) -> None:
        """Turn look-ahead on or off; failed requests are tried again."""
        self.on = not self.on
        self._try_again()

    # ---- what is known ----------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """True if there are any lines, shown or not."""
        return any(after.lines for after in self._after.values())

    def lines(self, node: int) -> Mapping[int, AheadLine]:
        """The lines after a node by candidate, as far as they have arrived; empty while look-ahead is off."""
        return self._after[node].lines if self.on and node in self._after else NOTHING

    def note(self, node: int) -> str:
        """The engine's note on the lines after a node."""
        return self._after[node].note if self.on and node in self._after else ""

    def waited_for(self, node: int) -> frozenset[int]:
        """Candidates after a node that were requested and have no line yet."""
        if not self.on or self._pending is None or self._pending.node != node:
            return frozenset()
        return frozenset(self._pending.ids) - self.lines(node).keys()

    def seen(self, node: int) -> tuple[object, ...]:
        """Everything shown for a node while look-ahead is on, to compare: if it is equal, no redraw is needed."""
        return *self.lines(node).items(), self.waited_for(node)

    # ---- questions and answers --------------------------------------------------------------

    def question(self, node: int, ids: Sequence[int]) -> LookAhead | None:
        """The request for the missing lines after a node, to be sent; None if none is missing or look-ahead is off."""
        whole: set[int] = set()
        if node in self._after:
            self._after.move_to_end(node)
            whole = self._after[node].whole
        unknown = tuple(id for id in ids if id not in whole)
        if not self.on or not unknown:
            return None
        self._pending = LookAhead(node, unknown, TOKENS)
        return self._pending

    def receive(self, record: protocol.Record) -> None:
        match record:
            case protocol.PromptOpened():  # a new tree uses the same node numbers
                self._after.clear()
            case protocol.LookedAhead():
                after = self._of(record.node)
                for line in record.lines:
                    before = after.lines.get(line.id)
                    # a line that was requested again is shorter until it catches up
                    if before is None or len(before.ids) <= len(line.ids):
                        after.lines[line.id] = line
                    if line.ended or record.last:
                        after.whole.add(line.id)
                after.note = record.note or after.note
            case protocol.ModelFacts():
                self._try_again()

    def _of(self, node: int) -> LinesAfter:
        after = self._after.setdefault(node, LinesAfter())
        self._after.move_to_end(node)
        while len(self._after) > self._nodes:
            self._after.popitem(last=False)
        return after

    def ended(self, question: LookAhead, cancelled: bool) -> None:
        """Note that a request has ended, with or without lines."""
        if not cancelled:
            self._of(question.node).whole.update(question.ids)
        if self._pending is question:
            self._pending = None

    def _try_again(self) -> None:
        """Make candidates without a line requestable again."""
        for after in self._after.values():
            after.whole &= after.lines.keys()


def wanted(candidates: Sequence[Candidate], highlighted: Candidate | None) -> tuple[int, ...]:
    """The candidates to look ahead from: the most probable ones and the highlighted one, as ids.

    Args:
        candidates: Best first.
        highlighted: None if there is none.
    """
    shown = [*candidates[:CANDIDATES], *([highlighted] if highlighted is not None else [])]
    return tuple(dict.fromkeys(candidate.id for candidate in shown))

"""The state of beam search: every token that a beam ever reached, and the progress of the last search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from msgspec import Struct, field

from engine import protocol
from engine.protocol import Ended, Failure, PromptOpened, Record
from inspector.state.branches import Token
from inspector.state.capability import CapabilityState, ReplayStop

State = Literal["live", "grown", "pruned", "finished", "left", "greedy"]
"""`live` can still grow, `grown` has, `pruned` fell out, `finished` ends a hypothesis, `left` was live when the search
ended, `greedy` is reached by greedy decoding alone."""


class BeamNode(Struct):
    """One token of a beam, in the token tree."""

    node: int
    parent: int
    id: int
    text: str
    """The characters that it finished; not yet printable."""
    logprob: float
    """Logprob of this token."""
    total: float
    """Logprob of all tokens since the search began."""
    score: float
    length: int
    """Tokens since the search began: the step of the search that added it."""
    state: State = "live"
    fell: int | None = None
    """The step at which it, or the last beam that grew from it, fell out."""
    rank: int | None = None
    """Rank in the final ranking, 1 the best; only for the last node of a hypothesis."""
    greedy: bool = False
    """True if greedy decoding takes it."""
    ends: bool = False
    """True if it is an end-of-sequence token that ended a hypothesis."""


class BeamSearch(Struct):
    """One search; a `BeamHistory` has the last one."""

    opened: protocol.BeamOpened
    steps: list[protocol.BeamStep] = field(default_factory=list)
    ended: protocol.BeamEnded | None = None
    failure: Failure | None = None
    """The error that stopped it, if any."""

    @property
    def over(self) -> bool:
        """True if the search can't continue."""
        return self.ended is not None or self.failure is not None

    @property
    def step(self) -> protocol.BeamStep | None:
        return self.steps[-1] if self.steps else None


class BeamHistory(CapabilityState):
    """All beams since the prompt was given.

    `nodes` keeps those of earlier searches too: they stay in the engine's tree, and the user can move to them.
    """

    ENDS = "SearchBeams", "GoOnBeams"
    FAILS = protocol.SearchBeams, protocol.GoOnBeams
    STOPS: ClassVar = {
        protocol.BeamOpened: (ReplayStop.BEGINS, ""),
        protocol.BeamStep: (ReplayStop.FIRST, "A beam search is here: {beams} shows it"),
        protocol.BeamEnded: (ReplayStop.EACH, "A beam search is over here: {beams} shows it"),
    }

    def __init__(self) -> None:
        self.nodes: dict[int, BeamNode] = {}
        self.search: BeamSearch | None = None
        self.refused: Failure | None = None
        """The error for which the last requested search never began, if any."""
        self.version = 0
        """Grows with every record that changes anything, so that a view knows when to redraw."""
        self.fallen: list[int] = []
        """Last nodes of the beams and hypotheses that fell out of the last search, in that order."""
        self._children: dict[int, list[int]] = {}
        self._opening = False
        """True while the command that began the search runs."""

    def apply(self, record: Record) -> None:
        match record:
            case PromptOpened():
                self.nodes = {} if record.new_tree else self.nodes
                self.search = self.refused = None
                self._children, self.fallen = {}, []
            case protocol.BeamOpened():
                self._open(record)
            case protocol.BeamStep() if self.search is not None:
                self._step(self.search, record)
            case protocol.BeamEnded() if self.search is not None:
                self._end(self.search, record)
            case Failure(command="SearchBeams" | "GoOnBeams"):
                if record.command == "SearchBeams" and not self._opening:
                    self.refused = record
                if self.search is not None and not self.search.over:
                    self.search.failure = record
            case Ended(command="SearchBeams"):
                self._opening = False
            case _:
                return
        self.version += 1

    def reached(self, record: protocol.BeamStep | protocol.BeamEnded) -> Iterator[Token]:
        """The last tokens of all beams after a step, or of the final ranking; the session was never at them."""
        beams: tuple[protocol.Beam | protocol.Hypothesis | None, ...]
        if isinstance(record, protocol.BeamStep):
            beams = (*record.live, *record.finished, record.greedy)
        else:
            beams = (*record.ranking, record.greedy)
        for beam in beams:
            if beam is not None and (node := self.nodes.get(beam.node)) is not None:
                yield Token(node.node, node.parent, node.text, b"", node.logprob, "beam")

    def children(self, node: int) -> list[int]:
        """The nodes that grew from a node in the last search."""
        return self._children.get(node, [])

    def path(self, node: int) -> list[BeamNode]:
        """The tokens of the last search up to a node; empty if the node isn't part of it."""
        path = []
        while self.search is not None and node != self.search.opened.node:
            if (at := self.nodes.get(node)) is None:
                return []
            path.append(at)
            node = at.parent
        return path[::-1]

    # ---- records as they come ---------------------------------------------------------------

    def _open(self, record: protocol.BeamOpened) -> None:
        for node in self.nodes.values():  # ranks and greedy's path belong to one search
            node.rank, node.greedy = None, False
            if node.state == "live":
                node.state = "left"
        self.search, self.refused, self._opening = BeamSearch(record), None, True
        self._children, self.fallen = {}, []

    def _step(self, search: BeamSearch, record: protocol.BeamStep) -> None:
        before = search.step.finished if search.step is not None else ()
        search.steps.append(record)
        for beam in record.live:
            self._grow(beam, "live")
        if (greedy := record.greedy) is not None:
            self._grow(greedy, "live" if greedy.place >= 0 else "greedy").greedy = True
        for hypothesis in record.finished:
            self._finish(search, hypothesis)
        kept = {hypothesis.node for hypothesis in record.finished}
        for node in (*(beam.node for beam in record.pruned), *(hypothesis.node for hypothesis in before)):
            if node not in kept:
                self._fall(search, node, record.step)

    def _end(self, search: BeamSearch, record: protocol.BeamEnded) -> None:
        search.ended = record
        for rank, hypothesis in enumerate(record.ranking, 1):
            self._finish(search, hypothesis).rank = rank
        for beam in record.left:
            self.nodes[beam.node].state = "left"
        for node in self.path(record.greedy.node):
            node.greedy = True
        self.nodes[record.greedy.node].ends = record.greedy.reason == "eos"

    # ---- nodes ------------------------------------------------------------------------------

    def _grow(self, beam: protocol.Beam, state: State) -> BeamNode:
        """Add a beam's node, and mark its parent as grown."""
        return self._put(
            BeamNode(
                beam.node, beam.parent, beam.id, beam.text, beam.logprob, beam.total_logprob, beam.score,
                beam.length, state,
            )
        )  # fmt: skip

    def _finish(self, search: BeamSearch, hypothesis: protocol.Hypothesis) -> BeamNode:
        """Mark the last node of a hypothesis as finished; it is added if it was never a live beam."""
        known = self.nodes.get(hypothesis.node)
        if known is None or known.node not in self.children(known.parent):
            known = self._put(self._last(search, hypothesis))
        known.state, known.ends = "finished", hypothesis.reason == "eos"
        return known

    def _last(self, search: BeamSearch, hypothesis: protocol.Hypothesis) -> BeamNode:
        """Make the last node of a hypothesis from its record."""
        parent = search.opened.node
        for id in hypothesis.ids[:-1]:
            parent = next(child for child in self._children[parent] if self.nodes[child].id == id)
        path = self.path(parent)
        prefix = "".join(node.text for node in path)
        text = hypothesis.end if hypothesis.reason == "eos" else hypothesis.text[len(prefix) :]
        logprob = hypothesis.logprob - (path[-1].total if path else 0.0)
        total, score, length = hypothesis.logprob, hypothesis.score, hypothesis.length
        return BeamNode(hypothesis.node, parent, hypothesis.ids[-1], text, logprob, total, score, length)

    def _put(self, grown: BeamNode) -> BeamNode:
        siblings = self._children.setdefault(grown.parent, [])
        if grown.node not in siblings:
            siblings.append(grown.node)
        self.nodes[grown.node] = grown
        if (parent := self.nodes.get(grown.parent)) is not None and parent.state == "live":
            parent.state = "grown"
        return grown

    def _fall(self, search: BeamSearch, node: int, step: int) -> None:
        """Mark a beam as fallen out, and each ancestor of which no beam is left; greedy's own nodes don't count."""
        self.nodes[node].state = "pruned"
        self.fallen.append(node)
        while node != search.opened.node and all(
            self.nodes[child].fell is not None or self.nodes[child].state == "greedy"
            for child in self._children.get(node, ())
        ):
            self.nodes[node].fell = step
            node = self.nodes[node].parent

"""What a beam search looks like after one of its steps: who leads, who fell out, and where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from engine.frozen import frozen
from engine.protocol import Beam, BeamEnded, BeamStep, Hypothesis
from engine.tree import common_prefix
from inspector.display import visible
from inspector.state.beams import BeamHistory, BeamNode, BeamSearch

Kind = Literal["live", "fell", "finished", "left", "greedy"]


@frozen
class BeamEntry:
    """One beam or hypothesis after a step."""

    kind: Kind
    place: int | None
    """Among the live beams or in the ranking, 1 the best; None for the others."""
    path: tuple[BeamNode, ...]
    """Its tokens, at least one."""
    greedy: bool = False
    """Whether greedy decoding gives exactly this."""
    ended: str = ""
    """`eos` or `length` where it is finished, with the end-of-sequence token where the texts are equal;
    printable."""

    @property
    def last(self) -> BeamNode:
        return self.path[-1]

    @property
    def node(self) -> int:
        return self.last.node

    @property
    def length(self) -> int:
        """Tokens since the search began."""
        return self.last.length

    @property
    def fell(self) -> int | None:
        """The step at which it fell out, if it did."""
        return self.last.fell if self.kind == "fell" else None


def entries(beams: BeamHistory, at: int) -> list[BeamEntry]:
    """Everything that is to be listed after a step, best first, as far as it is known.

    Args:
        beams: Of a search with at least `at` steps.
        at: The step, from 1.

    Returns:
        Before the end: live beams, finished hypotheses, greedy decoding where it is none of them, and those that fell
        out last, as many as the width. At the end: the ranking, greedy decoding, and the beams that were left.
    """
    search = beams.search
    assert search is not None
    if search.ended is not None and at == len(search.steps):
        return list(_final(beams, search.ended))
    return [*_under_way(beams, search, at), *_fallen(beams, at, search.opened.width)]


def _final(beams: BeamHistory, end: BeamEnded) -> Iterator[BeamEntry]:
    ranked = any(hypothesis.node == end.greedy.node for hypothesis in end.ranking)
    listed = [*_finished(beams, end.ranking if ranked else (*end.ranking, end.greedy), end.greedy.node)]
    yield from listed if ranked else listed[:-1]
    if not ranked:
        yield replace(listed[-1], kind="greedy", place=None)
    for beam in end.left:
        yield _beam(beams, beam, "left")


def _under_way(beams: BeamHistory, search: BeamSearch, at: int) -> Iterator[BeamEntry]:
    step = search.steps[at - 1]
    greedy = _greedy(search.steps[:at])
    for beam in step.live:
        yield replace(_beam(beams, beam, "live"), greedy=greedy is not None and beam.node == greedy.node)
    yield from _finished(beams, step.finished, greedy.node if greedy else -1)
    listed = {beam.node for beam in step.live} | {hypothesis.node for hypothesis in step.finished}
    if greedy is not None and greedy.node not in listed:
        yield replace(_beam(beams, greedy, "greedy"), greedy=True)


def _greedy(steps: Sequence[BeamStep]) -> Beam | None:
    """The last token of greedy decoding, present or earlier."""
    return next((step.greedy for step in reversed(steps) if step.greedy is not None), None)


def _beam(beams: BeamHistory, beam: Beam, kind: Kind) -> BeamEntry:
    return BeamEntry(kind, beam.place + 1 if kind == "live" else None, tuple(beams.path(beam.node)))


def _finished(beams: BeamHistory, hypotheses: Sequence[Hypothesis], greedy: int) -> Iterator[BeamEntry]:
    ends = endings(hypotheses)
    for place, (hypothesis, end) in enumerate(zip(hypotheses, ends, strict=True), 1):
        yield BeamEntry("finished", place, tuple(beams.path(hypothesis.node)), hypothesis.node == greedy, end)


def endings(hypotheses: Sequence[Hypothesis]) -> list[str]:
    """How each hypothesis ended, printable; with the token that ended it where the texts are equal."""
    texts = Counter(h.text for h in hypotheses)
    return [f"{h.reason} {visible(h.end)}" if texts[h.text] > 1 and h.end else h.reason for h in hypotheses]


def _fallen(beams: BeamHistory, at: int, count: int) -> Iterator[BeamEntry]:
    """Those that fell out last, the latest first; of one step the better ones first."""
    latest: list[BeamNode] = []
    for node in reversed(beams.fallen):
        beam = beams.nodes[node]
        if beam.fell is not None and beam.fell <= at:
            if len(latest) >= count and beam.fell != latest[-1].fell:
                break
            latest.append(beam)
    latest.sort(key=lambda beam: (-(beam.fell or 0), -beam.score))
    for beam in latest[:count]:
        yield BeamEntry("fell", None, tuple(beams.path(beam.node)))


# ---- what they share ----------------------------------------------------------------------------


def shared(entries: Sequence[BeamEntry]) -> int:
    """How many tokens all of these begin with."""
    return min((_common(entries[0].path, entry.path) for entry in entries), default=0)


def _common(one: Sequence[BeamNode], other: Sequence[BeamNode]) -> int:
    return common_prefix((beam.node for beam in one), (beam.node for beam in other))


def passing(entries: Sequence[BeamEntry]) -> Counter[int]:
    """How many go through each node, of those that are in the search or came of it; all through where it began."""
    those = [entry.path for entry in entries if entry.kind not in ("fell", "greedy")]
    return Counter(node for path in those for node in (path[0].parent, *(beam.node for beam in path)))


# ---- against greedy decoding ----------------------------------------------------------------------


@frozen
class GreedyComparison:
    """One beam compared with greedy decoding."""

    shared: int
    """Tokens that both begin with."""
    mine: BeamNode | None
    """The first token that greedy decoding doesn't take; None where there is none."""
    greedy: BeamNode | None
    """What greedy decoding takes in its place; None where it has ended."""
    tokens: int
    """As many as both have."""
    gap: float
    """By how much the logprob of these tokens exceeds that of greedy decoding's."""
    longer: int
    """How many tokens longer it is, below 0 for shorter."""


def compare_with_greedy(beams: BeamHistory, entry: BeamEntry, at: int) -> GreedyComparison | None:
    """Compare a beam with greedy decoding after a step; None where that isn't known."""
    search = beams.search
    last = _greedy(search.steps[:at]) if search is not None else None
    if last is None:
        return None
    mine, greedy = entry.path, beams.path(last.node)
    same = _common(mine, greedy)
    tokens = min(len(mine), len(greedy))
    return GreedyComparison(
        same,
        mine[same] if same < len(mine) else None,
        greedy[same] if same < len(greedy) else None,
        tokens,
        mine[tokens - 1].total - greedy[tokens - 1].total,
        len(mine) - len(greedy),
    )

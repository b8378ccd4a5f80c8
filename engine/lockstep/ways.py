"""Both models go on from one token, each with its own picks, until a length; where they part and where they meet."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from difflib import SequenceMatcher

from engine.errors import Cancelled
from engine.lockstep.paths import PathReader
from engine.model.forward import Runner, Stopped
from engine.model.tokens import Tokens
from engine.protocol import Measuring, WayPart, WaysParted
from engine.sampling.ranking import Row
from engine.session.detached import copy_runner, run_at
from engine.session.node_logits import NodeReader
from engine.session.session import Session
from engine.settings import Settings
from engine.tree import ROOT, TokenTree

MEET = 3
"""Words in a row that both must have before it counts as a meeting: one or two are alike by chance."""
_WORDS = re.compile(r"\s*\S+|\s+")


class Way:
    """One model's continuation, in a cache of its own.

    Args:
        tokens: The model's.
        runner: Its cache holds the path.
        ids: The path.
        row: The logits after it.
        settings: The sampler's.
    """

    def __init__(self, tokens: Tokens, runner: Runner, ids: list[int], row: Row, settings: Settings) -> None:
        self.tokens, self._runner, self._row, self._settings = tokens, runner, row, settings
        self._tree = TokenTree()
        self._reader = NodeReader(tokens, self._tree, {})
        self._node = self._tree.add_prompt(ROOT, ids)[-1]
        self.ids: list[int] = []
        self.ended = False
        """Whether it ended its sequence."""

    def step(self) -> None:
        """Take its own pick, unless it has ended."""
        if self.ended:
            return
        token = self._reader.sample(self._node, self._row, self._settings).sampled.picked
        self._node = self._reader.add_token(self._node, token, "sampled")
        self.ids.append(token)
        self.ended = token in self.tokens.eos_ids
        if not self.ended:
            self._row = self._runner.forward(token)

    @property
    def text(self) -> str:
        """Of its continuation, without the mark that ended it."""
        return self.tokens.join(self.ids[:-1] if self.ended else self.ids)


def part_ways(
    session: Session, paths: PathReader, node: int, tokens: int, stopped: Stopped
) -> Iterator[Measuring | WaysParted]:
    """Let both go on from a node whose path was read in both.

    Args:
        session: Doesn't change.
        paths: The second model's path.
        node: Of the session's tree.
        tokens: Decoded by each at most.
        stopped: Polled before each token.

    Raises:
        StepError: There is no such node.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    found, here = run_at(session, node, stopped), paths.paths(session, node)
    row = paths.rows.after(len(here.other_ids) - 1)
    mine = Way(session.tokens, copy_runner(found.runner), here.ids, found.row, session.settings)
    theirs = Way(
        paths.second.loaded.tokens, copy_runner(paths.rows.hold()), here.other_ids, row, session.settings
    )
    for done in range(tokens):
        if stopped():
            raise Cancelled
        yield Measuring("PartWays", done, tokens, "both go on")
        mine.step()
        theirs.step()
        if mine.ended and theirs.ended:
            break
    parts = compared(mine.text, theirs.text)
    same = [each.same for each in parts]
    yield WaysParted(
        node=node,
        tokens=tokens,
        ids=tuple(mine.ids),
        other_ids=tuple(theirs.ids),
        parts=parts,
        parted=parted(mine, theirs),
        meetings=sum(1 for place, each in enumerate(same) if each and place),
        ms=(time.perf_counter() - begun) * 1000,
    )


def parted(mine: Way, theirs: Way) -> int | None:
    """How many tokens of the first way come before the first byte that differs; None where none does."""
    raws, others = ([way.tokens.raw(token) for token in way.ids] for way in (mine, theirs))
    one, other, before = b"".join(raws), b"".join(others), 0
    if one == other:
        return None
    for place, raw in enumerate(raws):
        if one[before : before + len(raw)] != other[before : before + len(raw)]:
            return place
        before += len(raw)
    return len(raws)


def compared(one: str, other: str) -> tuple[WayPart, ...]:
    """Two texts as the pieces that they have in common and those that they don't, word by word."""
    mine, theirs = _WORDS.findall(one), _WORDS.findall(other)
    parts: list[WayPart] = []
    at, at_other = 0, 0

    def apart(end: int, end_other: int) -> None:
        if (at, at_other) != (end, end_other):
            parts.append(WayPart("".join(mine[at:end]), "".join(theirs[at_other:end_other]), False))

    for begin, begin_other, size in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
        if size < MEET and (begin, begin_other) != (0, 0):
            continue  # the last block is empty
        if size:
            apart(begin, begin_other)
            text = "".join(mine[begin : begin + size])
            parts.append(WayPart(text, text, True))
            at, at_other = begin + size, begin_other + size
    apart(len(mine), len(theirs))
    return tuple(parts)

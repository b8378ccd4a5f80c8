"""Both models continue from one token, each with its own picks, until they diverge."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from difflib import SequenceMatcher

from engine.errors import Cancelled
from engine.lockstep.paths import PathReader
from engine.model.forward import Runner
from engine.protocol import Measuring, WayPart, WaysParted
from engine.sampling.ranking import Row
from engine.session.node_records import Continuation
from engine.session.session import Session, run_at
from engine.task import Stopped

MEET = 3
"""Words in a row that both must have before it counts as a meeting: one or two are alike by chance."""
_WORDS = re.compile(r"\s*\S+|\s+")


def continue_both(
    session: Session, reader: PathReader, node: int, tokens: int, stopped: Stopped
) -> Iterator[Measuring | WaysParted]:
    """Let both continue from a node whose path was read in both.

    Args:
        session: Doesn't change.
        reader: Has the second model's path.
        node: A node of the session's tree.
        tokens: Maximum number of tokens that each decodes.
        stopped: Polled before each token.

    Raises:
        StepError: There is no such node.
        Cancelled: `stopped` returned True.
    """
    begun, second = time.perf_counter(), reader.second.loaded
    found, paths = run_at(session, node, stopped), reader.paths(session, node)
    row = reader.rows.after(len(paths.other_ids) - 1)
    mine = Continuation(session.tokens, session.facts, session.settings, paths.ids)
    theirs = Continuation(second.tokens, second.facts, session.settings, paths.other_ids)
    picks = _picks(mine, found.runner.copy(), found.row), _picks(theirs, reader.rows.hold().copy(), row)
    for done in range(tokens):
        if stopped():
            raise Cancelled
        yield Measuring("PartWays", done, tokens, "both continue")
        for each in picks:
            next(each, None)
        if _ended(mine) and _ended(theirs):
            break
    parts = compared(
        *(path.tokens.join(path.ids[:-1] if _ended(path) else path.ids) for path in (mine, theirs))
    )
    yield WaysParted(
        node=node,
        tokens=tokens,
        ids=tuple(mine.ids),
        other_ids=tuple(theirs.ids),
        parts=parts,
        parted=_diverged(mine, theirs),
        meetings=sum(1 for place, each in enumerate(parts) if each.same and place),
        ms=(time.perf_counter() - begun) * 1000,
    )


def _picks(path: Continuation, runner: Runner, row: Row) -> Iterator[int]:
    """Take the tokens that a model picks, until it ends the sequence.

    Args:
        path: Receives the tokens.
        runner: Its cache holds the path.
        row: The logits after it.
    """
    while True:
        token = path.sample(row).sampled.picked
        path.take(token)
        yield token
        if token in path.tokens.eos_ids:
            return
        row = runner.forward(token)


def _ended(path: Continuation) -> bool:
    """True if a continuation ended its sequence."""
    return path.count > 0 and path.tree[path.node].token in path.tokens.eos_ids


def _diverged(mine: Continuation, theirs: Continuation) -> int | None:
    """Number of the first continuation's tokens before the first byte that differs; None if all bytes are the same."""
    raws, others = ([path.tokens.raw(token) for token in path.ids] for path in (mine, theirs))
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
    at = at_other = 0
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()  # the last is empty
    for begin, begin_other, size in blocks:
        last = begin == len(mine) and begin_other == len(theirs) and not size
        if size < MEET and (begin, begin_other) != (0, 0) and not last:
            continue
        if (at, at_other) != (begin, begin_other):
            parts.append(WayPart("".join(mine[at:begin]), "".join(theirs[at_other:begin_other]), False))
        if size:
            text = "".join(mine[begin : begin + size])
            parts.append(WayPart(text, text, True))
        at, at_other = begin + size, begin_other + size
    return tuple(parts)

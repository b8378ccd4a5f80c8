"""Activation patching, for screen and command line: the tokens that are followed, pairs of texts, alignments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engine.errors import PromptError
from engine.protocol import MOST_PAIRS, ActivationsPatched, Candidate, Facing, PatchColumn, PatchPair, Step
from inspector.state.timeline import Timeline

LIKELY = 5
"""Number of top ranks whose tokens may be followed."""


def after(timeline: Timeline, node: int) -> Sequence[Candidate]:
    """The known candidates after a token."""
    item = timeline.tree.nodes[node]
    if isinstance(item, Step):
        return item.next.candidates
    if (read := timeline.prompts.by_end.get(node)) is not None and read.prefilled is not None:
        return read.prefilled.next.candidates
    later = (timeline.tree.nodes[child] for child in timeline.tree.children.get(node, ()))
    found = (each.choice.candidates if isinstance(each, Step) else each.candidates for each in later)
    return next(filter(None, found), ())


def pair(own: Sequence[Candidate], source: Sequence[Candidate]) -> tuple[int, int] | None:
    """Two tokens that distinguish both paths: the one that the source favors most, and the one that this path does.

    A token that is known after one path only counts as the other's least probable one.

    Args:
        own: Candidates after the path that is patched.
        source: Candidates after the source path.

    Returns:
        The ids of the source's and of this path's token; None if there aren't two.
    """
    if not own or not source:
        return None
    here, there = ({each.id: each.logprob for each in side} for side in (own, source))
    least_here, least_there = (
        min(each.logprob for each in side if each.rank <= len(side)) for side in (own, source)
    )
    likely = dict.fromkeys(each.id for each in (*source, *own) if each.rank <= LIKELY)
    gains = {id: there.get(id, least_there) - here.get(id, least_here) for id in likely}
    if len(gains) < 2:
        return None
    # among equal gains: the source's own token, and this path's own
    return max(gains, key=gains.__getitem__), min(reversed(gains), key=gains.__getitem__)


# ---- pairs and alignments -----------------------------------------------------------------------

FIELDS = {"text": True, "source": True, "token": False, "other": False}
"""Fields of a pair, and whether each is required."""


def pairs_from(text: str, name: str) -> tuple[PatchPair, ...]:
    """The pairs of a file of JSON lines: `{"text": ..., "source": ..., "token": " happy", "other": " sad"}`.

    Args:
        text: Text of the file.
        name: Name of the file, for messages.

    Raises:
        PromptError: A line isn't a pair, or the file has none or too many.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise PromptError(f"{name} has no pairs.", _SHAPE)
    pairs = tuple(_pair_of(line, f"Line {number} of {name}") for number, line in lines[:MOST_PAIRS])
    if len(lines) > MOST_PAIRS:
        raise PromptError(f"{name} has more than {MOST_PAIRS} pairs.", "Give fewer, in several files.")
    return pairs


_SHAPE = (
    'Write a pair on each line: {"text": "...", "source": "...", "token": " happy", "other": " sad"}, '
    "or the first two only."
)


def _pair_of(line: str, where: str) -> PatchPair:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise PromptError(f"{where} is not JSON.", _SHAPE) from None
    if not isinstance(value, dict) or not value.keys() <= FIELDS.keys():
        raise PromptError(f"{where} is not a pair of texts.", _SHAPE)
    for name, needed in FIELDS.items():
        given = value.get(name, "")
        if not isinstance(given, str) or (needed and not given):
            raise PromptError(f"{where}: {name} is not a text.", _SHAPE)
    if bool(value.get("token")) != bool(value.get("other")):
        raise PromptError(f"{where} has only one of the two answers.", "Give both, or none.")
    return PatchPair(**value)


def facing_words(facing: Sequence[tuple[int, int]]) -> str:
    """An alignment as ranges of positions from 1: `1-5:1-5, 6:8, 7-9:9-11`."""
    stretches: list[list[int]] = []
    for place, partner in facing:
        if stretches and stretches[-1][1] == place - 1 and stretches[-1][3] == partner - 1:
            stretches[-1][1], stretches[-1][3] = place, partner
        else:
            stretches.append([place, place, partner, partner])
    shown = ([at + 1 for at in stretch] for stretch in stretches)
    ends = [(f"{a}-{b}", f"{c}-{d}") if a != b else (f"{a}", f"{c}") for a, b, c, d in shown]
    return ", ".join(map(":".join, ends))


def alignment_words(answer: ActivationsPatched) -> str:
    """A sentence on the alignment, and on the effect that positions alone may have; empty if each token is aligned
    with the one at its own position by default."""
    if not answer.shift and not answer.aligned:
        return ""
    faced = facing_words([(each.position, partner_of(answer, each)) for each in answer.columns])
    how = "as you said" if answer.aligned else "by common blocks, replaced tokens from their end"
    alone = (
        ""
        if answer.floor is None
        else f" Their places alone move the difference by up to {answer.floor:.2f}."
    )
    return f"Aligned {how}: {faced}.{alone}"


def partner_of(answer: ActivationsPatched, column: PatchColumn) -> int:
    """The position in the source that a column's token is aligned with."""
    if column.source_position is not None:
        return column.source_position
    return column.position + (answer.shift if column.position >= answer.first else 0)


def faced_with(facing: Sequence[tuple[int, int]], place: int, partner: int | None) -> Facing:
    """An alignment with a new partner for a position; pairs that would cross it are dropped.

    Args:
        facing: The alignment so far.
        place: Position in the path.
        partner: Position in the source; None to leave the token unaligned.
    """
    others = [pair for pair in facing if pair[0] != place]
    if partner is None:
        return tuple(others)
    kept = [pair for pair in others if (pair[0] < place) == (pair[1] < partner) and pair[1] != partner]
    return tuple(sorted([*kept, (place, partner)]))

"""Many draws: the frequency of each first token beside its stated probability, and the tree of continuations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from rich.cells import cell_len

from engine.protocol import DrawnToken, DrawsCounted
from inspector.blocks.blocks import GAP, Bar, Block, Column, Table, TableRow, number, sentence
from inspector.blocks.page import elements
from inspector.display import token_label, truncate, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import count, counted, percent
from inspector.state.batch import Batches, DrawnNode

LABEL = 16
"""Maximum cells of a token."""
DEEPEST = 12
"""Maximum levels of the tree."""
ENOUGH = 5
"""Expected draws from which a frequency is meaningful, as in the chi-square test."""
LISTED = 24
"""Maximum number of tokens in an export, the most frequent first."""
COLUMNS = (
    Column("token"), number("expected"), number("observed"), Column("95 % interval"), number("count", 2),
    Column(cells=(3, 20), priority=1),
)  # fmt: skip


def frequencies(drawn: DrawsCounted, most: int | None = None) -> Iterator[Block]:
    """The first tokens, the most frequent first, and the chi-square test.

    Args:
        drawn: The count.
        most: Maximum number of tokens with a row; the rest count as others. None for all that fit.
    """
    listed = drawn.outcomes[:most]

    def others(seen: Collection[int]) -> TableRow | None:
        left = [
            each for place, each in enumerate(drawn.outcomes) if place not in seen or place >= len(listed)
        ]
        came = drawn.others + sum(each.count for each in left)
        stated = drawn.others_prob + sum(each.prob for each in left)
        if not came and not stated > 0:
            return None
        return TableRow(("others", percent(stated), percent(came / drawn.draws), "", count(came)), "muted")

    yield Table(COLUMNS, [_row(each, drawn.draws) for each in listed], rest=others, least=1)
    yield GAP
    yield sentence(f"{verdict(drawn)}.")
    if drawn.tossed:
        yield sentence("XTC tosses a coin for each draw: expected is the mean of both outcomes.", priority=2)


def _row(each: DrawnToken, draws: int) -> TableRow:
    share, label = each.count / draws, truncate(token_label(each.text), LABEL)
    # of rarer tokens, only those that came up are listed: their frequency is always above the stated probability
    outlying = each.prob * draws >= ENOUGH and not each.low <= each.prob <= each.high
    band = f"{percent(each.low)} to {percent(each.high)}{' !' if outlying else ''}"
    return TableRow((label, percent(each.prob), percent(share), band, count(each.count), Bar(share)))


def verdict(drawn: DrawsCounted) -> str:
    """The chi-square test in a sentence."""
    if not drawn.degrees:
        few = "fewer than two tokens are expected five times or more, so there is nothing to test"
        return f"{drawn.draws:,} draws: {few}"
    freedom = f"{counted(drawn.degrees, 'degree')} of freedom"
    figures = f"chi-square {drawn.chi_square:.2f} at {freedom}, p = {drawn.p_value:.3f}"
    off = drawn.p_value < 0.01
    fits = "further off than 99 of 100 such counts" if off else "consistent with the sampler"
    return f"{drawn.draws:,} draws: {figures}: {fits}"


def tree_lines(
    nodes: Sequence[DrawnNode], width: int = 100, indent: str = "", depth: int = 0
) -> Iterator[str]:
    """The tree of continuations: a line for each token, with the number of draws that took it."""
    for place, node in enumerate(nodes):
        last = place == len(nodes) - 1
        head = f"{indent}{'└' if last else '├'} {node.count:>3} "
        yield head + truncate(visible(node.text), max(8, width - cell_len(head)))
        if depth < DEEPEST:
            yield from tree_lines(node.children, width, indent + ("  " if last else "│ "), depth + 1)


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    if (drawn := of.timeline.of(Batches).drawn) is not None:
        make = partial(elements, [*frequencies(drawn, LISTED)])
        yield Exhibit("odds", f"What {count(drawn.draws)} draws came to", make, drawn.node)


ODDS_PART = ExportPart("odds", _exhibits)

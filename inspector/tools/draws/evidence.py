"""Many draws in words and characters, on the screen, in a terminal and with an export: frequencies beside stated
probabilities, and the tree of what came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import DrawnToken, DrawsCounted
from inspector.blocks.elements import hint, row, table
from inspector.display import pad, token_label, truncate, visible
from inspector.main.evidence import Exhibit, Exported, ExportPart
from inspector.scales import count, percent
from inspector.state.batch import Batches, BatchSoFar, DrawnNode, drawn_tree
from inspector.widgets.charts import bar

BAR = 20
LABEL = 16
"""Cells of a token at most."""
FIGURES = 54
"""Cells of the figures, of the space around them and of what marks an outlier."""
SHARES = 38
"""Cells of the shares and of the space before them: how many draws that were is told where there is more room."""
DEEPEST = 12
LISTED = 24
"""Tokens of an export at most, the most frequent first."""
ENOUGH = 5
"""Expected draws from which on a frequency says something, as in the chi-square test."""


TOSSED = "XTC tosses a coin for each draw: what is stated is the mean of both outcomes."


def frequency_lines(drawn: DrawsCounted, width: int = 100, rows: int | None = None) -> list[str]:
    """The table of the first tokens, and the test of all of them.

    Args:
        drawn: The count.
        width: Cells that bars may reach.
        rows: Lines of the table at most, its head and that of the others among them; None for all. Tokens that have no
            line are counted with the others.
    """
    if rows is not None:
        drawn = with_others(drawn, max(1, rows - 2))
    names = [token_label(each.text) for each in drawn.outcomes]
    wide = min(LABEL, max([len("others"), *map(cell_len, names)]), max(len("others"), width - SHARES))
    counts = width >= wide + SHARES + len(f"  {'draws':>6}")
    room = min(BAR, width - wide - FIGURES)
    top = max((max(each.count / drawn.draws, each.prob) for each in drawn.outcomes), default=0.0)
    head = f"{pad('token', wide)}  {'stated':>7}  {'came':>7}  {'95 % of it':<18}"
    lines = [f"{head}  {'draws':>6}" if counts else head]
    for name, each in zip(names, drawn.outcomes, strict=True):
        share = each.count / drawn.draws
        band = f"{percent(each.low)} to {percent(each.high)}"
        drawn_bar = bar(share / top if top else 0.0, room).rstrip() if room > 2 else ""
        outside = " !" if outlying(each, drawn.draws) else ""
        figures = f"{percent(each.prob):>7}  {percent(share):>7}  {band:<18}"
        figures += f"  {each.count:>6}" if counts else ""
        lines.append(f"{pad(name, wide)}  {figures}  {drawn_bar}{outside}")
    if drawn.others_prob > 0 or drawn.others:
        share = drawn.others / drawn.draws
        figures = f"{percent(drawn.others_prob):>7}  {percent(share):>7}"
        figures += f"  {'':<18}  {drawn.others:>6}" if counts else ""
        lines.append(f"{pad('others', wide)}  {figures}")
    return [*lines, verdict(drawn), *([TOSSED] if drawn.tossed else [])]


def with_others(drawn: DrawsCounted, most: int) -> DrawsCounted:
    """A count of which so many tokens are listed at most, the rest among the others."""
    rest = drawn.outcomes[most:]
    return replace(
        drawn,
        outcomes=drawn.outcomes[:most],
        others=drawn.others + sum(each.count for each in rest),
        others_prob=drawn.others_prob + sum(each.prob for each in rest),
    )


def outlying(outcome: DrawnToken, draws: int) -> bool:
    """True if the stated probability lies outside the interval, where five or more draws were expected.

    Of rarer tokens only those that came are seen: their frequency is always above what is stated.
    """
    return outcome.prob * draws >= ENOUGH and not outcome.low <= outcome.prob <= outcome.high


def verdict(drawn: DrawsCounted) -> str:
    """The chi-square test in a sentence."""
    if not drawn.degrees:
        few = "one cell alone has five or more expected, so that nothing can be tested"
        return f"{drawn.draws:,} draws: {few}"
    freedom = f"{drawn.degrees} degree{'s' * (drawn.degrees != 1)} of freedom"
    figures = f"chi-square {drawn.chi_square:.2f} at {freedom}, p {drawn.p_value:.3f}"
    fits = "as the sampler states" if drawn.p_value >= 0.01 else "further off than 99 of 100 such counts"
    return f"{drawn.draws:,} draws: {figures}: {fits}"


def tree_lines(batch: BatchSoFar, width: int = 100) -> list[str]:
    """The tree of what came, a line a token, with how many draws took it."""
    return list(_branches(drawn_tree(batch.lanes), "", width, 0))


def _branches(nodes: Sequence[DrawnNode], indent: str, width: int, depth: int) -> Iterator[str]:
    for place, node in enumerate(nodes):
        last = place == len(nodes) - 1
        head = f"{indent}{'└' if last else '├'} {node.count:>3} "
        yield head + truncate(visible(node.text), max(8, width - cell_len(head)))
        if depth < DEEPEST:
            yield from _branches(node.children, indent + ("  " if last else "│ "), width, depth + 1)


# ---- with an export -----------------------------------------------------------------------------


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    if (drawn := of.timeline.of(Batches).drawn) is not None:
        yield Exhibit("odds", f"What {count(drawn.draws)} draws came to", partial(_table, drawn), drawn.node)


def _table(drawn: DrawsCounted) -> Iterator[Element]:
    shown = with_others(drawn, LISTED)
    rows = [
        row(token_label(each.text), percent(each.prob), percent(each.count / drawn.draws),
            f"{percent(each.low)} to {percent(each.high)}{' !' if outlying(each, drawn.draws) else ''}",
            count(each.count))
        for each in shown.outcomes
    ]  # fmt: skip
    if shown.others or shown.others_prob > 0:
        rows.append(row("others", percent(shown.others_prob), percent(shown.others / drawn.draws), "",
                        count(shown.others), class_="others"))  # fmt: skip
    yield table("", ("token", "stated", "came", "95 % of it", "draws"), rows, class_="figured")
    yield hint(f"{verdict(drawn)}.{f' {TOSSED}' if drawn.tossed else ''}")


ODDS_PART = ExportPart("odds", _exhibits)

"""The trials of a token's position, for an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from xml.etree.ElementTree import Element

from engine.protocol import PositionTried
from inspector.blocks.elements import explained, row, table
from inspector.display import token_label
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import bits, percent
from inspector.state.inside import InsideViews
from inspector.tools.positions.trials import facts_line, likeliest_after, trial_of


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(seen: InsideViews) -> Iterator[Exhibit]:
        tried = sorted(seen.positions.values(), key=lambda each: each.node)
        for node, answers in groupby(tried, key=lambda each: each.node):
            yield Exhibit(
                "positions", "What if the token stood elsewhere", partial(_table, list(answers)), node
            )

    return of_both(of, exhibits)


def _table(tried: Sequence[PositionTried]) -> Iterator[Element]:
    """A row for each change, in the order in which they were tried."""
    rows = []
    for each in tried:
        first = likeliest_after(each)
        said = f"{token_label(first.text)} {percent(first.after)}" if first is not None else ""
        label = f"What if {trial_of(each).label(False)}"
        rows.append(row(label, f"{each.largest_change:.3g}", bits(each.kl_bits), said))
    head = ("", "logit moved", "KL bits", "likeliest")
    yield explained(facts_line(tried[0].use, False), tried[0].facts, table("", head, rows, class_="figured"))


POSITIONS_PART = ExportPart("positions", _exhibits)

"""Many draws as they leave with an export: how often each token came, against what the sampler states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import DrawsCounted
from inspector.display import token_label
from inspector.main.elements import hint, row, table
from inspector.main.evidence import Exhibit, Exported, ExportPart
from inspector.scales import count, percent
from inspector.state.batch import Batches
from inspector.tools.draws.report import outlying, verdict, with_others

LISTED = 24
"""Tokens at most, the most frequent first."""


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
    yield hint(f"{verdict(drawn)}.")


ODDS_PART = ExportPart("odds", _exhibits)

"""The contributions to a token's logit, for an export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import AttributionRead
from inspector.display import quoted, token_label
from inspector.main.elements import bar_around_zero, element, explained, row, table
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import count, signed
from inspector.state.attribution import ContributionRow, head_rows, part_rows
from inspector.state.inside import Answers

MOST = 24
"""Writers that have a bar: the largest, where a model has more."""
STRONGEST = 8
"""Heads that are listed."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        for read in of.timeline.of(Answers).found(AttributionRead, second):
            yield Exhibit("contributions", _heading(read), partial(_bars, read), read.node, read.tokens[0].id)

    return of_both(of, exhibits)


def _heading(read: AttributionRead) -> str:
    """What was taken apart, in words."""
    names = _names(read)
    return f"Why {names[0]} rather than {names[1]}" if len(names) > 1 else f"What made {names[0]}"


def _names(read: AttributionRead) -> list[str]:
    return [quoted(token_label(each.text)) for each in read.tokens]


def _bars(read: AttributionRead) -> Iterator[Element]:
    """A bar for each writer around zero, in the order in which they write, and what they sum to."""
    names = _names(read)
    parts = [part for part in part_rows(read) if math.isfinite(part.value)]
    if not parts:
        return
    kept = sorted(sorted(parts, key=lambda part: -abs(part.value))[:MOST], key=lambda part: part.part)
    others = math.fsum(part.value for part in parts if part not in kept)
    low, high = min(0.0, *(part.value for part in kept)), max(0.0, *(part.value for part in kept))
    rows = [_writer(part, low, high) for part in kept]
    if len(parts) > len(kept):
        rows.append(row(f"{count(len(parts) - len(kept))} others", "", signed(others), class_="others"))
    logit = "the logit before the softcap" if read.softcap else "the logit"
    rows.append(row("sum", "", signed(read.total), class_="taken"))
    unit = f"logits of {names[0]} less those of {names[1]}" if len(names) > 1 else f"logits of {names[0]}"
    says = (
        f"In {unit}; the model's own {logit.removeprefix('the ')} is {signed(read.reached)}. Direct effect alone: "
        "what a part does through later layers is in their bars."
    )
    drawn = table("", ("writer", "", "adds"), rows, class_="figured bars")
    yield explained(says, read.facts, drawn, _heads(read, parts))


def _writer(part: ContributionRow, low: float, high: float) -> Element:
    return row(part.name, bar_around_zero(part.value, low, high), signed(part.value))


def _heads(read: AttributionRead, parts: Sequence[ContributionRow]) -> Element | None:
    """The heads that add or take most."""
    every = (head for part in parts for head in head_rows(read, part) if math.isfinite(head.value))
    found = sorted(every, key=lambda head: -abs(head.value))[:STRONGEST]
    words = ", ".join(f"{head.name} {signed(head.value)}" for head in found)
    return element("p", element("b", "Heads: "), words, class_="heads-said") if words else None


CONTRIBUTIONS_PART = ExportPart("contributions", _exhibits)

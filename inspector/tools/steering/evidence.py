"""The effect of a direction with each strength, for an export."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import Intervention, SteeredStrength, StrengthsSwept
from inspector.blocks.elements import element, explained, row, table
from inspector.display import quoted, token_label, visible
from inspector.main.evidence import Exhibit, Exported, ExportPart
from inspector.scales import bits, percent, signed
from inspector.state.inside import InsideViews, steered_words

_WIDE, _HIGH, _EDGE = 320, 120, 34
"""Of a curve's drawing, in its own unit."""
Three = Callable[[SteeredStrength], tuple[float, float, float]]
"""From a strength to what the direction did, and to both ends of the band."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    places: Counter[int] = Counter()
    for ((node, *_), _), swept in of.timeline.of(InsideViews).strengths.items():
        unit = Intervention("direction", swept.layer, None, 1.0, swept.direction)
        heading = f"Steered by {visible(unit.label)}, {steered_words(swept.scope, swept.begin)}"
        yield Exhibit(f"steered-{places[node]}", heading, partial(_swept, swept), node)
        places[node] += 1


def _swept(swept: StrengthsSwept) -> Iterator[Element]:
    """Both curves on their bands, and the numbers."""
    shown = [each for each in swept.strengths if math.isfinite(each.kl_bits) and math.isfinite(each.change)]
    if len(shown) < 2:
        return
    token, other = (quoted(token_label(text)) for text in (swept.text, swept.other_text))
    rows = [
        row(f"x{each.strength:g}", bits(each.kl_bits), f"{bits(each.kl_low)} to {bits(each.kl_high)}",
            signed(each.change), f"{signed(each.change_low)} to {signed(each.change_high)}",
            f"{token_label(each.top_text)} {percent(each.top_prob)}")
        for each in shown
    ]  # fmt: skip
    head = ("strength", "KL bits", "random", "logits", "random", "then leads")
    says = (
        f"Logits: what is added to the logit of {token} less that of {other}, {signed(swept.difference)} unsteered. "
        f"Random: the 5th to the 95th percentile of {swept.random} random directions of the same length, "
        f"{swept.share:.2f} of the stream's; {swept.steered} of the path's positions are steered."
    )
    curves = element(
        "div",
        _curve(swept, shown, "KL in bits", lambda each: (each.kl_bits, each.kl_low, each.kl_high)),
        _curve(
            swept,
            shown,
            "change of the logits",
            lambda each: (each.change, each.change_low, each.change_high),
        ),
    )
    yield explained(says, swept.facts, curves, table("", head, rows, class_="figured"))


def _curve(swept: StrengthsSwept, shown: list[SteeredStrength], name: str, three: Three) -> Element:
    """A curve over the strengths, one step each, on the band of the random directions."""
    values = [value for each in shown for value in three(each) if math.isfinite(value)]
    low, high = min(0.0, *values), max(0.0, *values)
    span = high - low or 1.0

    def point(place: int, value: float) -> str:
        x = _EDGE + place * (_WIDE - _EDGE - 6) / (len(shown) - 1)
        at = value if math.isfinite(value) else high
        return f"{x:.1f},{6 + (high - at) / span * (_HIGH - 24):.1f}"

    found = [three(each) for each in shown]
    upper = [point(place, each[2]) for place, each in enumerate(found)]
    lower = [point(place, each[1]) for place, each in enumerate(found)]
    line = [point(place, each[0]) for place, each in enumerate(found)]
    zero = float(point(0, 0.0).partition(",")[2])
    texts = [
        element(
            "text", f"x{each.strength:g}", x=line[place].partition(",")[0], y=_HIGH - 4, text_anchor="middle"
        )
        for place, each in enumerate(shown)
    ]
    return element(
        "svg",
        element("title", f"{name} as a function of the strength"),
        element("polygon", points=" ".join([*upper, *reversed(lower)]), fill="currentColor", fill_opacity="0.18"),
        element("line", x1=_EDGE, x2=_WIDE - 6, y1=zero, y2=zero, stroke="currentColor", stroke_opacity="0.4"),
        element("polyline", points=" ".join(line), fill="none", stroke="currentColor", stroke_width="1.6"),
        element("text", f"{high:.1f}", x=_EDGE - 4, y=12, text_anchor="end"),
        element("text", f"{low:.1f}", x=_EDGE - 4, y=_HIGH - 18, text_anchor="end"),
        *texts,
        viewBox=f"0 0 {_WIDE} {_HIGH}", width=_WIDE, role="img", font_size=8, fill="currentColor",
        aria_label=f"{name}: the line is the direction's, the band that of {swept.random} random ones",
    )  # fmt: skip


STEERED_PART = ExportPart("steering", _exhibits)

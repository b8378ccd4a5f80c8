"""A race as it leaves with an export: each step's time with the KV cache and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import RaceStep
from inspector.blocks.elements import element, hint, row, table
from inspector.main.evidence import Exhibit, Exported, ExportPart
from inspector.scales import count, milliseconds, size
from inspector.state.measured import Measured


def _both(steps: Sequence[RaceStep]) -> Iterator[Element]:
    """Both lanes of a race: each step's time as a line, and the first and the last steps."""
    if not steps:
        return
    most = max(max(each.cached_ms, each.uncached_ms) for each in steps) or 1.0
    lanes = {"uncached": [each.uncached_ms for each in steps], "cached": [each.cached_ms for each in steps]}
    across = max(1, len(steps) - 1)
    lines = (
        element("path", class_=name, d="M" + "L".join(
            f"{100 * place / across:.2f} {49 - 48 * value / most:.2f}" for place, value in enumerate(values)))
        for name, values in lanes.items()
    )  # fmt: skip
    yield element("svg", *lines, viewBox="0 0 100 50", preserveAspectRatio="none", class_="race",
                  aria_hidden="true")  # fmt: skip
    yield hint("Time of a step as the text grows: dashed without the cache, solid with it.")
    shown = [steps[place] for place in sorted({0, len(steps) // 2, len(steps) - 1})]
    rows = [
        row(count(each.tokens), milliseconds(each.cached_ms), milliseconds(each.uncached_ms), size(each.kv_bytes))
        for each in shown
    ]  # fmt: skip
    yield table("Both lanes", ("tokens", "with cache", "without", "KV"), rows, class_="plain")
    last, equal = steps[-1], all(each.equal for each in steps)
    same = "The same tokens in both lanes" if equal else "The lanes took other tokens"
    yield hint(f"All steps: {milliseconds(last.cached_total_ms)} with the cache, "
               f"{milliseconds(last.uncached_total_ms)} without. {same}.")  # fmt: skip


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    race = of.timeline.of(Measured).race
    if race is not None and race.steps:
        yield Exhibit("race", "With the KV cache and without", partial(_both, race.steps))


RACE_PART = ExportPart(
    "race",
    _exhibits,
    beat=lambda timeline, since, beat: _both([each for each in since if isinstance(each, RaceStep)]),
)

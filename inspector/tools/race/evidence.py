"""A race as it leaves with an export: each step's time with the KV cache and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import RaceStep, Record
from inspector.blocks.elements import element, hint, row, table
from inspector.lessons.lesson import Beat
from inspector.main.evidence import Exhibit, Exported, ExportPart
from inspector.scales import count, milliseconds, size
from inspector.state.measured import Measured
from inspector.state.timeline import Timeline


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """Both lanes of the race that was run in a beat."""
    return _both([each for each in since if isinstance(each, RaceStep)])


def _both(steps: Sequence[RaceStep]) -> Iterator[Element]:
    """Both lanes of a race: each step's time as a line, and the first and the last steps."""
    if not steps:
        return
    most = max(max(each.cached_ms, each.uncached_ms) for each in steps) or 1.0
    lanes = {"uncached": [each.uncached_ms for each in steps], "cached": [each.cached_ms for each in steps]}
    lines = (element("path", class_=name, d=_line(values, most)) for name, values in lanes.items())
    yield element("svg", *lines, viewBox="0 0 100 50", preserveAspectRatio="none", class_="race",
                  aria_hidden="true")  # fmt: skip
    yield hint("Time of a step as the text grows: dashed without the cache, solid with it.")
    rows = [_lanes(steps[place]) for place in sorted({0, len(steps) // 2, len(steps) - 1})]
    yield table("Both lanes", ("tokens", "with cache", "without", "KV"), rows, class_="plain")
    last, equal = steps[-1], all(each.equal for each in steps)
    same = "The same tokens in both lanes" if equal else "The lanes took other tokens"
    yield hint(f"All steps: {milliseconds(last.cached_total_ms)} with the cache, "
               f"{milliseconds(last.uncached_total_ms)} without. {same}.")  # fmt: skip


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    race = of.timeline.of(Measured).race
    if race is not None and race.steps:
        yield Exhibit("race", "With the KV cache and without", partial(_both, race.steps))


def _lanes(step: RaceStep) -> Element:
    return row(
        count(step.tokens), milliseconds(step.cached_ms), milliseconds(step.uncached_ms), size(step.kv_bytes)
    )


def _line(values: Sequence[float], most: float) -> str:
    across = max(1, len(values) - 1)
    points = (
        f"{100 * place / across:.2f} {49 - 48 * value / most:.2f}" for place, value in enumerate(values)
    )
    return "M" + "L".join(points)


RACE_PART = ExportPart("race", _exhibits, beat=_beat)

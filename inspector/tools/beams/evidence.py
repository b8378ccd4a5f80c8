"""A beam search on the page of a lesson."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from engine.protocol import BeamEnded, Hypothesis, Record
from inspector.blocks.elements import element, row, table
from inspector.display import visible
from inspector.documents.parts import ExportPart
from inspector.lessons.lesson import Beat
from inspector.scales import count
from inspector.state.timeline import Timeline


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The ranking of a beam search, and greedy decoding."""
    ended = next((each for each in reversed(since) if isinstance(each, BeamEnded)), None)
    if ended is not None:
        ranked = [_beam(str(place), each) for place, each in enumerate(ended.ranking, 1)]
        rows = [*ranked, _beam("greedy", ended.greedy)]
        yield table("Beam search", ("rank", "text", "logprob", "score", "tokens"), rows, class_="plain")


def _beam(place: str, found: Hypothesis) -> Element:
    said = element("span", visible(found.text + found.end), class_="said")
    return row(place, said, f"{found.logprob:.3f}", f"{found.score:.3f}", count(found.length))


BEAMS_PART = ExportPart("beams", beat=_beat)

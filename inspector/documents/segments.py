"""Segments in words, for the screen and for an export: each with its tokens, its time and its mean surprisal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from engine.protocol import LeftOut, ToolCallChecked
from inspector.blocks.blocks import Block, Column, Table, TableRow, sentences
from inspector.blocks.page import elements
from inspector.display import quoted, truncate, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import bits, count, milliseconds
from inspector.state.segments import WRONG, Figures, PathRun, PathSegments, Segments, left_out_words
from inspector.state.timeline import Timeline

_READ = 200
"""Tokens of a segment that its first words are read from."""


def first_words(path: PathSegments, run: PathRun, cells: int) -> str:
    """The beginning of a segment, quoted; printable."""
    items = path.items[run.begin : min(run.end, run.begin + _READ)]
    text = " ".join("".join(item.text for item in items).split())
    return quoted(truncate(visible(text), max(1, cells - 2)))


def figure_texts(figures: Figures) -> tuple[str, str, str]:
    """The number of tokens, the time of their steps and their mean surprisal in bits; empty if it isn't known."""
    return (
        count(figures.tokens),
        milliseconds(figures.ms) if figures.steps else "",
        "" if figures.bits is None else bits(figures.bits),
    )


def call_words(checked: ToolCallChecked | None, path: PathSegments) -> str:
    """The result of the check of a tool call, in a phrase; empty if there is none."""
    if checked is None or not checked.parser:
        return ""
    if not checked.error:
        return f"calls {visible(', '.join(checked.names))}" if checked.names else "parses"
    slot = next((slot for slot, item in enumerate(path.items) if item.node == checked.wrong), None)
    where = f" at token {slot + 1:,}" if slot is not None else ""
    return f"{WRONG} can't be parsed{where}: {visible(checked.error)}"


def left_out(timeline: Timeline) -> Sequence[LeftOut]:
    """The parts of the path's last conversation that its prompt lacks."""
    opened = timeline.prompts.opened
    return opened.segments.left_out if opened is not None else ()


def checks(segments: Segments, path: PathSegments) -> dict[int, ToolCallChecked]:
    """The results of the checks of a path's tool calls, by the slot at which each begins."""
    found = ((run.begin, segments.checked.get(node)) for run, node in segments.calls(path))
    return {begin: checked for begin, checked in found if checked is not None}


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    segments = of.timeline.of(Segments)
    path = segments.read(of.items)
    path.over = of.timeline.tip in of.timeline.finished
    if path.several:
        found = _document(path, checks(segments, path), left_out(of.timeline))
        yield Exhibit("segments", "Segments", partial(elements, [*found], tables="plain"))


def _document(
    path: PathSegments, checked: Mapping[int, ToolCallChecked], left: Sequence[LeftOut]
) -> Iterator[Block]:
    rows = []
    for run in path.told:
        words = call_words(checked.get(run.begin), path) or first_words(path, run, 60)
        rows.append(TableRow((run.kind or "", *figure_texts(path.figures([run])), words)))
    yield Table((*map(Column, ("segment", "tokens", "time", "bits/token", "text")),), rows)
    yield from sentences(f"{left_out_words(each)}." for each in left)


SEGMENTS_PART = ExportPart("segments", _exhibits, looked=False)

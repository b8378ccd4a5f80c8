"""The parts that tools contribute to an export: each lists its exhibits and makes their elements on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Record
from inspector.blocks.blocks import Block
from inspector.blocks.page import elements
from inspector.display import visible
from inspector.state.inside import Answers
from inspector.state.second_model import SecondModelSoFar
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from inspector.lessons.lesson import Beat


class Exported(Struct, frozen=True):
    """A session that is exported, as the parts see it."""

    timeline: Timeline
    items: Sequence[Item]
    """The path, prompt first."""
    places: Mapping[int, int]
    """The row of each exported node."""


class Exhibit(Struct, frozen=True):
    """One result that an export can show."""

    kind: str
    """Exhibits of one kind fold and unfold together, at all tokens."""
    heading: str
    """Printable."""
    make: Callable[[], Iterable[Element]]
    """Makes the elements under the heading, with all outside text made printable; empty if nothing can be drawn."""
    node: int | None = None
    """The token whose forward pass it is about; None for the whole session."""
    token: int | None = None
    """Id of the next token that it explains; None if it is the same for all next tokens."""


class ExportPart(Struct, frozen=True):
    """The contribution of one tool to an export."""

    name: str
    """The word next to its tick; in a lesson, the panel that a card shows."""
    exhibits: Callable[[Exported], Iterable[Exhibit]] | None = None
    """Gives all exhibits that there are now."""
    data: Callable[[Exported], Mapping[str, Any]] = lambda of: {}
    """Gives data for the scripts of the web page, by the names that they use."""
    beat: Callable[[Timeline, Sequence[Record], Beat], Iterable[Element]] | None = None
    """Makes tables of the results since a card of a lesson began."""
    looked: bool = True
    """True if it is about views that the user opened; False if it is about the session itself."""


def exhibits_of(parts: Iterable[ExportPart], of: Exported) -> Iterator[Exhibit]:
    """The exhibits of some parts, about exported tokens or the whole session."""
    every = (each for part in parts if part.exhibits is not None for each in part.exhibits(of))
    return (each for each in every if each.node is None or each.node in of.places)


def of_both(of: Exported, exhibits: Callable[[bool], Iterable[Exhibit]]) -> Iterator[Exhibit]:
    """The exhibits of the session's model, then of the second one, which is named.

    Args:
        of: The session.
        exhibits: Called with whether the exhibits are of the second model.
    """
    yield from exhibits(False)
    opened = of.timeline.of(SecondModelSoFar).described
    title = f": {visible(opened.title)}" if opened is not None else ""
    for each in exhibits(True):
        yield replace(each, kind=f"{each.kind}-second", heading=f"{each.heading} (second model, B{title})")


def looked_at(
    kind: type[Any],
    name: str | Callable[[Any, int], str],
    heading: Callable[[Any], str],
    document: Callable[[Any, Sequence[Item]], Iterable[Block]],
    explains: bool = False,
    tables: str = "figured",
) -> Callable[[Exported], Iterable[Exhibit]]:
    """The exhibits of one kind of view, of both models.

    Args:
        kind: Class of the records.
        name: The exhibit's kind, or a function from a record and the number of earlier records at its token.
        heading: Makes the printable heading from a record.
        document: Makes the blocks from a record and the path up to its node.
        explains: Whether a record explains the first of its tokens.
        tables: The class of its tables.
    """

    def made(read: Any, timeline: Timeline) -> Iterator[Element]:
        return elements(document(read, timeline.tree.path(read.node)), read.facts, tables=tables)

    def exhibits(timeline: Timeline, second: bool) -> Iterator[Exhibit]:
        before: Counter[int] = Counter()
        for read in timeline.of(Answers).found(kind, second):
            token = read.tokens[0].id if explains else None
            own = name if isinstance(name, str) else name(read, before[read.node])
            make = partial(made, read, timeline)
            yield Exhibit(own, heading(read), make, read.node, token)
            before[read.node] += 1

    return lambda of: of_both(of, partial(exhibits, of.timeline))

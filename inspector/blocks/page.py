"""A document as elements of a page, from which Markdown is also made, and as HTML for a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element, tostring

from engine.protocol import Candidate, CaptureFacts
from inspector.blocks.blocks import (
    Bar,
    Block,
    Cell,
    Dot,
    Facts,
    HeatText,
    Sentence,
    Table,
    TableRow,
    Text,
    flat,
    in_words,
    plain,
    words,
)
from inspector.display import token_label, visible
from inspector.scales import percent, signed, step_of
from inspector.state.inside import checks_words

WIDE, HIGH, EDGE = 320, 120, 34
"""The size of a curve's drawing, and the room for its numbers, in units of the SVG."""
INDENT = "\N{NO-BREAK SPACE}" * 2
"""Blanks that a browser keeps."""
CLASSES = {"strong": "taken", "muted": "others"}
"""The class of a row by its tone."""
_GROUNDS = "".join(
    f".{side}-{step} {{background: rgba({rgb}, {step / 6:.2f})}} "
    for side, rgb in (("plus", "70,135,215"), ("minus", "214,120,24"))
    for step in range(1, 6)
)
STYLE = f"<style>{_GROUNDS} svg .plus {{fill: #4687d7}} svg .minus {{fill: #d67818}} .bars svg {{width: 12em}}</style>"
Child = Element | str | None


# ---- elements, in which a text is text, whatever it contains --------------------------------------


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """An element of HTML or SVG.

    Args:
        tag: Its name.
        children: Elements, and texts, which are printable; None is left out.
        attributes: By name, with `_` for `-` and after a keyword of Python; None and False are left out.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None and value is not False:
            made.set(name.rstrip("_").replace("_", "-"), str(value))
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child is not None and len(made):
            made[-1].tail = (made[-1].tail or "") + child
        elif child is not None:
            made.text = (made.text or "") + child
    return made


def written(made: Element) -> str:
    """An element as HTML."""
    return tostring(made, encoding="unicode", method="html")


def table(caption: str, head: Sequence[str], rows: Iterable[Element], **attributes: object) -> Element:
    """A table with a heading for each column, and a caption unless that is empty."""
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *(heading(name) for name in head))),
        element("tbody", *rows),
        **attributes,
    )


def heading(name: str) -> Element:
    """The heading of a column; a plain cell if it has no name: a screen reader would read out an empty heading."""
    return element("th", name, scope="col") if name else element("td")


def row(*cells: Child, **attributes: object) -> Element:
    return element("tr", *(element("td", cell) for cell in cells), **attributes)


def bar_around_zero(value: float, low: float, high: float) -> Element:
    """A bar from zero to a value.

    Args:
        value: A value between `low` and `high`.
        low: The left end, 0 at most.
        high: The right end, 0 at least.
    """
    span = high - low or 1.0
    begin, length = (min(0.0, value) - low) / span * 100, abs(value) / span * 100
    sign = "plus" if value >= 0 else "minus"
    return element(
        "svg",
        element("rect", class_=sign, x=f"{begin:.2f}", y=1, width=f"{length:.2f}", height=8),
        element("rect", class_="axis", x=f"{-low / span * 100 - 0.2:.2f}", y=0, width=0.4, height=10),
        viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true",
    )  # fmt: skip


def hint(*texts: str) -> Element:
    """A remark of sentences in small type; each gets a full stop if it has no punctuation at its end."""
    ended = (text if text.endswith((".", ":", "?", "!")) else f"{text}." for text in texts if text)
    return element("p", " ".join(ended), class_="hint")


def likeliest(candidates: Sequence[Candidate]) -> str:
    """The first of some candidates with its probability; empty for none."""
    return "".join(f"{token_label(each.text, each.raw)} {percent(each.prob)}" for each in candidates[:1])


# ---- numbers: as few digits as are shown ---------------------------------------------------------


def millionths(share: float | None) -> float | int | None:
    """A probability in millionths, with one digit more than is shown in percent; two digits if it is tiny."""
    if share is None or not math.isfinite(share):
        return None
    digits = 6 if share >= 0.1 else 4 if share >= 0.01 else 3 if share >= 1e-4 else 2
    return number(float(f"{share * 1e6:.{digits}g}"), 6)


def number(value: float | None, digits: int) -> float | int | None:
    """A number rounded to `digits` digits after the point, as short as possible; None for NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    short = round(value, digits)
    return int(short) if short == int(short) else short


# ---- documents ----------------------------------------------------------------------------------


def elements(
    blocks: Iterable[Block], facts: CaptureFacts | None = None, *first: Element, tables: str = "figured"
) -> Iterator[Element]:
    """The tables, curves and colored texts of a document, and below them its sentences and how it was checked.

    Args:
        blocks: The document. Strong sentences stay among the tables; with other sentences alone, it has no elements.
        facts: The checks; None for none.
        first: Elements above the document.
        tables: The class of its tables; "plain" for tables of texts.
    """
    shown = [*first]
    says = []
    for block in flat(blocks):
        match block:
            case Sentence(tone="strong"):
                shown.append(element("p", plain(block.forms[0])))
            case Sentence():
                says.append(plain(block.forms[0]))
            case Facts():
                says += [f"{name}: {visible(text)}" if name else visible(text) for name, text in block.facts]
            case HeatText(pieces=(_, *_)):
                shown.append(element("p", *map(_colored, block.pieces), class_="gradients"))
            case Table(rows=(_, *_)):
                shown += [*_curves(block), page_table(block, tables)]
    if shown:
        checked = f"Verified: {checks_words(facts)}." if facts is not None and facts.checks else ""
        note = visible(facts.note) if facts is not None else ""
        yield element("div", *shown, hint(*says, checked, note))


def notebook(blocks: Iterable[Block]) -> str:
    """A document as HTML with its own styles."""
    return STYLE + "".join(map(written, elements(blocks)))


def _colored(piece: tuple[str, float, str]) -> Element:
    """A text on its background: `plus` for what raises, `minus` for what lowers, and how strongly."""
    text, share, about = piece
    step = step_of(abs(share))
    background = f"{'plus' if share >= 0 else 'minus'}-{step}" if step else None
    return element("span", text, title=f"{about}, {signed(100 * share, 1)} %", class_=background)


def page_table(of: Table, kind: str, caption: str = "") -> Element:
    """A table of a document, its drawings as SVG.

    Args:
        of: The table.
        kind: Its class.
        caption: Its caption; empty for none.
    """
    of = in_words(of)
    bars = [cell.value for line in of.rows for cell in line.cells if isinstance(cell, Bar)]
    finite = [*filter(math.isfinite, bars), 0.0, 0.0]
    low, high = min(finite), max(finite)

    def cell(of: Cell) -> Element | str:
        if isinstance(of, Bar) and math.isfinite(of.value):
            return bar_around_zero(of.value, low, high)
        if isinstance(of, Text) and of.tone == "strong":
            return element("b", of.text)
        return words(of).replace("  ", INDENT)

    def made(line: TableRow) -> Element:
        return row(*map(cell, line.cells), class_=CLASSES.get(line.tone))

    rows = [made(line) for line in (*of.rows, *([of.foot] if of.foot is not None else []))]
    return table(caption, [each.head for each in of.columns], rows, class_=f"{kind} bars" if bars else kind)


# ---- curves -------------------------------------------------------------------------------------


def _curves(of: Table) -> Iterator[Element]:
    """A curve for each column of dots on bands, over the texts of the first column."""
    for place, column in enumerate(of.columns if of.curve else ()):
        dots = [
            (words(line.cells[0]), cell)
            for line in of.rows
            if isinstance(cell := line.cells[place], Dot) and math.isfinite(cell.value)
        ]
        if len(dots) > 1:
            name = of.columns[place - 1].head
            band = f"the line is its own, the band that of {column.head} ones"
            yield _curve(f"{name} as a function of {of.curve}", f"{name}: {band}", dots)


def _curve(name: str, label: str, dots: Sequence[tuple[str, Dot]]) -> Element:
    values = [value for _, dot in dots for value in (dot.value, dot.low, dot.high) if math.isfinite(value)]
    low, high = min(0.0, *values), max(0.0, *values)
    span = high - low or 1.0

    def height(value: float) -> str:
        return f"{6 + (high - (value if math.isfinite(value) else high)) / span * (HIGH - 24):.1f}"

    across = [f"{EDGE + place * (WIDE - EDGE - 6) / (len(dots) - 1):.1f}" for place in range(len(dots))]
    points = [[f"{x},{height(value)}" for value in (dot.high, dot.value, dot.low)]
              for x, (_, dot) in zip(across, dots, strict=True)]  # fmt: skip
    (upper, line, lower), zero = zip(*points, strict=True), height(0.0)
    texts = (element("text", text, x=x, y=HIGH - 4, text_anchor="middle")
             for x, (text, _) in zip(across, dots, strict=True))  # fmt: skip
    return element(
        "svg",
        element("title", name),
        element("polygon", points=" ".join([*upper, *reversed(lower)]), fill="currentColor", fill_opacity="0.18"),
        element("line", x1=EDGE, x2=WIDE - 6, y1=zero, y2=zero, stroke="currentColor", stroke_opacity="0.4"),
        element("polyline", points=" ".join(line), fill="none", stroke="currentColor", stroke_width="1.6"),
        element("text", f"{high:.1f}", x=EDGE - 4, y=12, text_anchor="end"),
        element("text", f"{low:.1f}", x=EDGE - 4, y=HIGH - 18, text_anchor="end"),
        *texts,
        viewBox=f"0 0 {WIDE} {HIGH}", width=WIDE, role="img", font_size=8, fill="currentColor", aria_label=label,
    )  # fmt: skip

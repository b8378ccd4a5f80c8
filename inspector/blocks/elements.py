"""Elements of pages, in which a text is text, whatever it holds, and numbers as short as they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from engine.protocol import Candidate
from inspector.display import token_label
from inspector.scales import percent

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """An element of HTML or SVG.

    Args:
        tag: Its name.
        children: Elements, and texts, which are printable; None is left out.
        attributes: By name, with `_` for `-` and after a word of Python's; None and False are left out.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None and value is not False:
            made.set(name.rstrip("_").replace("_", "-"), str(value))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + child
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + child
    return made


def written(made: Element) -> str:
    """An element as HTML."""
    return tostring(made, encoding="unicode", method="html")


def table(caption: str, head: Sequence[str], rows: Iterable[Element], **attributes: object) -> Element:
    """A table with a heading for each column; without a caption where that is empty."""
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *(heading(name) for name in head))),
        element("tbody", *rows),
        **attributes,
    )


def heading(name: str) -> Element:
    """The heading of a column; a plain cell where it has no name, since a screen reader would read out an empty one."""
    return element("th", name, scope="col") if name else element("td")


def row(*cells: Child, **attributes: object) -> Element:
    """A row of a table."""
    return element("tr", *(element("td", cell) for cell in cells), **attributes)


def bar_around_zero(value: float, low: float, high: float) -> Element:
    """A bar from zero to a value.

    Args:
        value: Between the next two.
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
    """A remark in small type."""
    return element("p", " ".join(filter(None, texts)), class_="hint")


def likeliest(candidates: Sequence[Candidate]) -> str:
    """The first of some candidates with its probability; empty for none."""
    return "".join(f"{token_label(each.text, each.raw)} {percent(each.prob)}" for each in candidates[:1])


# ---- numbers: as few digits as are shown ---------------------------------------------------------


def millionths(share: float | None) -> float | int | None:
    """As many digits of a probability as are shown of it in percent, and one more; two where it is next to nothing."""
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

"""Elements of the page: a text in them is text, whatever it holds."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

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


def table(caption: str, head: tuple[str, ...], rows: list[Element], **attributes: object) -> Element:
    """A table with a heading for each column."""
    columns = (element("th", name, scope="col") for name in head)
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *columns)),
        element("tbody", *rows),
        **attributes,
    )


def row(*cells: Child, **attributes: object) -> Element:
    """A row of a table."""
    return element("tr", *(element("td", cell) for cell in cells), **attributes)

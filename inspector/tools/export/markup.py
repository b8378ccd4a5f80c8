"""Elements of pages, in which a text is text, whatever it holds; a whole page with its script and style; numbers."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from xml.etree.ElementTree import Element, tostring

from inspector.scales import STEPS, Rgb, heat

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
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *rows),
        **attributes,
    )


def row(*cells: Child, **attributes: object) -> Element:
    """A row of a table."""
    return element("tr", *(element("td", cell) for cell in cells), **attributes)


def hint(*texts: str) -> Element:
    """A remark in small type."""
    return element("p", " ".join(filter(None, texts)), class_="hint")


# ---- a whole page ----------------------------------------------------------------------------


def filled(template: str, styles: Sequence[str], scripts: Sequence[str], slots: Mapping[str, str]) -> str:
    """A page with its styles and scripts in it, and a content security policy that allows nothing else.

    Args:
        template: Name of its file.
        styles: Names of its styles; the colours of the screen, for dark and for light, are put before them.
        scripts: Names of its scripts, which run as one, in this order.
        slots: What is put in, by name; it is escaped.
    """
    dark, light = _colours(dark=True), _colours(dark=False)
    rules = "\n".join(map(_read, styles))
    style = f"\n:root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n{rules}"
    script = '\n"use strict";\n' + "\n".join(map(_read, scripts))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    every = {**slots, "style": style, "script": script, "policy": escape(policy)}
    # one pass, so that what is put in is never looked through for slots itself
    return re.sub(r"\{\{(\w+)\}\}", lambda match: every[match[1]], _read(template))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return resources.files("inspector.tools.export").joinpath("page", name).read_text(encoding="utf-8")


def _colours(dark: bool) -> str:
    inks = ((step, *map(_hex, heat(step, dark))) for step in range(1, STEPS + 1))
    return "".join(f"--ink{step}:{ink};--ground{step}:{ground};" for step, ink, ground in inks)


def _hex(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


# ---- numbers of a page: as few digits as it shows --------------------------------------------


def millionths(share: float | None) -> float | int | None:
    """As many digits of a probability as are shown of it in percent, and one more; two where it is next to nothing."""
    if share is None or not math.isfinite(share):
        return None
    digits = 6 if share >= 0.1 else 4 if share >= 0.01 else 3 if share >= 1e-4 else 2
    return number(float(f"{share * 1e6:.{digits}g}"), 6)


def number(value: float | None, digits: int) -> float | int | None:
    """A number rounded to `digits` digits after the point, as short as it goes; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    short = round(value, digits)
    return int(short) if short == int(short) else short

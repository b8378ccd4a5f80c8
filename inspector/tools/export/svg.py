"""A picture of the screen as SVG, freed of what a browser would fetch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from inspector.state.conditions import Made

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = "ui-monospace, SF Mono, Cascadia Mono, DejaVu Sans Mono, Menlo, Consolas, monospace"


def alone(svg: str, made: Sequence[Made] = ()) -> str:
    """A picture that needs nothing else: fonts of the reader's machine in the place of those on the net.

    Args:
        svg: As Textual exports it.
        made: What the text in it was made with: its description, which browsers and screen readers offer.
    """
    said = "".join(f"{escape(each.sentence)}. " for each in made)
    if said:
        svg = re.sub(r"<svg\b[^>]*>", lambda begin: f"{begin[0]}<desc>{said.rstrip()}</desc>", svg, count=1)
    return re.sub(r"font-family:\s*Fira Code, monospace", f"font-family: {_FAMILY}", _FONT_FACE.sub("", svg))

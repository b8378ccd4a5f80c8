"""A picture of the screen as SVG, freed of what a browser would fetch."""

from __future__ import annotations

import re

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = "ui-monospace, SF Mono, Cascadia Mono, DejaVu Sans Mono, Menlo, Consolas, monospace"


def alone(svg: str) -> str:
    """A picture that needs nothing else: fonts of the reader's machine in the place of those on the net.

    Args:
        svg: As the toolkit exports it.
    """
    return re.sub(r"font-family:\s*Fira Code, monospace", f"font-family: {_FAMILY}", _FONT_FACE.sub("", svg))

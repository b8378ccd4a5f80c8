"""The commands that look at attention heads over a whole path, which runs again from nothing on a cache of its own."""

from __future__ import annotations

from engine.commands.inside import Inside
from engine.frozen import frozen

TRIANGLE_TOKENS = 2048
"""Tokens of a path whose triangle is read, at most: 4 MiB of weights of 16 bits."""


@frozen
class ReadTriangle(Inside):
    """Where one head looks from each token of a path; answered by `Measuring` records and a `TriangleRead`."""

    node: int
    """The path's last token; the path has at most `TRIANGLE_TOKENS`."""
    layer: int
    """From 0."""
    head: int
    """From 0."""


@frozen
class ScoreHeads(Inside):
    """How much each head does what heads are known to do; answered by `Measuring` records and a `HeadsScored`."""

    node: int
    """The path's last token."""

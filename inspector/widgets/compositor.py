"""What spares the toolkit making the lines of widgets that nothing changed of."""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class PartCompositor(Compositor):
    """A compositor that has those lines made which it paints.

    Where parts of a screen changed, the toolkit has all widgets make all lines that the rectangle around those parts
    meets: a row of the candidates and the line of the status made it all panels, three fifths of what the paint took.
    """

    _parts: frozenset[Region] = frozenset()
    """What is painted now; empty for all."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """Make what changed since the last paint; None where nothing did."""
        self._parts = frozenset(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._parts = frozenset()

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """The lines of each widget that some of the paint is of, from the topmost on: its place, the part of that which
        is seen, and the lines of that part.

        Args:
            crop: The rectangle around the paint; None for the whole screen.
        """
        if not self._parts:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = clip.intersection(region)
            if met := [part.intersection(seen) for part in self._parts if part.overlaps(seen)]:
                first, end = min(part.y for part in met), max(part.bottom for part in met)
                lines = Region(seen.x - region.x, first - region.y, seen.width, end - first)
                yield region, Region(seen.x, first, seen.width, end - first), widget.render_lines(lines)

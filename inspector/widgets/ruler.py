"""The tokens that can be drawn, laid end to end, and where on them the draw fell: three lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import Distribution
from inspector.display import token_label

_FILLS = "█▓"
_REST = "░"
_DRAWN, _POINTER = "◆", "▼"
_FRAME = 2
"""Cells of the two ends."""


@frozen
class Share:
    """One token's part of the bar."""

    label: str
    start: float
    end: float
    picked: bool


def shares(distribution: Distribution) -> list[Share]:
    """The shares of the candidates that can be drawn, the largest first; others come after them, unnamed."""
    drawable = sorted(
        (c for c in distribution.candidates if c.sampler_prob > 0), key=lambda c: -c.sampler_prob
    )
    laid, start = [], 0.0
    for candidate in drawable:
        end = start + candidate.sampler_prob
        label = token_label(candidate.text, candidate.raw)
        laid.append(Share(label, start, end, candidate.id == distribution.picked))
        start = end
    return laid


def places(distribution: Distribution) -> tuple[str, str, str]:
    """Draw, start and end of the share it fell on, with enough decimals to distinguish them: 3 to 9."""
    values = (distribution.draw or 0.0, distribution.draw_from or 0.0, distribution.draw_to or 0.0)
    for digits in range(3, 10):
        # cut off rather than rounded: a draw never seems to be where its share ends
        texts = [f"{int(value * 10**digits) / 10**digits:.{digits}f}" for value in values]
        if texts[1] != texts[2]:
            break
    return texts[0], texts[1], texts[2]


def ruler(distribution: Distribution, width: int, inks: Mapping[str, Style]) -> list[list[Segment]]:
    """Pointer, bar and names; nothing where there was no draw.

    Args:
        distribution: What was drawn from.
        width: Cells available.
        inks: Named styles: `muted`, `accent`, `strong`, `faint`, `data`, `other`.
    """
    cells = width - _FRAME
    if distribution.draw is None or cells < 8:
        return []
    parts = _placed(distribution)
    at = min(cells - 1, int(distribution.draw * cells))
    return [
        _pointer(distribution, at, cells, inks),
        _bar(parts, at, cells, inks),
        _names(parts, cells, inks),
    ]


def _placed(distribution: Distribution) -> list[Share]:
    """The shares, the picked one exactly where the engine reports it."""
    low, high = distribution.draw_from or 0.0, distribution.draw_to or 0.0
    return [Share(share.label, low, high, True) if share.picked else share for share in shares(distribution)]


def _pointer(distribution: Distribution, at: int, cells: int, inks: Mapping[str, Style]) -> list[Segment]:
    again = f", drawn again {distribution.reroll}×" if distribution.reroll else ""
    words = f"draw {places(distribution)[0]}{again}"
    if at >= len(words) + 1:
        return [
            Segment(" " * (1 + at - len(words) - 1)),
            Segment(f"{words} ", inks["accent"]),
            Segment(_POINTER, inks["accent"]),
        ]
    return [Segment(" " * (1 + at)), Segment(f"{_POINTER} {words}"[: cells - at], inks["accent"])]


def _bar(parts: Sequence[Share], at: int, cells: int, inks: Mapping[str, Style]) -> list[Segment]:
    owner = _owners(parts, cells)
    row = [Segment("▕", inks["faint"])]
    for cell in range(cells):
        index = owner[cell]
        if cell == at:
            row.append(Segment(_DRAWN, inks["accent"]))
        elif index is None:
            row.append(Segment(_REST, inks["faint"]))
        elif parts[index].picked:
            row.append(Segment("━", inks["accent"]))
        else:
            row.append(Segment(_FILLS[index % 2], inks["data" if index % 2 == 0 else "other"]))
    return [*row, Segment("▏", inks["faint"])]


def _owners(parts: Sequence[Share], cells: int) -> list[int | None]:
    """For each cell the share that holds its middle; None for what is no candidate."""
    owners: list[int | None] = []
    index = 0
    for cell in range(cells):
        middle = (cell + 0.5) / cells
        while index < len(parts) and parts[index].end <= middle:
            index += 1
        inside = index < len(parts) and parts[index].start <= middle
        owners.append(index if inside else None)
    return owners


def _names(parts: Sequence[Share], cells: int, inks: Mapping[str, Style]) -> list[Segment]:
    """Names under the shares that are wide enough; the picked one always."""
    picked = next((part for part in parts if part.picked), None)
    wanted = sorted(parts, key=lambda part: (not part.picked, part.start - part.end))
    taken: list[tuple[int, int, Share]] = []
    for part in wanted:
        start, end = int(part.start * cells), max(int(part.end * cells), int(part.start * cells) + 1)
        size = cell_len(part.label)
        if part is picked:
            start = min(start, max(0, cells - size))
        elif size > end - start - 1:
            continue
        if all(start + size < low or start > high for low, high, _ in taken):
            taken.append((start, start + size, part))
    return _laid(sorted(taken, key=lambda name: name[0]), inks)


def _laid(taken: Sequence[tuple[int, int, Share]], inks: Mapping[str, Style]) -> list[Segment]:
    row, at = [Segment(" ")], 0
    for start, end, part in taken:
        row.append(Segment(" " * (start - at)))
        row.append(Segment(part.label, inks["accent" if part.picked else "muted"]))
        at = end
    return row

"""Colours of a theme as they can be read: text on each of its grounds has WCAG's contrast for small text at least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.color import Color

from inspector import scales

LEAST = 4.5
"""WCAG 2.2, 1.4.3 (AA), for text of any size."""
INK_FAINT, INK_MUTED = "ink-faint", "ink-muted"
"""The two greys as colours of their own, for `Content`: it takes `auto 60%` for all of black or white."""
FIELD, ROW = 0.08, 0.1
"""Share of the foreground in the ground of a field, and in that of a selected row."""
_TEXT = 0.87
"""Share of black or white in the toolkit's plain text."""
_GROUNDS = ("background", "surface", "panel")
_COLOURS = (
    "text-primary", "text-secondary", "text-accent", "text-warning", "text-error", "text-success",
    "footer-key-foreground",
)  # fmt: skip
"""Coloured text; what else has a colour is a frame, a bar or a ground."""
_FAINT, _MUTED, _APART = "text-disabled", "text-muted", 0.1
"""The two greys, and the share by which they differ at least; in a selected row there is no faint text."""


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a theme with every text colour that was too close to a ground moved away from it.

    Args:
        variables: As the toolkit makes them of a theme. The terminal's own colours stay: nobody knows them.

    Returns:
        All of them.
    """
    given = {name: Color.parse(variables[name]) for name in ("foreground", *_GROUNDS)}
    if any(colour.ansi is not None for colour in given.values()):
        return {**variables, INK_FAINT: variables[_FAINT], INK_MUTED: variables[_MUTED]}
    field, row = (given["foreground"].with_alpha(share) for share in (FIELD, ROW))
    grounds = [*(given[name] for name in _GROUNDS), given["surface"] + field]
    rows = [given[name] + row for name in ("background", "surface")]
    made = {name: _away(Color.parse(variables[name]), [*grounds, *rows]) for name in _COLOURS}
    faint = max(_share(variables[_FAINT]), _least_share((ground, ground) for ground in grounds))
    in_row = _least_share((given[name], given[name] + row) for name in ("background", "surface"))
    muted = max(_share(variables[_MUTED]), faint + _APART, in_row)
    made |= {_FAINT: f"auto {faint:.0%}", _MUTED: f"auto {muted:.0%}", **_block_cursor(variables)}
    nearest = min(grounds, key=lambda ground: contrast(ground, ground.get_contrast_text(1.0)))
    for name, share in ((INK_FAINT, faint), (INK_MUTED, muted)):
        made[name] = (nearest + nearest.get_contrast_text(share)).hex
    return {**variables, **made}


def contrast(one: Color, other: Color) -> float:
    """Contrast of two opaque colours as WCAG defines it: 1 for equal ones to 21."""
    return scales.contrast(one.rgb, other.rgb)


def _away(colour: Color, grounds: list[Color]) -> str:
    """A colour moved towards black or white until it can be read on every ground."""
    goal = grounds[0].get_contrast_text(1.0)
    for step in range(21):
        moved = colour.blend(goal, step / 20, 1.0)
        if min(contrast(moved, ground) for ground in grounds) >= LEAST:
            break
    return moved.hex


def _block_cursor(variables: Mapping[str, str]) -> dict[str, str]:
    """Ground and text of what is highlighted in a list, and of the button that applies."""
    ground = Color.parse(variables["block-cursor-background"])
    text = ground.get_contrast_text(1.0)
    away = text.inverse
    for step in range(21):
        moved = ground.blend(away, step / 20, 1.0)
        if contrast(moved + text.with_alpha(_TEXT), moved) >= LEAST:
            break
    return {"block-cursor-background": moved.hex, "block-cursor-foreground": f"auto {_TEXT:.0%}"}


def _share(variable: str) -> float:
    """The share of black or white in a grey: 0.6 of `auto 60%`."""
    return float(variable.partition(" ")[2].removesuffix("%") or 100) / 100


def _least_share(grounds: Iterable[tuple[Color, Color]]) -> float:
    """The least share of black or white that can be read.

    Args:
        grounds: What the ink is mixed with, and the ground that it then stands on: another one in a selected row.
    """
    pairs = list(grounds)
    for percent in range(30, 100):
        inks = [(mixed + mixed.get_contrast_text(percent / 100), ground) for mixed, ground in pairs]
        if all(contrast(ink, ground) >= LEAST for ink, ground in inks):
            return percent / 100
    return 1.0

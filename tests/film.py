"""A moving picture as one SVG: pictures of a screen take turns by CSS, and what they have in common is written once.

It needs no script and no font, so that it moves wherever a picture is shown. Where a person wants less motion it stands
still at its last picture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RULE = re.compile(r"\.terminal-\d+-(r\d+) (\{[^}]*\})\n?")
_CELLS = re.compile(r'(?<=clip-path="url\(#terminal-clip-terminal\)">).*(?=</g>\s*</svg>)', re.DOTALL)
_CELL = re.compile(r"<rect\b[^>]*/>|<text\b.*?</text>", re.DOTALL)


def film(frames: Sequence[tuple[str, float]]) -> str:
    """The moving picture.

    Args:
        frames: Each picture as Textual exports it, all of one size, and for how many seconds it is shown.
    """
    classes: dict[str, str] = {}
    shown: dict[str, list[int]] = {}
    for place, (svg, _) in enumerate(frames):
        for cell in dict.fromkeys(_cells(svg, classes)):
            shown.setdefault(cell, []).append(place)
    groups: dict[tuple[int, ...], list[str]] = {}
    for cell, places in shown.items():
        groups.setdefault(tuple(places), []).append(cell)
    ends = [sum(seconds for _, seconds in frames[: place + 1]) for place in range(len(frames))]
    css = [f".{name}{rule}" for rule, name in classes.items()]
    backgrounds, texts = [], []
    for number, (places, cells) in enumerate(groups.items()):
        name = f"g{number}"
        if len(places) < len(frames):
            css.append(_turn(name, places, ends))
        for kind, drawn in (("<rect", backgrounds), ("<text", texts)):  # a text is above every background
            if own := "".join(cell for cell in cells if cell.startswith(kind)):
                drawn.append(f'<g class="{name}">{own}</g>')
    plain = re.sub(r"terminal-\d+-", "terminal-", _RULE.sub("", frames[0][0]))
    body = f'{"".join(backgrounds)}<g class="terminal-matrix">{"".join(texts)}</g>'
    return _CELLS.sub(lambda _: body, plain).replace("</style>", f"{''.join(css)}</style>", 1)


def _cells(svg: str, classes: dict[str, str]) -> list[str]:
    """The cells of a picture: backgrounds and texts, whose classes are those of all pictures together."""
    own = {name: classes.setdefault(rule, f"s{len(classes)}") for name, rule in _RULE.findall(svg)}
    named = re.sub(r"terminal-\d+-(r\d+)", lambda each: own[each[1]], re.sub(_RULE, "", svg))
    found = _CELLS.search(re.sub(r"terminal-\d+-", "terminal-", named))
    return _CELL.findall(found[0]) if found else []


def _turn(name: str, places: Sequence[int], ends: Sequence[float]) -> str:
    """What shows a group in some of the pictures, and hides it in the others."""
    steps = []
    for place, before in enumerate((0.0, *ends[:-1])):
        begin = 100 * before / ends[-1]
        steps.append(f"{begin:.2f}%{{visibility:{'visible' if place in places else 'hidden'}}}")
    still = (
        ""
        if len(ends) - 1 in places
        else f"@media(prefers-reduced-motion:reduce){{.{name}{{visibility:hidden}}}}"
    )
    animation = f"{name} {ends[-1]:.1f}s step-end infinite"
    moves = f"@media(prefers-reduced-motion:no-preference){{.{name}{{animation:{animation}}}}}"
    return f"@keyframes {name}{{{''.join(steps)}}}{moves}{still}"

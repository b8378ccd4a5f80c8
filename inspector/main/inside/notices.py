"""What the screens that look inside say: checks and costs, and why there is nothing to show."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from rich.style import Style
from textual.content import Content

from engine.protocol import Check, Measuring
from inspector.display import quoted, token_label, truncate, visible
from inspector.keys import key_for
from inspector.main.tool import Tool
from inspector.session.requests import Replies
from inspector.state.inside import CHECKS, checked
from inspector.state.session_tree import Item
from inspector.widgets.actions import pressing
from inspector.widgets.canvas import Canvas
from inspector.widgets.charts import bar

Notice = list[tuple[str, Style]]


def tabs(family: Sequence[Tool], shown: str, room: int) -> Content:
    """The views of a token, the present one reversed.

    Args:
        family: Their tools.
        shown: Id of the present one's.
        room: Cells.
    """
    long = sum(len(tool.title) + len(tool.actions[0].shown) + 4 for tool in family) <= room
    names = [f" {tool.actions[0].shown} {tool.title if long else tool.actions[0].label} " for tool in family]
    styles = ["reverse bold" if tool.id == shown else "" for tool in family]
    gap = " " if sum(map(len, names)) + len(names) - 1 <= room else ""
    while "reverse bold" in styles[1:] and sum(map(len, names[: styles.index("reverse bold") + 1])) > room:
        names, styles = names[1:], styles[1:]  # the present one is in sight
    drawn = [Content.styled(name, style) for name, style in zip(names, styles, strict=True)]
    keys = [tool.actions[0].names[0] for tool in family][len(family) - len(names) :]
    return Content(gap).join(tab.stylize(pressing(key)) for tab, key in zip(drawn, keys, strict=True))


def place_of(path: Sequence[Item]) -> str:
    """Which token is looked at: the last of a path."""
    if not path:
        return "Nothing was read before the first token"
    item = path[-1]
    return f"Token {len(path)} of the path: {quoted(token_label(item.text, item.raw))} goes through the model"


def under_way(now: Measuring | None) -> str:
    """How far an answer is."""
    if now is None:
        return "Computing"
    filled = bar(now.done / now.total if now.total else 0.0, 16).replace(" ", "·")
    return f"{filled} {visible(now.detail)} {now.done}/{now.total}. esc stops it"


def told(answers: Replies[Any], key: Hashable, width: int) -> str:
    """The checks of an answer and its costs; or why it isn't there, or how far it is.

    Args:
        answers: That it is among.
        key: What it is about.
        width: Cells of the line.
    """
    if (answer := answers.get(key)) is not None:
        return checked(answer.facts, width)
    if (failure := answers.failure(key)) is not None:
        return visible(failure.message)
    return under_way(answers.progress) if answers.waiting else ""


def refused(on: Canvas, failed: Check, family: str) -> Notice:
    """Which check took a view away, by how much, for which architecture."""
    where = f" ({visible(failed.where)})" if failed.where else ""
    name = CHECKS.get(failed.name, failed.name)
    return [
        (f"The check “{name}” failed for the architecture {visible(family)}{where}:", on.ink("bad")),
        (f"off by {failed.error:.2g}, where {failed.bound:.2g} is allowed.", on.ink("bad")),
        ("So this view is not shown. The others may hold: press tab.", on.ink("muted")),
    ]


def part_shown(width: int, *parts: tuple[str, Sequence[int], int]) -> str:
    """Which of some things there is room for: `Shown: layers 30 to 56 of 94`; empty where it is all of them.

    Args:
        width: Cells that it may take.
        parts: Of each kind a noun in the plural, the numbers of those that are shown, from 0, and how many there are.
    """
    cut = [(noun, shown, total) for noun, shown, total in parts if len(shown) < total]
    texts = [f"{noun} {min(shown) + 1} to {max(shown) + 1} of {total}" for noun, shown, total in cut if shown]
    if not texts:
        return ""
    long = f"Shown: {', '.join(texts)}"
    short = (f"{noun[0]}{min(shown) + 1}-{max(shown) + 1}/{total}" for noun, shown, total in cut if shown)
    return long if len(long) <= width else truncate(f"Shown: {' '.join(short)}", width)


def nothing_before(on: Canvas) -> Notice:
    """The first token was not chosen by the model."""
    return [
        ("Nothing went through the model before the first token.", on.rich_style),
        ("Press → for the next one.", on.ink("muted")),
    ]


def waiting(on: Canvas, recorded: bool) -> Notice:
    """An answer is on its way; or there is none in a recording."""
    if recorded:
        return [
            ("This view of this token was not recorded.", on.rich_style),
            (
                f"Press esc, then {key_for('go_live')}: the session goes on live, and can be looked into.",
                on.ink("muted"),
            ),
        ]
    return [("The token runs again, on a copy of the KV cache.", on.rich_style)]

"""The help on keys, made from the table: `inspector/help/keys.md` is that of the tools that come with the program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from inspector.keys import key_for
from inspector.main.tool import HelpSection, KeyTable, Tool

MOUSE = HelpSection(
    "Mouse",
    text="Click a token in the text or in the steps to look at it; click a candidate to highlight it, and once more to "
    "choose it.",
)
DIALOGS = HelpSection(
    "In dialogs",
    text="`tab` goes from field to field, `ctrl+s` applies, `esc` leaves. A prompt that was typed is kept.",
)
EVERYWHERE = HelpSection(
    "Everywhere",
    text=f"`ctrl+p` opens the command palette: every action by name. `{key_for('help')}` shows "
    "the keys of the screen, `ctrl+q` "
    "quits.",
)


def keys_markdown(table: KeyTable) -> str:
    """The page of keys: a table for each group, then what the tools have to say of their own."""
    return "\n".join(_lines(table)) + "\n"


def screen_markdown(tool: Tool) -> str:
    """The page of keys of a screen that a tool opens."""
    return (
        "\n".join(("# Keys", *(line for part in (*tool.help, EVERYWHERE) for line in _section(part)))) + "\n"
    )


def _lines(table: KeyTable) -> Iterator[str]:
    yield "# Keys"
    for group, keys in groupby(table.keys, key=lambda key: key.group):
        rows = [(f"`{key.shown}`", f"**{key.label}.** {key.tooltip}") for key in keys]
        yield from _section(HelpSection(group, tuple(rows)))
    for section in (MOUSE, *(part for tool in table.tools for part in tool.help), DIALOGS, EVERYWHERE):
        yield from _section(section)


def _section(section: HelpSection) -> Iterator[str]:
    yield from ("", f"## {section.title}", "")
    if section.text:
        yield section.text
    if section.rows:
        yield from ("| key | what it does |", "|---|---|")
        yield from (f"| {keys} | {what} |" for keys, what in section.rows)

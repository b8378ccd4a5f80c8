"""The help on keys, made from the table: `inspector/help/keys.md` is that of the tools that come with the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def keys_markdown(table: KeyTable, first: Sequence[str] = ()) -> str:
    """The page of keys: a table for each group, then what the tools have to say of their own.

    Args:
        table: All keys.
        first: Titles of the tools' sections that it begins with.
    """
    begins = _titled(table, first)
    told = (part for tool in table.tools for part in tool.help if part not in begins)
    return _page((*begins, *_groups(table), MOUSE, *told, DIALOGS, EVERYWHERE))


def screen_markdown(tool: Tool, table: KeyTable, first: Sequence[str] = ()) -> str:
    """The page of keys of a screen that a tool opens.

    Args:
        tool: It opens the screen.
        table: All keys.
        first: Titles of the tools' sections that it begins with.
    """
    return _page((*_titled(table, first), *tool.help, EVERYWHERE))


def _titled(table: KeyTable, titles: Sequence[str]) -> list[HelpSection]:
    parts = {part.title: part for tool in table.tools for part in tool.help}
    return [parts[title] for title in titles]


def _page(sections: Iterable[HelpSection]) -> str:
    return "\n".join(("# Keys", *(line for section in sections for line in _section(section)))) + "\n"


def _groups(table: KeyTable) -> Iterator[HelpSection]:
    for group, keys in groupby(table.keys, key=lambda key: key.group):
        rows = [(f"`{key.shown}`", f"**{key.label}.** {key.tooltip}") for key in keys]
        yield HelpSection(group, tuple(rows))


def _section(section: HelpSection) -> Iterator[str]:
    yield from ("", f"## {section.title}", "")
    if section.text:
        yield section.text
    if section.rows:
        yield from ("| key | what it does |", "|---|---|")
        yield from (f"| {keys} | {what} |" for keys, what in section.rows)

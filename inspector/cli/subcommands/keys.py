"""`inspector keys`: all actions of the screen, their ids and keys, where they hold, and what is wrong in keys.toml."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from inspector.cli.exit import OK, output
from inspector.cli.flags import Parser, Subcommand, command_parser

if TYPE_CHECKING:
    from inspector.widgets.actions import Action


def keys_parser() -> Parser:
    """The parser of `inspector keys`."""
    from inspector import places
    from inspector.config import own_keys

    made = command_parser(
        "keys",
        "List all actions of the screen: their ids, their keys, where the keys work and what they do.",
        f'Keys of your own go into {places.config() / own_keys.NAME}: step = "n", or run = ["r", "f5"]; for an action '
        'of a tool\'s own screen "race.again" = "ctrl+n". Faulty lines are reported here and when the screen opens; '
        "the others take effect.",
    )
    made.add_argument(
        "--jsonl", "--json", action="store_true", help="one JSON object a line instead of the tables"
    )
    return made


def run_keys(args: Namespace) -> int:
    """Run `inspector keys`."""
    from inspector import keys
    from inspector.config import own_keys
    from inspector.main.key_table import key_table
    from inspector.tools.registry import TOOLS

    table = key_table(TOOLS)
    own = own_keys.read(list(table.places()))
    keys.use(own.keys)
    listed = [_listed(_tab(each), each, each.id in own.keys) for each in table.actions]
    listed += [
        _listed(part.title, each, each.id in own.keys)
        for part in table.tables
        for each in part.actions
        if each.id and (each.run is not None or each.id not in table)
    ]
    out = output()
    if args.jsonl:
        from inspector.cli.writers.json_lines import json_line

        out.writelines(map(json_line, (*listed, *({"problem": each} for each in own.problems))))
        return OK
    for line in _tables(listed, own.problems):
        out.write(line + "\n")
    return OK


def _tab(action: Action) -> str:
    from inspector.keys import TABS

    return f"{action.tabs[0]} {TABS[action.tabs[0]]}" if action.tabs else "In every tab"


KEYS = Subcommand("keys", keys_parser, run_keys, "list all keys of the screen, and what they do")


class ListedAction(Struct, frozen=True):
    """One action."""

    id: str
    keys: tuple[str, ...]
    where: str
    """Group of the main screen, or where else it holds."""
    label: str
    help: str
    own: bool
    """True if its keys are the user's own."""


def _listed(where: str, action: Action, own: bool) -> ListedAction:
    from inspector.keys import shown

    keys = tuple(map(shown, action.names))
    return ListedAction(action.id, keys, where, action.label, action.told, own)


def _tables(listed: list[ListedAction], problems: tuple[str, ...]) -> Iterator[str]:
    from inspector.display import pad, visible

    ids = max(len(each.id) for each in listed)
    for where, actions in groupby(listed, key=lambda each: each.where):
        yield f"{where}:"
        for each in actions:
            yield f"  {pad(each.id, ids)}  {pad(' '.join(each.keys), 14)}  {each.help or each.label}"
        yield ""
    yield from map(visible, problems)

"""`inspector keys`: all actions of the screen, their ids and keys, where they hold, and what is wrong in keys.toml."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from engine.frozen import frozen
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
    listed = [ListedAction(_tab(each), each, each.id in own.keys) for each in table.actions]
    listed += [
        ListedAction(part.title, each, each.id in own.keys)
        for part in table.tables
        for each in part.actions
        if each.id and (each.run is not None or each.id not in table)
    ]
    out = output()
    for line in _objects(listed, own.problems) if args.jsonl else _tables(listed, own.problems):
        out.write(line + "\n")
    return OK


def _tab(action: Action) -> str:
    from inspector.keys import TABS

    return f"{action.tabs[0]} {TABS[action.tabs[0]]}" if action.tabs else "In every tab"


KEYS = Subcommand("keys", keys_parser, run_keys, "list all keys of the screen, and what they do")


@frozen
class ListedAction:
    """One action."""

    where: str
    """Group of the main screen, or where else it holds."""
    action: Action
    own: bool
    """True if its keys are a person's own."""


def _objects(listed: list[ListedAction], problems: tuple[str, ...]) -> Iterator[str]:
    from inspector.keys import shown

    for each in listed:
        action = each.action
        event = {
            "id": action.id,
            "keys": [shown(name) for name in action.names],
            "where": each.where,
            "label": action.label,
            "help": action.told,
            "own": each.own,
        }
        yield json.dumps(event, ensure_ascii=True)
    for problem in problems:
        yield json.dumps({"problem": problem}, ensure_ascii=True)


def _tables(listed: list[ListedAction], problems: tuple[str, ...]) -> Iterator[str]:
    from inspector.display import pad, visible
    from inspector.keys import shown

    ids = max(len(each.action.id) for each in listed)
    for where, actions in groupby(listed, key=lambda each: each.where):
        yield f"{where}:"
        for each in actions:
            names = " ".join(shown(name) for name in each.action.names)
            yield f"  {pad(each.action.id, ids)}  {pad(names, 14)}  {each.action.told or each.action.label}"
        yield ""
    yield from map(visible, problems)

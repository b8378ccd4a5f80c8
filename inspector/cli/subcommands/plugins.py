"""`inspector plugins`: the panels, lessons and exporters of other packages, and the reasons for those left out."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from inspector.cli.exit import OK, output
from inspector.cli.flags import Parser, Subcommand, command_parser

if TYPE_CHECKING:
    from inspector.plugins import Plugin


def plugins_parser() -> Parser:
    """The parser of `inspector plugins`."""
    made = command_parser(
        "plugins",
        "List the plug-ins that other installed packages provide: panels of the screen, lessons, and kinds of "
        "documents "
        "for `inspector export`; and those that could not be used, with the reason.",
        "How to write one: inspector/help/python.md. `inspector --no-plugins` starts without them.",
    )
    made.add_argument(
        "--jsonl", "--json", action="store_true", help="one JSON object a line instead of the table"
    )
    return made


def run_plugins(args: Namespace) -> int:
    """Run `inspector plugins`."""
    from inspector.lessons.catalogue import listed
    from inspector.main.key_table import key_table
    from inspector.plugins import PLUGIN, load_all
    from inspector.tools.plugins.tool import admit
    from inspector.tools.registry import TOOLS

    admitted = admit(load_all(listed), key_table(TOOLS))
    actions = (tool.actions[0] for tool in admitted.tools)
    ways = {each.id.removeprefix(PLUGIN): each.way for each in actions}
    found = [(each, ways.get(each.name, "") if each.kind == "panel" else "") for each in admitted.plugins]
    out = output()
    for line in _objects(found) if args.jsonl else _table(found):
        out.write(line + "\n")
    return OK


def _objects(found: Sequence[tuple[Plugin, str]]) -> Iterator[str]:
    for each, key in found:
        event = {
            "name": each.name,
            "kind": each.kind,
            "package": each.package,
            "key": key or None,
            "what": each.what or None,
            "problem": each.problem or None,
        }
        yield json.dumps(event, ensure_ascii=True)


def _table(found: Sequence[tuple[Plugin, str]]) -> Iterator[str]:
    from inspector.display import pad, visible

    if not found:
        yield "No plug-in is installed. How to write one: inspector/help/python.md."
        return
    names = max(len("name"), *(len(visible(each.name)) for each, _ in found))
    packages = max(len("package"), *(len(each.package) for each, _ in found))
    yield f"{pad('name', names)}  {'kind':8}  {pad('package', packages)}  {'key':6}  what"
    for each, key in found:
        what = f"left out: {each.problem}" if each.problem else each.what
        yield f"{pad(visible(each.name), names)}  {each.kind:8}  {pad(each.package, packages)}  {key:6}  {what}"


PLUGINS = Subcommand(
    "plugins", plugins_parser, run_plugins, "list plug-ins: panels, lessons and documents of other packages"
)

"""Hooks in the help, and found by their names: the page has the table of the code, and a name opens what shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import HOOKS
from inspector.main.everything import SHOWS
from inspector.main.key_table import key_table
from inspector.views import TOOLS
from tests.inspector.rig import Rig

PAGE = Path("inspector/help/parts/hooks.md")
OFF = {"head": "L6 h1", "attention": "L6 attention", "mlp": "L6 mlp"}


def rows() -> Iterator[str]:
    table = key_table(TOOLS)
    for hook in HOOKS:
        way = table[SHOWS.get(hook.part, "modules")].way
        head = "[h]" if hook.heads else ""
        yield f"| `{hook.name}{head}` | {hook.what} | `{way}` | {OFF.get(hook.unit or '', '')} |"


def test_the_page_has_the_table_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    told = page[page.index("|---") :].partition("\n")[2].partition("\n\n")[0]
    assert told.split("\n") == list(rows())


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("typed", "tool", "chosen"),
    [
        ("blocks.5.attn.hook_pattern[1]", "attention", lambda own: own._wanted == (5, 1)),
        ("L6 h2", "attention", lambda own: own._wanted == (5, 1)),
        ("blocks.6.hook_resid_post", "lens", lambda own: own._layer == 7),
        ("blocks.0.hook_resid_pre", "lens", lambda own: own._layer == 0),
        ("model.layers.2.mlp", "attribution", lambda own: own.choices.layer == 2),
        ("ln_final.hook_normalized", "modules", lambda own: own.at == 0),
    ],
)
async def test_a_part_is_found_by_its_name_and_shown(
    rig: Rig, typed: str, tool: str, chosen: Callable[[Any], bool]
) -> None:
    await rig.ready()
    await rig.from_finder(typed, typed)
    await rig.until(lambda: rig.app.main.over == tool)
    assert chosen(rig.app.top)


async def test_what_names_no_part_is_searched_as_words(rig: Rig) -> None:
    await rig.ready()
    await rig.from_finder("attention", "Attention")
    assert "blocks" not in rig.screen_text()

"""The table of keys is the truth: bindings, palette and help agree with it."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from textual.content import Content

from engine.records import Ended
from inspector import tools
from inspector.main.dialogs.help import PAGES
from inspector.main.dialogs.topics import TOPICS, page
from inspector.main.key_help import keys_markdown, screen_markdown
from inspector.main.keyline import fitting, written
from inspector.main.screen import key_table
from inspector.main.tool import GROUPS, Tool, When
from inspector.main.tool_screen import ToolScreen
from inspector.tools.registry import TOOLS
from tests.inspector.rig import Rig, run

ALIASED = {"ctrl+j", "ctrl+m", "ctrl+i", "ctrl+h", "ctrl+p"}
TABLE = key_table(TOOLS)
STILL = {When.ALWAYS, When.LIVE}


def test_the_help_file_is_made_from_the_table():
    assert page("keys") == keys_markdown(TABLE)


def numbered(page: str, key: int) -> bool:
    """Whether the page tells of a number's key together with those before it."""
    return any(f"`1` to `{last}`" in page for last in range(key, 10))


def leaves(screen: type[ToolScreen]) -> list[type[ToolScreen]]:
    """The screens that are opened: those that no other one is made from."""
    return [leaf for one in screen.__subclasses__() for leaf in leaves(one)] or [screen]


def test_a_screen_of_a_tool_has_a_page_of_its_own_keys_that_leaves_none_out():
    glyphs = {"escape": "esc", "enter": "⏎", "up": "↑", "down": "↓", "left": "←", "right": "→",
              "pageup": "pgup", "pagedown": "pgdn", "minus": "-", "plus": "+", "left_square_bracket": "[",
              "right_square_bracket": "]", "question_mark": "?", "comma": ",", "full_stop": ".",
              "exclamation_mark": "!", "number_sign": "#", "semicolon": ";", "dollar_sign": "$"}  # fmt: skip
    for module in walk_packages(tools.__path__, f"{tools.__name__}."):  # what is opened is imported then
        import_module(module.name)
    screens = leaves(ToolScreen)
    assert len({screen.TOOL for screen in screens}) >= 7
    for screen in screens:
        tool = next(tool for tool in TABLE.tools if tool.id == screen.TOOL)
        page = screen_markdown(tool, TABLE)
        assert "Take back" not in page
        bound = [
            binding
            for part in screen.__mro__
            if issubclass(part, ToolScreen)
            for each in vars(part).get("BINDINGS", ())
            for binding in each.make_bindings([each])
        ]
        for key in (binding.key for binding in bound if not binding.key.startswith("shift+")):
            shown = glyphs.get(key, key)
            assert f"`{shown}`" in page or (shown in "12345" and numbered(page, int(shown))), (screen, key)


def test_every_key_has_an_action_an_id_of_its_own_and_words():
    assert (
        len({key.id for key in TABLE.keys}) == len(TABLE.keys) == sum(len(tool.keys) for tool in TABLE.tools)
    )
    for key in TABLE.keys:
        assert callable(key.run), key.id
        assert key.label, key.id
        assert key.group in GROUPS, key.id
        assert key.tooltip.endswith("."), key.id


def test_every_tool_has_an_id_of_its_own_and_its_hints_name_keys_of_the_table():
    assert len({tool.id for tool in TABLE.tools}) == len(TABLE.tools)
    for tool in TABLE.tools:
        assert all(id in TABLE for hint in tool.hints for id in hint.ids), tool.id


@pytest.mark.parametrize("claimed", ["why", "w"])
def test_two_tools_on_one_key_or_id_are_refused_when_the_table_is_built(claimed: str) -> None:
    """The second would displace the first without a word."""
    [why] = [key for key in TABLE.keys if key.id == "why"]
    second = replace(why, id="words") if claimed == "w" else replace(why, keys="right_parenthesis", shown=")")
    with pytest.raises(ValueError, match=f"sampler and words both claim the .* {claimed} "):
        key_table((*TOOLS, Tool("words", "Words", keys=(second,))))


def test_no_key_is_bound_twice_or_aliased_by_terminals():
    names = [name for key in TABLE.keys for name in key.keys.split(",")]
    assert len(set(names)) == len(names)
    assert not ALIASED & set(names)


def test_the_palette_reads_the_texts_as_they_are():
    for key in TABLE.keys:
        for text in (key.label, f"{key.shown} · {key.tooltip}"):
            assert Content.from_markup(text).plain == text


def test_the_line_of_keys_keeps_the_worthiest_that_fit():
    whole = fitting(TABLE, 200, STILL)
    assert [(written(TABLE, hint), hint.word) for hint in whole] == [
        ("space", "step"), ("r", "run"), ("←→", "walk"), ("↑↓", "candidate"), ("⏎", "choose"), ("/", "token"),
        ("a", "type"), ("⌫", "take back"), ("w", "why"), ("t", "tree"), ("B", "beams"), ("m", "colour"),
        ("s", "sampling"), ("p", "prompt"), ("R", "reply"), ("f", "enlarge"), ("?", "help"), ("q", "quit"),
    ]  # fmt: skip
    narrow = [hint.word for hint in fitting(TABLE, 38, STILL)]
    assert narrow[:2] == ["step", "run"]
    assert "help" in narrow
    assert fitting(TABLE, 0, STILL) == []


def test_during_a_run_the_line_tells_how_to_pause_it():
    running = fitting(TABLE, 200, STILL | {When.RUNNING})[:2]
    assert [(written(TABLE, hint), hint.word) for hint in running] == [("space", "pause"), ("-+", "pace")]


def test_every_page_of_the_help_has_a_title_and_text():
    for name, _ in PAGES:
        assert page(name).startswith("# ")
        assert len(page(name).splitlines()) > 20


def test_every_page_on_one_thing_says_where_to_look_at_it_and_readme_links_it():
    readme = Path("README.md").read_text(encoding="utf-8")
    assert {path.stem for path in Path("inspector/help/parts").glob("*.md")} == {name for name, *_ in TOPICS}
    known = {shown for key in TABLE.keys for shown in (key.shown, *key.keys.split(","))}
    for name, title, _ in TOPICS:
        text = page(f"parts/{name}")
        assert text.startswith(f"# {title}\n")
        assert f"inspector/help/parts/{name}.md" in readme
        live = re.split(r"Look at it live:?", text)[1].partition("\n## ")[0]
        keys = re.findall(r"(?:^- |and |:\*\* |^\*\* )`([^` ]+)`", live, re.MULTILINE)
        assert keys, name
        assert set(keys) <= known, (name, keys)


def test_the_help_explains_the_words_on_screen():
    text = page("concepts").lower()
    for word in ("prefill", "decode", "logprob", "surprisal", "entropy", "rank", "allocated", "ttft", "tpot",
                 "greedy", "draw"):  # fmt: skip
        assert word in text, word


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", ["loading", "prefill"])
def test_every_key_is_answered_while_the_model_or_the_prompt_is_on_its_way(phase: str) -> None:
    """Pressed too early it says what it waits for, or it does what can be done already; never nothing."""

    async def test(rig: Rig) -> None:
        if phase == "prefill":
            await rig.push([*rig.session.load(), Ended("Configure"), rig.session.begin()])
        silent = []
        for key in rig.app.main.table.keys:
            if key.id in ("quit", "stop"):
                continue
            before = state_of(rig)
            await rig.press(key.keys.partition(",")[0])
            if state_of(rig) == before and key.id != f"panel_{rig.app.main.arrangement.current}":
                silent.append(key.id)
            while len(rig.app.screen_stack) > 1:
                rig.app.screen.dismiss(None)
                await rig.pilot.pause()
            rig.app.main.host.answer()
            rig.app.clear_notifications()
            await rig.pilot.pause()
        assert silent == []

    run(test)


def state_of(rig: Rig) -> tuple[object, ...]:
    """What an answer may change, on screen."""
    return (
        rig.app.main.status.answer,
        len(rig.app.screen_stack),
        len(rig.app._notifications),
        rig.screen_text(),
        rig.app.theme,
        rig.app.main.arrangement.current,
    )

"""The table of keys is the truth: bindings, finder and help agree with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from msgspec.structs import replace
from textual.content import Content

from engine.protocol import Ended
from inspector import main, views
from inspector.keys import KEYS, TABS, TABS_OF
from inspector.main.help_pages import PAGES, TOPICS, page
from inspector.main.key_table import key_table, keys_markdown
from inspector.main.tool import Tool, found
from inspector.main.view import View
from inspector.views import FOLLOWING, TOOLS
from inspector.widgets.actions import ActionTable, fitting, refuse_doubles
from inspector.widgets.dialog import Dialog
from tests.inspector.rig import Rig

ALIASED = {"ctrl+j", "ctrl+m", "ctrl+i", "ctrl+h", "ctrl+p"}
TAKEN = {"ctrl+w", "ctrl+t", "ctrl+n", *(f"f{number}" for number in range(1, 13))}
"""Keys that browsers keep for themselves."""
TABLE = key_table(TOOLS)


def test_the_help_file_is_made_from_the_table():
    assert page("keys") == keys_markdown(TABLE)


def opened(base: type[Dialog]) -> Iterator[type[Dialog]]:
    """All screens and dialogs, whose modules are imported once one of them is opened."""
    for package in (main, views):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    waiting = [base]
    while waiting:
        yield (found := waiting.pop())
        waiting += found.__subclasses__()


def test_the_page_of_keys_begins_with_what_is_on_show_and_has_all_others() -> None:
    screens = [screen for screen in opened(View) if hasattr(screen, "TOOL") and not hasattr(screen, "ENTRY")]
    assert len({screen.TOOL for screen in screens}) >= 7
    for opener in (each for each in TABLE.actions if each.opens):
        screen = found(opener.opens)
        page = keys_markdown(TABLE, (), opener.tabs, opener)
        begin, others = page.split("\n## ")[1], page.partition(f"\n## {opener.tabs[0]} ")[2]
        assert begin.startswith(f"On show: {opener.label}\n\n{opener.told}")
        assert "Take back" in others
        own = page.partition(f"\n## {opener.tabs[0]} ")[0]
        for action in screen.ACTIONS.actions:
            assert not action.label or action.told in own or not action.listed or not screen.ACTIONS.told, (
                action.id
            )


def test_every_action_of_a_screen_or_a_dialog_is_in_a_table_of_its_tool():
    """Or it is one that all of them have: from there the list of all keys and a person's own know them."""
    known = {action.id for table in TABLE.tables for action in table.actions} | {
        each.id for each in TABLE.actions
    }
    for screen in opened(Dialog):
        for action in screen.ACTIONS.actions:
            assert action.id in known, (screen, action.id)
            assert action.id == "" or action.run is not None, (screen, action.id)


def test_every_key_belongs_to_an_action():
    assert set(KEYS) == {
        action.id
        for actions in (TABLE.actions, *(table.actions for table in TABLE.tables))
        for action in actions
        if action.id and not action.keys
    }


def test_every_action_has_an_id_of_its_own_and_words():
    ids = {action.id for action in TABLE.actions}
    assert len(ids) == len(TABLE.actions) == sum(len(tool.actions) for tool in TABLE.tools)
    for action in TABLE.actions:
        assert callable(action.run) or action.opens, action.id
        assert action.label, action.id
        assert TABS.keys() >= {*action.tabs}, action.id
        assert action.told.endswith((".", "?")), action.id
    assert len({tool.id for tool in TABLE.tools}) == len(TABLE.tools)


def test_what_holds_for_a_while_is_about_actions_of_the_main_screen():
    """Or it is bound then, and does something."""
    for tool in TABLE.tools:
        for table in tool.contexts:
            for action in table.actions:
                assert action.id in TABLE or action.run is not None, (tool.id, action.id)


def test_no_two_actions_of_a_table_have_one_key_or_id():
    """Said here and not where a table is made: to look through the seventy that there are took 4 ms of each start."""
    tables = [*TABLE.tables, *(table for each in opened(Dialog) for table in vars(each).values())]
    tables = [each for each in tables if isinstance(each, ActionTable)]
    assert len(tables) > 60
    for table in tables:
        refuse_doubles(f"in “{table.title}”", ((each.id, each) for each in table.actions))


@pytest.mark.parametrize("claimed", ["why", "w"])
def test_two_tools_on_one_key_or_id_are_refused_when_the_table_is_built(
    claimed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would displace the first without a word."""
    monkeypatch.setitem(KEYS, "words", "w")
    monkeypatch.setitem(TABS_OF, "words", "2")
    second = replace(TABLE["why"], **({"id": "words"} if claimed == "w" else {"keys": ")"}))
    with pytest.raises(ValueError, match=f"sampler and words both claim the .* {claimed} "):
        key_table((*TOOLS, Tool("words", "Words", actions=(second,))))


def test_no_key_is_aliased_by_terminals():
    tables: list[ActionTable] = [*TABLE.tables]
    actions = [*TABLE.actions, *(action for table in tables for action in table.actions)]
    assert not ALIASED & {name for action in actions if action.id for name in action.names}


def test_markup_reads_the_texts_as_they_are():
    for action in TABLE.actions:
        for text in (action.label, f"{action.shown} · {action.told}"):
            assert Content.from_markup(text).plain == text


async def test_the_line_of_keys_keeps_the_worthiest_that_fit(rig: Rig) -> None:
    await rig.ready()
    whole = fitting(rig.app.main.hints(), 400)
    assert [(hint.keys, hint.word) for hint in whole] == [
        ("space", "step"), ("r", "run"), ("←→", "walk"), ("↑↓", "candidate"), ("⏎", "choose"), ("⌫", "take back"),
        ("a", "type"), ("d", "redraw"), ("/", "token"), ("b", "breakpoints"), ("ctrl+r", "recompute"), ("g", "jump"),
        (", .", "surprise"), ("m", "colour"), ("e", "tokens"), ("s", "settings"), ("p", "prompt"), ("1-7", "tabs"),
        ("⇥", "next view"), ("f", "enlarge"), (":", "find"), ("?", "help"), ("q", "quit"),
    ]  # fmt: skip
    narrow = [hint.word for hint in fitting(rig.app.main.hints(), 38)]
    assert narrow[:2] == ["step", "run"]
    assert "help" in narrow
    await rig.press("r")
    running = fitting(rig.app.main.hints(), 200)[:2]
    assert [(hint.keys, hint.word) for hint in running] == [("space", "pause"), ("-+", "pace")]


async def test_the_line_of_keys_names_what_holds_in_the_open_tab(rig: Rig) -> None:
    await rig.ready()
    for digit, own in (("2", "-+"), ("4", "F"), ("5", "v")):
        await rig.press(digit)
        assert own in {hint.keys for hint in rig.app.top.hints()}
        await rig.press("1")
        assert own not in {hint.keys for hint in rig.app.top.hints()}


def test_every_page_of_the_help_has_a_title_and_text():
    for name, _ in PAGES:
        assert page(name).startswith("# ")
        assert len(page(name).splitlines()) > 20


def test_every_page_on_one_thing_says_where_to_look_at_it_and_readme_links_it():
    readme, help_ = Path("README.md").read_text(encoding="utf-8"), Path("inspector/help")
    pages = {str(path.relative_to(help_).with_suffix("")) for path in help_.rglob("*.md")}
    assert pages == {name for name, *_ in (*PAGES, *TOPICS)}
    known = {action.way for action in TABLE.actions}
    inside = {action.shown for table in TABLE.tables for action in table.actions if action.id}
    for name, title, _ in TOPICS:
        text = page(name)
        assert text.startswith(f"# {title}\n")
        assert f"inspector/help/{name}.md" in readme
        if not name.startswith("parts/"):
            continue
        live = re.split(r"Look at it live:?", text)[1].partition("\n## ")[0]
        keys = re.findall(r"(?:^- |and |:\*\* |^\*\* )`((?:\d )?[^` ]+)`(?! there)", live, re.MULTILINE)
        assert keys, name
        assert set(keys) <= known, (name, keys)
        assert {*re.findall("`([^`]+)` there", live)} <= inside, name


def test_the_help_explains_the_words_on_screen():
    text = page("concepts").lower()
    for word in ("prefill", "decode", "logprob", "surprisal", "entropy", "rank", "allocated", "ttft", "tpot",
                 "greedy", "draw"):  # fmt: skip
        assert word in text, word


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", ["loading", "prefill"])
async def test_every_key_is_answered_while_the_model_or_the_prompt_is_on_its_way(
    rig: Rig, phase: str
) -> None:
    """Pressed too early it says what it waits for, or it does what can be done already; never nothing."""

    if phase == "prefill":
        await rig.push([*rig.session.load(), Ended("Configure"), rig.session.begin()])
    silent = []
    for key in rig.app.main.table.actions:
        if key.id in ("quit", "stop"):
            continue
        before = state_of(rig)
        await rig.do(key.id)
        if state_of(rig) == before and key.id not in (rig.app.main.view, f"tab_{rig.app.main.tab}"):
            silent.append(key.id)
        while rig.app.top is not rig.app.main:
            rig.app.top.dismiss()
            await rig.pilot.pause()
        rig.app.main.answer()
        rig.app.clear_notifications()
        await rig.pilot.pause()
    assert silent == []


def state_of(rig: Rig) -> tuple[object, ...]:
    """What an answer may change, on screen."""
    return (
        rig.app.main.status.answer,
        type(rig.app.top),
        len(rig.app._notifications),
        rig.screen_text(),
        rig.app.theme,
        rig.app.main.arrangement.current,
        rig.app.main.tab,
    )


def test_no_key_is_one_that_browsers_take() -> None:
    assert not {name for action in TABLE.actions for name in action.names} & TAKEN


def test_whoever_follows_has_no_key_that_writes_or_goes_live() -> None:
    keys = {action.id for action in key_table(FOLLOWING).actions}
    assert not keys & {"go_live", "save_as", "sessions", "export", "breakpoints", "lesson", "present"}
    assert {"step", "run", "earlier", "tree", "tip"} <= keys

"""A person's own keys on the screen: what they do, and that footers, sentences, buttons and the help name them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector import keys
from inspector.cli.main import main
from inspector.main.dialogs.help import HelpDialog
from inspector.views.race import RaceView
from tests.inspector.rig import Rig, run


@pytest.fixture(autouse=True)
def configured(request: pytest.FixtureRequest, config: Path) -> Iterator[None]:
    """A file of a test's own keys; those of the next test are the usual ones."""
    config.mkdir()
    (config / "keys.toml").write_text(request.param, encoding="utf-8")
    yield
    keys.use({})


def own(text: str) -> pytest.MarkDecorator:
    """A test with own keys."""
    return pytest.mark.parametrize("configured", [text], ids=["own"], indirect=True)


def notices(rig: Rig) -> list[str]:
    return [each.message for each in rig.app._notifications]


@own('"step" = "f5"\nrun = ["f6", "f3"]\nreply = "f7"\nhelp = "f1"\n')
async def test_an_own_key_does_it_and_is_named_everywhere(rig: Rig) -> None:
    await rig.ready(2)
    assert notices(rig) == []
    await rig.press("space", "r", "question_mark")
    assert rig.engine.names == []
    assert rig.status == "? does nothing here. f1 shows the keys"
    await rig.press("right")
    assert rig.screen_text().splitlines()[-1].startswith(" f5 step  f6 run")
    assert rig.status.startswith("F5 or ⏎ takes")
    assert "f6 runs" in rig.status
    await rig.press("f5")
    assert rig.engine.names == ["TakeStep"]
    await rig.press("f1")
    assert isinstance(rig.app.top, HelpDialog)
    await rig.press("slash", *"picked")
    await rig.until(lambda: "Take the token that the sampler picked" in rig.screen_text())
    [row] = [
        line for line in rig.screen_text().splitlines() if "Take the token that the sampler picked" in line
    ]
    assert re.search(r" f5 +Step\. ", row)


@own('theme = "f2"\nrace = "f3"\n"race.go" = "g"\n"race.again" = "f9"\n"race.longer" = "f8"\n')
async def test_own_keys_of_a_tool_s_screen(rig: Rig) -> None:
    await rig.ready()
    await rig.press("f3")
    screen = rig.app.top
    assert isinstance(screen, RaceView)
    text = rig.screen_text()
    assert "Press g to race this text to" in text
    assert (
        text.splitlines()[-1].strip()
        == "g start  ← f8 length  ⇥ next view  1-7 tabs  : find  ? help  esc back"
    )
    last = screen.last
    await rig.press("f8")
    await rig.press("right")  # which keeps its meaning
    assert screen.lengths.index(screen.last) == screen.lengths.index(last) + 2
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    dark = rig.app.current_theme.dark
    await rig.press("7", "T", "f2")
    assert rig.app.current_theme.dark is not dark


@own('[dialog]\napply = "f10"\n[prompt]\nread_file = "f4"\n')
async def test_own_keys_of_a_dialog(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    text = rig.screen_text()
    assert "Start  f10" in text
    assert "From a file  f4" in text
    assert "⏎ start" in text.splitlines()[-1]
    await rig.press("f4")
    await rig.until(lambda: "From a file" not in rig.screen_text() or len(rig.app.screen_stack) > 2)
    await rig.press("escape", *"Abc", "f10")
    await rig.until(lambda: "Prefill" in rig.engine.names)


@own('step = "n"\nrun = "f6"\n"[/b]\\u001b" = "x"\n')
async def test_what_is_wrong_is_told_at_the_start_and_the_rest_holds(rig: Rig) -> None:
    [told] = notices(rig)
    first, second = told.splitlines()
    assert first == "keys.toml: there is no action [/b]␛. `inspector --keys` lists them."
    assert second.startswith("keys.toml: n for step is not used: it is the key of skip in the tab Next.")
    await rig.ready()
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]
    assert "space step  f6 run" in rig.screen_text()


@own("".join(f'a{number} = "n"\n' for number in range(40)))
async def test_many_problems_are_a_few_lines(rig: Rig) -> None:
    [told] = notices(rig)
    assert len(told.splitlines()) == 9
    assert told.endswith("32 more: `inspector --keys` lists all")


@own('step = "f5"\n')
def test_the_next_program_begins_with_its_own_keys(config: Path) -> None:
    async def first(rig: Rig) -> None:
        assert keys.key_for("step") == "f5"

    async def second(rig: Rig) -> None:
        assert keys.key_for("step") == "space"

    run(first)
    (config / "keys.toml").unlink()
    run(second)


@own('step = "f5"\nrace = "v"\n')
def test_the_subcommand_lists_all_with_the_person_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--keys"]) == 0
    text = capsys.readouterr().out
    assert "\n  step                         f5              Take the token" in text
    assert "\nIn a race:\n  race.go " in text
    assert "keys.toml: v for race is not used: it is the key of verify in the tab Cost." in text
    assert main(["--keys", "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    problems = [each for each in listed if "problem" in each]
    actions = [each for each in listed if "problem" not in each]
    assert len(problems) == 1
    assert {each["id"] for each in actions} >= set(keys.KEYS)
    [step] = [each for each in actions if each["id"] == "step" and each["where"] == "In every tab"]
    assert step["keys"] == ["f5"]
    assert step["own"] is True
    assert [each["keys"] for each in actions if each["id"] == "race.leave"] == [["esc"]]


@pytest.mark.screen(size=(60, 20))
@own("".join(f'a{number} = "n"\n' for number in range(6)))
async def test_in_a_low_terminal_they_are_fewer_and_the_notice_is_whole(rig: Rig) -> None:
    [told] = notices(rig)
    assert len(told.splitlines()) == 5
    assert told.endswith("2 more: `inspector --keys` lists all")

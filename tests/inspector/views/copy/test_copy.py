"""Copying: what each entry of the menu gives, what is said of it, and a selection by mouse that can be read."""

from __future__ import annotations

import csv
import json
import math
import platform
from pathlib import Path

import pytest
from msgspec import convert
from msgspec.structs import replace

from engine.protocol import Marked
from engine.settings import LoadSettings, Settings
from inspector.driver import copy_on_mac
from inspector.main.panels.text import TextPanel
from inspector.views.copy import CopyDialog, completion, copyables
from tests.inspector.fakes import HOSTILE, PROMPT, STORY, Session
from tests.inspector.rig import Rig, run


def texts(session: Session, slot: int | None = None) -> dict[str, str]:
    """All texts of the menu, by letter."""
    timeline = session.timeline()
    timeline.select(slot)
    return {each.key: each.text() for each in copyables(timeline, None, Settings(temp=0.8), LoadSettings())}


def taken(steps: int = 3, story=STORY) -> Session:
    session = Session(story=story)
    session.load()
    session.open()
    session.steps(steps)
    return session


def test_each_entry_gives_its_text():
    session = taken()
    step = session.timeline().steps[0]
    copied = texts(session, len(PROMPT))
    assert copied["t"] == step.text == " there"
    assert copied["i"] == str(step.id)
    assert copied["b"] == "20 74 68 65 72 65"
    assert copied["p"] == "".join(PROMPT)
    assert copied["c"] == "".join(STORY[:3])
    assert copied["a"] == "".join(PROMPT + STORY[:3])
    assert json.loads(copied["n"]) == [item.id for item in session.timeline().items]


def test_the_completion_is_the_run_of_steps_where_the_person_looks():
    """A further turn of a conversation puts prompt tokens between steps."""
    first = taken(2).timeline().items
    items = [*first, *(replace(item, node=item.node + 90) for item in first)]
    assert completion(items, 6) == " there was"
    assert completion(items, 8) == " there was"
    assert completion(items, len(items)) == " there was"
    assert completion(items, 0) == " there was"
    assert completion(items[:5], 5) == ""
    assert completion([], 0) == ""


def test_the_path_is_a_table_whose_texts_no_spreadsheet_runs():
    session = taken(4, story=("=1+1", "\t", "\n", '"quoted"'))
    rows = list(csv.DictReader(texts(session)["r"].splitlines(), delimiter="\t"))
    items = session.timeline().items
    assert [int(row["id"]) for row in rows] == [item.id for item in items]
    assert [row["token"] for row in rows[5:]] == ["'=1+1", "⇥", "↵", '"quoted"']
    assert float(rows[5]["prob"]) == pytest.approx(items[5].prob, rel=1e-5)
    assert [row["step"] for row in rows] == ["", "", "", "", "", "1", "2", "3", "4"]


def test_the_branch_is_strict_json_with_marks_and_settings():
    session = taken(len(HOSTILE), story=HOSTILE)
    timeline = session.timeline()
    node = timeline.items[6].node
    timeline.apply(Marked(node, caption="here", bookmarked=True))
    timeline.items[7] = replace(timeline.items[7], logprob=-math.inf)
    entry = next(
        each for each in copyables(timeline, None, Settings(temp=0.8), LoadSettings()) if each.key == "j"
    )
    branch = json.loads(entry.text())
    assert (branch["model"], branch["settings"]["temp"]) == ("pocket", 0.8)
    assert [token["id"] for token in branch["tokens"]] == [item.id for item in timeline.items]
    assert convert(branch["tokens"][6]["mark"], Marked) == timeline.tree.marks.of[node]
    assert branch["tokens"][7]["logprob"] is None
    whole = "".join(item.text for item in timeline.items)
    assert branch["text"] == whole.replace("\ud83d", r"\ud83d"), "UTF-8 has no half of a surrogate pair"


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_letter_or_enter_copies_and_says_how_much(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=3)
    await rig.press("left", "C")
    assert isinstance(rig.app.top, CopyDialog)
    assert "the token" in rig.screen_text()
    await rig.press("c")
    assert rig.app.clipboard == "".join(STORY[:3])
    assert rig.status == "Copied the completion: 12 characters"
    await rig.press("C", "down", "enter")
    assert rig.app.clipboard == str(rig.timeline.steps[-1].id)
    await rig.press("C", "escape")
    assert rig.app.top is rig.app.main


async def test_at_the_tip_the_token_is_the_highlighted_candidate(rig: Rig) -> None:
    await rig.ready(steps=3)
    await rig.press("down", "C", "t")
    assert rig.app.clipboard == rig.app.main.candidate.text


async def test_half_a_pair_of_surrogates_and_a_large_text_are_copied_too(rig: Rig) -> None:
    await rig.ready(steps=3)
    rig.app.main.own("copy")._copy("a\ud83d", "it")
    assert (rig.app.clipboard, rig.status) == ("a?", "Copied it: 2 characters")
    rig.app.main.own("copy")._copy("x" * 80_000, "the completion")
    assert rig.status.startswith(
        "Copied the completion: 80,000 characters, 78.1 KiB. Some terminals take 74,994"
    )


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("system", "variables", "there"),
    [
        ("Darwin", {"TERM_PROGRAM": "Apple_Terminal"}, True),
        ("Darwin", {"TERM_PROGRAM": "tmux"}, True),
        ("Darwin", {"TERM_PROGRAM": "iTerm.app"}, False),
        ("Darwin", {"TERM_PROGRAM": "tmux", "SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, False),
        ("Darwin", {"TERM_PROGRAM": "textual"}, False),  # as textual-serve has it
        ("Darwin", {}, False),
        ("Linux", {"TERM_PROGRAM": "tmux"}, False),
    ],
)
def test_on_a_mac_whose_terminal_has_no_osc_52_pbcopy_takes_the_text(
    system: str, variables: dict[str, str], there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pbcopy"
    program.write_text(f'#!/bin/sh\necho "$LC_CTYPE" > {tmp_path}/locale\ncat > {tmp_path}/copied\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("TERM_PROGRAM", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platform, "system", lambda: system)

    async def test(rig: Rig) -> None:
        await rig.ready(steps=3)
        rig.app.copy_to_clipboard("d’été ␣ \ud83d")
        assert rig.app.clipboard == "d’été ␣ ?"

    run(test)
    copied = tmp_path / "copied"
    assert copied.exists() is there
    if there:
        assert copied.read_text(encoding="utf-8") == "d’été ␣ ?"
        assert (tmp_path / "locale").read_text() == "UTF-8\n"


def test_without_pbcopy_the_terminal_alone_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TERM_PROGRAM", "Apple_Terminal")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    copy_on_mac("text")


@pytest.mark.wide(1)
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_a_mouse_selection_can_be_read_and_copied(rig: Rig, theme: str) -> None:
    await rig.ready(steps=12)
    rig.app.theme = theme
    await rig.press("ctrl+c")
    assert next(iter(rig.app._notifications)).message.startswith("Nothing is selected")
    await rig.pilot.mouse_down(TextPanel, offset=(8, 1))
    await rig.pilot.hover(TextPanel, offset=(30, 1))
    await rig.pilot.mouse_up(TextPanel, offset=(30, 1))
    selected = rig.app.top.get_selected_text()
    assert selected
    assert selected in "".join(PROMPT + STORY[:12])
    panel = rig.app.main.panel(TextPanel)
    styles = [segment.style for segment in panel.render_line(0) if segment.style and segment.style.bgcolor]
    ground = panel.ink("marked").bgcolor
    marked = [style for style in styles if style.bgcolor == ground]
    assert marked
    assert all(contrast(style) >= 4.5 for style in marked)
    await rig.press("ctrl+c")
    assert rig.app.clipboard == selected
    assert rig.status == f"Copied the selection: {len(selected)} characters"


def contrast(style) -> float:
    """The contrast of a style's colours as WCAG 2 defines it."""
    one, other = sorted(_luminance(colour.get_truecolor()) for colour in (style.color, style.bgcolor))
    return (other + 0.05) / (one + 0.05)


def _luminance(colour) -> float:
    parts = [part / 255 for part in colour]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

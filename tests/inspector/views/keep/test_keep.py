"""The tab Keep: where the session is saved, and rows that can be clicked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.protocol import Marked
from inspector.keys import shown
from inspector.main.panels.header import KEY, NAME, QUESTIONS, SENTENCE
from inspector.views.keep import DIVIDERS, SECTIONS
from inspector.widgets.canvas import DrawnPanel
from tests.inspector.rig import Rig

SIZES = [(120, 40), (160, 40), (80, 24), (60, 20)]
ROWS = [row for rows in SECTIONS.values() for row in rows]


def panel(rig: Rig) -> DrawnPanel:
    return rig.app.main.query_one("#keep", DrawnPanel)


def lines(rig: Rig) -> list[str]:
    """The rows of the panel, as the terminal shows them."""
    inside = panel(rig).content_region
    rows = [strip.text for strip in rig.app.screen._compositor.render_strips()]
    return [row[inside.x : inside.right].rstrip() for row in rows[inside.y : inside.bottom]]


async def click(rig: Rig, text: str) -> None:
    """Click the first place of a text in the panel."""
    x, y = next((row.index(text), y) for y, row in enumerate(lines(rig)) if text in row)
    inside = panel(rig).content_region
    await rig.pilot.click(offset=(inside.x + x, inside.y + y))
    await rig.pilot.pause()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_all_of_the_tab_is_there_in_its_order(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=0)
    await rig.press("7")
    assert str(panel(rig).border_title) == "Keep"
    text = "\n".join(lines(rig))
    names = [
        each for heading, rows in SECTIONS.items() for each in (heading, *(f" {name}" for _, name, _ in rows))
    ]
    places = [text.index(name.strip()) if name in SECTIONS else text.rindex(name) for name in names]
    assert places == sorted(places)
    table = rig.app.main.table
    own = {each.id for each in table.views["7"]} | {each.id for each in table.actions if each.tabs == "7"}
    assert {id for ids, _, _ in ROWS for id in ids} >= own - {"keep"}


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (110, 40), (100, 40), (80, 40), (60, 40)])
async def test_nothing_is_cut(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=0)
    await rig.press("7", "f")
    assert "…" not in "\n".join(lines(rig))
    await rig.press("f")
    assert "…" not in "\n".join(lines(rig))


def test_there_is_room_for_the_longest_sentence() -> None:
    sentences = [told for _, _, told in ROWS] + [*QUESTIONS.values()]
    assert max(map(len, sentences)) == SENTENCE
    assert max(len(name) for _, name, _ in ROWS) < NAME
    assert KEY + NAME + SENTENCE <= 60 - 4  # the frame, and a blank on each side


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_each_row_does_what_it_says(
    rig: Rig, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    main, done = rig.app.main, list[str]()

    async def do(id: str) -> None:
        done.append(id)

    await rig.press("7")
    monkeypatch.setattr(main, "do", do)
    for ids, name, told in ROWS:
        for id in ids:
            key = shown(main.table[id].names[0])
            words = (name, told)[size[0] >= 100] if len(ids) == 1 else re.sub(r".*\+", "", key)
            await click(rig, words)
            assert done.pop() == id
    assert not done


@pytest.mark.parametrize("size", [(120, 40)])
async def test_a_click_is_the_key(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready()
    await rig.press("7")
    theme, width = rig.app.theme, panel(rig).size.width
    await click(rig, "Dark or light")
    assert rig.app.theme != theme
    await click(rig, "←")
    assert panel(rig).size.width > width
    await click(rig, "Usual layout")
    assert panel(rig).size.width == width
    await click(rig, "Sessions")
    assert type(rig.app.screen).__name__ == "SessionsDialog"


def test_the_dividers_share_a_row() -> None:
    assert [ids for ids, _, _ in ROWS if len(ids) > 1] == [DIVIDERS]


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (80, 12)])
async def test_where_to_start_is_shown_before_there_is_a_text(rig: Rig, size: tuple[int, int]) -> None:
    await rig.push(rig.session.load())
    await rig.press("7")
    assert rig.app.main.view == "keep"
    assert "Sessions" in "\n".join(lines(rig))
    for tab in ("5", "4", "7", "1"):
        await rig.press(tab)
        assert rig.app.main.tab == tab
        assert rig.app.main.view == ("keep" if tab == "7" else "candidates")
    await rig.push(rig.session.open())
    await rig.press("5")
    assert rig.app.main.view == "kv"


async def test_it_says_what_is_saved_and_what_an_export_has(rig: Rig, tmp_path: Path) -> None:
    await rig.push(rig.session.load())
    await rig.press("7")
    assert "all of it; ctrl+s saves it" in "\n".join(lines(rig))
    playback = rig.app.main.playback
    assert playback is not None
    playback.recorder.directory = tmp_path
    rig.app.main.show()
    assert "saved as you go, once there is a text" in "\n".join(lines(rig))
    await rig.push(rig.session.open())
    text = "\n".join(lines(rig))
    assert "pocket.trace" in text
    assert "logits; ctrl+s can save them" in text
    assert "no view opened yet" in text


async def test_marks_are_counted(rig: Rig) -> None:
    await rig.ready()
    await rig.push([Marked(2, note="why?", bookmarked=True)])
    await rig.press("7")
    assert "1 bookmark, 1 note" in "\n".join(lines(rig))


@pytest.mark.parametrize("tab", ["1", "3", "5"])
async def test_saving_opening_and_the_layout_hold_in_every_tab_and_view(rig: Rig, tab: str) -> None:
    await rig.ready()
    await rig.press(tab, *(["g"] if tab == "3" else ["z"] if tab == "5" else []))
    for key, dialog in (("ctrl+s", "SaveAsDialog"), ("ctrl+o", "SessionsDialog")):
        await rig.press(key)
        assert type(rig.app.screen).__name__ == dialog
        await rig.press("escape")
    await rig.press("0")
    assert rig.app.main.arrangement.alone

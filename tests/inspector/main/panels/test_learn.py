"""The first answer of the tab Learn: each row can be clicked, and does what it says."""

from __future__ import annotations

import re

import pytest

from inspector.keys import TABS, shown
from inspector.main.panels.header import KEY, NAME, QUESTIONS, SENTENCE
from inspector.main.panels.learn import DIVIDERS, SECTIONS, LearnPanel
from tests.inspector.rig import Rig

SIZES = [(120, 40), (160, 40), (80, 24), (60, 20)]
ROWS = [row for rows in SECTIONS.values() for row in rows]


def lines(rig: Rig) -> list[str]:
    """The rows of the panel, as the terminal shows them."""
    inside = rig.app.main.panel(LearnPanel).content_region
    rows = [strip.text for strip in rig.app.screen._compositor.render_strips()]
    return [row[inside.x : inside.right].rstrip() for row in rows[inside.y : inside.bottom]]


async def click(rig: Rig, text: str) -> None:
    """Click the first place of a text in the panel."""
    x, y = next((row.index(text), y) for y, row in enumerate(lines(rig)) if text in row)
    inside = rig.app.main.panel(LearnPanel).content_region
    await rig.pilot.click(offset=(inside.x + x, inside.y + y))
    await rig.pilot.pause()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", SIZES)
async def test_all_of_the_tab_is_there_in_its_order(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=0)
    await rig.press("6")
    assert str(rig.app.main.panel(LearnPanel).border_title) == "Start here"
    text = "\n".join(lines(rig))
    behind = max(0, text.find(QUESTIONS["6"]))  # the questions, where there is room for them
    text = text[text.index("Learn", behind) :]
    names = [
        each for heading, rows in SECTIONS.items() for each in (heading, *(f" {name}" for _, name, _ in rows))
    ]
    places = [text.index(name) for name in names]
    assert places == sorted(places)
    there = {id for ids, _, _ in ROWS for id in ids}
    assert there == {each.id for each in rig.app.main.table.actions if each.tabs == "6"} - {"learn"}


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (110, 40), (100, 40), (80, 40), (60, 40)])
async def test_nothing_is_cut(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=0)
    await rig.press("6", "f")
    assert "…" not in "\n".join(lines(rig))
    await rig.press("f")
    assert "…" not in "\n".join(lines(rig))


def test_there_is_room_for_the_longest_sentence() -> None:
    sentences = [told for _, _, told in ROWS] + [*QUESTIONS.values()]
    assert max(map(len, sentences)) == SENTENCE
    assert max(len(name) for _, name, _ in ROWS) < NAME
    assert KEY + NAME + SENTENCE <= 60 - 4  # the frame, and a blank on each side


@pytest.mark.parametrize("size", [(120, 40)])
async def test_the_questions_are_listed_once(rig: Rig, size: tuple[int, int]) -> None:
    await rig.ready(steps=0)
    assert rig.screen_text().count(QUESTIONS["3"]) == 1  # in the place of the steps, until there are some
    await rig.press("6")
    assert rig.screen_text().count(QUESTIONS["3"]) == 1
    assert QUESTIONS["3"] in "\n".join(lines(rig))
    await rig.press("1")
    assert rig.screen_text().count(QUESTIONS["3"]) == 1


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40)])
@pytest.mark.parametrize("digit", TABS)
async def test_a_question_opens_its_tab(rig: Rig, size: tuple[int, int], digit: str) -> None:
    await rig.ready()
    await rig.press("6")
    await click(rig, QUESTIONS[digit])
    assert rig.app.main.tab == digit


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_each_row_does_what_it_says(
    rig: Rig, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.ready()
    main, done = rig.app.main, list[str]()

    async def do(id: str) -> None:
        done.append(id)

    await rig.press("6")
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
    await rig.press("6")
    theme, width = rig.app.theme, rig.app.main.panel(LearnPanel).size.width
    await click(rig, "Dark or light")
    assert rig.app.theme != theme
    await click(rig, "←")
    assert rig.app.main.panel(LearnPanel).size.width > width
    await click(rig, "Usual layout")
    assert rig.app.main.panel(LearnPanel).size.width == width
    await click(rig, "All lessons")
    assert type(rig.app.screen).__name__ == "LessonsDialog"


def test_the_dividers_share_a_row() -> None:
    assert [ids for ids, _, _ in ROWS if len(ids) > 1] == [DIVIDERS]


@pytest.mark.parametrize("size", [(100, 30)])
async def test_where_the_questions_have_no_room_each_action_still_has_a_row(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready(steps=0)
    await rig.press("6")
    rows = lines(rig)
    assert all(sum(name in row for row in rows) >= 1 for _, name, _ in ROWS)
    assert not any("Lessons" in row and "Present" in row for row in rows)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (80, 12)])
async def test_where_to_start_is_shown_before_there_is_a_text(rig: Rig, size: tuple[int, int]) -> None:
    await rig.push(rig.session.load())
    await rig.press("6")
    assert rig.app.main.view == "learn"
    assert "Lessons" in "\n".join(lines(rig))
    for tab in ("5", "4", "6", "1"):
        await rig.press(tab)
        assert rig.app.main.tab == tab
        assert rig.app.main.view == ("learn" if tab == "6" else "candidates")
    await rig.push(rig.session.open())
    await rig.press("5")
    assert rig.app.main.view == "kv"

"""Segments on the screen: margin and colours of the text, the list beside it, folding, and calls that are checked."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from textual.selection import SELECT_ALL

from engine.protocol import CheckToolCall, Ended, Failure, ToolCallChecked
from inspector.blocks.page import written
from inspector.documents.parts import Exported, exhibits_of
from inspector.documents.segments import SEGMENTS_PART
from inspector.main.panels.text import TextPanel
from inspector.state.segments import Segments
from inspector.views.segments import SegmentsView
from tests.inspector.rig import Rig
from tests.inspector.segmented import END, prefilled, prompt, step

SAID = ["<think>", "\n", "Hm a\n", "</", "think>", "\n", "Fine.\n", "<tool_call>", '{"a": }', "</tool_call>"]
THINKING, ANSWER, CALL = END + 2, END + 6, END + 8
"""Slots at which these begin."""


async def talking(rig: Rig, texts: Iterable[str] = SAID) -> None:
    opened = prompt()
    await rig.push([*rig.session.load(), Ended("Configure"), opened, prefilled(opened), Ended("Prefill")])
    await rig.push([step(END + 1 + place, text) for place, text in enumerate(texts)])
    rig.engine.sent.clear()


async def listed(rig: Rig, texts: Iterable[str] = SAID) -> SegmentsView:
    await talking(rig, texts)
    await rig.do("segments")
    assert isinstance(rig.app.top, SegmentsView)
    return rig.app.top


def letters(rig: Rig) -> str:
    """The letters in the margin of the text, from above."""
    panel = rig.app.main.query_one(TextPanel)
    rows = [panel.render_line(y - panel.scroll_offset.y) for y in range(panel._lines.rows)]
    return "".join(row.text[0] for row in rows if row.text[:1] not in " ▎")


def colours(rig: Rig) -> list[tuple[str, bool, bool, bool]]:
    """The pieces of the text with what tells them without colours: bold, italic, underlined."""
    panel = rig.app.main.query_one(TextPanel)
    found = []
    for y in range(panel._lines.rows):
        for segment in panel.render_line(y - panel.scroll_offset.y):
            if segment.style is not None and "slot" in segment.style.meta:
                style = segment.style
                found.append(
                    (segment.text.strip(), bool(style.bold), bool(style.italic), bool(style.underline))
                )
    return [each for each in found if each[0]]


# ---- the text -----------------------------------------------------------------------------------


async def test_the_margin_has_a_letter_where_a_segment_begins(rig: Rig) -> None:
    await talking(rig)
    assert letters(rig) == "UTAC", "of those that begin in one line the last has it"


async def test_a_segment_that_may_be_none_has_a_question_mark(rig: Rig) -> None:
    await talking(rig, ["<th"])
    assert letters(rig) == "?"
    await rig.push([step(END + 2, "ing")])
    assert letters(rig) == "A"


async def test_raw_text_has_no_letters(rig: Rig) -> None:
    await rig.ready()
    assert letters(rig) == ""


async def test_colour_by_segment_is_one_of_the_metrics(rig: Rig) -> None:
    await talking(rig, [*SAID[:3], "</"])
    await rig.press("M", "M", "M")
    assert rig.status == "Colour by segment"
    assert "segment that each token belongs to" in rig.screen_text()
    found = {text: look for text, *look in colours(rig)}
    assert found["p1"] == [True, False, False], "system"
    assert found["Hm a↵"] == [False, True, False], "thinking"
    assert found["</"][1], "provisional"
    await rig.push(
        [step(END + 5, "think>"), step(END + 6, "Fine"), step(END + 7, "<tool_call>"), step(END + 8, "{}")]
    )
    found = {text: look for text, *look in colours(rig)}
    assert found["Fine"] == [False, False, False]
    assert found["{}"] == [False, False, True], "a call is underlined"
    assert found["</"] == [False, False, False], "it is decided: markup"


# ---- the list -----------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_each_segment_has_a_line_with_its_figures(rig: Rig, size: tuple[int, int]) -> None:
    await listed(rig)
    text = rig.answer_text()
    for name in ("system", "user", "thinking", "answer", "tool call"):
        assert name in text
    assert "The template left out thinking of message 1" in text
    if size[0] > 60:
        assert "of all" in text
        assert "“Hm a”" in text


async def test_arrows_go_from_segment_to_segment_and_the_text_follows(rig: Rig) -> None:
    await listed(rig)
    seen = []
    for _ in range(6):
        await rig.press("up")
        seen.append(rig.timeline.slot)
    assert seen == [CALL, ANSWER, THINKING, 4, 1, 1]
    await rig.press("down")
    assert rig.timeline.slot == 4
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    assert rig.timeline.slot == 4


async def test_a_segment_folds_in_the_text(rig: Rig) -> None:
    await listed(rig)
    await rig.press("up", "up", "up", "enter")
    assert "▸ thinking, 2 tokens" in rig.screen_text()
    assert "Hm a" not in rig.app.main.query_one(TextPanel).get_selection(SELECT_ALL)[0]  # type: ignore[index]
    await rig.push([step(END + 11, " more")])
    assert "▸ thinking, 2 tokens" in rig.screen_text()
    for _ in range(4):
        await rig.press("escape")
    await rig.press("left", "left", "end", "e", "e", "e", "e")
    assert "▸ thinking, 2 tokens" in rig.screen_text(), "with borders, ids and bytes too"
    await rig.do("segments")
    await rig.press("up", "up", "up", "up", "enter")
    assert "▸ thinking" not in rig.screen_text()
    assert "Hm a" in rig.app.main.query_one(TextPanel).get_selection(SELECT_ALL)[0]  # type: ignore[index]


async def test_a_segment_that_grows_folds_too(rig: Rig) -> None:
    await listed(rig, ["<think>", "Hm", " a"])
    await rig.press("up", "enter")
    assert "▸ thinking" in rig.screen_text()
    await rig.push([step(END + 4, " long"), step(END + 5, " word")])
    assert "long" not in rig.screen_text().split("╭")[1]
    await rig.push([step(END + 6, "</think>"), step(END + 7, "So")])
    assert "▸ thinking, 4 tokens" in rig.screen_text()


async def test_raw_text_says_what_to_do(rig: Rig) -> None:
    await rig.ready()
    await rig.do("segments")
    assert "This text has one part" in rig.said()
    await rig.press("up", "down", "enter", "w")
    assert rig.app.top.said  # type: ignore[attr-defined]


async def test_foreign_text_is_made_visible(rig: Rig) -> None:
    await listed(rig, ["<think>", "\x1b[2J[b]", "</think>", "\u202ea"])
    assert "\x1b" not in rig.screen_text()
    assert "\u202e" not in rig.screen_text()


# ---- tool calls ---------------------------------------------------------------------------------


async def test_a_call_is_checked_once_it_has_ended_and_names_the_token(rig: Rig) -> None:
    await talking(rig, SAID[:-1])
    assert rig.engine.asked == []
    await rig.push([step(END + 10, SAID[-1])])
    [asked] = rig.engine.asked
    assert asked == CheckToolCall(END + 9)
    await rig.push([ToolCallChecked(END + 9, (), "Expecting value", END + 9, "json_tools")])
    assert len(rig.engine.asked) == 1, "once"
    assert '✗{"a": }' in rig.screen_text(), "the token is marked in the text"
    await rig.do("segments")
    assert "✗ A tool call can't be parsed at token 16: Expecting value" in rig.said()
    await rig.press("home", "w")
    assert rig.timeline.slot == CALL


async def test_a_call_that_the_engine_refuses_is_not_asked_about_again(rig: Rig) -> None:
    await talking(rig)
    assert len(rig.engine.asked) == 1
    await rig.push([Failure("CheckToolCall", "No.", "Wait."), Ended("CheckToolCall")])
    await rig.push([step(END + 11, "a")])
    assert len(rig.engine.asked) == 1


async def test_a_call_that_parses_names_its_function(rig: Rig) -> None:
    await talking(rig)
    await rig.push([ToolCallChecked(END + 9, ("zeta\x1b",), "", 0, "json_tools")])
    await rig.do("segments")
    assert "calls zeta␛" in rig.said()
    assert rig.timeline.of(Segments).checked[END + 9].names == ("zeta\x1b",)


async def test_segments_leave_with_an_export(rig: Rig) -> None:
    await talking(rig)
    await rig.push([ToolCallChecked(END + 9, (), "Expecting value", END + 9, "json_tools")])
    timeline = rig.timeline
    places = {item.node: place for place, item in enumerate(timeline.items)}
    [found] = exhibits_of([SEGMENTS_PART], Exported(timeline, timeline.items, places))
    page = "".join(written(each) for each in found.make())
    for words in (
        "thinking",
        "“Hm a”",
        "can't be parsed at token 16",
        "The template left out thinking of message 1",
    ):
        assert words in page
    await rig.push([prompt(runs=())])
    assert [*exhibits_of([SEGMENTS_PART], Exported(timeline, timeline.items, {}))] == []

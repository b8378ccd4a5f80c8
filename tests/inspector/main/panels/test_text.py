"""The text panel: what it draws, what it says when clicked, and that it redraws no more than it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from engine.protocol import Prefill
from engine.settings import LoadSettings
from inspector.main.panels.text import OpeningPanel, TextPanel, TextRows
from inspector.main.tool import SlotSelected
from inspector.scales import METRICS
from inspector.session.setup import Setup
from tests.inspector.fakes import HOSTILE, PROMPT, TORN, Session, long_timeline, next_step, session
from tests.inspector.painting import painting
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at


@on_screen
async def test_prompt_and_completion_are_told_apart() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(session(17).timeline())
        await pilot.pause()
        assert "▎ Once upon a time,┊ there was" in screen(pilot)
        assert style_at(pilot, "Once").color != style_at(pilot, "there").color


@on_screen
async def test_words_cut_by_tokens_stay_whole_and_newlines_are_seen() -> None:
    async with shown(TextPanel(), (40, 20)) as (panel, pilot):
        panel.show(session(43).timeline())
        await pilot.pause()
        assert "dog.↵" in screen(pilot)
        assert "Lily." in screen(pilot)


@on_screen
async def test_the_token_to_come_is_a_cell_of_its_own_and_can_be_selected() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        timeline = session(3).timeline()
        timeline.select(2)
        panel.show(timeline)
        await pilot.pause()
        x, y = find(pilot, "▁")
        await pilot.click(offset=(x, y))
        assert [message.slot for message in heard(pilot, SlotSelected)] == [8]


@on_screen
async def test_a_click_selects_the_token_under_it() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(session(10).timeline())
        await pilot.pause()
        for word in ("little", "upon"):
            await pilot.click(offset=find(pilot, word))
        assert [message.slot for message in heard(pilot, SlotSelected)] == [8, 1]


@on_screen
async def test_the_cursor_is_drawn_on_the_selected_token_alone() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        timeline = session(10).timeline()
        timeline.select(8)
        panel.show(timeline)
        await pilot.pause()
        assert style_at(pilot, "little").reverse
        timeline.select(9)
        panel.show(timeline)
        await pilot.pause()
        assert not style_at(pilot, "little").reverse
        assert style_at(pilot, "girl").reverse


@on_screen
async def test_hostile_text_is_shown_and_never_obeyed() -> None:
    made = Session(HOSTILE, temp=0.0)
    made.load()
    made.open()
    for _ in range(len(HOSTILE)):
        wanted = made._script(made.tips[made.node].position)
        made.step(next(c.id for c in made.tips[made.node].candidates if made.pieces[c.id] == wanted))
    async with shown(TextPanel(), (120, 20)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        text = screen(pilot)
        for seen in (
            "[/nope]",
            "[@click=app.quit]x[/]",
            "␛[31m",
            "‹009B›31m",
            "‹202E›evil‹202C›",
            "\ufffd",
            "⇥",
        ):
            assert seen in text
        assert not set("\x1b\x9b\x00\u202e\u200b\u200d") & set(text)


@on_screen
async def test_a_character_torn_over_tokens_is_finished_on_the_last() -> None:
    made = Session(TORN, temp=0.0)
    made.load()
    made.open()
    for _ in range(len(TORN)):
        wanted = made._script(made.tips[made.node].position)
        made.step(next(c.id for c in made.tips[made.node].candidates if made.pieces[c.id] == wanted))
    async with shown(TextPanel(), (120, 20)) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "It cost 5 ‹E2 82›€ and ‹F0 9F›‹98›😀!" in screen(pilot)


@on_screen
async def test_special_tokens_have_a_style_of_their_own() -> None:
    made = Session()
    made.load()
    made.open(("<|im_start|>", "user"))
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert style_at(pilot, "<|im_start|>").italic
        assert not style_at(pilot, "user").italic


@on_screen
async def test_heat_leaves_sure_tokens_plain_and_underlines_the_hottest() -> None:
    made = session(12)
    timeline = made.timeline()
    sure = min(timeline.steps[1:], key=lambda step: step.surprisal_bits)
    node = timeline.items[-1].node
    rare = made.tips[node].candidates[-1]
    for record in made.choose(node, rare.id):
        timeline.apply(record)
    assert timeline.steps[-1].surprisal_bits > 6
    async with shown(TextPanel()) as (panel, pilot):
        panel.metric = "surprisal"
        panel.show(timeline)
        await pilot.pause()
        plain, hot = style_at(pilot, sure.text.strip()), style_at(pilot, rare.text.strip())
        assert plain.bgcolor != hot.bgcolor
        assert not plain.underline
        assert hot.underline


@on_screen
async def test_without_colours_heat_is_carried_by_underline() -> None:
    made = session(12)
    timeline = made.timeline()
    node = timeline.items[-1].node
    rare = made.tips[node].candidates[-1]
    for record in made.choose(node, rare.id):
        timeline.apply(record)
    async with shown(TextPanel(), colours=False) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        hot = style_at(pilot, rare.text.strip())
        assert hot.underline
        assert hot.bold
        assert hot.bgcolor == style_at(pilot, "there").bgcolor


@pytest.mark.parametrize("metric", METRICS)
@on_screen
async def test_the_frame_names_the_metric_and_its_thresholds(metric: str) -> None:
    async with shown(TextPanel()) as (panel, pilot):
        panel.metric = metric
        panel.show(session(3).timeline())
        await pilot.pause()
        frame = lines(pilot)[-1]
        assert metric in frame or metric == "off"
        assert ("bits" in frame) == (metric in ("surprisal", "entropy"))


@on_screen
async def test_why_the_text_ended() -> None:
    made = session(5)
    made.finish("eos", "<|im_end|>")
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(made.timeline())
        await pilot.pause()
        assert "■ the model ended the text (<|im_end|>" in screen(pilot)
        made.step()
        panel.show(made.timeline())
        await pilot.pause()
        assert "■" not in screen(pilot)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda made: None, ("Loading some/model", "No prompt was given")),
        (lambda made: made.load(), ("no prompt yet", "Press p")),
        (
            lambda made: made.fail("There is no directory [x].", "Give a path."),
            ("no directory [x]", "Give a path."),
        ),
    ],
)
@on_screen
async def test_without_a_text_a_panel_says_why_and_what_to_press(prepare, words) -> None:  # type: ignore[no-untyped-def]
    made = Session()
    prepare(made)
    setup = cast(Setup, SimpleNamespace(load=LoadSettings(model="some/model"), prompt=Prefill("", False)))
    async with shown(OpeningPanel()) as (panel, pilot):
        panel.show(made.timeline(), setup)
        await pilot.pause()
        assert all(word in screen(pilot) for word in words)


@on_screen
async def test_prompt_that_is_still_to_be_prefilled_is_fainter() -> None:
    made = Session()
    made.load()
    opened = made.begin(echo=False)
    made.chunk(opened, 3)
    async with shown(TextPanel()) as (panel, pilot):
        panel.metric = "off"
        panel.show(made.timeline())
        await pilot.pause()
        assert style_at(pilot, "Once").color != style_at(pilot, "time").color


@on_screen
async def test_another_branch_rewraps_from_where_it_differs() -> None:
    made = session(40)
    timeline = made.timeline()
    async with shown(TextPanel(), (40, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        node = timeline.items[20].node
        other = next(c for c in made.tips[node].candidates if c.id != made.tips[node].picked)
        for record in made.choose(node, other.id):
            timeline.apply(record)
        panel.show(timeline)
        await pilot.pause()
        partly = screen(pilot)
    async with shown(TextPanel(), (40, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert screen(pilot) == partly


@on_screen
async def test_it_follows_the_tip_unless_the_person_looks_elsewhere() -> None:
    timeline = long_timeline(400)
    pattern = timeline.steps[:40]
    async with shown(TextPanel(), (40, 10)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert panel.is_vertical_scroll_end

        def go_on() -> None:
            for number in range(30):
                timeline.apply(next_step(timeline, pattern[number]))
                panel.show(timeline)

        go_on()
        assert panel.is_vertical_scroll_end
        panel.scroll_to(y=3, animate=False, immediate=True)
        go_on()
        assert panel.scroll_offset.y == 3
        timeline.select(10)
        panel.show(timeline)
        assert panel.scroll_offset.y <= 2
        go_on()
        assert panel.scroll_offset.y <= 2
        timeline.select(None)
        panel.show(timeline)
        assert panel.is_vertical_scroll_end


@on_screen
async def test_a_selected_token_is_scrolled_into_view() -> None:
    timeline = long_timeline(400)
    async with shown(TextPanel(), (40, 10)) as (panel, pilot):
        panel.show(timeline)
        for slot in (3, 300, 150, 404):
            timeline.select(slot)
            panel.show(timeline)
            await pilot.pause()
            line = panel._lines.span(slot)[0]
            assert panel.scroll_offset.y <= line < panel.scroll_offset.y + panel.size.height


@on_screen
async def test_a_copy_is_the_text_as_it_was_written() -> None:
    async with shown(TextPanel(), (40, 12)) as (panel, pilot):
        timeline = session(43).timeline()
        panel.show(timeline)
        await pilot.pause()
        whole = panel.get_selection(Selection(None, None))
        assert whole is not None
        assert whole[0] == "".join(item.text for item in timeline.items)
        x, y = find(pilot, "upon")
        content = Offset(x - 2, y - 1)
        part = panel.get_selection(Selection(content, content + Offset(6, 0)))
        assert part == ("upon a", "\n")


@on_screen
async def test_the_mouse_selects_text_without_selecting_a_token() -> None:
    async with shown(TextPanel()) as (panel, pilot):
        panel.show(session(10).timeline())
        await pilot.pause()
        x, y = find(pilot, "upon")
        await pilot.mouse_down(offset=(x, y))
        await pilot.hover(offset=(x + 3, y))
        await pilot.mouse_up(offset=(x + 3, y))
        await pilot.pause()
        assert pilot.app.screen.get_selected_text() == "upon"
        assert heard(pilot, SlotSelected) == []


@on_screen
async def test_readings_that_arrive_later_recolour_the_prompt() -> None:
    made = Session(seed=4)  # " upon" has rank 3
    made.load()
    opened = made.begin()
    timeline = made.timeline()
    async with shown(TextPanel()) as (panel, pilot):
        panel.metric = "rank"
        panel.show(timeline)
        await pilot.pause()
        for done in (3, 5):
            timeline.apply(made.chunk(opened, done))
        began = len(made.records)
        made.prefilled(opened)
        for record in made.records[began:]:
            timeline.apply(record)
        panel.show(timeline)
        await pilot.pause()
        hot = next(item for item in timeline.items if (item.rank or 1) > 1)
        assert style_at(pilot, hot.text.strip()).bgcolor != style_at(pilot, PROMPT[0]).bgcolor  # type: ignore[arg-type]


@on_screen
async def test_appending_a_token_draws_a_few_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = long_timeline(2000)
    pattern = timeline.steps[:40]
    drawn: list[int] = []
    async with shown(TextPanel(), (60, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        draw = TextRows.row
        monkeypatch.setattr(TextRows, "row", lambda self, y, *of: drawn.append(y) or draw(self, y, *of))
        with painting():
            for number in range(10):
                timeline.apply(next_step(timeline, pattern[number]))
                panel.show(timeline)
                await pilot.pause()
        assert 0 < len(drawn) <= 10 * 4


@on_screen
async def test_a_narrow_frame_has_room_for_the_legend() -> None:
    async with shown(TextPanel(), (40, 10)) as (panel, pilot):
        panel.show(session(3).timeline())
        await pilot.pause()
        assert "surprisal ≥  2  3  4  6  8  bits" in lines(pilot)[-1]
        assert "…" not in lines(pilot)[-1]


@on_screen
async def test_the_arrows_are_left_to_the_screen() -> None:
    async with shown(TextPanel()) as (panel, _):
        keys = {key for key, _ in panel._bindings}
        assert keys == {"pageup", "pagedown"}


@on_screen
async def test_a_hidden_panel_catches_up_when_it_is_shown() -> None:
    made = session(30)
    timeline = made.timeline()
    async with shown(TextPanel(), (40, 8)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        panel.display = False
        await pilot.pause()
        timeline.apply(made.move(timeline.items[7].node))
        panel.show(timeline)
        await pilot.pause()
        panel.display = True
        await pilot.pause()
        assert "there was a" in screen(pilot)
        assert "Lily" not in screen(pilot)

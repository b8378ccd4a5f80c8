"""What is to be predicted is not to be seen: panels, status line and draw line ask the timeline."""

from __future__ import annotations

import pytest

from inspector.lessons.catalogue import Listed, find
from inspector.lessons.lesson import LessonPhase
from inspector.main.narration import NarrationCard
from tests.inspector.lessons.playing import LearnerKeys

SIZE = (120, 40)


@pytest.mark.lesson(listed=find("the-draw"), size=SIZE, recorded=True)
async def test_the_token_that_was_picked_is_hidden_until_the_reveal(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    assert "fell on ?" in learner.text()
    assert "hidden until you predict" in learner.text()
    assert "▶ ␣boy" not in learner.text()
    assert "takes" not in learner.app.main.status.left
    await learner.press("1")
    await learner.until(lambda: "hidden until it is done" in learner.text())
    assert "hidden until you predict" not in learner.text()
    await learner.press("h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: "fell on ␣boy" in learner.text())
    assert "hidden until" not in learner.text()
    assert learner.app.controller.timeline.slot == learner.app.controller.timeline.step_slots[0]


@pytest.mark.lesson(listed=find("one-loop"), size=SIZE, recorded=True)
async def test_probabilities_are_hidden_in_all_panels_and_the_heat_is_off(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    learner.play.begin(2)
    await learner.phase(LessonPhase.ASKING)
    await learner.until(lambda: "Steps · hidden until you predict" in learner.text())
    assert "%" not in learner.text().replace("% full", "")
    assert "surprisal ≥" not in learner.text()
    await learner.press("2")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: "46.96 %" in learner.text())
    assert "surprisal ≥" in learner.text()


@pytest.mark.lesson(listed=find("the-cache"), size=(80, 24), recorded=True)
async def test_a_panel_is_hidden_whole(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    assert "KV cache · hidden until you predict" in learner.text()
    assert "used" not in learner.text()
    await learner.press("1", "h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: "40 KiB used" in learner.text())


@pytest.mark.lesson(listed=find("the-draw"), size=(40, 12), recorded=True)
async def test_the_panel_that_matters_keeps_three_rows_and_the_card_scrolls(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    candidates = learner.app.main.query_one("#candidates")
    await learner.until(lambda: candidates.size.height >= 3 and "pgdn" in learner.text())
    assert "dog" not in learner.text()
    await learner.press("pagedown")
    await learner.until(lambda: "dog" in learner.text())


@pytest.mark.lesson(listed=find("the-draw"), size=(100, 40), recorded=True)
async def test_the_key_for_more_of_the_card_comes_and_goes_with_the_room(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    card, seen = learner.app.main.query_one(NarrationCard), set()
    for size in ((40, 12), (160, 100), (60, 16), (200, 120), (40, 12)):
        await learner.pilot.resize_terminal(*size)
        await learner.until(lambda: ("pgdn" in learner.text()) is card.show_vertical_scrollbar)
        seen.add(card.overflows)
    assert seen == {True, False}


@pytest.mark.lesson(listed=find("one-loop"), size=(60, 20), recorded=True)
async def test_an_answer_that_was_made_taller_leaves_the_card_its_room(learner: LearnerKeys) -> None:
    await learner.phase(LessonPhase.ASKING)
    main = learner.app.main
    main._panel_layout.sizes["candidates"] = 12
    await learner.press("5")
    await learner.until(lambda: main.tab == "5" and main.query_one("#kv").region.height > 0)
    kv, timing = (main.query_one(f"#{id}").region for id in ("kv", "timing"))
    assert (kv.bottom, timing.bottom) == (timing.y, main.query_one(NarrationCard).region.y)


@pytest.mark.lesson(listed=find("the-cache"), size=SIZE, recorded=True)
async def test_the_race_opens_at_its_reveal_and_closes_for_the_next_panel(learner: LearnerKeys) -> None:
    """In the recording, too: there its key shows what was measured."""
    await learner.phase(LessonPhase.ASKING)
    learner.play.begin(2)
    await learner.phase(LessonPhase.ASKING)
    assert learner.app.main.over == ""
    await learner.press("2", "h")
    await learner.phase(LessonPhase.REVEALED)
    await learner.until(lambda: learner.app.main.over == "race" and "all 112 the same" in learner.text())
    assert "Each step computes" in learner.text() or "each step computes" in learner.text()
    await learner.press("enter")
    await learner.phase(LessonPhase.ASKING)
    await learner.until(lambda: learner.app.main.over == "" and "What it costs" in learner.text())


@pytest.mark.wide(1)
@pytest.mark.parametrize(("listed", "rows"), [(find("ending"), 4), (find("the-draw"), 2)])
@pytest.mark.lesson(size=(120, 24), recorded=True)
async def test_the_text_keeps_its_rows_over_the_steps(
    learner: LearnerKeys, listed: Listed, rows: int
) -> None:
    """Half of what the card leaves where the lesson is about it, and never less than two."""
    await learner.phase(LessonPhase.ASKING)
    text = learner.app.main.query_one("#text")
    await learner.until(lambda: text.size.height >= rows)
    await learner.press("1")  # the card has another line
    await learner.phase(LessonPhase.ACTING)
    await learner.until(lambda: text.size.height >= rows)

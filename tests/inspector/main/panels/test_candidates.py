"""The candidates: columns, cut ones, the rest of the vocabulary, the draw, and taking one."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style

from engine.protocol import Candidate, PromptToken
from engine.settings import Settings
from inspector.main.panels.candidates import MARK, CandidatesPanel, columns, draw_line, rows_of
from inspector.main.tool import CandidateChosen
from inspector.state.timeline import StageExplanation, Timeline, Trial
from inspector.widgets.charts import bar
from tests.inspector.explanations import explained
from tests.inspector.fakes import PROMPT, Session, session
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at

INKS = {name: Style() for name in ("muted", "accent", "strong", "faint", "data")}


def with_candidates(timeline: Timeline, *changed: Candidate, **distribution: object) -> Timeline:
    """The timeline with another distribution after its tip."""
    assert timeline.next is not None
    timeline.next = replace(timeline.next, candidates=changed or timeline.next.candidates, **distribution)  # type: ignore[arg-type]
    timeline.select(None)
    return timeline


def candidate(id: int, text: str, prob: float, rank: int, after: float, cut: str | None = None) -> Candidate:
    return Candidate(id, text, text.encode(), False, -1.0, prob, rank, after, cut)


THREE = (
    candidate(339, " toys", 0.612, 1, 0.724),
    candidate(1203, " dolls", 0.14, 2, 0.276),
    candidate(2210, " hair", 0.012, 5, 0.0, "top-p"),
)


@on_screen
async def test_every_row_has_its_numbers_and_a_cut_one_the_stage() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        panel.show(with_candidates(session(3).timeline(), *THREE, picked=339))
        await pilot.pause()
        rows = lines(pilot)
        assert rows[1].split()[1:-1] == ["token", "model", "sampler", "rank", "id"]
        for row, words in zip(
            rows[2:5],
            (
                ("▶", "␣toys", "61.20 %", "72.40 %", "1", "339"),
                ("␣dolls", "14.00 %", "27.60 %", "2", "1203"),
                ("␣hair", "1.20 %", "top-p", "5", "2210"),
            ),
            strict=True,
        ):
            assert all(word in row for word in words), row


@on_screen
async def test_the_rest_of_the_vocabulary_is_one_row_with_its_mass() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        timeline = with_candidates(session(3).timeline(), *THREE, others=4093, others_prob=0.089)
        panel.show(timeline)
        await pilot.pause()
        row = next(line for line in lines(pilot) if "others" in line)
        assert "4,093 others" in row
        assert "8.90 %" in row
        assert "cut" in row


@on_screen
async def test_the_title_tells_the_choice_that_the_model_saw() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        timeline = with_candidates(session(3).timeline(), entropy_bits=2.31, sampler_entropy_bits=1.5)
        panel.show(timeline)
        await pilot.pause()
        assert "Next token · model entropy 2.31 bits ─" in lines(pilot)[0]
        assert " sampler entropy 1.50 bits" in lines(pilot)[-1]


@on_screen
async def test_the_title_of_a_prompt_token_names_the_entropy_too() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        timeline = session(3).timeline()
        timeline.select(2)
        panel.show(timeline)
        await pilot.pause()
        item = timeline.selected
        assert isinstance(item, PromptToken)
        assert item.entropy_bits is not None
        assert f"Prompt token 3 · model entropy {item.entropy_bits:.2f} bits ─" in lines(pilot)[0]


@on_screen
async def test_the_highlight_begins_at_the_taken_token_and_moves_within_the_rows() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        timeline = with_candidates(session(3).timeline(), *THREE, picked=1203)
        panel.show(timeline)
        assert panel.highlighted == 1
        assert panel.candidate == THREE[1]
        told = []
        for by in (1, 1, -9):
            panel.move(by)
            await pilot.pause()
            told.append((panel.highlighted, len(heard(pilot, CandidatesPanel.CandidateHighlighted))))
        assert told == [(2, 1), (2, 1), (0, 2)]
        assert panel.candidate == THREE[0]


@on_screen
async def test_an_improbable_token_is_below_the_best_ones_from_which_up_leads_to_them() -> None:
    made = Session(count=40)
    made.load(), made.open()
    timeline = with_candidates(made.timeline(), picked=made.timeline().candidates[30].id)
    async with shown(CandidatesPanel(), size=(60, 15)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert [int(line.split()[-3]) for line in lines(pilot)[2:12]] == [*range(1, 10), 31]
        panel.move(-1)
        assert panel.candidate is not None
        assert panel.candidate.rank == 9


@on_screen
async def test_the_highlight_stays_while_the_same_slot_is_shown_again() -> None:
    async with shown(CandidatesPanel()) as (panel, _):
        made = session(3)
        timeline = made.timeline()
        panel.show(timeline)
        panel.move(3)
        kept = panel.highlighted
        panel.show(timeline)
        assert panel.highlighted == kept
        timeline.apply(made.step())
        panel.show(timeline)
        assert panel.candidate is not None
        assert panel.candidate.id == timeline.taken


@on_screen
async def test_a_click_highlights_and_a_second_click_chooses() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        panel.show(with_candidates(session(3).timeline(), *THREE, picked=339))
        await pilot.pause()
        await pilot.click(offset=find(pilot, "␣dolls"))
        assert panel.highlighted == 1
        assert heard(pilot, CandidateChosen) == []
        await pilot.click(offset=find(pilot, "␣dolls"))
        assert [message.id for message in heard(pilot, CandidateChosen)] == [1203]
        await pilot.click(offset=find(pilot, "others"))
        assert len(heard(pilot, CandidateChosen)) == 1


@on_screen
async def test_the_first_row_and_the_taken_one_stay_in_view() -> None:
    made = Session(count=40)
    made.load(), made.open()
    timeline = with_candidates(made.timeline(), picked=made.timeline().candidates[12].id)
    async with shown(CandidatesPanel(), size=(60, 9)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        for by in (0, 20, -9, -30):
            panel.move(by)
            panel.show(timeline)  # as the main screen does then
            await pilot.pause()
            ranks = [int(line.split()[-3]) for line in lines(pilot)[2:6]]
            assert {1, 13, panel.highlighted + 1} <= set(ranks), ranks
            assert ranks == sorted(ranks)
            gaps = ["⋮" in line[2:5] for line in lines(pilot)[2:6]]
            assert any(gaps) == (ranks != list(range(1, 5)))


@on_screen
async def test_the_highlighted_row_is_always_in_view() -> None:
    made = Session(count=40)
    made.load()
    made.open()
    async with shown(CandidatesPanel(), (60, 10)) as (panel, pilot):
        panel.show(timeline := made.timeline())
        for _ in range(39):
            panel.move(1)
            panel.show(timeline)
        await pilot.pause()
        assert panel.candidate is not None
        assert any("▌" in line and f" {panel.candidate.id} " in line for line in lines(pilot))
        panel.move(-39)
        panel.show(timeline)
        await pilot.pause()
        assert any("▌" in line for line in lines(pilot)[1:3])


@pytest.mark.parametrize(
    ("width", "kept"),
    [(60, ("sampler", "rank", "id")), (48, ("sampler", "rank")), (40, ("sampler",)), (28, ())],
)
def test_columns_give_way_one_by_one(width: int, kept: tuple[str, ...]) -> None:
    fit = columns(width, True)
    assert fit.numbers == kept


def test_a_long_token_has_the_room_of_the_bar_before_it_is_cut() -> None:
    assert columns(54, True, 5) == columns(54, True)
    fit, long = columns(54, True), columns(54, True, 18)
    assert (fit.token, fit.bar, long.token, long.bar) == (10, 8, 18, 4)
    assert long.numbers == fit.numbers
    assert columns(54, True, 99) == long
    assert (columns(54, False, 18).token, columns(54, False, 99).token) == (18, 22)


@pytest.mark.parametrize("width", range(24, 130))
@pytest.mark.parametrize("sampler", [True, False])
def test_columns_and_bars_fill_the_width(width: int, sampler: bool) -> None:
    fit = columns(width, sampler)
    numbers = 3 + 8 + sum({"sampler": 9, "rank": 7, "id": 8}[name] for name in fit.numbers)
    assert fit.token + 1 + fit.bar * (1 + ("sampler" in fit.numbers)) + numbers == width


BARS = "▏▎▍▌▋▊▉█"


def bars_of(line: str) -> list[str]:
    """The bars in a row of the panel, without the sign of the highlighted row."""
    return re.findall(f"[{BARS}]+", line[3:])


@pytest.mark.parametrize("width", [40, 60])
@on_screen
async def test_a_row_has_a_bar_and_a_number_of_the_model_and_of_the_sampler(width: int) -> None:
    async with shown(CandidatesPanel(), (width, 20)) as (panel, pilot):
        panel.show(with_candidates(session(3).timeline(), *THREE, picked=339))
        await pilot.pause()
        rows = lines(pilot)
        assert rows[1].split()[1:4] == ["token", "model", "sampler"]
        cells = columns(width - 4, True, 6).bar
        assert cells >= 4
        for row, (model, sampler) in zip(rows[2:4], ((0.612, 0.724), (0.14, 0.276)), strict=True):
            assert bars_of(row) == [bar(model, cells).strip(), bar(sampler, cells).strip()], row
            assert row.index(f"{model:.2%}"[:-1] + " %") < row.index(f"{sampler:.2%}"[:-1] + " %")
        assert len(bars_of(rows[4])) == 1  # no bar where a stage cut it
        inks = [style_at(pilot, drawn) for drawn in bars_of(rows[2])]
        assert len({ink.color for ink in inks}) == 2


@pytest.mark.parametrize(("width", "head"), [(60, "model = sampler"), (40, "model = sampler"), (24, "both")])
@on_screen
async def test_what_no_stage_changes_is_said_once(width: int, head: str) -> None:
    same = [replace(each, sampler_prob=each.prob + 4e-7, cut_by=None) for each in THREE]
    async with shown(CandidatesPanel(), (width, 20)) as (panel, pilot):
        timeline = with_candidates(session(3).timeline(), *same, picked=339, others_prob=0.236)
        panel.show(with_candidates(timeline, others_sampler_prob=0.236))
        await pilot.pause()
        rows = lines(pilot)
        assert head in rows[1], screen(pilot)
        assert rows[2].count(" %") == 1
        assert len(bars_of(rows[2])) <= 1
        timeline.changes += 1
        panel.show(with_candidates(timeline, THREE[0], replace(THREE[1], sampler_prob=0.14, cut_by="top-p")))
        await pilot.pause()
        assert head not in lines(pilot)[1]


@on_screen
async def test_settings_that_are_tried_move_the_second_bar_and_its_number_alone() -> None:
    timeline = with_candidates(session(3).timeline(), *THREE, picked=339)
    assert timeline.next is not None
    shares = zip(THREE, (0.5, 0.3, 0.2), strict=True)
    flat = tuple(replace(each, sampler_prob=share, cut_by=None) for each, share in shares)
    tried = replace(timeline.next, candidates=flat)
    async with shown(CandidatesPanel()) as (panel, pilot):
        panel.show(timeline)
        panel.move(1)
        panel.show(timeline)
        await pilot.pause()
        before = lines(pilot)
        timeline.trial = Trial(Settings(temp=2.0))
        panel.show(timeline)
        await pilot.pause()
        assert lines(pilot) == before  # nothing was told of them yet
        told = explained(tried, used=False)
        timeline.trial.last_explanation = StageExplanation(timeline.next, timeline.trial.settings, told)
        panel.show(timeline)
        await pilot.pause()
        rows = lines(pilot)
        assert rows[1].split()[1:4] == ["token", "model", "tried"]
        for row, words in zip(
            rows[2:5], ("61.20 % 50.00 %", "14.00 % 30.00 %", "1.20 % 20.00 %"), strict=True
        ):
            assert words in re.sub(f"[ {BARS}]+", " ", row)
        assert panel.candidate is not None
        assert panel.candidate.id == THREE[1].id
        assert "tried: sampler entropy" in rows[-1]
        timeline.trial = None
        panel.show(timeline)
        await pilot.pause()
        assert lines(pilot) == before


@pytest.mark.parametrize("width", [24, 30, 44, 60, 120])
@on_screen
async def test_no_row_is_wider_than_the_panel(width: int) -> None:
    async with shown(CandidatesPanel(), (width, 20)) as (panel, pilot):
        panel.show(session(5).timeline())
        await pilot.pause()
        assert all(cell_len(line) <= width for line in lines(pilot))
        assert any("▌▶" in line and " %" in line for line in lines(pilot))


@on_screen
async def test_a_prompt_token_shows_what_was_expected_and_that_nothing_was_drawn() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        timeline = session(3).timeline()
        timeline.select(2)
        panel.show(timeline)
        await pilot.pause()
        assert "Prompt token 3" in lines(pilot)[0]
        assert "nothing was drawn" in screen(pilot)
        assert "sampler" not in lines(pilot)[1]
        assert any("▶" in line and "␣a " in line for line in lines(pilot))
        await pilot.resize_terminal(60, 8)
        await pilot.pause()
        assert "more rows ↑↓" in lines(pilot)[-1]


@on_screen
async def test_what_has_no_row_is_counted_with_the_others() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        panel.show(with_candidates(session(3).timeline(), *THREE, others=4093, others_prob=0.089))
        await pilot.resize_terminal(60, 6)
        await pilot.pause()
        row = next(line for line in lines(pilot) if "others" in line)
        hidden = int(re.search(r"(\d) more rows", lines(pilot)[-1])[1])
        assert f"{4093 + hidden:,} others" in row
        assert "8.90 %" not in row


@pytest.mark.parametrize(
    ("slot", "echo", "words"),
    [(0, True, ("first token", "→")), (2, False, ("Prompt logprobs are off", "2,048"))],
)
@on_screen
async def test_where_there_are_no_candidates_it_says_why(
    slot: int, echo: bool, words: tuple[str, ...]
) -> None:
    made = Session()
    made.load()
    made.open(echo=echo)
    async with shown(CandidatesPanel(), (100, 20)) as (panel, pilot):
        timeline = made.timeline()
        timeline.select(slot)
        panel.show(timeline)
        await pilot.pause()
        assert all(word in screen(pilot) for word in words)
        assert panel.candidate is None


@on_screen
async def test_a_token_beyond_the_candidates_gets_a_row() -> None:
    timeline = session(3).timeline()
    step = timeline.items[-1]
    timeline.items[-1] = replace(
        step, id=9999, text=" rare", raw=b" rare", prob=1e-6, rank=3000, origin="inserted"
    )  # type: ignore[call-arg]
    timeline.select(len(timeline.items) - 1)
    assert rows_of(timeline)[-1].id == 9999
    async with shown(CandidatesPanel()) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert panel.candidate is not None
        assert panel.candidate.id == 9999
        assert "<0.01 %" in screen(pilot)


@on_screen
async def test_a_chosen_token_is_told_from_what_the_draw_would_take() -> None:
    made = session(5)
    node = made.timeline().items[-1].node
    other = next(c for c in made.tips[node].candidates if c.id != made.tips[node].picked)
    made.choose(node, other.id)
    timeline = made.timeline()
    timeline.select(len(timeline.items) - 1)
    async with shown(CandidatesPanel(), (90, 20)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "Step 6, chosen by hand" in lines(pilot)[0]
        assert f"fell on ␣{made.pieces[made.tips[node].picked].strip()}" in screen(pilot)
        assert panel.candidate is not None
        assert panel.candidate.id == other.id


@on_screen
async def test_markup_in_a_token_is_text() -> None:
    async with shown(CandidatesPanel()) as (panel, pilot):
        nasty = candidate(7, "[/]\x1b[31m", 0.5, 1, 0.5)
        panel.show(with_candidates(session(3).timeline(), nasty, picked=7))
        await pilot.pause()
        assert "[/]␛[31m" in screen(pilot)


def drawn(width: int, **changes: object) -> str:
    """The line of the draw without the room of the marks before it."""
    timeline = session(len(PROMPT)).timeline()
    assert timeline.next is not None
    made = replace(timeline.next, candidates=THREE, picked=339, draw=0.417, draw_from=0.0, draw_to=0.724)
    timeline.next = replace(made, **changes)  # type: ignore[arg-type]
    row = draw_line(timeline, timeline.next, MARK + width, INKS)
    return "".join(segment.text for segment in row)[MARK:]


def test_the_draw_is_a_mark_on_the_distribution_it_was_drawn_from() -> None:
    line = drawn(60)
    assert line.startswith("draw 0.417 ▕")
    assert line.endswith("▏ fell on ␣toys")
    scale = line[line.index("▕") + 1 : line.index("▏")]
    assert scale.index("●") == int(0.417 * len(scale))
    assert scale.index("┆") == int(0.724 * len(scale))
    assert "─" not in scale[: scale.index("┆")]


def test_a_greedy_step_has_no_draw() -> None:
    assert drawn(60, draw=None, draw_from=None, draw_to=None) == "greedy: no draw"


def test_a_second_draw_says_so_and_a_narrow_line_keeps_the_scale() -> None:
    assert "(re-roll 2) fell on" in drawn(60, reroll=2)
    assert "fell" not in drawn(26)
    assert "●" in drawn(26)


def test_a_draw_with_more_digits_leaves_its_token_whole() -> None:
    narrow = drawn(40, draw=0.41702, draw_from=0.41701, draw_to=0.41703)
    assert narrow.startswith("draw 0.4170"), "it needs more digits than 0.417"
    assert narrow.endswith("fell on ␣toys")
    assert cell_len(narrow) <= 40


@pytest.mark.parametrize("draw", [0.0, 0.7239, 0.999999])
@pytest.mark.parametrize("width", [14, 20, 40, 80])
def test_the_line_never_outgrows_its_width(draw: float, width: int) -> None:
    assert cell_len(drawn(width, draw=draw)) <= max(width, 14)


@on_screen
async def test_what_is_drawn_for_another_size_before_it_is_shown_is_drawn_again() -> None:
    """The cursor has moved, and the panel gets another size before it is shown that: its rows are those of before."""
    timeline = session(9).timeline()
    by_place: dict[int, list[int]] = {}
    for slot, step in zip(timeline.step_slots, timeline.steps, strict=True):
        by_place.setdefault([each.id for each in step.choice.candidates].index(step.id), []).append(slot)
    before, after = next(slots for slots in by_place.values() if len(slots) > 1)[:2]
    async with shown(CandidatesPanel(), (60, 12)) as (panel, pilot):
        timeline.select(before)
        panel.show(timeline)
        await pilot.pause()
        timeline.select(after)
        panel.redraw()
        panel.show(timeline)
        await pilot.pause()
        first = timeline.candidates[0]
        assert f" {first.id} " in lines(pilot)[2], screen(pilot)

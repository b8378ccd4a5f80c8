"""The sampler panel: the reason in words, the bar, and a column a stage."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.style import Style

from engine.protocol import Distribution, Failure, StageColumn, StageReading
from engine.settings import Settings
from inspector.documents.sampler import Reason, columns, fitting, penalised, xtc
from inspector.main.tool import CandidateChosen, CandidateClicked
from inspector.state.timeline import StageExplanation, Timeline, Trial
from inspector.views.sampler import SamplerPanel, trial_summary
from inspector.widgets.charts import places, ruler
from tests.inspector.explanations import answered, candidate, distribution, explained
from tests.inspector.fakes import HOSTILE, Session, session
from tests.inspector.panels_app import find, heard, lines, on_screen, screen, shown, style_at

USED = Settings(temp=0.8, top_p=0.99)
STAGES = (StageReading("top-p", 3, 0.01), StageReading("temperature", 3, 0.0))
SURPRISE = distribution(
    [candidate(1, " hat", 0.96, 0.968), candidate(2, " mat", 0.012, 0.013), candidate(3, ",", 0.011, 0.019),
     candidate(4, " cat", 0.005, 0.0, "top-p")],
    picked=2, draw=0.99, stages=STAGES,
)  # fmt: skip


def words(told: Distribution, settings: Settings | None = USED, *rest: object) -> str:
    return " ".join(Reason(told, settings, *rest).sentences()).replace("\u00a0", " ")


def timeline_of(told: Distribution, settings: Settings = USED, **changes: object) -> Timeline:
    """At the tip, with what the engine told of it."""
    timeline = session(6).timeline()
    timeline.next = told
    timeline.select(None)
    timeline.last_explanation = StageExplanation(told, settings, explained(told), None)
    for name, value in changes.items():
        setattr(timeline, name, value)
    return timeline


# ---- words ------------------------------------------------------------------------------------


def test_one_percent_over_96_is_explained():
    assert words(SURPRISE) == (
        "“␣mat” has 1.20 % by the model (rank 2); top-p kept 3 tokens, temperature 0.8 sharpened the distribution; it "
        "now covers 1.30 % of the line. The draw 0.990 falls on its share, 0.987 to 1.000. "
        "The top candidate “␣hat” (96.00 %) covers 0 to 0.968; the draw missed it."
    )


def test_a_token_that_is_left_alone_was_not_flattened():
    alone = replace(SURPRISE, stages=[StageReading("top-p", 1, 0.04), StageReading("temperature", 1, 0.0)])
    assert "; top-p kept 1 token; it now covers" in words(alone, replace(USED, temp=1.6))


@pytest.mark.parametrize(
    ("against", "first"),
    [
        (3, "“,” (1.10 %) covers 0.968 to 0.987; the draw missed it."),
        (4, "“␣cat” (0.50 %) can't be drawn: top-p cut it."),
    ],
)
def test_why_it_is_not_the_highlighted_one_comes_first(against: int, first: str):
    said = " ".join(Reason(SURPRISE, USED, against=against).sentences()).replace("\u00a0", " ")
    assert said.startswith(f"{first} The draw 0.990 falls on “␣mat”, 0.987 to 1.000. “␣mat” has 1.20 %")
    assert "␣hat" not in said


def test_greedy_says_why_it_is_not_the_highlighted_one():
    greedy = distribution([candidate(1, " a", 0.6, 1.0), candidate(2, " b", 0.3, 0.0, "greedy")], 1)
    assert Reason(greedy, against=2).sentences()[1] == "“␣b” (30.00\u00a0%) is not taken: its logit is lower."


def test_greedy_says_that_there_was_no_draw():
    greedy = distribution([candidate(1, " a", 0.6, 1.0), candidate(2, " b", 0.3, 0.0, "greedy")], 1)
    assert words(greedy) == "Greedy takes the most probable token, “␣a”: there is no draw."


def test_greedy_after_a_penalty_names_the_favourite_and_what_put_it_back():
    told = distribution(
        [candidate(1, " a", 0.6, 0.0, "greedy"), candidate(2, " b", 0.3, 1.0)], 2,
        stages=[StageReading("repetition", 4096, 0.0), StageReading("greedy", 1, 0.7)],
    )  # fmt: skip
    column = StageColumn("repetition", 4096, 0.0, "logit", (7.4, 8.8))
    text = words(told, USED, replace(explained(told, [column]), logits=(9.49, 8.8)))
    assert "Greedy takes “␣b”" in text
    assert "favourite is “␣a” (60.00 %), but repetition lowered its logit 9.49 to 7.40." in text


def test_a_favourite_that_was_cut_says_by_what():
    told = distribution(
        [candidate(1, " a", 0.6, 0.0, "xtc"), candidate(2, " b", 0.3, 1.0)],
        2,
        0.5,
        [StageReading("xtc", 4095, 0.6)],
    )
    assert "“␣a” (60.00 %) can't be drawn: xtc cut it." in words(told)


def test_a_token_chosen_by_hand_says_so_first():
    made = session(6)
    timeline = made.timeline()
    step = replace(timeline.steps[-1], origin="chosen", id=-1, text=" dog")
    first = Reason(step.choice, USED).sentences(step)[0]
    assert first == "“␣dog” was chosen by hand; the sampler would have taken another."


def test_what_is_tried_is_set_against_what_stands():
    other = replace(SURPRISE, picked=1, draw_from=0.0, draw_to=0.995)
    assert Reason(other, USED).tried(SURPRISE)[0] == "The same draw 0.990 would take “␣hat”, not “␣mat”."
    assert Reason(SURPRISE, USED).tried(SURPRISE)[0] == "The same draw 0.990 would take “␣mat” again."
    greedy = distribution([candidate(1, " hat", 0.96, 1.0)], 1)
    assert (
        Reason(greedy, Settings()).tried(SURPRISE)[0]
        == "Greedy would take “␣hat”, not “␣mat”, without a draw."
    )


def test_decimals_tell_the_ends_of_a_narrow_share_apart():
    assert places(replace(SURPRISE, draw=0.5, draw_from=0.4, draw_to=0.6)) == ("0.500", "0.400", "0.600")
    narrow = replace(SURPRISE, draw=0.12345678, draw_from=0.12345600, draw_to=0.12345700)
    assert places(narrow) == ("0.123456", "0.123456", "0.123457")
    assert places(replace(SURPRISE, draw=0.99999999, draw_from=0.5, draw_to=1.0))[0] == "0.999"


@pytest.mark.parametrize(
    ("settings", "stages", "told"),
    [
        (Settings(temp=1.0), (), ""),
        (None, (), ""),
        (Settings(temp=0.0, xtc_probability=0.5), (), ""),
        (Settings(temp=1.0, xtc_probability=0.5), (), "XTC did not fire here"),
        (
            Settings(temp=1.0, xtc_probability=0.5),
            (StageReading("xtc", 4094, 0.5),),
            "XTC fired: it cut the 2",
        ),
        (Settings(temp=1.0, xtc_probability=1.0), (StageReading("xtc", 4096, 0.0),), "it cut none"),
    ],
)
def test_xtc_says_whether_it_fired(settings, stages, told):
    assert xtc(replace(SURPRISE, stages=stages), settings).startswith(told) or told in xtc(
        replace(SURPRISE, stages=stages), settings
    )
    assert bool(xtc(replace(SURPRISE, stages=stages), settings)) == bool(told)


def test_a_penalty_names_the_earlier_occurrences():
    timeline = session(6).timeline()
    settings = Settings(repetition_penalty=1.2, frequency_penalty=0.1)
    text = penalised(SURPRISE.candidates[0], (2, 7), timeline.items, settings)
    before = [timeline.items[1].text.strip(), timeline.items[6].text.strip()]
    assert text.startswith("“␣hat” is penalised by repetition and frequency: it occurs in the prompt after")
    assert "at step 3 after" in text
    assert all(word in text for word in before)
    assert penalised(SURPRISE.candidates[0], (), timeline.items, settings) == ""


# ---- columns ----------------------------------------------------------------------------------


def test_a_column_a_stage_in_its_order_with_what_it_kept_cut_and_is_set_to():
    found = columns(SURPRISE, explained(SURPRISE), USED)
    assert [column.name for column in found] == ["logit", "model", "top-p", "temperature", "final"]
    assert [column.setting for column in found] == ["", "", "0.99", "0.8", ""]
    assert [column.kept for column in found] == [None, 4096, 3, 3, 3]
    assert found[2].removed == 0.01
    assert found[2].cells == ("96.00", "1.20", "1.10", "")
    assert found[-1].cells == ("96.80", "1.30", "1.90", "")


def test_numbers_that_are_not_told_are_a_dot_and_the_rest_stands():
    found = columns(SURPRISE, None, None)
    assert found[0].cells == ("·",) * 4
    assert found[2].cells == ("·", "·", "·", "")
    assert found[1].cells[0] == "96.00"
    assert found[-1].cells == ("96.80", "1.30", "1.90", "")


def test_beside_settings_that_are_tried_stands_the_probability_as_it_is():
    now = replace(SURPRISE, candidates=SURPRISE.candidates[:2])
    found = columns(SURPRISE, explained(SURPRISE), USED, now)
    assert [column.name for column in found][-2:] == ["final", "now"]
    assert found[-1].cells == ("96.80", "1.30", "·", "·")


def test_stages_that_change_logits_have_no_percent_where_their_values_are_not_known():
    stages = [StageReading(name, 4096, 0.0) for name in ("grammar", "logit-bias", "min-tokens", "top-p")]
    found = columns(replace(SURPRISE, stages=tuple(stages)), None, USED)
    assert [column.head for column in found][2:-1] == ["grammar", "bias", "barred", "top-p %"]


def test_columns_that_do_not_fit_give_way_and_are_counted():
    found = columns(SURPRISE, explained(SURPRISE), USED)
    assert fitting(found, 100) == (found, 0)
    kept, missing = fitting(found, 32)
    assert ([column.name for column in kept], missing) == (["model", "top-p", "temperature", "final"], 0)
    kept, missing = fitting(found, 16)
    assert ([column.name for column in kept], missing) == (["model", "final"], 2)


# ---- the bar ----------------------------------------------------------------------------------


def test_the_draw_points_into_the_share_of_the_picked_token():
    told = distribution([candidate(1, " a", 0.5, 0.5), candidate(2, " b", 0.5, 0.5)], 2, 0.75)
    inks = {name: Style() for name in ("muted", "accent", "strong", "faint", "data", "other")}
    pointer, bar, names = ("".join(part.text for part in row) for row in ruler(told, 42, inks))
    assert pointer.index("▼") == bar.index("◆") == 1 + 30
    assert bar[1:21] == "█" * 20
    assert set(bar[21:41]) == {"━", "◆"}
    assert names.index("␣b") == 21


def test_without_a_draw_there_is_no_bar():
    assert ruler(replace(SURPRISE, draw=None), 60, {}) == []


# ---- on screen --------------------------------------------------------------------------------


@on_screen
async def test_the_panel_tells_the_choice_and_where_the_others_fell_out():
    async with shown(SamplerPanel(), (60, 34)) as (panel, pilot):
        timeline = timeline_of(SURPRISE)
        panel.show(timeline, USED, SURPRISE.candidates[1])
        await pilot.pause()
        text = screen(pilot)
        assert "Why “␣mat” · step 7 (next)" in text
        assert "draw 0.990" in text
        assert "1 %" in text
        row = lines(pilot)[find(pilot, "␣cat")[1]]
        assert "✕ top-p" in row
        assert lines(pilot)[find(pilot, "▶ ␣mat")[1]].count("1.30") == 1
        assert "4,092 others" in text


@on_screen
async def test_a_large_vocabularys_others_are_counted_whole() -> None:
    async with shown(SamplerPanel(), (52, 34)) as (panel, pilot):
        large = replace(SURPRISE, others=151_979)
        panel.show(timeline_of(large), USED, large.candidates[1])
        await pilot.pause()
        rest = next(line for line in lines(pilot) if "151,979" in line)
        assert "…" not in rest


@on_screen
async def test_a_click_highlights_and_another_takes():
    async with shown(SamplerPanel(), (60, 34)) as (panel, pilot):
        panel.show(timeline_of(SURPRISE), USED, SURPRISE.candidates[1])
        await pilot.pause()
        x, y = find(pilot, "96.80")
        await pilot.click(offset=(x, y))
        assert [message.id for message in heard(pilot, CandidateClicked)] == [1]
        x, y = find(pilot, "▶ ␣mat")
        await pilot.click(offset=(x + 3, y))
        assert [message.id for message in heard(pilot, CandidateChosen)] == [2]


@on_screen
async def test_dropped_logits_are_said_with_the_key_and_the_rest_stays():
    async with shown(SamplerPanel(), (60, 34)) as (panel, pilot):
        failure = Failure("Explain", "The logits of this step were dropped.", "")
        timeline = timeline_of(SURPRISE, last_explanation=StageExplanation(SURPRISE, USED, None, failure))
        panel.show(timeline, USED, SURPRISE.candidates[1])
        await pilot.pause()
        assert "logits dropped · 1 ctrl+r computes them again." in screen(pilot)
        assert "The logits of this step were dropped." in screen(pilot)
        assert "96.80" in screen(pilot)


@on_screen
async def test_an_answer_about_another_place_is_not_shown_here():
    async with shown(SamplerPanel(), (60, 34)) as (panel, pilot):
        other = replace(SURPRISE, node=99)
        timeline = timeline_of(
            SURPRISE, last_explanation=StageExplanation(other, USED, explained(other), None)
        )
        panel.show(timeline, USED, None)
        await pilot.pause()
        assert "·" in lines(pilot)[find(pilot, "96.80")[1]]


@on_screen
async def test_the_prompt_has_no_sampler():
    async with shown(SamplerPanel(), (60, 20)) as (panel, pilot):
        timeline = session(3).timeline()
        timeline.select(1)
        panel.show(timeline, USED, None)
        await pilot.pause()
        assert "This token is part of the prompt" in screen(pilot)
        panel.show(Timeline())
        await pilot.pause()
        assert "loading" in screen(pilot)


@on_screen
async def test_a_trial_marks_what_would_be_picked_and_counts_the_steps():
    async with shown(SamplerPanel(), (70, 34)) as (panel, pilot):
        tried = replace(USED, temp=1.5)
        other = replace(SURPRISE, picked=1, draw_from=0.0, draw_to=0.995)
        timeline = timeline_of(SURPRISE)
        answers = {step.node: step for step in answered(timeline, [1, 4], [2]).steps}
        timeline.trial = Trial(
            tried,
            StageExplanation(SURPRISE, tried, explained(other, used=False)),
            answers,
            (0,),
            timeline.tip,
        )
        panel.show(timeline, USED, SURPRISE.candidates[1])
        await pilot.pause()
        text = screen(pilot)
        assert "Preview · step 7 (next) · temperature 0.8 → 1.5" in text
        assert "The same draw 0.990 would take “␣hat”, not “␣mat”." in text
        assert "≠ ␣hat" in text
        assert "▶ ␣mat" in text
        assert trial_summary(timeline) == (
            "2 of 5 steps would differ; 1 can't be answered: their logits were dropped (1 ctrl+r recomputes)"
        )


def test_nothing_is_asked_before_the_first_step():
    timeline = session(0).timeline()
    timeline.trial = Trial(USED)
    assert trial_summary(timeline) == ""


def test_tokens_chosen_by_hand_are_counted_apart():
    timeline = session(6).timeline()
    step = timeline.items[-1]
    timeline.items[-1] = replace(step, origin="chosen")
    timeline.trial = Trial(USED)
    assert trial_summary(timeline) == "asking …"
    timeline.trial.answers = {each.node: each for each in answered(timeline, [5]).steps}
    timeline.trial.answered = timeline.tip
    assert trial_summary(timeline) == "0 of 5 steps would differ (1 was your choice)"


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (60, 17), (80, 11), (40, 12), (40, 5), (12, 4)])
@pytest.mark.parametrize("trying", [False, True])
def test_hostile_tokens_reach_no_terminal_at_any_size(size, trying):
    @on_screen
    async def test() -> None:
        made = Session(story=HOSTILE)
        made.load(), made.open(HOSTILE), made.steps(len(HOSTILE))
        timeline = made.timeline()
        async with shown(SamplerPanel(), size) as (panel, pilot):
            for slot in range(len(timeline.items) + 1):
                timeline.select(slot)
                if (told := timeline.distribution) is not None:
                    telling = StageExplanation(
                        told, USED, explained(told, earlier=[(0, 1)] * len(told.candidates))
                    )
                    timeline.last_explanation = telling
                    timeline.trial = Trial(replace(USED, stop=(HOSTILE[2],)), telling) if trying else None
                panel.show(timeline, USED, timeline.candidates[0] if timeline.candidates else None)
                await pilot.pause()
                text = screen(pilot)
                assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\ud83d")

    test()


@on_screen
async def test_cut_tokens_are_grey_without_colours_too():
    async with shown(SamplerPanel(), (60, 34), colours=False) as (panel, pilot):
        panel.show(timeline_of(SURPRISE), USED, None)
        await pilot.pause()
        assert "✕ top-p" in screen(pilot)
        assert style_at(pilot, "✕") != style_at(pilot, "96.80")


def test_min_p_shows_how_many_tokens_it_keeps_in_any_case():
    stages = (StageReading("min-p", 3, 0.01),)
    told = distribution([candidate(1, " hat", 0.96, 1.0)], picked=1, draw=0.5, stages=stages)
    for least, setting in ((1, "0.1"), (3, "0.1≥3")):
        table = columns(told, None, Settings(temp=1, min_p=0.1, min_tokens_to_keep=least))
        assert [column.setting for column in table if column.name == "min-p"] == [setting]


@pytest.mark.parametrize("size", [(60, 9), (80, 12), (48, 11)])
@on_screen
async def test_the_first_sentence_is_whole_on_a_low_panel(size: tuple[int, int]) -> None:
    async with shown(SamplerPanel(), size) as (panel, pilot):
        panel.show(timeline_of(SURPRISE), USED)
        await pilot.pause()
        said = " ".join(" ".join(line.strip("│ ") for line in lines(pilot)).split()).replace("\u00a0", " ")
        assert "it now covers 1.30 % of the line." in said

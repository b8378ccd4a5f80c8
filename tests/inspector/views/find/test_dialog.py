"""Searching the vocabulary on the screen: what is asked, what is shown of the answers, what is taken."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Candidate, Ended, Failure, Prefill, Recalled, TokensFound
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.views.find import HELP, LIMIT, FindDialog, answer_sentence
from inspector.widgets.fields import SafeInput
from tests.inspector.main.test_dialogs import HOSTILE, remark
from tests.inspector.painting import Terminal, painting
from tests.inspector.rig import Rig, run
from tests.inspector.views.sampler.test_what_if_real import until

SEVERAL = " A text may take several tokens: esc, then 1 a types it."
NOT_KEPT = Failure("FindTokens", "The logits here were not kept.", "Compute them again.")


def match(id: int, text: str, prob: float = 0.01, rank: int = 9, cut_by: str | None = None) -> Candidate:
    final = 0.0 if cut_by else prob * 1.2
    return Candidate(
        id, text, text.encode("utf-8", "replace"), False, math.log(prob), prob, rank, final, cut_by
    )


MATCHES = (
    match(339, " toys", 0.61, 1),
    match(1203, " toy", 3e-7, 812, "top-p"),
    match(77, "stoy", 1e-9, 3999),
)


def found(rig: Rig, *matches: Candidate, total: int | None = None, query: str | None = None) -> list:
    """The answer to what was asked last."""
    asked = rig.engine.asked[-1]
    assert isinstance(asked, protocol.FindTokens)
    count = len(matches) if total is None else total
    mass = sum(each.prob for each in matches)
    answer = TokensFound(asked.node, asked.query if query is None else query, matches, count, mass)
    return [answer, Ended("FindTokens")]


async def opened(rig: Rig, *keys: str) -> None:
    await rig.ready(steps=6)
    rig.engine.asked.clear()
    await rig.press(*keys, "slash")


def queries(rig: Rig) -> list[str]:
    return [each.query for each in rig.engine.asked if isinstance(each, protocol.FindTokens)]


async def test_the_dialog_opens_with_the_ways_to_search_and_the_most_probable_tokens(rig: Rig) -> None:
    await opened(rig)
    assert rig.engine.asked == [
        protocol.FindTokens(rig.timeline.tip, "", LIMIT, rig.app.controller.queries.in_force)
    ]
    assert remark(rig, "find-remark") == (HELP, False)
    await rig.push(found(rig, *MATCHES, total=4096))
    text = rig.screen_text()
    for part in ("Find a token · next token", "␣toys", "61.00 %", "−0.49", "339", "1 of 3"):
        assert part in text, part


def test_all_of_the_dialog_is_painted_whatever_the_screen_below_has_painted():
    """What a step changed below took the place of what the answer changed in the dialog."""

    async def test(rig: Rig) -> None:
        terminal = Terminal(rig.app)
        await rig.ready(steps=6)
        for first in (40, 60, 80):
            await rig.push([rig.session.step()])
            await rig.press("slash")
            await rig.push(found(rig, *(match(id, f" number{id}") for id in range(first, first + 20))))
            await rig.until(lambda: terminal.text == rig.screen_text(), 5)
            assert "1 of 20" in terminal.text
            await rig.press("escape")

    with painting():
        run(test)


async def test_what_is_typed_is_asked_and_an_older_answer_is_not_shown(rig: Rig) -> None:
    await opened(rig)
    await rig.press("t", "o", "y")
    assert queries(rig) == [""]
    await rig.push(found(rig, match(5, " old"), query=""))
    assert queries(rig) == ["", "toy"]
    assert " old" not in rig.screen_text()
    await rig.push(found(rig, *MATCHES))
    assert remark(rig, "find-remark") == (
        "3 tokens contain “toy”; together the model gives them 61.00 %.",
        False,
    )
    text = rig.screen_text()
    for part in ("stoy", "<0.0001 %", "top-p", "812", "−15.02"):
        assert part in text, part


async def test_enter_takes_the_highlighted_match_at_the_token_that_is_looked_at(rig: Rig) -> None:
    await opened(rig, "left", "left")
    node = rig.timeline.before
    selected = rig.timeline.selected
    assert selected is not None
    used = rig.timeline.tree.settings[selected.node]
    assert rig.engine.asked == [protocol.FindTokens(node, "", LIMIT, used)]
    assert "step 5" in rig.screen_text()
    await rig.push(found(rig, *MATCHES))
    await rig.press("down", "enter")
    assert rig.app.top is rig.app.main
    assert rig.engine.sent == [protocol.Choose(node, 1203)]


async def test_enter_before_the_answer_takes_the_first_match_of_what_was_typed(rig: Rig) -> None:
    await opened(rig)
    await rig.push(found(rig, match(5, " old")))
    await rig.press("t", "o", "y", "enter")
    assert isinstance(rig.app.top, FindDialog)
    await rig.push(found(rig, match(6, "t"), query="t"))
    assert isinstance(rig.app.top, FindDialog)
    await rig.push(found(rig, *MATCHES))
    assert rig.app.top is rig.app.main
    assert rig.engine.sent == [protocol.Choose(rig.timeline.tip, 339)]


async def test_typing_on_after_a_hasty_enter_takes_nothing(rig: Rig) -> None:
    await opened(rig)
    await rig.push(found(rig))
    await rig.press("t", "enter", "o")
    await rig.push(found(rig, match(6, "t"), query="t"))
    await rig.push(found(rig, *MATCHES))
    assert isinstance(rig.app.top, FindDialog)
    assert rig.engine.sent == []


async def test_the_keys_go_through_the_list_and_stay_in_it(rig: Rig) -> None:
    many = tuple(match(n, f" t{n}", 0.5 / n, n) for n in range(1, 101))

    await opened(rig)
    await rig.push(found(rig, *many, total=1234))
    matches = rig.app.top.picks
    await rig.press("up")
    assert matches.highlighted == 0
    await rig.press("pagedown", "pagedown", "down")
    assert matches.highlighted == 2 * matches.page + 1
    assert f"t{matches.highlighted + 1}" in rig.screen_text()
    await rig.press(*["pagedown"] * 9)
    assert matches.highlighted == 99
    assert "100 of 100" in rig.screen_text()
    await rig.press("pageup")
    assert matches.highlighted == 99 - matches.page


async def test_a_click_highlights_and_a_second_one_takes(rig: Rig) -> None:
    await opened(rig)
    await rig.push(found(rig, *MATCHES))
    await rig.pilot.click("#find-matches", offset=(4, 2))
    assert rig.app.top.picks.highlighted == 1
    assert rig.engine.sent == []
    await rig.pilot.click("#find-matches", offset=(4, 2))
    await rig.pilot.pause()
    assert rig.engine.sent == [protocol.Choose(rig.timeline.tip, 1203)]


async def test_the_query_is_remembered_and_typing_takes_its_place(rig: Rig) -> None:
    await opened(rig)
    await rig.push(found(rig))
    await rig.press("t", "o", "escape")
    assert rig.engine.sent == []
    await rig.push([Ended("FindTokens", True)])
    await rig.press("slash")
    assert rig.app.top.query_one("#find-query", SafeInput).value == "to"
    assert queries(rig)[-1] == "to"
    await rig.press("x")
    assert rig.app.top.query_one("#find-query", SafeInput).value == "x"


@pytest.mark.parametrize(
    ("query", "total", "matches", "sentence"),
    [
        ("zq", 0, (), "No token contains “zq”." + SEVERAL),
        (" t", 1, MATCHES[:1], "1 token contains “␣t”; the model gives it 61.00 %."),
        ("t", 1234, MATCHES, "1,234 tokens contain “t”; together the model gives them 61.00 %. The first 3 are shown."),
        ("#9999", 0, (), "No token has the id 9999: they are 0 to 4,095."),
        ("#339", 1, MATCHES[:1], "This token has the id."),
        ("0x e2 9c", 0, (), "No token contains ‹E2 9C›." + SEVERAL),
        ("[/x]\x1b", 0, (), "No token contains “[/x]␛”." + SEVERAL),
    ],
)  # fmt: skip
def test_what_was_found_is_said(query, total, matches, sentence):
    assert (
        answer_sentence(TokensFound(4, query, matches, total, sum(each.prob for each in matches)), 4096)
        == sentence
    )


async def test_where_logits_are_not_kept_a_key_computes_them_and_the_search_goes_on(rig: Rig) -> None:
    await opened(rig, "left")
    node = rig.timeline.before
    await rig.push([NOT_KEPT, Ended("FindTokens")])
    assert remark(rig, "find-remark") == (
        "The logits here were not kept. Press ctrl+r to compute them.",
        True,
    )
    await rig.press("enter")
    assert isinstance(rig.app.top, FindDialog)
    await rig.press("ctrl+r", "ctrl+r")
    assert rig.engine.sent == [protocol.Recall((node,))]
    await rig.push([Recalled((node,), 12.0), Ended("Recall")])
    assert len(queries(rig)) == 2
    await rig.push(found(rig, *MATCHES))
    assert not remark(rig, "find-remark")[1]
    assert "␣toys" in rig.screen_text()


async def test_logits_that_are_dropped_at_once_are_not_computed_for_ever(rig: Rig) -> None:
    await opened(rig, "left")
    await rig.push([NOT_KEPT, Ended("FindTokens")])
    await rig.press("ctrl+r")
    await rig.push([Recalled((rig.timeline.before,), 12.0), Ended("Recall")])
    await rig.push([NOT_KEPT, Ended("FindTokens")])
    assert "--kept-logits-mib" in remark(rig, "find-remark")[0]
    await rig.press("ctrl+r")
    assert rig.engine.names == ["Recall"]


async def test_what_else_fails_is_said_with_its_advice_and_no_notice(rig: Rig) -> None:
    await opened(rig, "home", "home")
    await rig.push(
        [Failure("FindTokens", "Nothing is expected here [/x]\x1b.", "Go on."), Ended("FindTokens")]
    )
    assert remark(rig, "find-remark") == ("Nothing is expected here [/x]␛. Go on.", True)
    assert not rig.app._notifications


async def test_a_run_is_paused_and_its_last_step_is_followed(rig: Rig) -> None:
    await rig.ready(steps=3)
    await rig.press("r")
    rig.engine.asked.clear()
    await rig.press("slash")
    assert rig.engine.cancelled(rig.engine.last(protocol.Run))
    first = rig.timeline.tip
    await rig.push([*found(rig, *MATCHES), rig.session.step(), Ended("Run", True)])

    def asked() -> list[int]:
        return [each.node for each in rig.engine.asked if isinstance(each, protocol.FindTokens)]

    await rig.until(lambda: len(asked()) == 2)
    assert asked() == [first, rig.timeline.tip]
    assert first != rig.timeline.tip


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (40, 12)])
async def test_hostile_tokens_reach_no_terminal_and_the_buttons_stay_in_sight(rig: Rig, size) -> None:
    await opened(rig)
    rig.app.top.query_one("#find-query", SafeInput).value = HOSTILE
    await rig.push(found(rig, query=""))
    await rig.push(found(rig, match(5, HOSTILE, 0.2, 1, "top-p\x1b"), match(6, "狐狸" * 30, 0.1, 2)))
    text = rig.screen_text()
    assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\ud83d")
    assert "esc" in text


@pytest.mark.slow
async def test_a_token_of_the_prompt_is_searched_and_taken_on_the_real_engine() -> None:
    app = InspectorApp(LoadSettings(), Settings(), Prefill("Once upon a time there was", False))

    async with app.run_test(size=(120, 40)) as pilot:
        controller = app.controller
        await until(lambda: controller.timeline.prompts.prefilled)
        prompt = [item.id for item in controller.timeline.items]
        await pilot.press("home", "right", "right", "right", "slash")
        await until(lambda: "ctrl+r" in str(app.top.query_one("#find-remark").content))
        await pilot.press("ctrl+r", "space", *"dog")
        await until(lambda: "contain" in str(app.top.query_one("#find-remark").content))
        await pilot.press("enter")
        await until(lambda: controller.timeline.steps and not controller.client.outstanding)
        assert [item.text for item in controller.timeline.items][-1] == " dog"
        assert [item.id for item in controller.timeline.items][:-1] == prompt[:3]
        assert controller.timeline.steps[0].origin == "chosen"
    assert app.closed_in_time


async def test_what_is_found_inside_a_prompt_says_that_another_cut_gives_other_numbers(rig: Rig) -> None:
    await opened(rig)
    (answer, ended) = found(rig, *MATCHES)
    await rig.push([replace(answer, note="Another cut gives others."), ended])
    text, wrong = remark(rig, "find-remark")
    assert text.endswith(" Another cut gives others.")
    assert not wrong

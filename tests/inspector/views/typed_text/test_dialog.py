"""Typing one's own text into the path: where it goes, what it will be, what the model thought of it."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual.widgets import Button

from engine import protocol
from engine.protocol import Ended, Failure, Piece, Prefill, Tokenized
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.views.typed_text import KEYS, OwnTextDialog, place_of, typed_summary
from inspector.widgets.fields import SafeTextArea
from inspector.widgets.pieces import PieceList
from tests.inspector.fakes import session as made
from tests.inspector.main.test_dialogs import HOSTILE, remark
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until


def pieces(text: str) -> tuple[Piece, ...]:
    """A text cut before each blank, special tokens whole."""
    parts = re.findall(r"<\|\w+\|>| ?[^ <]+|\s", text)
    return tuple(Piece(300 + n, each, each.encode("utf-8", "replace"), each.startswith("<|"))
                 for n, each in enumerate(parts))  # fmt: skip


async def answered(rig: Rig) -> None:
    """Answer what was asked last."""
    asked = rig.engine.asked[-1]
    assert isinstance(asked, protocol.Tokenize)
    await rig.push([Tokenized(asked.text, pieces(asked.text)), Ended("Tokenize")])


async def opened(rig: Rig, *keys: str, text: str = "") -> None:
    await rig.ready(steps=6)
    await rig.press(*keys, "a")
    await answered(rig)
    if text:
        rig.app.top.query_one(SafeTextArea).text = text
        await rig.pilot.pause()
        await answered(rig)


def remark_and_pieces(rig: Rig) -> tuple[str, bool]:
    return remark(rig, "own-remark")


# ---- where it goes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (None, "After “␣named”, at the end of the text."),
        (10, "After “␣girl”, instead of “␣named”, which keeps its own branch."),
        (5, "After “,”, instead of “␣there”, which keeps its own branch."),
        (3, "After “␣a”, instead of “␣time”: the prompt as it was keeps its own branch."),
    ],
)
def test_it_says_where_the_text_goes(slot, words):
    timeline = made(6).timeline()
    timeline.select(slot)
    assert place_of(timeline) == words


async def test_the_dialog_says_so(rig: Rig) -> None:
    await opened(rig, "left")
    assert remark(rig, "own-spot") == (place_of(rig.timeline), False)


async def test_before_the_first_token_nothing_is_offered(rig: Rig) -> None:
    await rig.ready()
    await rig.press("home", "home", "a")
    assert rig.app.top is rig.app.main
    assert "Nothing can be typed before the first token" in rig.status


# ---- what it will be --------------------------------------------------------------------------


async def test_the_tokens_are_shown_with_their_ids_and_counted(rig: Rig) -> None:
    await opened(rig, text=" a dragon<|im_end|>")
    assert remark_and_pieces(rig) == (
        "3 tokens, 1 of them special. The context then holds 14 of 512.",
        False,
    )
    lines = rig.screen_text().split("\n")
    row = next(n for n, line in enumerate(lines) if "␣a " in line and "│" in line and "dragon" in line)
    assert re.search(r"␣a +│␣dragon│<\|im_end\|>│", lines[row])
    assert re.search(r"300 *│301 +│302 +│", lines[row + 1])


async def test_the_latest_text_wins(rig: Rig) -> None:
    await opened(rig)
    await rig.press("h", "e", "y")
    texts = [each.text for each in rig.engine.asked if isinstance(each, protocol.Tokenize)]
    assert texts == ["", "h"]
    await rig.push([Tokenized("h", pieces("h")), Ended("Tokenize")])
    assert remark_and_pieces(rig)[0] == KEYS
    assert rig.engine.asked[-1] == protocol.Tokenize("hey")
    await answered(rig)
    assert remark_and_pieces(rig)[0].startswith("1 token.")


async def test_what_does_not_fit_is_said_and_cannot_be_inserted(rig: Rig) -> None:
    await opened(rig, text=" dog" * 502)
    assert remark_and_pieces(rig) == (
        "502 tokens: too many. The context window has room for 501 there. Type less.",
        True,
    )
    assert rig.app.top.query_one("#apply", Button).disabled
    await rig.press("enter", "ctrl+s")
    assert isinstance(rig.app.top, OwnTextDialog)
    assert rig.engine.sent == []
    rig.app.top.query_one(SafeTextArea).text = " dog" * 501
    await rig.pilot.pause()
    await answered(rig)
    assert not remark_and_pieces(rig)[1]
    await rig.press("enter")
    assert rig.engine.names == ["Insert"]


async def test_of_a_long_text_the_end_is_shown_and_the_rest_is_counted(rig: Rig) -> None:
    await opened(rig, text=" dog" * 400)
    text = rig.screen_text()
    found = re.search(r"… (\d+) tokens before these", text)
    assert found
    shown = rig.app.top.query_one(PieceList)
    assert str(300 + 399) in text
    first = 300 + int(found[1])
    assert f"{first} │" in text
    assert f"{first - 1} │" not in text
    assert (len(shown.last), shown.left_out) == (400, 0)


async def test_nothing_typed_is_refused_in_place(rig: Rig) -> None:
    await opened(rig)
    assert rig.app.top.query_one("#apply", Button).disabled
    await rig.press("enter")
    assert remark_and_pieces(rig) == ("Nothing was typed. Type at least one character.", True)
    assert rig.engine.sent == []


async def test_a_text_that_cannot_be_cut_says_why(rig: Rig) -> None:
    await opened(rig)
    await rig.press("x")
    await rig.push([Failure("Tokenize", "Token id 9 is outside [/x]\x1b.", "Type less."), Ended("Tokenize")])
    assert remark_and_pieces(rig) == ("Token id 9 is outside [/x]␛. Type less.", True)
    assert not rig.app._notifications


# ---- inserting --------------------------------------------------------------------------------


async def test_enter_inserts_and_ctrl_j_begins_a_line(rig: Rig) -> None:
    await opened(rig, "left")
    node = rig.timeline.before
    await rig.press("space", "a", "ctrl+j", "b", "q", "enter")
    assert rig.app.top is rig.app.main
    assert rig.engine.sent == [protocol.Insert(node, " a\nbq")]


async def test_what_the_model_thought_is_told_when_all_is_taken(rig: Rig) -> None:
    await opened(rig, text=" a dragon")
    await rig.press("ctrl+s")
    assert rig.status.startswith("Taking your text")
    steps = [rig.session.step(origin="inserted") for _ in range(2)]
    await rig.push(steps)
    await rig.push([Ended("Insert")])
    assert rig.status == typed_summary(steps)
    assert rig.timeline.following
    await rig.press("a")
    assert rig.app.top.query_one(SafeTextArea).text == ""


async def test_the_tip_is_followed_once_the_first_token_is_there(rig: Rig) -> None:
    await opened(rig, "left", "left", text=" a")
    node = rig.timeline.before
    await rig.press("enter")
    await rig.push([rig.session.move(node), rig.session.step(origin="inserted"), Ended("Insert")])
    assert rig.timeline.following
    assert rig.timeline.items[-1].parent == node


@pytest.mark.wide(1)
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_was_not_taken_is_kept_to_be_typed_again(rig: Rig, how) -> None:
    await opened(rig, text=" a dragon")
    await rig.press("enter")
    if how == "cancelled":
        await rig.push([rig.session.step(origin="inserted")])
        await rig.press("escape")
        assert rig.engine.cancelled(rig.engine.last(protocol.Insert))
        await rig.push([Ended("Insert", cancelled=True)])
        assert rig.status.startswith("Stopped: 1 token typed: “")
    else:
        await rig.push([Failure("Insert", "It doesn't fit.", "Type less."), Ended("Insert")])
        assert [note.title for note in rig.app._notifications] == ["The insertion failed"]
    await rig.press("a")
    assert rig.app.top.query_one(SafeTextArea).text == " a dragon"


async def test_what_was_typed_is_kept_when_the_dialog_is_left(rig: Rig) -> None:
    await opened(rig, text=" a dragon")
    await rig.press("escape")
    assert rig.engine.sent == []
    await rig.press("a")
    assert rig.app.top.query_one(SafeTextArea).text == " a dragon"


def test_the_sentence_names_the_least_expected_token():
    steps = made(3).timeline().steps
    likely, unlikely, other = (
        replace(steps[0], text=" a", surprisal_bits=0.5, prob=0.7, rank=1),
        replace(steps[1], text=" toys", surprisal_bits=11.3, prob=0.0004, rank=812),
        replace(steps[2], text="\n", surprisal_bits=0.5, prob=0.7, rank=1),
    )
    assert typed_summary([likely, unlikely, other]) == (
        "3 tokens typed: 12.30 bits in all; the least expected was “␣toys” (0.04 %, rank 812)"
    )
    assert typed_summary([unlikely]) == "1 token typed: “␣toys” (0.04 %, rank 812), 11.30 bits"
    assert typed_summary([unlikely, likely], stopped=True).startswith("Stopped: 2 tokens typed: 11.80 bits")
    assert typed_summary([], stopped=True).startswith("Stopped: none of it was taken")
    assert typed_summary([]) == ""


# ---- hostile text, the real engine ------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (40, 12)])
async def test_hostile_text_reaches_no_terminal_and_the_buttons_stay_in_sight(rig: Rig, size) -> None:
    await opened(rig, text=HOSTILE)
    await rig.press("space")
    text = rig.screen_text()
    assert not any(char in text for char in "\x1b\x9b\x00\x7f\u202e\u200b\ud83d")
    assert "esc" in text


@pytest.mark.slow
async def test_the_end_of_a_prompt_is_edited_on_the_real_engine() -> None:
    app = InspectorApp(LoadSettings(), Settings(max_tokens=3), Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        controller = app.controller
        await until(lambda: controller.timeline.prompts.prefilled)
        prompt = [item.id for item in controller.timeline.items]
        await pilot.press("left", "a", "space", *"dragon", "enter")
        await until(lambda: controller.timeline.steps and not controller.client.outstanding)
        await pilot.pause()
        text = "".join(item.text for item in controller.timeline.items)
        assert text == "Once upon a dragon"
        assert all(step.origin == "inserted" for step in controller.timeline.steps)
        assert "typed" in app.main.status.answer
        await pilot.press("home", "left_square_bracket")
        await until(lambda: not controller.client.outstanding and controller.timeline.phase.value == "ready")
        await until(lambda: [item.id for item in controller.timeline.items] == prompt)
    assert app.closed_in_time

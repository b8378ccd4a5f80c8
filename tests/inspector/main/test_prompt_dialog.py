"""The prompt dialog: the tokens as they will be cut, other prompts, and prompts from files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.events import Paste
from textual.widgets import TextArea

from engine import protocol
from engine.protocol import (
    Ended,
    Failure,
    Message,
    Piece,
    Prefill,
    PreviewPrompt,
    PromptOpened,
    PromptPreview,
    Received,
)
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.main.dialogs.prompt import PromptDialog, PromptFileDialog, completed, counted
from inspector.main.panels.text import MOST_SHOWN, OpeningPanel
from inspector.session.prompts import PromptHistory, edited, transcript
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import MOST_IN_LINE, MOST_TYPED, Choice, SafeInput
from inspector.widgets.pieces import PieceList
from tests.inspector.rig import Rig
from tests.inspector.views.sampler.test_what_if_real import until

HOSTILE = "a[/nope]\x1b[31m\x9b1m\x00\x7f‮b​[@click=app.quit]x[/]"


def pieces(text: str) -> tuple[Piece, ...]:
    """A text cut before each blank, special tokens whole."""
    parts = re.findall(r"<\|\w+\|>|\n| ?[^ <\n]+|\s", text)
    return tuple(Piece(300 + n % 900, each, each.encode("utf-8", "replace"), each.startswith("<|"))
                 for n, each in enumerate(parts))  # fmt: skip


def preview(asked: PreviewPrompt, shared: int = 0, notes: tuple[str, ...] = ()) -> PromptPreview:
    """What an engine would make of it."""
    text = f"<|user|>{asked.text}<|end|>\n<|assistant|>" if asked.chat else asked.text
    cut = pieces(text)
    whole = len(cut) <= 120
    special = sum(piece.special for piece in cut)
    return PromptPreview(
        len(cut), special, shared, cut if whole else cut[:60], () if whole else cut[-60:], notes
    )


def area(rig: Rig) -> TextArea:
    return rig.app.top.query_one("#prompt-text", TextArea)


def remark(rig: Rig) -> tuple[str, bool]:
    widget = rig.app.top.query_one("#prompt-remark")
    return str(widget.content), widget.has_class("-wrong")


async def asked(rig: Rig) -> PreviewPrompt:
    """Wait until the engine is asked how what stands in the dialog is cut; end what was cancelled for that."""
    typed = rig.app.top.typed()
    wanted = PreviewPrompt(typed.text, typed.chat, typed.system)
    ended: set[int] = set()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        questions = [each for each in rig.engine.asked if isinstance(each, PreviewPrompt)]
        if questions and questions[-1] == wanted and not rig.engine.cancelled(questions[-1]):
            return wanted
        for each in questions:
            if rig.engine.cancelled(each) and rig.engine.id(each) not in ended:
                ended.add(rig.engine.id(each))
                await rig.push([Received(Ended(each.kind, cancelled=True), rig.engine.id(each))])
        await rig.pilot.pause(0.01)
    raise AssertionError(f"it was never asked: {wanted}")


async def previewed(rig: Rig, shared: int = 0, notes: tuple[str, ...] = ()) -> None:
    """Answer what the dialog asks."""
    await rig.push([preview(await asked(rig), shared, notes)])
    await rig.end(PreviewPrompt.kind)


# ---- tokens -----------------------------------------------------------------------------------


async def test_the_tokens_are_shown_as_they_will_be_cut(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    await previewed(rig, shared=3)
    assert remark(rig) == (
        "4 tokens, of a context window of 512. It begins with 3 tokens of the current path.",
        False,
    )
    lines = rig.screen_text().split("\n")
    row = next(n for n, line in enumerate(lines) if re.search(r"Once *│␣upon│␣a *│␣time,│", line))
    assert re.search(r"300 *│301 *│302 *│303 *│", lines[row + 1])


async def test_it_is_asked_at_once_and_once_how_the_prompt_is_cut(rig: Rig) -> None:
    """No timer goes before the question, and what the fields tell of themselves afterwards is no other one."""
    questions: list[PreviewPrompt] = []
    rig.app.controller.client.do = _noting(rig.app.controller.client.do, questions)  # type: ignore[method-assign]
    await rig.press("p")
    dialog = rig.app.top
    assert isinstance(dialog, PromptDialog)
    assert len(questions) == 1
    await rig.press("end", "x")
    assert (await asked(rig)).text == questions[0].text + "x"
    assert len(questions) == 2
    assert dialog._timer is None


def _noting(do: Callable[..., Any], questions: list[PreviewPrompt]) -> Callable[..., Any]:
    def noting(command: protocol.Command, *others: Any) -> Any:
        if isinstance(command, PreviewPrompt):
            questions.append(command)
        return do(command, *others)

    return noting


async def test_no_panel_is_drawn_anew_for_the_answer(rig: Rig) -> None:
    timeline = rig.app.controller.timeline
    before = timeline.place
    timeline.apply(preview(PreviewPrompt("Once upon", False)))
    assert timeline.place == before


async def test_the_whole_text_of_the_template_is_in_sight_before_it_is_sent(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "tab", "right")
    await previewed(rig)
    assert remark(rig)[0] == "8 tokens, 3 of them special, of a context window of 512."
    text = rig.screen_text()
    for part in ("<|user|>", "<|end|>", "<|assistant|>"):
        assert part in text
    shown = rig.app.top.query_one(PieceList)
    special = next(segment for segment in shown.render_line(0) if "<|user|>" in segment.text)
    assert special.style.reverse


async def test_a_template_that_refuses_is_told_in_place(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", "tab", "right")
    question = await asked(rig)
    refusal = Failure("PreviewPrompt", "The template refuses \x1b it.", "Leave the system prompt out.")
    await rig.push([refusal])
    await rig.end("PreviewPrompt")
    assert remark(rig) == ("The template refuses ␛ it. Leave the system prompt out.", True)
    assert question.chat
    assert not rig.app._notifications


def test_what_does_not_fit_is_told_before_it_is_sent():
    assert counted(PromptPreview(600, 2, 0, (), (), ()), 512) == (
        "600 tokens, 2 of them special: too many. The context window holds 512. Shorten the prompt."
    )
    assert counted(PromptPreview(1, 0, 0, (), (), ("No [/x]\x1b.",)), None) == "1 token. No [/x]␛."


async def test_the_latest_text_wins_and_nothing_is_asked_for_an_empty_one(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    first = await asked(rig)
    await rig.press("end", "x")
    await rig.until(lambda: rig.engine.cancels)
    await rig.push([preview(first)])
    assert "token," not in remark(rig)[0]
    await previewed(rig)
    assert remark(rig)[0].startswith("4 tokens")
    await rig.press("ctrl+a", "delete")
    assert remark(rig)[0].startswith("Type a prompt; ↑ brings earlier ones, ctrl+o one from a file.")
    assert rig.app.top.query_one(PieceList).first == ()


@pytest.mark.screen(size=(80, 24))
async def test_the_keys_say_how_another_text_takes_the_place_of_the_one_that_is_there(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    assert "ctrl+a select all" in rig.screen_text().splitlines()[-1]


async def test_while_the_model_loads_there_are_no_tokens_and_it_is_said(rig: Rig) -> None:
    await rig.press("p", "end", "x")
    await asked(rig)
    assert "still loading" in remark(rig)[0]
    await rig.push(rig.session.load())
    await previewed(rig)
    assert remark(rig)[0] == "4 tokens, of a context window of 512."
    await rig.press("ctrl+s")
    assert rig.engine.last(protocol.Prefill).text == "Once upon a time,x"


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_of_a_long_prompt_both_ends_are_shown_and_the_rest_can_be_scrolled_to(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.press("p", "ctrl+a")
    area(rig).text = " ".join(f"w{n:03}" for n in range(300))
    await rig.pilot.pause()
    await previewed(rig)
    text = rig.screen_text()
    assert re.search(r"… \d+ tokens (not shown|before these)", text)
    assert "w299" in text
    shown = rig.app.top.query_one(PieceList)
    await rig.press("tab")
    assert rig.app.focused is shown
    await rig.press("end", "home")
    assert "w000" in "".join(strip.text for strip in shown._strips)
    seen = set()
    for _ in range(60):
        seen |= set(re.findall(r"w\d{3}|… 180 tokens not shown", "".join(s.text for s in shown._strips)))
        await rig.press("down")
    assert {"w000", "w059", "… 180 tokens not shown", "w240", "w299"} <= seen


async def test_hostile_text_does_nothing(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    area(rig).text = HOSTILE
    await rig.pilot.pause()
    await previewed(rig, notes=(HOSTILE,))
    assert not any(char in rig.screen_text() for char in "\x1b\x9b\x00\x7f‮​")


@pytest.mark.screen(prompt="word " * 100000)
async def test_a_text_beyond_the_bound_is_not_cut_but_prefilled(rig: Rig) -> None:
    await rig.push(rig.session.load())
    await rig.press("p")
    assert not rig.engine.asked
    assert "too many to edit here" in remark(rig)[0]
    await rig.press("ctrl+s")
    assert len(rig.engine.last(protocol.Prefill).text) > MOST_TYPED


# ---- other prompts ----------------------------------------------------------------------------


def test_what_is_changed_on_the_way_through_the_prompts_stays():
    a, b, c = (Prefill(text, False) for text in "abc")
    history = PromptHistory([a, b, a, Prefill("", False)], c)
    assert history.earlier == 2  # the last of equal ones, and none that is empty
    assert history.go(-1, Prefill("c!", False)) == a
    assert history.go(-1, a) == b
    assert history.go(-1, b) is None
    assert history.go(1, Prefill("b!", True)) == a
    assert history.go(1, a) == Prefill("c!", False)
    assert history.go(1, c) is None
    assert history.go(-1, c) == a
    assert history.go(-1, a) == Prefill("b!", True)


async def test_the_arrow_keys_go_through_the_prompts_of_the_tree_and_those_that_were_left(rig: Rig) -> None:
    await rig.ready()
    messages = (Message("system", "Be kind.\nSo."), Message("user", "Hi"))
    opened = PromptOpened(
        "<|user|>Hi",
        True,
        rig.timeline.prompts.opened.tokens[:2],
        False,
        messages=messages,
        new_tree=False,
    )
    await rig.push([opened])
    await rig.press("p", "end", "exclamation_mark", "ctrl+j", "x", "escape", "p")
    assert area(rig).text == "Once upon a time,!\nx"
    await rig.press("up")
    assert area(rig).text == "Once upon a time,!\nx"  # to the first line
    await rig.press("up")
    assert rig.app.top.typed() == Prefill("Hi", True, "Be kind.\nSo.")
    assert area(rig).cursor_location == (0, 2)
    await rig.press("y", "up")
    assert rig.app.top.typed() == Prefill("Once upon a time,", False)
    await rig.press("up", "alt+down")
    assert area(rig).text == "Hiy"
    await rig.press("alt+down", "ctrl+s")
    assert rig.engine.last(protocol.Prefill).text == "Once upon a time,!\nx"


# ---- from a file ------------------------------------------------------------------------------


async def test_a_prompt_is_read_from_a_file(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("From a file.\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.txt").write_bytes(b"x" * (16 * 2**20 + 1))
    wrong = {
        "": "No file was named. Give a name.",
        "absent": "There is no prompt file ",
        "pipe": "it is a named pipe, not a regular file. Give a regular file.",
        "latin.txt": "is not UTF-8 (byte 0xe9 at offset 3).",
        "empty.txt": "The file is empty.",
        "large.txt": "it has more than 16 MiB",
        ".": "Is a directory",
        "a\x00b": "can't be",
    }

    await rig.ready()
    await rig.press("p", "ctrl+o")
    assert isinstance(rig.app.top, PromptFileDialog)
    said = rig.app.top.query_one("#prompt-file-remark")
    for name, why in wrong.items():
        rig.app.top.query_one(SafeInput).value = f"{tmp_path}/{name}" if name else ""
        await rig.pilot.pause()
        await rig.press("enter")
        await rig.until(lambda: said.has_class("-wrong"))
        assert why in str(said.content), name
    rig.app.top.query_one(SafeInput).value = f"{tmp_path}/sto"
    await rig.until(lambda: rig.app.top.query_one(SafeInput)._suggestion)
    await rig.press("end", "right", "enter")
    await rig.until(lambda: isinstance(rig.app.top, PromptDialog))
    await rig.until(lambda: area(rig).text == "From a file.\n")
    await rig.press("x", "ctrl+s")
    assert rig.engine.last(protocol.Prefill).text == "From a file.\nx"


def test_a_path_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "Prompts").mkdir()
    for name in ("Prompts/b.txt", "Prompts/a.txt", "Prompts/.hidden", "bad\x1b[31m.txt"):
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    assert completed("Pro") == "Prompts/"
    assert completed("Prompts/") == "Prompts/a.txt"
    assert completed("Prompts/.") == "Prompts/.hidden"
    assert completed(f"{tmp_path}/Prompts/b") == f"{tmp_path}/Prompts/b.txt"
    assert completed("bad") is None  # a name that isn't printable
    assert completed("none/x") is None
    assert completed("a\x00b/c") is None


# ---- with a model -----------------------------------------------------------------------------


async def test_what_is_shown_is_what_is_prefilled() -> None:
    app = InspectorApp(LoadSettings(), Settings(temp=0.0), Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.controller.timeline.prompts.prefilled)
        await pilot.press("p", "end", "comma", "tab", "right")
        shown = app.top.query_one(PieceList)
        await until(lambda: any(piece.special for piece in shown.first))
        assert app.top.query_one("#prompt-mode", Choice).chosen == 1
        ids = [piece.id for piece in shown.first]
        await pilot.press("ctrl+s")
        await until(lambda: app.controller.timeline.prompts.opened.chat)
        assert [token.id for token in app.controller.timeline.prompts.opened.tokens] == ids
        await pilot.press("p")
        said = app.top.query_one("#prompt-remark", Remark)
        await until(lambda: f"It begins with {len(ids)} tokens of the current path." in str(said.content))


# ---- a conversation ---------------------------------------------------------------------------

TALK = (
    Message("system", "Be kind."),
    Message("user", "Tell me of a dog."),
    Message("assistant", "It ran [/nope]\x1b[31m home."),
    Message("user", "Why?"),
)


def talking(rig: Rig) -> list:
    """A conversation of two turns, prefilled."""
    opened = rig.session.begin()
    told = replace(opened, chat=True, messages=TALK)
    return [told, rig.session.prefilled(opened), Ended("Prefill")]


def asks_of_the_whole(rig: Rig) -> bool:
    question = next((each for each in reversed(rig.engine.asked) if isinstance(each, PreviewPrompt)), None)
    return question is not None and question.messages == rig.app.top.typed().messages != ()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_whole_conversation_is_shown_and_its_last_message_edited(
    rig: Rig, size: tuple[int, int]
) -> None:
    await rig.ready()
    await rig.push(talking(rig))
    await rig.press("p")
    await rig.until(lambda: asks_of_the_whole(rig))
    dialog = rig.app.top
    assert area(rig).text == "Why?"
    assert dialog.typed().messages == TALK
    if size == (40, 12):  # the text that is edited is in sight first
        await rig.press("shift+tab")
        await rig.until(lambda: "user: Tell me of a dog." in rig.screen_text())
        await rig.press("tab")
    text = rig.screen_text()
    if size != (40, 12):
        assert "user: Tell me of a dog." in text
        assert "assistant: It ran [/nope]␛[31m home." in text
        assert "◉ the whole conversation" in text
    await rig.press("end", *" Say.", "ctrl+s")
    sent = rig.engine.last(protocol.Prefill)
    assert sent.messages == (*TALK[:-1], Message("user", "Why? Say."))


async def test_its_last_message_alone_begins_another_one(rig: Rig) -> None:
    await rig.ready()
    await rig.push(talking(rig))
    await rig.press("p", "tab", "left")
    await rig.until(lambda: "◉ through the chat template" in rig.screen_text())
    assert "Tell me of a dog." not in rig.screen_text()
    await rig.press("ctrl+s")
    sent = rig.engine.last(protocol.Prefill)
    assert (sent.text, sent.system, sent.messages) == ("Why?", "Be kind.", ())
    await rig.push([*rig.session.open(), Ended("Prefill")])
    await rig.press("p")
    assert area(rig).text == "Why?"
    assert "the whole conversation" not in rig.screen_text()
    await rig.press("alt+up")
    await rig.until(lambda: "Once upon a time," in area(rig).text)


async def test_what_was_typed_and_not_sent_is_not_replaced_by_a_conversation(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p", *" Hm", "escape")
    await rig.push(talking(rig))
    await rig.press("p")
    assert area(rig).text.endswith(" Hm")
    await rig.press("alt+up")
    await rig.until(lambda: "user: Tell me of a dog." in rig.screen_text())
    assert area(rig).text == "Why?"


def test_a_conversation_is_edited_in_its_last_message_and_its_system_prompt() -> None:
    tools = Message("tool", "7", '{"id": "a"}')
    assert edited(TALK, "x", "y") == (Message("system", "y"), *TALK[1:3], Message("user", "x"))
    assert edited(TALK, "Why?", "") == TALK[1:]
    assert edited(TALK[1:], "Why?", "Be kind.") == TALK
    assert edited((*TALK[1:], tools), "x", "") == (*TALK[1:3], Message("user", "x"), tools)
    assert edited(TALK[2:3], "", "") == TALK[2:3]
    assert edited(TALK[2:3], "x", "") == (TALK[2], Message("user", "x"))
    assert transcript((*TALK, tools)).splitlines()[-1] == 'tool: 7 {"id": "a"}'


async def test_the_flags_conversation_is_cut_as_a_whole() -> None:
    """On the real model: role marks and special tokens of every message, and their number, before it is sent again."""

    talk = tuple(
        Message(role, text) for role, text in (("user", "Hi."), ("assistant", "Yes?"), ("user", "Go."))
    )
    app = InspectorApp(LoadSettings("pocket"), Settings(), Prefill("Go.", True, messages=talk))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.controller.timeline.prompts.prefilled is not None)
        await pilot.press("p")
        await until(lambda: app.top.query_one(PieceList).first)
        found = app.top.query_one(PieceList).first
        assert [each.id for each in found] == [each.id for each in app.controller.timeline.items]
        whole = "".join(each.text for each in found)
        assert all(part in whole for part in ("user\nHi.", "assistant\nYes?", "user\nGo."))
        assert sum(each.special for each in found) >= 6
        assert f"{len(found)} tokens, " in str(app.top.query_one("#prompt-remark", Remark).content)


# ---- prompts of megabytes, pasted or given -----------------------------------------------------


LONG = "One day a little dog. " * 50_000


async def paste(rig: Rig, text: str) -> None:
    rig.app.post_message(Paste(text))
    await rig.pilot.pause()


async def test_a_text_that_is_too_long_is_not_pasted_and_the_way_is_told(rig: Rig) -> None:
    await rig.ready()
    await rig.press("p")
    area = rig.app.top.query_one("#prompt-text", TextArea)
    before = area.text
    await paste(rig, LONG)
    assert area.text == before
    [told] = [notice.message for notice in rig.app._notifications]
    assert told.endswith("Put it into a file: p, ctrl+o read one.")
    await rig.press("ctrl+a", "delete")
    await paste(rig, LONG[:MOST_TYPED])
    assert len(area.text) == MOST_TYPED
    await paste(rig, "x")
    assert len(area.text) == MOST_TYPED


async def test_a_line_takes_no_more_than_a_line(rig: Rig) -> None:
    await rig.ready()
    await rig.press("slash")
    await paste(rig, LONG)
    assert len(rig.app.top.query_one("#find-query", SafeInput).value) <= MOST_IN_LINE


@pytest.mark.screen(prompt=LONG)
async def test_a_prompt_that_is_too_long_to_edit_stays_as_it_is(rig: Rig) -> None:
    await rig.push(rig.session.load())
    shown = str(rig.app.main.query_one(OpeningPanel).render())
    assert len(shown) < 2 * MOST_SHOWN
    assert f"… and {len(LONG) - MOST_SHOWN:,} characters more" in shown
    await rig.press("p")
    assert rig.app.top.query_one("#prompt-text", TextArea).text == ""
    assert f"{len(LONG):,} characters, too many to edit here" in rig.screen_text()
    rig.engine.sent.clear()
    await rig.press("ctrl+s")
    sent = rig.engine.last(Prefill)
    assert isinstance(sent, Prefill)
    assert sent.text == LONG
    await rig.press("p", "escape", "p", "x", "ctrl+s")
    assert rig.engine.last(Prefill).text == "x"

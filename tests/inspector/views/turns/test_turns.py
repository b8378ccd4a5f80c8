"""Replying in a conversation: what is sent, what is asked, and what is refused with a reason."""

from __future__ import annotations

from msgspec.structs import replace

from engine import protocol
from engine.protocol import Ended, Failure, Finished, Message, PromptOpened, TurnDiffers
from inspector.views.turns import DiffersDialog, TurnDialog
from inspector.widgets.fields import SafeTextArea
from tests.inspector.fakes import PROMPT
from tests.inspector.rig import Rig

TEXT = "".join(piece if isinstance(piece, str) else piece.text for piece in PROMPT)
MESSAGES = (Message("user", TEXT.strip()),)


async def chatting(rig: Rig, steps: int = 4, messages: tuple[Message, ...] = MESSAGES) -> None:
    """A conversation in which the model said something."""
    await rig.push([*rig.session.load(), Ended("Configure")])
    records = [
        replace(each, chat=True, messages=messages) if isinstance(each, PromptOpened) else each
        for each in rig.session.open()
    ]
    await rig.push([*records, *rig.session.steps(steps)])
    rig.engine.sent.clear()


async def replied(rig: Rig, text: str = "Why?") -> protocol.AddTurn:
    await rig.do("reply")
    assert isinstance(rig.app.top, TurnDialog)
    rig.app.top.query_one(SafeTextArea).text = text
    await rig.press("enter")
    return rig.engine.last(protocol.AddTurn)


async def test_a_reply_is_sent_with_the_conversation_before_it(rig: Rig) -> None:
    await chatting(rig)
    sent = await replied(rig)
    assert sent == protocol.AddTurn("Why?", MESSAGES)
    assert rig.app.top is rig.app.main
    await rig.press("escape")
    assert rig.engine.cancelled(sent), "escape stops it on its way"


async def test_at_the_end_of_an_answer_the_status_line_tells_of_it(rig: Rig) -> None:
    await chatting(rig)
    await rig.push([Finished(rig.timeline.tip, "eos", "<|im_end|>")])
    assert rig.status.endswith("Space or r continues; 4 R replies")


async def test_what_is_typed_is_kept_and_empty_text_is_not_sent(rig: Rig) -> None:
    await chatting(rig)
    await rig.do("reply")
    await rig.press("enter")
    assert isinstance(rig.app.top, TurnDialog)
    await rig.press("W", "h", "y", "escape")
    assert rig.engine.sent == []
    await rig.do("reply")
    assert rig.app.top.query_one(SafeTextArea).text == "Why"


async def test_where_the_template_differs_the_person_decides(rig: Rig) -> None:
    await chatting(rig)
    for keys, expected in (((), "path"), (("down",), "template")):
        sent = await replied(rig, "Why [b]?[/b]")
        await rig.push([TurnDiffers(5, "<think>\x1b[31m[red]", "", 7, 40), Ended("AddTurn")])
        dialog = rig.app.top
        assert isinstance(dialog, DiffersDialog)
        assert "33 of 40 tokens" in rig.screen_text()
        assert "[red]" in rig.screen_text()
        await rig.press(*keys, "ctrl+s")
        assert rig.engine.last(protocol.AddTurn) == replace(sent, differing=expected)
        await rig.push([Failure("AddTurn", "It was refused.", "Try again."), Ended("AddTurn")])
    sent = await replied(rig)
    await rig.push([TurnDiffers(5, "a", "b", 7, 40), Ended("AddTurn")])
    count = len(rig.engine.sent)
    await rig.press("escape")
    assert len(rig.engine.sent) == count
    assert rig.status == "Nothing was sent. 4 R still has your message"


async def test_the_dialog_says_what_a_server_would_lose(rig: Rig) -> None:
    await chatting(rig)
    path = "".join(item.text for item in rig.timeline.items)
    kept = len(PROMPT)
    at = len("".join(item.text for item in rig.timeline.items[:kept]))
    await replied(rig)
    differs = TurnDiffers(at, path[at:], "<think>\x1b[31m", kept, 40)
    await rig.push([differs, Ended("AddTurn")])
    text = " ".join(rig.screen_text().split())
    held = len(rig.timeline.items)
    assert f"Of {held} tokens in the KV cache a server would lose {held - kept}" in text


async def test_without_a_conversation_or_an_answer_it_says_why(rig: Rig) -> None:
    await rig.ready()
    await rig.do("reply")
    assert rig.status.startswith("Raw text has no turns.")
    await chatting(rig, messages=())
    await rig.do("reply")
    assert rig.status.startswith("This conversation was recorded without its messages")
    await chatting(rig, steps=0)
    await rig.do("reply")
    assert rig.status.startswith("The model has not answered yet.")
    assert rig.engine.sent == []


async def test_roles_stand_where_messages_begin(rig: Rig) -> None:
    await chatting(rig)
    assert rig.timeline.prompts.roles(rig.timeline.items) == {0: "user", len(PROMPT): "assistant"}
    lines = [line for line in rig.screen_text().splitlines() if "│" in line[:1]]
    assert any(line[2:4] == "A " for line in lines)
    await rig.ready()
    assert rig.timeline.prompts.roles(rig.timeline.items) == {}

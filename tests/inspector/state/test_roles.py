"""Roles at the tokens where messages begin, in a session of the bundled model and in older recordings."""

from __future__ import annotations

from dataclasses import replace

from engine.model.load import load
from engine.protocol import AddTurn, Message, Prefill, PromptOpened
from engine.session import conversation
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never
from inspector.state.roles import role_slots
from inspector.state.timeline import Timeline


def text_before(timeline: Timeline, slot: int) -> str:
    return "".join(item.text for item in timeline.items[:slot])


def test_a_word_of_the_template_is_no_message() -> None:
    session, timeline = Session(load(LoadSettings()), Settings(temp=0.0)), Timeline()
    for record in conversation.prompt(session, Prefill("a", chat=True, system="s"), never):
        timeline.apply(record)
    slots = role_slots(timeline)
    assert [*slots.values()] == ["system", "user", "assistant"]
    assert [text_before(timeline, slot).rpartition("<|im_start|>")[2] for slot in slots] == [
        "system\n",
        "user\n",
        "assistant\n",
    ]
    timeline.apply(session.step())
    history = (Message("system", "s"), Message("user", "a"))
    for record in conversation.add_turn(session, AddTurn("assistant", history, differing="path"), never):
        timeline.apply(record)
    slots = role_slots(timeline)
    assert [*slots.values()] == ["system", "user", "assistant", "user", "assistant"]
    assert text_before(timeline, [*slots][3]).endswith("<|im_start|>user\n")


def test_an_older_recording_shows_what_is_certain() -> None:
    session, timeline = Session(load(LoadSettings()), Settings(temp=0.0)), Timeline()
    for record in conversation.prompt(session, Prefill("a", chat=True, system="Be kind."), never):
        old = replace(record, starts=()) if isinstance(record, PromptOpened) else record
        timeline.apply(old)
    slots = role_slots(timeline)
    assert [*slots.values()] == ["system", "assistant"], "a is in more than one place"
    assert text_before(timeline, next(iter(slots))).endswith("system\n")

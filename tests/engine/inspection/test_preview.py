"""The preview of a prompt: the very ids that its prefill takes, and nothing changes for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import protocol
from engine.protocol import ChatOptions, Message
from engine.settings import LoadSettings
from tests.engine.test_thread import Engine

TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["<|im_start|>", "<|im_end|>", "user", "\n", " a", "狐", "👩‍🚀", "é"]), max_size=12
    ).map("".join),
)
MESSAGES = (Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "Tell me."))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    yield engine
    assert engine.thread.close(10)


def same(
    engine: Engine, text: str, chat: bool, system: str | None, messages: tuple[Message, ...] = ()
) -> None:
    """The preview and the prefill of one prompt, which are refused alike or have the same tokens."""
    asked = protocol.PreviewPrompt(text, chat, system, messages, ChatOptions(), 100_000)
    shown = engine.do(asked)[0]
    opened = engine.do(protocol.Prefill(text, chat, system, False, None, messages))[0]
    if isinstance(shown, protocol.Failure):
        assert isinstance(opened, protocol.Failure)
        assert (opened.message, opened.hint) == (shown.message, shown.hint)
        return
    assert isinstance(shown, protocol.PromptPreview)
    assert isinstance(opened, protocol.PromptOpened)
    assert [piece.id for piece in shown.first] == [token.id for token in opened.tokens]
    assert [(piece.text, piece.special) for piece in shown.first] == [
        (t.text, t.special) for t in opened.tokens
    ]
    assert (shown.tokens, shown.last, shown.notes) == (len(opened.tokens), (), opened.notes)
    assert shown.special == sum(token.special for token in opened.tokens)
    again = engine.do(asked)[0]
    assert isinstance(again, protocol.PromptPreview)
    assert again.shared == again.tokens  # the path on show is that prompt


@pytest.mark.wide(4)
@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("text", ["Once upon a time", " \n", "<|im_end|>x", "", "狐狸", "\ud83d"])
@pytest.mark.parametrize("system", [None, "Be kind.\nBe brief."])
def test_some_prompts(engine: Engine, text: str, chat: bool, system: str | None) -> None:
    same(engine, text, chat, system)


def test_a_conversation(engine: Engine) -> None:
    same(engine, "", True, None, MESSAGES)


@given(TEXTS, st.booleans(), st.none() | TEXTS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_prompt(engine: Engine, text: str, chat: bool, system: str | None) -> None:
    same(engine, text, chat, system)


@pytest.mark.slow
@given(TEXTS, st.booleans(), st.none() | TEXTS)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_prompts(engine: Engine, text: str, chat: bool, system: str | None) -> None:
    same(engine, text, chat, system)


def test_of_a_long_prompt_both_ends_are_handed_out_and_nothing_changes(engine: Engine) -> None:
    engine.do(protocol.Prefill("Once upon a time", False))
    told = engine.do(protocol.PreviewPrompt("Once upon a day" + " dog" * 300, False, most=11))
    assert [type(record).__name__ for record in told] == ["PromptPreview", "Ended"]
    shown = told[0]
    assert isinstance(shown, protocol.PromptPreview)
    assert (shown.tokens, shown.shared, len(shown.first), len(shown.last)) == (304, 3, 5, 6)
    assert {piece.text for piece in shown.last} == {" dog"}
    step = engine.do(protocol.TakeStep())[0]
    assert isinstance(step, protocol.Step)
    assert step.position == 4  # after the prompt, as if nobody had asked


def test_a_long_prompt_may_be_shown_though_it_is_refused(engine: Engine) -> None:
    shown = engine.do(protocol.PreviewPrompt("dog " * 600, False))[0]
    assert isinstance(shown, protocol.PromptPreview)
    assert shown.tokens > 512
    assert isinstance(engine.do(protocol.PreviewPrompt("dog " * 20_000, False))[0], protocol.Failure)

"""An answer with a given beginning: what the record keeps of it, and the turn behind the answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.model.load import Loaded
from engine.protocol import AddTurn, ChatOptions, Message, Prefill, PromptOpened, TurnDiffers
from engine.session import conversation
from engine.session.session import Session
from engine.settings import Settings
from tests.zoo import Zoo

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def loaded(zoo: Zoo) -> Loaded:
    return zoo.load("pocket")


def opened(records: list[object]) -> PromptOpened:
    return next(record for record in records if isinstance(record, PromptOpened))


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("content", "written"), [("m.content", " Once upon "), ("m.content | trim", "Once upon")]
)
def test_the_record_has_it_as_the_template_wrote_it_and_the_turn_goes_on_behind(
    loaded: Loaded, content: str, written: str
) -> None:
    session = Session(loaded, Settings(seed=1))
    config = json.dumps({"chat_template": CHATML.replace("m.content", content)})
    options = ChatOptions(config, response=" Once upon ")
    prompt = opened(list(conversation.prompt(session, Prefill("Hi", True, options=options), lambda: False)))
    assert prompt.text.endswith("assistant\n" + written)
    assert (prompt.options.response, prompt.messages) == (written, (Message("user", "Hi"),))
    ids = [session.step().id for _ in range(4)]
    answer = conversation.answer(session, prompt.options)
    assert answer == written + session.tokens.join(ids)
    following = list(
        conversation.add_turn(session, AddTurn("More", prompt.messages, prompt.options), lambda: False)
    )
    assert not any(isinstance(record, TurnDiffers) for record in following)
    turn = opened(following)
    assert turn.messages == (Message("user", "Hi"), Message("assistant", answer), Message("user", "More"))
    assert turn.options == replace(options, response=None)
    whole = session.tokens.chat(turn.messages, turn.options)
    assert session.tokens.join(session.tree.tokens(session.node)) == whole


def test_raw_text_has_no_place_for_it(loaded: Loaded) -> None:
    session = Session(loaded, Settings(seed=1))
    command = Prefill("Hi", False, options=ChatOptions(response="Once"))
    prompt = opened(list(conversation.prompt(session, command, lambda: False)))
    assert prompt.options.response is None
    assert "beginning is not used" in prompt.notes[0]

"""Conversations, turn after turn, and answers whose beginning is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from transformers import AutoTokenizer

from engine.errors import PromptError
from engine.model.load import Loaded, load
from engine.protocol import (
    NO_OPTIONS,
    AddTurn,
    ChatOptions,
    Message,
    Prefill,
    Prefilled,
    PromptOpened,
    TurnDiffers,
    through_template,
)
from engine.session import conversation
from engine.session.conversation import ANSWER, OTHER_CUT, add_turn, prompt
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import never
from tests import synthetic
from tests.zoo import Zoo

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}{% set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'"
    " + m['content'] | trim + '<|eot_id|>' %}{% if loop.first %}{% set content = '<|begin_of_text|>' + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ '<bos>' }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
REASONING = (
    "{% for m in messages %}{% set content = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""As of Qwen 3 and its like: the thinking of earlier answers is dropped."""
TEMPLATES = {
    "ChatML": (CHATML, "<|im_end|>"),
    "Llama 3": (LLAMA3, "<|eot_id|>"),
    "Gemma": (GEMMA, "<end_of_turn>"),
    "reasoning": (REASONING, "<|im_end|>"),
}
"""The template, and the token that ends an answer."""
SPECIAL = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>", "<start_of_turn>",
    "<end_of_turn>", "<think>", "</think>",
)  # fmt: skip


def chatting(directory: Path, name: str) -> Loaded:
    """A tiny random llama that has a family's template, written into a directory."""
    template, end = TEMPLATES[name]
    config = dict(synthetic.LLAMA_100M) | {
        "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 4096 + 16, "max_position_embeddings": 2048,
    }  # fmt: skip
    synthetic.write(directory, config)
    cut = json.loads((directory / "tokenizer.json").read_text())
    for place, content in enumerate(SPECIAL):
        cut["added_tokens"].append(cut["added_tokens"][0] | {"id": 4096 + place, "content": content})
    (directory / "tokenizer.json").write_text(json.dumps(cut))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings |= {"chat_template": template, "eos_token": end}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return load(LoadSettings(model=str(directory)))


USERS = ("Tell me a story.", "Why did the dog run? ", "And then?\n\nMore.", "Grüße 🙂", "The end?")
ANSWERS = ("The dog ran.", "Because it saw a cat.", "It slept", "Hello!", "Yes.")


@pytest.fixture(scope="module", params=TEMPLATES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Loaded, Any]:
    path = tmp_path_factory.mktemp("chat")
    return request.param, chatting(path, request.param), AutoTokenizer.from_pretrained(path)


def say(session: Session, text: str, end: bool = True) -> None:
    """Let the model have answered with a text."""
    ids = session.tokens.encode(text, bare=True)
    list(session.insert([*ids, *session.tokens.eos_ids[:1]] if end else ids))


def opened(session: Session, first: str) -> PromptOpened:
    record = next(iter(came := list(prompt(session, Prefill(first, True), never))))
    assert isinstance(record, PromptOpened)
    assert isinstance(came[-1], Prefilled)
    return record


def turn(session: Session, last: PromptOpened, text: str, differing: Any = "ask") -> Any:
    history = last.messages
    return list(add_turn(session, AddTurn(text, history, differing=differing), never))


@pytest.mark.wide(1)
def test_five_turns_have_the_ids_of_the_whole_conversation(family: tuple[str, Loaded, Any]) -> None:
    name, loaded, tokenizer = family
    session = Session(loaded, Settings())
    record = opened(session, USERS[0])
    conversation = [{"role": "user", "content": USERS[0]}]
    for place, (answer, user) in enumerate(zip(ANSWERS, USERS[1:], strict=False)):
        said = f"I think.\n</think>\n\n{answer}" if name == "reasoning" else answer
        # an answer that was stopped in the middle has no end yet: the template's own is added
        say(session, said, end=place != 2)
        before = session.tree.tokens(session.node)
        conversation += [{"role": "assistant", "content": said}, {"role": "user", "content": user}]
        expected = tokenizer.apply_chat_template(
            conversation, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        records = turn(session, record, user)
        if name == "reasoning":
            (differs,) = records
            assert isinstance(differs, TurnDiffers)
            assert "I think." in differs.path
            assert "I think." not in differs.template
            assert session.tree.tokens(session.node) == before, "nothing happened yet"
            assert differs.tokens == len(expected)
            assert expected[: differs.kept] == before[: differs.kept]
            records = turn(session, record, user, "template")
            assert session.tree.tokens(session.node) == expected
        record, *_, prefilled = records
        assert record.messages == tuple(Message(each["role"], each["content"]) for each in conversation)
        assert session.tree.tokens(session.node) == expected
        if name != "reasoning":
            assert record.parent != 0
            assert record.held == len(before) == prefilled.kept, "nothing runs again"
            assert prefilled.kept + len(record.tokens) == len(expected)
    fresh = Session(loaded, Settings())
    *_, whole = fresh.prefill("", session.tree.tokens(session.node))
    assert np.abs(fresh.logits - session.logits).max() < 1e-4
    assert whole.next.candidates[0].id == session.next.candidates[0].id


def test_a_turn_on_the_path_keeps_what_the_template_drops(family: tuple[str, Loaded, Any]) -> None:
    name, loaded, _ = family
    if name != "reasoning":
        pytest.skip("its template drops nothing")
    session = Session(loaded, Settings())
    record = opened(session, USERS[0])
    say(session, "I think.\n</think>\n\nThe dog ran.")
    before = session.tree.tokens(session.node)
    added, *_ = turn(
        session, record, f"Why? {ANSWER}", "path"
    )  # the mark is looked for where no message has it
    path = session.tree.tokens(session.node)
    assert path[: len(before)] == before
    assert (
        session.tokens.join(path[len(before) :])
        == f"\n<|im_start|>user\nWhy? {ANSWER}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    assert added.text == session.tokens.join(path[len(before) :])


@pytest.mark.wide(1)
def test_tokens_of_the_model_that_encoding_would_cut_otherwise_stay(family: tuple[str, Loaded, Any]) -> None:
    name, loaded, tokenizer = family
    if name == "reasoning":
        pytest.skip("its template is not additive")
    session = Session(loaded, Settings())
    record = opened(session, USERS[0])
    letters = [session.tokens.encode(letter, bare=True)[0] for letter in "The dog"]
    list(session.insert([*letters, *session.tokens.eos_ids[:1]]))
    before = session.tree.tokens(session.node)
    added, *_ = turn(session, record, "Why?")
    path = session.tree.tokens(session.node)
    assert path[: len(before)] == before
    assert added.notes == (OTHER_CUT,)
    conversation = [{"role": m.role, "content": m.content} for m in added.messages]
    expected = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert session.tokens.join(path) == expected


def test_raw_text_has_no_turns(family: tuple[str, Loaded, Any]) -> None:
    session = Session(family[1], Settings())
    list(prompt(session, Prefill("Once", False), never))
    with pytest.raises(PromptError, match="raw text"):
        list(add_turn(session, AddTurn("More", ()), never))
    with pytest.raises(PromptError, match="Unicode"):
        list(add_turn(session, AddTurn("\ud800", (Message("user", "x"),)), never))


def test_a_template_that_shows_no_answer_takes_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    monkeypatch.setitem(TEMPLATES, "questions", (questions, "<|im_end|>"))
    session = Session(chatting(tmp_path, "questions"), Settings())
    record = opened(session, "Hello")
    say(session, "Hi.")
    with pytest.raises(PromptError, match="can't add a message after this answer"):
        turn(session, record, "More")


# ---- an answer whose beginning is given --------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(zoo: Zoo) -> Loaded:
    return zoo.load("pocket")


def opening_of(records: list[object]) -> PromptOpened:
    return next(record for record in records if isinstance(record, PromptOpened))


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("content", "written"), [("m.content", " Once upon "), ("m.content | trim", "Once upon")]
)
def test_the_record_has_it_as_the_template_wrote_it_and_the_turn_goes_on_behind(
    loaded: Loaded, content: str, written: str
) -> None:
    session = Session(loaded, Settings(seed=1))
    config = json.dumps({"chat_template": CHATML.replace("m['content']", content)})
    options = ChatOptions(config, response=" Once upon ")
    prompt = opening_of(
        list(conversation.prompt(session, Prefill("Hi", True, options=options), lambda: False))
    )
    assert prompt.text.endswith("assistant\n" + written)
    assert (prompt.options.response, prompt.messages) == (written, (Message("user", "Hi"),))
    ids = [session.step().id for _ in range(4)]
    answer = conversation.answer(session, prompt.options)
    assert answer == written + session.tokens.join(ids)
    following = list(
        conversation.add_turn(session, AddTurn("More", prompt.messages, prompt.options), lambda: False)
    )
    assert not any(isinstance(record, TurnDiffers) for record in following)
    turn = opening_of(following)
    assert turn.messages == (Message("user", "Hi"), Message("assistant", answer), Message("user", "More"))
    assert turn.options == replace(options, response=None)
    whole = session.tokens.chat(turn.messages, turn.options)
    assert session.tokens.join(session.tree.tokens(session.node)) == whole


def test_raw_text_has_no_place_for_it(loaded: Loaded) -> None:
    session = Session(loaded, Settings(seed=1))
    command = Prefill("Hi", False, options=ChatOptions(response="Once"))
    prompt = opening_of(list(conversation.prompt(session, command, lambda: False)))
    assert prompt.options.response is None
    assert "beginning is not used" in prompt.notes[0]


# ---- raw text or the template -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "raw", "chat", "system", "options", "through"),
    [
        (True, False, None, None, NO_OPTIONS, True),
        (True, True, None, None, NO_OPTIONS, False),
        (True, True, True, None, NO_OPTIONS, True),
        (True, False, False, "Be brief.", NO_OPTIONS, False),
        (True, True, None, "Be brief.", NO_OPTIONS, True),
        (True, True, None, None, ChatOptions(response="Once"), True),
        (True, True, None, None, ChatOptions(config='{"a": 1}'), True),
        (False, False, None, "Be brief.", NO_OPTIONS, False),
        (False, False, None, None, ChatOptions(default_template=True), True),
    ],
)
def test_which_prompts_go_through_the_template(
    zoo: Zoo,
    template: bool,
    raw: bool,
    chat: bool | None,
    system: str | None,
    options: ChatOptions,
    through: bool,
) -> None:
    known = replace(zoo.load("pocket").facts, has_chat_template=template, raw_prompts=raw)
    assert through_template(known, chat, system, options) is through

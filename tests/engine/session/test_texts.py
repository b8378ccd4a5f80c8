"""Typed text as tokens, and the preview of a prompt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm import utils
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders, models, normalizers

from engine import pocket, protocol
from engine.errors import PromptError, StepError
from engine.model.tokens import Tokens
from engine.protocol import ChatOptions, Message
from engine.session.session import Session
from engine.session.texts import check_room, cut, tokenized
from engine.settings import LoadSettings, Settings
from engine.tree import prompt_chunks
from tests.engine.session.test_walks import KINDS, Reference
from tests.engine.sessions import begun
from tests.engine.test_thread import Engine
from tests.engine.unthreaded import kinds
from tests.zoo import Zoo

PROMPT = [433, 18, 97, 300, 41, 7, 1201, 355, 16, 90, 77, 512, 48, 999, 23, 640, 88, 3000, 15, 260]


@pytest.fixture(scope="module")
def tokens(zoo: Zoo) -> Tokens:
    return zoo.load("pocket").tokens


@pytest.fixture
def ready() -> Any:
    engine = Engine()
    engine.do(protocol.Load(LoadSettings()))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    yield engine
    assert engine.thread.close(10)


# ---- cutting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [" toys", "toys", "\n\nThe end.", "狐", "a<|im_end|>b", " \t x"])
def test_the_pieces_are_the_tokens_that_an_insertion_takes(tokens: Tokens, text: str) -> None:
    told = tokenized(tokens, text)
    assert [piece.id for piece in told.pieces] == tokens.encode(text, bare=True)
    assert b"".join(piece.raw for piece in told.pieces) == text.encode()
    assert "".join(piece.text for piece in told.pieces) == text
    assert told.text == text


def test_a_special_token_that_is_written_out_is_one(tokens: Tokens) -> None:
    special = [piece for piece in tokenized(tokens, " end<|im_end|>").pieces if piece.special]
    assert [(piece.id, piece.text) for piece in special] == [(2, "<|im_end|>")]


def test_nothing_typed_has_no_pieces_and_cannot_be_inserted(tokens: Tokens) -> None:
    assert tokenized(tokens, "").pieces == ()
    with pytest.raises(PromptError, match="Nothing was typed"):
        cut(tokens, "")


def test_what_is_no_unicode_is_refused(tokens: Tokens) -> None:
    with pytest.raises(PromptError, match="not valid Unicode at character 1"):
        tokenized(tokens, "a\ud800")


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """A tokenizer that puts a space before whatever it is given, as those of the first llamas do."""
    directory: Path = tmp_path_factory.mktemp("spaced")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "</s>", *bytes_, "▁", "i", "n", "g", "t", "o", "y", "▁to", "ing", "▁in"]
    merges = [("▁", "t"), ("▁t", "o"), ("▁", "i"), ("▁i", "n"), ("i", "n"), ("in", "g")]
    pieces += ["▁t", "▁i", "in"]
    vocab = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(pocket.directory() / "config.json", directory)
    return Tokens(utils.load_tokenizer(directory, eos_token_ids=[1]), 300)


@pytest.mark.parametrize("text", ["ing", " toy", "to", "\ning"])
def test_no_space_is_inserted_that_was_not_typed(spaced: Tokens, text: str) -> None:
    assert spaced.join(spaced.encode(text, bare=True)) == " " + text
    assert spaced.join(cut(spaced, text)) == text
    assert "".join(piece.text for piece in tokenized(spaced, text).pieces) == text


# ---- room -------------------------------------------------------------------------------------


def test_more_than_the_window_holds_is_refused_before_anything_is_taken(ready: Engine) -> None:
    failure, ended = ready.do(protocol.Insert(3, " dog" * 600))
    assert failure.message == "600 tokens don't fit: 3 of the context window's 512 are taken there."
    assert failure.hint == "Type less, or go further back."
    assert ended == protocol.Ended("Insert")
    step, _ = ready.do(protocol.TakeStep())
    assert isinstance(step, protocol.Step)
    assert (step.parent, step.position) == (4, 4)


def test_what_just_fits_is_taken(zoo: Zoo) -> None:
    session = begun(zoo.load("gpt2"), PROMPT)
    check_room(session, session.node, [5] * 236)
    with pytest.raises(StepError, match="237 tokens don't fit: 20 of the context window's 256"):
        check_room(session, session.node, [5] * 237)
    assert len(list(session.insert([5] * 236))) == 236
    with pytest.raises(StepError, match="Another token doesn't fit"):
        check_room(session, session.node, [5])


@pytest.mark.wide(1)
@pytest.mark.parametrize(("node", "message"), [(0, "before the first token"), (99, "no token number 99")])
def test_a_place_where_nothing_can_go_is_refused(ready: Engine, node: int, message: str) -> None:
    failure = ready.do(protocol.Insert(node, "x"))[0]
    assert message in failure.message


# ---- what was inserted ------------------------------------------------------------------------


@pytest.mark.wide(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [1, 11, 19])
def test_an_insertion_inside_the_prompt_equals_a_fresh_prefill(zoo: Zoo, kind: str, place: int) -> None:
    name, options, tolerance = KINDS[kind]
    loaded = zoo.load(name, **options)
    session = begun(loaded, PROMPT, Settings(candidates=4))
    tip = session.node
    session.move(place)
    typed = [700, 701, 702]
    steps = list(session.insert(typed))
    assert [step.index for step in steps] == [0, 1, 2]
    assert [step.position for step in steps] == [place, place + 1, place + 2]
    ids = session.tree.tokens(session.node)
    assert ids == PROMPT[:place] + typed
    assert (
        np.abs(session.logits - Reference(loaded).logits(tuple(ids), prompt_chunks(place))).max() <= tolerance
    )
    session.move(tip)
    assert session.tree.tokens(session.node) == PROMPT
    assert (
        np.abs(session.logits - Reference(loaded).logits(tuple(PROMPT), prompt_chunks(len(PROMPT)))).max()
        <= tolerance
    )


def test_each_typed_token_tells_what_the_model_thought_of_it(ready: Engine) -> None:
    found = ready.do(protocol.Insert(2, " a dragon<|im_end|>"))
    assert kinds(found)[0] == "Moved"
    steps = [record for record in found if isinstance(record, protocol.Step)]
    assert steps[0].text == " a"
    assert steps[-1].id == 2
    for step in steps:
        assert step.origin == "inserted"
        assert step.rank >= 1
        assert step.surprisal_bits == pytest.approx(-step.logprob / np.log(2))


def test_a_long_insertion_can_be_stopped_and_what_was_taken_stays(ready: Engine) -> None:
    inserted = ready.send(protocol.Insert(4, " dog" * 400))
    first = ready.get()
    assert isinstance(first, protocol.Step)
    ready.cancel(inserted)
    rest = ready.until_ended()
    assert rest[-1] == protocol.Ended("Insert", cancelled=True)
    assert len(rest) < 100
    step = ready.do(protocol.TakeStep())[0]
    assert isinstance(step, protocol.Step)
    assert step.position == 4 + len(rest)


# ---- a path that no tokenizer would cut -------------------------------------------------------


@pytest.mark.parametrize("model", ["pocket", "llama", "qwen3-next"])
def test_a_path_of_odd_pieces_survives_fork_move_and_return_id_for_id(zoo: Zoo, model: str) -> None:
    session = Session(zoo.load(model), Settings(candidates=4))
    tokens = session.tokens
    list(session.prefill("", tokens.encode("Once upon a time there was a"), echo=False))
    start = session.node
    canonical = tokens.encode(" little", bare=True)
    odd = [tokens.encode(" lit", bare=True), tokens.encode("tle", bare=True)]
    pieces = [token for part in odd for token in part]
    assert tokens.join(pieces) == tokens.join(canonical) == " little"
    assert pieces != canonical
    steps = [session.choose(token) for token in pieces]
    session.step()
    end, path = session.node, session.tree.tokens(session.node)
    row = session.logits.copy()
    session.move(start)
    list(session.insert(canonical))
    assert session.tree.tokens(session.node)[-len(canonical) :] == canonical
    assert session.node not in session.tree.nodes(end)
    session.move(steps[0].node)
    session.choose(300)
    session.move(end)
    assert session.tree.tokens(end) == path
    assert path[session.tree[start].depth :][: len(pieces)] == pieces
    assert np.abs(session.logits - row).max() == 0
    assert session.verify().largest_difference <= (0.25 if model == "pocket" else 1e-4)


def test_odd_pieces_taken_by_id_are_shown_as_they_are(ready: Engine) -> None:
    ids = tuple(piece.id for text in (" lit", "tle") for piece in pieces_of(ready, text))
    steps = taken(ready, ids)
    assert [step.id for step in steps] == list(ids)
    assert {step.origin for step in steps} == {"chosen"}
    assert b"".join(step.raw for step in steps) == b" little"
    assert len(steps) > len(pieces_of(ready, " little"))
    ready.do(protocol.Insert(4, " little"))
    back = ready.do(protocol.MoveTo(steps[-1].node))[0]
    assert isinstance(back, protocol.Moved)
    assert [step.node for step in taken(ready, ids)] == [step.node for step in steps]


def pieces_of(ready: Engine, text: str) -> tuple[protocol.Piece, ...]:
    told = ready.do(protocol.Tokenize(text))[0]
    return told.pieces


def taken(ready: Engine, ids: tuple[int, ...]) -> list[protocol.Step]:
    found = ready.do(protocol.Take(4, ids, "chosen"))
    return [record for record in found if isinstance(record, protocol.Step)]


# ---- a preview of a prompt ---------------------------------------------------------------------

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


@pytest.mark.wide(2)
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
    short = protocol.PreviewPrompt("Once upon a day" + " dog" * 7, False, most=11)
    for most, first, last in ((12, 11, 0), (11, 11, 0), (10, 5, 5), (9, 4, 5), (0, 1, 1)):
        told = engine.do(replace(short, most=most))[0]
        assert (told.tokens, len(told.first), len(told.last)) == (11, first, last)
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

"""Look-ahead: what it brings is what stepping there by hand brings, and the session doesn't notice."""

from __future__ import annotations

import copy
from itertools import pairwise
from threading import Event
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.decoding.lookahead import GreedyLine, lines_ahead
from engine.decoding.rows import SequentialRows, rows_of
from engine.errors import Cancelled, PromptError, StepError
from engine.model.forward import Runner
from engine.protocol import AheadLine, LookedAhead
from engine.session.session import Session, run_at
from engine.settings import Settings
from engine.task import Task
from tests.engine.decoding.test_beam import MODELS, PROMPT
from tests.engine.sessions import Breaks, arrays, begun
from tests.engine.unthreaded import Unthreaded, kinds
from tests.zoo import Zoo

TOLERANCE = 1e-4
"""Of a line's joint logprob against the sum of the steps', as the issue asks."""
COUNT = 6

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **MODELS,
    "pocket": ("pocket", {}),
    "float16": ("llama:float16", {}),
    "quantized on the way": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 28}),
    "rotating window": ("phi3", {"max_kv_size": 64}),
    "rotating after the wrap": ("phi3", {"max_kv_size": 16}),
    "no kept KV": ("qwen3-next", {"kept_kv_mib": 0}),
    "no kept logits": ("llama", {"kept_logits_mib": 0}),
}


def best(session: Session, count: int = 5) -> tuple[int, ...]:
    """The most probable candidates where a session stands."""
    return tuple(candidate.id for candidate in session.next.candidates[:count])


def by_hand(session: Session, node: int, id: int, tokens: int) -> AheadLine:
    """The line that choosing a candidate and stepping greedily gives."""
    session.move(node)
    steps = [session.choose(id)]
    while len(steps) <= tokens and steps[-1].id not in session.tokens.eos_ids:
        steps.append(session.step())
    ended = steps[-1].id in session.tokens.eos_ids
    text = "".join(step.text for step in (steps[1:-1] if ended else steps[1:]))
    return AheadLine(
        id, tuple(step.id for step in steps[1:]), text, sum(step.logprob for step in steps), ended
    )


def assert_lines(told: LookedAhead, session: Session, tokens: int) -> None:
    """The lines are those of a session that steps there by hand."""
    for line in told.lines:
        hand = by_hand(session, told.node, line.id, tokens)
        assert (line.ids, line.text, line.ended) == (hand.ids, hand.text, hand.ended)
        assert line.logprob == pytest.approx(hand.logprob, abs=TOLERANCE)


def assert_untouched(session: Session, twin: Session, before: list[np.ndarray], nodes: int) -> None:
    """The session is as it was, and goes on as one that never looked ahead."""
    assert (session.node, session.kv.offset, len(session.tree)) == (twin.node, twin.kv.offset, nodes)
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))
    assert session.kv.reading() == twin.kv.reading()
    for _ in range(3):
        mine, theirs = session.step(), twin.step()
        assert (mine.id, mine.logprob) == (theirs.id, theirs.logprob)
        assert np.array_equal(session.logits, twin.logits)


# ---- the same as stepping ---------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("kind", KINDS)
def test_where_the_session_stands_it_is_stepping_by_hand(zoo: Zoo, kind: str) -> None:
    name, options = KINDS[kind]
    loaded = zoo.load(name, **options)
    session, twin = begun(loaded, PROMPT, steps=3), begun(loaded, PROMPT, steps=3)
    ids, before, nodes = (*best(session, 4), 1000), arrays(session), len(session.tree)
    *_, told = lines_ahead(session, session.node, ids, COUNT)
    assert told.note == ""
    assert [line.id for line in told.lines] == list(ids)
    assert_untouched(session, twin, before, nodes)
    assert_lines(told, begun(loaded, PROMPT, steps=3), COUNT)


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("back", [2, 8])
def test_further_back_it_is_stepping_by_hand_too(zoo: Zoo, kind: str, back: int) -> None:
    """Two tokens back is among the steps, eight within the prompt."""
    name, options = KINDS[kind]
    loaded = zoo.load(name, **options)
    session, twin = begun(loaded, PROMPT, steps=5), begun(loaded, PROMPT, steps=5)
    node = list(session.tree.ancestors(session.node))[back]
    before, nodes = arrays(session), len(session.tree)
    *_, told = lines_ahead(session, node, (300, 400, 500), COUNT)
    assert told.node == node
    assert_untouched(session, twin, before, nodes)
    assert_lines(told, begun(loaded, PROMPT, steps=5), COUNT)


def test_on_another_branch_what_is_not_shared_is_computed_beside(zoo: Zoo) -> None:
    loaded = zoo.load("llama", kept_kv_mib=0)
    session = begun(loaded, PROMPT, steps=2)
    fork = session.node
    left = [session.choose(500), session.step(), session.step()][-1].node
    session.move(fork)
    session.choose(600)
    *_, told = lines_ahead(session, left, (300, 400), COUNT)
    assert told.note == (
        "3 tokens of the path went through the model again (no KV of branches is kept: the budget is 0)."
    )
    other = begun(loaded, PROMPT, steps=2)
    other.choose(500)
    [other.step() for _ in range(2)]
    assert other.tree.tokens(other.node) == session.tree.tokens(left)
    hand = [by_hand(other, other.node, line.id, COUNT) for line in told.lines[:1]]
    assert hand[0].ids == told.lines[0].ids


def test_a_kept_branch_is_used_beside_the_session(zoo: Zoo) -> None:
    loaded = zoo.load("mamba2")
    session = begun(loaded, PROMPT, steps=2)
    fork = session.node
    left = [session.choose(500), session.step(), session.step()][-1].node
    session.move(fork)
    session.choose(600)
    *_, told = lines_ahead(session, left, (300,), COUNT)
    assert told.note == ""
    assert_lines(told, session, COUNT)


def test_what_can_not_be_taken_off_is_said(zoo: Zoo) -> None:
    session = begun(zoo.load("qwen3-next", kept_kv_mib=0), PROMPT, steps=4)
    node = session.tree[session.node].parent
    *_, told = lines_ahead(session, node, (300,), 2)
    depth = session.tree[node].depth
    assert told.note.startswith(f"{depth} tokens of the path went through the model again (")
    assert "can't be trimmed" in told.note


@pytest.mark.parametrize("kind", ["plain", "hybrid", "rotating after the wrap", "quantized 4 bits"])
def test_a_copy_beside_can_be_written_and_the_session_is_not(zoo: Zoo, kind: str) -> None:
    name, options = KINDS[kind]
    session = begun(zoo.load(name, **options), PROMPT, steps=4)
    before = arrays(session)
    there = run_at(session, session.tree[session.node].parent)
    assert there.runner is not session.runner
    for token in (300, 400, 500):
        there.runner.forward(token)
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))


def test_without_a_kv_cache_the_path_goes_into_one_beside(zoo: Zoo) -> None:
    session = begun(zoo.load("llama", no_kv_cache=True), PROMPT)
    depth = session.tree[session.node].depth
    *_, told = lines_ahead(session, session.node, best(session), COUNT)
    assert told.note.startswith(f"{depth} tokens of the path went through the model again")
    assert session.kv.offset == 0
    assert_lines(told, begun(zoo.load("llama"), PROMPT), COUNT)


def test_caches_of_an_unknown_kind_run_one_after_another(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session, twin = begun(loaded, PROMPT, steps=2), begun(loaded, PROMPT, steps=2)

    class OwnCache(type(session.kv.caches[1])):  # type: ignore[misc]
        """What a model's own module might make."""

    session.kv.caches[1].__class__ = OwnCache
    assert isinstance(rows_of(session.runner), SequentialRows)
    before = arrays(session)
    *_, told = lines_ahead(session, session.node, best(session), COUNT)
    assert "one after another" in told.note
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))
    assert_lines(told, twin, COUNT)


# ---- the records ------------------------------------------------------------------------------


def test_settings_that_the_models_own_logits_do_not_know_are_named(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT, Settings(logit_bias=((3, -100.0),), min_tokens=5, top_p=0.5))
    told = [*lines_ahead(session, session.node, [3, 4], 2)][-1]
    assert told.note == "Greedy by the model's own logits, without logit bias, min tokens."


def test_all_lines_are_told_anew_after_every_token(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), PROMPT)
    ids = best(session)
    told = list(lines_ahead(session, session.node, ids, COUNT))
    assert [len(each.lines[0].ids) for each in told] == list(range(1, COUNT + 1))
    assert [each.last for each in told] == [False] * (COUNT - 1) + [True]
    assert {each.tokens for each in told} == {COUNT}
    assert all(one.ms < two.ms for one, two in pairwise(told))
    for one, two in pairwise(told):
        for before, after in zip(one.lines, two.lines, strict=True):
            assert after.ids[: len(before.ids)] == before.ids
            assert after.text.startswith(before.text)
            assert after.logprob <= before.logprob


def test_the_first_line_begins_as_the_greedy_run_goes_on(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), PROMPT)
    *_, told = lines_ahead(session, session.node, best(session, 1), COUNT)
    steps = [session.step() for _ in range(COUNT + 1)]
    assert [told.lines[0].id, *told.lines[0].ids] == [step.id for step in steps]


def test_a_line_ends_with_the_text_and_the_others_go_on(zoo: Zoo) -> None:
    loaded = zoo.load("pocket")
    session = begun(loaded, "They lived happily ever after")
    eos = session.tokens.eos_ids[0]
    *_, told = lines_ahead(session, session.node, (eos, *best(session, 2)), 12)
    assert (told.lines[0].ids, told.lines[0].text, told.lines[0].ended) == ((), "", True)
    ended = [line for line in told.lines[1:] if line.ended]
    assert ended
    assert all(line.ids[-1] in session.tokens.eos_ids and "<|" not in line.text for line in ended)
    assert_lines(told, begun(loaded, "They lived happily ever after"), 12)


def test_candidates_that_all_end_are_told_at_once(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), PROMPT)
    (told,) = lines_ahead(session, session.node, session.tokens.eos_ids, 4)
    assert told.last
    assert all(line.ended and not line.ids for line in told.lines)
    logprob = float(session.position.node_logits.logprobs[session.tokens.eos_ids[0]])
    assert told.lines[0].logprob == logprob


def bytes_of(session: Session) -> dict[bytes, int]:
    """Ids of single bytes that are no character."""
    found = ((session.tokens.raw(token), token) for token in range(session.tokens.vocabulary))
    return {raw: token for raw, token in found if len(raw) == 1 and raw[0] >= 0x80}


def one_hot(session: Session, token: int) -> np.ndarray:
    row = np.zeros(session.tokens.vocabulary, np.float32)
    row[token] = 9.0
    return row


def test_a_character_cut_across_tokens_appears_where_it_is_finished(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), PROMPT)
    single = bytes_of(session)
    euro = [single[bytes([byte])] for byte in "€€".encode()]
    line = GreedyLine(session.tokens, euro[0], -1.0, b"")
    texts = []
    for token in euro[1:]:
        line.grow(one_hot(session, token))
        texts.append(line.record().text)
    assert texts == ["", "€", "€", "€", "€€"]
    assert line.record().ids == tuple(euro[1:])


def test_the_candidate_finishes_what_stands_before_it_and_is_not_in_the_text(zoo: Zoo) -> None:
    loaded = zoo.load("pocket")
    session = begun(loaded, PROMPT)
    single = bytes_of(session)
    euro = [single[bytes([byte])] for byte in "€".encode()]
    node = list(session.insert(euro[:2]))[-1].node
    *_, told = lines_ahead(session, node, (euro[2], best(session, 1)[0]), 3)
    assert "€" not in told.lines[0].text
    other = begun(loaded, PROMPT)
    list(other.insert(euro[:2]))
    assert_lines(told, other, 3)


def test_of_equal_logits_the_lowest_id_is_taken(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket"), PROMPT)
    line = GreedyLine(session.tokens, 300, 0.0, b"")
    row = np.zeros(session.tokens.vocabulary, np.float32)
    row[[700, 500, 900]] = 3.0
    line.grow(row)
    assert line.record().ids == (500,)


# ---- its ends ---------------------------------------------------------------------------------


def test_the_context_window_ends_it(zoo: Zoo) -> None:
    session = begun(zoo.load("gpt2"), PROMPT)
    held = session.tree[session.node].depth
    session.facts = replace(session.facts, context_window=held + 4)
    *_, told = lines_ahead(session, session.node, (300, 400), 8)
    assert (told.tokens, told.last) == (3, True)
    assert {len(line.ids) for line in told.lines} == {3}
    assert told.note == f"The context window of {held + 4} tokens ends 3 of them after the candidate."
    session.facts = replace(session.facts, context_window=held + 1)
    (told,) = lines_ahead(session, session.node, (300,), 8)
    assert (told.tokens, told.last, told.lines[0].ids) == (0, True, ())


def test_a_full_window_is_refused_where_the_model_ends_there(zoo: Zoo) -> None:
    session = begun(zoo.load("gpt2"), PROMPT)
    session.facts = replace(session.facts, context_window=session.tree[session.node].depth)
    assert session.facts.hard_window
    with pytest.raises(StepError, match=r"no positions beyond it\. Go back, or begin with a new prompt"):
        next(lines_ahead(session, session.node, (300,)))


def test_beyond_a_soft_window_it_goes_on(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT)
    session.facts = replace(session.facts, context_window=session.tree[session.node].depth)
    *_, told = lines_ahead(session, session.node, (300,), 3)
    assert (told.tokens, told.note) == (3, "")


def test_what_can_not_be_asked(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT)
    for node in (0, -1, 10_000):
        with pytest.raises(StepError, match="no token number"):
            next(lines_ahead(session, node, (300,)))
    for ids, tokens in (((), 8), ((300,), 0)):
        with pytest.raises(StepError, match="at least one candidate and one token"):
            next(lines_ahead(session, session.node, ids, tokens))
    with pytest.raises(PromptError, match="outside the model's vocabulary"):
        next(lines_ahead(session, session.node, (10**6,)))
    with pytest.raises(StepError, match="no token number 1"):
        next(lines_ahead(Session(zoo.load("llama"), Settings()), 1, (300,)))


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("[malloc] Unable to allocate 1 bytes.", StepError, "memory to look ahead from 5 candidates at once"),
        ("[broadcast_shapes] no", RuntimeError, "broadcast"),
        (None, StepError, "not numbers here"),
    ],
)
@pytest.mark.parametrize("name", ["llama", "qwen3-next"])
def test_a_forward_that_fails_leaves_the_session_fine(
    zoo: Zoo, name: str, said: str | None, kind: type[Exception], told: str
) -> None:
    loaded = zoo.load(name)
    session, twin = begun(loaded, PROMPT, steps=2), begun(loaded, PROMPT, steps=2)
    before, nodes = arrays(session), len(session.tree)
    session.runner.compute = Breaks(loaded.model, 2, said)
    with pytest.raises(kind, match=told):
        list(lines_ahead(session, session.node, best(session), 6))
    session.runner.compute = loaded.model
    assert_untouched(session, twin, before, nodes)


# ---- cancelled --------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every batched forward from here on."""
    forwards: list[int] = []
    real = Runner.forward_rows

    def rows_of(self: Runner, tokens: Any) -> Any:
        forwards.append(len(tokens))
        return real(self, tokens)

    monkeypatch.setattr(Runner, "forward_rows", rows_of)
    return forwards


def test_a_cancel_takes_effect_within_one_forward(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards = counted(monkeypatch)
    session, stop = begun(zoo.load("llama"), PROMPT, steps=2), Event()
    told = lines_ahead(session, session.node, best(session), 8, stop.is_set)
    assert [len(next(told).lines[0].ids) for _ in range(3)] == [1, 2, 3]
    stop.set()
    with pytest.raises(Cancelled):
        next(told)
    assert forwards == [5, 5, 5]


def test_the_path_of_another_branch_can_be_stopped(zoo: Zoo) -> None:
    session = begun(zoo.load("qwen3-next", kept_kv_mib=0), PROMPT, steps=3)
    node = session.tree[session.node].parent
    with pytest.raises(Cancelled):
        next(lines_ahead(session, node, (300,), 8, lambda: True))


def test_the_worker_tells_cancels_and_answers_between_tokens(zoo: Zoo) -> None:
    engine = Unthreaded(zoo.load("pocket"))
    session = engine.context.opened = begun(zoo.load("pocket"), PROMPT)
    ids = best(session)
    engine.cancel_when = lambda record: len(engine.of(LookedAhead)) == 2
    engine.do(protocol.LookAhead(session.node, ids))
    assert len(engine.of(LookedAhead)) == 2
    assert engine.records[-1] == protocol.Ended("LookAhead", cancelled=True)

    engine.cancel_when, engine.asides = lambda record: False, [Task(protocol.Explain(session.node))]
    told = kinds(engine.do(protocol.LookAhead(session.node, ids, 3)))
    assert told == ["LookedAhead", "Explained", "Ended", "LookedAhead", "LookedAhead", "Ended"]

    engine.records.clear()
    engine.do(protocol.LookAhead(9999, ids))
    failure, ended = engine.records
    assert failure.expected
    assert "9999" in failure.message
    assert ended == protocol.Ended("LookAhead")


def test_taking_a_line_makes_its_tokens_steps(zoo: Zoo) -> None:
    engine = Unthreaded(zoo.load("pocket"))
    session = engine.context.opened = begun(zoo.load("pocket"), PROMPT)
    node, (_, second, *_) = session.node, best(session)
    engine.do(protocol.LookAhead(node, (second,), 4))
    line = engine.of(LookedAhead)[-1].lines[0]
    engine.records.clear()
    engine.do(protocol.Take(node, (line.id, *line.ids)))
    steps = engine.of(protocol.Step)
    assert [step.id for step in steps] == [line.id, *line.ids]
    assert sum(step.logprob for step in steps) == pytest.approx(line.logprob, abs=TOLERANCE)
    assert session.node == steps[-1].node


def test_a_deep_copy_of_an_array_is_its_own() -> None:
    """What `engine.session.session` leans on: a write into the copy leaves the original, and the other way round."""
    one = mx.zeros((2, 2))
    other = copy.deepcopy(one)
    other[0, 0] = 1.0
    one[1, 1] = 2.0
    assert one.tolist() == [[0, 0], [0, 2]]
    assert other.tolist() == [[1, 0], [0, 0]]

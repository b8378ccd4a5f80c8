"""Beam search against its plain definition: no cache, no batch, a full forward for every beam and step."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine import protocol
from engine.decoding.beam import search
from engine.decoding.rows import BatchedRows, SequentialRows, rows_of
from engine.errors import SettingsError, StepError
from engine.model.load import Loaded, load
from engine.model.tokens import Tokens
from engine.sampling.ranking import checked_logprobs
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from tests.engine.sessions import Breaks, arrays, begun
from tests.engine.unthreaded import Unthreaded, kinds
from tests.zoo import Zoo

TOLERANCE = 1e-4
"""Of scores and logprobs in float32; on the CPU backend 2e-6 was the largest difference seen."""
BF16 = 0.05
"""Of scores in bfloat16, where logits of 8 to 16 lie 0.06 apart and a batch of rows may round otherwise than a row
alone. On the CPU backend it does not: the difference was 5e-9."""
PROMPT = "Once upon a time, there was a little girl named Lily. She had a red ball and a"

Logits = Callable[[list[int]], np.ndarray]


# ---- the plain definition ---------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """A hypothesis: ids after the prompt, sum of logprobs, score."""

    ids: tuple[int, ...]
    logprob: float
    score: float


def wide_log_softmax(row: np.ndarray) -> np.ndarray:
    """In float64."""
    wide = row.astype(np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


def plain_beams(
    logits: Logits,
    prompt: list[int],
    width: int,
    penalty: float,
    early: bool,
    limit: int,
    eos: Sequence[int] = (),
    least: int = 0,
    softmax: Callable[[np.ndarray], np.ndarray] = wide_log_softmax,
) -> list[Plain]:
    """Beam search written out: every extension of every beam, sorted."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Plain] = []
    for step in range(1, limit + 1):
        totals = []
        for ids, total in live:
            logprobs = softmax(logits([*prompt, *ids])).astype(np.float64)
            if step <= least:
                logprobs[list(eos)] = -np.inf
            totals.append(total + logprobs)
        every = np.concatenate(totals)
        order = np.argsort(-every, kind="stable")[: max(2, 1 + len(eos)) * width]
        best = [
            ((*live[place][0], token), float(every[at]))
            for at in order
            for place, token in [divmod(int(at), totals[0].size)]
            if np.isfinite(every[at])
        ]
        for ids, total in best[:width]:
            if ids[-1] in eos or step == limit:
                finished.append(Plain(ids, total, total / step**penalty))
        finished = sorted(finished, key=lambda each: -each.score)[:width]
        live = [(ids, total) for ids, total in best if ids[-1] not in eos][:width]
        if step == limit or not live:
            break
        if len(finished) == width and (early or live[0][1] / step**penalty <= finished[-1].score):
            break
    return finished


def plain_greedy(
    logits: Logits, prompt: list[int], limit: int, eos: Sequence[int] = (), least: int = 0
) -> tuple[int, ...]:
    """The most probable token, again and again."""
    ids: list[int] = []
    while len(ids) < limit and not (ids and ids[-1] in eos):
        row = logits(prompt + ids).copy()
        if len(ids) < least:
            row[list(eos)] = -np.inf
        ids.append(int(row.argmax()))
    return tuple(ids)


KNOWN: dict[Tokens, dict[tuple[int, ...], np.ndarray]] = {}
"""By model, told by its tokenizer: rows that were computed in a test before."""


def uncached(loaded: Loaded) -> Logits:
    """A forward of the whole path, with no cache; each path is run once."""
    known = KNOWN.setdefault(loaded.tokens, {})

    def logits(ids: list[int]) -> np.ndarray:
        if tuple(ids) not in known:
            row = loaded.model(mx.array([ids]))[0, -1].astype(mx.float32)
            known[tuple(ids)] = np.array(row)
        return known[tuple(ids)]

    return logits


def stepped(loaded: Loaded, prompt: int) -> Logits:
    """A new session for each path: its prompt prefilled, the rest one by one. For quantized KV, which no forward
    without a cache has."""
    known: dict[tuple[int, ...], np.ndarray] = {}

    def logits(ids: list[int]) -> np.ndarray:
        if tuple(ids) not in known:
            session = begun(loaded, ids[:prompt])
            list(session.insert(ids[prompt:]))
            known[tuple(ids)] = session.logits
        return known[tuple(ids)]

    return logits


# ---- running it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """The records of a search."""

    opened: protocol.BeamOpened
    steps: tuple[protocol.BeamStep, ...]
    end: protocol.BeamEnded


def ran(session: Session, **asked: Any) -> Ran:
    """Search to the end."""
    found = list(search(session, BeamSettings(**asked)))
    opened, *steps, end = found
    assert isinstance(opened, protocol.BeamOpened)
    assert isinstance(end, protocol.BeamEnded)
    taken = tuple(step for step in steps if isinstance(step, protocol.BeamStep))
    assert len(taken) == len(steps)
    assert [step.last for step in taken] == [False] * (len(taken) - 1) + [True]
    return Ran(opened, taken, end)


def assert_same(found: Sequence[protocol.Hypothesis], expected: Sequence[Plain], tolerance: float) -> None:
    assert [each.ids for each in found] == [each.ids for each in expected]
    for each, plain in zip(found, expected, strict=True):
        assert each.score == pytest.approx(plain.score, abs=tolerance)
        assert each.logprob == pytest.approx(plain.logprob, abs=tolerance * max(1, each.length))


# ---- real models ------------------------------------------------------------------------------

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {}),
    "weights of 4 bits": ("llama:4bit", {}),
    "sliding beyond the window": ("gemma3", {}),
    "sliding with sinks": ("gpt-oss", {}),
    "sliding llama": ("llama-sliding", {}),
    "recurrent": ("mamba2", {}),
    "hybrid": ("qwen3-next", {}),
    "convolution": ("lfm2", {}),
    "latent attention": ("deepseek-v2", {}),
    "experts": ("mixtral", {}),
    "quantized 8 bits": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    "quantized 4 bits": ("llama", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}),
    "quantized on the way": ("llama", {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 26}),
    "rotating window": ("phi3", {"max_kv_size": 16}),
}


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("width", [1, 3, 10])
def test_sequences_and_scores_are_those_of_the_plain_definition(zoo: Zoo, kind: str, width: int) -> None:
    name, options = MODELS[kind]
    loaded = zoo.load(name, **options)
    session = begun(loaded, PROMPT * 2 if "sliding" in kind else PROMPT)
    ids = session.tree.tokens(session.node)
    assert "sliding" not in kind or len(ids) > 32
    logits = stepped(loaded, len(ids)) if options else uncached(loaded)
    found = ran(session, width=width, max_tokens=6)
    expected = plain_beams(logits, ids, width, 1.0, False, 6, loaded.tokens.eos_ids)
    assert found.opened.note == ""
    assert_same(found.end.ranking, expected, TOLERANCE)
    assert found.end.greedy.ids == plain_greedy(logits, ids, 6, loaded.tokens.eos_ids)


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    """The bundled model, computed in float32."""
    loaded = load(LoadSettings())
    loaded.model.set_dtype(mx.float32)
    return loaded


@pytest.mark.wide(1)
@pytest.mark.parametrize("width", range(1, 11))
def test_the_pocket_model_at_every_width(pocket: Loaded, width: int) -> None:
    session = begun(pocket, "Once upon a time")
    ids = session.tree.tokens(session.node)
    found = ran(session, width=width, max_tokens=8)
    expected = plain_beams(uncached(pocket), ids, width, 1.0, False, 8, pocket.tokens.eos_ids)
    assert_same(found.end.ranking, expected, TOLERANCE)


ENDING = "They lived"


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
def test_the_pocket_model_where_stories_end(pocket: Loaded, penalty: float, early: bool) -> None:
    session = begun(pocket, ENDING)
    ids = session.tree.tokens(session.node)
    found = ran(session, width=4, length_penalty=penalty, early_stopping=early, max_tokens=12)
    eos = pocket.tokens.eos_ids
    assert_same(found.end.ranking, plain_beams(uncached(pocket), ids, 4, penalty, early, 12, eos), TOLERANCE)
    ended = [each for each in found.end.ranking if each.reason == "eos"]
    assert ended or penalty > 1  # which favours what goes on
    assert all(each.ids[-1] in eos and "<|" not in each.text for each in ended)


@pytest.mark.slow
def test_the_pocket_model_in_its_own_bfloat16(zoo: Zoo) -> None:
    """Beams of a batch against the same paths stepped alone: every score within what the dtype resolves."""
    loaded = zoo.load("pocket")
    session = begun(loaded, PROMPT)
    alone = stepped(loaded, session.tree[session.node].depth)
    prompt = session.tree.tokens(session.node)
    for each in ran(session, width=4, max_tokens=8).end.ranking:
        total = 0.0
        for place, token in enumerate(each.ids):
            total += wide_log_softmax(alone([*prompt, *each.ids[:place]]))[token]
        assert each.score == pytest.approx(total / each.length, abs=BF16)


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["pocket", "llama", "mamba2", "gemma3", "qwen3-next"])
def test_width_one_is_greedy_stepping(zoo: Zoo, name: str) -> None:
    session = begun(zoo.load(name), PROMPT)
    found = ran(session, width=1, max_tokens=12)
    (only,) = found.end.ranking
    assert only == found.end.greedy
    steps = [session.step() for _ in range(only.length)]
    assert [step.id for step in steps] == list(only.ids)
    assert [step.node for step in steps][-1] == only.node
    assert only.logprob == pytest.approx(sum(step.logprob for step in steps), abs=1e-4)


# ---- what is not touched ----------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize("kind", MODELS)
def test_the_session_is_as_it_was(zoo: Zoo, kind: str) -> None:
    name, options = MODELS[kind]
    session, other = begun(zoo.load(name, **options), PROMPT), begun(zoo.load(name, **options), PROMPT)
    node, following, before, offset = session.node, session.next, arrays(session), session.kv.offset
    reading = session.kv.reading()
    ran(session, width=3, max_tokens=6)
    assert (session.node, session.next, session.kv.offset) == (node, following, offset)
    assert session.kv.reading() == reading
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))
    for _ in range(4):
        mine, theirs = session.step(), other.step()
        assert mine.id == theirs.id
        assert mine.logprob == theirs.logprob


def test_beams_are_nodes_of_the_same_tree(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT)
    start = session.node
    taken = session.step()
    session.move(start)
    found = ran(session, width=4, max_tokens=5)
    for beam in (beam for step in found.steps for beam in (*step.live, *step.pruned)):
        assert session.tree[beam.node].parent == beam.parent
        assert session.tree[beam.node].token == beam.id
    for each in found.end.ranking:
        assert tuple(session.tree.tail(each.node, each.length)) == each.ids
        assert session.tokens.join(list(each.ids)) == each.text
        assert session.tree[each.node].origin == "beam"
    assert session.tree[taken.node].origin == "greedy"
    best = found.end.ranking[0]
    assert session.move(best.node).node == best.node


def test_it_begins_where_the_session_stands(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    session = begun(loaded, PROMPT)
    step = [session.step() for _ in range(3)][-1]
    ids = session.tree.tokens(step.node)
    found = ran(session, width=3, max_tokens=6)
    assert found.opened.node == step.node
    assert_same(found.end.ranking, plain_beams(uncached(loaded), ids, 3, 1.0, False, 6, (2,)), TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "qwen3-next"])
@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (
            "[malloc] Unable to allocate 1 bytes.",
            StepError,
            r"memory for [45] beams at once\. Take a smaller width\.",
        ),
        ("[broadcast_shapes] no", RuntimeError, "broadcast"),
    ],
)
def test_a_forward_that_fails_leaves_the_session_fine(
    zoo: Zoo, name: str, said: str, kind: type[Exception], told: str
) -> None:
    loaded = zoo.load(name)
    session, other = begun(loaded, PROMPT), begun(loaded, PROMPT)
    before = arrays(session)
    session.runner.compute = Breaks(loaded.model, 2, said)
    with pytest.raises(kind, match=told):
        list(search(session, BeamSettings(width=4, max_tokens=6)))
    session.runner.compute = loaded.model
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))
    for _ in range(3):
        mine, theirs = session.step(), other.step()
        assert (mine.id, mine.logprob) == (theirs.id, theirs.logprob)
    assert ran(session, width=2, max_tokens=3).end.ranking


# ---- caches that hold one row -----------------------------------------------------------------


def test_a_cache_of_an_unknown_kind_runs_its_beams_one_after_another(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    together = ran(begun(loaded, PROMPT), width=4, max_tokens=6)
    session = begun(loaded, PROMPT)

    class OwnCache(type(session.kv.caches[1])):  # type: ignore[misc]
        """What a model's own module might make."""

    session.kv.caches[1].__class__ = OwnCache
    assert isinstance(rows_of(session.runner), SequentialRows)
    before = arrays(session)
    found = ran(session, width=4, max_tokens=6)
    assert "OwnCache" in found.opened.note
    assert "one after another" in found.opened.note
    assert [each.ids for each in found.end.ranking] == [each.ids for each in together.end.ranking]
    for one, two in zip(found.end.ranking, together.end.ranking, strict=True):
        assert one.score == pytest.approx(two.score, abs=TOLERANCE)
    assert all(np.array_equal(one, two) for one, two in zip(before, arrays(session), strict=True))


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2", "qwen3-next"])
def test_rows_reordered_at_will_are_the_paths_they_stand_for(zoo: Zoo, name: str) -> None:
    session = begun(zoo.load(name), PROMPT)
    logits, prompt = uncached(zoo.load(name)), session.tree.tokens(session.node)
    made, paths = BatchedRows(session.runner), [prompt]
    random = np.random.default_rng(0)
    for count in (3, 3, 5, 2, 2, 4):
        parents = [int(each) for each in random.integers(0, len(paths), count)]
        tokens = [int(each) for each in random.integers(3, 4000, count)]
        paths = [[*paths[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        made.keep(parents)
        for row, path in zip(made.forward(tokens), paths, strict=True):
            assert np.abs(row - logits(path)).max() < TOLERANCE


# ---- the algorithm alone, on a model that is a table ------------------------------------------


class Table:
    """A model of few tokens whose logits are random numbers, the same for the same path."""

    note = ""

    def __init__(self, seed: int, vocabulary: int, size: int) -> None:
        self._seed, self._vocabulary, self._size = seed, vocabulary, size
        self._paths: list[list[int]] = [[]]

    def logits(self, path: list[int]) -> np.ndarray:
        row = np.full(self._size, -np.inf, np.float32)
        random = np.random.default_rng([self._seed, zlib.crc32(repr([int(each) for each in path]).encode())])
        row[: self._vocabulary] = random.normal(0, 2, self._vocabulary)
        return row

    def keep(self, places: Sequence[int]) -> None:
        self._paths = [self._paths[place] for place in places]

    def forward(self, tokens: Sequence[int]) -> list[np.ndarray]:
        self._paths = [[*path, token] for path, token in zip(self._paths, tokens, strict=True)]
        return [self.logits(path) for path in self._paths]


@pytest.fixture(scope="module")
def stage(zoo: Zoo) -> Iterator[Session]:
    """A session whose tokens 0 and 3 end a sequence."""
    session = begun(zoo.load("llama"), PROMPT)
    eos = session.tokens.eos_ids
    session.tokens.eos_ids = (0, 3)
    yield session
    session.tokens.eos_ids = eos


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(4, 12),
    width=st.integers(1, 10),
    penalty=st.sampled_from([-2.0, -0.5, 0.0, 0.6, 1.0, 2.0]),
    early=st.booleans(),
    limit=st.integers(1, 7),
    least=st.integers(0, 5),
)
def test_the_algorithm_on_a_table(
    stage: Session,
    seed: int,
    vocabulary: int,
    width: int,
    penalty: float,
    early: bool,
    limit: int,
    least: int,
) -> None:
    table = Table(seed, vocabulary, stage.facts.vocabulary)
    list(stage.prefill("", [5, 6], echo=False))
    stage.settings = replace(stage.settings, min_tokens=least)
    stage._set_node(stage.node, table.logits([]))
    asked = BeamSettings(width, penalty, early, limit)
    opened, *steps, end = search(stage, asked, table)
    assert isinstance(opened, protocol.BeamOpened)
    # the same softmax: what is tried here is the order of things, and two roundings may order a tie in two ways
    expected = plain_beams(table.logits, [], width, penalty, early, limit, (0, 3), least, checked_logprobs)
    assert [(each.ids, each.logprob, each.score) for each in end.ranking] == [
        (each.ids, each.logprob, each.score) for each in expected
    ]
    assert end.greedy.ids == plain_greedy(table.logits, [], limit, (0, 3), least)
    assert end.reason == ("length" if end.steps == limit else "finished")
    _told_in_full([step for step in steps if isinstance(step, protocol.BeamStep)], end, width)


def _told_in_full(steps: list[protocol.BeamStep], end: protocol.BeamEnded, width: int) -> None:
    """Every live beam has a successor, is finished, or fell out once; nothing else did."""
    before: tuple[protocol.Beam, ...] = ()
    for number, step in enumerate(steps, 1):
        assert step.step == number
        assert len(step.live) <= width
        assert [beam.place for beam in step.live] == list(range(len(step.live)))
        totals = [beam.total_logprob for beam in step.live]
        assert totals == sorted(totals, reverse=True)
        for beam in step.live if number > 1 else ():
            assert before[beam.parent_place].node == beam.parent
            assert beam.total_logprob == before[beam.parent_place].total_logprob + beam.logprob
        if number <= end.steps:
            grown = {beam.parent for beam in step.live}
            assert all(beam in before and beam.node not in grown for beam in step.pruned)
            assert len(step.pruned) + len(grown) <= max(1, len(before))
            before = step.live
        else:
            assert (step.live, step.pruned) == ((), ())
    assert end.left == (before if end.reason == "finished" else ())
    assert steps[-1].finished == end.ranking


def test_end_of_sequence_is_barred_as_the_session_does_it(stage: Session) -> None:
    """Tokens of the completion count that were there before the search."""
    list(stage.prefill("", [5, 6], echo=False))
    stage.settings = replace(stage.settings, min_tokens=5)
    list(stage.insert([7, 8, 9]))
    table = Table(1, 4, stage.facts.vocabulary)
    stage._set_node(stage.node, table.logits([]))
    *_, end = search(stage, BeamSettings(4, max_tokens=6), table)
    assert_same(end.ranking, plain_beams(table.logits, [], 4, 1.0, False, 6, (0, 3), 2), 1e-5)
    assert min(each.length for each in end.ranking) >= 3


class FlatTable(Table):
    """Logits that differ by less than their logprobs are rounded to."""

    def logits(self, path: list[int]) -> np.ndarray:
        return np.asarray(super().logits(path) * np.float32(1e-9), np.float32)


def test_greedy_goes_by_the_logits_as_stepping_does(stage: Session) -> None:
    table = FlatTable(3, 8, stage.facts.vocabulary)
    assert len(set(checked_logprobs(table.logits([]))[:8].tolist())) == 1
    list(stage.prefill("", [5, 6], echo=False))
    stage.settings = replace(stage.settings, min_tokens=2)
    stage._set_node(stage.node, table.logits([]))
    *_, end = search(stage, BeamSettings(2, max_tokens=5), table)
    assert isinstance(end, protocol.BeamEnded)
    assert end.greedy.ids == plain_greedy(table.logits, [], 5, (0, 3), 2)


# ---- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"width": 0}, "from 1 to 10, not 0"),
        ({"width": 11}, "from 1 to 10, not 11"),
        ({"length_penalty": float("nan")}, "not nan"),
        ({"length_penalty": 11.0}, "not 11"),
        ({"max_tokens": 0}, "not 0"),
    ],
)
def test_settings_out_of_range(zoo: Zoo, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        next(search(begun(zoo.load("llama"), PROMPT), BeamSettings(**asked)))


def test_no_prompt(zoo: Zoo) -> None:
    with pytest.raises(StepError, match="no prompt"):
        list(search(Session(zoo.load("llama"), Settings()), BeamSettings()))


def test_the_context_window_ends_it(zoo: Zoo) -> None:
    session = Session(zoo.load("gpt2"), Settings())
    window = session.facts.context_window
    assert window == 256
    list(session.prefill("", list(range(5, 5 + window - 3)), echo=False))
    found = ran(session, width=3, max_tokens=20)
    assert found.opened.max_tokens == 3
    assert {each.length for each in found.end.ranking} == {3}
    list(session.insert([5, 6, 7]))
    with pytest.raises(StepError, match="is full"):
        list(search(session, BeamSettings()))


def test_logits_that_are_no_numbers(zoo: Zoo) -> None:
    class Nothing(Table):
        def forward(self, tokens: Sequence[int]) -> list[np.ndarray]:
            return [np.full(self._size, np.nan, np.float32) for _ in tokens]

    session = begun(zoo.load("llama"), PROMPT)
    with pytest.raises(StepError, match="not numbers"):
        list(search(session, BeamSettings(), Nothing(0, 9, 4096)))


# ---- as commands ------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Unthreaded:
    return Unthreaded(LoadSettings(), prompt="Once upon a time")


def test_a_search_in_parts_is_the_search_in_one(engine: Unthreaded) -> None:
    whole = engine.do(protocol.SearchBeams(BeamSettings(3, max_tokens=6)))
    assert kinds(whole) == ["BeamOpened", *["BeamStep"] * 6, "BeamEnded", "Ended"]
    assert kinds(engine.do(protocol.SearchBeams(BeamSettings(3, max_tokens=6), steps=2))) == [
        "BeamOpened", "BeamStep", "BeamStep", "Ended",
    ]  # fmt: skip
    moved = engine.do(protocol.MoveTo(2))  # the live cache goes elsewhere: the beams have their own
    assert kinds(moved) == ["Moved", "Ended"]
    assert kinds(engine.do(protocol.GoOnBeams(steps=1))) == ["BeamStep", "Ended"]
    rest = engine.do(protocol.GoOnBeams())
    assert kinds(rest) == [*["BeamStep"] * 3, "BeamEnded", "Ended"]
    one, other = whole[-2], rest[-2]
    assert one.ranking == other.ranking
    failed = engine.do(protocol.GoOnBeams())
    assert failed[0].message == "There is no beam search to continue."


def test_a_cancel_takes_effect_between_two_steps_and_can_be_gone_on_from(engine: Unthreaded) -> None:
    command = protocol.SearchBeams(BeamSettings(3, max_tokens=6))
    engine.cancel_when = lambda record: isinstance(record, protocol.BeamStep) and record.step == 2
    found = engine.do(command)
    assert kinds(found) == ["BeamOpened", "BeamStep", "BeamStep", "Ended"]
    assert found[-1] == protocol.Ended("SearchBeams", cancelled=True)
    assert kinds(engine.do(protocol.TakeStep())) == ["Step", "Ended"]
    assert kinds(engine.do(protocol.GoOnBeams()))[-2:] == ["BeamEnded", "Ended"]


def test_a_new_prompt_ends_a_search_that_waits(engine: Unthreaded) -> None:
    engine.do(protocol.SearchBeams(BeamSettings(3, max_tokens=6), steps=1))
    engine.do(protocol.Prefill("There was a dog", chat=False))
    assert kinds(engine.do(protocol.GoOnBeams())) == ["Failure", "Ended"]
    assert kinds(engine.do(protocol.SearchBeams(BeamSettings(width=12)))) == ["Failure", "Ended"]

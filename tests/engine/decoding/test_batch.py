"""A lane of a batch says what its prompt says alone, whoever else is there; and every row-step is accounted for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import mlx_lm.models.cache as mlx_caches
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.cache import padded
from engine.decoding import batch as batches
from engine.decoding.rows import PaddedRows
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import (
    BatchOpened,
    BatchStep,
    LaneCompared,
    LaneEnded,
    LanePrompt,
    LaneToken,
    Record,
    StartBatch,
)
from engine.session.node_records import stop_reached
from engine.settings import LoadSettings, Settings
from engine.task import Task
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

CREATIVE = Settings(temp=0.9, top_p=0.95, seed=11, max_tokens=12)


class Batch(Unthreaded):
    """Batches in a worker with a model.

    Args:
        loaded: How its model is loaded.
        settings: The session's.
    """

    def __init__(self, loaded: LoadSettings, settings: Settings = CREATIVE) -> None:
        super().__init__(loaded, settings)

    def start(self, prompts: Sequence[str | LanePrompt], **more: Any) -> list[Record]:
        """What a batch of these prompts begins with, or comes to."""
        lanes = tuple(each if isinstance(each, LanePrompt) else LanePrompt(each) for each in prompts)
        return self.do(StartBatch(lanes, **more))

    @property
    def tokens(self) -> dict[int, list[LaneToken]]:
        """The tokens of each lane of the last batch."""
        begun = max(n for n, each in enumerate(self.records) if isinstance(each, BatchOpened))
        found: dict[int, list[LaneToken]] = {}
        for step in self.of(protocol.BatchStep, self.records[begun:]):
            for token in step.tokens:
                found.setdefault(token.lane, []).append(token)
        return found

    @property
    def ids(self) -> dict[int, list[int]]:
        """Their ids."""
        return {lane: [token.id for token in tokens] for lane, tokens in self.tokens.items()}


def source(zoo: Zoo, name: str, **more: Any) -> LoadSettings:
    """How a model of the zoo is loaded; `pocket` is the bundled one."""
    return LoadSettings(model="pocket" if name == "pocket" else str(zoo.path(name)), **more)


def alone(loaded: Loaded, ids: Sequence[int], settings: Settings) -> list[int]:
    """The ids that a session of its own generates after a prompt."""
    session = begun(loaded, list(ids), settings)
    found: list[int] = []
    while not found or stop_reached(session, session.node) is None:
        found.append(session.step().id)
    return found


def explained(compared: Sequence[LaneCompared]) -> bool:
    """Whether rounding explains what differs, and something was compared."""
    return bool(compared) and all(each.within for each in compared)


SENTENCE = "Once upon a time there was a little dog who liked to play in the big red park with his friend Tom"
WORDS = SENTENCE.split(" ")
FAMILIES = ("llama", "gemma3", "mamba2", "qwen3-next", "gpt-oss")
"""Full attention, windows beside it, a recurrent state, both, windows with sinks and experts."""
STATIC = (False, True)


def texts(count: int, longest: int, seed: int = 5) -> list[str]:
    """Prompts of 1 to about `longest` tokens, the shortest and the longest among them."""
    chance = random.Random(seed)
    lengths = [1, longest, *(chance.randint(1, longest) for _ in range(count - 2))]
    return [" ".join(chance.choices(WORDS, k=length)) for length in lengths]


def check_against_sessions(batch: Batch, zoo: Zoo, name: str, **more: Any) -> None:
    """Every lane's ids are those of a session, or the first that differs is told and lies within the rounding."""
    opened = batch.of(protocol.BatchOpened)[-1]
    compared = {each.lane: each for each in batch.of(LaneCompared, batch.do(protocol.CompareBatch()))}
    assert len(compared) == len(opened.lanes)
    assert explained(list(compared.values()))
    loaded, ids = zoo.load(name, **more), batch.ids
    for lane in opened.lanes:
        by_itself = alone(loaded, lane.ids, replace(CREATIVE, seed=lane.seed))
        if compared[lane.lane].difference is None:
            assert ids[lane.lane] == by_itself
        else:
            index = compared[lane.lane].difference.index  # type: ignore[union-attr]
            assert ids[lane.lane][:index] == by_itself[:index]
    assert sum(each.difference is None for each in compared.values()) >= len(compared) * 0.9


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["gemma3", "qwen3-next"])
def test_a_lane_says_what_its_prompt_says_alone(zoo: Zoo, name: str) -> None:
    batch = Batch(source(zoo, name))
    prompts = [LanePrompt(text, settings=replace(CREATIVE, seed=n)) for n, text in enumerate(texts(4, 40))]
    batch.start(prompts)
    assert batch.of(protocol.BatchOpened)[0].note == ""
    check_against_sessions(batch, zoo, name)


def test_a_lane_has_settings_and_draws_of_its_own(zoo: Zoo) -> None:
    """One prompt under other seeds and other settings: each lane draws what the prompt draws alone under them."""
    batch, text = Batch(source(zoo, "llama")), texts(2, 12)[1]
    own = [
        CREATIVE,
        replace(CREATIVE, seed=12),
        replace(CREATIVE, temp=1.5, top_p=1.0, top_k=50, max_tokens=9),
        replace(CREATIVE, temp=0.0),
        replace(CREATIVE, repetition_penalty=1.3, seed=12),
    ]
    batch.start([LanePrompt(text, settings=settings) for settings in own])
    (opened,) = batch.of(protocol.BatchOpened)
    assert [lane.seed for lane in opened.lanes] == [11, 12, 11, 11, 12]
    assert [lane.settings for lane in opened.lanes] == [
        (), (), ("temperature 1.5", "top-p 1", "top-k 50", "max tokens 9"), ("temperature 0",),
        ("repetition penalty 1.3",),
    ]  # fmt: skip
    loaded = zoo.load("llama")
    for lane, settings in zip(opened.lanes, own, strict=True):
        assert batch.ids[lane.lane] == alone(loaded, lane.ids, settings)
    assert len(set(map(tuple, batch.ids.values()))) == len(own)  # or it would show nothing
    batch.do(protocol.CompareBatch())
    assert all(each.difference is None for each in batch.of(LaneCompared))


@pytest.mark.slow
def test_prompts_that_begin_with_each_other_are_lanes_of_their_own(zoo: Zoo) -> None:
    """What a shorter prompt goes on with is the prompt of a longer one: a token of the one is none of the other."""
    greedy = Settings(max_tokens=12, min_tokens=4)
    batch = Batch(source(zoo, "pocket"))
    batch.start([LanePrompt("Once upon a time", settings=replace(greedy, max_tokens=20))])
    (told,) = batch.ids.values()
    text = "Once upon a time" + zoo.load("pocket").tokens.join(told)
    words = text.split(" ")
    prompts = [" ".join(words[:count]) for count in range(4, len(words), 3)]
    batch.start([LanePrompt(each, settings=greedy) for each in prompts])
    loaded, opened = zoo.load("pocket"), batch.of(protocol.BatchOpened)[-1]
    assert [batch.ids[lane.lane] for lane in opened.lanes] == [
        alone(loaded, lane.ids, greedy) for lane in opened.lanes
    ]
    assert max(map(len, batch.ids.values())) == 12  # ended by the limit


@pytest.mark.slow
@pytest.mark.parametrize("static", STATIC)
@pytest.mark.parametrize("name", ["pocket", *FAMILIES])
def test_forty_prompts(zoo: Zoo, name: str, static: bool) -> None:
    """Of 1 to 200 tokens, sixteen at once, so that lanes end, leave and come all the time."""
    batch = Batch(source(zoo, name))
    prompts = [LanePrompt(text, settings=replace(CREATIVE, seed=n)) for n, text in enumerate(texts(40, 190))]
    batch.start(prompts, size=16, static=static)
    lengths = [len(lane.ids) for lane in batch.of(protocol.BatchOpened)[0].lanes]
    assert max(lengths) >= 150
    assert min(lengths) <= 5
    check_against_sessions(batch, zoo, name)


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_lanes_that_leave_and_come_change_no_other(zoo: Zoo, name: str) -> None:
    prompts = texts(5, 40)
    settings = replace(CREATIVE, max_tokens=20)
    calm, busy = Batch(source(zoo, name), settings), Batch(source(zoo, name), settings)
    calm.start(prompts)
    busy.start([prompts[0], prompts[1], "Tom", prompts[2]], steps=4)
    assert all(len(ids) == 4 for ids in busy.ids.values())
    busy.do(protocol.RemoveLane(2))
    busy.do(protocol.AdvanceBatch(steps=3))
    busy.do(protocol.AddLanes((LanePrompt(prompts[3]), LanePrompt(prompts[4]))))
    busy.do(protocol.AdvanceBatch(steps=2))
    busy.do(protocol.AdvanceBatch())
    lanes = (0, 1, 3, 4, 5)
    assert [busy.ids[lane] for lane in lanes] == [calm.ids[lane] for lane in range(5)]
    assert len(busy.ids[2]) == 4
    assert [end.reason for end in busy.of(LaneEnded) if end.lane == 2] == ["removed"]


def test_lanes_wait_for_a_row(zoo: Zoo) -> None:
    """Continuous: as soon as one ends. Static: once all have ended."""
    prompts = [
        LanePrompt(text, settings=replace(CREATIVE, max_tokens=n))
        for text, n in (("a", 3), ("b", 8), ("c", 4))
    ]
    totals, before = {}, {}
    for static in STATIC:
        batch = Batch(source(zoo, "llama"))
        batch.start(prompts, size=2, static=static)
        assert {lane: len(ids) for lane, ids in batch.ids.items()} == {0: 3, 1: 8, 2: 4}
        joins = [place for place, each in enumerate(batch.records) if isinstance(each, protocol.LanesJoined)]
        assert len(joins) == 2
        before[static] = len(batch.of(BatchStep, batch.records[: joins[1]]))
        totals[static] = batch.of(protocol.BatchEnded)[0].totals
    assert before == {False: 3, True: 8}
    # Continuous: 2 + 7 tokens of a and b go through the model; c's 3 run beside b's.
    assert (totals[False].rows, totals[False].rows_after_end, totals[False].forwards) == (12, 0, 7)
    # Static: a's row runs on for five forwards after its end; then c runs alone.
    assert (totals[True].rows, totals[True].rows_after_end, totals[True].forwards) == (12, 5, 10)
    assert totals[True].tokens == totals[False].tokens == 15


def test_padding_is_counted(zoo: Zoo) -> None:
    batch = Batch(source(zoo, "llama"))
    batch.start(["Once upon a time there was a dog", "Tom", "A dog"], steps=0)
    lengths = [len(lane.ids) for lane in batch.of(protocol.BatchOpened)[0].lanes]
    longest = max(lengths)
    assert batch.of(protocol.LanesJoined)[0].padding == tuple(longest - length for length in lengths)
    chunks = batch.of(protocol.LanesPrefilled)
    assert sum(chunk.tokens for chunk in chunks) == sum(lengths)
    assert sum(chunk.padding for chunk in chunks) == 3 * longest - sum(lengths)
    assert chunks[-1].done == chunks[-1].columns == longest


def test_what_is_asked_of_a_batch_too_early_or_too_late_is_refused(zoo: Zoo) -> None:
    batch = Batch(source(zoo, "llama"))
    batch.start(["A dog"], steps=1)

    def refusal(command: protocol.Command) -> str:
        return batch.one(command, protocol.Failure).message

    assert refusal(protocol.RemoveLane(1)) == "Lane 1 is not running."
    assert refusal(protocol.CompareBatch()) == "Some lanes have not ended."
    batch.do(protocol.AdvanceBatch())
    assert refusal(protocol.RemoveLane(0)) == "Lane 0 is not running."
    assert refusal(protocol.AdvanceBatch()) == "All lanes have ended."


# ---- the masks --------------------------------------------------------------------------------


def unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have attention see the padding."""
    whole = mlx_caches.create_causal_mask

    def broken(*args: Any, left_padding: Any = None, **more: Any) -> Any:
        return whole(*args, **more)

    monkeypatch.setattr(mlx_caches, "create_causal_mask", broken)


def test_a_broken_mask_would_be_seen(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison that the tests above rest on."""
    monkeypatch.setattr("engine.decoding.batch.not_together", lambda *more: "")
    unmasked(monkeypatch)
    batch = Batch(source(zoo, "llama"))
    batch.start(texts(3, 20))
    compared = batch.of(LaneCompared, batch.do(protocol.CompareBatch()))
    padding = batch.of(protocol.LanesJoined)[0].padding
    assert [each.within for each in compared] == [left == 0 for left in padding]


def test_a_model_whose_rows_are_wrong_runs_them_one_after_another(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmasked(monkeypatch)
    batch = Batch(source(zoo, "llama"))
    batch.start(texts(3, 20))
    assert "rounding doesn't explain" in batch.of(protocol.BatchOpened)[0].note
    assert explained(batch.of(LaneCompared, batch.do(protocol.CompareBatch())))


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("llama", {"kv_bits": 8, "kv_group_size": 32}, "quantized"),
        ("phi3", {"max_kv_size": 16}, "keeps its first tokens"),
    ],
)
def test_caches_without_rows_run_one_after_another(
    zoo: Zoo, name: str, more: dict[str, Any], why: str
) -> None:
    batch = Batch(source(zoo, name, **more))
    batch.start(texts(3, 20), size=2)
    assert why in batch.of(protocol.BatchOpened)[0].note
    assert batch.of(protocol.BatchEnded)[0].totals.padding == 0
    loaded = zoo.load(name, **more)
    for lane in batch.of(protocol.BatchOpened)[0].lanes:
        assert batch.ids[lane.lane] == alone(loaded, lane.ids, CREATIVE)


def test_caches_that_have_no_form_of_several_rows() -> None:
    plain, keeping = mlx_caches.KVCache(), mlx_caches.RotatingKVCache(8, keep=4)
    assert padded.refusal(plain) == padded.refusal(mlx_caches.RotatingKVCache(8)) == ""
    assert padded.refusal(mlx_caches.CacheList(plain, plain)) == ""
    assert "keeps its first tokens" in padded.refusal(keeping)
    assert "keeps its first tokens" in padded.refusal(mlx_caches.CacheList(plain, keeping))
    assert "kind quantized (QuantizedKVCache) has no form" in padded.refusal(mlx_caches.QuantizedKVCache())


# ---- what a lane holds ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_the_bytes_of_the_lanes_are_those_of_the_arrays(zoo: Zoo, name: str) -> None:
    loaded = zoo.load(name)
    rows = PaddedRows(Runner(loaded.model, loaded.settings))
    list(rows.begin([[5] * 50, [6] * 3, [7] * 20]))
    for _ in range(3):
        rows.forward([8, 9, 10])
    rows.keep([1, 2])
    rows.forward([11, 12])
    held = rows.read()
    assert [each.tokens for each in held] == [7, 24]
    for place, each in enumerate(held):
        apart = [cache.extract(place) for cache in rows.caches]
        assert each.used_bytes == sum(array.nbytes for cache in apart for array in _own(cache))
    written = sum(_written(cache, array) for cache in rows.caches for array in _own(cache))
    assert sum(each.used_bytes + each.padding_bytes for each in held) == written


def _written(cache: Any, array: Any) -> int:
    """Bytes of an array's columns up to the last one that is written; of all of a state's array."""
    columns = padded.columns(cache)
    return int(array[..., :columns, :].nbytes if columns else array.nbytes)


def _own(cache: Any) -> list[Any]:
    """The arrays of keys and values, or of states."""
    return [each for each in getattr(cache, "cache", None) or (cache.keys, cache.values) if each is not None]


# ---- pauses and refusals ----------------------------------------------------------------------


def test_a_paused_batch_goes_on(zoo: Zoo) -> None:
    whole, paused = Batch(source(zoo, "llama")), Batch(source(zoo, "llama"))
    prompts = texts(4, 60)
    whole.start(prompts)
    for kind in (protocol.LanesPrefilled, BatchStep):
        paused.cancel_when = lambda record, kind=kind: isinstance(record, kind)
        answers = (
            paused.start(prompts) if kind is protocol.LanesPrefilled else paused.do(protocol.AdvanceBatch())
        )
        assert answers[-1] == protocol.Ended(protocol.StartBatch.kind, True) or answers[-1].cancelled  # type: ignore[union-attr]
    paused.cancel_when = lambda record: False
    paused.do(protocol.AdvanceBatch(steps=2))
    paused.do(protocol.AdvanceBatch())
    assert paused.ids == whole.ids


def test_prompts_come_and_go_while_the_others_run(zoo: Zoo) -> None:
    batch = Batch(source(zoo, "llama"))
    batch.asides = [Task(protocol.AddLanes((LanePrompt("Tom"),))), Task(protocol.RemoveLane(0))]
    batch.start(["Once", "A dog"])
    assert 0 not in batch.ids
    assert len(batch.ids[2]) == CREATIVE.max_tokens
    assert batch.do(protocol.AddLanes((LanePrompt("It"),)))[0] == batch.of(protocol.LanesAdded)[-1]
    batch.do(protocol.AdvanceBatch())
    assert len(batch.ids[3]) == CREATIVE.max_tokens


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (protocol.AdvanceBatch(), "There is no batch to continue."),
        (protocol.RemoveLane(0), "There is no batch to continue."),
        (protocol.StartBatch(()), "A batch needs at least one prompt."),
        (protocol.StartBatch((LanePrompt(""),)), "The prompt is empty."),
        (protocol.StartBatch((LanePrompt("a"),), size=0), "0 lanes at once are out of range."),
        (protocol.DrawMany(3), "There is no prompt to continue from."),
    ],
)
def test_refusals(zoo: Zoo, command: protocol.Command, message: str) -> None:
    batch = Batch(source(zoo, "llama"))
    failure = batch.of(protocol.Failure, batch.do(command))[0]
    assert (failure.message, failure.expected) == (message, True)
    assert failure.hint


def test_logits_of_one_lane_that_are_not_numbers_are_refused(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PaddedRows.forward

    def broken(rows: PaddedRows, tokens: Sequence[int]) -> Any:
        found = whole(rows, tokens).copy()
        found[-1, 7] = np.nan
        return found

    monkeypatch.setattr(PaddedRows, "forward", broken)
    batch = Batch(source(zoo, "llama"))
    failure = batch.of(protocol.Failure, batch.start(texts(3, 20)))[0]
    assert "not numbers" in failure.message


def test_what_does_not_fit_the_memory_is_refused(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "free_bytes", lambda: 2**20)
    batch = Batch(source(zoo, "llama"), Settings(max_tokens=5000))
    answers = batch.start(["Once", "A dog"])
    failure = batch.of(protocol.Failure, answers)[0]
    assert failure.message.startswith("2 lanes of up to 5,00")
    assert failure.hint == "Take fewer lanes at once, or lower max tokens."
    assert not batch.of(protocol.BatchOpened)

"""Steering: directions, their effect against models that really add them, strengths beside random ones, families."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled, LoadError, PromptError, StepError
from engine.inside import steering
from engine.inside.interventions import baseline, hold, intervene, vector_of
from engine.inside.steering import controls, make_direction, sweep_strengths
from engine.model.layers import decoder_layers
from engine.protocol import (
    STRENGTHS,
    Direction,
    DirectionMade,
    Floats,
    HoldInterventions,
    Intervene,
    Intervention,
    MakeDirection,
    Measuring,
    StrengthsSwept,
    SweepStrengths,
    floats,
)
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.session import Session
from engine.settings import LoadSettings
from tests.engine.inside.looking import PROMPT, answer, loaded
from tests.engine.inside.test_families import METAL
from tests.engine.inside.test_interventions import (
    IDS,
    assert_is,
    logits,
    opened,
    stream_of,
    swapped,
    with_stream,
)
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded, kinds
from tests.families import FAMILIES
from tests.zoo import Zoo

NAMES = ("pocket", "llama", "qwen3", "gpt2", "gemma3", "mixtral", "deepseek-v2", "mamba2", "qwen3-next")
HAPPY = (
    "Lily was very happy. She smiled and",
    "Tom was so happy that he laughed and",
    "They were happy and glad. They",
)
SAD = ("Lily was very sad. She cried and", "Tom was so sad that he wept and", "They were sad and upset. They")
FELT = "Once upon a time there was a girl named Lily. She felt very"


def direction(session: Session, seed: int = 1, layer: int = 0) -> Direction:
    """A random direction of the model's width."""
    vector = np.random.default_rng(seed).normal(size=session.facts.hidden_size).astype(np.float32)
    return Direction("up", layer, floats(vector, vector.shape))


def unit(of: Direction, strength: float, layer: int = 1) -> Intervention:
    return Intervention("direction", layer, None, strength, of)


def adding(of: Direction, strength: float, begin: int) -> Any:
    """What a layer returns, with a direction really added to it from a position on."""

    def change(given: Any, result: Any) -> Any:
        state = stream_of(result)
        late = (mx.arange(state.shape[1]) >= begin)[None, :, None]
        return with_stream(result, state + late * strength * mx.array(vector_of(of)))

    return change


def swept(session: Session, asked: SweepStrengths) -> StrengthsSwept:
    *progress, last = sweep_strengths(session, asked)
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(last, StrengthsSwept)
    assert last.facts.failed is None
    return last


# ---- against models to whose stream a vector is really added --------------------------------------


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("begin", [len(IDS) - 1, 8, 0], ids=["token", "from", "context"])
def test_it_is_the_model_with_the_vector_added_by_hand(zoo: Zoo, name: str, begin: int) -> None:
    session = opened(zoo, name)
    of = direction(session)
    scope: Any = "token" if begin == len(IDS) - 1 else "context"
    found = answer(
        intervene(
            session, Intervene(session.node, (unit(of, 1.5),), scope, begin=0 if scope == "token" else begin)
        )
    )
    model = session.runner.model
    with swapped(decoder_layers(model)[1], adding(of, 1.5, begin)):
        reference = logits(model, IDS)
    assert_is(found, reference)
    assert found.largest_change > 1e-3
    assert found.facts.failed is None


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["llama:bfloat16", "llama:4bit", "gpt2", "mamba2"])
def test_strength_zero_is_the_plain_model_bit_for_bit_and_also_in_rows(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    of = direction(session)
    for scope in ("token", "context"):
        found = answer(intervene(session, Intervene(session.node, (unit(of, 0.0),), scope)))
        own = found.candidates[0]
        assert (found.kl_bits, own.logit_change) == (0.0, 0.0) or scope == "context"
        read = swept(session, SweepStrengths(session.node, of, 1, scope, strengths=(4.0,)))
        zero = next(check for check in read.facts.checks if check.name == "zero")
        assert (zero.error, zero.bound) == (0.0, 0.0)


def test_two_directions_at_one_layer_add_up(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    one, other = direction(session, 1), direction(session, 2)
    both = answer(intervene(session, Intervene(session.node, (unit(one, 1.0), unit(other, -2.0)))))
    summed = vector_of(one) - 2 * vector_of(other)
    of = replace(one, vector=floats(summed, summed.shape))
    same = answer(intervene(session, Intervene(session.node, (unit(of, 1.0),))))
    assert both.candidates == same.candidates


# ---- all strengths --------------------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "mamba2"])
@pytest.mark.parametrize(("scope", "begin"), [("token", 0), ("context", 0), ("context", 6)])
def test_a_sweep_is_one_intervention_after_another(zoo: Zoo, name: str, scope: Any, begin: int) -> None:
    session = opened(zoo, name)
    of = direction(session)
    before = session.node, len(session.tree), session.kv.offset, session.logits.tobytes()
    read = swept(session, SweepStrengths(session.node, of, 1, scope, begin, 100, 200, (-2.0, 1.0)))
    assert (session.node, len(session.tree), session.kv.offset, session.logits.tobytes()) == before
    assert [each.strength for each in read.strengths] == [-2.0, 0.0, 1.0]
    assert (
        read.steered
        == {("token", 0): 1, ("context", 0): len(IDS), ("context", 6): len(IDS) - 6}[scope, begin]
    )
    assert (read.rows, read.random) == (33, 32)
    model, first = session.runner.model, len(IDS) - read.steered
    own = logits(model, IDS)
    for each in read.strengths:
        with swapped(decoder_layers(model)[1], adding(of, each.strength, first)):
            row = logits(model, IDS)
        change = (row[100] - row[200]) - (own[100] - own[200])
        assert each.change == pytest.approx(change, abs=float(2e-5 * np.abs(own).max()))
        logprobs = checked_logprobs(own)
        kl = float((np.exp(logprobs) * (logprobs - checked_logprobs(row))).sum() / math.log(2))
        assert each.kl_bits == pytest.approx(kl, abs=2e-5)
        assert each.top == int(row.argmax())
    zero = read.at(0.0)
    assert zero is not None
    assert (zero.kl_bits, zero.kl_high, zero.change, zero.change_low) == (0.0, 0.0, 0.0, 0.0)


def test_the_band_is_that_of_random_directions_of_the_same_norm(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    of = direction(session)
    random = controls(of)
    assert len({each.digest for each in random}) == 32
    norm = np.linalg.norm(vector_of(of))
    assert all(np.linalg.norm(vector_of(each)) == pytest.approx(norm, rel=1e-6) for each in random)
    assert random == controls(of)
    read = swept(session, SweepStrengths(session.node, of, 1, token=100, other=200, strengths=(2.0,)))
    changes, kls = [], []
    model = session.runner.model
    own = logits(model, IDS)
    for each in random:
        with swapped(decoder_layers(model)[1], adding(each, 2.0, len(IDS) - 1)):
            row = logits(model, IDS)
        changes.append((row[100] - row[200]) - (own[100] - own[200]))
        kls.append(answer(intervene(session, Intervene(session.node, (unit(each, 2.0),)))).kl_bits)
    found = read.at(2.0)
    assert found is not None
    assert (found.change_low, found.change_high) == pytest.approx(np.percentile(changes, [5, 95]), abs=1e-4)
    assert (found.kl_low, found.kl_high) == pytest.approx(np.percentile(kls, [5, 95]), abs=1e-5)


def test_without_rows_they_run_one_by_one_with_the_same_numbers(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama")
    of = direction(session)
    asked = SweepStrengths(session.node, of, 1, "context", 4, strengths=(1.0,))
    rows = swept(session, asked)
    monkeypatch.setattr(steering, "rows_at_once", lambda *args: 1)
    alone = swept(session, asked)
    assert (alone.rows, alone.note) == (
        1,
        "They ran one by one: the cache or the memory doesn't hold several rows.",
    )
    monkeypatch.setattr(steering, "rows_at_once", lambda *args: 5)  # batches that strengths don't fill
    few = swept(session, asked)
    for one, two, three in zip(rows.strengths, alone.strengths, few.strengths, strict=True):
        for other in (two, three):
            assert one.change == pytest.approx(other.change, abs=1e-4)
            assert (one.kl_low, one.kl_high) == pytest.approx((other.kl_low, other.kl_high), abs=1e-5)


def test_the_tokens_followed_are_the_two_most_probable_ones(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    of, best = direction(session), [int(each) for each in np.argsort(-session.logits)[:3]]
    read = swept(session, SweepStrengths(session.node, of, 1, strengths=(1.0,)))
    assert (read.token, read.other) == (best[0], best[1])
    read = swept(session, SweepStrengths(session.node, of, 1, other=best[0], strengths=(1.0,)))
    assert (read.token, read.other) == (best[1], best[0])


def test_a_strength_that_leaves_no_numbers_is_infinitely_far(zoo: Zoo) -> None:
    session = opened(zoo, "llama:float16")
    of = replace(direction(session), vector=floats([1e4] * 64, (64,)))
    read = swept(session, SweepStrengths(session.node, of, 1, strengths=(1e-4, 8.0)))
    small, much = read.at(1e-4), read.at(8.0)
    assert small is not None
    assert much is not None
    assert 0 < small.kl_bits < math.inf
    assert (much.kl_bits, math.isnan(much.change), much.top_prob) == (math.inf, True, 0.0)


def test_a_cancel_ends_it(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    polls = iter([False, False, False])
    with pytest.raises(Cancelled):
        list(
            sweep_strengths(
                session, SweepStrengths(session.node, direction(session), 1), lambda: next(polls, True)
            )
        )


@pytest.mark.slow  # at strength 2 the same numbers are asserted of `inspector show`
def test_on_pocket_the_curve_of_happy_less_sad_lies_outside_of_the_band() -> None:
    """As a sketch that shares nothing with the engine measured it: KL in bits, change, and both bands."""
    engine = Unthreaded(LoadSettings(), prompt=FELT)
    engine.do(MakeDirection(3, HAPPY, SAD, name="happy-sad"))
    made = next(each for each in engine.records if isinstance(each, DirectionMade))
    session = engine.session
    (happy,), (sad,) = (session.tokens.encode(word, bare=True) for word in (" happy", " sad"))
    engine.do(SweepStrengths(session.node, made.direction, 3, "context", 0, happy, sad))
    read = next(each for each in engine.records if isinstance(each, StrengthsSwept))
    found = {each.strength: each for each in read.strengths}
    assert made.norm / made.stream_norm == pytest.approx(0.44, abs=0.01)
    expected = {
        0.5: (0.83, 0.09, 0.25, 3.34, -0.68, 1.38),
        2.0: (5.52, 1.40, 3.59, 8.65, -0.66, 4.54),
        8.0: (11.4, 5.2, 10.0, 7.78, -0.26, 6.01),
        -4.0: (2.75, 2.78, 7.00, 0.17, -0.49, 5.65),
    }
    for strength, numbers in expected.items():
        each = found[strength]
        own = (each.kl_bits, each.kl_low, each.kl_high, each.change, each.change_low, each.change_high)
        assert own == pytest.approx(numbers, abs=0.05), strength
    assert found[2.0].beyond
    assert not found[-4.0].beyond
    for name in ("happy-sad", "sad-happy"):  # by default its own tokens are followed, as on the screen
        of = replace(made.direction, name=name)
        engine.do(SweepStrengths(session.node, of, 3, strengths=(1.0,)))
        read = next(each for each in reversed(engine.records) if isinstance(each, StrengthsSwept))
        assert f"{read.text.strip()}-{read.other_text.strip()}" == name


# ---- directions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pocket", "llama", "gpt2", "deepseek-v2", "mamba2"])
def test_a_direction_is_the_difference_of_the_mean_streams_at_the_last_tokens(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name, [5, 6])
    texts = ("Once upon a time", "A dog"), ("The end.",)
    *progress, made = make_direction(session, MakeDirection(1, *texts, name="begin-end"))
    assert [(each.done, each.total) for each in progress if isinstance(each, Measuring)] == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    assert isinstance(made, DirectionMade)
    model, streams = session.runner.model, []

    def keep(given: Any, result: Any) -> Any:
        streams.append(np.array(stream_of(result)[0, -1].astype(mx.float32)))
        return result

    with swapped(decoder_layers(model)[1], keep):
        for text in (*texts[0], *texts[1]):
            logits(model, session.tokens.encode(text))
    expected = (streams[0] + streams[1]) / 2 - streams[2]
    largest = np.abs(expected).max()
    assert np.abs(vector_of(made.direction) - expected).max() < 2e-5 * largest
    assert made.norm == pytest.approx(np.linalg.norm(expected), rel=1e-4)
    assert made.stream_norm == pytest.approx(np.mean([np.linalg.norm(each) for each in streams]), rel=1e-4)
    assert (made.direction.fingerprint, made.direction.model) == (
        session.facts.fingerprint,
        session.facts.name,
    )
    assert made.facts.failed is None
    assert made.direction.label == "begin-end"


def test_a_direction_of_two_nodes_is_the_difference_of_their_streams(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    one = session.node
    list(session.prefill("", [31, 45, 77, 90]))
    *_, made = make_direction(session, MakeDirection(0, nodes=(one, session.node)))
    assert isinstance(made, DirectionMade)
    model, streams = session.runner.model, []

    def keep(given: Any, result: Any) -> Any:
        streams.append(np.array(stream_of(result)[0, -1]))
        return result

    with swapped(decoder_layers(model)[0], keep):
        logits(model, IDS)
        logits(model, [31, 45, 77, 90])
    assert np.abs(vector_of(made.direction) - (streams[0] - streams[1])).max() < 1e-5


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (MakeDirection(9, ("a",), ("b",)), "There is no L10: this model has 2 layers. Choose L1 to L2."),
        (MakeDirection(-1, ("a",), ("b",)), "There is no L0"),
        (
            MakeDirection(0, (), ("b",)),
            "A direction was to be made of 0 texts of one kind. Give 1 to 64 of each.",
        ),
        (MakeDirection(0, ("a",) * 65, ("b",)), "A direction was to be made of 65 texts"),
        (MakeDirection(0, ("a",), ("a",)), "Both kinds of text give the same stream."),
        (MakeDirection(0, ("word " * 3000,), ("a",)), "A text has "),
        (MakeDirection(0, nodes=(3,)), "A direction is made of two nodes."),
        (MakeDirection(0, nodes=(3, 3)), "A direction is made of two nodes."),
    ],
)
def test_what_no_direction_can_be_made_of_is_refused(zoo: Zoo, asked: MakeDirection, message: str) -> None:
    session = opened(zoo, "llama")
    with pytest.raises(StepError) as raised:
        list(make_direction(session, asked))
    assert str(raised.value).startswith(message)
    with pytest.raises(PromptError):
        list(make_direction(session, MakeDirection(0, ("",), ("a",))))
    with pytest.raises(StepError):
        list(make_direction(session, MakeDirection(0, nodes=(1, 10_000))))


# ---- refusals ---------------------------------------------------------------------------------------


def test_a_direction_of_another_model_is_refused(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    of = replace(direction(session), model="other\x1b[31m", fingerprint="b2:other")
    for refused in (
        lambda: answer(intervene(session, Intervene(session.node, (unit(of, 1.0),)))),
        lambda: list(hold(session, HoldInterventions(session.node, (unit(of, 1.0),)))),
        lambda: list(sweep_strengths(session, SweepStrengths(session.node, of, 1))),
    ):
        with pytest.raises(StepError, match="was made with another model") as raised:
            refused()
        assert "\x1b" not in str(raised.value)
    narrow = Direction("up", 0, floats((1.0, 2.0), (2,)))
    with pytest.raises(StepError, match="The direction has 2 numbers, the stream after L2 has 64"):
        answer(intervene(session, Intervene(session.node, (unit(narrow, 1.0),))))


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (Floats((64,), b""), "is not a vector"),
        (Floats((8, 8), bytes(256)), "is not a vector"),
        (Floats((2**40,), bytes(256)), "is not a vector"),
        (floats([0.0] * 64, (64,)), "is 0 everywhere"),
        (floats([math.nan] * 64, (64,)), "has numbers that are NaN"),
        (floats([math.inf] * 64, (64,)), "has numbers that are NaN"),
        (floats([1e38] * 64, (64,)), "or too large"),
    ],
)
def test_a_vector_that_is_none_is_refused(zoo: Zoo, vector: Floats, message: str) -> None:
    session = opened(zoo, "llama")
    with pytest.raises(StepError, match=message):
        answer(intervene(session, Intervene(session.node, (unit(Direction("up", 0, vector), 1.0),))))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layer": 7}, "There is no L8"),
        ({"strengths": (1e9,)}, "The scale 1e"),
        ({"strengths": tuple(map(float, range(1, 70)))}, "70 strengths were given"),
        ({"scope": "context", "begin": 21}, "There is no token 22 up to here."),
        ({"scope": "context", "begin": -1}, "There is no token 0 up to here."),
        ({"node": 10_000}, "10"),
    ],
)
def test_a_sweep_that_can_not_be_is_refused(zoo: Zoo, changed: dict[str, Any], message: str) -> None:
    session = opened(zoo, "llama")
    asked = replace(SweepStrengths(session.node, direction(session), 1), **changed)
    with pytest.raises(StepError, match=message):
        list(sweep_strengths(session, asked))
    with pytest.raises(StepError, match="The direction is missing"):
        answer(intervene(session, Intervene(session.node, (Intervention("direction", 0),))))
    with pytest.raises(StepError, match="there is one for another unit"):
        answer(
            intervene(
                session, Intervene(session.node, (Intervention("mlp", 0, None, 1.0, direction(session)),))
            )
        )


def test_a_label_names_the_direction_and_nothing_that_a_terminal_obeys() -> None:
    of = Direction("happy\x1b[31m-sad" + "x" * 99, 3, floats((1.0, 2.0), (2,)))
    label = Intervention("direction", 3, None, 2.0, of).label
    assert label.startswith("L4 +happy[31m-sadx")
    assert label.endswith(f" x2 #{of.digest}")
    assert "\x1b" not in label
    assert len(label) < 70


def test_through_the_worker() -> None:
    engine = Unthreaded(LoadSettings())
    engine.do(
        protocol.Prefill("Once upon a time", chat=False),
        MakeDirection(3, ("happy",), ("sad",)),
    )
    made = next(each for each in engine.records if isinstance(each, DirectionMade))
    engine.do(SweepStrengths(4, made.direction, 3, strengths=(2.0,)))
    assert kinds(engine.records[-3:]) == ["Measuring", "StrengthsSwept", "Ended"]
    engine.do(protocol.HoldInterventions(4, (unit(made.direction, 2.0, 3),)), protocol.TakeStep())
    assert engine.records[-2].origin == "intervened"  # type: ignore[attr-defined]


# ---- families ---------------------------------------------------------------------------------------

OFTEN = ("rwkv7", "iquestloopcoder", "kimi_linear")
REFUSES = ("iquestloopcoder",)
"""Their layers are never called."""
BY_CHUNK = ("phi3small", "plamo3")
"""In mlx_lm a chunk gives other numbers than single steps, without steering as with it."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written."""
    return tmp_path_factory.mktemp("families")


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in FAMILIES]
)
def test_zero_is_nothing_and_a_prefill_is_its_steps_in_all_families(models: Path, family: str) -> None:
    if family in METAL and not mx.metal.is_available():
        with pytest.raises(LoadError, match="No Metal back-end"):
            loaded(models, family)
        return
    session = begun(loaded(models, family), PROMPT[:8])
    stream = (
        np.random.default_rng(1)
        .normal(size=baseline(session, session.node).trace.width or 64)
        .astype(np.float32)
    )
    of = Direction("up", 0, floats(stream, stream.shape))
    if family in REFUSES:
        with pytest.raises(StepError, match="isn't called as a module of its own"):
            answer(intervene(session, Intervene(session.node, (unit(of, 1.0, 0),))))
        return
    zero = answer(intervene(session, Intervene(session.node, (unit(of, 0.0, 0),))))
    assert (zero.largest_change, zero.kl_bits) == (0.0, 0.0)
    read = swept(session, SweepStrengths(session.node, of, 0, strengths=(-1.0, 2.0)))
    assert read.at(0.0) is not None
    if family != "talkie":  # its random logits are all 0
        assert max(each.kl_bits for each in read.strengths) > 0
    *_, _ = hold(session, HoldInterventions(session.node, (unit(of, 1.0, 0),)))
    for token in PROMPT[8:]:
        session.choose(token)
    steps: Row = session.logits.copy()
    path, changed = session.tree.tokens(session.node), session.interventions.changed(session.node)
    assert changed is not None
    assert changed[0] == 7
    again = session.runner.fresh().forward_path(path, session.tree.chunks(session.node), changed=changed)
    if family not in BY_CHUNK:
        assert np.abs(again - steps).max() <= 2e-5 * np.abs(steps).max() + 1e-6
        verified = session.verify()
        assert verified.largest_difference <= verified.rounding


def test_all_strengths_are_in_order_and_have_zero() -> None:
    assert list(STRENGTHS) == sorted({*STRENGTHS, 0.0})

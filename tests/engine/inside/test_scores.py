"""Scores divided among writers: against references of our own, their checks, refusals, long paths, and all families."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from msgspec import msgpack

from engine import protocol
from engine.errors import Cancelled, EngineError, LoadError, StepError
from engine.inside import scores
from engine.inside.attention import read_attention
from engine.inside.scores import read_score
from engine.protocol import Measuring, ReadAttention, ReadScore, ScoreRead
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.inside.looking import answer, loaded, opened
from tests.engine.inside.plain import PLAIN, numbers
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
from tests.families import FAMILIES
from tests.zoo import Zoo

KITE = "Tim had a red kite. Sue had a blue ball. Tim played with his red"


def read_of(session: Session, layer: int | None = None, head: int | None = None, **how: Any) -> ScoreRead:
    """The last record, the others progress."""
    *progress, read = read_score(session, ReadScore(session.node, layer, head, **how))
    assert all(isinstance(record, Measuring) for record in progress)
    assert isinstance(read, ScoreRead)
    return read


def rows(read: ScoreRead, of: str) -> Any:
    """The shares as an array, shape (writers, keys)."""
    packed = getattr(read, of)
    return np.array([packed.row(place) for place in range(packed.shape[0])])


def named(read: ScoreRead) -> list[tuple[str, int | None, int | None]]:
    return [(writer.kind, writer.layer, writer.head) for writer in read.writers]


# ---- queries and keys by hand ------------------------------------------------------------------


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", [name for name in PLAIN if name != "llama"])
def test_each_share_is_that_of_queries_and_keys_by_hand(zoo: Zoo, name: str) -> None:
    session = begun(zoo.load(name, dtype="float32"), KITE, steps=3)
    layer = 3 if name == "pocket" else 1
    read = read_of(session, layer, 1)
    plain = PLAIN[name](session.runner.model)
    by_key, by_query = plain.shares(session.tree.tokens(session.node), layer, 1)
    keys = list(read.keys)
    assert set(by_key) <= set(named(read))
    largest = np.abs(read.scores.row()).max()
    for place, writer in enumerate(named(read)):
        if writer in by_key:
            assert np.abs(rows(read, "by_key")[place] - by_key[writer][keys]).max() <= 3e-5 * largest, writer
            assert np.abs(rows(read, "by_query")[place] - by_query[writer][keys]).max() <= 3e-5 * largest, (
                writer
            )


def test_a_part_of_an_mla_score_is_rotary(tmp_path: Path) -> None:
    """deepseek_v3 adds its rotary scores as a mask: the embedding's share by hand has both parts."""
    session = opened(loaded(tmp_path, "deepseek_v3"))
    read = read_of(session, 1, 2)
    assert read.facts.failed is None
    assert read.pairs == ()
    tip = session.tree[session.node].depth - 1
    assert read.keys == tuple(range(tip)), "the token's own key can't be told"
    model = session.runner.model
    ids = session.tree.tokens(session.node)
    own, args = model.model.layers[1].self_attn, model.args
    first = model.model.embed_tokens(mx.array([ids]))
    real = model.model.layers[0](first, mx.tril(mx.ones((len(ids), len(ids)), dtype=mx.bool_)), None)
    held = 1 / np.sqrt((numbers(real) ** 2).mean(-1, keepdims=True) + args.rms_norm_eps)
    weight = numbers(model.model.layers[1].input_layernorm.weight)
    into, of_embedding = (numbers(each) * held * weight for each in (real, first))
    if own.q_lora_rank is None:
        q = into @ numbers(own.q_proj.weight).T
    else:
        low = into @ numbers(own.q_a_proj.weight).T
        scale = 1 / np.sqrt((low**2).mean(-1, keepdims=True) + 1e-6)
        q = low * scale * numbers(own.q_a_layernorm.weight) @ numbers(own.q_b_proj.weight).T
    q = q.reshape(len(ids), args.num_attention_heads, -1)[:, 2]
    down = numbers(own.kv_a_proj_with_mqa.weight).T
    latent, turn = np.split(of_embedding @ down, [args.kv_lora_rank], axis=-1)
    whole = np.split(into @ down, [args.kv_lora_rank], axis=-1)[0]
    eps = 1e-6
    latent = latent / np.sqrt((whole**2).mean(-1, keepdims=True) + eps) * numbers(own.kv_a_layernorm.weight)
    key = latent[0] @ numbers(own.embed_q.weight)[2]

    def at(x: Any) -> Any:  # the scaled frequencies are the model's own
        return numbers(own.rope(mx.array(x[None, None].astype(np.float32))))[0, 0]

    nope = args.qk_nope_head_dim
    expected = key @ q[-1, :nope] + at(turn[0]) @ at(q[:, nope:])[-1]
    found = rows(read, "by_key")[named(read).index(("embedding", None, None))]
    assert np.abs(found - own.scale * expected[:tip]).max() <= 1e-5 * np.abs(expected).max()


# ---- what a record says ------------------------------------------------------------------------


def test_shares_and_pairs_sum_to_the_scores_and_make_the_weights(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), KITE, steps=3)
    read = read_of(session)
    assert read.facts.failed is None
    real, weights = np.array(read.scores.row()), np.array(read.weights.row())
    assert rows(read, "by_key").sum(0) == pytest.approx(real, abs=1e-4)
    assert rows(read, "by_query").sum(0) == pytest.approx(real, abs=1e-4)
    made = np.exp(real - real.max())
    assert made / made.sum() == pytest.approx(weights, abs=1e-5)
    looked = answer(read_attention(session, ReadAttention(session.node)))
    own = next(each for each in looked.layers if each.layer == read.layer)
    assert weights == pytest.approx(own.over(read.head, read.tokens), abs=1e-6)
    best = max(
        layer.over(head, read.tokens)[place]
        for layer in looked.layers[1:]
        for head in range(layer.heads)
        for place in range(1, read.tokens - 2)
    )
    assert max(weights[1:-2]) == pytest.approx(best, abs=1e-6), "without a head it is the most focused"
    assert len(read.pairs) == len(set(read.pairs)) == read.pair_scores.shape[0]


def test_the_session_stays_as_it_is(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), KITE, steps=2)
    other = begun(zoo.load("pocket", dtype="float32"), KITE, steps=2)
    read_of(session, 5, 0)
    for _ in range(3):
        assert session.step().id == other.step().id
        assert np.array_equal(session.logits, other.logits)


def test_of_a_long_path_some_keys_are_kept_at_their_own_positions(zoo: Zoo, monkeypatch: Any) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), f"{KITE}. {KITE}. {KITE}", steps=2)
    whole = read_of(session, 5, 2)
    monkeypatch.setattr(scores, "KEYS", 20)
    kept = read_of(session, 5, 2, keys=(7,))
    assert kept.facts.failed is None
    assert len(kept.keys) == 20 < len(whole.keys) == whole.visible == kept.visible
    assert {0, 7, whole.tokens - 1} <= set(kept.keys)
    places = [whole.keys.index(key) for key in kept.keys]
    assert rows(kept, "by_key") == pytest.approx(rows(whole, "by_key")[:, places], abs=1e-4)


def test_fewer_keys_are_kept_of_a_model_with_many_or_wide_layers(zoo: Zoo, monkeypatch: Any) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), f"{KITE}. {KITE}. {KITE}", steps=2)
    a_key = session.facts.layers * (session.facts.hidden_size or 0) * 32
    for room, kept in ((20 * a_key, 20), (0, scores.LEAST_KEYS)):
        monkeypatch.setattr(scores, "STREAM_BYTES", room)
        assert len(read_of(session, 5, 2).keys) == kept


def test_of_a_layers_arguments_hidden_states_are_joined_and_masks_left_out() -> None:
    hidden = mx.arange(9.0).reshape(1, 3, 3)
    chunks = [hidden[:, :2], hidden[:, 2:]]
    joined = scores._joined(
        [{"x": (chunk, mx.ones((2, 2)), 7), "mask": mx.array(True), "kind": "causal"} for chunk in chunks],
        (2, 1),
    )
    assert mx.array_equal(joined["x"][0], hidden)
    assert (joined["x"][1:], joined["mask"], joined["kind"]) == ((None, 7), None, None)


def test_beyond_a_bound_heads_are_folded_into_their_attention(zoo: Zoo, monkeypatch: Any) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), KITE, steps=2)
    whole = read_of(session, 6, 1)
    monkeypatch.setattr(scores, "WRITERS", 30)
    read = read_of(session, 6, 1)
    assert read.facts.failed is None
    assert len(read.writers) <= 30 < len(whole.writers)
    assert any("folded" in note for note in read.notes)
    assert {writer.layer for writer in read.writers if writer.head is not None} < set(range(6))
    folded = next(place for place, each in enumerate(named(read)) if each == ("attention", 0, None))
    heads = [place for place, each in enumerate(named(whole)) if each[:2] == ("attention", 0)]
    assert rows(read, "by_key")[folded] == pytest.approx(rows(whole, "by_key")[heads].sum(0), abs=1e-4)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "how", [{"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}, {"dtype": "bfloat16"}]
)
def test_in_fewer_bits(zoo: Zoo, how: dict[str, Any]) -> None:
    session = begun(zoo.load("pocket", **{"dtype": "float32", **how}), KITE, steps=3)
    for layer in (2, 5, 7):
        read = read_of(session, layer, 0)
        assert read.facts.failed is None, read.facts.failed
        assert any(writer.head is not None for writer in read.writers)


def test_of_four_bit_weights(zoo: Zoo) -> None:
    read = read_of(begun(zoo.load("llama:4bit"), KITE, steps=3), 1, 1)
    assert read.facts.failed is None
    assert any(writer.head is not None for writer in read.writers)


# ---- refusals, and what goes wrong ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "head", "keys", "said"),
    [
        (99, 0, (), "There is no L100: this model has "),
        (-1, 0, (), "There is no L0: this model has "),
        (0, 99, (), "heads: there is no h100"),
        (0, 0, (9999,), "doesn't see token 10000"),
        (0, 0, tuple(range(17)), "17 keys are named"),
    ],
)
def test_what_is_not_there_is_refused(
    zoo: Zoo, layer: int, head: int, keys: tuple[int, ...], said: str
) -> None:
    session = begun(zoo.load("llama"), KITE, steps=1)
    with pytest.raises(StepError, match=said):
        read_of(session, layer, head, keys=keys)


def test_the_first_token_sees_nothing_to_compare(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), KITE, steps=1)
    first = session.tree.nodes(session.node)[0]
    with pytest.raises(StepError, match="only one token"):
        list(read_score(session, ReadScore(first, 0, 0)))


REFUSES = {
    "mamba2": "has no attention over keys",
    "iquestloopcoder": "runs the parts of its layers itself",
    "nanbeige": "does not go through its layers once",
    "gemma3n": "several streams",
    "falcon_h1": "can't be run on other streams",
    "deepseek_v32": "it chooses its keys separately for each stream",
    "deepseek_v41": "isn't known",
}


@pytest.mark.parametrize("family", REFUSES)
def test_a_family_that_refuses_says_why(tmp_path: Path, family: str) -> None:
    with pytest.raises(StepError, match=REFUSES[family]):
        read_of(opened(loaded(tmp_path, family)), None if family == "deepseek_v41" else 1, 0)


@pytest.mark.parametrize(
    ("shape", "calls", "said"),
    [
        ((1, 3, 8), 1, ""),
        ((2, 3, 8), 1, "several streams"),
        ((1, 4, 8), 1, "several streams"),
        ((2, 1, 3, 8), 1, "several streams"),
        ((3, 8), 1, "several streams"),
        ((1, 3, 8), 2, "does not go through its layers once"),
        (None, 1, "does not go through its layers once"),
    ],
)
def test_layers_that_do_not_hand_on_one_stream_once_are_refused(
    zoo: Zoo, shape: tuple[int, ...] | None, calls: int, said: str
) -> None:
    layers = {0: mx.zeros((1, 3, 8))} | ({1: mx.zeros(shape)} if shape else {})
    taps: Any = SimpleNamespace(
        places=(0, 1, 2),
        layers={index: SimpleNamespace(given=given) for index, given in layers.items()},
        written=[SimpleNamespace(layer=1, name="mlp")] * calls,
    )
    session = Session(zoo.load("llama"), Settings())
    with pytest.raises(StepError, match=said) if said else nullcontext():
        scores._check_layers(session, [taps], 1)


def test_keys_of_another_layer_are_refused(tmp_path: Path) -> None:
    session = opened(loaded(tmp_path, "gemma4"))
    assert read_of(session, 1, 0).facts.failed is None
    with pytest.raises(StepError, match="another layer's"):
        read_of(session, 3, 0)


def test_scores_that_are_bent_are_taken_before_that(tmp_path: Path) -> None:
    read = read_of(opened(loaded(tmp_path, "gemma2")), 1, 1)
    assert read.softcap
    assert read.facts.failed is None
    assert rows(read, "by_key").sum(0) == pytest.approx(np.array(read.scores.row()), abs=1e-5)


def test_a_wrong_share_fails_a_check(zoo: Zoo, monkeypatch: Any) -> None:
    session = begun(zoo.load("llama"), KITE, steps=2)
    real = scores._ScoringLayer.queries_and_keys

    def wrong(look: Any, streams: Any) -> tuple[Any, Any]:
        query, keys = real(look, streams)
        keys[0] *= 1.5
        return query, keys

    monkeypatch.setattr(scores._ScoringLayer, "queries_and_keys", wrong)
    failed = read_of(session, 1, 0).facts.failed
    assert failed is not None
    assert failed.name == "scores"
    monkeypatch.setattr(
        scores._ScoringLayer,
        "queries_and_keys",
        lambda look, rows: tuple(1.5 * each for each in real(look, rows)),
    )
    failed = read_of(session, 1, 0).facts.failed
    assert failed is not None
    assert failed.name == "weights", "sums that are right and weigh wrong"


@pytest.mark.slow
def test_it_stops_between_forwards_layers_and_batches(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket", dtype="float32"), KITE, steps=1)
    polled = 0
    for stop in range(1, 12):
        left = iter([False] * stop)
        with pytest.raises(Cancelled):
            list(read_score(session, ReadScore(session.node, 7, 0), lambda left=left: next(left, True)))
        polled += 1
    assert polled == 11
    assert read_of(session, 7, 0).facts.failed is None


def test_as_a_command(zoo: Zoo) -> None:
    engine = Unthreaded(zoo.load("llama"), prompt=KITE)
    node = engine.session.node
    read = engine.of(ScoreRead, engine.do(protocol.ReadScore(node, 1, 2)))[0]
    assert (read.node, read.layer, read.head) == (node, 1, 2)
    assert msgpack.decode(msgpack.encode(read), type=type(read)) == read
    engine.cancel_when = lambda record: isinstance(record, Measuring)
    ended = engine.of(protocol.Ended, engine.do(protocol.ReadScore(node, 1, 2)))
    assert ended[-1].cancelled


# ---- all families ------------------------------------------------------------------------------


NONE = {
    "bitnet", "deepseek_v41", "falcon_h1", "gemma3n", "iquestloopcoder", "kimi_k3", "mamba", "mamba2", "muse_spark",
    "nanbeige", "rwkv7",
}  # fmt: skip
"""Of which no layer's scores are told: `REFUSES` says why, or they need Metal."""


def judged(directory: Path, family: str) -> Iterator[tuple[int, ScoreRead | str]]:
    """What becomes of one head of each layer: the record, or why there is none."""
    session = opened(loaded(directory, family))
    for layer in range(session.facts.layers):
        try:
            yield layer, read_of(session, layer, 0)
        except EngineError as error:
            yield layer, str(error)


@pytest.mark.slow
def test_all_families(tmp_path: Path) -> None:
    """Prints a report: `pytest -m slow -s`."""
    works, refused, worst = [], {}, {"scores": 0.0, "weights": 0.0}
    for family in FAMILIES:
        try:
            found = dict(judged(tmp_path, family))
        except LoadError as error:
            refused[family] = f"not loaded: {str(error)[:60]}"
            continue
        shown = {
            layer: read
            for layer, read in found.items()
            if isinstance(read, ScoreRead) and not read.facts.failed
        }
        for read in shown.values():
            for check in read.facts.checks:
                if check.name in worst:
                    worst[check.name] = max(worst[check.name], check.error)
        if shown:
            works.append(family)
        others = [
            f"L{layer + 1}: {read if isinstance(read, str) else read.facts.failed}"
            for layer, read in found.items()
            if layer not in shown
        ]
        if others:
            refused[family] = "; ".join(others)
    print(f"\n{len(works)} of {len(FAMILIES)} families, worst {worst}")
    for family, why in refused.items():
        print(f"{family}: {why}")
    assert {*FAMILIES} - {*works} == NONE
    assert worst["scores"] <= 1e-5
    assert worst["weights"] <= 1e-4

"""Whose keys an attention is given, weights of heads over whole paths, and their scores."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, EngineError, StepError
from engine.inside import attention
from engine.inside import attention as heads_module
from engine.inside.attention import ROWS, check_attention, read_attention, read_triangle, score_heads
from engine.inside.taps import AttentionRun, Taps
from engine.inside.view import LESS, QUANTIZED, SHORTER
from engine.model.load import load
from engine.protocol import (
    HeadScore,
    HeadsScored,
    ReadAttention,
    ReadTriangle,
    RepeatedTexts,
    ScoreHeads,
    TriangleRead,
)
from engine.session.session import Session
from engine.settings import LoadSettings
from inspector.documents.attention import found_words
from tests.engine.inside.looking import PROMPT, answer, difference, loaded, look, opened
from tests.engine.inside.plain import PLAIN
from tests.engine.inside.test_families import METAL
from tests.engine.sessions import begun
from tests.families import FAMILIES, WINDOW
from tests.zoo import Zoo

NEAR = 1e-5
"""Of a difference between two weights in float32: 2e-6 was seen."""
CLOSE = 5e-6
"""Of a score from that of weights in float64: 7e-7 was seen. Without rotary positions it would be off by 5e-3."""


def slowly(*families: str) -> list[Any]:
    """Families for `-m slow`."""
    return [pytest.param(family, marks=pytest.mark.slow) for family in families]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written."""
    return tmp_path_factory.mktemp("keys")


# ---- windows ------------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "family",
    ["gpt_oss", "llama4", "deepseek_v32", *slowly("llama", "gemma3", "gemma3n", "recurrent_gemma", "afm7")],
)
def test_every_token_of_a_text_far_beyond_the_window(models: Path, family: str) -> None:
    """At all that were stepped, also those behind the session: its cache is brought back to them."""
    session = opened(loaded(models, family), steps=2 * WINDOW + 3)
    for node in session.tree.nodes(session.node)[len(PROMPT) - 1 :]:
        read = answer(read_attention(session, ReadAttention(node)))
        assert read.facts.failed is None
        assert difference(session, read) < NEAR


@pytest.mark.wide(1)
@pytest.mark.parametrize("family", ["llama", "gpt_oss", "exaone4"])
def test_a_token_beyond_the_window_has_no_weight(models: Path, family: str) -> None:
    session = opened(loaded(models, family), steps=WINDOW)
    read = answer(read_attention(session, ReadAttention(session.node)))
    narrow, wide = read.layers
    assert narrow.weights.shape[1] == WINDOW
    assert narrow.keep == 0
    assert wide.weights.shape[1] == read.tokens
    for head in range(narrow.heads):
        over = narrow.over(head, read.tokens)
        assert len(over) == read.tokens
        assert not any(over[:-WINDOW])
        assert all(over[-WINDOW:])
        assert all(wide.over(head, read.tokens))


def test_a_ring_that_keeps_the_first_tokens(models: Path) -> None:
    """A cache of 8 tokens keeps the first 4 of the text; a chunk sees the last 8 instead."""
    keep, steps = 4, 3 * WINDOW
    session = opened(loaded(models, "qwen3", max_kv_size=WINDOW), steps=steps)
    ids = session.tree.tokens(session.node)
    chunk = len(PROMPT) - 1
    query, key = np.arange(len(ids))[:, None], np.arange(len(ids))[None]
    within = (key <= query) & (key > query - WINDOW)
    kept = (key <= query) & ((key < keep) | (key > query - (WINDOW - keep)))
    mask = mx.array(np.where(query < chunk, within, kept))
    taps = Taps(session.runner.model)
    with patch("mlx_lm.models.qwen3.create_attention_mask", lambda *_: mask), taps.set():
        session.runner.model(mx.array([ids]))
    for back in range(steps):
        depth = len(ids) - back
        read = answer(read_attention(session, ReadAttention(session.tree.nodes(session.node)[depth - 1])))
        assert read.facts.failed is None
        for run, layer in zip(taps.attended, read.layers, strict=True):
            assert layer.keep == keep
            truth = np.array(run.weights[:, depth - 1, :depth])
            mine = [layer.over(head, depth) for head in range(layer.heads)]
            assert np.abs(truth - np.array(mine)).max() < NEAR


def test_a_choice_of_keys_is_spread_over_the_text(models: Path) -> None:
    session = opened(loaded(models, "deepseek_v32"), steps=WINDOW)
    read = answer(read_attention(session, ReadAttention(session.node)))
    for layer in read.layers:
        assert layer.weights.shape[1] == read.tokens
        seen = {place for head in range(layer.heads) for place, w in enumerate(layer.weights.row(head)) if w}
        assert len(seen) == WINDOW


# ---- other numbers ------------------------------------------------------------------------------


@pytest.mark.wide(1)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("start", [0, len(PROMPT) + 3])
@pytest.mark.parametrize("family", ["qwen3", *slowly("gpt2", "mixtral")])
def test_a_quantized_cache(models: Path, family: str, start: int, bits: int) -> None:
    """From the beginning, and one that is quantized on the way: read before and after."""
    model = loaded(models, family, kv_bits=bits, kv_group_size=32, quantized_kv_start=start)
    session = opened(model, steps=8)
    for node in session.tree.nodes(session.node)[len(PROMPT) :]:
        read = answer(read_attention(session, ReadAttention(node)))
        assert read.facts.failed is None
        kinds = {layer.kind for layer in read.layers}
        assert kinds == {"quantized" if session.tree[node].depth > start else "fused"}
        assert difference(session, read) < (0.02 if bits == 8 else 0.2)
    seen = look(session)
    assert all(check.passed for check in seen.checks.values()), seen.checks
    assert seen.checks["attention"].bound == QUANTIZED
    assert len(seen.lens.columns) == 9  # the prompt's last token, and the steps
    assert SHORTER in seen.lens.facts.note


@pytest.mark.wide(1)
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "minicpm3", "lfm2"])
def test_fewer_bits(models: Path, family: str) -> None:
    """Of models without experts, whose products MLX has in float32 alone on a CPU."""
    seen = look(opened(loaded(models, family, mx.bfloat16)))
    assert all(check.passed for check in seen.checks.values()), seen.checks
    assert seen.checks["lens"].bound == LESS
    assert seen.checks["forward"].error == 0.0


def test_a_session_without_a_cache(models: Path) -> None:
    seen = look(opened(loaded(models, "llama", no_kv_cache=True)))
    assert all(check.passed for check in seen.checks.values()), seen.checks
    assert seen.whole < NEAR


# ---- sinks --------------------------------------------------------------------------------------


def test_sinks_take_their_share(models: Path) -> None:
    model = loaded(models, "gpt_oss")
    mx.random.seed(3)
    for layer in model.model.layers:
        layer.self_attn.sinks = 2 * mx.random.normal(layer.self_attn.sinks.shape)
    session = opened(model, steps=WINDOW)
    read = answer(read_attention(session, ReadAttention(session.node)))
    assert read.facts.failed is None
    assert difference(session, read) < NEAR
    for layer in read.layers:
        assert len(set(layer.sinks)) == layer.heads
        for head, taken in enumerate(layer.sinks):
            assert 0 < taken < 1
            assert sum(layer.weights.row(head)) + taken == pytest.approx(1, abs=1e-6)


# ---- what taps leave behind ---------------------------------------------------------------------


def test_streams_are_those_before_they_were_changed_in_place(models: Path) -> None:
    """gemma3n unembeds its streams in place, in the very array that its last layer returned."""
    session = opened(loaded(models, "gemma3n"))
    taps = Taps(session.runner.model)
    with taps.set():
        session.runner.model(mx.array([PROMPT]))
    before = _streams_before_the_end(session)
    assert mx.array_equal(taps.layers[max(taps.layers)].state, before)


def _streams_before_the_end(session: Session) -> mx.array:
    """What the last layer returned, copied as soon as it did."""
    model = session.runner.model
    last, copies = type(model.layers[-1]), []
    original = last.__call__

    def call(layer: object, *args: object, **kwargs: object) -> mx.array:
        result = original(layer, *args, **kwargs)
        if layer is model.layers[-1]:
            copies.append(mx.array(result))
        return result  # type: ignore[no-any-return]

    with patch.object(last, "__call__", call):
        model(mx.array([PROMPT]))
    return copies[0]


# ---- heads over a whole path -------------------------------------------------------------------

TRAP = "Tim had a red kite. Sue had a blue ball. Tim played with his red"


@pytest.fixture(scope="module")
def session() -> Session:
    return begun(load(LoadSettings(dtype="float32")), TRAP, echo=None)


def triangle(session: Session, layer: int, head: int, node: int | None = None) -> TriangleRead:
    *_, read = read_triangle(session, ReadTriangle(session.node if node is None else node, layer, head))
    assert isinstance(read, TriangleRead)
    return read


def scored(session: Session) -> HeadsScored:
    *_, read = score_heads(session, ScoreHeads(session.node))
    assert isinstance(read, HeadsScored)
    return read


# ---- attention is not explanation -------------------------------------------------------------


def test_a_head_looks_at_the_kite_while_the_model_says_ball(session: Session) -> None:
    """The trap of the course: who takes the argmax of a head for the reason of the answer is wrong here."""
    read = answer(read_attention(session, ReadAttention(session.node)))
    row = read.layers[5].over(1, read.tokens)
    looked_at = session.tree.nodes(session.node)[row.index(max(row))]
    assert session.tokens.text(session.tree[looked_at].token, b"")[0] == " kite"
    assert max(row) > 0.9
    says = session.next.candidates[0]
    assert says.text == " ball"
    assert says.prob > 0.7


@pytest.mark.parametrize(("kind", "bound"), [("softmax", 0.01), ("fused", ROWS), ("quantized", ROWS)])
def test_rows_that_the_model_rounds_itself_may_be_off_by_as_much_as_its_type_rounds(
    kind: Any, bound: float
) -> None:
    run = AttentionRun(0, kind, mx.full((1, 1, 4), 0.251), None, 1, None, None, 0.0, None)
    worst: dict[Any, Any] = {}
    check_attention(worst, run, 0.01)
    assert worst["rows"].error == pytest.approx(0.004, rel=1e-3)
    assert worst["rows"].bound == bound


# ---- the triangle -----------------------------------------------------------------------------


def test_its_rows_are_those_of_the_single_tokens(session: Session) -> None:
    read = triangle(session, 5, 1)
    assert read.facts.failed is None
    assert [check.name for check in read.facts.checks] == ["forward", "attention", "rows"]
    assert read.nbytes == read.tokens * (read.tokens + 1)
    nodes = session.tree.nodes(session.node)
    for place in (0, 4, 11, read.tokens - 1):
        row = read.row(place)
        assert len(row) == place + 1
        assert sum(row) == pytest.approx(1, abs=2e-3)
        single = answer(read_attention(session, ReadAttention(nodes[place]))).layers[5].over(1, place + 1)
        assert row == pytest.approx(single, abs=5e-4)
    assert read.row(read.tokens) == read.row(-1) == ()


@pytest.mark.parametrize("family", ["llama-sliding", "gpt-oss", "gemma3", "qwen3-next", "deepseek-v2"])
def test_of_other_families_too_with_windows_and_sinks(zoo: Zoo, family: str) -> None:
    session = begun(zoo.load(family), "the dog saw a cat and " * 10, echo=None)
    read = answer(read_attention(session, ReadAttention(session.node)))
    layer = read.layers[0]
    whole = triangle(session, layer.layer, 1)
    assert whole.facts.failed is None
    last = whole.row(whole.tokens - 1)
    assert last == pytest.approx(layer.over(1, read.tokens), abs=5e-4)
    hidden = layer.weights.shape[-1] < read.tokens
    assert (last.count(0.0) > 0) == hidden, "exactly 0 is what is hidden"
    if layer.sinks:
        sinks = whole.sinks.stretch(0, whole.tokens)
        assert sinks[-1] == pytest.approx(layer.sinks[1], abs=1e-3)
        assert sum(last) + sinks[-1] == pytest.approx(1, abs=3e-3)


def test_the_cut_into_chunks_changes_nothing_that_is_seen(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, scores = triangle(session, 6, 2), scored(session)
    monkeypatch.setattr(attention, "CHUNK_BYTES", 4 * session.facts.heads * read.tokens * 3)
    records = list(read_triangle(session, ReadTriangle(session.node, 6, 2)))
    again = records[-1]
    assert isinstance(again, TriangleRead)
    assert len(records) - 1 > read.tokens // 3, "it ran in chunks of three tokens"
    size = len(read.weights.packed) // 2
    assert again.weights.stretch(0, size) == pytest.approx(read.weights.stretch(0, size), abs=1e-3)
    for one, other in zip(scores.heads, scored(session).heads, strict=True):
        assert one.induction == pytest.approx(other.induction, abs=1e-4)
        assert one.entropy_bits == pytest.approx(other.entropy_bits, abs=1e-4)


def test_a_quantized_cache_is_run_as_the_session_ran_it() -> None:
    session = begun(load(LoadSettings(kv_bits=8, kv_group_size=32, dtype="float32")), TRAP, echo=None)
    read = triangle(session, 5, 1)
    assert read.facts.failed is None
    assert read.row(read.tokens - 1).index(max(read.row(read.tokens - 1))) == 4


def test_what_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StepError, match="Layer 99 has no head 1 "):
        triangle(session, 98, 0)
    with pytest.raises(StepError, match="Layer 1 has no head 41 "):
        triangle(session, 0, 40)
    with pytest.raises(StepError):
        triangle(session, 0, 0, 10_000)
    with pytest.raises(Cancelled):
        list(read_triangle(session, ReadTriangle(session.node, 0, 0), lambda: True))
    with pytest.raises(Cancelled):
        list(score_heads(session, ScoreHeads(session.node), lambda: True))
    monkeypatch.setattr(heads_module, "TRIANGLE_TOKENS", 16)
    with pytest.raises(StepError, match="17 tokens: a head is drawn from each token of 16 at most"):
        triangle(session, 0, 0)


def test_looking_changes_nothing(session: Session) -> None:
    before = session.kv_reading(), session.node, len(session.tree), session.logits.copy()
    triangle(session, 2, 0)
    scored(session)
    assert (session.kv_reading(), session.node, len(session.tree)) == before[:3]
    assert np.array_equal(session.logits, before[3])


# ---- scores -----------------------------------------------------------------------------------


def by_hand(weights: Any, ids: list[int]) -> tuple[float, float, float, float, float]:
    """The scores of a head over a path, row by row: previous, induction, first, entropy, duplicate.

    Args:
        weights: Shape (tokens, tokens).
        ids: The tokens.
    """
    count = len(ids)
    after = [[at for at in range(1, row) if ids[at - 1] == ids[row]] for row in range(count)]
    same = [[at for at in range(row) if ids[at] == ids[row]] for row in range(count)]
    induction, duplicate = (
        [weights[row, places].sum() for row, places in enumerate(found) if places] for found in (after, same)
    )
    entropy = [-sum(share * math.log2(share) for share in row if share) for row in weights.tolist()]
    return (
        np.mean([weights[row, row - 1] for row in range(1, count)]).item(),
        np.mean(induction).item(),
        weights[1:, 0].mean().item(),
        np.mean(entropy).item(),
        np.mean(duplicate).item(),
    )


def of(score: HeadScore) -> tuple[float | None, ...]:
    return score.previous, score.induction, score.first, score.entropy_bits, score.duplicate


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", PLAIN)
def test_scores_over_a_path_are_those_of_weights_by_hand(zoo: Zoo, name: str) -> None:
    """Beyond the window of 32 tokens that gemma3 has; qwen3-next has one layer with an attention."""
    session = begun(zoo.load(name, dtype="float32"), "the dog saw a cat and " * 6, echo=None)
    ids = session.tree.tokens(session.node)
    weights = PLAIN[name](session.runner.model).weights(ids)
    read = scored(session)
    assert read.facts.failed is None
    assert read.repeats == sum(ids[row] in ids[: row - 1] for row in range(1, len(ids)))
    assert [(each.layer, each.head) for each in read.heads] == [
        (layer, head) for layer, heads in weights.items() for head in range(len(heads))
    ]
    for each in read.heads:
        assert of(each) == pytest.approx(by_hand(weights[each.layer][each.head], ids), abs=CLOSE), each


def planted(rows: list[list[float]], ids: list[int], first: int = 0) -> heads_module._ScoreSums:
    """Scores of one head with these rows over all tokens up to the end."""
    sums = heads_module._ScoreSums(ids)
    weights = mx.array(rows)[None]
    run = AttentionRun(0, "fused", weights, None, 1, list(range(len(ids))), 0.0, 0.0, None)
    sums.take(run, first)
    return sums


def test_heads_that_do_one_thing_alone_score_all_of_it() -> None:
    ids = [7, 8, 9, 7, 8]

    def one_hot(places: list[int]) -> list[list[float]]:
        return [[1.0 if column == place else 0.0 for column in range(5)] for place in places]

    (previous,) = planted(one_hot([0, 0, 1, 2, 3]), ids).scores()
    assert (previous.previous, previous.entropy_bits) == (1.0, 0.0)
    (induction,) = planted(one_hot([0, 0, 0, 1, 2]), ids).scores()
    assert induction.induction == 1.0
    (first,) = planted(one_hot([0, 0, 0, 0, 0]), ids).scores()
    assert first.first == 1.0
    (even,) = planted([[0.25, 0.25, 0.25, 0.25, 0.0]] * 5, ids).scores()
    assert even.entropy_bits == 2.0
    (other,) = planted(one_hot([0, 0, 0, 0, 0]), [1, 2, 3, 4, 5]).scores()
    assert other.induction is None, "no token occurs again"


def test_a_token_that_repeats_the_one_before_is_no_induction() -> None:
    assert heads_module._ScoreSums([5, 5]).repeats == 0
    assert heads_module._ScoreSums([5, 5, 5]).repeats == 1


# ---- repeated texts -----------------------------------------------------------------------------


def over(session: Session, texts: RepeatedTexts) -> HeadsScored:
    *progress, read = score_heads(session, ScoreHeads(session.node, texts))
    assert isinstance(read, HeadsScored)
    assert read.facts.failed is None
    assert [record.done for record in progress] == sorted(record.done for record in progress)
    assert {record.total for record in progress} == {2 * texts.length * texts.count}
    return read


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", PLAIN)
def test_scores_over_repeated_texts_are_arenas(zoo: Zoo, name: str) -> None:
    session = begun(zoo.load(name, dtype="float32"), "the dog saw a cat", echo=None)
    texts, n = RepeatedTexts(20, 2, seed=4), 20
    read = over(session, texts)
    assert (read.texts, read.tokens, read.repeats) == (texts, 80, 40)
    random, plain = np.random.default_rng(4), PLAIN[name](session.runner.model)
    second, early = np.arange(n, 2 * n), np.arange(1, n + 1)
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for _ in range(2):
        half = random.integers(0, session.facts.vocabulary, n).tolist()
        for layer, heads in plain.weights(half * 2).items():
            for head, weights in enumerate(heads):
                _, _, first, entropy, _ = by_hand(weights, half * 2)
                found[layer, head].append(
                    (
                        weights[early, early - 1].mean(),
                        weights[second, second - n + 1].mean(),
                        first,
                        entropy,
                        weights[second, second - n].mean(),
                    )
                )
    assert [(each.layer, each.head) for each in read.heads] == list(found)
    for each in read.heads:
        expected = np.mean(found[each.layer, each.head], axis=0).tolist()
        assert of(each) == pytest.approx(expected, abs=CLOSE), each


def test_the_bundled_model_has_a_previous_token_head_and_no_induction_head(session: Session) -> None:
    """ARENA's exercise: half of 50 tokens, no token before them."""
    read = over(session, RepeatedTexts(50, 4))
    best = max(read.heads, key=lambda each: each.previous)
    assert (best.layer, best.head) == (3, 3)
    assert best.previous == pytest.approx(0.92, abs=0.01)
    assert max(each.induction or 0.0 for each in read.heads) < 0.05
    assert max(each.duplicate or 0.0 for each in read.heads) < 0.05
    previous, induction, duplicate = found_words(read)
    assert previous.startswith("Previous-token heads: L4 h4 (9")
    assert induction.startswith("No induction head in this model: at most L")
    assert duplicate.startswith("No duplicate-token head in this model: at most L")


def test_repeated_texts_are_the_same_for_a_seed_alone(session: Session) -> None:
    one, again, other = (over(session, RepeatedTexts(5, 1, seed)) for seed in (1, 1, 2))
    assert one.heads == again.heads
    assert one.heads != other.heads


@pytest.mark.parametrize(
    "texts",
    [
        RepeatedTexts(1),
        RepeatedTexts(513),
        RepeatedTexts(count=0),
        RepeatedTexts(5, 101),
        RepeatedTexts(seed=-1),
    ],
)
def test_texts_that_cannot_be_drawn_are_refused(session: Session, texts: RepeatedTexts) -> None:
    with pytest.raises(StepError, match="can't be drawn"):
        list(score_heads(session, ScoreHeads(session.node, texts)))


def test_repeated_texts_can_be_stopped_between_any_two(session: Session) -> None:
    polled = iter([False] * 4)
    running = score_heads(
        session, ScoreHeads(session.node, RepeatedTexts(5, 100)), lambda: next(polled, True)
    )
    assert [next(running) for _ in range(4)]
    with pytest.raises(Cancelled):
        next(running)


def test_duplicates_on_a_path_are_counted_by_their_tokens() -> None:
    ids = [7, 8, 7, 7]
    rows = [[1.0, 0, 0, 0], [1.0, 0, 0, 0], [1.0, 0, 0, 0], [0.5, 0, 0.5, 0]]
    (score,) = planted(rows, ids).scores()
    assert score.duplicate == 1.0
    (none,) = planted([[1.0, 0], [1.0, 0]], [7, 8]).scores()
    assert none.duplicate is None


# ---- all families -------------------------------------------------------------------------------

NO_HEADS = {
    "deepseek_v41": "which tokens the keys belong to isn't known",
    "iquestloopcoder": "runs the parts of its layers itself",
    "mamba": "keeps states instead of keys and values",
    "mamba2": "keeps states instead of keys and values",
    "rwkv7": "keeps states instead of keys and values",
}
"""Families of which no head can be scored, and why."""


@pytest.mark.slow
def test_report_of_what_heads_do_in_all_families(models: Path) -> None:
    """Prints a report: `pytest -m slow -s`. Over the path, and over random texts and the same again."""
    worst, refused = {"forward": (0.0, ""), "attention": (0.0, ""), "rows": (0.0, "")}, {}
    for family in FAMILIES:
        try:
            session = opened(loaded(models, family))
            reads = [over(session, RepeatedTexts(8, 2)), scored(session)]
        except EngineError as error:
            refused[family] = str(error)
            continue
        for read in reads:
            assert read.facts.failed is None, family
            worst |= {
                check.name: max(worst[check.name], (check.error, family)) for check in read.facts.checks
            }
            for each in read.heads:
                shares = each.previous, each.induction, each.first, each.duplicate
                assert all(share is None or 0 <= share <= 1 + ROWS for share in shares), (family, each)
    print(f"\n{len(FAMILIES) - len(refused)} of {len(FAMILIES)} families, worst {worst}; refused {refused}")
    expected = NO_HEADS if mx.metal.is_available() else NO_HEADS | dict.fromkeys(METAL, "No Metal back-end")
    assert refused.keys() == expected.keys()
    assert all(why in refused[family] for family, why in expected.items())
    assert worst["forward"][0] == 0.0

"""Gradients: against `mx.grad` of a function of the embedding written by hand; complete, refused where they must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_map
from mlx_lm.models import cache as caches_of
from msgspec import msgpack

from engine import protocol
from engine.errors import Cancelled, EngineError, PromptError, StepError
from engine.inside import gradients
from engine.inside.gradients import read_gradients
from engine.protocol import GradientsRead, Measuring, ReadGradients
from engine.session.session import Session
from engine.task import never
from tests.engine.inside.looking import PROMPT, loaded, opened
from tests.engine.sessions import arrays, begun
from tests.engine.unthreaded import Unthreaded
from tests.families import FAMILIES
from tests.zoo import Zoo

TEXT = "Lily lost her toy and cried. She felt very"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture
def pocket(zoo: Zoo) -> Session:
    return begun(zoo.load("pocket", dtype="float32"), TEXT)


def read(session: Session, asked: ReadGradients) -> GradientsRead:
    *_, found = read_gradients(session, asked)
    assert isinstance(found, GradientsRead)
    return found


def two(session: Session) -> tuple[int, int]:
    first, second = np.argsort(-session.logits)[:2]
    return int(first), int(second)


def error(found: GradientsRead, name: str) -> float:
    return {check.name: check.error for check in found.facts.checks}[name]


# ---- against a derivative written by hand -------------------------------------------------------


class GivenRows:
    """In the place of a token embedding: rows that are given; the tied head stays its own."""

    def __init__(self, own: Any, rows: mx.array) -> None:
        self.own, self.rows = own, rows

    def __call__(self, ids: mx.array) -> mx.array:
        return self.rows * 1

    def as_linear(self, x: mx.array) -> mx.array:
        logits: mx.array = self.own.as_linear(x)
        return logits


HOLDERS = {
    "pocket": ("model", "embed_tokens"), "qwen3": ("model", "embed_tokens"), "gpt2": ("model", "wte"),
    "gemma3_text": ("model", "embed_tokens"), "mixtral": ("model", "embed_tokens"),
    "deepseek_v3": ("model", "embed_tokens"), "mamba": ("backbone", "embeddings"),
    "qwen3_next": ("model", "embed_tokens"),
}  # fmt: skip
"""Where each family keeps its token embedding."""


class Derived:
    """The derivative of a difference of two logits after a session's text, by `mx.grad` of the model alone.

    Args:
        session: Has the text.
        name: The family.
        tokens: Ids of both tokens.
    """

    def __init__(self, session: Session, name: str, tokens: tuple[int, int]) -> None:
        self.model, self.ids, self.tokens = (
            session.runner.model,
            session.tree.tokens(session.node),
            tokens,
        )
        holder, self.attribute = HOLDERS[name]
        self.holder = getattr(self.model, holder)
        self.table = getattr(self.holder, self.attribute)
        self.own = self.table(mx.array([self.ids]))

    def at(self, rows: mx.array) -> mx.array:
        """The derivative by the rows in the place of the embedding's."""
        try:
            slope = mx.grad(self._difference)(rows)
            mx.eval(slope)
        finally:
            setattr(self.holder, self.attribute, self.table)
        return slope

    def _difference(self, rows: mx.array) -> mx.array:
        setattr(self.holder, self.attribute, GivenRows(self.table, rows))
        logits = self.model(mx.array([self.ids]), cache=caches_of.make_prompt_cache(self.model))[0, -1]
        return logits[self.tokens[0]] - logits[self.tokens[1]]


def derived(name: str, directory: Path, pocket: Session) -> tuple[Session, Derived]:
    session = pocket if name == "pocket" else opened(loaded(directory, name), steps=0)
    return session, Derived(session, name, two(session))


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", HOLDERS)
def test_gradient_x_input_is_that_of_mx_grad(name: str, directory: Path, pocket: Session) -> None:
    session, by_hand = derived(name, directory, pocket)
    one, other = by_hand.tokens
    expected = np.array((by_hand.at(by_hand.own) * by_hand.own)[0].sum(axis=-1))
    found = read(session, ReadGradients(session.node, one, other))
    assert found.facts.failed is None
    np.testing.assert_allclose(found.values, expected, atol=2e-5 * np.abs(expected).max())
    assert found.value == pytest.approx(float(session.logits[one] - session.logits[other]), abs=1e-4)
    assert found.total == pytest.approx(sum(found.values))
    assert (found.steps, found.residual, found.first) == (0, None, 0)


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", HOLDERS)
def test_integrated_gradients_are_the_mean_of_gradients_by_hand(
    name: str, directory: Path, pocket: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "MOST_STEPS", 8)
    session, by_hand = derived(name, directory, pocket)
    base = mx.broadcast_to(by_hand.own[:, :1], by_hand.own.shape)
    way = by_hand.own - base
    slopes = [by_hand.at(base + (step + 0.5) / 8 * way) for step in range(8)]
    expected = np.array((sum(slopes) / 8 * way)[0].sum(axis=-1))
    asked = ReadGradients(session.node, *by_hand.tokens, "integrated", "first", steps=8)
    found = read(session, asked)
    assert [steps for steps, _ in found.tried] == [8]
    np.testing.assert_allclose(found.values, expected, atol=1e-4 * np.abs(expected).max())
    assert found.values[0] == 0.0, "the first token is the baseline"


# ---- completeness -------------------------------------------------------------------------------


def test_shares_sum_to_what_lies_between_baseline_and_text(pocket: Session) -> None:
    one, other = two(pocket)
    for baseline in ("mean", "token"):
        found = read(pocket, ReadGradients(pocket.node, one, other, "integrated", baseline))  # type: ignore[arg-type]
        assert found.facts.failed is None
        assert found.residual is not None
        assert abs(found.residual) <= gradients.ENOUGH
        assert found.total == pytest.approx(found.reached, rel=2 * gradients.ENOUGH)
    assert found.baseline_text == " the"


def test_what_is_missing_is_a_share_of_the_sum_though_the_shares_nearly_cancel(zoo: Zoo) -> None:
    text = "Once upon a time there was a girl. She had a dog. She was very excited to go to the park. " \
           "She was running so fast that she didn't even see the crowd."  # fmt: skip
    session = begun(zoo.load("pocket", dtype="float32"), text)
    first, second = (session.tokens.encode(each)[0] for each in (" She", " The"))
    found = read(session, ReadGradients(session.node, first, second, "integrated"))
    assert abs(found.reached) < gradients.CANCELS * sum(map(abs, found.values))
    assert found.tried[0] == (32, pytest.approx(-0.0307, abs=1e-3))
    assert found.residual == pytest.approx((found.total - found.reached) / found.reached, abs=1e-5)
    assert abs(found.residual) <= gradients.ENOUGH
    assert "nearly cancel" in next(check.where for check in found.facts.checks if check.name == "complete")


def test_steps_are_taken_until_the_shares_are_complete_and_a_residual_beyond_the_bound_is_refused(
    pocket: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ReadGradients(pocket.node, method="integrated", baseline="zero", steps=2)
    monkeypatch.setattr(gradients, "MOST_STEPS", 6)
    found = read(pocket, asked)
    assert [steps for steps, _ in found.tried] == [2, 6]
    failed = found.facts.failed
    assert failed is not None
    assert (failed.name, failed.where) == ("complete", "after 6 steps")
    monkeypatch.setattr(gradients, "COMPLETE", 10.0)
    assert read(pocket, asked).facts.failed is None


@pytest.mark.slow
def test_a_third_of_the_points_are_those_of_before(pocket: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps in two goes are six in one."""
    monkeypatch.setattr(gradients, "ENOUGH", 0.0)
    monkeypatch.setattr(gradients, "MOST_STEPS", 6)
    in_two = read(pocket, ReadGradients(pocket.node, method="integrated", steps=2))
    at_once = read(pocket, ReadGradients(pocket.node, method="integrated", steps=6))
    np.testing.assert_allclose(in_two.values, at_once.values, atol=1e-5)
    assert in_two.forwards == at_once.forwards


def test_held_experts_make_a_mixture_complete(directory: Path) -> None:
    session = opened(loaded(directory, "mixtral"), steps=0)
    one, other = two(session)
    asked = ReadGradients(session.node, one, other, "integrated", "first")
    free = read(session, asked)
    assert free.chooses
    assert not free.held_experts
    failed = free.facts.failed
    assert failed is not None
    assert failed.where.endswith("its experts change on the way")
    held = read(session, ReadGradients(session.node, one, other, "integrated", "first", held_experts=True))
    assert held.held_experts
    assert held.facts.failed is None
    assert abs(held.residual or 0.0) < 1e-2
    assert held.value == pytest.approx(free.value, abs=1e-5)
    assert held.base_value != free.base_value


@pytest.mark.slow
def test_nothing_is_held_in_a_model_without_experts(pocket: Session) -> None:
    found = read(pocket, ReadGradients(pocket.node, method="integrated", held_experts=True))
    assert not found.chooses
    assert not found.held_experts
    assert "The model chooses no experts: nothing is held." in found.notes


# ---- refusals -----------------------------------------------------------------------------------


def test_a_model_without_a_derivative_is_refused(directory: Path) -> None:
    session = opened(loaded(directory, "deepseek_v41"), steps=0)
    with pytest.raises(StepError, match=r"can't be differentiated .*FromFP8"):
        read(session, ReadGradients(session.node))


def test_a_gradient_that_is_no_number_is_refused(directory: Path) -> None:
    session = opened(loaded(directory, "rwkv7"), steps=0)
    with pytest.raises(StepError, match="its derivative is not a number"):
        read(session, ReadGradients(session.node))


def test_a_model_that_rounds_inside_is_found_by_other_tokens(directory: Path) -> None:
    session = opened(loaded(directory, "afm7"), steps=0)
    found = read(session, ReadGradients(session.node))
    failed = found.facts.failed
    assert failed is not None
    assert failed.name == "swaps"
    assert found.flat
    assert len(PROMPT) - 1 not in found.flat
    assert "as the model rounds inside" in failed.where


def test_what_a_window_hides_has_no_share_and_no_effect(directory: Path) -> None:
    session = opened(loaded(directory, "mistral3"), steps=0)
    found = read(session, ReadGradients(session.node))
    assert found.facts.failed is None
    assert found.flat == ()


def test_wrong_questions_are_refused(pocket: Session) -> None:
    node = pocket.node
    for asked, words in (
        (ReadGradients(node, 5, 5), "no difference from itself"),
        (ReadGradients(node, steps=0), "0 steps can't be taken"),
        (ReadGradients(node, method="integrated", steps=10**9), "steps can't be taken"),
        (ReadGradients(0), "no token number 0"),
    ):
        with pytest.raises(StepError, match=words):
            read(pocket, asked)
    with pytest.raises(PromptError, match="outside the model's vocabulary"):
        read(pocket, ReadGradients(node, 10**9))
    with pytest.raises(PromptError, match="tokens, not one"):
        read(pocket, ReadGradients(node, method="integrated", baseline="token", baseline_text=" a big dog"))


def test_a_text_whose_chunks_see_otherwise_is_cut_as_the_session_cut_it(tmp_path: Path) -> None:
    session = opened(loaded(tmp_path, "plamo3"), 1)
    found = read(session, ReadGradients(session.node, method="gradient"))
    assert found.facts.failed is None, found.facts.failed


def test_a_quantized_cache_is_refused(zoo: Zoo) -> None:
    session = begun(zoo.load("pocket", dtype="float32", kv_bits=8, quantized_kv_start=0), TEXT)
    with pytest.raises(StepError, match="rounding has no derivative"):
        read(session, ReadGradients(session.node))


# ---- memory, precision ---------------------------------------------------------------------------


def test_a_long_text_has_shares_of_its_last_tokens_alone_and_they_are_the_same(
    pocket: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(pocket, ReadGradients(pocket.node))
    count = len(whole.values)
    monkeypatch.setattr(gradients, "ROW_BYTES", gradients.row_bytes(pocket, 8, 256))
    cut = read(pocket, ReadGradients(pocket.node))
    assert cut.facts.failed is None
    assert (cut.first, len(cut.values), cut.rows) == (count - 8, 8, 1)
    np.testing.assert_allclose(cut.values, whole.values[-8:], atol=1e-4)
    assert f"The first {count - 8} tokens stay as they are" in cut.notes[0]


def test_a_text_in_pieces_has_the_logits_of_the_whole(pocket: Session) -> None:
    function = gradients._logit_function(pocket, ReadGradients(pocket.node), (1,), never)
    whole, count = np.array(function.logits(function.own)), len(function.ids)
    function.pieces = [2, 1, count - 3]
    np.testing.assert_allclose(np.array(function.logits(function.own)), whole, atol=1e-3)


@pytest.mark.slow
def test_rows_are_bounded_by_the_memory(pocket: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MOST_STEPS", 8)
    together = read(pocket, ReadGradients(pocket.node, method="integrated", steps=8))
    monkeypatch.setattr(gradients, "BATCH_BYTES", 1)
    alone = read(pocket, ReadGradients(pocket.node, method="integrated", steps=8))
    assert (alone.rows, together.rows > 4) == (1, True)
    np.testing.assert_allclose(alone.values, together.values, atol=1e-4)


@pytest.mark.slow
def test_bfloat16_is_computed_in_float32_from_the_vectors_on(zoo: Zoo, pocket: Session) -> None:
    session = begun(zoo.load("pocket", dtype="file"), TEXT)
    one, other = two(pocket)
    found, exact = (read(each, ReadGradients(each.node, one, other)) for each in (session, pocket))
    assert found.facts.failed is None
    assert any("bfloat16 the gradient itself would be rounded" in note for note in found.notes)
    np.testing.assert_allclose(found.values, exact.values, atol=1e-3 * np.abs(exact.values).max())


# ---- what it leaves behind ----------------------------------------------------------------------


def test_the_session_and_mlx_stay_as_they_are(pocket: Session) -> None:
    before, node = arrays(pocket), pocket.node
    taken = (
        mx.take_along_axis,
        mx.argsort,
        mx.argpartition,
        type(pocket.runner.model.model.embed_tokens).__call__,
    )
    state = [np.array(each) for each in mx.random.state]
    read(pocket, ReadGradients(node, method="integrated", held_experts=True))
    with pytest.raises(PromptError):
        read(pocket, ReadGradients(node, 10**9))
    assert taken == (
        mx.take_along_axis, mx.argsort, mx.argpartition, type(pocket.runner.model.model.embed_tokens).__call__,
    )  # fmt: skip
    assert all(np.array_equal(*pair) for pair in zip(before, arrays(pocket), strict=True))
    assert all(np.array_equal(one, other) for one, other in zip(state, mx.random.state, strict=True))
    assert pocket.node == node
    assert not pocket.runner.model.training


def test_it_stops_between_forwards(pocket: Session) -> None:
    polls: list[None] = []

    def stopped() -> bool:
        polls.append(None)
        return len(polls) > 8

    with pytest.raises(Cancelled):
        list(read_gradients(pocket, ReadGradients(pocket.node, method="integrated", steps=256), stopped))
    assert len(polls) == 9


def test_the_engine_answers_with_progress_and_one_record_that_can_be_sent(zoo: Zoo) -> None:
    engine = Unthreaded(zoo.load("llama"))
    engine.do(protocol.Prefill("Once upon a time", chat=False))
    node = engine.session.node
    *progress, found, _ = engine.do(ReadGradients(node, method="integrated", steps=4))
    assert progress
    assert all(isinstance(each, Measuring) and each.total for each in progress)
    assert msgpack.decode(msgpack.encode(found), type=type(found)) == found
    failure, _ = engine.do(ReadGradients(node, 5, 5))
    assert isinstance(failure, protocol.Failure)


@pytest.mark.slow
@given(st.lists(st.integers(3, 500), min_size=2, max_size=9), st.sampled_from(("mean", "first")))
@settings(max_examples=4, deadline=None)
def test_the_residual_is_what_is_missing_and_each_row_is_as_alone(
    zoo: Zoo, ids: list[int], baseline: str
) -> None:
    session = begun(zoo.load("llama"), ids)
    asked = ReadGradients(session.node, 7, 9, "integrated", baseline, steps=60)  # type: ignore[arg-type]
    found = read(session, asked)
    assert found.residual is not None
    missing = abs(found.residual * found.reached)
    assert abs(found.total - found.reached) == pytest.approx(missing, abs=1e-4)
    assert error(found, "derivative") <= gradients.DERIVATIVE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "MOST_ROWS", 5)
        np.testing.assert_allclose(read(session, asked).values, found.values, atol=1e-4)


# ---- all families --------------------------------------------------------------------------------

NEITHER = {"afm7", "bitnet", "deepseek_v41", "muse_spark"}
"""One rounds, one has no derivative, and two need Metal."""


def jittered(model: Any) -> None:
    """Small numbers where a fresh model has zeros, where some families have no derivative; trained ones have none."""
    mx.random.seed(1)

    def change(array: mx.array) -> mx.array:
        zero = array.dtype == mx.float32 and (array.size < 2 or float(mx.abs(array).max()) == 0)
        return array + 0.05 * mx.random.normal(array.shape) if zero else array

    model.update(tree_map(change, model.parameters()))


@pytest.mark.slow
def test_report_of_all_families(directory: Path) -> None:
    right, wrong, refused = {}, {}, {}
    for name in FAMILIES:
        try:
            model = loaded(directory, name)
            jittered(model.model)
            session = opened(model, steps=0)
            found = read(session, ReadGradients(session.node, *two(session)))
        except EngineError as refusal:
            refused[name] = refusal.message
            continue
        (right if found.facts.failed is None else wrong)[name] = error(found, "derivative")
    worst = max(right, key=right.__getitem__)
    print(f"{len(right)} right, the worst {worst} {right[worst]:.1e}; wrong {wrong}; refused {refused}")
    assert {*wrong, *refused} == NEITHER

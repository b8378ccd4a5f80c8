"""The inside of the second model along the session's path is what that model shows of the same tokens by itself."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from engine import protocol
from engine.lockstep.second import both_models, second_session
from engine.model.forward import Runner
from engine.protocol import (
    AttentionRead,
    AttributionRead,
    CaptureFacts,
    Command,
    Explained,
    HeadsScored,
    LensRead,
    Look,
    ModelModules,
    PositionTried,
    Record,
    ScoreRead,
    TriangleRead,
)
from engine.settings import LoadSettings, Settings
from tests import synthetic
from tests.engine.lockstep.rig import Two, coarse_tokenizer
from tests.engine.lockstep.test_paths import PROMPT, node, opened
from tests.zoo import CONFIGS, Zoo

FAMILIES = ["llama:4bit", "gemma3", "mamba2", "lfm2", "mixtral"]


def both(zoo: Zoo, family: str) -> tuple[Two, Two]:
    """The family as the second of two models after a walk, and the same alone after the same tokens from nothing."""
    second = LoadSettings(model=str(zoo.path(family)))
    two = opened(Two(LoadSettings(model=str(zoo.path("llama")))), second)
    walk(two)
    alone = Two(second)
    alone.do(protocol.Configure(Settings(temp=1, seed=5)))
    alone.do(protocol.Prefill(PROMPT, False))
    alone.do(protocol.Take(node(alone), tuple(ids(two)[depth(alone) :])))
    assert ids(alone) == ids(two)
    return two, alone


def walk(two: Two) -> None:
    """Steps, a look, a branch, a look at it, and back: the second model's cache has seen other paths."""
    for _ in range(3):
        two.do(protocol.TakeStep())
    fork = node(two)
    two.do(protocol.ReadLockstep(fork))
    two.do(protocol.Choose(fork, 300))
    two.do(protocol.TakeStep())
    two.do(protocol.ReadLens(node(two), second=True))
    two.do(protocol.MoveTo(fork))
    for token in (301, 302, 303):
        two.do(protocol.Choose(node(two), token))


def ids(two: Two) -> list[int]:
    return two.session.tree.tokens(node(two))


def depth(two: Two) -> int:
    return two.session.tree[node(two)].depth


def ask(two: Two, command: Command, kind: type[Record]) -> Record:
    found = two.do(command)
    failures = [each for each in found if isinstance(each, protocol.Failure)]
    assert not failures
    (answer,) = (each for each in found if isinstance(each, kind))
    return answer


def facts(record: Record) -> CaptureFacts:
    found = record.facts  # type: ignore[attr-defined]
    assert isinstance(found, CaptureFacts)
    return found


@pytest.mark.wide(2)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("back", [0, 2, 5])
def test_attention_and_lens_are_those_of_the_model_by_itself(zoo: Zoo, family: str, back: int) -> None:
    two, alone = both(zoo, family)
    here, there = (each.session.tree.nodes(node(each))[-1 - back] for each in (two, alone))
    one = ask(two, protocol.ReadAttention(here, second=True), AttentionRead)
    other = ask(alone, protocol.ReadAttention(there), AttentionRead)
    assert isinstance(one, AttentionRead)
    assert isinstance(other, AttentionRead)
    assert (facts(one).failed, facts(one).family) == (None, alone.session.facts.family)
    assert [check.name for check in facts(one).checks][:2] == ["forward", "session"]
    assert [(layer.layer, layer.heads) for layer in one.layers] == [
        (layer.layer, layer.heads) for layer in other.layers
    ]
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        for head in range(mine.heads):
            np.testing.assert_allclose(mine.over(head, one.tokens), theirs.over(head, one.tokens), atol=2e-3)
    lens = ask(two, protocol.ReadLens(here, positions=3, second=True), LensRead)
    truth = ask(alone, protocol.ReadLens(there, positions=3), LensRead)
    assert isinstance(lens, LensRead)
    assert isinstance(truth, LensRead)
    assert facts(lens).failed is None
    assert len(lens.columns) == len(truth.columns)
    for column, right in zip(lens.columns, truth.columns, strict=True):
        for cell, same in zip(column.cells, right.cells, strict=True):
            assert cell.entropy_bits == pytest.approx(same.entropy_bits, abs=2e-2)


@pytest.mark.wide(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_is_that_of_a_plain_forward_of_the_path(zoo: Zoo, family: str) -> None:
    two, _ = both(zoo, family)
    two.do(protocol.ReadLens(node(two), second=True))
    second = second_session(two.context, protocol.ReadLens(node(two)), lambda: False)
    fresh = both_models(two.context).loaded.runner()
    row = fresh.forward_path(ids(two), two.session.tree.chunks(node(two)), lambda: False)
    kept = second.row_at(node(two))
    assert kept is not None
    np.testing.assert_allclose(kept, row, atol=2e-3 * float(np.abs(row).max()))
    after = [runner.copy().forward(304) for runner in (second.runner, fresh)]
    np.testing.assert_allclose(*after, atol=2e-3 * float(np.abs(row).max()))


@pytest.mark.slow
def test_every_view_is_told_of_the_second_model_and_of_the_first_as_before(zoo: Zoo) -> None:
    two, alone = both(zoo, "qwen2")
    at, there, title = node(two), node(alone), "qwen2"
    tokens = (300, 301)
    asked: list[tuple[type[Look], tuple[object, ...], type[Record]]] = [
        (protocol.ReadAttention, (), AttentionRead),
        (protocol.ReadTriangle, (0, 1), TriangleRead),
        (protocol.ScoreHeads, (), HeadsScored),
        (protocol.ReadLens, (), LensRead),
        (protocol.Attribute, (tokens,), AttributionRead),
        (protocol.ReadGradients, (), protocol.GradientsRead),
        (protocol.ReadScore, (1, 0), ScoreRead),
        (protocol.TryPosition, ("path", 3), PositionTried),
    ]
    for command, more, kind in asked:
        found = ask(two, command(at, *more, second=True), kind)
        assert facts(found).model.startswith(title)
        assert facts(found).failed is None
        assert facts(ask(two, command(at, *more), kind)).model == ""
        assert facts(ask(alone, command(there, *more), kind)).family == facts(found).family == "qwen2"
    failure = next(
        each for each in two.do(protocol.ReadExperts(at, second=True)) if isinstance(each, protocol.Failure)
    )
    assert failure.message == "This model has neither experts nor recurrent layers."
    modules = ask(two, protocol.ReadModules(second=True), ModelModules)
    assert modules == ask(alone, protocol.ReadModules(), ModelModules)
    assert modules != ask(two, protocol.ReadModules(), ModelModules)


def test_the_explanation_has_the_second_models_logits_and_the_first_ones_draw(zoo: Zoo) -> None:
    two, alone = both(zoo, "qwen2")
    two.do(protocol.Reroll())
    two.do(protocol.Reroll())
    alone.do(protocol.Reroll(count=2))
    one = ask(two, protocol.ExplainSecond(node(two), reroll=2), Explained)
    other = ask(alone, protocol.Explain(node(alone), reroll=2), Explained)
    mine = ask(two, protocol.Explain(node(two), reroll=2), Explained)
    assert isinstance(one, Explained)
    assert isinstance(other, Explained)
    assert isinstance(mine, Explained)
    assert one.model.startswith("qwen2")
    assert mine.model == ""
    assert one.next.draw == other.next.draw == mine.next.draw
    assert one.next.reroll == 2
    assert one.next.picked == other.next.picked
    assert [each.id for each in one.next.candidates] == [each.id for each in other.next.candidates]
    assert one.logits == pytest.approx(other.logits, abs=1e-3)
    assert one.logits != pytest.approx(mine.logits, abs=1e-3)


def test_an_earlier_token_costs_no_forward_of_the_rest_and_the_reading_goes_on(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, _ = both(zoo, "qwen2")
    two.do(protocol.ReadLockstep(node(two)))
    ran: list[int] = []
    plain = Runner.forward_logits
    monkeypatch.setattr(
        Runner, "forward_logits", lambda self, ids: (ran.append(len(ids)), plain(self, ids))[1]
    )
    earlier = two.session.tree.nodes(node(two))[-4]
    assert not [
        each for each in two.do(protocol.ExplainSecond(earlier)) if isinstance(each, protocol.Failure)
    ]
    assert ran == []
    two.do(protocol.ReadLockstep(node(two)))
    assert ran == []


def test_nothing_of_the_session_changes(zoo: Zoo) -> None:
    two, _ = both(zoo, "mamba2")
    before = len(two.session.tree), node(two), two.session.kv.offset, two.session.next
    for each in two.session.tree.nodes(node(two)):
        two.do(protocol.ReadLens(each, second=True))
        two.do(protocol.ExplainSecond(each))
    assert (len(two.session.tree), node(two), two.session.kv.offset, two.session.next) == before
    assert two.one(protocol.Verify(), protocol.Verified).same_order


def failure(two: Two, command: Command) -> protocol.Failure:
    return two.one(command, protocol.Failure)


def test_a_second_prompt_forgets_the_first_ones_path(zoo: Zoo) -> None:
    two, _ = both(zoo, "lfm2")
    two.do(protocol.ReadLens(node(two), second=True))
    two.do(protocol.Prefill("The dog " + PROMPT, False))
    found = ask(two, protocol.ReadLens(node(two), second=True), LensRead)
    assert facts(found).failed is None
    other = Two(LoadSettings(model=str(zoo.path("lfm2"))))
    other.do(protocol.Prefill("The dog " + PROMPT, False))
    truth = ask(other, protocol.ReadLens(node(other)), LensRead)
    assert isinstance(found, LensRead)
    assert isinstance(truth, LensRead)
    mine, theirs = found.columns[-1].cells[-1], truth.columns[-1].cells[-1]
    assert mine.entropy_bits == pytest.approx(theirs.entropy_bits, abs=1e-2)


def test_what_has_no_second_model_or_other_tokens_is_refused(tmp_path: Path) -> None:
    two = Two()
    two.do(protocol.Prefill(PROMPT, False))
    for command in (protocol.ReadLens(node(two), second=True), protocol.ExplainSecond(node(two))):
        assert failure(two, command).message == "There is no second model."
    model = coarse_tokenizer(synthetic.write(tmp_path / "coarse", CONFIGS["llama"]))
    two.one(protocol.OpenLockstep(LoadSettings(model=str(model))), protocol.LockstepOpened)
    for command in (protocol.ReadLens(node(two), second=True), protocol.ExplainSecond(node(two))):
        refused = failure(two, command)
        assert "reads other tokens" in refused.message
        assert refused.hint == "Open it as the session's model to look inside it."
    two.one(protocol.CloseLockstep(), protocol.LockstepClosed)
    assert failure(two, protocol.ExplainSecond(node(two))).message == "There is no second model."


def test_a_second_model_that_does_not_open_leaves_none_and_the_session_as_it_was(
    zoo: Zoo, tmp_path: Path
) -> None:
    first = LoadSettings(model=str(zoo.path("llama")))
    two = opened(Two(first), LoadSettings(model=str(zoo.path("qwen2"))))
    before = ids(two), two.session.kv.offset, two.session.next
    (tmp_path / "empty").mkdir()
    for against in (
        replace(first, model=str(tmp_path / "nothing")),
        replace(first, model=str(tmp_path / "empty")),
        replace(first, adapter_path=str(tmp_path / "empty")),
        replace(first, adapter_path=str(adapter(zoo, tmp_path / "another"))),
    ):
        found = two.do(protocol.OpenLockstep(against))
        (refused,) = (each for each in found if isinstance(each, protocol.Failure))
        assert refused.expected
        assert refused.message.endswith(".")
        assert refused.hint
        assert failure(two, protocol.ExplainSecond(node(two))).message == "There is no second model."
    assert (ids(two), two.session.kv.offset, two.session.next) == before
    assert not two.one(protocol.Verify(), protocol.Verified).largest_difference


def test_opening_another_one_tells_that_the_one_before_is_closed(zoo: Zoo, tmp_path: Path) -> None:
    two = opened(Two(), LoadSettings(model=str(zoo.path("qwen2"))))
    found = two.do(protocol.OpenLockstep(LoadSettings(model=str(tmp_path))))
    assert isinstance(found[0], protocol.LockstepClosed)


def adapter(zoo: Zoo, directory: Path) -> Path:
    """A LoRA adapter whose matrices are those of a larger model."""
    directory.mkdir()
    config = {
        "fine_tune_type": "lora",
        "num_layers": 1,
        "lora_parameters": {"rank": 2, "scale": 1.0, "dropout": 0.0},
    }
    (directory / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = {
        f"model.layers.0.self_attn.q_proj.lora_{side}": mx.zeros((4096, 2) if side == "a" else (2, 4096))
        for side in "ab"
    }
    mx.save_safetensors(str(directory / "adapters.safetensors"), weights)
    return directory

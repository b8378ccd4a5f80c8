"""A text in two models: against plain forwards of mlx_lm, against each model's own score, and against itself."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from threading import Event
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import utils

from engine import protocol
from engine.decoding.speculation import make_draft
from engine.errors import LoadError
from engine.model import facts as weights
from engine.model.load import load
from engine.settings import LoadSettings, SpeculationSettings
from tests.engine.lockstep.rig import TEXT, Two, coarse_tokenizer
from tests.engine.unthreaded import Unthreaded
from tests.zoo import CONFIGS, Zoo

POCKET = LoadSettings()


def logprobs(model: Any, ids: list[int]) -> Any:
    """The float64 log-softmax of one plain forward over all ids."""
    rows = np.array(model(mx.array([ids]))[0].astype(mx.float32)).astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def own_score(settings: LoadSettings, text: str) -> float:
    """What `inspector score` makes of a text: the prompt logprobs of a prefill, summed."""
    engine = Unthreaded(settings)
    engine.do(protocol.Prefill(text, False, echo=True))
    read = engine.of(protocol.PromptReadings)
    return math.fsum(token.logprob or 0.0 for each in read for token in each.tokens)


def test_a_model_is_not_apart_from_itself_at_any_token() -> None:
    two = Two()
    opened = two.one(protocol.OpenLockstep(POCKET), protocol.LockstepOpened)
    assert (opened.title, opened.aligned, opened.notes) == ("pocket, the same again", "ids", ())
    spans = two.spans(protocol.DiffText(TEXT, window=32))
    assert [span.kl_nats for span in spans] == [None, *[0.0] * (len(spans) - 1)]
    assert all(span.same_top and span.logprob_change == 0 and span.rank_change == 0 for span in spans[1:])
    assert "".join(span.text for span in spans) == TEXT
    assert b"".join(span.raw for span in spans) == TEXT.encode()


def test_readings_are_those_of_plain_forwards() -> None:
    two = Two()
    two.one(protocol.OpenLockstep(POCKET, bits=4), protocol.LockstepOpened)
    text = TEXT[:80]
    spans = two.spans(protocol.DiffText(text, candidates=3))
    context = two.context
    ids = context.loaded.tokens.encode(text)
    second = load(POCKET)
    plain, _ = utils.load_model(Path(second.facts.path), lazy=True)
    quantized, _ = utils.quantize_model(plain, {}, 64, 4)
    quantized.set_dtype(mx.float32)
    one, other = logprobs(context.loaded.model, ids), logprobs(quantized, ids)
    kl = (np.exp(one) * (one - other)).sum(-1)
    assert len(spans) == len(ids)
    for place, span in enumerate(spans[1:], 1):
        assert span.kl_nats == pytest.approx(kl[place - 1], rel=1e-3, abs=1e-6)
        assert span.logprob == pytest.approx(one[place - 1, ids[place]], abs=1e-4)
        assert span.other_logprob == pytest.approx(other[place - 1, ids[place]], abs=1e-4)
        assert span.same_top == (one[place - 1].argmax() == other[place - 1].argmax())
        assert span.candidates[0].id == one[place - 1].argmax()
        assert span.other_candidates[0].id == other[place - 1].argmax()
        entropy = -(np.exp(other[place - 1]) * other[place - 1]).sum() / math.log(2)
        assert span.other_entropy_bits == pytest.approx(entropy, abs=1e-4)
    # the first model is what it was: nothing of it was quantized
    assert context.loaded.facts.quantization is None
    assert not any(hasattr(module, "scales") for _, module in context.loaded.model.named_modules())


def test_two_tokenizers_add_up_to_each_models_own_score(zoo: Zoo, tmp_path: Path) -> None:
    from tests import synthetic

    other = LoadSettings(model=str(coarse_tokenizer(synthetic.write(tmp_path / "coarse", CONFIGS["llama"]))))
    two = Two()
    opened = two.one(protocol.OpenLockstep(other), protocol.LockstepOpened)
    assert opened.aligned == "bytes"
    assert "KL, ranks and top tokens need the same tokens" in opened.notes[0]
    spans = two.spans(protocol.DiffText(TEXT, candidates=2))
    assert b"".join(span.raw for span in spans) == TEXT.encode()
    assert max(span.tokens for span in spans) > 1 or max(span.other_tokens for span in spans) > 1
    assert {(span.kl_nats, span.rank, span.same_top) for span in spans} == {(None, None, None)}
    assert sum(span.logprob or 0 for span in spans) == pytest.approx(own_score(POCKET, TEXT), rel=1e-6)
    assert sum(span.other_logprob or 0 for span in spans) == pytest.approx(own_score(other, TEXT), rel=1e-6)
    assert all(len(span.candidates) == len(span.other_candidates) == 2 for span in spans[1:])
    # in windows, too, no byte is lost
    windowed = two.spans(protocol.DiffText(TEXT, window=32))
    assert [span.raw for span in windowed] == [span.raw for span in spans]


def test_windows_have_context_and_say_so() -> None:
    two = Two()
    two.one(protocol.OpenLockstep(POCKET), protocol.LockstepOpened)
    whole = two.spans(protocol.DiffText(TEXT))
    found = two.do(protocol.DiffText(TEXT, window=40))
    spans = [span for each in found if isinstance(each, protocol.LockstepRead) for span in each.spans]
    (ended,) = (each for each in found if isinstance(each, protocol.LockstepEnded))
    assert (ended.window, ended.context) == (40, 20)
    assert [span.position for span in spans] == list(range(len(whole)))
    for mine, theirs in zip(spans[1:40], whole[1:40], strict=True):  # the first window
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    assert spans[41].logprob != whole[41].logprob
    assert spans[41].logprob == pytest.approx(whole[41].logprob, abs=3)
    for window, widest in ((len(whole) - 1, len(whole) - 1), (len(whole), 0)):  # two windows, and one
        assert two.one(protocol.DiffText(TEXT, window=window), protocol.LockstepEnded).window == widest


def test_what_can_not_be_is_refused_in_words() -> None:
    two = Two()
    for command, message in (
        (protocol.DiffText(TEXT), "There is no second model."),
        (protocol.OpenLockstep(POCKET, bits=7), "can't be quantized to 7 bits"),
        (protocol.OpenLockstep(POCKET, bits=4, group_size=48), "in groups of 48"),
        (protocol.OpenLockstep(LoadSettings(model="/nowhere")), "/nowhere"),
    ):
        assert message in two.one(command, protocol.Failure).message
    two.one(protocol.OpenLockstep(POCKET), protocol.LockstepOpened)
    assert "too short" in two.one(protocol.DiffText(TEXT, window=3), protocol.Failure).message
    two.one(protocol.CloseLockstep(), protocol.LockstepClosed)
    assert "no second model" in two.one(protocol.DiffText(TEXT), protocol.Failure).message


def test_what_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free must be a tenth more than the second's weights; the same model again needs nothing."""
    two, eight_bits = Two(), protocol.OpenLockstep(POCKET, bits=8)
    (facts,) = two.of(protocol.ModelFacts)
    needed = two.one(eight_bits, protocol.LockstepMemory).second_bytes
    enough = math.ceil(needed * 1.1)
    sizes = [f"{each / 2**20:.0f} MiB" for each in (needed, facts.weight_bytes, enough - 1)]
    assert len({*sizes}) == 3
    for free, opens in ((enough, True), (enough - 1, False)):
        monkeypatch.setattr("engine.lockstep.second.free_bytes", lambda free=free: free)
        found = two.do(eight_bits)
        assert any(isinstance(each, protocol.LockstepOpened) for each in found) == opens
        said = [each.message for each in found if isinstance(each, protocol.Failure)]
        refusal = (
            f"A second model of about {sizes[0]} doesn't fit beside the first, which has {sizes[1]}: "
            f"{sizes[2]} are free."
        )
        assert said == ([] if opens else [refusal])
        memory = two.one(protocol.OpenLockstep(POCKET), protocol.LockstepMemory)  # shares the weights
        assert (memory.first_bytes, memory.second_bytes) == (facts.weight_bytes, 0)
        assert memory.free_bytes == free


WRONG = pytest.mark.xfail(
    strict=True, reason="the estimate does not know the type of the files or of --dtype"
)


@pytest.mark.parametrize(
    ("model", "settings", "bits", "group"),
    [
        ("llama:bfloat16", {}, None, 64),  # computed in float32
        ("llama:bfloat16", {"dtype": "file"}, None, 64),
        ("llama", {"dtype": "file"}, None, 64),
        ("llama:4bit", {"dtype": "file"}, None, 64),
        ("llama:bfloat16", {}, 8, 32),
        ("llama", {}, 4, 64),
        ("mamba2", {}, 4, 32),  # has matrices that are not quantized
        pytest.param("llama:bfloat16", {"dtype": "float32"}, None, 64, marks=WRONG),  # half
        pytest.param("llama", {"dtype": "bfloat16"}, None, 64, marks=WRONG),  # twice
        pytest.param("gpt2", {}, None, 64, marks=WRONG),  # twice, where config.json names no type
        pytest.param("llama:bfloat16", {"dtype": "bfloat16"}, 2, 32, marks=WRONG),  # a third more
        pytest.param("llama:4bit", {}, 8, 32, marks=WRONG),  # it has 4 bits already, and keeps them
    ],
)
def test_the_estimate_is_what_it_takes(
    zoo: Zoo, model: str, settings: dict[str, Any], bits: int | None, group: int
) -> None:
    second = LoadSettings(model=str(zoo.path(model)), **settings)
    two = Two(LoadSettings(model=str(zoo.path("qwen3"))))
    found = two.do(protocol.OpenLockstep(second, bits=bits, group_size=group))
    (memory,) = (each for each in found if isinstance(each, protocol.LockstepMemory))
    (opened,) = (each for each in found if isinstance(each, protocol.LockstepOpened))
    assert memory.second_bytes == pytest.approx(opened.facts.weight_bytes, rel=0.05)
    assert memory.first_bytes == zoo.load("qwen3").facts.weight_bytes


def test_the_second_goes_with_the_first() -> None:
    two = Two()
    two.one(protocol.OpenLockstep(POCKET), protocol.LockstepOpened)
    two.do(protocol.Load(POCKET))
    assert "no second model" in two.one(protocol.DiffText(TEXT), protocol.Failure).message


@pytest.mark.parametrize("bits", [None, 4])
def test_a_second_that_is_stopped_is_not_opened(bits: int | None) -> None:
    two = Two()
    two.cancel_when = lambda record: isinstance(record, protocol.LockstepMemory)
    *told, ended = two.do(protocol.OpenLockstep(POCKET, bits))
    assert isinstance(ended, protocol.Ended)
    assert ended.cancelled
    assert not two.of(protocol.LockstepOpened, told)
    assert "no second model" in two.one(protocol.DiffText(TEXT), protocol.Failure).message


def test_a_quantized_model_is_not_quantized_again(zoo: Zoo) -> None:
    settings = LoadSettings(model=str(zoo.path("llama:4bit")))
    failure = Two(settings).one(protocol.OpenLockstep(settings, bits=8), protocol.Failure)
    assert "are quantized already (4-bit, group 32, affine)" in failure.message


@pytest.mark.skipif(sys.platform != "linux", reason="MLX's BLAS is replaced on Linux alone")
@pytest.mark.parametrize("fits", [True, False])
def test_a_quantized_second_model_is_estimated_and_told_as_it_is_computed(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    if not fits:
        monkeypatch.setattr(weights, "memory_available", lambda: 2**20)
    found = Two().do(protocol.OpenLockstep(LoadSettings(str(zoo.path("llama:4bit")))))
    (memory,) = (each for each in found if isinstance(each, protocol.LockstepMemory))
    (opened,) = (each for each in found if isinstance(each, protocol.LockstepOpened))
    assert opened.facts.quantization == (None if fits else "4-bit, group 32, affine")
    # float32 scales of packed weights are counted as the file has them
    assert memory.second_bytes == pytest.approx(opened.facts.weight_bytes, rel=0.01 if fits else 0.3)
    assert opened.title == "llama-4bit, 4-bit, group 32"
    assert opened.notes[-1].startswith("Second model: ")


@pytest.mark.skipif(sys.platform != "linux", reason="MLX's BLAS is replaced on Linux alone")
def test_a_model_that_was_unpacked_is_not_quantized_again(zoo: Zoo) -> None:
    settings = LoadSettings(model=str(zoo.path("llama:4bit")))
    two = Two(settings)
    assert two.context.loaded.facts.quantization is None
    failure = two.one(protocol.OpenLockstep(settings, bits=8), protocol.Failure)
    assert "are quantized already (4-bit, group 32, affine)" in failure.message
    with pytest.raises(LoadError, match="quantized already"):
        make_draft(SpeculationSettings("self-4bit"), two.context.loaded, lambda _: None, Event())

"""Whose keys a head looks at: rings that have wrapped, chosen and shared keys, chunks, and quantized ones.

The reference is a forward of the whole text over empty caches, whose keys are in the text's order and whose mask cuts
them to the window; or the model's own mask, replaced by one that is written out here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np
import pytest

from engine.inspection.inside.attention import read_attention
from engine.inspection.inside.capture import LESS, QUANTIZED, SHORTER
from engine.inspection.inside.taps import Taps
from engine.session.session import Session
from tests.engine.inspection.inside.looking import PROMPT, difference, loaded, look, opened
from tests.families import WINDOW

NEAR = 1e-5
"""Of a difference between two weights in float32: 2e-6 was seen."""


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
        read = read_attention(session, node)
        assert read.facts.failed is None
        assert difference(session, read) < NEAR


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "exaone4"])
def test_a_token_beyond_the_window_has_no_weight(models: Path, family: str) -> None:
    session = opened(loaded(models, family), steps=WINDOW)
    read = read_attention(session, session.node)
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
        read = read_attention(session, session.tree.nodes(session.node)[depth - 1])
        assert read.facts.failed is None
        for run, layer in zip(taps.attended, read.layers, strict=True):
            assert layer.keep == keep
            truth = np.array(run.weights[:, depth - 1, :depth])
            mine = [layer.over(head, depth) for head in range(layer.heads)]
            assert np.abs(truth - np.array(mine)).max() < NEAR


def test_a_choice_of_keys_is_spread_over_the_text(models: Path) -> None:
    session = opened(loaded(models, "deepseek_v32"), steps=WINDOW)
    read = read_attention(session, session.node)
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
        read = read_attention(session, node)
        assert read.facts.failed is None
        kinds = {layer.kind for layer in read.layers}
        assert kinds == {"quantized" if session.tree[node].depth > start else "fused"}
        assert difference(session, read) < (0.02 if bits == 8 else 0.2)
    seen = look(session)
    assert all(check.passed for check in seen.checks.values()), seen.checks
    assert seen.checks["attention"].bound == QUANTIZED
    assert len(seen.lens.columns) == 9  # the prompt's last token, and the steps
    assert SHORTER in seen.lens.facts.note


@pytest.mark.wide(2)
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
    read = read_attention(session, session.node)
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

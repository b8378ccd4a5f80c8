"""Direct logit attribution: parts that sum to the logit, as in a reference of our own; the session stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from msgspec import msgpack

from engine import protocol
from engine.errors import Cancelled, EngineError, PromptError, StepError
from engine.inside import lens
from engine.inside.gradients import read_gradients
from engine.inside.lens import attribute, read_lens
from engine.inside.view import FLOAT32, LESS, QUANTIZED
from engine.model.load import load
from engine.protocol import Attribute, AttributionRead, Contribution, ReadGradients, ReadLens
from engine.session.session import Session
from engine.settings import LoadSettings
from tests import synthetic
from tests.engine.inside import looking
from tests.engine.inside.looking import answer
from tests.engine.sessions import begun
from tests.engine.unthreaded import Unthreaded
from tests.zoo import BASE, CONFIGS, Zoo

# ---- a llama in numpy, written from its definition ---------------------------------------------


class PlainLlama:
    """A llama in numpy, for one sequence, that keeps what each part writes at the last position."""

    def __init__(self, model: Any) -> None:
        arrays = dict(tree_flatten(model.parameters()))
        self.weights = {name: np.array(array).astype(np.float64) for name, array in arrays.items()}
        self.heads, self.groups, self.size, self.eps = 4, 2, 32, 1e-5

    def parts(self, ids: list[int]) -> tuple[dict[str, Any], Any]:
        """Everything that is written to the stream at the last token, and the stream."""
        x = self.weights["model.embed_tokens.weight"][ids]
        written = {"embedding": x[-1]}
        for layer in range(2):
            names = f"model.layers.{layer}."
            heads = self._attention(names, self._norm(x, names + "input_layernorm.weight"))
            x = x + heads.sum(axis=0)
            mlp = self._mlp(names + "mlp.", self._norm(x, names + "post_attention_layernorm.weight"))
            x = x + mlp
            written |= {f"{layer}.{head}": heads[head, -1] for head in range(self.heads)}
            written[f"{layer}.mlp"] = mlp[-1]
        return written, x[-1]

    def shares(self, ids: list[int], token: int) -> dict[str, float]:
        """What each part adds to a token's logit, the final norm's scale held."""
        written, x = self.parts(ids)
        scale = 1 / np.sqrt((x**2).mean() + self.eps)
        along = self.weights["model.norm.weight"] * self.weights["model.embed_tokens.weight"][token]
        return {name: float(part * scale @ along) for name, part in written.items()}

    def _norm(self, x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps) * self.weights[name]

    def _attention(self, names: str, x: Any) -> Any:
        """What each head writes, shape (heads, tokens, width)."""
        q, k, v = (
            (x @ self.weights[f"{names}self_attn.{part}_proj.weight"].T).reshape(len(x), -1, self.size)
            for part in "qkv"
        )
        q, k = self._turned(q), self._turned(k)
        after = np.triu(np.full((len(x), len(x)), -np.inf), 1)
        out = self.weights[names + "self_attn.o_proj.weight"]
        written = []
        for head in range(self.heads):
            group = head // (self.heads // self.groups)
            scores = q[:, head] @ k[:, group].T / np.sqrt(self.size) + after
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            looked = weights / weights.sum(axis=-1, keepdims=True) @ v[:, group]
            written.append(looked @ out[:, head * self.size : (head + 1) * self.size].T)
        return np.stack(written)

    def _turned(self, x: Any) -> Any:
        """Rotary positions: the two halves of a head are the two coordinates."""
        half = self.size // 2
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        one, two = x[..., :half], x[..., half:]
        return np.concatenate([one * cos - two * sin, one * sin + two * cos], axis=-1)

    def _mlp(self, names: str, x: Any) -> Any:
        gate, up, down = (self.weights[f"{names}{part}_proj.weight"] for part in ("gate", "up", "down"))
        gated = x @ gate.T
        return gated / (1 + np.exp(-gated)) * (x @ up.T) @ down.T


PARK = "Once upon a time, there was a little boy named Max and a girl named Sue. One day, Max went to the park with"


def opened(zoo: Zoo, name: str, steps: int = 3, text: str = PARK, **load: Any) -> Session:
    if name == "pocket":  # its file has bfloat16
        load.setdefault("dtype", "float32")
    return begun(zoo.load(name, **load), text, steps=steps)


def top(session: Session) -> tuple[int, int]:
    """The two tokens that the model ranks first at the session's node."""
    first, second = np.argsort(-session.logits)[:2]
    return int(first), int(second)


def summed(parts: tuple[Contribution, ...]) -> Any:
    return np.sum([part.logits for part in parts], axis=0)


# ---- the sum ----------------------------------------------------------------------------------

WHOLE = {
    "pocket": FLOAT32,
    **dict.fromkeys(CONFIGS, FLOAT32),
    "llama:bfloat16": LESS,
    "gemma3:bfloat16": LESS,
    "llama:4bit": FLOAT32,
}
"""Models, and the bound of each by the type that it computes in."""


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", WHOLE)
def test_the_parts_sum_to_the_logits(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.facts.failed is None, read.facts.failed
    assert [check.name for check in read.facts.checks][-2:] == ["lens", "parts"]
    assert read.facts.checks[-1].bound == WHOLE[name]
    row = session.logits
    wrong = np.abs(summed(read.parts) - row[list(top(session))]).max() / np.abs(row).max()
    assert wrong <= WHOLE[name]
    assert read.total == pytest.approx(read.reached, abs=2 * WHOLE[name] * float(np.abs(row).max()))
    assert [token.logit for token in read.tokens] == [row[id] for id in top(session)]
    assert [token.rank for token in read.tokens] == [1, 2]


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", WHOLE)
def test_heads_and_rest_sum_to_their_attention(zoo: Zoo, name: str) -> None:
    session = opened(zoo, name)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    largest = np.abs(session.logits).max()
    attentions = [part for part in read.parts if part.kind == "attention"]
    for part in attentions:
        heads = [part.head(index) for index in range(part.heads.shape[0])]
        assert np.abs(np.sum([*heads, part.rest], axis=0) - part.logits).max() <= WHOLE[name] * largest
    # Mamba has no attention, and what its layers write is one child's; all others in the zoo are split by head.
    assert [part.heads.shape[0] > 1 for part in attentions] == [True] * len(attentions)
    assert bool(attentions) == (name != "mamba2")
    assert read.notes == ()


@pytest.mark.wide(1)
@pytest.mark.parametrize("bits", [4, 8])
def test_with_a_quantized_cache(zoo: Zoo, bits: int) -> None:
    session = opened(zoo, "pocket", kv_bits=bits, kv_group_size=32, quantized_kv_start=0)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.facts.failed is None
    assert read.facts.checks[-1].bound == QUANTIZED
    # only the attention is less exact, and what it returned is taken as it is
    assert read.facts.checks[-1].error <= FLOAT32
    assert all(part.heads.shape[0] for part in read.parts if part.kind == "attention")


def test_in_half_the_bits_a_trained_model_keeps_its_bound(zoo: Zoo) -> None:
    session = opened(zoo, "pocket", steps=0, dtype="bfloat16")
    for _ in range(6):
        session.step()
        read = answer(attribute(session, Attribute(session.node, top(session))))
        assert read.facts.failed is None, read.facts.failed
        assert read.facts.checks[-1].bound == LESS
        assert read.notes == ()


def test_a_bias_is_the_rest_and_a_norms_bias_the_constant(tmp_path: Path) -> None:
    synthetic.write(tmp_path, CONFIGS["gpt2"])
    model = load(LoadSettings(model=str(tmp_path)))
    for layer in model.model.layers:
        layer.attn.c_proj.bias = mx.random.normal(layer.attn.c_proj.bias.shape)
    model.model.model.ln_f.bias = mx.random.normal(model.model.model.ln_f.bias.shape)
    session = begun(model, PARK, steps=3)
    token = top(session)[0]
    read = answer(attribute(session, Attribute(session.node, (token,))))
    assert read.facts.failed is None
    embedding = np.array(model.model.model.wte.weight[token])
    assert read.parts[-1].logits[0] == pytest.approx(
        float(embedding @ np.array(model.model.model.ln_f.bias)), rel=1e-4
    )
    assert all(abs(part.rest[0]) > 1e-3 for part in read.parts if part.kind == "attention")


def test_before_a_softcap_and_without_a_split_by_head(tmp_path: Path) -> None:
    """Gemma 2 bends its logits, and computes its attention itself; its norms stand behind attention and MLP."""
    config = {**BASE, "model_type": "gemma2", "query_pre_attn_scalar": 32, "final_logit_softcapping": 3.0}
    synthetic.write(tmp_path, config)
    session = begun(load(LoadSettings(model=str(tmp_path))), PARK, steps=3)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.facts.failed is None, read.facts.failed
    assert read.softcap
    for token in read.tokens:
        assert 3 * np.tanh(token.reached / 3) == pytest.approx(token.logit, abs=1e-4)
        assert abs(token.reached) > abs(token.logit) + 0.1
    assert read.notes == ("Layers 1-2: the heads can't be told apart here, the attention is one bar.",)
    assert [part.kind for part in read.parts] == ["embedding", *["attention", "mlp"] * 2, "constant"]


class Gain(nn.Module):
    """A child of a layer through which what its attention returns goes."""

    def __call__(self, x: mx.array) -> mx.array:
        return x * 3


class Gained(llama.TransformerBlock):
    """A layer of a llama with a gain behind its attention."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        h = x + self.gain(self.self_attn(self.input_layernorm(x), mask, cache))
        return h + self.mlp(self.post_attention_layernorm(h))


def test_a_gain_behind_an_attention_belongs_to_it(zoo: Zoo) -> None:
    loaded = load(LoadSettings(model=str(zoo.path("llama"))))
    for layer in loaded.model.layers:
        layer.__class__, layer.gain = Gained, Gain()
    session = begun(loaded, PARK, steps=3)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.facts.failed is None, read.facts.failed
    assert [part.kind for part in read.parts] == ["embedding", *["attention", "mlp"] * 2, "constant"]
    assert all(part.heads.shape[0] == 4 for part in read.parts if part.kind == "attention")


def test_a_stream_that_is_not_the_first_argument_fails_the_check(tmp_path: Path) -> None:
    """Talkie hands its layers the embeddings first: what is taken for the stream sums to another logit."""
    synthetic.write(tmp_path, {**BASE, "model_type": "talkie", "num_key_value_heads": 4, "hidden_size": 128})
    loaded = load(LoadSettings(model=str(tmp_path)))
    loaded.model.lm_head = mx.random.normal(loaded.model.lm_head.shape)  # zeros, as mlx_lm makes it
    session = begun(loaded, PARK, steps=3)
    failed = answer(attribute(session, Attribute(session.node, top(session)))).facts.failed
    assert failed.name == "parts"


def test_a_model_that_goes_through_its_layers_twice_is_refused(tmp_path: Path) -> None:
    """What goes into its first layer the second time is no embedding."""
    config = {**BASE, "model_type": "nanbeige", "num_loops": 2, "effective_num_loops": 2}
    synthetic.write(tmp_path, config)
    session = begun(load(LoadSettings(model=str(tmp_path))), PARK, steps=3)
    with pytest.raises(
        StepError, match="nanbeige can't be taken apart: it does not go through its layers once"
    ):
        answer(attribute(session, Attribute(session.node, top(session))))


@pytest.mark.parametrize(
    ("family", "lens", "said"),
    [
        (
            "iquestloopcoder",
            "its layers are not called, their parts are",
            "does not go through its layers once",
        ),
        ("kimi_k3", "its end needs more than the residual stream", "its end can't be run without its layers"),
        ("gemma3n", "", "its layers hand on several streams"),
    ],
)
def test_a_family_that_can_not_be_taken_apart_says_why(
    tmp_path: Path, family: str, lens: str, said: str
) -> None:
    session = looking.opened(looking.loaded(tmp_path, family), 0)
    read = answer(read_lens(session, ReadLens(session.node)))
    assert (read.facts.failed.where if read.facts.failed else "") == lens
    assert bool(read.columns) == (not lens)
    with pytest.raises(StepError, match=said):
        answer(attribute(session, Attribute(session.node, top(session))))


def test_two_attentions_at_the_end_name_the_friend(zoo: Zoo) -> None:
    """Max went to the park with: what speaks for Sue and against Max is written by the last two layers' attentions,
    by the two heads of each that look at the names; everything else hardly tells the two apart."""
    session = opened(zoo, "pocket", steps=0)
    sue, max_ = (session.encode(name)[-1] for name in (" Sue", " Max"))
    assert top(session)[0] == sue
    read = answer(attribute(session, Attribute(session.node, (sue, max_))))
    bars = {(part.kind, part.layer): read.bar(part.logits) for part in read.parts}
    assert read.reached > 10
    assert bars["attention", 6] + bars["attention", 7] > 0.7 * read.reached
    assert max(abs(bar) for (kind, layer), bar in bars.items() if layer is None or layer < 6) < 1
    last = {part.layer: part for part in read.parts if part.kind == "attention"}[7]
    heads = [read.bar(last.head(head)) for head in range(4)]
    assert heads.index(max(heads)) == 0


def test_earlier_tokens_and_a_single_token(zoo: Zoo) -> None:
    session = opened(zoo, "pocket", steps=4)
    for node in session.tree.nodes(session.node)[-4:]:
        read = answer(attribute(session, Attribute(node, (300,))))
        assert read.facts.failed is None
        assert read.node == node
        assert read.total == pytest.approx(read.tokens[0].logit, abs=1e-3)


# ---- against a reference of our own -----------------------------------------------------------


def test_each_part_and_head_of_a_llama_equals_a_reference(zoo: Zoo) -> None:
    session = opened(zoo, "llama")
    tokens = top(session)
    read = answer(attribute(session, Attribute(session.node, tokens)))
    plain = PlainLlama(session.runner.model)
    ids = session.tree.tokens(session.node)
    for place, token in enumerate(tokens):
        truth = plain.shares(ids, token)
        mine: dict[str, float] = {}
        for part in read.parts:
            if part.kind == "attention":
                assert part.rest[place] == pytest.approx(0, abs=1e-6)
                mine |= {
                    f"{part.layer}.{head}": part.head(head)[place] for head in range(part.heads.shape[0])
                }
            else:
                mine[part.kind if part.layer is None else f"{part.layer}.{part.name}"] = part.logits[place]
        assert mine.pop("constant") == 0
        assert mine.keys() == truth.keys()
        largest = max(map(abs, truth.values()))
        assert largest > 1
        assert {name: round(value / largest, 4) for name, value in mine.items()} == pytest.approx(
            {name: value / largest for name, value in truth.items()}, abs=1.5e-4
        )


# ---- what must be noticed ---------------------------------------------------------------------


def test_a_split_that_loses_a_part_fails_the_check(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    split = lens.split_layer

    def lossy(*args: Any) -> list[lens.LayerWriter] | None:
        found = split(*args)
        return found and found[:-1]

    monkeypatch.setattr(lens, "split_layer", lossy)
    session = opened(zoo, "llama")
    failed = answer(attribute(session, Attribute(session.node, top(session)))).facts.failed
    assert failed.name == "parts"
    assert failed.error > 100 * failed.bound


def test_a_layer_whose_replay_differs_is_one_bar(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(zoo, "llama")
    truth = answer(attribute(session, Attribute(session.node, top(session))))
    replay = lens._replay

    def off(*args: Any) -> mx.array:
        rows = replay(*args)
        return mx.concatenate([rows[:2], rows[2:] * 1.01])  # as a part that isn't linear

    monkeypatch.setattr(lens, "_replay", off)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert [part.kind for part in read.parts] == ["embedding", "layer", "layer", "constant"]
    assert read.notes == ("Layers 1-2: attention and MLP can't be told apart here, a layer is one bar.",)
    assert read.facts.failed is None
    for layer in range(2):
        whole = summed(tuple(part for part in truth.parts if part.layer == layer))
        assert read.parts[1 + layer].logits == pytest.approx(whole, abs=1e-4)


def test_heads_that_do_not_sum_to_the_attention_are_not_shown(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama")

    def tilted(part: Any, bound: float) -> list[mx.array]:
        return [rows * mx.arange(1, rows.shape[0] + 1)[:, None, None] for rows in split_heads(part, bound)]

    split_heads = lens.heads_of
    monkeypatch.setattr(lens, "heads_of", tilted)
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.facts.failed is None
    assert all(part.heads.shape[0] == 0 and part.rest == () for part in read.parts)
    assert read.notes == ("Layers 1-2: the heads can't be told apart here, the attention is one bar.",)


def test_heads_are_told_apart_where_an_attention_is_given_its_input_by_name(tmp_path: Path) -> None:
    session = looking.opened(looking.loaded(tmp_path, "plamo"))
    read = answer(attribute(session, Attribute(session.node, top(session))))
    assert read.notes == ()
    assert [part.heads.shape[0] for part in read.parts if part.kind == "attention"] == [4, 4]


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ((), StepError, "one token, or of two"),
        ((5, 5), StepError, "one token, or of two"),
        ((1, 2, 3), StepError, "one token, or of two"),
        ((10**6,), PromptError, "outside the model's vocabulary"),
        ((-1,), PromptError, "outside the model's vocabulary"),
    ],
)
def test_tokens_that_are_refused(
    zoo: Zoo, tokens: tuple[int, ...], error: type[EngineError], words: str
) -> None:
    session = opened(zoo, "llama", steps=0)
    with pytest.raises(error, match=words):
        answer(attribute(session, Attribute(session.node, tokens)))


def test_a_token_that_the_model_bars_is_refused(tmp_path: Path) -> None:
    session = looking.opened(looking.loaded(tmp_path, "phi3small"))
    barred = int(session.logits.argmin())
    for tokens in ((barred,), (5, barred)):
        with pytest.raises(StepError, match="bars that token"):
            answer(attribute(session, Attribute(session.node, tokens)))
        with pytest.raises(StepError, match="bars that token"):
            answer(read_gradients(session, ReadGradients(session.node, *tokens)))


def test_no_place_to_look_from(zoo: Zoo) -> None:
    session = opened(zoo, "llama", steps=0)
    with pytest.raises(StepError):
        answer(attribute(session, Attribute(10**6, (5,))))


# ---- the session stays as it is ---------------------------------------------------------------


def state(session: Session) -> tuple[Any, ...]:
    held = tree_flatten([cache.state for cache in session.kv.caches])
    caches = [np.array(each).tobytes() if isinstance(each, mx.array) else each for _, each in held]
    ids = session.tree.tokens(session.node)
    return ids, len(session.tree), session.kv.offset, caches, session.logits.tobytes()


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["pocket", "gpt-oss", "lfm2", "qwen3-next", "deepseek-v2"])
def test_the_session_is_not_changed(zoo: Zoo, name: str) -> None:
    session, other = opened(zoo, name), opened(zoo, name)
    before = state(session)
    answer(attribute(session, Attribute(session.node, top(session))))
    answer(attribute(session, Attribute(session.tree[session.node].parent, (5,))))
    assert state(session) == before
    assert [session.step().id for _ in range(5)] == [other.step().id for _ in range(5)]
    assert state(session) == state(other)


def test_it_can_be_cancelled_at_any_poll_and_leaves_nothing_set(zoo: Zoo) -> None:
    session = opened(zoo, "pocket")
    own = mx.fast.rms_norm, mx.fast.layer_norm, mx.fast.scaled_dot_product_attention, mx.tanh, mx.softmax
    before, polls = state(session), 0

    def stopped_at(number: int) -> Callable[[], bool]:
        left = iter(range(number))
        return lambda: next(left, None) is None

    while True:
        try:
            answer(attribute(session, Attribute(session.node, (5,)), stopped_at(polls)))
            break
        except Cancelled:
            polls += 1
        assert state(session) == before
        now = mx.fast.rms_norm, mx.fast.layer_norm, mx.fast.scaled_dot_product_attention, mx.tanh, mx.softmax
        assert now == own
    assert polls >= len(session.runner.model.layers)


# ---- the command ------------------------------------------------------------------------------


def test_the_command_and_its_record_travel() -> None:
    engine = Unthreaded(LoadSettings(), prompt="Once upon a time")
    command = protocol.Attribute(4, (300, 301))
    assert msgpack.decode(msgpack.encode(command), type=type(command)) == command
    read, ended = engine.do(command)
    assert isinstance(read, AttributionRead)
    assert isinstance(ended, protocol.Ended)
    assert msgpack.decode(msgpack.encode(read), type=type(read)) == read
    failure, _ = engine.do(protocol.Attribute(4, (300, 300)))
    assert isinstance(failure, protocol.Failure)
    assert failure.expected

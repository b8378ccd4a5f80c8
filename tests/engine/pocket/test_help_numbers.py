"""Every number of the bundled model that the help states is read back from its page and compared with the model."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask

from engine.decoding.beam import search
from engine.inside.attention import read_attention
from engine.measuring.roofline import attention_operations
from engine.model.load import Loaded, load
from engine.protocol import Prefilled, ReadAttention
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from tests.engine.inside.looking import answer

HELP = Path(__file__).parents[3] / "inspector" / "help"
NUMBER = r"(−?\d(?:[\d,.]*\d)?)"
TRAP = "Tim had a red kite. Sue had a blue ball. Tim played with his red"


@cache
def text(name: str) -> str:
    """A page of the help on one line."""
    return re.sub(r"\s+", " ", (HELP / f"{name}.md").read_text(encoding="utf-8"))


def stated(name: str, pattern: str) -> list[float]:
    """The numbers that a page states where a pattern matches it, once; each is a `#` of the pattern."""
    found = re.findall(pattern.replace("#", NUMBER), text(name))
    assert len(found) == 1, (name, pattern, found)
    groups = found[0] if isinstance(found[0], tuple) else found
    return [float(group.replace(",", "").replace("\u2212", "-")) for group in groups]


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    return load(LoadSettings(dtype="float32"))


def _sizes(model: Any) -> dict[str, int]:
    sizes = dict.fromkeys(("embed", "self_attn", "mlp", "norm"), 0)
    for name, array in tree_flatten(model.parameters()):
        sizes[next(part for part in sizes if part in name)] += array.size
    return sizes


def prefilled(loaded: Loaded, prompt: str, settings: Settings | None = None) -> tuple[Session, Prefilled]:
    session = Session(loaded, settings or Settings())
    *_, end = session.prefill(prompt, session.encode(prompt), echo=False)
    assert isinstance(end, Prefilled)
    return session, end


def test_parameters_and_their_shares(pocket: Loaded) -> None:
    sizes, total, layers = _sizes(pocket.model), pocket.facts.parameters, pocket.facts.layers
    assert sum(sizes.values()) == total
    rows, row, count, share, of = stated(
        "parts/embedding", r"# rows of # numbers: # parameters, # % of all #"
    )
    assert (rows, row, count, of) == (
        pocket.facts.vocabulary,
        pocket.facts.hidden_size,
        sizes["embed"],
        total,
    )
    assert share == pytest.approx(100 * sizes["embed"] / total, abs=0.05)
    each, queries, keys, values, output, share = stated(
        "parts/attention", r"# parameters a layer \(queries #, keys #, values #, output #\): # %"
    )
    layer = pocket.model.layers[0].self_attn
    parts = (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj)
    assert [queries, keys, values, output] == [part.weight.size for part in parts]
    assert each == sum((queries, keys, values, output)) == sizes["self_attn"] / layers
    assert share == pytest.approx(100 * sizes["self_attn"] / total, abs=0.05)
    each, count, share = stated("parts/mlp", r"# parameters a layer, # in all. That is # %")
    assert (each * layers, count) == (sizes["mlp"], sizes["mlp"])
    assert share == pytest.approx(100 * sizes["mlp"] / total, abs=0.05)
    assert sizes["mlp"] == 3 * sizes["self_attn"]
    norms, each, count = stated("parts/norm", r"# RMSNorms: .* # parameters each, # in all")
    assert (norms, norms * each, count) == (2 * layers + 1, sizes["norm"], sizes["norm"])
    assert sizes["norm"] < total / 1000


def test_heads_and_the_cache(pocket: Loaded) -> None:
    facts = pocket.facts
    assert facts.context_window
    assert stated("parts/head", r"# query heads and # KV heads in each of # layers, with # numbers each") == [
        facts.heads, facts.kv_heads, facts.layers, facts.head_size,
    ]  # fmt: skip
    *parts, numbers, full, half = stated(
        "parts/key-value",
        r"leaves 2 \(key and value\) × # layers × # KV heads × # numbers = # numbers: # KiB in "
        r"float32, # KiB in bfloat16",
    )
    assert parts == [facts.layers, facts.kv_heads, facts.head_size]
    assert (numbers, full * 1024, half) == (2 * math.prod(parts), facts.kv_bytes_per_token, full / 2)
    window, filled = stated("parts/key-value", r"context window of # tokens is # MiB")
    assert (window, filled * 2**20) == (facts.context_window, facts.context_window * full * 1024)
    assert stated("parts/key-value", r"All parameters together are # MiB") == [
        round(facts.weight_bytes / 2**20)
    ]
    session, end = prefilled(pocket, "Once upon a time")
    assert end.kv.used_bytes == 4 * full * 1024
    assert session.step().kv.used_bytes == 5 * full * 1024
    assert stated("parts/differences", r"# KiB a token: # MiB at 128, # MiB at 512") == [
        full, 128 * full / 1024, 512 * full / 1024,
    ]  # fmt: skip


def test_operations_and_where_attention_overtakes_the_mlp(pocket: Loaded) -> None:
    facts, sizes = pocket.facts, _sizes(pocket.model)
    mlp, fixed, a_token, overtakes, share = stated(
        "parts/mlp",
        r"2 for each parameter: # a layer and token, .* Attention has # for its matrices, and # more for "
        r"each .* context of # tokens\*\*\. This model's window ends at 512, where attention costs # %",
    )
    assert (mlp, fixed) == (2 * sizes["mlp"] / facts.layers, 2 * sizes["self_attn"] / facts.layers)
    groups = prefilled(pocket, "Once upon a time")[1].kv.groups
    looked = attention_operations(facts, groups, 101, 1) - attention_operations(facts, groups, 100, 1)
    assert a_token * facts.layers == looked
    assert fixed + a_token * overtakes == mlp
    assert share == round(100 * (fixed + 512 * a_token) / mlp)
    (prompt,) = stated("parts/mlp", r"over a whole prompt attention overtakes at # tokens")
    assert (prompt + 1) / 2 == overtakes
    ours, theirs, heads, size, there = stated(
        "parts/mlp", r"whose layer has # and # parameters and # heads of #, it is #"
    )
    assert (ours, theirs, there) == (3 * 4096 * 11008, 4 * 4096**2, (ours - theirs) / (2 * heads * size))
    assert stated("parts/attention", r"grow with the text: # operations in each layer") == [a_token]
    assert stated("parts/differences", r"linearly \| # operations for each token") == [looked]
    first, last, times = stated(
        "parts/differences", r"# million operations at 128 tokens, # million at 512: #"
    )
    work = [looked * n * (n + 1) / 2 for n in (128, 512)]
    assert [first, last] == [round(each / 1e6) for each in work]
    assert times == round(work[1] / work[0], 1)
    (matrices,) = stated("parts/differences", r"not at all \| # operations")
    assert matrices == 2 * (facts.parameters - sizes["norm"])


def test_positions(pocket: Loaded) -> None:
    rope = pocket.model.layers[0].self_attn.rope
    theta, numbers, pairs, fast, slow = stated(
        "parts/position", r"theta # on all # numbers of a head: # pairs. .* in some # tokens; .* some #\."
    )
    assert (theta, numbers, pairs) == (rope.base, rope.dims, rope.dims / 2)
    assert fast == round(2 * math.pi)
    assert slow == pytest.approx(2 * math.pi * theta ** (1 - 2 / numbers), rel=0.01)


def test_rows_of_the_embedding_that_are_near_each_other(pocket: Loaded) -> None:
    table = np.array(pocket.model.model.embed_tokens.weight.astype(mx.float32))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    pairs = re.findall(r"“␣(\w+)” (?:it )?(?:is )?“␣(\w+)” \((?:cosine )?([\d.]+)\)", text("parts/embedding"))
    assert len(pairs) == 3
    for word, nearest, cosine in pairs:
        (id,) = pocket.tokens.encode(f" {word}", bare=True)
        near = table @ table[id]
        near[id] = -1
        assert pocket.tokens.raw(int(near.argmax())).decode() == f" {nearest}"
        assert near.max() == pytest.approx(float(cosine), abs=0.005)


def test_the_stream_grows_and_the_norm_brings_it_back(pocket: Loaded) -> None:
    def size(stream: mx.array) -> float:
        return float(np.sqrt((np.array(stream[0, -1].astype(mx.float32)) ** 2).mean()))

    (prompt,) = re.findall(r"the last token of “([^”]+)”", text("parts/norm"))
    model = pocket.model.model
    stream = model.embed_tokens(mx.array([pocket.tokens.encode(prompt)]))
    sizes = [size(stream)]
    for layer in model.layers:
        stream = layer(stream, create_attention_mask(stream, None), None)
        sizes.append(size(stream))
    told = stated(
        "parts/norm", r"is # after the embedding, # after the first layer and # after the last; .* to #\."
    )
    assert told == pytest.approx([sizes[0], sizes[1], sizes[-1], size(model.norm(stream))], rel=0.02)


def test_the_order_of_top_p_and_temperature(pocket: Loaded) -> None:
    ((prompt, temp, top_p),) = re.findall(
        r"after “([^”]+)”, temperature ([\d.]+), top-p ([\d.]+)", text("parts/differences")
    )
    first = stated("parts/differences", r"top-p first \(mlx-lm, llama.cpp\) \| # \| # bits")
    other = stated("parts/differences", r"temperature first \(transformers, textbooks\) \| # \| # bits")
    for order, told in (("mlx-lm", first), ("llama.cpp", first), ("transformers", other)):
        settings = Settings(temp=float(temp), top_p=float(top_p), sampler_order=order)
        _, end = prefilled(pocket, prompt, settings)
        kept = min(stage.kept for stage in end.next.stages)
        assert [kept, end.next.sampler_entropy_bits] == pytest.approx(told, rel=0.01), order


@pytest.mark.wide(1)
@pytest.mark.parametrize(("penalty", "tokens"), [(0.0, 2), (1.0, 2), (2.0, 32)])
def test_the_length_penalty(pocket: Loaded, penalty: float, tokens: int) -> None:
    short, most, long = stated(
        "concepts",
        r"two tokens, at 0 and at 1 alike \(# in all\); at 2 it is a text of the # tokens that were allowed \(#\)",
    )
    session, _ = prefilled(pocket, "Tom was sad. The end")
    *_, end = search(session, BeamSettings(width=4, max_tokens=int(most), length_penalty=penalty))
    best = end.ranking[0]
    assert best.length == tokens
    assert best.logprob == pytest.approx(short if tokens == 2 else long, abs=0.02)
    assert best.score == pytest.approx(best.logprob / tokens**penalty)


def test_a_head_that_looks_elsewhere(pocket: Loaded) -> None:
    head, layer, share = stated(
        "parts/attention", r"head # of layer # gives # % to “kite”, and the model says “ball”"
    )
    session, end = prefilled(pocket, TRAP)
    read = answer(read_attention(session, ReadAttention(session.node)))
    row = read.layers[int(layer) - 1].over(int(head) - 1, read.tokens)
    assert max(row) == pytest.approx(share / 100, abs=0.01)
    assert (
        session.tokens.text(session.tree[session.tree.nodes(session.node)[row.index(max(row))]].token, b"")[0]
        == " kite"
    )
    assert end.next.candidates[0].text == " ball"

"""What is inside a model: its modules, its experts, its states."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from engine.errors import Cancelled, StepError
from engine.inside import modules
from engine.inside.attention import read_attention
from engine.inside.modules import read_experts, read_modules
from engine.inside.wiring import PartVectors, joined, mlp_facts
from engine.model.layers import calls, patched
from engine.model.load import load
from engine.protocol import (
    NEITHER,
    ExpertsRead,
    HeadFacts,
    ModelModules,
    ModulePart,
    ReadAttention,
    ReadExperts,
    ReadModules,
)
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests import synthetic
from tests.emulations import bfloat16
from tests.engine.inside.looking import answer, loaded, opened
from tests.engine.inside.test_families import METAL
from tests.engine.sessions import begun
from tests.families import FAMILIES
from tests.zoo import CONFIGS, Zoo

FORMS = (*CONFIGS, "pocket", "llama:4bit", "llama:bfloat16", "mixtral:4bit", "qwen3-next:4bit")


def read(zoo: Zoo, name: str) -> ModelModules:
    loaded = zoo.load(name)
    return answer(read_modules(Session(loaded, Settings()), ReadModules()))


def part(modules: ModelModules, path: str, block: int = 0) -> ModulePart:
    return next(part for part in modules.blocks[block].parts if part.path == path)


def paths(modules: ModelModules) -> dict[str, ModulePart]:
    """Every module of the record by its whole path, the folded layers unfolded."""
    found = {part.path: part for part in (*modules.before, *modules.after, *modules.unused)}
    for block in modules.blocks:
        for layer in block.layers:
            found |= {f"{block.prefix}.{layer}.{part.path}".rstrip("."): part for part in block.parts}
    return found


@pytest.mark.parametrize("name", FORMS)
def test_every_array_is_there_once_and_the_sums_are_those_of_the_facts(zoo: Zoo, name: str) -> None:
    loaded = zoo.load(name)
    modules = read(zoo, name)
    assert modules.parameters == loaded.facts.parameters
    assert modules.bytes == loaded.facts.weight_bytes
    flat = dict(tree_flatten(loaded.model.parameters()))
    written = {
        f"{path}.{array.name}": array for path, part in paths(modules).items() for array in part.arrays
    }
    assert written.keys() == flat.keys()
    head = modules.head.rpartition(".")[2]
    assert (modules.tied, head) == (True, head) if "lm_head.weight" not in flat else (False, "lm_head")
    assert f"{modules.head}.weight" in flat
    for path, array in written.items():
        assert array.bytes == flat[path].nbytes
        assert array.bits is not None or array.shape == flat[path].shape
    assert sorted(layer for block in modules.blocks for layer in block.layers) == list(
        range(loaded.facts.layers)
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_part_holds_what_the_parts_in_it_hold_and_its_own(zoo: Zoo, name: str) -> None:
    for block in read(zoo, name).blocks:
        for index, outer in enumerate(block.parts):
            inner = []
            for each in block.parts[index + 1 :]:
                if each.depth <= outer.depth:
                    break
                inner += [each] if each.depth == outer.depth + 1 else []
            assert outer.bytes == sum(each.bytes for each in inner) + sum(
                array.bytes for array in outer.arrays
            )


def test_the_pocket_model(zoo: Zoo) -> None:
    modules = read(zoo, "pocket")
    (block,) = modules.blocks
    assert (block.layers, modules.depth, modules.hidden_size, modules.vocabulary) == (
        tuple(range(8)),
        8,
        256,
        4096,
    )
    assert [part.path for part in modules.before] == ["model.embed_tokens"]
    assert [part.path for part in modules.after] == ["model.norm"]
    assert modules.head == "model.embed_tokens"
    assert modules.tied
    assert not modules.unused
    assert [(part.path, part.reads) for part in block.parts if part.depth == 1] == [
        ("input_layernorm", "stream"), ("self_attn", "input_layernorm"),
        ("post_attention_layernorm", "stream"), ("mlp", "post_attention_layernorm"),
    ]  # fmt: skip
    assert [(each.after, each.parts, each.factors) for each in block.sums] == [
        ("self_attn", ("self_attn",), (1.0,)), ("mlp", ("mlp",), (1.0,)),
    ]  # fmt: skip
    assert [part.name for part in block.parts if part.depth == 2] == [
        "q_proj", "k_proj", "v_proj", "rope", "o_proj", "gate_proj", "up_proj", "down_proj",
    ]  # fmt: skip
    assert part(modules, "self_attn").heads == HeadFacts(4, 2, 64, 64)
    rope = part(modules, "self_attn.rope").rope
    assert (rope.dims, rope.base, rope.scale, rope.table) == (64, 10000.0, 1.0, False)
    assert rope.slowest == pytest.approx(2 * np.pi * 10000 ** (62 / 64))
    mlp = part(modules, "mlp").mlp
    assert (mlp.inner, mlp.gated, mlp.activation) == (768, True, "SwiGLU")
    norm = part(modules, "input_layernorm").norm
    assert (norm.kind, norm.eps) == ("RMSNorm", 1e-5)


def test_a_layer_whose_activation_can_not_be_told_in_bfloat16_is_like_the_others() -> None:
    """One token's numbers don't tell SiLU from GELU in the second layer; it was a block of its own."""
    loaded = load(LoadSettings(dtype="bfloat16"))
    (block,) = answer(read_modules(Session(loaded, Settings()), ReadModules())).blocks
    assert block.layers == tuple(range(8))
    assert {part.mlp.activation for part in block.parts if part.mlp is not None} == {"SwiGLU"}


def test_layers_that_differ_in_their_window_alone_are_not_folded(zoo: Zoo) -> None:
    modules = read(zoo, "llama-sliding")
    assert [block.layers for block in modules.blocks] == [(0,), (1,)]
    windows = [heads.window for index in (0, 1) if (heads := part(modules, "self_attn", index).heads)]
    assert windows == [32, None]
    assert [block.layers for block in read(zoo, "llama").blocks] == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "kind", "gated", "activation"),
    [
        ("gpt2", "LayerNorm", False, "GELU"),
        ("gemma3", "RMSNorm", True, "GeGLU"),
        ("phi3", "RMSNorm", True, "SwiGLU"),
    ],
)
def test_norms_and_mlps_are_what_was_computed(
    zoo: Zoo, name: str, kind: str, gated: bool, activation: str
) -> None:
    modules = read(zoo, name)
    norms = {part.norm.kind for part in (*modules.blocks[0].parts, *modules.after) if part.norm}
    assert norms == {kind}
    assert [(part.mlp.gated, part.mlp.activation) for part in modules.blocks[0].parts if part.mlp] == [
        (gated, activation)
    ]


def test_experts_are_counted_by_arrays_and_by_what_one_token_chose(zoo: Zoo) -> None:
    found = part(read(zoo, "mixtral"), "block_sparse_moe.switch_mlp")
    assert (found.experts.experts, found.experts.active) == (4, 2)
    assert found.mlp.activation == "SwiGLU"
    clipped = part(read(zoo, "gpt-oss"), "mlp.experts")
    assert clipped.mlp.activation == "SwiGLU, clipped"
    heads = part(read(zoo, "gpt-oss"), "self_attn").heads
    assert heads.sinks


def test_packed_weights_have_the_shape_in_which_they_are_used(zoo: Zoo) -> None:
    plain, packed = (part(read(zoo, name), "mlp.up_proj").arrays[0] for name in ("llama", "llama:4bit"))
    assert packed.shape == plain.shape == (128, 64)
    assert (packed.bits, packed.group_size, packed.mode, plain.bits) == (4, 32, "affine", None)
    assert packed.bytes * 8 == plain.bytes


def test_a_recurrent_layer(zoo: Zoo) -> None:
    modules = read(zoo, "mamba2")
    mixer = part(modules, "mixer")
    assert (mixer.role, mixer.heads) == ("recurrence", None)
    assert {array.name for array in mixer.arrays} == {"dt_bias", "A_log", "D"}
    assert [each.parts for each in modules.blocks[0].sums] == [("mixer",)]


def test_looking_changes_neither_model_nor_classes(zoo: Zoo) -> None:
    loaded = zoo.load("mixtral")
    before = mx.fast.rope, mx.fast.rms_norm, mx.softmax, type(loaded.model).__call__
    session = begun(loaded, [5, 6, 7])
    logits = session.logits.copy()
    read(zoo, "mixtral")
    assert (mx.fast.rope, mx.fast.rms_norm, mx.softmax, type(loaded.model).__call__) == before
    assert np.array_equal(session.logits, logits)
    assert read(zoo, "mixtral") == read(zoo, "mixtral")


# ---- how a layer joins its parts ----------------------------------------------------------------

RNG = np.random.default_rng(0)
X, A, B, C = (RNG.normal(size=(1, 32)) for _ in range(4))


def test_parts_side_by_side_are_added_together() -> None:
    norm, attention, mlp = PartVectors("norm", X, A), PartVectors("attention", A, B), PartVectors("mlp", A, C)
    reads, sums = joined(X, X + B + C, [norm, attention, mlp], 1e-6)
    assert reads == {"norm": "stream", "attention": "norm", "mlp": "norm"}
    assert [(each.after, each.parts, each.factors) for each in sums] == [
        ("mlp", ("attention", "mlp"), (1.0, 1.0))
    ]


def test_a_sum_of_up_to_four_parts_is_explained() -> None:
    """Factors could be found for many parts of any sum."""
    for count in range(1, 6):
        parts = [PartVectors(f"part {n}", X, RNG.normal(size=(1, 32))) for n in range(count)]
        _, sums = joined(X, X + sum(part.returned for part in parts), parts, 1e-6)
        assert [each.factors for each in sums] == [(1.0,) * count] * (count <= 4)


def test_a_layer_that_returns_what_its_last_part_was_given_is_explained() -> None:
    after = X + A
    parts = [PartVectors("attention", X, A), PartVectors("probe", after, A[:, :8])]
    reads, sums = joined(X, after, parts, 1e-6)
    assert reads == {"attention": "stream", "probe": "stream"}
    assert [(each.after, each.parts) for each in sums] == [("attention", ("attention",))]


def test_a_factor_is_found() -> None:
    _, sums = joined(X, X + 0.22 * A, [PartVectors("mlp", X, A)], 1e-6)
    assert sums[0].factors == (0.22,)


def test_a_layer_that_does_something_else_is_not_explained() -> None:
    reads, sums = joined(X, np.tanh(X + A), [PartVectors("mlp", X, A)], 1e-6)
    assert (reads, sums) == ({"mlp": "stream"}, ())
    assert joined(X, X * 2, [], 1e-6) == ({}, ())
    assert joined(X, X + A, [PartVectors("mlp", C, A)], 1e-6)[0] == {"mlp": ""}


def test_what_is_within_rounding_of_the_stream_is_not_taken_for_it() -> None:
    """In bfloat16 a norm may return the very numbers that it was given, and a part may add a hundredth to them."""
    unit = 2.0**-8
    normed, small = X.copy(), 0.01 * A
    norm, attention = PartVectors("norm", X, normed), PartVectors("attention", normed, small)
    reads, sums = joined(X, X + small, [norm, attention], unit)
    assert reads == {"norm": "stream", "attention": "norm"}
    assert [each.parts for each in sums] == [("attention",)]
    after = X + small
    reads, sums = joined(X, after + B, [attention, PartVectors("mlp", after, B)], unit)
    assert reads["mlp"] == "stream"
    assert [each.parts for each in sums] == [("attention",), ("mlp",)]


@pytest.mark.parametrize("unit", [2.0**-24, 2.0**-8])
def test_a_sum_that_lacks_more_than_its_roundings_is_not_one(unit: float) -> None:
    parts = [PartVectors("attention", X, A), PartVectors("mlp", X, B)]
    whole = X + A + B
    assert joined(X, whole + 2 * unit * np.abs(X), parts, unit)[1][0].factors == (1.0, 1.0)
    assert joined(X, whole + 40 * unit * np.abs(X), parts, unit)[1] == ()


def test_an_activation_that_is_not_known_or_can_not_be_told_has_no_name() -> None:
    odd = mlp_facts([A], np.sin(A), 1e-5)
    assert (odd.gated, odd.activation) == (False, "")
    tiny = A * 1e-9  # SiLU and GELU are both x / 2 there
    near = mlp_facts([tiny, B], tiny / 2 * B, 1e-2)
    assert (near.gated, near.activation) == (True, "")
    assert mlp_facts([A, B, C], A * B * C, 1e-5) is None


# ---- experts and states ------------------------------------------------------------------------

PROMPT = [5, 6, 7, 8, 9, 100]


def router_logits(session: Session) -> list[np.ndarray]:
    """What each layer's router says of the last token, in a forward over the whole path from nothing."""
    found = []

    def keep(original, module, args, kwargs):
        result = original(module, *args, **kwargs)
        found.append(np.array(result.reshape(-1, result.shape[-1])[-1]))
        return result

    routers = [
        module for path, module in session.runner.model.named_modules() if path.endswith((".gate", ".router"))
    ]
    ids = [session.tree[node].token for node in session.tree.nodes(session.node)]
    with patched(*calls(routers, keep)):
        mx.eval(session.runner.model(mx.array([ids])))
    return found


def expected(logits: np.ndarray, count: int) -> tuple[list[int], list[float]]:
    """The top-k of a router, and the softmax over them, or over all and then over them: the same."""
    best = np.argsort(-logits)[:count]
    shares = np.exp(logits[best] - logits[best].max())
    return [int(index) for index in best], list(shares / shares.sum())


@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "qwen3-next", "mixtral:4bit"])
def test_experts_and_weights_are_those_of_the_routers_logits(zoo: Zoo, name: str) -> None:
    session = begun(zoo.load(name), PROMPT, steps=2)
    read = answer(read_experts(session, ReadExperts(session.node)))
    assert read.facts.failed is None
    logits = router_logits(session)
    assert [layer.layer for layer in read.layers] == list(range(len(logits)))
    for layer, row in zip(read.layers, logits, strict=True):
        chosen, weights = expected(row, 2)
        assert list(layer.chosen) == chosen
        assert layer.weights == pytest.approx(weights, abs=1e-5)
        assert layer.experts == 4
        assert layer.error is not None
        assert layer.error < 1e-5
    assert not any("weights" in sentence and "not known" in sentence for sentence in read.missing)


def test_a_shared_expert_beside_the_chosen_ones_does_not_disturb_the_reading(zoo: Zoo) -> None:
    session = begun(zoo.load("deepseek-v2"), PROMPT, steps=2)
    read = answer(read_experts(session, ReadExperts(session.node)))
    (layer,) = read.layers
    # This router's weights are zeros: of 4 experts each has a share of 1/4, and nothing makes the chosen ones sum to 1.
    assert (layer.layer, layer.weights) == (1, pytest.approx((0.25, 0.25)))


def test_weights_of_eight_experts_and_a_shared_one_are_read_in_bfloat16(tmp_path: Path) -> None:
    """Read beside a shared expert's output a weight had the rounding of that: in some layers they weren't known."""
    most = {"num_experts": 16, "n_routed_experts": 16, "num_local_experts": 16, "num_experts_per_tok": 8}
    config = FAMILIES["minimax_m3_vl"]
    config = {**config, "text_config": {**config["text_config"], **most}}
    synthetic.write(tmp_path / "eight-2", config, dtype=mx.bfloat16)
    with bfloat16():
        session = opened(loaded(tmp_path, "eight", mx.bfloat16), steps=8)
        read = [
            answer(read_experts(session, ReadExperts(node))) for node in session.tree.nodes(session.node)[-8:]
        ]
    layers = [layer for each in read for layer in each.layers]
    assert {len(layer.chosen) for layer in layers} == {8}
    assert all(len(layer.weights) == 8 for layer in layers)


def test_weights_that_do_not_make_the_output_are_not_shown(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    session = begun(zoo.load("mixtral"), PROMPT, steps=2)
    whole = answer(read_experts(session, ReadExperts(session.node)))
    monkeypatch.setattr(modules.mx, "eye", lambda *shape: mx.zeros(shape))  # a reading that reads nothing
    read = answer(read_experts(session, ReadExperts(session.node)))
    assert [set(layer.chosen) for layer in read.layers] == [set(layer.chosen) for layer in whole.layers]
    assert all(not layer.weights and layer.error == pytest.approx(1) for layer in read.layers)
    assert read.missing[0].startswith("The weights of 2 layers are not known: their outputs")


def test_states_of_recurrent_layers(zoo: Zoo) -> None:
    session = begun(zoo.load("mamba2"), PROMPT, steps=2)
    read = answer(read_experts(session, ReadExperts(session.node)))
    states = tree_flatten([cache.state for cache in session.runner.kv.caches])
    caches = [array for _, array in states if isinstance(array, mx.array)]
    assert [(state.shape, state.bytes) for state in read.states] == [
        (each.shape, each.nbytes) for each in caches
    ]
    assert [state.layer for state in read.states] == [0, 0, 1, 1]
    for state, array in zip(read.states, caches, strict=True):
        assert state.norm == pytest.approx(float(np.linalg.norm(np.array(array))), rel=1e-4)
    before = answer(read_experts(session, ReadExperts(session.tree[session.node].parent)))
    assert [state.norm for state in before.states] == pytest.approx([state.before for state in read.states])
    assert all(state.changed for state in read.states)
    assert "does not show which token" in read.missing[-1]


def test_a_layer_without_a_state_is_left_out(zoo: Zoo) -> None:
    assert {state.layer for state in read_states(zoo, "lfm2").states} == {0}
    assert {state.layer for state in read_states(zoo, "qwen3-next").states} == {0}


def read_states(zoo: Zoo, name: str) -> ExpertsRead:
    session = begun(zoo.load(name), PROMPT, steps=2)
    return answer(read_experts(session, ReadExperts(session.node)))


def test_the_session_stays_as_it_is_and_a_model_without_either_says_so(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT, steps=2)
    before = session.kv_reading(), session.node, session.logits.copy()
    with pytest.raises(StepError, match="has neither experts nor recurrent layers"):
        answer(read_experts(session, ReadExperts(session.node)))
    assert (session.kv_reading(), session.node) == before[:2]
    assert np.array_equal(session.logits, before[2])
    with pytest.raises(StepError):
        answer(read_experts(session, ReadExperts(0)))
    with pytest.raises(Cancelled):
        answer(read_experts(session, ReadExperts(session.node), lambda: True))


@pytest.mark.wide(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_known_from_the_start_what_a_model_has_nothing_of(tmp_path: Path, family: str) -> None:
    """The facts alone tell what is refused: experts and states, and whose heads look somewhere."""
    if family in METAL and not mx.metal.is_available():
        pytest.skip("mlx_lm runs it on Metal alone")
    session = opened(loaded(tmp_path, family))
    if session.facts.chooses_or_keeps:
        read = answer(read_experts(session, ReadExperts(session.node)))
        assert read.layers or read.states or read.missing
    else:
        with pytest.raises(StepError, match=NEITHER):
            answer(read_experts(session, ReadExperts(session.node)))
    ran = bool(answer(read_attention(session, ReadAttention(session.node))).layers)
    assert session.facts.attends == (ran or family in ("deepseek_v41", "iquestloopcoder"))
    assert session.facts.vocabulary == FAMILIES[family].get("vocab_size")

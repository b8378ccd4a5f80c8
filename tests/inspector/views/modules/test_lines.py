"""The modules of a model as lines: the way of a token, folded layers, sums; from records made by hand."""

from __future__ import annotations

from msgspec.structs import replace

from engine.protocol import (
    ExpertFacts,
    HeadFacts,
    LayerBlock,
    LayerSum,
    MlpFacts,
    ModelModules,
    ModulePart,
    NormFacts,
    Role,
    RopeFacts,
    WeightArray,
)
from inspector.documents.modules import Line, description, heads_words, lines, ranges, rope_words, shape_of


def matrix(
    path: str, rows: int, columns: int, role: Role = "other", depth: int = 2, **more: object
) -> ModulePart:
    weight = WeightArray("weight", (rows, columns), "float32", 4 * rows * columns)
    return ModulePart(path, depth, "Linear", role, (weight,), rows * columns, weight.bytes, 1, **more)  # type: ignore[arg-type]


def norm(path: str, reads: str = "", depth: int = 1) -> ModulePart:
    weight = WeightArray("weight", (64,), "float32", 256)
    return ModulePart(
        path, depth, "RMSNorm", "norm", (weight,), 64, 256, 1, (1, 1, 64), (1, 1, 64), reads,
        norm=NormFacts("RMSNorm", 1e-5),
    )  # fmt: skip


PARTS = (
    ModulePart("", 0, "Block", "other", (), 40_000, 160_000, 1),
    norm("input_layernorm", "stream"),
    ModulePart(
        "self_attn", 1, "Attention", "attention", (), 12_288, 49_152, 1, reads="input_layernorm",
        heads=HeadFacts(4, 2, 16, 16),
    ),
    matrix("self_attn.q_proj", 64, 64),
    ModulePart("self_attn.rope", 2, "RoPE", "other", (), 0, 0, 1, rope=RopeFacts(16, 1e6, 1.0, 100.0, False)),
    norm("post_attention_layernorm", "stream"),
    ModulePart(
        "mlp", 1, "MLP", "mlp", (), 24_576, 98_304, 1, (1, 1, 64), (1, 1, 64), "post_attention_layernorm",
        mlp=MlpFacts(128, True, "SwiGLU"),
    ),
    matrix("mlp.up_proj", 128, 64),
)  # fmt: skip
SUMS = (LayerSum("self_attn", ("self_attn",), (1.0,)), LayerSum("mlp", ("mlp",), (0.5,)))
TABLE = matrix("model.embed_tokens", 4096, 64, "embedding", 0)
MODULES = ModelModules(
    "/m", 40_000 * 3 + TABLE.parameters + 64, 4 * (40_000 * 3 + TABLE.parameters + 64), (TABLE,),
    (LayerBlock((0, 1, 2), "model.layers", PARTS, SUMS),), (norm("model.norm", depth=0),), (), "model.embed_tokens",
    4096, 64,
)  # fmt: skip


def drawn(found: list[Line]) -> list[str]:
    return [f"{line.gutter}{line.label}".rstrip() for line in found]


def test_the_way_of_a_token() -> None:
    assert drawn(lines(MODULES)) == [
        "● token",
        "│ embedding",
        "│ ▾ layers 1 to 3",
        "├─╮ norm",
        "│ │ attention",
        "│ │   queries",
        "│ │   RoPE",
        "⊕─╯ added to the stream",
        "├─╮ norm",
        "│ │ MLP",
        "│ │   up",
        "⊕─╯ added to the stream, × 0.5",
        "│ final norm",
        "│ head",
        "▼ logits",
    ]


def test_lines_have_the_hooks_of_their_modules() -> None:
    hooks = {line.label.strip(): line.hooks for line in lines(MODULES, {0}, {1})}
    assert hooks["embedding"] == "hook_embed"
    assert hooks["▾ layer 2"] == "blocks.1.hook_resid_pre blocks.1.hook_resid_post"
    assert hooks["queries"] == "blocks.1.attn.hook_q"
    assert hooks["RoPE"] == "blocks.1.attn.hook_rot_q blocks.1.attn.hook_rot_k"
    assert hooks["attention"].startswith("blocks.1.attn.hook_attn_scores blocks.1.attn.hook_pattern")
    assert hooks["up"] == "blocks.1.mlp.hook_pre_linear"
    assert hooks["MLP"] == "blocks.1.hook_mlp_out"
    assert hooks["final norm"] == "ln_final.hook_scale ln_final.hook_normalized"
    joins = [line.hooks for line in lines(MODULES) if line.gutter.startswith("⊕")]
    assert joins == ["blocks.N.hook_resid_mid", "blocks.N.hook_resid_post"], "of layers that are folded"
    norms = [line.hooks for line in lines(MODULES) if line.label.strip() == "norm"]
    assert [each.split()[0] for each in norms] == ["blocks.N.ln1.hook_scale", "blocks.N.ln2.hook_scale"]


def test_a_folded_line_counts_all_its_layers_and_the_lines_of_the_way_sum_to_the_model() -> None:
    found = lines(MODULES)
    header = next(line for line in found if line.block == 0)
    assert (header.parameters, header.path, header.shape) == (120_000, "model.layers.*", "× 3")
    queries = next(line for line in found if line.label.strip() == "queries")
    assert (queries.parameters, queries.path) == (3 * 4096, "model.layers.*.self_attn.q_proj")
    top = [line for line in found if line.block is not None or not line.layers]
    assert sum(line.parameters for line in top) == MODULES.parameters


def test_layers_unfold_and_one_of_them_opens() -> None:
    found = lines(MODULES, {0}, {1})
    heads_of = [line for line in found if line.block == 0]
    assert [line.label for line in heads_of] == ["▸ layer 1", "▾ layer 2", "▸ layer 3"]
    assert [line.path for line in heads_of] == ["model.layers.0", "model.layers.1", "model.layers.2"]
    inside = [line for line in found if line.path.startswith("model.layers.1.")]
    assert len(inside) == len(PARTS) - 1
    assert {line.layers for line in inside} == {(1,)}
    assert not any(line.path.startswith("model.layers.0.") for line in found)


def test_parts_side_by_side_have_one_sum() -> None:
    beside = (PARTS[0], PARTS[1], PARTS[2], replace(PARTS[6], reads="input_layernorm"))
    total = LayerSum("mlp", ("self_attn", "mlp"), (1.0, 1.0))
    modules = replace(MODULES, blocks=(LayerBlock((0,), "model.layers", beside, (total,)),))
    assert drawn(lines(modules))[2:7] == [
        "│ ▾ layer 1", "├─╮ norm", "│ │ attention", "│ │ MLP", "⊕─╯ attention and MLP added",
    ]  # fmt: skip


def test_where_the_sums_are_not_known_none_is_drawn() -> None:
    modules = replace(MODULES, blocks=(replace(MODULES.blocks[0], sums=()),))
    shown = drawn(lines(modules))
    assert not any("⊕" in line for line in shown)
    assert "│   how these are joined isn't known" in shown


def test_an_own_head_and_what_text_does_not_run() -> None:
    head = matrix("lm_head", 4096, 64, depth=0, returned=(1, 1, 4096))
    extra = matrix("mtp", 64, 64, depth=0)
    modules = replace(MODULES, after=(*MODULES.after, head), head="lm_head", unused=(extra,))
    found = lines(modules)
    assert [line.label for line in found[-4:]] == ["final norm", "head", "logits", "mtp"]
    assert found[-3].says == "a logit for each token"
    assert found[-1].says == "loaded, not run by text"


def test_a_mixture_says_how_many_experts_a_token_takes() -> None:
    switch = ModulePart(
        "mlp.switch_mlp", 2, "SwitchGLU", "mlp", (), 90, 360, 1, (1, 1, 64), (1, 1, 2, 64),
        mlp=MlpFacts(128, True, "SwiGLU"), experts=ExpertFacts(8, 2),
    )  # fmt: skip
    gate = matrix("mlp.gate", 8, 64)
    mixture = replace(PARTS[6], mlp=None)
    block = LayerBlock((0,), "model.layers", (*PARTS[:6], mixture, gate, switch), SUMS)
    found = lines(replace(MODULES, blocks=(block,)))
    by_label = {line.label.strip(): line for line in found}
    assert by_label["mixture of experts"].says == "2 of 8 for each token"
    assert by_label["experts"].says == "8, each SwiGLU, 64 → 128 → 64"
    assert "router" in by_label
    assert {by_label[name].sort for name in ("mixture of experts", "router", "experts")} == {"experts"}


def test_words() -> None:
    assert ranges((0, 1, 2, 5, 7, 8)) == "1 to 3, 6, 8 to 9"
    assert heads_words(HeadFacts(8, 1, 64, 64, 4096, True)) == "8 heads of 64, 1 KV head, window 4,096, sinks"
    assert heads_words(HeadFacts(8, 8, 64, 64)) == "8 heads of 64"
    assert heads_words(HeadFacts(8, 0, 0, 0)) == "8 heads"
    assert (
        rope_words(RopeFacts(64, 500000.0, 1.0, None, True))
        == "theta 500,000, 64 of a head, stretched by a table"
    )
    assert rope_words(RopeFacts(64, None, 0.5, None, True)) == "a table of its own, 64 of a head, scale 0.5"
    packed = WeightArray("weight", (128, 64), "uint32", 4096, 4, 32, "affine")
    part = replace(matrix("mlp.up_proj", 128, 64), arrays=(packed,))
    assert (description(part), shape_of(part)) == ("widens the vector · 4 bits in groups of 32", "64 → 128")


def test_foreign_names_are_made_visible() -> None:
    odd = replace(matrix("x\x1b[31m", 2, 2, depth=0), kind="\x1b]0;")
    found = lines(replace(MODULES, unused=(odd,)))
    assert "\x1b" not in "".join(f"{line.label}{line.path}{line.says}" for line in found)

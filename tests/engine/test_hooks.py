"""Names of parts: labels, hooks as TransformerLens has them, paths of modules; what can't be switched off says so."""

from __future__ import annotations

import pytest

from engine.protocol import HOOKS, Intervention, named_part, units_from

HEAD = Intervention("head", 5, 1)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("L6 h2", HEAD),
        ("blocks.5.attn.hook_z[1]", HEAD),
        ("blocks.5.attn.hook_z.1", HEAD),
        ("blocks[5].attn.hook_result[1]", HEAD),
        (" blocks.5.attn.hook_z[1]  x-0.5", Intervention("head", 5, 1, -0.5)),
        ("blocks.0.hook_attn_out", Intervention("attention", 0)),
        ("blocks.3.attn", Intervention("attention", 3)),
        ("model.layers.3.self_attn", Intervention("attention", 3)),
        ("model.language_model.layers[3].self_attn.output[0]", Intervention("attention", 3)),
        ("blocks.2.hook_mlp_out x2", Intervention("mlp", 2, scale=2.0)),
        ("model.layers.2.mlp", Intervention("mlp", 2)),
        ("transformer.h.2.mlp.output", Intervention("mlp", 2)),
        ("model.layers.2.linear_attn", Intervention("recurrence", 2)),
        ("blocks.2", Intervention("layer", 2)),
        ("model.layers.2", Intervention("layer", 2)),
    ],
)
def test_a_unit_has_the_names_that_others_give_it(text: str, unit: Intervention) -> None:
    assert units_from(text) == (unit,)
    assert units_from(f"L1,{text}") == (Intervention("layer", 0), unit)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_every_hook_names_its_part_and_is_switched_off_or_says_what_can_be(hook) -> None:
    name = hook.name.replace("N", "4")
    part = named_part(name)
    assert (part.hook, part.layer, part.head) == (hook, 4 if "N" in hook.name else None, None)
    if hook.heads:
        assert named_part(f"{name}[7]").head == named_part(f"{name}.7").head == 7
    else:
        with pytest.raises(ValueError, match="has no heads"):
            named_part(f"{name}[7]")
    if hook.unit is None:
        with pytest.raises(
            ValueError, match=f"is {hook.what}: that can't be switched off. These can: hook_z"
        ):
            units_from(name)
    elif not hook.heads:
        assert units_from(name)[0].kind == hook.unit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocks.3.attn.hook_z", "all heads of a layer: write blocks.3.attn.hook_z[0] for one"),
        ("blocks.3.attn.hook_zz", "is not a known hook"),
        ("attn.hook_z", "write it with its layer, blocks.0.attn.hook_z"),
        ("model.layers.3.output", "the residual stream after the layer: that can't be switched off"),
        ("model.layers.3.input", "the residual stream before the layer"),
        ("model.layers.3.mlp.input", "could be several things"),
        ("model.layers.3.mixer", "could be several things"),
        ("model.layers.3.self_attn.q_proj", "is not a known hook or module: write blocks.5.attn.hook_z[0]"),
        ("blocks.3.hook_mlp_out[0].1", "not a known hook or module"),
        ("blocks.9999999.hook_mlp_out", "not a known hook or module"),
        ("L6 h0", "count from 1"),
        ("L6 h9999999", "is not a unit"),
        ("\x1b[31mblocks.1", r"'\x1b[31mblocks.1' is not a known hook"),
        ("blocks." * 9000, "'blocks.blocks.blocks'... is not a unit"),
        ("L" + "9" * 9000, "... is not a unit"),
        ("", "'' is not a unit"),
    ],
)  # fmt: skip
def test_what_names_no_unit_says_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        units_from(text)
    assert said in str(error.value)
    assert len(str(error.value)) < 400

"""What the header and the panels say where the session keeps no KV cache, and of a model with a long name."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from engine.protocol import KVReading
from engine.settings import BY_NAME, STAGES, Settings, check
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.state.conditions import settings_words
from tests.inspector.fakes import session
from tests.inspector.panels_app import on_screen, screen, shown, style_at

OFF = KVReading(0, 0, 0, (), passed_tokens=8, passed_bytes=32768)


@on_screen
async def test_the_kv_panel_says_that_it_is_off_and_what_the_last_pass_took() -> None:
    timeline = session(3).timeline()
    timeline.kv = OFF
    async with shown(KVPanel(), (60, 10)) as (panel, pilot):
        panel.show(timeline)
        await pilot.pause()
        assert "The KV cache is off: 0 tokens are held." in screen(pilot)
        assert "The last step ran 8 tokens and dropped 32 KiB." in screen(pilot)


@on_screen
@pytest.mark.parametrize("width", [120, 60])
async def test_the_header_counts_the_context_all_the_same(width: int) -> None:
    timeline = session(3).timeline()
    timeline.kv = OFF
    async with shown(HeaderLine(), (width, 3)) as (header, pilot):
        header.show(timeline)
        await pilot.pause()
        assert f"{len(timeline.items)}/512" in screen(pilot)


@on_screen
@pytest.mark.parametrize(("width", "whole"), [(200, True), (100, False)])
async def test_a_long_name_is_cut_only_where_there_is_no_room(width: int, whole: bool) -> None:
    timeline = session(3).timeline()
    name = "mlx-community/Some-Very-Long-Model-Name-4bit"
    assert timeline.facts is not None
    timeline.facts = replace(timeline.facts, name=name)
    async with shown(HeaderLine(), (width, 3)) as (header, pilot):
        header.show(timeline, Settings(temp=1.0, seed=2**63))
        await pilot.pause()
        assert (name in screen(pilot)) == whole
        assert "mlx-community/Some-Very-Lon" in screen(pilot)
        if whole:
            assert f"seed {2**63}" in screen(pilot)


@on_screen
@pytest.mark.parametrize(
    ("quantization", "stored", "said"),
    [("4-bit, group 64, affine", "", "7.34 M 4-bit │"), (None, "4-bit, group 64, affine", "7.34 M 4-bit as f32"),
     (None, "bfloat16", "7.34 M f32")],
)  # fmt: skip
async def test_the_header_tells_bits_that_were_unpacked(
    quantization: str | None, stored: str, said: str
) -> None:
    timeline = session(3).timeline()
    assert timeline.facts is not None
    timeline.facts = replace(timeline.facts, dtype="float32", quantization=quantization, stored=stored)
    async with shown(HeaderLine(), (160, 3)) as (header, pilot):
        header.show(timeline)
        await pilot.pause()
        assert said in screen(pilot)


@on_screen
async def test_what_stays_of_the_header_follows_model_settings_and_theme() -> None:
    timeline = session(3).timeline()
    assert timeline.facts is not None
    async with shown(HeaderLine(), (160, 3)) as (header, pilot):
        header.show(timeline, Settings(temp=0.5))
        timeline.facts = replace(timeline.facts, name="another")
        header.show(timeline, Settings(temp=0.25))
        await pilot.pause()
        assert screen(pilot).strip().startswith("another llama · 8 layers")
        assert "T 0.25  seed 0" in screen(pilot)
        looks = {}
        for theme in ("textual-light", "textual-dark"):
            pilot.app.theme = theme
            await pilot.pause()
            looks[theme] = [style_at(pilot, text) for text in ("another", "llama", "seed 0")]
    async with shown(HeaderLine(), (160, 3), theme="textual-light") as (header, pilot):
        header.show(timeline, Settings(temp=0.25))
        await pilot.pause()
        assert looks["textual-light"] == [style_at(pilot, text) for text in ("another", "llama", "seed 0")]
    assert looks["textual-light"] != looks["textual-dark"]


ALL = Settings(
    temp=0.8, top_p=0.9, min_p=0.05, min_tokens_to_keep=2, top_k=40, seed=7, xtc_probability=0.5,
    repetition_penalty=1.05, repetition_context_size=64, presence_penalty=0.3, frequency_penalty=0.2,
    logit_bias=((1, 2.0), (2, -1.0)), min_tokens=5, stop=("END",), sampler_order="llama.cpp",
)  # fmt: skip
"""All that shapes a choice, turned on."""


@on_screen
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(temp=1.0), "T 1  seed 0"),
        (Settings(temp=1.0, repetition_penalty=1.05, repetition_context_size=64), "T 1  rep 1.05/64  seed 0"),
        (Settings(repetition_penalty=1.05), "greedy  rep 1.05/20"),
        (Settings(top_p=0.5), "greedy"),
        (
            ALL,
            "T 0.8  bias ×2  min-tokens 5  rep 1.05/64  presence 0.3/20  frequency 0.2/20  stop ×1  "
            "top-p 0.9  min-p 0.05 ≥2  xtc 0.5/0.1  top-k 40  order llama.cpp  seed 7",
        ),
    ],
)
async def test_the_header_names_every_setting_that_is_on(settings: Settings, said: str) -> None:
    async with shown(HeaderLine(), (300, 3)) as (header, pilot):
        header.show(session(3).timeline(), settings)
        await pilot.pause()
        assert screen(pilot).splitlines()[0].rpartition("│ ")[2].strip() == said


@on_screen
@pytest.mark.parametrize("width", [120, 80, 60, 40])
async def test_where_there_is_no_room_for_all_settings_the_header_counts_the_rest(width: int) -> None:
    async with shown(HeaderLine(), (width, 3)) as (header, pilot):
        header.show(session(3).timeline(), ALL)
        await pilot.pause()
        said = screen(pilot).splitlines()[0].rpartition("│ ")[2].split("  ")
        assert said[0] == "T 0.8"
        named = [each.strip() for each in said[1:]]
        assert int(named[-1].removeprefix("+")) + len(named) - 1 == 11


@on_screen
async def test_what_else_stands_there_is_shortened_before_a_setting_of_greedy_decoding_is_left_out() -> None:
    async with shown(HeaderLine(), (72, 3)) as (header, pilot):
        header.show(session(3).timeline(), Settings(repetition_penalty=1.3))
        await pilot.pause()
        assert screen(pilot).splitlines()[0].rpartition("│ ")[2].strip() == "greedy  rep 1.3/20"


def test_no_stage_can_be_turned_on_without_a_word_in_the_header() -> None:
    """The temperature stands before the others, and the grammar has a part of its own."""
    some = {"float": 0.25, "int": 3, "biases": ((1, 2.0),)}
    for name, stage in STAGES.items():
        on = check(replace(Settings(temp=1.0), **{stage.setting: some[BY_NAME[stage.setting].kind]}))
        assert len(settings_words(on)) == (name != "temperature"), name


@on_screen
@pytest.mark.parametrize("width", range(20, 60))
async def test_no_number_is_cut_in_it(width: int) -> None:
    """`T 0…` is another temperature than 0.8."""
    timeline = session(3).timeline()
    async with shown(HeaderLine(), (width, 3)) as (header, pilot):
        header.show(timeline, Settings(temp=0.85, top_p=0.95, top_k=40))
        await pilot.pause()
        assert not re.search(r"[\d.]…", screen(pilot)), screen(pilot)

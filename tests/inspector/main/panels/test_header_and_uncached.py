"""What the header and the panels say where the session keeps no KV cache, and of a model with a long name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.records import KVReading
from engine.settings import Settings
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from tests.inspector.fakes import session
from tests.inspector.panels_app import on_screen, screen, shown

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

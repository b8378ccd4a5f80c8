"""The names of the views: as many as fit, the present one among them."""

from __future__ import annotations

import pytest

from engine.protocol import CaptureFacts, Check
from inspector.main.inside.screen import tabs
from inspector.state.inside import checked
from inspector.tools.registry import TOOLS

FAMILY = [tool for tool in TOOLS if tool.family == "inside"]


@pytest.mark.parametrize("room", [118, 78, 38, 20])
def test_the_present_view_is_in_sight(room: int) -> None:
    for tool in FAMILY:
        shown = tabs(FAMILY, tool.id, room)
        place = next(span for span in shown.spans if span.style == "reverse bold")
        assert place.end <= room
        assert tool.actions[0].shown in shown.plain[place.start : place.end]


def test_at_80_columns_there_is_room_for_all() -> None:
    plain = tabs(FAMILY, FAMILY[0].id, 78).plain
    assert all(f" {tool.actions[0].shown} {tool.actions[0].label} " in plain for tool in FAMILY)
    assert len(plain) <= 78


@pytest.mark.parametrize("room", [170, 118, 98, 78])
def test_no_check_is_cut(room: int) -> None:
    names = ("forward", "session", "attention", "rows")
    facts = CaptureFacts(
        tuple(Check(name, 4e-7, 1e-5) for name in names), 202.0, 46.0, "llama", "1 token of the path"
    )
    line = checked(facts, room)
    assert len(line) <= room
    assert line.startswith("Checked · 202 ms")
    assert line.count("4e-07") == 4
    if room == 170:
        assert line.endswith("rows sum to 1 (4e-07) · 1 token of the path")

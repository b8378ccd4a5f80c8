"""A choice of several labels: on as many lines as it needs, no label parted from its mark."""

from __future__ import annotations

import pytest

from inspector.widgets.fields import Choice
from tests.inspector.panels_app import on_screen, screen, shown

LABELS = ["Text", "Next token", "Steps", "KV cache", "Time", "Why this token", "Tree", "Grammar"]


@on_screen
@pytest.mark.parametrize("width", [120, 76, 50, 30, 20])
async def test_no_label_parts_from_its_mark(width: int) -> None:
    async with shown(Choice(LABELS, 5), (width, 12)) as (choice, pilot):
        await pilot.pause()
        lines = screen(pilot).splitlines()
        for place, label in enumerate(LABELS):
            mark = "◉" if place == choice.chosen else "○"
            assert any(f"{mark} {label}" in line for line in lines), (label, lines)


@on_screen
async def test_a_label_on_a_later_line_is_chosen_by_a_click() -> None:
    async with shown(Choice(LABELS, 0), (30, 12)) as (choice, pilot):
        await pilot.pause()
        lines = screen(pilot).splitlines()
        y = next(y for y, line in enumerate(lines) if "Grammar" in line)
        await pilot.click(offset=(lines[y].index("Grammar"), y))
        assert choice.chosen == LABELS.index("Grammar")

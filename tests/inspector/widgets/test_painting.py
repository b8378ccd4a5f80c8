"""What a terminal has is what would be drawn anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from textual.widget import Widget

from tests.inspector.main.test_overlays import branched
from tests.inspector.painting import Terminal, painting
from tests.inspector.rig import Rig


@pytest.fixture
def painted() -> Iterator[None]:
    """Painted as in a terminal."""
    with painting():
        yield


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a dialog saves goes nowhere else."""
    monkeypatch.chdir(tmp_path)


KEYS = (
    *"123456sbpafcAIg?", *["escape"] * 3, "left", "right", "up", "down", "tab", "space", "d", "t", "ctrl+p",
)  # fmt: skip


def drawn_anew(rig: Rig) -> str:
    """What the toolkit draws where nothing is kept of what it drew before."""
    for screen in rig.app.screen_stack:
        for each in screen.walk_children(Widget, with_self=True):
            each._styles_cache.clear()
    return rig.screen_text()


@pytest.mark.usefixtures("painted")
@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
@pytest.mark.parametrize("seed", range(3))
async def test_a_terminal_has_what_is_drawn_anew_after_each_key(
    rig: Rig, seed: int, size: tuple[int, int]
) -> None:
    terminal, draw = Terminal(rig.app), Random(seed)
    await branched(rig)
    await rig.pilot.resize_terminal(*size)
    pressed = []
    for _ in range(25):
        pressed.append(draw.choice(KEYS))
        await rig.press(pressed[-1])
        try:
            await rig.until(lambda: terminal.text == drawn_anew(rig), seconds=10)
        except BaseException as error:
            error.add_note(f"after {pressed}:\n{terminal.text}\nis not\n{drawn_anew(rig)}")
            raise

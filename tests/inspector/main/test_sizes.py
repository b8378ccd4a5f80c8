"""Every screen, dialog and panel at every size of a terminal, from one cell on: it draws something or says nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.inspector.main.test_overlays import OVERLAYS, branched, own_directory  # noqa: F401 (a fixture)
from tests.inspector.rig import Rig, run

SIZES = [
    (1, 1), (4, 3), (7, 4), (8, 24), (12, 3), (2, 40), (5, 40), (20, 5), (39, 9), (300, 2), (79, 4), (120, 40),
]  # fmt: skip
FEW = [(39, 9)]
"""One that cuts; all sizes run with the slow tests."""
SOME, ALL = OVERLAYS[::3], OVERLAYS
"""What opens in the quick suite, a third of it, and with the slow tests."""
PANELS = ["candidates", "steps", "kv", "timing", "why", "grammar_expects", "tree", "keep", "look_ahead"]
"""Actions that show a panel, or something more in one."""
SLOW = pytest.mark.slow


async def lives(rig: Rig, sizes: list[tuple[int, int]]) -> None:
    """Go through sizes, and on at the last one."""
    for size in sizes:
        await rig.pilot.resize_terminal(*size)
        await rig.pilot.pause()
    await rig.push([rig.session.step()])
    assert rig.screen_text().strip()


@pytest.mark.parametrize(
    ("sizes", "overlays"), [(FEW, SOME), pytest.param(SIZES, ALL, marks=SLOW)], ids=["few", "all"]
)
async def test_what_opens_lives_at_any_size(
    rig: Rig, sizes: list[tuple[int, int]], overlays: Sequence[str]
) -> None:
    async def opened(case: tuple[str, ...]) -> None:
        action, *keys = case
        await rig.pilot.resize_terminal(120, 40)
        await rig.do(action)
        await rig.press(*keys)
        assert rig.app.top is not rig.app.main
        await lives(rig, sizes)

    await branched(rig)
    await rig.through([*((action,) for action in overlays), ("help", "right")], opened)


@pytest.mark.parametrize("sizes", [FEW, pytest.param(SIZES, marks=SLOW)], ids=["few", "all"])
async def test_a_panel_lives_at_any_size(rig: Rig, sizes: list[tuple[int, int]]) -> None:
    async def enlarged(action: str) -> None:
        await rig.pilot.resize_terminal(120, 40)
        await rig.do(action)
        await rig.press("f")
        assert rig.app.main.arrangement.enlarged
        await lives(rig, sizes)
        await rig.press("f", "1")
        assert not rig.app.main.arrangement.enlarged

    await branched(rig)
    await rig.through(PANELS, enlarged)


@pytest.mark.parametrize(
    ("size", "overlays"),
    [((1, 1), SOME), *(pytest.param(size, ALL, marks=SLOW) for size in ((1, 1), (8, 24), (4, 3), (300, 2)))],
    ids=str,
)
async def test_it_opens_at_any_size(rig: Rig, size: tuple[int, int], overlays: Sequence[str]) -> None:
    await branched(rig)
    for action in [*overlays, *PANELS]:
        await rig.do(action)
        await rig.press("escape", "escape")


@pytest.mark.wide(1)
@pytest.mark.parametrize("records", ["loading", "failed", "empty"])
def test_it_lives_at_any_size_without_a_text(records: str) -> None:
    async def test(rig: Rig) -> None:
        if records == "failed":
            await rig.fail_to_load("No such model: " + "x" * 300, "Check the name.")
        elif records == "empty":
            await rig.push(rig.session.load())
        for size in SIZES:
            await rig.pilot.resize_terminal(*size)
            await rig.pilot.pause()

    run(test, prompt="" if records == "empty" else "Once upon a time")

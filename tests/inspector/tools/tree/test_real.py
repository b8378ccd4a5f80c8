"""The tree on the real engine and the pocket model: forked, gone through, deleted, brought back."""

from __future__ import annotations

import asyncio

from engine.beam_settings import BeamSettings
from engine.protocol import SearchBeams
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.state.beams import BeamHistory
from inspector.tools.tree.panel import TreePanel
from tests.inspector.state.from_tokens import branches_of
from tests.inspector.tools.sampler.test_what_if_real import until

USED = Settings(temp=1.0, seed=7, max_tokens=8)


def test_branches_and_beams_are_gone_to_deleted_and_brought_back():
    app = InspectorApp(LoadSettings(), USED, "Once upon a time", False)

    async def test() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            timeline = lambda: app.controller.timeline  # noqa: E731
            main = app.main

            async def press(*keys: str) -> None:
                await pilot.press(*keys)
                await until(lambda: not app.controller.client.outstanding)
                await pilot.pause()

            await until(lambda: timeline().prompts.prefilled and not app.controller.client.outstanding)
            await press("r")
            await press("left", "left", "down", "enter")
            await press("d", "space", "t")
            assert [timeline().tree.branches.made(branch) for branch in timeline().tree.branches] == [
                "prompt", "sampled", "sampled", "chosen",
            ]  # fmt: skip

            app.controller.client.do(SearchBeams(BeamSettings(width=3, max_tokens=4)))
            await until(lambda: not app.controller.client.outstanding)
            await pilot.pause()
            best = next(beam for beam in timeline().of(BeamHistory).nodes.values() if beam.rank == 1)
            place = next(
                place
                for place, branch in enumerate(main.panel(TreePanel)._view.rows)
                if best.node in branch.nodes
            )
            await press("home", *["down"] * place, "enter")
            assert timeline().tip == timeline().tree.branches.of(best.node).last
            assert [item.node for item in timeline().items][-1] == timeline().tip
            assert timeline().steps[-1].origin == "beam"

            shown = [list(branch.nodes) for branch in timeline().tree.branches]
            count, end = len(timeline().tree.branches), timeline().tip
            await press("x")
            assert main.status.answer.startswith("Deleted ")
            assert end not in timeline().tree.branches
            assert timeline().tip in timeline().tree.branches
            await press("u")
            assert main.status.answer.startswith("Undone: deleting ")
            assert (len(timeline().tree.branches), [branch.nodes for branch in timeline().tree.branches]) == (
                count,
                shown,
            )
            tokens = [timeline().tree.branches[node] for nodes in shown for node in nodes]
            assert [branch.nodes for branch in branches_of(tokens)] == shown

    asyncio.run(test())
    assert app.closed_in_time

"""Every key of every screen that a tool opens is pressed: the tables name what the screens have."""

from __future__ import annotations

import pytest

from inspector.main.view import View
from inspector.views import TOOLS
from tests.inspector.rig import Rig, run
from tests.inspector.views.ranks.test_screen import LOADED
from tests.inspector.views.tree.test_screen import forked

OPENERS = [
    action.id
    for tool in TOOLS
    for action in tool.actions
    if tool.opening
    and action.id in {"scores", "positions", "experts", "patching", "compare_kv", tool.actions[0].id}
]


@pytest.mark.wide(7)
@pytest.mark.parametrize("opener", [*OPENERS, "compare"])
def test_each_key_of_a_screen_does_something_or_says_why_not(opener: str) -> None:
    async def test(rig: Rig) -> None:
        await forked(rig)
        pressed = 0
        if opener == "ranks":
            await rig.push([LOADED])
        await rig.do(opener)
        first = rig.app.top
        assert isinstance(first, View), opener
        for action in first.ACTIONS.actions:
            if not action.id:
                continue
            if type(rig.app.top) is not type(first):
                await rig.do(opener)
            top = rig.app.top
            assert type(top) is type(first), (opener, action.id)
            assert top.meaning(action.names[0]) is not None, action.id
            await rig.press(action.names[0])
            pressed += 1
            while rig.app.top is not top and rig.app.top is not rig.app.main:
                rig.app.top.dismiss()
                await rig.pilot.pause()
        assert pressed > 2

    run(test)

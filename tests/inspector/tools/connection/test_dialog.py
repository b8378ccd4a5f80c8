"""The dialog of the connection: its two buttons are of use only while the connection is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.widgets import Button

from engine.remote.client import Connection, Stage
from inspector.tools.connection.dialog import ConnectionDialog
from tests.inspector.rig import Rig


@pytest.mark.parametrize("stage", ["connected", "away", "gone"])
async def test_the_buttons_are_of_use_while_it_is_lost(rig: Rig, stage: Stage) -> None:
    await rig.ready(steps=0)
    connection = SimpleNamespace(now=Connection("there:4000", stage), far=True)
    dialog = ConnectionDialog(cast(Any, connection))
    await rig.app.push_screen(dialog)
    await rig.pilot.pause()
    assert [button.id for button in dialog.query(Button)] == ["try-now", "give-up", "leave"]
    assert [button.disabled for button in dialog.query(Button)] == [stage != "away"] * 2 + [False]

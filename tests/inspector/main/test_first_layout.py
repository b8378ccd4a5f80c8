"""What a person sees first is laid out and styled once."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.dom import DOMNode

from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.main.screen import MainScreen
from tests.inspector.rig import FakeEngine


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (30, 8)])
async def test_the_styles_of_all_widgets_are_computed_once(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the screen is shown, by the toolkit; not again for its size, and for how its panels are arranged."""
    computed: list[frozenset[str]] = []
    update = App.update_styles

    def counted(app: App[int], node: DOMNode, animate: bool = True) -> None:
        if isinstance(node, MainScreen):
            computed.append(node.classes)
        update(app, node, animate)

    monkeypatch.setattr(App, "update_styles", counted)

    app = InspectorApp(LoadSettings(), Settings(), engine=FakeEngine())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert computed == [app.main.classes]

"""The dimmed screen below a dialog is what the toolkit draws, and after changes, too."""

from __future__ import annotations

import pytest
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip
from textual.visual import RenderOptions, RichVisual, Visual

from inspector.widgets.overlay import Overlay
from tests.inspector.painting import painting
from tests.inspector.rig import Rig, run


def lines(overlay: Overlay[object], visual: Visual) -> list[Strip]:
    """A ground, drawn."""
    options = RenderOptions(overlay._get_style, overlay.styles)
    return visual.render_strips(*overlay.size, overlay.visual_style, options)


def same(overlay: Overlay[object]) -> bool:
    """Whether the ground as it was painted last is the toolkit's."""
    below = overlay._below
    assert below is not None
    toolkits = RichVisual(overlay, BackgroundScreen(below.screen, below.colour))
    ours = [overlay.render_line(y) for y in range(overlay.size.height)]
    return [strip.simplify() for strip in ours] == [strip.simplify() for strip in lines(overlay, toolkits)]


@pytest.mark.wide(2)
@pytest.mark.parametrize("key", ["a", "b", "s", "ctrl+p"])
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_it_is_the_toolkits_also_after_changes(key: str, theme: str) -> None:
    async def test(rig: Rig) -> None:
        rig.app.theme = theme
        await rig.ready()
        await rig.press(key)
        overlay = rig.app.screen
        assert isinstance(overlay, Overlay)
        await rig.until(lambda: overlay._settled)
        assert same(overlay)
        rig.app.main.status.say("something else", rig.timeline.phase)
        rig.app.main.show()
        await rig.until(lambda: "something else" in rig.screen_text())
        assert same(overlay)
        await rig.push(rig.session.steps(2))
        assert same(overlay)
        rig.app.theme = "textual-light" if theme == "textual-dark" else "textual-dark"
        await rig.pilot.pause()
        await rig.pilot.pause()
        assert same(overlay)

    with painting():
        run(test)


def test_a_dialog_over_a_dialog_shows_both() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("p", "ctrl+o")
        overlay = rig.app.screen
        assert isinstance(overlay, Overlay)
        await rig.until(lambda: overlay._settled)
        assert same(overlay)
        assert "Prefill" in rig.screen_text()

    with painting():
        run(test)

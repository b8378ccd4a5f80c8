"""The style sheet that remembers gives every widget what the toolkit's gives."""

from __future__ import annotations

import pytest
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.widget import Widget

from inspector.widgets.painting.style_sheet import RememberingStylesheet
from tests.inspector.rig import Rig, run


def styles(rig: Rig) -> list[tuple[str, RulesMap, dict[str, RulesMap]]]:
    """The values of all widgets on all screens, and of their parts."""
    nodes: list[DOMNode] = [rig.app]
    for screen in rig.app.screen_stack:
        nodes += [each for each in screen.walk_children(with_self=True) if isinstance(each, Widget)]
    return [
        (
            str(node),
            node.styles.base.get_rules(),
            {name: part.base.get_rules() for name, part in node._component_styles.items()},
        )
        for node in nodes
    ]


async def styled_by_the_toolkit(rig: Rig) -> list[tuple[str, RulesMap, dict[str, RulesMap]]]:
    """The same, once all was styled by a style sheet of the toolkit's own."""
    ours = rig.app.stylesheet
    toolkits = Stylesheet(variables=rig.app.get_css_variables())
    toolkits.source = ours.source.copy()
    toolkits.reparse()
    for node in [rig.app, *rig.app.screen_stack]:
        toolkits.update(node)
    return styles(rig)


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "keys", [["t"], ["w", "f"], ["s"], ["a", "x"], ["b", "tab"], ["B"], ["question_mark"]]
)
def test_all_have_the_values_that_the_toolkit_gives(keys: list[str]) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        assert isinstance(rig.app.stylesheet, RememberingStylesheet)
        for _ in range(2):  # the second time it is remembered
            await rig.press(*keys)
            ours = styles(rig)
            assert ours == await styled_by_the_toolkit(rig)
            await rig.press("escape", "escape", "escape")
        assert styles(rig) == await styled_by_the_toolkit(rig)
        for theme in ("textual-light", "nord", "textual-dark"):
            rig.app.theme = theme
            await rig.pilot.pause()
            await rig.pilot.pause()
            assert styles(rig) == await styled_by_the_toolkit(rig)
        await rig.pilot.resize_terminal(60, 20)
        assert styles(rig) == await styled_by_the_toolkit(rig)

    run(test)

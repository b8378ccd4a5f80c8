"""The text coloured by what a view of the inside says of each token: attention, the lens, what another tool offers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.content import Content

from engine.protocol import (
    Ended,
    LensCell,
    LensColumn,
    LensRead,
    LensToken,
    PromptOpened,
    ReadGradients,
    ReadLens,
)
from inspector.documents.scores import over_path
from inspector.main.panels.text import TextPanel
from inspector.main.tool import OfferedHeat
from inspector.scales import INSIDE, SHARES
from tests.inspector.rig import Rig
from tests.inspector.views.attention.heads import FACTS, FAILED, on, read
from tests.inspector.views.gradients.reads import read as gradients
from tests.inspector.views.scores.reads import read as scores


def panel(rig: Rig) -> TextPanel:
    """The text."""
    return rig.app.main.panel(TextPanel)


def hot(rig: Rig) -> dict[int, bool]:
    """Slots of the tokens that are hot, as they look without colours, and whether they are below 0."""
    text = panel(rig)
    found = {}
    for y in range(text.size.height):
        for segment in text.render_line(y):
            style = segment.style
            if style is not None and segment.text.strip() and (style.underline or style.italic):
                found[style.meta["slot"]] = bool(style.dim)
    return found


def legend(rig: Rig) -> str:
    """What stands under the text."""
    return Content.from_markup(str(panel(rig).border_subtitle)).plain


async def looked(rig: Rig, place: int = 3, **more: object) -> None:
    """The heads were looked at from the newest token: one looks at a place, all others at the first token."""
    await rig.ready()
    await rig.press("A")
    tokens = rig.timeline.slot
    rows = lambda layer, head: on(place if (layer, head) == (1, 0) else 0, tokens)  # noqa: E731
    await rig.push([read(rig.timeline.before, tokens, rows, **more), Ended("ReadAttention")])  # type: ignore[arg-type]


async def chosen(rig: Rig) -> None:
    """The inside, by the key that goes back: it is the last one."""
    panel(rig).metric = "off"
    await rig.press("M")


async def test_without_anything_looked_at_it_is_passed_over(rig: Rig) -> None:
    await rig.ready()
    await chosen(rig)
    assert panel(rig).metric == "segment"
    panel(rig).metric = INSIDE
    await rig.pilot.pause()
    assert legend(rig) == "inside: nothing to colour by yet"
    assert hot(rig) == {}


@pytest.mark.screen(size=(120, 40))
async def test_the_head_on_show_colours_the_text(rig: Rig) -> None:
    await looked(rig)
    await rig.press("escape")
    await chosen(rig)
    assert rig.status.startswith("Colour by inside: L2 h1 from “")
    assert "L2 h1 from “" in legend(rig)
    assert " 65 " in legend(rig)
    assert hot(rig) == {3: False}
    rig.timeline.walk(-1)
    rig.app.main.changed()
    await rig.pilot.pause()
    assert hot(rig) == {3: False}, (
        "of another token nothing is known: it is still that of the one that was looked at"
    )
    assert "L2 h1 from “" in legend(rig)


@pytest.mark.screen(size=(120, 40))
async def test_it_follows_the_head_while_the_view_stands_beside_it(rig: Rig) -> None:
    panel(rig).metric = INSIDE
    await looked(rig)
    await rig.until(lambda: hot(rig) == {3: False})
    await rig.press("right_square_bracket")
    await rig.until(lambda: "L2 h2 from “" in legend(rig))
    assert hot(rig) == {0: False}


async def test_a_view_that_failed_its_check_colours_nothing(rig: Rig) -> None:
    panel(rig).metric = INSIDE
    await looked(rig, facts=FAILED)
    await rig.press("escape")
    assert hot(rig) == {}
    assert legend(rig) == "inside: nothing to colour by yet"


async def test_another_prompt_has_none_of_it(rig: Rig) -> None:
    panel(rig).metric = INSIDE
    await looked(rig)
    await rig.press("escape")
    assert hot(rig) == {3: False}
    opened = next(record for record in rig.session.records if isinstance(record, PromptOpened))
    await rig.push([replace(opened, new_tree=True)])
    await rig.until(lambda: hot(rig) == {})
    assert legend(rig) == "inside: nothing to colour by yet"


@pytest.mark.screen(size=(150, 40))
async def test_the_view_that_was_looked_at_last_is_it(rig: Rig) -> None:
    await looked(rig)
    panel(rig).metric = INSIDE
    await rig.press("escape", "I")
    followed = rig.engine.last(ReadLens).followed
    shares, ranks = (0.1,) * len(followed), (1,) * len(followed)
    items = rig.timeline.items[-3:]
    cells = [
        tuple(LensCell((LensToken(1, "a", 0.5),), 1.0, rank, shares, ranks) for rank in (9, late, 1))
        for late in (1, 2, 2)
    ]
    columns = tuple(LensColumn(item.node, each) for item, each in zip(items, cells, strict=True))
    await rig.push([LensRead(rig.timeline.before, columns, followed, FACTS), Ended("ReadLens")])
    await rig.press("escape")
    await rig.until(lambda: "layers until the answer leads" in legend(rig))
    assert hot(rig) == dict.fromkeys((item.node - 1 for item in items), False), (
        "each of the last three: from half of the layers on"
    )
    await rig.press("A", "escape")
    await rig.until(lambda: "L2 h1 from “" in legend(rig))


@pytest.mark.screen(size=(140, 40))
async def test_gradients_and_scores_colour_it_too(rig: Rig) -> None:
    panel(rig).metric = INSIDE
    await rig.ready()
    await rig.do("gradients")
    await rig.push([gradients(rig.engine.last(ReadGradients), (" toys", " him")), Ended("ReadGradients")])
    await rig.until(lambda: "gradients of “␣toys”" in legend(rig))
    assert hot(rig) == {0: False, 1: True, 2: False}, "0.1, -0.3 and 0.6 of all"
    await rig.press("escape")
    await rig.do("scores")
    tokens = rig.timeline.slot
    await rig.push([scores(rig.timeline.before, tokens), Ended("ReadScore")])
    await rig.until(lambda: "L2 h1 from “" in legend(rig))
    weights = over_path(scores(rig.timeline.before, tokens), tokens)
    assert hot(rig) == {slot: False for slot, weight in enumerate(weights) if weight >= SHARES[0]}


async def test_what_a_tool_offers_may_have_a_sign_and_is_concealed_with_it(rig: Rig) -> None:
    await rig.ready()
    main, nodes = rig.app.main, [item.node for item in rig.timeline.items]
    offered = OfferedHeat("what " * 40, {nodes[1]: -0.9, nodes[2]: 0.9, 10**9: 1.0}, signed=True)
    main.view_at("inspector.views.lens:Lens").heat_of_text = lambda: offered  # type: ignore[method-assign]
    await chosen(rig)
    await rig.pilot.pause()
    assert hot(rig) == {1: True, 2: False}
    assert len(legend(rig)) <= panel(rig).size.width, legend(rig)
    rig.timeline.concealed = frozenset({"lens"})
    assert main.heat() is None, "a lesson hides what that tool shows"


async def test_it_is_asked_for_only_while_the_text_is_coloured_by_it(rig: Rig) -> None:
    await rig.ready()
    asked = []
    lens = rig.app.main.view_at("inspector.views.lens:Lens")
    lens.heat_of_text = lambda: asked.append(1)  # type: ignore[method-assign, assignment, func-returns-value]
    for _ in range(3):
        await rig.press("space")
        rig.app.main.show()
    assert asked == []
    panel(rig).metric = INSIDE
    rig.app.main.show()
    assert asked

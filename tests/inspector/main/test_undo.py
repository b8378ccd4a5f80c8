"""Undo by its key: what it says, what it has the engine do, and what is seen of it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from engine import protocol
from engine.protocol import Ended, Intervention, InterventionsHeld, Resampled
from inspector.config.preferences import SavedBreakpoints
from inspector.keys import TABS, key_for, with_keys
from inspector.session.history import NOTHING
from tests.inspector.outside import outside
from tests.inspector.rig import Rig


async def test_a_draw_at_the_tip(rig: Rig) -> None:
    await rig.ready()
    first = rig.timeline.next
    await rig.press("d")
    await rig.push([Resampled(replace(first, reroll=1)), Ended("Reroll")])
    assert "re-roll 1" in rig.screen_text()
    await rig.press("u")
    assert rig.status.startswith("Undone: drawing again after “")
    assert rig.engine.sent[-1] == protocol.Reroll(0, first.node)
    await rig.push([Resampled(first), Ended("Reroll")])
    assert "re-roll" not in rig.screen_text()
    await rig.press("U")
    assert rig.status.startswith("Redone: drawing again after “")
    assert rig.engine.sent[-1] == protocol.Reroll(1, first.node)


async def test_breakpoints_set_edited_and_cleared(rig: Rig, config: Path) -> None:
    await rig.ready()
    points = rig.app.controller.runs.breakpoints
    await rig.press("b", "3", "enter")
    await rig.press("b", "backspace", "2", "enter")
    await rig.press("b", "ctrl+d", "enter")
    assert not points.points.active
    for said, value in (("runs stop at entropy > 2 now", 2), ("runs stop at entropy > 3 now", 3),
                        ("none is set now", None)):  # fmt: skip
        await rig.press("u")
        assert rig.status == f"Undone: the change of breakpoints: {said}. U redoes it"
        assert points.points.entropy_above == value
        assert SavedBreakpoints().read().values == points.points
    await rig.press("U")
    assert points.points.entropy_above == 3
    assert "● stops at entropy > 3" in rig.screen_text()


async def test_a_hold(rig: Rig) -> None:
    await rig.ready()
    tip, before = rig.timeline.items[-1], rig.timeline.items[-2].node
    held = protocol.HoldInterventions(tip.node, (Intervention("head", 1, 2),))
    rig.app.controller.client.do(held)
    move, step = rig.session.move(before), rig.session.step(tip.id, "intervened")
    told = InterventionsHeld(step.node, tip.node, held.interventions, 1.0)
    await rig.push([move, step, told, Ended(held.kind)])
    assert rig.timeline.under
    await rig.press("u")
    assert rig.status.startswith("Undone: continuing with L2 h3 off; its branch stays.")
    assert rig.engine.sent[-1] == protocol.MoveTo(tip.node)
    await rig.push([rig.session.move(tip.node), Ended("MoveTo")])
    assert not rig.timeline.under


async def test_a_token_that_was_taken_back_during_a_run_is_back_with_the_next_key_however_soon(
    rig: Rig,
) -> None:
    await rig.ready(steps=3)
    await rig.press("r", "backspace", "u")
    assert rig.engine.names == ["Run"]
    assert rig.engine.cancelled(rig.engine.sent[0])
    await rig.push([rig.session.step(), Ended("Run", cancelled=True)])
    last, before = rig.timeline.items[-1].node, rig.timeline.items[-2].node
    assert rig.engine.sent[1:] == [protocol.MoveTo(before)], (
        "the last token that came, not the last at the key"
    )
    await rig.push([rig.session.move(before), Ended("MoveTo")])
    assert rig.status.startswith("Undone: taking back “")
    assert rig.engine.sent[2:] == [protocol.MoveTo(last)]


async def test_redo_is_a_key_where_undo_is_one(rig: Rig) -> None:
    await rig.ready()
    await rig.press("b", "3", "enter")
    for tab in TABS:
        await rig.press(tab)
        await rig.press("u")
        assert f"{key_for('redo')} redoes it" in rig.screen_text()
        await rig.press("U")
        assert rig.app.controller.runs.breakpoints.points.entropy_above == 3, tab


async def test_a_session_that_is_resumed_undoes_what_was_done_in_it_and_no_more() -> None:
    given = ("--ignore-chat-template", "-p", "Once upon a time", "--temp", "0", "--max-tokens", "6")
    async with outside("--model", "pocket", *given) as user:
        controller = user.app.controller
        await user.press("r")
        await user.until(lambda: len(controller.timeline.steps) == 6 and controller.resting)
        tip = controller.timeline.tip
        await user.press("left", "left")
        controller.setup.apply(controller.queries.in_force)
        await user.until(lambda: controller.resting)
        await user.press("space", "backspace")
        await user.until(lambda: controller.resting and len(controller.timeline.steps) == 4)
        end, path = controller.timeline.tip, user.app.recorder.path
    async with outside("--resume", str(path)) as user:
        controller = user.app.controller
        await user.until(lambda: not controller.timeline.recorded and controller.resting)
        assert controller.timeline.tip == end
        assert controller.history.undo().startswith("Undone: taking back “")
        await user.until(lambda: controller.resting)
        assert controller.history.undo() == "Undone: taking back 2 tokens. U redoes it"
        await user.until(lambda: controller.resting)
        assert controller.timeline.tip == tip
        assert controller.history.undo() == with_keys(NOTHING)

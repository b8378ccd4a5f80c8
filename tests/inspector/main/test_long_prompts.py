"""Prompts of megabytes, pasted or given: no editor lays them out, and the screen goes on."""

from __future__ import annotations

from textual.events import Paste
from textual.widgets import TextArea

from engine.protocol import Prefill
from inspector.main.opening import MOST_SHOWN, OpeningPanel
from inspector.widgets.fields import MOST_IN_LINE, MOST_TYPED, SafeInput
from tests.inspector.rig import Rig, run

LONG = "One day a little dog. " * 50_000
"""More than a million characters."""


async def paste(rig: Rig, text: str) -> None:
    rig.app.post_message(Paste(text))
    await rig.pilot.pause()


def test_a_text_that_is_too_long_is_not_pasted_and_the_way_is_told() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("p")
        area = rig.app.screen.query_one("#prompt-text", TextArea)
        before = area.text
        await paste(rig, LONG)
        assert area.text == before
        [told] = [notice.message for notice in rig.app._notifications]
        assert told.endswith("Put it into a file: p, ctrl+o read one.")
        await rig.press("ctrl+a", "delete")
        await paste(rig, LONG[:MOST_TYPED])
        assert len(area.text) == MOST_TYPED
        await paste(rig, "x")
        assert len(area.text) == MOST_TYPED

    run(test)


def test_a_line_takes_no_more_than_a_line() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.press("slash")
        await paste(rig, LONG)
        assert len(rig.app.screen.query_one("#find-query", SafeInput).value) <= MOST_IN_LINE

    run(test)


def test_a_prompt_that_is_too_long_to_edit_stays_as_it_is() -> None:
    async def test(rig: Rig) -> None:
        await rig.push(rig.session.load())
        shown = str(rig.app.main.query_one(OpeningPanel).render())
        assert len(shown) < 2 * MOST_SHOWN
        assert f"… and {len(LONG) - MOST_SHOWN:,} characters more" in shown
        await rig.press("p")
        assert rig.app.screen.query_one("#prompt-text", TextArea).text == ""
        assert f"{len(LONG):,} characters, too many to be edited here" in rig.screen_text()
        rig.engine.sent.clear()
        await rig.press("ctrl+s")
        sent = rig.engine.last(Prefill)
        assert isinstance(sent, Prefill)
        assert sent.text == LONG
        await rig.press("p", "escape", "p", "x", "ctrl+s")
        assert rig.engine.last(Prefill).text == "x"

    run(test, prompt=LONG)

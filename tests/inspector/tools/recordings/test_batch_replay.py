"""A recorded batch, and recorded draws, are shown without a model, up to the place where the replay is."""

from __future__ import annotations

from inspector.keys import with_keys
from inspector.session.replay_backend import REFUSED
from inspector.tools.batch.screen import BatchScreen
from inspector.tools.draws.screen import DrawsScreen
from tests.inspector.rig import Rig
from tests.inspector.told_batch import BEGINNING, COMPARED, DRAWN, REST, draws
from tests.inspector.tools.recordings.test_measured_replay import settle, write
from tests.inspector.tools.recordings.test_replay_screen import replayed


def test_a_recorded_batch_is_shown_as_far_as_the_replay_is(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [*BEGINNING, *REST, *COMPARED])

    async def test(rig: Rig) -> None:
        await rig.press("Z")
        assert isinstance(rig.app.screen, BatchScreen)
        text = rig.screen_text()
        assert "Batch · recorded · step 3" in text
        assert "1 of 2 lanes equal" in text
        assert "Once [b]upon a time." in text
        await settle(rig, *["backspace"] * 4)  # the comparison, the end, step 3, step 2
        assert "Batch · recorded · step 2" in rig.screen_text()
        assert "lanes equal" not in rig.screen_text()
        await settle(rig, "space")
        assert "Batch · recorded · step 3" in rig.screen_text()
        for key in ("n", "a", "x", "v", "s", "left", "enter"):
            await rig.press("escape", "Z", key)
            assert "needs a live model" in rig.app.screen.said
        await settle(rig, *["backspace"] * 12)
        assert "one forward for all" in rig.screen_text()
        await rig.press("escape", "Z")
        assert rig.status == with_keys(REFUSED)
        assert rig.engine.sent == rig.engine.asked == []

    replayed(test, path)


def test_recorded_draws_are_shown_with_what_came(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [DRAWN, *draws(DRAWN.node)])

    async def test(rig: Rig) -> None:
        await rig.press("number_sign")
        assert isinstance(rig.app.screen, DrawsScreen)
        assert "chi-square 1.50" in rig.screen_text()
        assert "2  a" in rig.screen_text()
        await rig.press("up")
        assert "needs a live model" in rig.app.screen.said
        assert rig.engine.sent == []

    replayed(test, path)

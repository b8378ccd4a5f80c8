"""A recorded lockstep: the same screen, with no engine behind it."""

from __future__ import annotations

from pathlib import Path

from engine import protocol
from engine.protocol import LockstepRead, WaysParted
from engine.settings import LoadSettings, Settings
from engine.trace import save_as
from inspector.app import InspectorApp
from inspector.session.playback import Opening
from inspector.state.lockstep import LockstepSoFar
from inspector.tools.lockstep.screen import LockstepScreen, told
from tests.engine.logits.recording import Recording
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig


def test_a_recorded_lockstep_is_shown_without_a_model(tmp_path: Path) -> None:
    recording = Recording(LoadSettings())
    recording.do(protocol.Configure(Settings(temp=0)))
    recording.do(protocol.Prefill("Once upon a time", chat=False))
    recording.do(protocol.OpenLockstep(LoadSettings(), bits=4))
    for _ in range(3):
        recording.do(protocol.TakeStep())
        recording.do(protocol.ReadLockstep(recording.steps[-1].node))
    recording.do(protocol.PartWays(recording.steps[-1].node, tokens=3))
    path = tmp_path / "lockstep.jsonl.gz"
    save_as(path, recording.entries, "test")
    kept = [entry.value for entry in recording.entries]
    read = [each for each in kept if isinstance(each, LockstepRead)]
    ways = next(each for each in kept if isinstance(each, WaysParted))
    engine = FakeEngine()
    app = InspectorApp(LoadSettings(), Settings(), engine=engine, trace=Opening(path))

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            rig = Rig(pilot, engine, None)  # type: ignore[arg-type]
            await rig.until(lambda: app.playback.player is not None and app.playback.player.at_end)
            await rig.press("h")
            assert isinstance(app.screen, LockstepScreen)
            text = rig.screen_text()
            assert "recorded · P pocket · Q pocket, 4-bit, group 64" in text
            assert read[-1].ahead is not None
            assert told(read[-1].ahead) in text
            await rig.press("left")
            assert told(read[2].spans[-1]) in rig.screen_text()
            await rig.press("right", "w")
            assert f"its own way, {len(ways.ids)} tokens" in rig.screen_text()
            await rig.press("b")
            assert "Comparing needs a live model: esc, then G" in rig.screen_text()
            await rig.press(
                "w", *["backspace"] * 3
            )  # the ways, what was read before them, the last step's reading
            await rig.until(lambda: read[2].node not in rig.timeline.of(LockstepSoFar).ahead, 20)
            assert read[1].node in rig.timeline.of(LockstepSoFar).ahead

    run_quickly(body())
    assert not engine.sent
    assert not engine.asked

"""Two programs of one user at the same time: nothing is lost, and what can't be shared is told."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from engine.breakpoints import Breakpoints
from engine.protocol import Ended
from engine.recording import load
from inspector.config.preferences import SavedBreakpoints
from inspector.config.presets import Presets
from inspector.recordings import sessions
from tests.engine.recording.resumed import resumed
from tests.inspector.recordings.test_recorder import lived, recording
from tests.inspector.rig import Rig
from tests.inspector.views.recordings.test_replay_screen import go, replayed, restored, trace

EACH = 25
SAVE = f"""
import sys
from pathlib import Path
from engine.breakpoints import Breakpoints
from engine.settings import Settings
from inspector.config.presets import Presets
from inspector.config.preferences import SavedBreakpoints
directory, who = Path(sys.argv[1]), sys.argv[2]
for number in range({EACH}):
    Presets(directory / "presets.json").save(f"{{who}} {{number}}", Settings(temp=0.5))
    SavedBreakpoints(directory / "breakpoints.json").save(Breakpoints(text=who))
"""


def test_presets_and_breakpoints_of_both_are_kept(tmp_path: Path) -> None:
    (tmp_path / "breakpoints.json").write_text(
        json.dumps({"breakpoints": {"from another version": 1}, "more": 2})
    )
    both = [subprocess.Popen([sys.executable, "-c", SAVE, str(tmp_path), who]) for who in ("one", "other")]
    assert [each.wait(120) for each in both] == [0, 0]
    presets = Presets(tmp_path / "presets.json")
    assert sum(map(presets.is_own, presets.names)) == 2 * EACH
    stored = SavedBreakpoints(tmp_path / "breakpoints.json").read()
    assert stored.values in (Breakpoints(text="one"), Breakpoints(text="other"))
    content = json.loads((tmp_path / "breakpoints.json").read_text())
    assert (content["more"], content["breakpoints"]["from another version"]) == (2, 1)
    assert {each.name for each in tmp_path.iterdir()} == {"presets.json", "breakpoints.json"}


def test_two_sessions_that_begin_in_the_same_second_have_a_file_each(tmp_path: Path, monkeypatch) -> None:
    name, late = sessions.new_path, []

    def same(directory: Path, model: str) -> Path:
        path = name(directory, model, datetime(2026, 1, 1))
        if not late:  # the other program takes it between this look and the making of the file
            path.write_text("theirs")
            late.append(path)
        return path

    monkeypatch.setattr(sessions, "new_path", same)
    told: list[str] = []
    kept = recording(tmp_path, told)
    lived(kept)
    assert told == []
    path = kept.path
    assert path not in (None, late[0])
    kept.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert load(path, torn_ok=True).entries


def test_a_session_that_another_program_goes_on_with_is_not_appended_to(state: Path) -> None:
    state.mkdir()
    path = state / "20260102-000000-old.trace"
    trace(path)
    _, _, other = resumed(path, "another")
    before = path.read_bytes()

    async def test(rig: Rig) -> None:
        await go(rig)
        await rig.push([Ended("Configure"), restored(rig), Ended("Restore")])
        while not (told := [note for note in rig.app._notifications if note.title == "No longer saved"]):
            await rig.pilot.pause(0.02)
        assert "in use" in told[0].message
        assert "you can save it elsewhere" in told[0].message
        await rig.press("space")
        assert rig.engine.names[-1] == "TakeStep"
        assert len([note for note in rig.app._notifications if note.title == "No longer saved"]) == 1

    replayed(test, path, save=state)
    assert path.read_bytes() == before
    other.close()

"""Save as, recent sessions, and the commands that list, replay and resume them."""

from __future__ import annotations

import csv
import gc
import json
import os
import re
import signal
import stat
import sys
import types
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.widgets import OptionList
from textual.worker import WorkerCancelled

from engine.protocol import Ended, Failure, LogitsRow, ModelVocabulary, Packed, Step
from engine.recording import load
from engine.settings import LoadSettings
from inspector.cli import main as cli
from inspector.cli import screen
from inspector.demo import DEMONSTRATION
from inspector.recordings import sessions
from inspector.views.recordings import SaveAsDialog, SessionsDialog, line
from inspector.widgets.dialog import Remark
from tests.inspector.fakes import Session
from tests.inspector.outside import outside
from tests.inspector.recordings.test_recorder import saved
from tests.inspector.rig import Rig, run
from tests.inspector.views.recordings.test_replay_screen import replayed, trace


def remark(rig: Rig) -> str:
    """What stands under the field, whole: on the screen a long path breaks it."""
    return str(rig.app.top.query_one("#save-path-remark", Remark).content)


async def save_to(rig: Rig, path: Path, *keys: str) -> None:
    await rig.press("ctrl+s")
    assert isinstance(rig.app.top, SaveAsDialog)
    rig.app.top.query_one("#save-path").value = str(path)
    await rig.press(*(keys or ("enter",)))
    with suppress(WorkerCancelled):  # closing the dialog ends its worker, which may be about to return
        await rig.app.workers.wait_for_complete()
    for _ in range(100):  # the dialog closes, or tells what is wrong, a moment after the file is written
        await rig.pilot.pause(0.02)
        if not isinstance(rig.app.top, SaveAsDialog):
            return
        if rig.app.top.query_one("#save-path-remark").has_class("-wrong"):
            return


@pytest.mark.wide(1)
@pytest.mark.parametrize("suffix", [".trace", ".trace.zst"])
async def test_a_session_is_saved_whole(rig: Rig, tmp_path, suffix) -> None:
    path = tmp_path / f"mine{suffix}"

    await rig.ready(4)
    await save_to(rig, path)
    assert "Saved" in rig.status
    assert path.name in rig.status
    entries = [entry.value for entry in load(path).entries]
    assert entries == [entry.value for entry in rig.app.recorder.entries]
    assert sum(isinstance(value, Step) for value in entries) == 4


def test_a_recording_is_saved_whole_wherever_it_stands(tmp_path):
    trace(tmp_path / "a.trace")

    async def test(rig: Rig) -> None:
        await rig.press("backspace", "backspace")
        await save_to(rig, tmp_path / "b.trace")

    replayed(test, tmp_path / "a.trace")
    assert load(tmp_path / "b.trace").entries == load(tmp_path / "a.trace").entries


async def test_a_file_that_is_there_is_replaced_only_when_asked_twice(rig: Rig, tmp_path) -> None:
    path = tmp_path / "mine.trace"
    path.write_text("before")

    await rig.ready(1)
    await save_to(rig, path)
    assert "already exists" in remark(rig)
    assert path.read_text() == "before"
    await rig.press("ctrl+s")
    await rig.app.workers.wait_for_complete()
    assert load(path).entries


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("name", "told"),
    [("", "No file was named"), ("{tmp}", "is a directory"), ("{tmp}/no/x", "There is no directory")],
)
async def test_a_name_that_wont_do_is_told(rig: Rig, tmp_path, name, told) -> None:
    await rig.ready(1)
    await save_to(rig, Path("x"), "escape")
    await rig.press("ctrl+s")
    rig.app.top.query_one("#save-path").value = name.format(tmp=tmp_path)
    await rig.press("enter")
    assert told in remark(rig)
    assert isinstance(rig.app.top, SaveAsDialog)


async def test_a_full_disk_leaves_what_was_there_and_the_dialog_open(rig: Rig, tmp_path, monkeypatch) -> None:
    path = tmp_path / "mine.trace"
    path.write_text("before")

    def full(*rest: object) -> int:
        raise OSError(28, "No space left on device")

    await rig.ready(1)
    monkeypatch.setattr("os.fsync", full)
    await save_to(rig, path, "enter", "enter")
    assert "No space left" in remark(rig)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".part"] == []


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["~nosuchuser/x", "a" * 5000, "b" * 300, "c\0d"])
async def test_a_name_that_no_file_can_have_is_told_at_the_field(rig: Rig, name) -> None:
    await rig.ready(1)
    await save_to(rig, Path(name))
    assert isinstance(rig.app.top, SaveAsDialog)
    assert len(remark(rig)) > 20
    assert "fault" not in remark(rig)


async def test_in_a_directory_that_was_deleted_a_full_path_still_saves(
    rig: Rig, tmp_path, monkeypatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    await rig.ready(1)
    await save_to(rig, Path("x.trace"))
    assert "current directory is gone" in remark(rig)
    await save_to(rig, tmp_path / "x.trace", "escape")
    await save_to(rig, tmp_path / "x.trace")
    assert rig.status.startswith("Saved")


def test_a_pipe_is_never_replaced_and_a_link_to_nowhere_not_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "none")

    async def test(rig: Rig) -> None:
        await rig.ready(1)
        for name, told in (("pipe", "is a pipe"), ("link", "is a link to a file that doesn't exist")):
            await save_to(rig, tmp_path / name, "enter", "enter", "enter")
            assert told in remark(rig)
            await rig.press("escape")

    run(test)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link"}


def test_a_saved_copy_is_for_its_owner_alone(tmp_path):
    async def test(rig: Rig) -> None:
        await rig.ready(1)
        await save_to(rig, tmp_path / "x.trace")

    before = os.umask(0o022)
    run(test)
    os.umask(before)
    assert (tmp_path / "x.trace").stat().st_mode & 0o777 == 0o600


async def test_before_the_model_is_there_there_is_nothing_to_save(rig: Rig) -> None:
    await rig.press("ctrl+s")
    assert "nothing to save" in rig.status


# ---- recent sessions --------------------------------------------------------------------------


async def listed(rig: Rig) -> OptionList:
    await rig.press("ctrl+o")
    await rig.app.workers.wait_for_complete()
    await rig.pilot.pause()
    assert isinstance(rig.app.top, SessionsDialog)
    return rig.app.top.query_one(OptionList)


def test_recent_sessions_are_listed_and_one_is_shown(state):
    saved(state, "20260102-000000-old.trace", 500, steps=7)
    (state / "20260101-000000-bad.trace").write_text("x\n")

    async def test(rig: Rig) -> None:
        await rig.ready(3)
        options = await listed(rig)
        assert options.option_count == 3
        text = "\n".join(str(option.prompt) for option in options.options)
        assert "3 tokens " in text
        assert "  open · " in text
        assert "7 tokens" in text
        assert not any(option.prompt.spans for option in options.options if not option.disabled), (
            "the row's ink"
        )
        rig.resize(60, 20)
        await rig.until(lambda: 0 < options.scrollable_content_region.width < 60)
        await rig.until(
            lambda: all(
                cell_len(option.prompt.plain) <= options.content_size.width for option in options.options
            )
        )
        assert "not a recording" in text
        assert options.highlighted is not None
        assert "7 tokens" in str(options.options[options.highlighted].prompt), "not the one that runs"
        await rig.press("enter")
        while rig.app.playback.player is None or not rig.app.playback.player.settled:
            await rig.pilot.pause(0.02)
        await rig.pilot.pause()
        assert "● RECORDED step 7" in rig.screen_text()
        await rig.press("G")  # the model already exists: nothing is loaded twice
        assert rig.engine.names[-1] == "Load" or rig.engine.names[-1] == "Restore"

    run(test, save=state)
    assert len(list(state.iterdir())) == 3


def test_the_finder_tells_sessions_of_one_prompt_apart_by_their_time(state):
    saved(state, "20260102-000000-old.trace", 5000, steps=7)
    saved(state, "20260103-000000-new.trace", 500, steps=7)
    times = {
        f"Session {datetime.fromtimestamp(each.changed):%m-%d %H:%M}" for each in sessions.saved_sessions()
    }

    async def test(rig: Rig) -> None:
        await rig.ready(1)
        await rig.press("ctrl+p", *"once")
        await rig.until(lambda: all(time in rig.screen_text() for time in times))

    run(test, save=state)


def test_a_long_session_that_runs_has_its_tokens_whole(state):
    saved(state, "20260102-000000-old.trace", 500, steps=7)
    (listed,) = sessions.saved_sessions()
    assert listed.peek is not None
    runs = replace(listed, tokens=916_303, peek=replace(listed.peek, in_use=True))
    for width in (100, 74):
        text = str(line(runs, width))
        assert "916,303 tokens" in text
        assert "  open · Once upon a time" in text


def test_the_session_that_runs_is_not_shown_over_itself(state):
    async def test(rig: Rig) -> None:
        await rig.ready(3)
        await listed(rig)
        await rig.press("enter")
        assert "is open now" in rig.status
        assert rig.app.playback.player is None

    run(test, save=state)


async def test_without_sessions_the_list_says_so(rig: Rig) -> None:
    await listed(rig)
    assert "No session is saved yet" in rig.screen_text()


# ---- commands ---------------------------------------------------------------------------------


def test_the_command_lists_sessions(state, capsys):
    saved(state, "20260102-000000-old.trace", 500, steps=7)
    (state / "20260101-000000-bad.trace").write_text("x\x1b\n")
    assert cli.main(["sessions"]) == 0
    out = capsys.readouterr().out
    assert "20260102-000000-old" in out
    assert "Once upon a time," in out
    assert re.search(r"\d (B|KiB)  Once upon", out)
    assert "not a recording" in out
    assert "\x1b" not in out
    assert cli.main(["sessions", "--jsonl"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    good = next(each for each in found if not each["problem"])
    assert (good["tokens"], good["peek"]["prompt"], good["peek"]["in_use"]) == (7, "Once upon a time,", False)


def test_export_replay_and_resume_take_the_names_that_are_listed(
    state, opened, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = saved(state, "20260102-000000-old.trace", 500, steps=7)
    for name in (sessions.names(state)[0], "20260102"):
        for command in (["replay", name], ["--resume", name]):
            assert cli.main(command) == 0
            assert opened["trace"].path == path
        assert cli.main(["export", name, "--to", "txt", "--force"]) == 0
        assert (tmp_path / "20260102-000000-old.txt").read_text().startswith("Once upon a time,")
    capsys.readouterr()
    for command in (["replay"], ["--resume"], ["export", "--to", "txt"]):
        assert cli.main([*command, "old"]) == 2
        assert (
            "There is no file and no session 'old'. Did you mean 20260102-000000-old?"
            in capsys.readouterr().err
        )


def test_the_command_says_where_none_is(state, capsys):
    assert cli.main(["sessions"]) == 0
    assert "No session is saved in" in capsys.readouterr().out


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the screen would be opened with."""
    noted: dict[str, object] = {}

    class App:
        return_code, closed_in_time, ended_by = 0, True, None
        recorder = types.SimpleNamespace(saved=None, notice="")

        def __init__(self, *rest: object, **given: object) -> None:
            noted.update(given)

        def run(self) -> None:
            noted["ran"] = True

    import inspector.session.playback  # before the module of the application is another one

    assert inspector.session.playback
    monkeypatch.setitem(sys.modules, "inspector.app", types.SimpleNamespace(InspectorApp=App))
    monkeypatch.setattr(screen, "check_terminal", lambda *rest, **options: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *pace: None)
    return noted


def test_replay_without_a_file_plays_the_demonstration(opened):
    assert cli.main(["replay", "--speed", "2"]) == 0
    trace = opened["trace"]
    assert (trace.path, trace.play, trace.speed, trace.live) == (DEMONSTRATION, True, 2.0, False)


def test_replay_takes_files_and_names(opened, state):
    path = saved(state, "20260102-000000-old.trace", 500)
    for name in (str(path), path.name, "20260102-000000-old"):
        assert cli.main(["replay", name]) == 0
        assert (opened["trace"].path, opened["trace"].play) == (path, False)


def test_resume_takes_the_last_one_and_flags_of_the_model(opened, state):
    path = saved(state, "20260102-000000-old.trace", 5)
    saved(state, "20260103-000000-new.trace", 500)
    assert cli.main(["--resume", "--kv-bits", "8"]) == 0
    trace = opened["trace"]
    assert (trace.path, trace.live, trace.load) == (path, True, {"kv_bits": 8})
    assert opened["save"] == state
    assert cli.main(["--resume", "20260103-000000-new", "--no-save"]) == 0
    assert opened["trace"].path.name == "20260103-000000-new.trace"
    assert opened["save"] is None


@pytest.mark.parametrize(
    ("flags", "load"),
    [
        (["--no-float32-scales"], {"float32_scales": False}),
        (["--float32-scales"], {"float32_scales": True}),
        (["--kept-logits-mib", "0", "--kept-kv-mib", "0"], {"kept_logits_mib": 0, "kept_kv_mib": 0}),
        (["--quantized-kv-start", "0", "--kv-bits", "4"], {"quantized_kv_start": 0, "kv_bits": 4}),
        (["--no-kv-cache"], {"no_kv_cache": True}),
        ([], {}),
    ],
)
def test_what_is_given_wins_over_what_the_session_recorded(opened, state, flags, load):
    saved(state, "20260102-000000-old.trace", 5)
    assert cli.main(["--resume", *flags]) == 0
    assert opened["trace"].load == load


@pytest.mark.parametrize("flags", [["--temp", "0"], ["--seed", "0"], ["--top-k", "0"], ["--xtc-probability", "0"],
    ["--no-prompt-logprobs"], ["--prompt-logprobs"], ["--ignore-chat-template"], ["--preset", "greedy"],
    ["--stop", "x"], ["--max-tokens", "5"], ["--prompt", ""], ["--system-prompt", ""]])  # fmt: skip
def test_what_the_session_has_itself_conflicts_with_it_whatever_its_value(opened, state, capsys, flags):
    saved(state, "20260102-000000-old.trace", 5)
    assert cli.main(["--resume", *flags]) == 2
    error = capsys.readouterr().err
    assert "--resume continues with the session's own prompt and settings, not with" in error
    assert flags[0].removeprefix("--no-").removeprefix("--") in error


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--resume"], "No session is saved"),
        (["--resume", "nope"], "There is no file and no session 'nope'"),
        (["--resume", "--temp", "1"], "--temp"),
        (["--resume", "--prompt", "x"], "--prompt"),
        (["replay", "nope"], "There is no file and no session 'nope'"),
        (["replay", "--speed", "7"], "must be one of 0.25"),
        (["replay", __file__], "is not a recording"),
        (["replay", "."], ". is a directory."),
        (["replay", "~nosuchuser/x"], "No home directory is known for ~nosuchuser"),
        (["replay", "a" * 5000], "File name too long"),
        (["replay", "a" * 252], "There is no file and no session"),
        (["replay", "a\0b"], "can't be the name of a file"),
        (["--resume", "b" * 300], "File name too long"),
        (["--resume", "~nosuchuser"], "No home directory"),
        (["--resume", "/dev/null"], "/dev/null is no file that can be kept."),
    ],
)
def test_what_cant_be_done_is_one_line_and_exit_2(opened, capsys, argv, told):
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1


def test_names_of_sessions_are_what_their_files_are(state):
    saved(state, "20260102-000000-old.trace", 500)
    (found,) = sessions.saved_sessions(state)
    assert sessions.find(found.name, state) == found.path
    assert found.peek.model == "pocket"
    assert LoadSettings().model == "pocket"
    assert Session().load()


def test_the_screen_leaves_the_signals_as_they_were(opened):
    before = [signal.getsignal(number) for number in screen.ENDING]
    assert cli.main(["replay"]) == 0
    assert opened["ran"]
    assert [signal.getsignal(number) for number in screen.ENDING] == before


# ---- with logits ------------------------------------------------------------------------------


async def test_the_kept_logits_go_with_it_when_chosen_each_after_its_step(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "mine.trace"

    await rig.ready(3)
    await rig.press("ctrl+s", "tab", "right")
    assert "With a step's logits a replay tries other settings" in remark(rig)
    rig.app.top.query_one("#save-path").value = str(path)
    await rig.press("ctrl+s")
    assert rig.engine.names[-1] == "ReadLogits"
    assert not path.exists()
    steps = [each.value for each in rig.app.recorder.entries if isinstance(each.value, Step)]
    rows = [LogitsRow(step.node, 1, "float32", Packed(b"row")) for step in steps]
    await rig.push([ModelVocabulary(1, Packed(b""), (), ()), *rows, Ended("ReadLogits")])
    await rig.until(lambda: not isinstance(rig.app.top, SaveAsDialog))
    values = [entry.value for entry in load(path).entries]
    assert [values[values.index(row) - 1] for row in rows] == steps
    assert sum(isinstance(value, LogitsRow) for value in values) == 3


async def test_rows_that_come_once_the_dialog_was_left_are_saved_nowhere(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "mine.trace"
    await rig.ready(3)
    await rig.press("ctrl+s", "tab", "right")
    rig.app.top.query_one("#save-path").value = str(path)
    await rig.press("ctrl+s")
    assert rig.engine.names[-1] == "ReadLogits"
    await rig.press("escape", "ctrl+s")
    await rig.push([ModelVocabulary(1, Packed(b""), (), ()), Ended("ReadLogits")])
    await rig.app.workers.wait_for_complete()
    assert not path.exists()
    assert isinstance(rig.app.top, SaveAsDialog)
    assert "Reading" not in remark(rig)


async def test_what_keeps_the_logits_from_being_read_is_told_and_nothing_is_written(
    rig: Rig, tmp_path: Path
) -> None:
    await rig.ready(2)
    await rig.press("ctrl+s", "tab", "right")
    rig.app.top.query_one("#save-path").value = str(tmp_path / "mine.trace")
    await rig.press("ctrl+s")
    await rig.push([Failure("ReadLogits", "They are gone.", "Go on."), Ended("ReadLogits")])
    assert remark(rig) == "They are gone. Go on."
    assert not list(tmp_path.iterdir())
    await rig.press("escape")
    await rig.press("ctrl+s")
    assert isinstance(rig.app.top, SaveAsDialog)


def test_a_recording_has_no_logits_to_choose(tmp_path: Path) -> None:
    trace(tmp_path / "a.trace")

    async def test(rig: Rig) -> None:
        await rig.press("ctrl+s")
        assert not rig.app.screen.query("#save-logits")

    replayed(test, tmp_path / "a.trace")


async def test_a_view_is_saved_as_a_picture_and_as_a_table(tmp_path: Path) -> None:
    async with outside("-p", "The cat sat", "--no-save", "--temp", "0") as user:
        await user.press("space", "3", "D")
        await user.until("L2 MLP")
        for turns, end in ((1, "svg"), (2, "csv")):
            path = tmp_path / f"view.{end}"
            await user.press("ctrl+s", "up", *["right"] * turns, "down", "ctrl+u", *str(path), "enter")
            await user.until(path.exists)
            await user.until("Saved")
        assert "L2 MLP" in user.words  # the view stays
    assert "L2 MLP" in (tmp_path / "view.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    rows = [*csv.reader((tmp_path / "view.csv").read_text(encoding="utf-8").splitlines())]
    assert any(row[0] == "L2 MLP" and float(row[1]) for row in rows)

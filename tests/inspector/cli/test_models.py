"""`inspector models`: what the table and the lines of JSON say of made-up models."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from engine import memory
from engine.errors import EngineError
from engine.models_on_disk import models as places
from engine.protocol import Ended
from engine.settings import LoadSettings, Settings
from inspector.cli import main as cli
from inspector.cli import screen
from inspector.recordings import sessions
from inspector.recordings.recorder import Recorder
from tests.engine.models_on_disk import made_up
from tests.engine.models_on_disk.hub import COMMIT, FakeHub, serving
from tests.inspector.cli.scripted import Complaint, Events
from tests.inspector.fakes import Session

HOSTILE = "evil\x1b[2J[x]\u202e\x9b"
FREE = 2**30


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of 1 GiB."""
    monkeypatch.setattr(memory, "memory_available", lambda: FREE)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[list[str], list[str]]:
    """The lines of standard output and of standard error."""
    assert cli.main(["models", *argv]) == 0
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


@pytest.fixture
def events(events: Events) -> Events:
    return partial(events, "models", "--jsonl")


def test_the_bundled_model_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    head, row = printed(capsys)[0]
    assert head.split() == ["name", "family", "params", "bits", "size", "context", "KV/token", "fits"]
    assert row.split() == ["pocket", "llama", "7.34", "M", "bf16", "14", "MiB", "512", "4", "KiB", "all"]


def test_what_fits_and_what_does_not(
    capsys: pytest.CaptureFixture[str], events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up.model(tmp_path / "m")
    room = 2 * made_up.PARAMETERS * 11 // 10
    for free, cell, tokens in ((room - 9, "no", 0), (room + 25600, "to 100", 100), (2**40, "all", 2048)):
        monkeypatch.setattr(memory, "memory_available", lambda free=free: free)
        assert printed(capsys, str(tmp_path))[0][1].endswith(f"  {cell}")
        assert events(str(tmp_path))[0]["fits"] == tokens


def test_every_figure_in_json(events: Events, tmp_path: Path) -> None:
    quantization = {"bits": 4, "group_size": 32}
    path = made_up.model(tmp_path / "m", made_up.llama(bits=4, group=32), quantization=quantization)
    (event,) = events(str(path))
    weights = event.pop("weights")
    assert event == {
        "name": "m", "path": str(path), "source": "given", "hub_id": "", "family": "llama", "layers": 2,
        "context": 2048, "size": (path / "model.safetensors").stat().st_size,
        "kv": {"growing": 2 * made_up.KV_NUMBERS, "windowed": 0, "window": 0}, "known": True, "problem": "",
        "incomplete": False, "notes": [], "available": FREE, "fits": 2048,
    }  # fmt: skip
    assert weights.items() >= {"parameters": made_up.PARAMETERS, "bits": [4], "group_size": 32}.items()
    assert 4.9 < 8 * weights["size"] / weights["parameters"] < 5.1


def test_hostile_names_stay_text_and_faults_one_line(
    capsys: pytest.CaptureFixture[str], events: Events, tmp_path: Path
) -> None:
    made_up.model(tmp_path / HOSTILE, model_type=HOSTILE)
    (tmp_path / "bro\nken").mkdir()
    (tmp_path / "bro\nken" / "config.json").write_text("[" * 9000)
    out, err = printed(capsys, str(tmp_path))
    assert len(out) == 3
    assert len(err) == 2
    for line in (*out, *err):
        assert line.isprintable()
    assert "evil␛[2J[x]‹202E›‹009B›" in out[2]
    assert "bro↵ken: config.json can't be read as JSON: it is nested too deeply." in err[0]
    assert events(str(tmp_path))[1]["name"] == HOSTILE


def test_what_is_no_directory_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, err = printed(capsys, str(tmp_path / "nowhere"))
    assert "can't load" in out[1]
    assert "No such file or directory" in err[0]


def test_models_of_recent_sessions_come_first(events: Events, tmp_path: Path, state: Path) -> None:
    used = made_up.model(tmp_path / "used")
    for name, path in (("a", str(used)), ("b", "/went/away"), ("c", str(used))):
        kept = Recorder(state / name, lambda: "test 1", LoadSettings, Settings, lambda text: None)
        session = Session()
        for record in [*session.load(path=path), Ended("Configure"), *session.open(), *session.steps(1)]:
            kept.receive(record)
        assert kept.path is not None
        path_of = kept.path
        kept.close()
        path_of.rename(state / f"{name}.trace")
    (state / "broken.trace").write_text("{")
    assert set(sessions.recent_models()) == {"/went/away", str(used)}
    assert [(each["name"], each["source"]) for each in events()] == [
        ("pocket", "bundled"),
        ("used", "recent"),
    ]


def test_a_model_is_downloaded_and_listed(
    capsys: pytest.CaptureFixture[str],
    events: Events,
    complaint: Complaint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = made_up.model(tmp_path / "m")
    with serving(FakeHub({each.name: each.read_bytes() for each in made.iterdir()})) as hub:
        for name, value in hub.environ(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        out, err = printed(capsys, "--get", "some/tiny")
        assert (Path(out[0]).name, err) == (COMMIT, [])
        *going, done = events("--get", "some/tiny")
        assert {each["event"] for each in going} == {"DownloadProgress"}
        assert going[-1]["done"] == going[-1]["total"] > 0
        assert (done["event"], done["id"], done["path"]) == ("Downloaded", "some/tiny", out[0])
        assert "some/tiny" in [each["name"] for each in events()]
        hub.status = 404
        assert complaint("models", "--get", "some/none").startswith("The hub has no model some/none")
    assert "can't be downloaded now" in complaint("models", "--get", "some/none")
    assert complaint("models", "--get", "../x").startswith("../x is not a hub id.")
    assert complaint("models", "--get", "some/x", "dir").startswith("--get downloads into the hub's cache.")


def test_more_directories_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.VARIABLE, "before")
    screen._list_also([str(tmp_path), "other"])
    assert os.environ[places.VARIABLE] == os.pathsep.join([str(tmp_path), "other", "before"])
    with pytest.raises(EngineError, match="--models can't take 'a:b'"):
        screen._list_also(["a:b"])

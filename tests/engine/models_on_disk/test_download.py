"""Downloads from a hub on this machine: whole, cut, resumed, stopped, and what a hub may lie about."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

from engine.errors import Cancelled, LoadError
from engine.models_on_disk import hub_process
from engine.models_on_disk.download import PATTERNS, DownloadProgress, download, is_hub_id
from engine.models_on_disk.places import listed
from tests.engine.models_on_disk import made_up
from tests.engine.models_on_disk.hub import COMMIT, FakeHub, serving
from tests.system import python

SPEC = "some/tiny"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model that can be listed, and some that nobody asked for."""
    path = made_up.model(tmp_path_factory.mktemp("made"))
    files = {each.name: each.read_bytes() for each in path.iterdir()}
    return {
        **files,
        "empty.txt": b"",
        "below/more.json": b"{}",
        "README.md": b"no part of it",
        "original/weights.pth": b"not wanted",
    }


@pytest.fixture
def hub(content: dict[str, bytes]) -> Iterator[FakeHub]:
    with serving(FakeHub(dict(content))) as made:
        yield made


def fetched(hub: FakeHub, cache: Path, **more: str) -> tuple[Path, list[DownloadProgress]]:
    told: list[DownloadProgress] = []
    return download(SPEC, told.append, lambda: False, hub.environ(cache, **more)), told


def whole(path: Path, content: dict[str, bytes]) -> None:
    """Every wanted file is there as it is on the hub, and nothing else is."""
    names = {name for name in content if name != "README.md" and not name.endswith(".pth")}
    assert {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()} == names
    for name in names:
        assert (path / name).read_bytes() == content[name]


def test_a_model_comes_whole_and_is_found_by_the_hubs_own_library(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = fetched(hub, tmp_path)
    assert path == tmp_path / "models--some--tiny" / "snapshots" / COMMIT
    whole(path, content)
    assert (
        told[-1].done
        == told[-1].total
        == sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    )
    assert Path(snapshot_download(SPEC, cache_dir=tmp_path, local_files_only=True)) == path
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (model,) = (each for each in listed() if each.source == "hub")
    assert (model.name, model.problem, model.incomplete, model.notes) == (SPEC, "", False, ())
    count = len(hub.asked)
    fetched(hub, tmp_path)
    assert len(hub.asked) == count + 1  # the list alone


def test_the_patterns_are_those_of_mlx_lm() -> None:
    assert sorted(PATTERNS) == sorted(DEFAULT_ALLOW_PATTERNS)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_gone_on_with(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path, ranges: bool
) -> None:
    hub.cuts, hub.ranges = [1000, 70_000], ranges
    path, _ = fetched(hub, tmp_path)
    whole(path, content)
    asked = [wanted for name, wanted, _ in hub.asked if name.endswith("model.safetensors")]
    assert asked == ["", "bytes=1000-", "bytes=71000-" if ranges else "bytes=70000-"]


def test_a_stopped_download_ends_at_once_and_is_gone_on_with(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path
) -> None:
    hub.hold = threading.Event()
    half = len(content["model.safetensors"]) // 2
    part = tmp_path / "models--some--tiny" / "blobs"

    def arrived() -> bool:
        with suppress(FileNotFoundError):  # a small one that was whole since it was listed
            return any(each.stat().st_size >= half for each in part.glob("*.incomplete"))
        return False

    begun = 0.0

    def stopped() -> bool:
        nonlocal begun
        begun = time.monotonic()
        return arrived()

    with pytest.raises(Cancelled):
        download(SPEC, lambda _: None, stopped, hub.environ(tmp_path))
    assert time.monotonic() - begun < 5  # generous: the machine may be busy
    assert arrived()
    hub.hold.set()
    path, told = fetched(hub, tmp_path)
    whole(path, content)
    assert hub.asked[-1][1] == f"bytes={half}-" or f"bytes={half}-" in [wanted for _, wanted, _ in hub.asked]
    assert not [*part.glob("*.incomplete")]
    assert told[0].done >= half


def test_its_process_ends_with_whoever_started_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.hold = threading.Event()
    script = (
        "import os, sys; from engine.models_on_disk.download import download\n"
        "tell = lambda progress: (print('going', flush=True), os._exit(0)) if progress.done else None\n"
        f"download({SPEC!r}, tell, lambda: False)"
    )
    environ = {**os.environ, **hub.environ(tmp_path)}
    done = python(script, env=environ)
    assert (done.stdout, done.stderr) == ("going\n", "")
    end = time.monotonic() + 30
    while running(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.02)


def running(cache: Path) -> bool:
    """Whether a process still holds a file of a cache open."""
    for part in cache.rglob("*.incomplete"):
        with open(part, "rb") as file:
            try:
                hub_process.fcntl.flock(file, hub_process.fcntl.LOCK_EX | hub_process.fcntl.LOCK_NB)
            except OSError:
                return True
    return False


def test_the_token_goes_to_the_hub_alone(hub: FakeHub, content: dict[str, bytes], tmp_path: Path) -> None:
    with serving(FakeHub(dict(content)), "localhost") as other:
        hub.elsewhere = other.address
        path, _ = fetched(hub, tmp_path, HF_TOKEN="secret")
    whole(path, content)
    assert {authorization for _, _, authorization in hub.asked} == {"Bearer secret"}
    assert [authorization for _, _, authorization in other.asked] == [""]


@pytest.mark.wide(1)
@pytest.mark.parametrize("where", ["file:///etc/passwd#", "ftp://127.0.0.1/", "gopher://x/"])
def test_a_redirect_leads_to_no_other_protocol(hub: FakeHub, tmp_path: Path, where: str) -> None:
    hub.elsewhere = where
    with pytest.raises(LoadError, match=r"the hub (leads from http to|answered with status 302)"):
        fetched(hub, tmp_path)


LIES = {
    "longer": ({"stated": {"model.safetensors": 1000}}, "is larger than the hub states"),
    "another": ({"hashes": {"model.safetensors": "0" * 64}}, "has another hash than the hub states"),
    "config": ({"hashes": {"config.json": "0" * 40}}, "has another hash than the hub states"),
    "hash": ({"hashes": {"config.json": "../../../evil"}}, "list of its files can't be used"),
    "size": ({"stated": {"config.json": -1}}, "list of its files can't be used"),
    "large": ({"stated": {"model.safetensors": 2**60}}, "bytes are to come, and the disk has"),
}


@pytest.mark.wide(3)
@pytest.mark.parametrize("lie", LIES)
def test_what_the_hub_states_is_checked(hub: FakeHub, tmp_path: Path, lie: str) -> None:
    changes, words = LIES[lie]
    for name, value in changes.items():
        setattr(hub, name, value)
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    snapshot = tmp_path / "models--some--tiny" / "snapshots" / COMMIT
    assert not (snapshot / ("config.json" if lie in ("config", "hash") else "model.safetensors")).exists()


NAMES = (
    "../../../evil.json",
    "/evil.json",
    "a/../../../evil.json",
    "\x1b[2J.json",
    "a\\..\\b.json",
    "\u202eevil.json",
)


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_is_refused(hub: FakeHub, tmp_path: Path, name: str) -> None:
    hub.files[name] = b"evil"
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path / "cache")
    assert str(raised.value).isprintable()
    assert str(raised.value).isascii()
    assert not list(tmp_path.rglob("*evil*"))
    assert len(hub.asked) == 1


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, "RepoNotFound", "The hub has no model some/tiny, or not for you."),
        (401, "RepoNotFound", "The hub has no model some/tiny, or not for you."),
        (401, "GatedRepo", "The hub asks for a login to read some/tiny. Run `hf auth login`"),
        (403, "", "The hub asks for a login to read some/tiny."),
        (503, "", "some/tiny can't be downloaded now: the hub answered with status 503."),
    ],
)
def test_what_the_hub_answers_is_one_line(
    hub: FakeHub, tmp_path: Path, status: int, error: str, words: str
) -> None:
    hub.status, hub.error = status, error
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert str(raised.value).startswith(words)


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    "answer",
    [
        [],
        "",
        {"sha": COMMIT, "siblings": ["config.json"]},
        {"sha": COMMIT, "siblings": {"a": 1}},
        {"sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1, "blobId": "0" * 40, "lfs": [1]}]},
        {"sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1, "blobId": "0" * 40, "lfs": 5}]},
    ],
)
def test_an_odd_list_is_blamed_on_the_hub_and_not_on_the_network(
    hub: FakeHub, tmp_path: Path, answer: object
) -> None:
    hub.answer = answer
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert "the hub's list of its files can't be used" in str(raised.value)
    assert "network" not in str(raised.value)


def test_an_odd_answer_of_any_other_kind_is_no_fault_of_the_network(hub: FakeHub, tmp_path: Path) -> None:
    hub.elsewhere = "http://[/"
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert "some/tiny was not downloaded: the hub's answer can't be read" in str(raised.value)


def test_a_file_that_the_hub_lists_and_has_not_is_named(hub: FakeHub, tmp_path: Path) -> None:
    hub.missing = frozenset({"config.json"})
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert str(raised.value).startswith(
        "some/tiny was not downloaded: the hub lists config.json but does not have it (status 404)."
    )


def test_without_a_hub_it_says_so(tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path)}
    with pytest.raises(LoadError, match=r"some/tiny can't be downloaded now: .*refused\."):
        download(SPEC, lambda _: None, lambda: False, environ)
    with pytest.raises(LoadError, match="HF_HUB_OFFLINE is set"):
        download(SPEC, lambda _: None, lambda: False, {**environ, "HF_HUB_OFFLINE": "1"})
    for name in ("", "../x", "a/b/c", "a--b/c", "-x/y", "a/b\x1b", "http://x"):
        assert not is_hub_id(name)
        with pytest.raises(LoadError, match="is not a hub id"):
            download(name, lambda _: None, lambda: False, environ)


def test_what_is_broken_off_again_and_again_is_given_up(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, so that the pauses are short."""
    monkeypatch.setattr(hub_process, "PAUSE", 0.0)
    monkeypatch.setattr(hub_process, "tell", lambda **_: None)
    hub.cuts = [100, *[0] * 20]
    given = {"endpoint": hub.address, "token": "", "spec": SPEC, "patterns": PATTERNS, "cache": str(tmp_path)}
    with pytest.raises(OSError, match="the connection failed 5 times: it ended early"):
        hub_process.download(given)
    assert (
        sum(name.endswith("model.safetensors") for name, *_ in hub.asked) == 6
    )  # one of them brought something


def test_two_programs_dont_write_one_file(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.hold = threading.Event()
    path: list[Path] = []
    first = threading.Thread(target=lambda: path.append(fetched(hub, tmp_path)[0]))
    first.start()
    end = time.monotonic() + 60
    while not [*tmp_path.rglob("*.incomplete")] or not running(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.02)
    with pytest.raises(LoadError, match="another program is downloading it"):
        fetched(hub, tmp_path)
    hub.hold.set()
    first.join(60)
    whole(path[0], content)

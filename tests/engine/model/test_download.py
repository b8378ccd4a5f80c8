"""Downloads from a hub on this machine: whole, cut, resumed, stopped, and what a hub may lie about."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from huggingface_hub import errors, snapshot_download
from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

from engine.errors import Cancelled, LoadError
from engine.model.download import PATTERNS, DownloadProgress, _reason, download
from engine.models_on_disk.models import listed
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
    with patch.dict(os.environ, hub.environ(cache, **more)):
        return download(SPEC, told.append, lambda: False), told


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
    assert (tmp_path / "models--some--tiny" / "refs" / "main").read_text() == COMMIT
    whole(path, content)
    assert (
        told[-1].done
        == told[-1].total
        == sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    )
    assert (
        Path(
            snapshot_download(SPEC, cache_dir=tmp_path, allow_patterns=list(PATTERNS), local_files_only=True)
        )
        == path
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (model,) = (each for each in listed() if each.source == "hub")
    assert (model.name, model.problem, model.incomplete, model.notes) == (SPEC, "", False, ())
    count = len(hub.asked)
    fetched(hub, tmp_path)
    assert len(hub.asked) == count + 1  # the list alone


def test_the_patterns_are_those_of_mlx_lm() -> None:
    assert sorted(PATTERNS) == sorted(DEFAULT_ALLOW_PATTERNS)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_resumed(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path, ranges: bool
) -> None:
    """By huggingface_hub, within one download."""
    hub.cuts, hub.ranges = [70_000], ranges
    path, told = fetched(hub, tmp_path)
    whole(path, content)
    asked = [wanted for name, wanted, _ in hub.asked if name.endswith("model.safetensors")]
    assert asked == ["", "bytes=65536-"]
    assert all(each.done <= each.total for each in told)


def test_a_stopped_download_ends_at_once_and_the_next_one_fetches_what_did_not_come_whole(
    hub: FakeHub, content: dict[str, bytes], tmp_path: Path
) -> None:
    hub.hold = threading.Event()
    blobs, snapshots = (tmp_path / "models--some--tiny" / name for name in ("blobs", "snapshots"))
    begun = 0.0

    def stopped() -> bool:
        nonlocal begun
        begun = time.monotonic()
        parts = any(each.stat().st_size for each in blobs.glob("*.incomplete"))
        return parts and len([*snapshots.glob("*/*.json")]) == 2

    with patch.dict(os.environ, hub.environ(tmp_path)), pytest.raises(Cancelled):
        download(SPEC, lambda _: None, stopped)
    assert time.monotonic() - begun < 5  # generous: the machine may be busy
    assert not [*blobs.glob("*.incomplete")]
    with patch.dict(os.environ, {"HF_HUB_CACHE": str(tmp_path)}):
        (model,) = (each for each in listed() if each.source == "hub")
    assert model.incomplete
    assert model.spec == SPEC
    hub.hold.set()
    hub.asked.clear()
    path, told = fetched(hub, tmp_path)
    whole(path, content)
    assert [name.rpartition("/")[2] for name, *_ in hub.asked if "/resolve/" in name] == ["model.safetensors"]
    assert told[0].done >= len(content["config.json"])


def test_a_hub_that_is_slow_is_waited_for_and_its_bytes_are_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.hold = threading.Event()
    told: list[DownloadProgress] = []

    def tell(progress: DownloadProgress) -> None:
        told.append(progress)
        assert hub.hold is not None
        if progress.done > progress.total // 3:
            hub.hold.set()

    with patch.dict(os.environ, hub.environ(tmp_path)):
        download(SPEC, tell, lambda: False)
    assert told[0].done < told[-1].done == told[-1].total


def test_its_process_ends_with_whoever_started_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.hold = threading.Event()
    script = (
        "import os, sys; from engine.model.download import download\n"
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
    """True if a process is still downloading into a cache."""
    for lock in cache.glob(".locks/*/*.lock"):
        with open(lock, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    with pytest.raises(LoadError, match="protocol"):
        fetched(hub, tmp_path)


LIES = {
    "longer": (
        {"stated": {"model.safetensors": 1000}},
        "model.safetensors has another size than the hub states",
    ),
    "shorter": (
        {"stated": {"model.safetensors": 10**6}},
        "model.safetensors has another size than the hub states",
    ),
    "endless": ({"endless": True}, "a file is larger than the hub states"),
    "content": ({"wrong": {"model.safetensors": None}}, "has another hash than the hub states"),
    "file": ({"wrong": {"config.json": b"{}"}}, "config.json has another size than the hub states"),
    "tag": ({"tags": {"config.json": "../../../../evil"}}, "has another hash than the hub states"),
    "another": ({"hashes": {"model.safetensors": "0" * 64}}, "has another hash than the hub states"),
    "config": ({"hashes": {"config.json": "0" * 40}}, "has another hash than the hub states"),
    "hash": (
        {"hashes": {"config.json": "../../../evil"}},
        "the hub's answer can't be read (ValueError: its list of files",
    ),
    "size": (
        {"stated": {"config.json": -1}},
        "the hub's answer can't be read (ValueError: its list of files",
    ),
    "large": ({"stated": {"model.safetensors": 2**60}}, "bytes are to come, and the disk has"),
}


@pytest.mark.wide(3)
@pytest.mark.parametrize("lie", LIES)
def test_what_the_hub_states_is_checked(hub: FakeHub, tmp_path: Path, lie: str) -> None:
    changes, words = LIES[lie]
    for name, value in changes.items():
        setattr(hub, name, value)
    if lie == "content":
        hub.wrong = {"model.safetensors": bytes(len(hub.files["model.safetensors"]))}
    with pytest.raises(LoadError) as raised:
        fetched(hub, tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    snapshot = tmp_path / "models--some--tiny" / "snapshots" / COMMIT
    assert not list(tmp_path.parent.rglob("*evil*"))
    falsified = "config.json" if "config.json" in str(changes) else "model.safetensors"
    assert not (snapshot / falsified).exists()


NAMES = (
    "../../../evil.json",
    "/evil.json",
    "a/../../../evil.json",
    "\x1b[2J.json",
    "a\\..\\b.json",
    "\u202eevil.json",
    f"{'evil' * 64}.json",
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


@pytest.mark.parametrize(
    ("kind", "status", "key"),
    [
        (errors.RepositoryNotFoundError, 401, "none"),
        (errors.RepositoryNotFoundError, 403, "login"),
        (errors.RepositoryNotFoundError, 404, "none"),
        (errors.GatedRepoError, 401, "login"),
        (errors.GatedRepoError, 404, "login"),
        (errors.RevisionNotFoundError, 404, "none"),
        (errors.RemoteEntryNotFoundError, 404, "wrong"),
        (errors.HfHubHTTPError, 401, "login"),
        (errors.HfHubHTTPError, 403, "login"),
        (errors.HfHubHTTPError, 404, "none"),
        (errors.HfHubHTTPError, 429, "network"),
        (errors.HfHubHTTPError, 503, "network"),
    ],
)
def test_a_status_is_told_as_what_it_means(kind: type[errors.HfHubHTTPError], status: int, key: str) -> None:
    found, why = _reason(
        kind("No.", response=Mock(**{"status_code": status, "url.path": "/a/resolve/main/c%20d"}))
    )
    assert (found, str(status) in why) == (key, True)
    assert ("c d" in why) == (key == "wrong")


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    "answer",
    [
        [],
        "",
        {"sha": COMMIT, "siblings": ["config.json"]},
        {"sha": COMMIT, "siblings": {"a": 1}},
        {"id": SPEC, "sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1, "blobId": "0" * 40}] * 10_001},
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
    assert "the hub's answer can't be read" in str(raised.value)
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


def test_without_a_hub_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = FakeHub(address="http://127.0.0.1:9")
    with pytest.raises(LoadError, match=r"some/tiny can't be downloaded now: .*refused\."):
        fetched(nowhere, tmp_path)
    with pytest.raises(LoadError, match="HF_HUB_OFFLINE is set"):
        fetched(nowhere, tmp_path, HF_HUB_OFFLINE="1")
    for name in ("", "../x", "a/b/c", "a--b/c", "-x/y", "a/b\x1b", "http://x"):
        with (
            pytest.raises(LoadError, match="is not a hub id"),
            patch.dict(os.environ, nowhere.environ(tmp_path)),
        ):
            download(name, lambda _: None, lambda: False)


@pytest.mark.slow
def test_what_is_broken_off_again_and_again_is_given_up(hub: FakeHub, tmp_path: Path) -> None:
    """After huggingface_hub's five pauses of a second."""
    hub.cuts = [100, *[0] * 20]
    with pytest.raises(LoadError, match="some/tiny can't be downloaded now"):
        fetched(hub, tmp_path)
    assert len([name for name, *_ in hub.asked if name.endswith("model.safetensors")]) == 6
    assert not [*tmp_path.rglob("*.incomplete")]


def test_two_programs_dont_write_one_file(hub: FakeHub, content: dict[str, bytes], tmp_path: Path) -> None:
    hub.hold = threading.Event()
    path: list[Path] = []
    with patch.dict(os.environ, hub.environ(tmp_path)):
        first = threading.Thread(target=lambda: path.append(download(SPEC, lambda _: None, lambda: False)))
        first.start()
        end = time.monotonic() + 60
        while not [*tmp_path.rglob("*.incomplete")] or not running(tmp_path):
            assert time.monotonic() < end
            time.sleep(0.02)
        with pytest.raises(LoadError, match="another program is downloading it"):
            download(SPEC, lambda _: None, lambda: False)
        hub.hold.set()
        first.join(60)
    whole(path[0], content)


def test_what_a_download_left_that_was_ended_is_deleted_by_the_next(hub: FakeHub, tmp_path: Path) -> None:
    left = tmp_path / "models--some--tiny" / "blobs" / f"{'0' * 64}.12345678.incomplete"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    fetched(hub, tmp_path)
    assert not left.exists()

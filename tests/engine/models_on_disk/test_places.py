"""Where models are looked for."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from engine import pocket
from engine.models_on_disk.models import VARIABLE, hub_cache, listed
from tests.engine.models_on_disk import made_up


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory without models; the hub's cache is in its usual place."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def hub(home: Path) -> Path:
    return home / ".cache" / "huggingface" / "hub"


def test_the_bundled_model_is_always_there() -> None:
    (found,) = listed()
    assert (found.name, found.spec, found.source, found.problem) == ("pocket", "pocket", "bundled", "")
    assert found.path == pocket.directory()


def test_the_bundled_model_of_another_installation_is_no_second_one(tmp_path: Path) -> None:
    copy, changed = tmp_path / "other" / "engine" / "pocket", tmp_path / "changed"
    for path in (copy, changed):
        shutil.copytree(pocket.directory(), path)
    with (changed / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)
        last = weights.read(1)[0]
        weights.seek(-1, 2)
        weights.write(bytes([last ^ 1]))
    found = listed(recent=[str(copy), str(changed)])
    assert [(each.name, each.source) for each in found] == [("pocket", "bundled"), ("changed", "recent")]


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/h", "HF_HOME": "~/f"}, "/h/f/hub"),
        ({"HOME": "/h", "HF_HOME": "/f", "HF_HUB_CACHE": "/c"}, "/c"),
    ],
)
def test_the_cache_is_where_the_hub_has_it(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], place: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert hub_cache() == Path(place)


def test_every_place_and_each_model_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = made_up.model(made_up.repository(hub(home), "some/model"))
    made_up.model(home / ".lmstudio" / "models" / "publisher" / "studio")
    made_up.model(home / ".cache" / "lm-studio" / "models" / "publisher" / "older")
    mine = made_up.model(tmp_path / "given" / "a" / "mine")
    (tmp_path / "given" / "again").symlink_to(mine)
    (tmp_path / "given" / "around").symlink_to(tmp_path / "given")
    monkeypatch.setenv(VARIABLE, f"{tmp_path / 'given'}:{tmp_path / 'nowhere'}")
    used = made_up.model(tmp_path / "used")
    found = {each.name: each for each in listed(recent=[str(used), str(snapshot), str(tmp_path / "went")])}
    sources = {name: each.source for name, each in found.items()}
    assert sources == {
        "pocket": "bundled", "used": "recent", "some/model": "recent", "mine": "given", "nowhere": "given",
        "publisher/studio": "LM Studio", "publisher/older": "LM Studio",
    }  # fmt: skip
    assert found["some/model"].hub_id == "some/model"
    assert found["some/model"].spec == str(snapshot)
    assert found["nowhere"].problem.startswith("It can't be read: No such file or directory.")


def test_the_snapshot_is_that_of_main(home: Path) -> None:
    made_up.model(made_up.repository(hub(home), "a/b"), hidden_size=64)
    other = hub(home) / "models--a--b" / "snapshots" / "ffff"
    made_up.model(other, model_type="qwen2")
    assert [each.family for each in listed()][1:] == ["llama"]
    for ref in ("../../x", "gone", "x" * 2000, "\x00"):
        (hub(home) / "models--a--b" / "refs" / "main").write_text(ref)
        assert len(list(listed())) == 2


@pytest.mark.parametrize("left", ["nothing", "config", "link"])
def test_a_download_that_was_not_finished_can_be_gone_on_with(home: Path, left: str) -> None:
    snapshot = made_up.repository(hub(home), "a/b")
    (snapshot.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"x")
    if left == "nothing":
        snapshot.rmdir()
    else:
        made_up.model(snapshot)
        (snapshot / "model.safetensors").unlink()
    if left == "link":
        (snapshot / "model.safetensors").symlink_to("../../blobs/gone")
    _, found = listed()
    assert found.incomplete
    assert found.problem
    assert found.spec == "a/b"
    assert "1 file in part" in " ".join((found.problem, *found.notes))


def test_a_directory_without_models_is_said_to_have_none(tmp_path: Path) -> None:
    (tmp_path / "empty" / "a" / "b").mkdir(parents=True)
    (found,) = listed([str(tmp_path / "empty")])
    assert found.problem.startswith("There is no model in it.")


@pytest.mark.parametrize("name", ["x\x00y", "", "no/such", "/dev/zero", "/proc/self/fd/0"])
def test_a_place_that_is_none(name: str) -> None:
    found = list(listed([name] if name else ["."]))
    assert found
    assert all(each.problem for each in found if name)


def test_the_list_ends_where_it_is_asked_to(tmp_path: Path) -> None:
    for number in range(5):
        made_up.model(tmp_path / f"{number}")
    asked = iter([False, False, True])
    assert [each.name for each in listed([str(tmp_path)], stopped=lambda: next(asked))] == ["0", "1"]


def test_two_hundred_models_are_read_at_once(home: Path) -> None:
    """A sanity bound on the processor's time; some 0.2 s were measured on a machine of the size of a phone."""
    for number in range(200):
        made_up.model(made_up.repository(hub(home), f"some/model-{number}"))
    begun = time.process_time()
    assert len(list(listed())) == 201
    assert time.process_time() - begun < 5

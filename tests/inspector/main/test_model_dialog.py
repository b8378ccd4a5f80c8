"""The dialog that opens a model: what it lists, what is left of that as one types, and what enter opens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.errors import Cancelled, LoadError
from engine.memory import MemoryOf
from engine.model import download as downloading
from engine.model.download import DownloadProgress
from engine.models_on_disk import models as places
from engine.models_on_disk.models import DiskModel
from inspector.main.dialogs.model import ModelDialog
from inspector.widgets.canvas import Canvas
from inspector.widgets.fields import SafeInput
from tests.engine.models_on_disk import made_up
from tests.inspector.rig import Rig, run

HOSTILE = "evil[/x]\x1b[2J"


@pytest.fixture
def hub(models: Path) -> Path:
    """A hub's cache: a plain model, a quantized one whose name begins likewise, and two that can't be loaded."""
    made_up.model(made_up.repository(models, "some/tiny"))
    made_up.model(made_up.repository(models, "some/tiny-4bit"), made_up.llama(bits=4), model_type="qwen3")
    made_up.model(made_up.repository(models, f"other/{HOSTILE}"), model_type=HOSTILE)
    (made_up.model(made_up.repository(models, "some/half")) / "model.safetensors").unlink()
    return models


async def opened(rig: Rig) -> ModelDialog:
    """Open the dialog, and wait for the whole list."""
    await rig.ready()
    return await listed(rig)


async def listed(rig: Rig) -> ModelDialog:
    """The same in a session that is ready."""
    await rig.do("open")
    dialog = rig.app.top
    assert isinstance(dialog, ModelDialog)
    await rig.until(lambda: dialog._read, seconds=20)
    return dialog


def names(dialog: ModelDialog) -> list[str]:
    return [each if isinstance(each, str) else each.name for each in dialog.choices]


def loaded(rig: Rig) -> str:
    """What the engine was told to load; exactly one model."""
    (command,) = rig.engine.sent
    assert isinstance(command, protocol.Load)
    return command.settings.model


def remark(rig: Rig) -> str:
    return str(rig.app.top.query_one("#model-remark").render())


async def test_what_can_be_opened_comes_first_and_enter_opens_it(rig: Rig, hub: Path) -> None:
    dialog = await opened(rig)
    assert names(dialog) == ["pocket", "some/half", "some/tiny", "some/tiny-4bit", f"other/{HOSTILE}"]
    assert "5 models" in remark(rig)
    await rig.press("down", "down", "enter")
    assert loaded(rig) == str(hub / "models--some--tiny" / "snapshots" / "0123abcd")


async def test_it_filters_by_name_family_and_bits(rig: Rig, hub: Path) -> None:
    dialog = await opened(rig)
    field = rig.app.top.query_one("#model-name", SafeInput)
    for text, left in {
        "TINY": ["some/tiny", "some/tiny-4bit", "TINY"],
        "qwen3": ["some/tiny-4bit", "qwen3"],
        "some bf16": ["some/tiny", "some bf16"],
        "bundled": ["pocket", "bundled"],
        "none such": ["none such"],
        "some/tiny": ["some/tiny", "some/tiny-4bit"],
        "some/tin": ["some/tin", "some/tiny", "some/tiny-4bit"],
        "": ["pocket", "some/half", "some/tiny", "some/tiny-4bit", f"other/{HOSTILE}"],
    }.items():
        field.value = text
        await rig.pilot.pause()
        assert names(dialog) == left, text
        assert dialog.picks.highlighted == 0
    await rig.press(*"qwen", "enter")
    assert loaded(rig).endswith("models--some--tiny-4bit/snapshots/0123abcd")


@pytest.mark.wide(2)
@pytest.mark.parametrize("text", ["/no/where", "./here", "~/models", "a/b/c"])
async def test_a_path_that_cannot_be_opened_stays_with_the_reason(rig: Rig, hub: Path, text: str) -> None:
    await opened(rig)
    field = rig.app.top.query_one("#model-name", SafeInput)
    field.value = text
    await rig.pilot.pause()
    await rig.press("enter")
    assert rig.engine.sent == []
    assert field.value == text
    assert remark(rig) == f"No such directory: {text}. Check the path's spelling."
    field.value = str(hub)
    await rig.pilot.pause()
    await rig.press("enter")
    assert "has no config.json" in remark(rig)


@pytest.mark.wide(2)
@pytest.mark.parametrize("text", ["{}/models--some--tiny/snapshots/0123abcd", "pocke?"])
async def test_a_path_is_opened_as_it_was_typed_also_where_a_model_begins_so(
    rig: Rig, hub: Path, text: str
) -> None:
    text = text.format(hub)
    await opened(rig)
    rig.app.top.query_one("#model-name", SafeInput).value = text
    await rig.pilot.pause()
    await rig.press("enter")
    assert loaded(rig) == text


async def test_why_a_model_cant_be_opened_is_said_and_nothing_is_sent(rig: Rig, hub: Path) -> None:
    await opened(rig)
    await rig.press("end", *["down"] * 4)
    assert "mlx_lm has no family evil[/x]␛[2J" in rig.screen_text()
    assert "\x1b" not in rig.screen_text()
    await rig.press("enter")
    assert isinstance(rig.app.top, ModelDialog)
    assert remark(rig).startswith("mlx_lm has no family evil[/x]␛[2J")
    assert rig.engine.sent == []


async def test_what_is_missing_of_a_hubs_model_is_downloaded_by_its_id(
    rig: Rig, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        downloading, "download", lambda spec, *_: pytest.fail(spec) if spec != "some/half" else hub
    )

    await opened(rig)
    await rig.press("down")
    assert "downloads what is missing" in rig.screen_text()
    await rig.press("enter")
    await rig.until(lambda: "some/half is on the disk now" in download_line(rig))


def download_line(rig: Rig) -> str:
    return str(rig.app.top.query_one("#model-download").render())


class FakeDownloads:
    """In the place of the download: goes on as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: list[str] = []
        self.go_on, self.ended = threading.Event(), threading.Event()
        self.fails: LoadError | None = None
        self.then: Callable[[], object] = lambda: None
        monkeypatch.setattr(downloading, "download", self._download)

    def _download(
        self, spec: str, tell: Callable[[DownloadProgress], None], stopped: Callable[[], bool]
    ) -> Path:
        self.specs.append(spec)
        tell(DownloadProgress(3 * 2**20, 12 * 2**20, 2**20))
        try:
            while not self.go_on.wait(0.01):
                if stopped():
                    raise Cancelled
            if self.fails is not None:
                raise self.fails
            self.then()
            return Path("there")
        finally:
            self.ended.set()


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_an_id_that_is_not_on_the_disk_is_downloaded_while_the_session_goes_on(
    rig: Rig, hub: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    fake = FakeDownloads(monkeypatch)
    fake.then = lambda: made_up.model(made_up.repository(hub, "some/new"))

    await opened(rig)
    await rig.press(*"some/new", "enter")
    await rig.until(lambda: "3 MiB of 12 MiB, 1 MiB/s, about 9 s left" in download_line(rig))
    if size[1] > 12:
        assert "3 MiB of 12 MiB" in rig.screen_text()
    rig.app.top.query_one("#model-name", SafeInput).value = "some/other"
    await rig.pilot.pause()
    await rig.press("enter")
    assert remark(rig) == "some/new is being downloaded: wait, or stop that first"
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    await rig.press("space")
    assert rig.engine.names == ["TakeStep"]
    rig.engine.sent.clear()
    await rig.do("open")
    assert "Downloading some/new" in download_line(rig)
    rig.app.top.query_one("#model-name", SafeInput).value = "some/new"
    fake.go_on.set()
    await rig.until(lambda: "some/new" in names(rig.app.top))
    dialog = rig.app.top
    await rig.until(lambda: isinstance(dialog.picked, DiskModel) and dialog.picked.name == "some/new")
    assert download_line(rig) == "some/new is on the disk now: ⏎ opens it"
    await rig.press("enter")
    assert loaded(rig) == str(hub / "models--some--new" / "snapshots" / "0123abcd")
    assert fake.specs == ["some/new"]


async def test_enter_stops_a_download_and_goes_on_with_it(
    rig: Rig, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeDownloads(monkeypatch)

    await opened(rig)
    await rig.press(*"some/new", "enter")
    await rig.until(lambda: fake.specs)
    await rig.press("enter")
    await rig.until(lambda: "was stopped; its files are kept" in download_line(rig))
    assert fake.ended.is_set()
    fake.fails = LoadError("The hub has no model some/new [b]\x1b.", "Check the name.")
    fake.go_on.set()
    await rig.until(lambda: rig.app.top._read)  # type: ignore[attr-defined]
    await rig.press("enter")
    await rig.until(
        lambda: download_line(rig).startswith("The hub has no model some/new [b]␛. Check the name.")
    )
    assert fake.specs == ["some/new", "some/new"]
    assert rig.engine.sent == []


def test_the_programs_end_ends_a_download(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDownloads(monkeypatch)

    async def test(rig: Rig) -> None:
        await opened(rig)
        await rig.press(*"some/new", "enter")
        await rig.until(lambda: fake.specs)

    run(test)
    assert fake.ended.wait(60)


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_the_facts_are_in_sight_before_it_is_loaded(rig: Rig, hub: Path, size: tuple[int, int]) -> None:
    await opened(rig)
    await rig.press("down", "down")
    text = rig.screen_text()
    assert "tiny" in text
    assert "fits" in text
    for part in ("90.4 k", "179 KiB", "fits in", "2,048 tokens") if size[0] >= 80 else ():
        assert part in text, part


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("of", "free", "fate"),
    [
        ("machine", "free", "the machine would swap, or end the program"),
        ("metal", "free of what Metal recommends", "macOS would swap, or end the program"),
        ("gpu", "free on the GPU", "loading it would run out of memory"),
    ],
)
async def test_what_a_model_can_take_is_told_by_whose_memory_it_is(
    rig: Rig, hub: Path, of: MemoryOf, free: str, fate: str
) -> None:
    await rig.ready()
    present = rig.app.controller.timeline
    assert present.facts is not None
    present.facts = replace(present.facts, weight_bytes=0, free_bytes=1024, memory_of=of)
    await listed(rig)
    assert f"1 KiB {free}. Type" in remark(rig)
    await rig.press("down", "down")
    rows = rig.app.top.query_one("#model-chosen", Canvas).draw(width=200, height=20)
    chosen = ["".join(segment.text for segment in row) for row in rows]
    assert f"memory       its weights don't fit in the 1 KiB that are {free}: {fate}" in chosen


async def test_leaving_ends_the_reading(rig: Rig, hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread waits in the middle of the list: keys are answered meanwhile, and closing the dialog ends it."""
    quick = places.listed
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(**arguments: object) -> Iterator[DiskModel]:
        try:
            for number, each in enumerate(quick(**arguments)):  # type: ignore[arg-type]
                yield each
                if number == 1:
                    begun.set()
                    go_on.wait(20)
        finally:
            ended.set()

    monkeypatch.setattr(places, "listed", slow)
    read: list[int] = []
    monkeypatch.setattr(ModelDialog, "_found", lambda self, models, whole: read.append(len(models)))

    await rig.ready()
    await rig.do("open")
    await rig.until(begun.is_set, seconds=20)
    await rig.press(*"abc")
    assert rig.app.top.query_one("#model-name", SafeInput).value == "abc"
    await rig.press("escape")
    assert rig.app.top is rig.app.main
    go_on.set()
    await rig.until(ended.is_set, seconds=20)
    assert 5 not in read

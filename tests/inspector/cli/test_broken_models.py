"""Model directories that are broken, each in one way: one line and status 2, soon and in little memory.

Each case is run in a process of its own in the slow tests, which measure it; every twelfth one within this process in
the others. All of them are opened from the running screen in the slow tests, one after another, and some in the others.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.cli import main as cli
from tests import broken_models, synthetic
from tests.broken_models.places import CLOSED
from tests.inspector.views.sampler.test_what_if_real import until
from tests.system import bytes_of
from tests.zoo import CONFIGS

SECONDS, LARGEST = 10, 2**30
ROOT = os.geteuid() == 0
CASES = [
    pytest.param(name, marks=pytest.mark.skipif(ROOT and name in skipped, reason="root can read everything"))
    for skipped in [{f"place-{name}" for name in CLOSED}]
    for name in broken_models.CASES
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that loads."""
    return synthetic.write(tmp_path_factory.mktemp("good") / "model", CONFIGS["llama"])


@pytest.fixture(scope="module")
def worst() -> Iterator[dict[str, tuple[float, str]]]:
    """The longest time and the most memory, and whose they were; printed at the end."""
    found: dict[str, tuple[float, str]] = {}
    yield found
    print(f"\nworst of the broken directories: {found}", file=sys.__stderr__)


def broken(good: Path, directory: Path, name: str) -> Path:
    made = broken_models.copied(good, directory / "broken")
    broken_models.CASES[name](made)
    return made


def command(name: str, directory: Path) -> list[str]:
    return ["generate", *broken_models.flags(name, directory), "-p", "hi", "--max-tokens", "1"]


def check(line: str) -> None:
    assert line.startswith("inspector: error: ")
    assert line.count("\n") == 1
    assert line.endswith((".\n", "?\n"))
    assert "fault of the program" not in line
    assert "Traceback" not in line


def test_there_are_many() -> None:
    assert len(broken_models.CASES) >= 180


def test_the_model_that_they_are_made_of_loads(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command("config-missing", good)) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", CASES[::12])
def test_it_is_one_line(good: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = broken(good, tmp_path, name)
    assert cli.main(command(name, directory)) == 2
    check(capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_one_line_soon_and_in_little_memory(
    good: Path, tmp_path: Path, name: str, worst: dict[str, tuple[float, str]]
) -> None:
    directory, told = broken(good, tmp_path, name), tmp_path / "told"
    began = time.perf_counter()
    with told.open("w+b") as errors, (tmp_path / "out").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "inspector", *command(name, directory)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors, preexec_fn=_limited,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
    assert process.returncode == 2, told.read_text()[:2000]
    check(told.read_text())
    assert (tmp_path / "out").read_bytes() == b""
    processor = used.ru_utime + used.ru_stime  # the machine may be busy with other tests
    assert processor < SECONDS
    assert bytes_of(used) < LARGEST
    for what, value in (
        ("seconds", seconds),
        ("of processor time", processor),
        ("MiB", bytes_of(used) / 2**20),
    ):
        worst[what] = max(worst.get(what, (0.0, "")), (round(value, 1), name))


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if sys.platform != "darwin":  # which knows no limit of memory; what was used is looked at afterwards
        resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))


async def opened_in_the_screen(good: Path, directory: Path, names: list[str]) -> None:
    """Open broken directories one after another, each told in the text's place; then a good one."""
    app = InspectorApp(LoadSettings(str(good)), Settings(temp=0.0, max_tokens=2), Prefill("Once", True))
    notices: list[str] = []
    app.announce = lambda text, title, severity="information": notices.append(title)  # type: ignore[assignment,misc]

    async with app.run_test(size=(120, 40)) as pilot:
        controller = app.controller
        idle = lambda: not controller.client.outstanding  # noqa: E731
        failure = lambda: controller.timeline.load_failure or controller.timeline.prompts.failure  # noqa: E731

        def text() -> str:
            """What stands in the left half, without blanks and frames: a long path is wrapped anywhere."""
            rows = app.screen._compositor.render_strips()
            return "".join("".join(row.crop(0, 60).text.strip(" │") for row in rows).split())

        await until(lambda: controller.timeline.prompts.prefilled and idle(), 240)
        for number, name in enumerate(names):
            made = broken(good, directory / str(number), name)
            notices.clear()
            given = broken_models.flags(name, made)[1::2]
            controller.setup.open(LoadSettings(*given[:1], adapter_path=(given[1:] or [None])[0]))
            await until(lambda: idle() and failure(), 240)
            assert failure().expected, name
            await pilot.pause()
            assert "couldnotbeloaded" in text() or "Thepromptwasrefused" in text(), name
            assert notices == [], name
        controller.setup.open(LoadSettings(str(good)))
        await until(lambda: idle() and controller.timeline.prompts.prefilled, 240)
        await pilot.press("space")
        await until(lambda: idle() and controller.timeline.steps)
    assert app.closed_in_time


async def test_the_screen_lives_on(good: Path, tmp_path: Path) -> None:
    names = [
        "place-gone", "config-missing", "config-layers-1e9", "config-rope-theta-text", "weights-pipe",
        "weights-cut-data", "tokenizer-merges-numbers", "tokenizer-length-text",
        "tokenizer-template-gigabytes", "adapter-none",
    ]  # fmt: skip
    await opened_in_the_screen(good, tmp_path, names)


@pytest.mark.slow
async def test_the_screen_lives_on_after_each(good: Path, tmp_path: Path) -> None:
    readable = [name for name in broken_models.CASES if not (ROOT and name.removeprefix("place-") in CLOSED)]
    await opened_in_the_screen(good, tmp_path, readable)

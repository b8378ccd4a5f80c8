"""The recorded batch and second model: what is in them, and that they are shown where there is no MLX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from engine import pocket
from engine.model.facts import fingerprint
from engine.protocol import (
    BatchCompared,
    BatchEnded,
    LaneCompared,
    LockstepOpened,
    LockstepRead,
    Marked,
    ModelFacts,
    Record,
    Step,
    WaysParted,
)
from engine.recording import load
from inspector.cli.subcommands.recordings import named
from inspector.demo import SCENES
from tests.make_demo.record import record_scene
from tests.system import without_mlx

LIMIT = 200_000
"""Bytes."""
EACH = pytest.mark.parametrize("name", list(SCENES))


def told(name: str) -> list[object]:
    return [entry.value for entry in load(SCENES[name]).entries]


@EACH
def test_it_is_whole_and_small_and_of_the_bundled_model(name: str) -> None:
    trace = load(SCENES[name])
    assert SCENES[name].stat().st_size < LIMIT
    assert trace.torn == 0
    facts = next(each for each in told(name) if isinstance(each, ModelFacts))
    assert facts.fingerprint == fingerprint(pocket.directory()), (
        "record it again: python -m tests.make_demo.record"
    )
    assert not re.search(r"/(home|root|tmp|Users|work)/", repr(told(name)))
    captions = [each for each in told(name) if isinstance(each, Marked)]
    assert len(captions) >= 3
    assert {each.tool for each in captions} == {name.replace("-", "_")}


def test_the_batch_has_lanes_that_wait_join_and_end_and_each_alone() -> None:
    values = told("batch")
    compared = [each for each in values if isinstance(each, LaneCompared)]
    assert len(compared) == 5
    assert all(each.within for each in compared)
    both = next(each for each in values if isinstance(each, BatchCompared))
    assert both.together_ms < both.alone_ms  # as its caption says
    assert any(isinstance(each, BatchEnded) for each in values)


def test_the_second_model_has_other_top_tokens_and_continuations_that_diverge() -> None:
    values = told("second-model")
    assert next(each for each in values if isinstance(each, LockstepOpened)).facts.quantization
    spans = [span for each in values if isinstance(each, LockstepRead) for span in each.spans]
    assert any(span.same_top is False for span in spans)
    assert next(each for each in values if isinstance(each, WaysParted)).parted is not None


FIGURES: Mapping[str, Callable[[list[Record]], object]] = {
    "batch": lambda found: [
        (token.lane, token.id) for each in found if hasattr(each, "tokens") and hasattr(each, "rows")
        for token in each.tokens
    ],
    "second-model": lambda found: [(each.id) for each in found if isinstance(each, Step)],
}  # fmt: skip


@pytest.mark.slow
@EACH
def test_it_says_what_the_model_says_now(name: str, tmp_path: Path) -> None:
    record_scene(name, tmp_path / "a.trace.zst")
    now = [entry.value for entry in load(tmp_path / "a.trace.zst").entries]
    assert FIGURES[name](now) == FIGURES[name](told(name)) != []  # type: ignore[arg-type]


SHOWN = """
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.demo import SCENES
from inspector.session.playback import Opening
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig
name, play = sys.argv[1], sys.argv[2] == "play"
engine = FakeEngine()
opening = Opening(SCENES[name], play=play, speed=float("inf"))
app = InspectorApp(LoadSettings(), Settings(), engine=engine, trace=opening)
async def body():
    async with app.run_test(size=(120, 40)) as pilot:
        rig = Rig(pilot, engine, None)
        if play:
            await rig.until(lambda: app.top is not app.main and sys.argv[3] in rig.screen_text())
            print("opened", type(app.top).__name__)
            return
        await rig.until(lambda: app.playback.player is not None and app.playback.player.at_end)
        await rig.press(*{"batch": "5b", "second-model": "4h"}[name])
        print(rig.screen_text())
        await rig.press("w")
        print(rig.screen_text())
run_quickly(body())
print("sent", len(engine.sent))
"""


def shown(name: str, *how: str) -> str:
    """What a program without MLX shows of a scene."""
    *lines, sent = without_mlx(SHOWN, name, *how)
    assert sent == "sent 0"
    return "\n".join(lines)


@pytest.mark.wide(1)
@EACH
def test_it_is_shown_where_there_is_no_mlx(name: str) -> None:
    words = {
        "batch": ("Batch · recorded", "5 of 5 lanes equal", "times faster", "Tom had a"),
        "second-model": (
            "recorded · A pocket · B pocket, 4-bit",
            "≠",
            "continues for",
            "They diverge after",
        ),
    }
    text = shown(name, "at its end")
    for each in words[name]:
        assert each in text


@pytest.mark.wide(1)
@EACH
def test_a_caption_opens_what_it_speaks_of(name: str) -> None:
    *_, last = (each for each in told(name) if isinstance(each, Marked))
    screen = {"batch": "BatchView", "second-model": "SecondModelView"}[name]
    assert f"opened {screen}" in shown(name, "play", last.caption)


@EACH
def test_its_name_opens_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(name) == (SCENES[name], True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a file of one's own")
    assert named(name) == (Path(name), False)

"""The command palette: what is found by the words that people type, on the main screen and in tools."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from inspector.main.key_table import key_table
from inspector.main.palette import SYNONYMS, fit
from inspector.tools.registry import TOOLS
from tests.inspector.rig import Rig

TABLE = key_table(TOOLS)
OTHERS = {"Theme": "Choose among all themes", "Screenshot": "Save a picture of the screen as SVG"}


def found(typed: str) -> list[str]:
    """Ids of what fits, the best first."""
    scores = {each.id: fit(typed, each.label, each.told, each.synonyms) for each in TABLE.actions}
    scores |= {name: fit(typed, name, told, SYNONYMS[name]) for name, told in OTHERS.items()}
    return sorted((id for id, score in scores.items() if score), key=lambda id: -scores[id])


def told(rig: Rig) -> str:
    """The notices."""
    return " ".join(each.message for each in rig.app._notifications)


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("ablation", "interventions"), ("knock out", "interventions"), ("knockout", "interventions"),
        ("knock", "interventions"), ("switch off", "interventions"), ("speed", "race"), ("embedding", "positions"),
        ("two models", "lockstep"), ("second model", "lockstep"), ("logit lens", "lens"), ("lens", "lens"),
        ("attention", "attention"), ("attention head", "attention"), ("saliency", "attribution"),
        ("temperature", "sampling"), ("seed", "sampling"), ("top k", "sampling"), ("quantization", "compare_kv"),
        ("beam search", "beams"), ("JSON", "grammar"), ("regex", "grammar"), ("undo", "undo"), ("save", "save_as"),
        ("share", "export"), ("latency", "profile"), ("draft", "speculation"), ("speculative decoding", "speculation"),
        ("moe", "experts"), ("patching", "patching"), ("causal tracing", "patching"), ("chat", "reply"),
        ("odds", "draws"), ("bookmark", "bookmark"), ("compare", "compare"), ("quit", "quit"), ("exit", "quit"),
        ("tree", "tree"), ("screenshot", "Screenshot"), ("memory", "compare_kv"), ("entropy", "metric"),
        ("open model", "open"), ("tokenizer", "tokens"), ("tutorial", "lessons"), ("wtt", "why"),
    ],
)  # fmt: skip
def test_the_field_s_words_find_the_tool(typed: str, id: str) -> None:
    assert id in found(typed)[:4], found(typed)


def test_letters_alone_find_nothing_where_words_do() -> None:
    assert "save_as" not in found("logit lens")
    assert found("xqzv") == []


def test_every_action_is_found_by_its_name() -> None:
    for action in TABLE.actions:
        assert action.id in found(action.label)[:4], action.id
    assert set(SYNONYMS) == set(OTHERS)


async def test_the_picture_of_the_screen_is_the_last_of_what_is_offered(rig: Rig) -> None:
    await rig.ready()
    await rig.press("ctrl+p")
    await rig.until(lambda: "Step" in rig.screen_text() and "Show" not in rig.screen_text()[:200])
    [palette] = rig.app.screen.query("CommandList")
    names = [palette.get_option_at_index(place).hit.text for place in range(palette.option_count)]
    assert names[0] == TABLE.actions[0].label
    assert names[-2:] == ["Theme", "Screenshot"]


async def test_in_a_tool_its_own_keys_are_found_and_those_of_the_main_screen(rig: Rig) -> None:
    await rig.ready()
    await rig.press("A")
    await rig.from_palette("sort", "Sort")
    await rig.until(lambda: rig.app.main.host.over == "attention")
    await rig.from_palette("lens", "Lens")
    await rig.until(lambda: rig.app.main.host.over == "lens")
    await rig.from_palette("dark or light", "Dark or light")


@pytest.mark.parametrize("there", [True, False])
async def test_a_picture_of_the_screen_is_saved_with_and_without_a_folder_for_downloads(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    downloads, here = tmp_path / "Downloads", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(platformdirs, "user_downloads_path", lambda: downloads)
    if there:
        downloads.mkdir()

    await rig.ready()
    await rig.from_palette("screenshot", "Screenshot")
    folder = downloads if there else here
    await rig.until(lambda: [*folder.glob("*.svg")])
    assert "<svg" in next(folder.glob("*.svg")).read_text(encoding="utf-8")
    await rig.until(lambda: str(folder) in told(rig))


async def test_a_picture_that_cannot_be_saved_has_a_reason(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_downloads_path", lambda: tmp_path)

    await rig.ready()
    monkeypatch.setattr(
        rig.app,
        "save_screenshot",
        lambda **how: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    await rig.from_palette("screenshot", "Screenshot")
    await rig.until(lambda: "No space left on device" in told(rig))

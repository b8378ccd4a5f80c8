"""Text can be read: WCAG's 4.5:1 between every ink and its ground, as they are painted, in both themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.color import ColorSystem
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.theme import BUILTIN_THEMES

from engine.settings import Settings
from inspector.scales import HEAT, STEPS
from inspector.scales import contrast as ratio
from inspector.widgets.inks import LEAST, contrast, readable
from tests.inspector.main.test_overlays import OVERLAYS, branched
from tests.inspector.rig import Rig

THEMES = ("textual-dark", "textual-light")
PANELS = ("candidates", "steps", "kv", "timing", "why", "grammar_expects", "tree", "keep", "look_ahead", "earlier",
          "first", "enlarge")  # fmt: skip
"""Actions that show a panel, or another part of one."""
GRAPHIC = ((0x2500, 0x259F), (0x25CF, 0x25CF), (0x2800, 0x28FF))
"""Lines, blocks, the mark of the draw and braille: no text. Bars and frames carry nothing that no number says."""


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a dialog looks at is empty."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#777777", "#ffffff", 4.48),
        ("#767676", "#ffffff", 4.54),
        ("#0000ff", "#ff0000", 2.15),
    ],
)
def test_the_ratio_is_that_of_wcag(one: str, other: str, ratio: float) -> None:
    assert contrast(Color.parse(one), Color.parse(other)) == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("theme", [name for name in BUILTIN_THEMES if not name.startswith("ansi")])
def test_every_theme_is_made_readable(theme: str) -> None:
    colours = BUILTIN_THEMES[theme].to_color_system().generate() | BUILTIN_THEMES[theme].variables
    made = readable(colours)
    for ground in (Color.parse(made[name]) for name in ("background", "surface", "panel")):
        for name in (
            "text-muted",
            "text-disabled",
            "text-accent",
            "text-warning",
            "text-error",
            "text-primary",
        ):
            share = (
                float(made[name].removeprefix("auto ").removesuffix("%")) / 100 if "auto" in made[name] else 0
            )
            ink = ground + ground.get_contrast_text(share) if share else Color.parse(made[name])
            assert contrast(ink, ground) >= LEAST, (name, ground)


def test_the_terminals_own_colours_are_left_alone() -> None:
    colours = BUILTIN_THEMES["ansi-dark"].to_color_system().generate()
    made = readable(colours)
    assert {name: made[name] for name in colours} == colours


async def test_a_key_that_means_nothing_is_grey(rig: Rig) -> None:
    """The toolkit takes a share of black or white for all of it, in what a widget renders as one content."""

    rig.app.console._color_system = ColorSystem.TRUECOLOR
    rig.app.refresh_css()
    await rig.pilot.pause()
    greys = ratios_of_the_last_line(rig)
    await rig.ready()
    assert max(greys.values()) < min(ratios_of_the_last_line(rig)[key] for key in ("space", "r"))


def ratios_of_the_last_line(rig: Rig) -> dict[str, float]:
    """Contrast of the keys that mean nothing without a distribution."""
    strip = rig.app.screen._compositor.render_strips()[-1]
    return {
        each.text: painted_contrast(each.style)
        for each in strip
        if each.style and each.text in ("space", "r", "w")
    }


@pytest.mark.parametrize("dark", [True, False])
def test_heat_can_be_read(dark: bool) -> None:
    assert min(ratio(*HEAT[step, dark]) for step in range(1, STEPS + 1)) >= LEAST


@pytest.mark.wide(1)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.screen(settings=Settings(temp=0.8, top_p=0.5))
async def test_all_that_is_painted_can_be_read(rig: Rig, theme: str) -> None:
    rig.app.console._color_system = ColorSystem.TRUECOLOR
    rig.app.theme = theme
    await rig.pilot.pause()
    faint = [*painted(rig, "loading")]
    await branched(rig)
    assert "top-p" in rig.screen_text()  # rows that a stage cut
    faint += painted(rig, "the main screen")
    for action in (*PANELS, *OVERLAYS):
        await rig.do(action)
        faint += painted(rig, action)
        if rig.app.top is not rig.app.main:
            rig.app.top.dismiss()
            await rig.until(lambda: rig.app.top is rig.app.main)
    assert faint == []


def painted(rig: Rig, where: str) -> Iterator[str]:
    """The texts on screen that can't be read; what lies under a dialog is dimmed, and looked at by itself."""
    areas = on_top(rig)
    for y, strip in enumerate(rig.app.screen._compositor.render_strips()):
        x = 0
        for segment in strip:
            text, style = segment.text.strip(), segment.style or Style()
            if text and not is_graphic(text) and any(area.contains(x, y) for area in areas):
                found = painted_contrast(style)
                if found < LEAST:
                    yield f"{where}: {text!r} {found:.2f}"
            x += segment.cell_length


def on_top(rig: Rig) -> list[Region]:
    """Where the screen or the dialog on top paints."""
    screen = rig.app.top
    boxes = [box.region for box in screen.query("#dialog, #--container")]
    return [*boxes, *(line.region for line in screen.query("KeyLine"))] if boxes else [screen.region]


def is_graphic(text: str) -> bool:
    """Whether a text has nothing to read."""
    return all(char == " " or any(low <= ord(char) <= high for low, high in GRAPHIC) for char in text)


def painted_contrast(style: Style) -> float:
    """Contrast of what a style paints; reversed and dim ones as they come out."""
    assert style.color is not None
    assert style.bgcolor is not None
    ink, ground = style.color.get_truecolor(), style.bgcolor.get_truecolor()
    assert not style.dim, "the toolkit resolves dim text before it paints"
    return ratio(ground, ink) if style.reverse else ratio(ink, ground)

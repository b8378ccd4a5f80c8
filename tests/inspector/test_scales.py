"""Numbers that stay honest, heat in steps, and colours that can be read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorSystem

from inspector import scales
from inspector.scales import METRIC, METRICS, STEPS
from inspector.widgets.token_lines import heat_style
from tests.inspector.fakes import session


def test_numbers_have_a_sign_and_nothing_has_none() -> None:
    values = (1.234, -0.5, 0.0, -0.001)
    assert [scales.signed(value) for value in values] == ["+1.23", "−0.50", "0.00", "0.00"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"), (0.9996, "99.96 %"), (0.99999, ">99.99 %"), (0.612, "61.20 %"), (0.0004, "0.04 %"),
        (0.0001, "0.01 %"), (0.00003, "<0.01 %"), (0.0, "0 %"),
    ],
)  # fmt: skip
def test_percent(share: float, text: str) -> None:
    assert scales.percent(share) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_percent_never_rounds_to_certainty_or_to_nothing(share: float) -> None:
    assert scales.percent(share) not in {"100 %", "100.00 %", "0 %", "0.00 %"}


def test_a_small_share_has_its_first_figure() -> None:
    assert [scales.share(each) for each in (0.5, 3e-6, 3e-7)] == ["50.00 %", "0.0003 %", "<0.0001 %"]


def test_a_strength_has_a_true_minus() -> None:
    assert [scales.times(each) for each in (2.0, -0.5)] == ["x2", "x−0.5"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (124_928, "122 KiB"), (1_572_864, "1.5 MiB"),
     (1023 * 1024, "1 MiB"), (5 * 2**30, "5 GiB")],
)  # fmt: skip
def test_size(value: int, text: str) -> None:
    assert scales.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.064, "0.06 ms"), (0.999, "1.0 ms"), (8.13, "8.1 ms"), (123.4, "123 ms"), (1500, "1.50 s")],
)
def test_milliseconds(value: float, text: str) -> None:
    assert scales.milliseconds(value) == text


def test_counts_rates_and_amounts() -> None:
    assert scales.count(4086) == "4,086"
    assert scales.rate(121.4) == "121 tok/s"
    assert scales.rate(8.42) == "8.4 tok/s"
    assert scales.amount(7_340_032) == "7.34 M"
    assert scales.amount(124_000_000) == "124 M"
    assert scales.bits(-0.0) == "0.00"


def test_heat_is_calm_until_the_first_threshold_and_then_rises() -> None:
    probability, surprisal, rank = METRIC["probability"], METRIC["surprisal"], METRIC["rank"]
    assert [probability.step(p) for p in (0.9, 0.25, 0.2, 0.07, 0.03, 0.005, 0.0001)] == [0, 0, 1, 2, 3, 4, 5]
    assert [surprisal.step(b) for b in (0.0, 1.99, 2.0, 3.5, 5.0, 7.0, 20.0)] == [0, 0, 1, 2, 3, 4, 5]
    assert [rank.step(r) for r in (1, 2, 101)] == [0, 1, 5]
    assert surprisal.step(None) == 0
    assert surprisal.level(20.0) == 1.0


@pytest.mark.parametrize("name", METRICS)
def test_the_steps_of_a_metric_go_the_way_in_which_it_gets_hotter(name: str) -> None:
    metric = METRIC[name]
    assert list(metric.steps) == sorted(metric.steps, reverse=metric.falling)


def test_every_metric_reads_prompt_and_steps() -> None:
    timeline = session(3).timeline()
    assert METRICS == ("off", "probability", "surprisal", "entropy", "rank", "segment", "inside")
    step, token, first = timeline.items[-1], timeline.items[2], timeline.items[0]
    for name in METRICS[1:-2]:
        metric = METRIC[name]
        assert metric.value(step) is not None, name
        assert metric.value(token) is not None, name
        assert metric.value(first) is None, name
        assert len(metric.steps) == STEPS
    assert METRIC["off"].value(step) is None
    assert METRIC["segment"].value(step) is None, "whose a token is stands beside it"
    assert METRIC["inside"].value(step) is None, "what was looked at stands beside it"


def test_shares_are_hot_above_and_below_0() -> None:
    tokens = session(3).timeline().items[:5]
    shares = dict(zip((token.node for token in tokens), (0.7, -0.7, 0.01, math.nan), strict=False))
    metric = scales.shares_metric("a share", shares, signed=True)
    assert [metric.step(metric.value(token)) for token in tokens] == [5, -5, 0, 0, 0]
    unsigned = scales.shares_metric("a share", shares, signed=False)
    assert [unsigned.step(unsigned.value(token)) for token in tokens] == [5, 0, 0, 0, 0]


@pytest.mark.parametrize("dark", [True, False])
def test_what_has_a_sign_can_be_read_and_looks_different_above_and_below(dark: bool) -> None:
    steps = [*range(-STEPS, 0), *range(1, STEPS + 1)]
    pairs = [scales.opposed_heat(step, dark) for step in steps]
    assert all(contrast(ink, own) >= 4.5 for ink, own in pairs)
    for enough in (True, False):
        painted = [heat_style(step, dark, enough, signed=True).render("x") for step in steps]
        assert len(set(painted)) == len(steps)


def test_surprisal_of_the_prompt_is_in_bits() -> None:
    token = session(0).timeline().items[2]
    assert token.prob is not None
    value = METRIC["surprisal"].value(token)
    assert value is not None
    assert 2**-value == pytest.approx(token.prob)


def contrast(one: scales.Rgb, other: scales.Rgb) -> float:
    light, dark = sorted((scales._luminance(one), scales._luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [True, False])
def test_heat_can_be_read_and_gets_further_from_the_ground(dark: bool) -> None:
    ground = (18, 18, 18) if dark else (224, 224, 224)
    pairs = [scales.HEAT[step, dark] for step in range(1, STEPS + 1)]
    assert all(contrast(ink, own) >= 4.5 for ink, own in pairs)
    distances = [contrast(own, ground) for _, own in pairs]
    assert distances == sorted(distances)


@pytest.mark.parametrize("dark", [True, False])
def test_each_heat_step_has_a_colour_of_its_own_in_256_colours(dark: bool) -> None:
    """As in Terminal.app, where Textual takes the nearest of 256."""
    grounds = [scales.HEAT[step, dark][1] for step in range(1, STEPS + 1)]
    signed = [[scales.opposed_heat(sign * step, dark)[1] for step in range(1, STEPS + 1)] for sign in (1, -1)]
    for colours in (grounds, *signed):
        assert (
            len({Color.from_rgb(*each).downgrade(ColorSystem.EIGHT_BIT).number for each in colours}) == STEPS
        )


@pytest.mark.parametrize("system", list(ColorSystem))
@pytest.mark.parametrize("dark", [True, False])
def test_each_heat_step_looks_different_whatever_colours_a_terminal_has(
    system: ColorSystem, dark: bool
) -> None:
    enough = system in (ColorSystem.EIGHT_BIT, ColorSystem.TRUECOLOR)
    painted = [heat_style(step, dark, enough).render("x", color_system=system) for step in range(STEPS + 1)]
    assert len(set(painted)) == STEPS + 1


@pytest.mark.parametrize("dark", [True, False])
def test_bars_stand_out_from_the_ground(dark: bool) -> None:
    ground = (18, 18, 18) if dark else (224, 224, 224)
    assert all(contrast(scales.colour(level / 10, dark), ground) >= 2.2 for level in range(11))


@pytest.mark.parametrize(
    ("place", "digits", "written"),
    [(0.3089, 3, "0.308"), (0.99999, 3, "0.999"), (0.5, 2, "0.50"), (1.0, 3, "1.000")],
)
def test_a_place_on_the_line_is_cut_off(place: float, digits: int, written: str) -> None:
    assert scales.cut(place, digits) == written


def test_one_of_something_is_singular() -> None:
    assert [scales.counted(number, "more row") for number in (1, 2)] == ["1 more row", "2 more rows"]

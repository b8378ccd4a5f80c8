"""What a roofline tells of its own measurements: their spread, and a forward above the roof."""

from __future__ import annotations

from engine.measuring.machine_rates import Rate
from engine.measuring.roofline import _above, _busy
from engine.protocol import RooflineMeasured, Work

QUIET = Rate(10.0, 9.8, "an array")
DECODE = Work(1, 12, 10_000_000, 0, 20_000_000, 10.0, 10.5)
PREFILL = Work(40, 40, 10_000_000, 0, 800_000_000, 100.0, 104.0)


def measured(decode: Work, bandwidth: float) -> RooflineMeasured:
    return RooflineMeasured(1, bandwidth, "an array", 50.0, "a product", decode, PREFILL, 7, "So.")


def test_a_quiet_machine_is_not_mentioned() -> None:
    assert list(_busy(DECODE, PREFILL, QUIET, QUIET)) == []
    assert list(_busy(DECODE, None, QUIET)) == []


def test_a_busy_machine_is_told_with_the_widest_spread() -> None:
    slow = Work(1, 12, 10_000_000, 0, 20_000_000, 10.0, 16.0)
    (told,) = _busy(slow, PREFILL, QUIET)
    assert told.startswith(
        "The machine was busy: half of the measurements of decode took 1.6 times as long as the best"
    )
    (told,) = _busy(DECODE, PREFILL, QUIET, Rate(50.0, 20.0, "a product"))
    assert "the machine's own rates took 2.5 times" in told


def test_what_is_above_the_roof_is_told() -> None:
    assert list(_above(measured(DECODE, 4.0))) == []
    (told,) = _above(measured(DECODE, 0.5))  # 2 GFLOP/s at 2 operations a byte: twice what 0.5 GB/s allow
    assert told.startswith("Decode is at 200% of the roof")


def test_rates_are_of_the_best_repeat() -> None:
    assert DECODE.gflops == 2.0
    assert DECODE.gbs == 1.0
    assert measured(DECODE, 4.0).share(DECODE) == 0.25

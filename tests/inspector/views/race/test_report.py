"""A race in words and characters: its progress and its chart."""

from __future__ import annotations

import pytest

from engine.protocol import RaceOpened, RaceStep
from inspector.documents import race as report

OPENED = RaceOpened(5, 16, 76, 20, "As it was measured.")


def steps(unequal: tuple[int, ...] = (), difference: float = 0.0) -> list[RaceStep]:
    """Sixty steps: 10 ms with a cache, a millisecond a token without."""
    found, cached, uncached = [], 0.0, 0.0
    for tokens in range(17, 77):
        cached, uncached = cached + 10, uncached + tokens
        found.append(
            RaceStep(
                tokens=tokens, id=tokens, text="x", cached_ms=10.0, uncached_ms=float(tokens), cached_total_ms=cached,
                uncached_total_ms=uncached, cached_pick=1, uncached_pick=2 if tokens in unequal else 1,
                largest_difference=difference, kv_bytes=1024 * tokens, passed_bytes=1024 * tokens,
            )
        )  # fmt: skip
    return found


def test_the_chart_fits_and_names_both_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        lines = report.chart(steps(), columns)
        assert max(map(len, lines)) <= max(columns, report.LEFT + report.LEAST_CHART + report.RIGHT)
        assert any("without one 74.0 ms" in line for line in lines[1:6])
        assert any("with a cache 10.0 ms" in line for line in lines[8:])
        assert lines[1].split("┤")[0].strip() == "100"
        assert lines[-1].split() == ["17", "tokens", "76"]


def test_curves_that_lie_together_are_named_on_one_line() -> None:
    same = [step for step in steps() if step.tokens < 22]
    assert any(
        "with 10.0, without 19.0 ms" in line or "with a cache" in line for line in report.chart(same, 80)
    )


def test_the_progress_tells_what_is_left() -> None:
    assert report.progress(OPENED, steps()[-1]) == "████████████████ 76/76 tokens, about 0.00 ms left"
    first = report.progress(OPENED, steps()[0])
    assert first.startswith("▎")
    assert "17/76 tokens, about 3.36 s left" in first


def test_logits_that_differ_by_more_than_rounding_have_their_cause_named() -> None:
    assert dict(report.verdict(steps(difference=0.2)))["tokens"].endswith("the logits differ by 0.2 at most")
    assert (
        "the cache is quantized, or has dropped tokens"
        in dict(report.verdict(steps(difference=3.9)))["tokens"]
    )

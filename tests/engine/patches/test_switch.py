"""The switch of the patches."""

from __future__ import annotations

import pytest

from engine.patches import VARIABLE, allowed


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", ["blas", "imports", "rotary"]),
        ("none", []),
        ("blas", ["blas"]),
        ("blas, rotary", ["blas", "rotary"]),
    ],
)
def test_the_environment_allows_all_none_or_some(
    monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert [name for name in ("blas", "imports", "rotary") if allowed(name)] == names

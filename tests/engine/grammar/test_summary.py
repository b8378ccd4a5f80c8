"""A grammar in one line."""

from __future__ import annotations

import pytest

from engine.grammar_settings import Grammar, GrammarKind


@pytest.mark.parametrize(
    ("kind", "text", "summary"),
    [
        ("regex", " (him|her)( [a-z]+)  x ", "regex ␣(him|her)( [a-z]+)  x␣"),
        ("regex", "a\nb", "regex a\\nb"),
        ("choices", "yes\nno\n", "choices yes, no"),
        ("json-schema", '{\n  "type": "object"\n}', 'json-schema { "type": "object" }'),
        ("regex", "a" * 41, f"regex {'a' * 39}…"),
    ],
)
def test_a_summary(kind: GrammarKind, text: str, summary: str) -> None:
    assert Grammar(kind, text).summary == summary

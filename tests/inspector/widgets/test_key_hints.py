"""The line of keys: each key that it names is pressed by a click, as the keyboard would press it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from textual.events import Click

from inspector.widgets.key_hints import key_hints, pressed


def keys_in(keys: str) -> list[tuple[str, str | None]]:
    """What clicks on all cells of a hint press, each once."""
    shown = key_hints(80, ((keys, "word", 1),))
    found: list[tuple[str, str | None]] = []
    for place in range(len(keys) + len(" word")):
        meta = {}
        for span in shown.spans:
            if span.start <= place < span.end and not isinstance(span.style, str):
                meta |= span.style.meta
        event = pressed(cast(Click, SimpleNamespace(style=SimpleNamespace(meta=meta))))
        if event is not None and (event.key, event.character) not in found:
            found.append((event.key, event.character))
    return found


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("n", [("n", "n")]), ("N", [("N", "N")]), ("space", [("space", " ")]), ("esc", [("escape", None)]),
        ("⏎", [("enter", None)]), ("⇥", [("tab", None)]), ("←→", [("left", None), ("right", None)]),
        ("[ ]", [("left_square_bracket", "["), ("right_square_bracket", "]")]), ("+-", [("plus", "+"), ("minus", "-")]),
        ("pgup pgdn", [("pageup", None), ("pagedown", None)]), ("ctrl+s", [("ctrl+s", None)]),
        ("space →", [("space", " "), ("right", None)]),
        ("?", [("question_mark", "?")]), ("1-5", [("1", "1"), ("minus", "-"), ("5", "5")]),
    ],
)  # fmt: skip
def test_a_click_on_a_key_presses_it(keys: str, expected: list[tuple[str, str | None]]) -> None:
    assert keys_in(keys) == expected

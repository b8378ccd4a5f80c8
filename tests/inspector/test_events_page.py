"""The page of events is current."""

from __future__ import annotations

from inspector.main.help_pages import page
from tests.inspector.events_page import current


def test_the_page_of_events_is_made_from_the_types() -> None:
    assert page("events") == current()

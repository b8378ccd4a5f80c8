"""The help: the same texts that the README links."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Markdown, TabbedContent, TabPane

from inspector.screens.dialog import Dialog

PAGES: tuple[tuple[str, str], ...] = (("keys", "Keys"), ("concepts", "What is shown"))
"""File name without its ending, and title."""


def page(name: str) -> str:
    """The Markdown of one page of the help."""
    return (resources.files("inspector") / "help" / f"{name}.md").read_text(encoding="utf-8")


class HelpDialog(Dialog[None]):
    """Shows the keys and what the panels mean."""

    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"

    def body(self) -> Iterable[Widget]:
        with TabbedContent(id="help-tabs"):
            for name, title in PAGES:
                with TabPane(title, id=f"help-{name}"):
                    yield Markdown(page(name), open_links=False)

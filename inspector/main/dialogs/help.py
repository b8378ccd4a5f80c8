"""The help: the same texts that the README links."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Markdown, TabbedContent, TabPane

from inspector.main.dialogs.keys_page import KeysPage
from inspector.widgets.dialog import Dialog
from inspector.widgets.key_hints import KeyHint

PAGES: tuple[tuple[str, str], ...] = (
    ("keys", "Keys"),
    ("concepts", "What is shown"),
    ("lessons", "Writing lessons"),
)
"""File name without its ending, and title."""


def page(name: str) -> str:
    """The Markdown of one page of the help."""
    return (resources.files("inspector") / "help" / f"{name}.md").read_text(encoding="utf-8")


class HelpDialog(Dialog[None]):
    """Shows the keys and what the panels mean.

    Args:
        keys: The page of keys, in Markdown.
    """

    KEPT: ClassVar[tuple[str, ...]] = ("_keys",)
    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("←→", "other page", 6), ("↑↓", "scroll", 5))
    AUTO_FOCUS = "#help-keys VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right,tab", "other_page(1)", "Next page", tooltip="Show the page after this one.", priority=True
        ),
        Binding(
            "left", "other_page(-1)", "Page before", tooltip="Show the page before this one.", priority=True
        ),
        Binding("question_mark,q", "leave", "Close", show=False),
    ]

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._keys = keys

    def body(self) -> Iterable[Widget]:
        with TabbedContent(id="help-tabs"):
            for name, title in PAGES:
                with TabPane(title, id=f"help-{name}"):
                    yield VerticalScroll(id=f"page-{name}")

    def begin(self) -> None:
        """Begin at the top of the keys, which another screen may have opened with its own."""
        super().begin()
        self.query_one(TabbedContent).active = "help-keys"
        for page in self.query(KeysPage):
            page.tell(self._keys)
        for place in self.query(VerticalScroll):
            place.scroll_home(animate=False)

    @on(TabbedContent.TabActivated)
    def _fill(self, message: TabbedContent.TabActivated) -> None:
        """Lay a page out when it is first shown: one in Markdown takes a good part of a second."""
        name = (message.pane.id or "").removeprefix("help-")
        place = self.query_one(f"#page-{name}", VerticalScroll)
        if not place.children:
            place.mount(KeysPage(self._keys) if name == "keys" else Markdown(page(name), open_links=False))

    def action_other_page(self, by: int) -> None:
        """Show another page, ready to be scrolled; after the last one the first."""
        tabs = self.query_one(TabbedContent)
        names = [f"help-{name}" for name, _ in PAGES]
        tabs.active = names[(names.index(tabs.active) + by) % len(names)]
        self.query_one(f"#{tabs.active} VerticalScroll").focus()

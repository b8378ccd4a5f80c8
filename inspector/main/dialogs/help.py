"""The help: the same texts that the README links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Markdown, TabbedContent, TabPane

from inspector.main.dialogs.keys_page import KeysPage
from inspector.main.dialogs.topics import TopicPages, page
from inspector.widgets.dialog import Dialog
from inspector.widgets.key_hints import KeyHint

PAGES: tuple[tuple[str, str], ...] = (
    ("keys", "Keys"),
    ("concepts", "What is shown"),
    ("lessons", "Writing lessons"),
)
"""File name without its ending, and title."""
TOPIC_TAB = "parts"


class HelpDialog(Dialog[None]):
    """Shows the keys and what the panels mean.

    Args:
        keys: The page of keys, in Markdown.
    """

    KEPT: ClassVar[tuple[str, ...]] = ("_keys",)
    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("←→", "other page", 6), ("↑↓", "scroll", 5), ("⏎", "open", 4))
    AUTO_FOCUS = "#help-keys VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,tab", "other_page", "Next page", tooltip="Show the next page.", priority=True),
        Binding(
            "left,shift+tab", "other_page(-1)", "Page before", tooltip="Show the page before.", priority=True
        ),
        Binding("backspace", "topics", "All pages", tooltip="Show the list of pages again.", show=False),
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
            yield TabPane("Explained", id=f"help-{TOPIC_TAB}")

    def begin(self) -> None:
        """Begin at the top of the keys, which another screen may have opened with its own."""
        super().begin()
        self.query_one(TabbedContent).active = "help-keys"
        for keys in self.query(KeysPage):
            keys.tell(self._keys)
        for pages in self.query(TopicPages):
            pages.begin()
        for place in self.query(VerticalScroll):
            place.scroll_home(animate=False)

    @on(TabbedContent.TabActivated)
    def _fill(self, message: TabbedContent.TabActivated) -> None:
        """Lay a page out when it is first shown: one in Markdown takes a good part of a second."""
        name = (message.pane.id or "").removeprefix("help-")
        if name == TOPIC_TAB:
            if not message.pane.children:
                message.pane.mount(TopicPages())
            return
        place = self.query_one(f"#page-{name}", VerticalScroll)
        if not place.children:
            place.mount(KeysPage(self._keys) if name == "keys" else Markdown(page(name), open_links=False))

    def action_other_page(self, by: int = 1) -> None:
        """Show another page, ready to be scrolled."""
        tabs = self.query_one(TabbedContent)
        names = [f"help-{name}" for name in (*(name for name, _ in PAGES), TOPIC_TAB)]
        tabs.active = names[(names.index(tabs.active) + by) % len(names)]
        self.call_after_refresh(self._focus_page)

    def _focus_page(self) -> None:
        """Focus what the tab shows, once it is there."""
        for pages in self.query(TopicPages):
            if pages.region:
                pages.focus_shown()
                return
        for place in self.query(f"#{self.query_one(TabbedContent).active} VerticalScroll"):
            place.focus()

    def action_topics(self) -> None:
        """Show the list of pages, where one of them is open."""
        for pages in self.query(TopicPages):
            pages.close()

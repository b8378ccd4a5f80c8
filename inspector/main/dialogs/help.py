"""The help: the same texts that the README links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import TabbedContent, TabPane

from inspector.main.actions.screen import HELP_KEYS
from inspector.main.dialogs.keys_page import KeysPage
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog

if TYPE_CHECKING:
    from inspector.main.dialogs.topics import TopicPages

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

    ACTIONS: ClassVar[ActionTable] = HELP_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("_keys",)
    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"
    AUTO_FOCUS = "#help-keys VerticalScroll"

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._keys = keys
        self._topics: TopicPages | None = None

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
        if self._topics is not None:
            self._topics.begin()
        for place in self.query(VerticalScroll):
            place.scroll_home(animate=False)

    @on(TabbedContent.TabActivated)
    def _fill(self, message: TabbedContent.TabActivated) -> None:
        """Lay a page out when it is first shown: one in Markdown takes a good part of a second, its parser 40 ms."""
        name = (message.pane.id or "").removeprefix("help-")
        if name == TOPIC_TAB:
            if self._topics is None:
                from inspector.main.dialogs.topics import TopicPages

                self._topics = TopicPages()
                message.pane.mount(self._topics)
            return
        place = self.query_one(f"#page-{name}", VerticalScroll)
        if place.children:
            return
        if name == "keys":
            place.mount(KeysPage(self._keys))
            return
        from inspector.main.dialogs.topics import MarkdownPage

        place.mount(MarkdownPage(name))

    def other_page(self, by: int = 1) -> None:
        """Show another page, ready to be scrolled."""
        tabs = self.query_one(TabbedContent)
        names = [f"help-{name}" for name in (*(name for name, _ in PAGES), TOPIC_TAB)]
        tabs.active = names[(names.index(tabs.active) + by) % len(names)]
        self.call_after_refresh(self._focus_page)

    def _focus_page(self) -> None:
        """Focus what the tab shows, once it is there."""
        if self._topics is not None and self._topics.region:
            self._topics.focus_shown()
            return
        for place in self.query(f"#{self.query_one(TabbedContent).active} VerticalScroll"):
            place.focus()

    def show_topics(self) -> None:
        """Show the list of pages, where one of them is open."""
        if self._topics is not None:
            self._topics.close()

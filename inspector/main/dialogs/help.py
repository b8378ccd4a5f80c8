"""The help: the same texts that README links."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Input, Static, TabbedContent, TabPane, Tabs

from inspector.display import visible
from inspector.keys import key_for
from inspector.main.dialogs import HELP_KEYS
from inspector.main.help_pages import PAGES, TOPICS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import SafeInput

if TYPE_CHECKING:
    from textual.widgets import Markdown

    from inspector.main.dialogs.topics import TopicPages

HEADS = "| key | what it does |"
COLUMN = 17
"""Cells for the keys, with a blank before and after them."""
_PIECES = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|([^`*]+)")
_KEY, _LABEL, _HEADING, _FAINT = "$text-accent", "bold", "bold $text-primary", "$ink-muted"
TOPIC_TAB = "topics"


# ---- the page of keys ---------------------------------------------------------------------------


class KeysPage(Static):
    """Headings, paragraphs and tables of two columns.

    Args:
        markdown: As `keys.keys_markdown` writes it.
    """

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self._markdown, self._wanted = _lines_of(markdown), ""
        self._wrapped: tuple[int, list[Content]] = (0, [])
        """The lines that were wrapped last, and their width: the layout asks how high it is, and then it is drawn."""

    def tell(self, markdown: str) -> None:
        """Show other keys."""
        if self._markdown != (lines := _lines_of(markdown)):
            self._markdown, self._wrapped = lines, (0, [])
            self.refresh(layout=True)

    def filter(self, wanted: str) -> None:
        """Show the rows alone that have all of some words, under their headings; all rows again for no words."""
        if self._wanted != wanted:
            self._wanted, self._wrapped = wanted, (0, [])
            self.refresh(layout=True)

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as it needs at this width."""
        return len(self._lines(width))

    def _lines(self, width: int) -> list[Content]:
        width = max(1, width)  # a terminal of a few columns leaves nothing beside the frames
        if self._wrapped[0] != width:
            self._wrapped = (width, list(self._wrap(width)))
        return self._wrapped[1]

    def _wrap(self, width: int) -> Iterator[Content]:
        lines = list(_with_all(self._markdown, self._wanted.casefold().split()))
        if not lines:
            nothing = f"Nothing here has “{visible(self._wanted)}”. `ctrl+p` searches everything by words."
            yield from _inline(nothing).wrap(width)
        for line in lines:
            if line.startswith("## "):
                yield from (Content(), *Content.styled(line[3:], _HEADING).wrap(width))
            elif line.startswith("| "):
                keys, does = line.strip("| ").split(" | ", 1)
                yield from _row(keys, does, width)
            else:
                yield from _inline(line).wrap(width)


def _lines_of(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines()[1:] if line and not line.startswith("|-")]


def _with_all(lines: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    """The lines that have all words, or stand under a heading that has, with the heading of each."""
    heading, told = "", True
    for line in lines:
        if line.startswith("## "):
            heading, told = line, False
        elif all(word in f"{heading} {line}".casefold() for word in words) and (not words or line != HEADS):
            if not told:
                yield heading
                told = True
            yield line


def _row(keys: str, does: str, width: int) -> Iterator[Content]:
    """A line of a table, its second column wrapped; where there is little room, below the first."""
    if keys == "key":
        yield Content.styled(f" {keys}".ljust(COLUMN) + does, _FAINT)
        return
    narrow = width < 3 * COLUMN
    left, indent = _inline(keys).pad(1, 0), 3 if narrow else COLUMN
    lines = [line.rstrip().pad(indent, 0) for line in _inline(does).wrap(max(1, width - indent))]
    if not narrow and left.cell_length < indent:
        left += lines.pop(0)[left.cell_length :]
    yield left
    yield from lines


def _inline(text: str) -> Content:
    """Text with keys in backquotes and words in bold."""
    found = (zip(pieces, (_KEY, _LABEL, ""), strict=True) for pieces in _PIECES.findall(text))
    return Content.assemble(*((piece, style) for pieces in found for piece, style in pieces if piece))


# ---- the dialog ---------------------------------------------------------------------------------


class HelpPages(TabbedContent):
    """The pages behind their tabs; only a key, a click or the program turns them.

    On a busy machine a message that an earlier page was opened, or got the focus, arrives after the next page was
    asked for; Textual would turn back to the earlier one, and the focus would be lost with it.
    """

    @on(Tabs.TabActivated)
    def _turned(self, message: Tabs.TabActivated) -> None:
        if message.tab.id != message.tabs.active:
            message.stop()
            message.prevent_default()

    @on(TabPane.Focused)
    def _focused(self, message: TabPane.Focused) -> None:
        message.stop()
        message.prevent_default()


class HelpDialog(Dialog[None]):
    """Shows the keys and what the panels mean.

    Args:
        keys: The page of keys, in Markdown.
        page: The page to begin with, by its place in `help` without the ending.
    """

    ACTIONS: ClassVar[ActionTable] = HELP_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("_keys", "_page")
    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"
    AUTO_FOCUS = ""  # what is focused in a tab opens that tab, whichever was asked for

    def __init__(self, keys: str, page: str = "keys") -> None:
        super().__init__()
        self._keys, self._page = keys, page
        self._topics: TopicPages | None = None

    def body(self) -> Iterable[Widget]:
        with HelpPages(id="help-tabs"):
            for name, title in PAGES:
                with TabPane(title, id=f"help-{name}"):
                    if name == "keys":
                        hint = f"{key_for('help.filter')} filters: a word of what you want to do"
                        yield SafeInput("", hint, "help-filter")
                    yield VerticalScroll(id=f"page-{name}")
            yield TabPane("All pages", id=f"help-{TOPIC_TAB}")

    def begin(self) -> None:
        """Begin at the top of the page, which another screen may have opened with its own keys."""
        super().begin()
        self._turn_to(f"help-{TOPIC_TAB if self._topic else self._page}")
        for keys in self.query(KeysPage):
            keys.tell(self._keys)
        self.query_one("#help-filter", SafeInput).value = ""
        if self._topics is not None:
            self._topics.begin(self._topic)
        self.after_paint(self._focus_page)
        for place in self.query(VerticalScroll):
            place.scroll_home(animate=False)

    @property
    def _topic(self) -> str:
        """The page to begin with, if it has no tab of its own; else empty."""
        return self._page if self._page in {name for name, *_ in TOPICS} else ""

    @on(TabbedContent.TabActivated)
    def _fill(self, message: TabbedContent.TabActivated) -> None:
        """Lay a page out when it is first shown: one in Markdown takes a good part of a second, its parser 40 ms."""
        name = (message.pane.id or "").removeprefix("help-")
        if name == TOPIC_TAB:
            if self._topics is None:
                from inspector.main.dialogs.topics import TopicPages

                self._topics = TopicPages(self._topic)
                message.pane.mount(self._topics)
            return
        place = self.query_one(f"#page-{name}", VerticalScroll)
        if place.children:
            return
        if name == "keys":
            place.mount(KeysPage(self._keys))
        else:
            from inspector.main.dialogs.topics import MarkdownPage

            place.mount(MarkdownPage(name))

    @on(Input.Changed, "#help-filter")
    def _filter(self, message: Input.Changed) -> None:
        for keys in self.query(KeysPage):
            keys.filter(message.value)
        self.query_one("#page-keys").scroll_home(animate=False)

    @on(Input.Submitted, "#help-filter")
    def _filtered(self, message: Input.Submitted) -> None:
        """Read what is left."""
        message.stop()
        message.prevent_default()
        self._focus_page()

    def filter_keys(self) -> None:
        """Type a word of what is looked for among the keys."""
        self._turn_to("help-keys")
        self.after_paint(self.query_one("#help-filter", SafeInput).focus)

    def other_page(self, by: int = 1) -> None:
        """Show another page, ready to be scrolled."""
        names = [f"help-{name}" for name in (*(name for name, _ in PAGES), TOPIC_TAB)]
        self._turn_to(names[(names.index(self.query_one(HelpPages).active) + by) % len(names)])
        self.after_paint(self._focus_page)

    def _turn_to(self, name: str) -> None:
        self.query_one(HelpPages).active = name

    def _focus_page(self) -> None:
        """Focus what the tab shows, once it is there."""
        shown = self.query_one(HelpPages).active
        if shown != f"help-{TOPIC_TAB}":
            self.query_one(f"#{shown} VerticalScroll").focus()
        elif self._topics is not None and self._topics.is_mounted:  # else it takes the focus when it is
            self._topics.focus_shown()

    def on_markdown_link_clicked(self, message: Markdown.LinkClicked) -> None:
        """Go to another page; what leads out of the help stays a text."""
        message.stop()
        opened = self.query_one(HelpPages).active.removeprefix("help-")
        if opened == TOPIC_TAB and self._topics is not None:
            opened = self._topics.shown
        place = posixpath.join(posixpath.dirname(opened), message.href.partition("#")[0])
        self._page = posixpath.normpath(place).removesuffix(".md")
        if self._page in {name for name, _ in PAGES}:
            self._turn_to(f"help-{self._page}")
            self.after_paint(self._focus_page)
        elif self._topic:
            self._turn_to(f"help-{TOPIC_TAB}")
            if self._topics is not None:
                self._topics.open(self._topic)

    def show_topics(self) -> None:
        """Show the list of pages, where one of them is open."""
        if self._topics is not None:
            self._topics.close()

"""The help: a page of keys, and the texts that README links."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Button, Input, Markdown, Static, TabbedContent, TabPane, Tabs
from textual.widgets.option_list import Option

from inspector.display import visible
from inspector.keys import key_for
from inspector.main.dialogs import HELP_KEYS
from inspector.main.help_pages import PAGES, TOPICS, page
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import SafeOptionList

HEADS = "| key | what it does |"
COLUMN = 17
"""Cells for the keys, with a blank before and after them."""
_PIECES = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|([^`*]+)")
_KEY, _LABEL, _HEADING, _FAINT = "$text-accent", "bold", "bold $text-primary", "$ink-muted"
TOPIC_TAB = "topics"
TITLES = {name: title for name, title, _ in TOPICS}
"""Titles of the pages in the list, by their places in `help`."""
BACK = "⌫ All pages"


# ---- the page of keys ---------------------------------------------------------------------------


class KeysPage(Static):
    """The page of keys: headings, paragraphs and tables of two columns.

    Args:
        markdown: The page, as `key_table.keys_markdown` writes it.
    """

    markdown: reactive[str] = reactive("", init=False, layout=True)
    wanted: reactive[str] = reactive("", init=False, layout=True)
    """Words to filter by: only rows that contain all of them are shown, under their headings."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.set_reactive(KeysPage.markdown, markdown)
        self._wrapped: tuple[tuple[object, ...], list[Content]] = ((), [])
        """Inputs and result of the last wrap, which is needed twice: for the height, and for drawing."""

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines that it needs at a width."""
        return len(self._lines(width))

    def _lines(self, width: int) -> list[Content]:
        width = max(1, width)  # on a terminal of a few columns, the frames leave nothing
        if self._wrapped[0] != (of := (width, self.markdown, self.wanted)):
            self._wrapped = (of, list(self._wrap(width)))
        return self._wrapped[1]

    def _wrap(self, width: int) -> Iterator[Content]:
        source = [line for line in self.markdown.splitlines()[1:] if line and not line.startswith("|-")]
        lines = list(_with_all(source, self.wanted.casefold().split()))
        if not lines:
            nothing = f"Nothing here has “{visible(self.wanted)}”. `ctrl+p` searches everything by words."
            yield from _inline(nothing).wrap(width)
        for line in lines:
            if line.startswith("## "):
                yield from (Content(), *Content.styled(line[3:], _HEADING).wrap(width))
            elif line.startswith("| "):
                keys, does = line.strip("| ").split(" | ", 1)
                yield from _row(keys, does, width)
            else:
                yield from _inline(line).wrap(width)


def _with_all(lines: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    """The headings with lines that contain all words, counting those of the heading, and these lines."""
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
    """The lines of a table row, with its second column wrapped; if there is little room, it is below the first."""
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


# ---- the pages in Markdown ----------------------------------------------------------------------


def markdown_page(name: str) -> Markdown:
    """One page of the help.

    Args:
        name: Its path in `help`, without the ending.
    """
    return Markdown(page(name), open_links=False)


class TopicPages(Vertical):
    """The list of the pages without a tab of their own, or one of these pages, which is read when it is chosen.

    Args:
        first: Path of the page to begin with; empty for the list.
    """

    DEFAULT_CSS = """
    TopicPages { height: 1fr; }
    TopicPages SafeOptionList { height: 1fr; border: none; padding: 0 1; }
    TopicPages #topic-page, TopicPages #topic { height: 1fr; }
    TopicPages #topic-list { width: 100%; content-align: left middle; text-align: left; }
    """

    def __init__(self, first: str = "") -> None:
        super().__init__()
        self.shown = first
        """Path of the page that is shown; empty for the list."""

    def compose(self) -> ComposeResult:
        # without a color, so that a highlighted row can be read
        named = (Content.styled(title, "bold") + Content(f"  {about}") for _, title, about in TOPICS)
        yield SafeOptionList(*map(Option, named), markup=False, compact=True)
        with Vertical(id="topic-page"):
            yield Button(Content(BACK), id="topic-list", compact=True)
            yield VerticalScroll(id="topic")

    def on_mount(self) -> None:
        """Show and focus the list, or the page that was asked for."""
        self.turn_to(self.shown)
        self.focus_shown()

    def turn_to(self, name: str) -> None:
        """Show a page, or the list if the name is empty."""
        self.shown = name
        self.query_one(SafeOptionList).display = not name
        self.query_one("#topic-page").display = bool(name)
        if not name:
            return
        place = self.query_one("#topic", VerticalScroll)
        if shown := place.query(Markdown):
            shown.first().update(page(name))
        else:
            place.mount(markdown_page(name))
        place.scroll_home(animate=False)
        back = Content.assemble((f"{BACK}  ", ""), (TITLES[name], "bold $text-primary"))
        self.query_one("#topic-list", Button).label = back

    def focus_shown(self) -> None:
        """Focus the list or the page."""
        self.query_one("#topic" if self.shown else SafeOptionList).focus()

    @on(SafeOptionList.OptionSelected)
    def _chosen(self, message: SafeOptionList.OptionSelected) -> None:
        message.stop()
        self.turn_to(TOPICS[message.option_index][0])
        self.focus_shown()

    @on(Button.Pressed, "#topic-list")
    def _back(self, message: Button.Pressed) -> None:
        message.stop()
        self.turn_to("")
        self.focus_shown()


# ---- the dialog ---------------------------------------------------------------------------------


class HelpPages(TabbedContent):
    """The pages in their tabs; late messages don't change the open one.

    On a busy machine, a message that an earlier page was opened, or got the focus, may arrive after the next page was
    asked for: Textual would go back to the earlier page, and the focus would be lost.
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
    """Shows the pages of the help.

    Args:
        keys: The page of keys, in Markdown.
        page: The page to begin with, by its path in `help` without the ending.
    """

    ACTIONS: ClassVar[ActionTable] = HELP_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("_keys", "_page")
    HEADING: ClassVar[str] = "Help"
    LEAVE: ClassVar[str] = "Close"
    AUTO_FOCUS = ""  # focusing a widget in a tab would open that tab instead of the one that was asked for

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
        """Open the page at its top, with the keys of the screen that opened the help."""
        super().begin()
        self._turn_to(TOPIC_TAB if self._topic else self._page)
        for keys in self.query(KeysPage):
            keys.markdown = self._keys
        self.query_one("#help-filter", SafeInput).value = ""
        if self._topics is not None:
            self._topics.turn_to(self._topic)
        for place in self.query(VerticalScroll):
            place.scroll_home(animate=False)

    @property
    def _topic(self) -> str:
        """The page to begin with, if it has no tab of its own; else empty."""
        return self._page if self._page in TITLES else ""

    @property
    def _tab(self) -> str:
        """Name of the open tab."""
        return self.query_one(HelpPages).active.removeprefix("help-")

    @on(TabbedContent.TabActivated)
    def _fill(self, message: TabbedContent.TabActivated) -> None:
        """Create a page when it is first shown: one in Markdown takes a good part of a second."""
        name = (message.pane.id or "").removeprefix("help-")
        if name == TOPIC_TAB:
            if self._topics is None:
                self._topics = TopicPages(self._topic)
                message.pane.mount(self._topics)
        elif not (place := self.query_one(f"#page-{name}", VerticalScroll)).children:
            place.mount(KeysPage(self._keys) if name == "keys" else markdown_page(name))

    @on(Input.Changed, "#help-filter")
    def _filter(self, message: Input.Changed) -> None:
        for keys in self.query(KeysPage):
            keys.wanted = message.value
        self.query_one("#page-keys").scroll_home(animate=False)

    @on(Input.Submitted, "#help-filter")
    def _filtered(self, message: Input.Submitted) -> None:
        """Focus the rows that the filter left."""
        message.stop()
        message.prevent_default()
        self._focus_page()

    def filter_keys(self) -> None:
        """Focus the filter of the page of keys."""
        self.query_one(HelpPages).active = "help-keys"
        self.after_paint(self.query_one("#help-filter", SafeInput).focus)

    def other_page(self, by: int = 1) -> None:
        """Show another page, ready to be scrolled."""
        names = [*(name for name, _ in PAGES), TOPIC_TAB]
        self._turn_to(names[(names.index(self._tab) + by) % len(names)])

    def _turn_to(self, tab: str) -> None:
        """Open a tab, and focus its page."""
        self.query_one(HelpPages).active = f"help-{tab}"
        self.after_paint(self._focus_page)

    def _focus_page(self) -> None:
        """Focus the open tab's page, if it is there."""
        if self._tab != TOPIC_TAB:
            self.query_one(f"#page-{self._tab}").focus()
        elif self._topics is not None and self._topics.is_mounted:  # otherwise it takes the focus once it is
            self._topics.focus_shown()

    def on_markdown_link_clicked(self, message: Markdown.LinkClicked) -> None:
        """Go to another page of the help; other links do nothing."""
        message.stop()
        topics, tab = self._topics, self._tab
        opened = topics.shown if tab == TOPIC_TAB and topics is not None else tab
        place = posixpath.join(posixpath.dirname(opened), message.href.partition("#")[0])
        self._page = posixpath.normpath(place).removesuffix(".md")
        if self._topic:
            self._turn_to(TOPIC_TAB)
            if topics is not None:
                topics.turn_to(self._topic)
        elif self._page in dict(PAGES):
            self._turn_to(self._page)

    def show_topics(self) -> None:
        """Return to the list of pages, if one of them is open."""
        if self._topics is not None and self._topics.shown:
            self._topics.turn_to("")
            self._topics.focus_shown()

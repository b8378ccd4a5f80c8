"""The help's pages in Markdown: those on one subject each are a list and the page that was chosen, which is read only
then."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Markdown
from textual.widgets.option_list import Option

from inspector.main.help_pages import TOPICS, page
from inspector.widgets.lists import SafeOptionList

BACK = "⌫ All pages"
_NAMES = [name for name, *_ in TOPICS]


class MarkdownPage(Markdown):
    """One page of the help.

    Args:
        name: Its place in `help`, without the ending.
    """

    def __init__(self, name: str) -> None:
        super().__init__(page(name), open_links=False)


class TopicPages(Vertical):
    """The list, or one page in its place.

    Args:
        first: Place of the page to begin with; empty for the list.
    """

    DEFAULT_CSS = """
    TopicPages { height: 1fr; }
    TopicPages SafeOptionList { height: 1fr; border: none; padding: 0 1; }
    TopicPages #topic-page, TopicPages #topic { height: 1fr; }
    TopicPages #topic-list { width: 100%; content-align: left middle; text-align: left; }
    """

    def __init__(self, first: str = "") -> None:
        super().__init__()
        self._first = self.shown = first

    def compose(self) -> ComposeResult:
        # in the ink of the row, highlighted too
        named = (Content.styled(title, "bold") + Content(f"  {about}") for _, title, about in TOPICS)
        yield SafeOptionList(*map(Option, named), markup=False, compact=True)
        with Vertical(id="topic-page"):
            yield Button(Content(BACK), id="topic-list", compact=True)
            yield VerticalScroll(id="topic")

    def on_mount(self) -> None:
        """Begin in the list, or in the page that was asked for."""
        self.begin(self._first)
        self.focus_shown()

    def begin(self, first: str = "") -> None:
        """Show the list, without a change of the focus, or a page.

        Args:
            first: Place of the page; empty for the list.
        """
        self._show(False)
        if first:
            self.open(first)

    def focus_shown(self) -> None:
        """Focus what is shown."""
        options, text = self.query_one(SafeOptionList), self.query_one("#topic")
        (options if options.display else text).focus()

    def open(self, name: str) -> None:
        """Show a page in place of the list, or of another page.

        Args:
            name: Its place in `help` without the ending.
        """
        self.shown = name
        place = self.query_one("#topic", VerticalScroll)
        if shown := place.query(MarkdownPage):
            shown.first().update(page(name))
        else:
            place.mount(MarkdownPage(name))
        place.scroll_home(animate=False)
        back = Content.assemble((f"{BACK}  ", ""), (TOPICS[_NAMES.index(name)][1], "bold $text-primary"))
        self.query_one("#topic-list", Button).label = back
        self._show(True)
        self.focus_shown()

    def close(self) -> None:
        """Show the list again."""
        if not self.query_one(SafeOptionList).display:
            self._show(False)
            self.focus_shown()

    def _show(self, a_page: bool) -> None:
        self.query_one(SafeOptionList).display = not a_page
        self.query_one("#topic-page").display = a_page

    @on(SafeOptionList.OptionSelected)
    def _chosen(self, message: SafeOptionList.OptionSelected) -> None:
        message.stop()
        self.open(_NAMES[message.option_index])

    @on(Button.Pressed, "#topic-list")
    def _back(self, message: Button.Pressed) -> None:
        message.stop()
        self.close()

"""The help's pages in Markdown: those on one thing each are a list and the page that was chosen, which is read only
then."""

from __future__ import annotations

from importlib import resources

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Markdown
from textual.widgets.option_list import Option

from inspector.widgets.lists import SafeOptionList

TOPICS: tuple[tuple[str, str, str], ...] = (
    ("embedding", "Embedding", "from an id to a list of numbers"),
    ("position", "Position", "RoPE and others: how a model knows where a token stands"),
    ("attention", "Attention", "how a token gets something from those before it"),
    ("key-value", "Query, key and value", "what attention compares, and what a cache keeps"),
    ("head", "Head", "several attentions side by side, and why they share keys"),
    ("norm", "Norm", "what keeps the numbers at one scale"),
    ("mlp", "MLP", "the larger part of a layer, and when it isn't"),
    ("grammar", "Grammar", "text that must match: digits, a date, JSON"),
    ("elsewhere", "An engine elsewhere", "the model on one machine, the screen on another"),
    ("browser", "In a browser", "a class that watches, who may come in, keys that browsers take"),
    ("differences", "Where programs and courses differ", "orders, growth, names"),
)
"""File name in `help/parts` without its ending, title, and what the page tells."""
BACK = "⌫ All pages"
_NAMES = [name for name, *_ in TOPICS]


class MarkdownPage(Markdown):
    """One page of the help.

    Args:
        name: Its place in `help`, without the ending.
    """

    def __init__(self, name: str) -> None:
        super().__init__(page(name), open_links=False)


def page(name: str) -> str:
    """The Markdown of one page of the help, by its place in `help` without the ending."""
    return (resources.files("inspector") / "help" / f"{name}.md").read_text(encoding="utf-8")


class TopicPages(Vertical):
    """The list, or one page in its place."""

    DEFAULT_CSS = """
    TopicPages { height: 1fr; }
    TopicPages SafeOptionList { height: 1fr; border: none; padding: 0 1; }
    TopicPages #topic-page, TopicPages #topic { height: 1fr; }
    TopicPages #topic-list { width: 100%; content-align: left middle; text-align: left; }
    """

    def compose(self) -> ComposeResult:
        options = [
            Option(Content.assemble((title, "bold"), (f"  {about}", "$ink-muted")))
            for _, title, about in TOPICS
        ]
        yield SafeOptionList(*options, markup=False, compact=True)
        with Vertical(id="topic-page"):
            yield Button(Content(BACK), id="topic-list", compact=True)
            yield VerticalScroll(id="topic")

    def on_mount(self) -> None:
        """Begin in the list."""
        self.begin()
        self.focus_shown()

    def begin(self) -> None:
        """Show the list, without a change of the focus."""
        self._show(False)

    def focus_shown(self) -> None:
        """Focus what is shown."""
        options, text = self.query_one(SafeOptionList), self.query_one("#topic")
        (options if options.display else text).focus()

    def open(self, name: str) -> None:
        """Show a page in place of the list, or of another page.

        Args:
            name: Its file name.
        """
        place = self.query_one("#topic", VerticalScroll)
        if shown := place.query(MarkdownPage):
            shown.first().update(page(f"parts/{name}"))
        else:
            place.mount(MarkdownPage(f"parts/{name}"))
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

    @on(Markdown.LinkClicked)
    def _link(self, message: Markdown.LinkClicked) -> None:
        message.stop()
        if (name := message.href.removesuffix(".md")) in _NAMES:
            self.open(name)

"""The help's pages on one thing each: a list of them, and the page that was chosen, which is read only then."""

from __future__ import annotations

from importlib import resources

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Markdown
from textual.widgets.option_list import Option

from inspector.widgets.option_list import SafeOptionList

TOPICS: tuple[tuple[str, str, str], ...] = (
    ("embedding", "Embedding", "from an id to a list of numbers"),
    ("position", "Position", "RoPE and others: how a model knows where a token stands"),
    ("attention", "Attention", "how a token gets something from those before it"),
    ("key-value", "Query, key and value", "what attention compares, and what a cache keeps"),
    ("head", "Head", "several attentions side by side, and why they share keys"),
    ("norm", "Norm", "what keeps the numbers at one scale"),
    ("mlp", "MLP", "the larger part of a layer, and when it isn't"),
    ("differences", "Where programs and courses differ", "orders, growth, names"),
)
"""File name in `help/parts` without its ending, title, and what the page tells."""
_NAMES = [name for name, *_ in TOPICS]


def page(name: str) -> str:
    """The Markdown of one page of the help, by its place in `help` without the ending."""
    return (resources.files("inspector") / "help" / f"{name}.md").read_text(encoding="utf-8")


class TopicPages(Vertical):
    """The list, or one page in its place."""

    DEFAULT_CSS = """
    TopicPages { height: 1fr; }
    TopicPages SafeOptionList { height: 1fr; border: none; padding: 0 1; }
    TopicPages #topic { height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        options = [
            Option(Content.assemble((title, "bold"), (f"  {about}", "$ink-muted")))
            for _, title, about in TOPICS
        ]
        yield SafeOptionList(*options, markup=False, compact=True)

    def focus_shown(self) -> None:
        """Focus what is shown."""
        shown = self.query("#topic") or self.query(SafeOptionList)
        shown.first().focus()

    def open(self, name: str) -> None:
        """Show a page in place of the list, or of another page.

        Args:
            name: Its file name.
        """
        self._clear()
        self.query_one(SafeOptionList).display = False
        text = VerticalScroll(Markdown(page(f"parts/{name}"), open_links=False), id="topic")
        self.mount(Button(Content("⌫  All pages"), id="topic-list", compact=True), text)
        text.focus()

    def close(self) -> None:
        """Show the list again."""
        options = self.query_one(SafeOptionList)
        if not options.display:
            self._clear()
            options.display = True
            options.focus()

    def _clear(self) -> None:
        self.query("#topic, #topic-list").remove()

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

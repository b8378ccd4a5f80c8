"""The presenter's notes on a screen of their own: `inspector notes`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.driver import Driver
from textual.widgets import Static

from engine.errors import EngineError
from inspector.display import visible
from inspector.driver import TerminalDriver
from inspector.lessons.notes import NotesPage
from inspector.tools.lessons.presenter import clock
from inspector.widgets.safety import ControlFilter

ENDED = "The presenting program has ended. q leaves; it is followed again when it presents."


class NotesApp(App[int]):
    """Follows the presenting program.

    Args:
        pages: Gives its pages as they come; raises `EngineError` where nobody presents.
    """

    CSS = """
    #notes-head { height: 1; padding: 0 1; background: $panel; }
    #notes-body { padding: 1 2; }
    """
    BINDINGS = [Binding("q,escape", "quit", "Quit")]  # noqa: RUF012 (no ClassVar in the toolkit's own declaration)
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, pages: Callable[[], Iterable[NotesPage]]) -> None:
        super().__init__()
        self._pages = pages
        self._page: NotesPage | None = None
        self._came = 0.0
        self._problem = "Waiting for the presenting program"
        self._filter = ControlFilter()

    def get_driver_class(self) -> type[Driver]:
        """That of the program."""
        chosen = super().get_driver_class()
        return TerminalDriver if issubclass(TerminalDriver, chosen) else chosen

    def compose(self) -> ComposeResult:
        yield Static(id="notes-head", markup=False)
        with VerticalScroll():
            yield Static(id="notes-body", markup=False)

    def on_mount(self) -> None:
        """Follow in a thread of its own."""
        threading.Thread(target=self._follow, name="follow", daemon=True).start()
        self.set_interval(1.0, self._show)
        self._show()

    def _follow(self) -> None:
        while self.is_running:
            problem = ENDED
            try:
                for page in self._pages():
                    self.call_later(self._take, page)
            except EngineError as error:
                problem = str(error)
            self.call_later(self._lost, problem)
            time.sleep(1.0)

    def _take(self, page: NotesPage) -> None:
        self._page, self._came, self._problem = page, time.monotonic(), ""
        self._show()

    def _lost(self, problem: str) -> None:
        self._page, self._problem = None, problem
        self._show()

    def _show(self) -> None:
        head, body = self.query_one("#notes-head", Static), self.query_one("#notes-body", Static)
        if self._page is None:
            head.update(Content("Notes"))
            body.update(Content(visible(self._problem)))
        else:
            head.update(head_line(self._page, time.monotonic() - self._came))
            body.update(body_text(self._page))


def head_line(page: NotesPage, since: float) -> Content:
    """Lesson, beat and time.

    Args:
        page: What is on show.
        since: Seconds since it came.
    """
    place = Content.styled(visible(f"{page.lesson} {page.beat}/{page.beats}"), "bold")
    beat = _time(page.beat_seconds + since, page.beat_minutes)
    lesson = _time(page.lesson_seconds + since, page.lesson_minutes)
    return place + Content("   beat ") + beat + Content("   all ") + lesson


def _time(seconds: float, minutes: float) -> Content:
    text = f"{clock(seconds)} of {clock(minutes * 60)}"
    return Content.styled(text, "bold $warning" if seconds > minutes * 60 else "")


def body_text(page: NotesPage) -> Content:
    """Notes, question, votes, and what comes next."""
    lines = [Content.styled(visible(page.title), "bold"), *_notes(page.notes), Content()]
    if page.question:
        lines.append(Content(visible(page.question)))
        lines += [_option(page, place) for place in range(len(page.options))]
        lines.append(Content())
    lines.append(Content.styled(_doing(page), "$text-primary"))
    if page.next_title:
        lines += [Content(), Content.styled(f"Next: {visible(page.next_title)}", "bold $foreground 60%")]
        lines += [Content.styled(visible(each), "$foreground 60%") for each in page.next_notes]
    return Content("\n").join(lines)


def _notes(notes: Iterable[str]) -> list[Content]:
    return [Content(visible(each)) for each in notes]


def _option(page: NotesPage, place: int) -> Content:
    text = visible(page.options[place])
    votes = f"  {page.votes[place]}" if place < len(page.votes) else ""
    right = page.options[place] == page.answer
    return Content.styled(f"{'✓' if right else ' '} {place + 1} {text}{votes}", "bold" if right else "")


def _doing(page: NotesPage) -> str:
    said = {
        "asking": "The class predicts. v takes the votes, pgdn goes on.",
        "acting": "pgdn does it.",
        "revealed": "It is revealed. pgdn goes to the next beat.",
        "ended": "The lesson is over.",
    }
    return said.get(page.phase, "Getting ready")

"""The presenter's notes for a second terminal of the same person: what is on show now, and what comes next.

One line of JSON for each change, over a local socket that only its owner may open (a directory of mode 0700, a socket
of mode 0600). Nothing is read from whoever follows.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.driver import Driver
from textual.widgets import Static

from engine.errors import EngineError
from engine.frozen import frozen
from inspector import places
from inspector.display import visible
from inspector.driver import ControlFilter, TerminalDriver
from inspector.keys import key_for
from inspector.scales import clock

VERSION = 1
LONGEST = 64 * 1024
"""Bytes of a line: a lesson's notes of one beat are far shorter."""
MOST = 8
"""Followers at once."""


@frozen
class NotesPage:
    """A page that the presenter reads while a beat is on show."""

    lesson: str
    beat: int
    """From 1."""
    beats: int
    title: str
    phase: str
    notes: tuple[str, ...] = ()
    question: str = ""
    options: tuple[str, ...] = ()
    answer: str = ""
    """The right option, before the class sees it; empty where it isn't known yet."""
    votes: tuple[int, ...] = ()
    next_title: str = ""
    next_notes: tuple[str, ...] = ()
    beat_seconds: float = 0.0
    """Since the beat began, when this was written."""
    lesson_seconds: float = 0.0
    beat_minutes: float = 0.0
    """That it should take."""
    lesson_minutes: float = 0.0
    version: int = field(default=VERSION)


def folder() -> Path:
    """The directory of the sockets: the user's own run-time directory, or else that of the program's state."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(runtime) / "mlx-inspector" if runtime else places.state() / "run"


# ---- the presenting program -------------------------------------------------------------------


class NotesServer:
    """Tells whoever follows what is on show.

    Raises:
        EngineError: The socket can't be made.
    """

    def __init__(self) -> None:
        self._followers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._last = b""
        self._path = folder() / f"notes-{os.getpid()}.sock"
        self._socket = self._bound()
        threading.Thread(target=self._accept, name="notes", daemon=True).start()

    def _bound(self) -> socket.socket:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_foreign(self._path.parent)
            with suppress(FileNotFoundError):
                self._path.unlink()  # of a program of the same number that was killed
            before = os.umask(0o177)
            try:
                own.bind(str(self._path))
            finally:
                os.umask(before)
            own.listen(MOST)
        except OSError as error:
            own.close()
            why = error.strerror or str(error)
            raise EngineError(f"Notes can't be shown in a second terminal: {self._path}: {why}.") from error
        return own

    def publish(self, page: NotesPage) -> None:
        """Tell what is on show now; returns at once."""
        line = json.dumps(asdict(page)).encode()[: LONGEST - 1] + b"\n"
        with self._lock:
            self._last = line
            for each in tuple(self._followers):
                self._send(each, line)

    def _send(self, follower: socket.socket, line: bytes) -> None:
        """A follower that doesn't read is let go of: nobody waits for it."""
        try:
            follower.sendall(line)
        except OSError:
            follower.close()
            self._followers.remove(follower)

    def _accept(self) -> None:
        while True:
            try:
                follower, _ = self._socket.accept()
            except OSError:
                return  # closed
            follower.settimeout(0.2)
            with self._lock:
                if len(self._followers) >= MOST:
                    follower.close()
                    continue
                self._followers.append(follower)
                if self._last:
                    self._send(follower, self._last)

    def close(self) -> None:
        """Let go of all; no socket is left behind."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with suppress(OSError):
            self._path.unlink()
        with self._lock:
            for each in self._followers:
                each.close()
            self._followers.clear()


def _refuse_foreign(place: Path) -> None:
    """See that a directory is this user's own, and nobody else's."""
    status = place.stat()
    if status.st_uid != os.getuid():
        raise PermissionError(1, "it belongs to somebody else", str(place))
    if stat.S_IMODE(status.st_mode) & 0o077:
        place.chmod(0o700)


# ---- the second terminal ----------------------------------------------------------------------


def presenting() -> Path:
    """The socket of the program that began to present last.

    Raises:
        EngineError: None does.
    """
    found = sorted(folder().glob("notes-*.sock"), key=lambda each: -_made(each))
    for path in found:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.connect(str(path))
            return path
    raise EngineError(
        "No lesson is being presented on this machine.",
        f"Begin with: inspector learn 3 --present, or {key_for('present')} in a session.",
    )


def _made(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def follow(path: Path) -> Iterator[NotesPage]:
    """The pages of a presenting program, as they come, until it ends.

    Raises:
        EngineError: It can't be followed, or says what this version doesn't read.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        try:
            own.connect(str(path))
            with own.makefile("rb") as lines:
                while line := lines.readline(LONGEST + 1):
                    yield page(line)
        except OSError as error:
            raise EngineError(
                f"The notes can't follow the presenting program: {error.strerror or error}."
            ) from error


def page(line: bytes) -> NotesPage:
    """Read one line.

    Raises:
        EngineError: It is none of this version's.
    """
    try:
        value = json.loads(line)
        known = {name: value[name] for name in NotesPage.__dataclass_fields__}
        known = {name: tuple(each) if isinstance(each, list) else each for name, each in known.items()}
        words = (known["lesson"], known["title"], known["phase"])
        if known["version"] != VERSION or not all(isinstance(each, str) for each in words):
            raise ValueError
        return NotesPage(**known)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "See that both terminals run the same version."
        raise EngineError("The presenting program sent what can't be read.", hint) from error


# ---- the screen of the second terminal: inspector notes --------------------------------------

ENDED = "The presenting program has ended. q leaves; the notes appear again when it presents."


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
    lines = [
        Content.styled(visible(page.title), "bold"),
        *(Content(visible(each)) for each in page.notes),
        Content(),
    ]
    if page.question:
        lines.append(Content(visible(page.question)))
        lines += [_option(page, place) for place in range(len(page.options))]
        lines.append(Content())
    lines.append(Content.styled(_doing(page), "$text-primary"))
    if page.next_title:
        lines += [Content(), Content.styled(f"Next: {visible(page.next_title)}", "bold $foreground 60%")]
        lines += [Content.styled(visible(each), "$foreground 60%") for each in page.next_notes]
    return Content("\n").join(lines)


def _option(page: NotesPage, place: int) -> Content:
    text = visible(page.options[place])
    votes = f"  {page.votes[place]}" if place < len(page.votes) else ""
    right = page.options[place] == page.answer
    return Content.styled(f"{'✓' if right else ' '} {place + 1} {text}{votes}", "bold" if right else "")


def _doing(page: NotesPage) -> str:
    said = {
        "asking": "The class predicts. v takes the votes, pgdn continues.",
        "acting": "pgdn does it.",
        "revealed": "The answer is shown. pgdn goes to the next beat.",
        "ended": "The lesson is over.",
    }
    return said.get(page.phase, "Getting ready")

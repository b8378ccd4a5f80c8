"""The dialogs of recordings: the one that saves what is on show to a file, and the list of recent sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import ClassVar

from textual import events, on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label
from textual.widgets.option_list import Option

from engine.errors import EngineError, PathError
from engine.files import shorter
from engine.protocol import ReadLogits
from engine.recording import Entry, placed, save_as
from inspector.display import pad, truncate, truncate_words, visible
from inspector.keys import with_keys
from inspector.main.dialogs.destination import Destination
from inspector.recordings.sessions import SavedSession, saved_sessions
from inspector.scales import size
from inspector.session.client import EngineClient, Request
from inspector.widgets.actions import ActionTable, list_table
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput
from inspector.widgets.lists import SafeOptionList

LOGITS = ("without logits", "with the kept logits")
LOGITS_HELP = (
    "With a step's logits a replay tries other settings, shows raw logits and searches the whole vocabulary"
)
HELP = "A name that ends in .zst compresses it. `inspector replay FILE` shows it again, here or elsewhere."
_REPORT_EVERY = 500
"""Entries between two reports of the progress."""


class _Stopped(Exception):
    """The user gave it up."""


# ---- saving -----------------------------------------------------------------------------------


class SaveAsDialog(Dialog[str]):
    """Asks for a path and writes there; an existing file is replaced on the second request. Returns the answer.

    Args:
        entries: Returns what to save.
        proposal: The initial path in the field.
        program: Name and version of what writes.
        client: Has the kept rows of logits added to the entries; None if none are kept.
        row: Bytes of one row at most.
    """

    HEADING: ClassVar[str] = "Save as"
    APPLY: ClassVar[str] = "Save"

    def __init__(
        self,
        entries: Callable[[], Sequence[Entry]],
        proposal: str,
        program: str,
        client: EngineClient | None,
        row: int,
    ) -> None:
        super().__init__()
        self.entries, self.proposal, self.program = entries, proposal, program
        self._client, self._row = client, row
        self._destination = Destination("Save")
        self._stop: Event | None = None
        """Set to give up the logits that are read or the file that is written; None while there is neither."""

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self.proposal, "session.trace.zst", id="save-path")
        if self._client is not None:
            yield Label("logits", classes="field-label", markup=False)
            yield Choice(LOGITS, id="save-logits")
        yield Remark(HELP, id="save-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#save-path", SafeInput).focus()

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#save-remark", Remark).say(visible(text), wrong)

    @on(Input.Changed, "#save-path")
    def _typed(self) -> None:
        if self._stop is None:
            self._say(HELP)

    @on(Choice.Changed, "#save-logits")
    def _logits_chosen(self) -> None:
        self._say(f"{LOGITS_HELP}: up to {size(self._row)} each." if self._with_logits else HELP)

    @property
    def _with_logits(self) -> bool:
        return self._client is not None and self.query_one("#save-logits", Choice).chosen == 1

    def let_go(self) -> None:
        """Give up a file that is half written, also if the program ends, and wait for logits no more."""
        if self._stop is not None:
            self._stop.set()

    def apply(self) -> None:
        """Write, unless something is wrong with the name."""
        if self._stop is not None:
            return
        try:
            path, force = self._destination.check(self.query_one("#save-path", SafeInput).value.strip())
        except PathError as error:
            self._say(str(error), wrong=True)
            return
        stop = self._stop = Event()

        def rows_read(request: Request[ReadLogits]) -> None:
            if stop.is_set():
                return
            if request.failure is not None:
                self._failed(f"{request.failure.message} {request.failure.hint}")
            elif request.cancelled:
                self._failed("The logits were not read: it was cancelled.")
            else:
                self._write(path, force, placed(self.entries()), stop)

        if self._client is not None and self._with_logits:
            self._say("Reading the kept logits …")
            self._client.do(ReadLogits(), rows_read)
        else:
            self._write(path, force, self.entries(), stop)

    @work(thread=True)
    def _write(self, path: Path, force: bool, entries: Sequence[Entry], stop: Event) -> None:
        try:
            written = save_as(path, self._counted(entries, stop), self.program, force)
        except _Stopped:
            return
        except EngineError as error:
            self.from_thread(self._failed, str(error))
        else:
            self.from_thread(self.dismiss, f"Saved {size(written)} to {visible(shorter(path))}")

    def _counted(self, entries: Sequence[Entry], stop: Event) -> Iterator[Entry]:
        whole = len(entries)
        for number in range(whole):
            if stop.is_set():
                raise _Stopped
            if number % _REPORT_EVERY == _REPORT_EVERY - 1:
                self.from_thread(self._say, f"Writing: {number / whole:.0%}. Esc stops it.")
            yield entries[number]

    def _failed(self, why: str) -> None:
        self._stop = None
        self._say(why, wrong=True)


# ---- recent sessions -------------------------------------------------------------------------

READING = "Reading the list"
SESSIONS_HELP = (
    "⏎ shows it as a recording; there {go_live} continues it live. The session "
    "that runs now is saved, and is in this list, too."
)
NO_SESSIONS = "No session is saved yet. {save_as} saves this one to a file."


class SessionsDialog(Dialog[Path]):
    """Lists sessions; returns the file of the chosen one."""

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of sessions", "open")
    KEPT: ClassVar[tuple[str, ...]] = ("_listed",)
    HEADING: ClassVar[str] = "Recent sessions"
    LEAVE: ClassVar[str] = "Close"

    def __init__(self) -> None:
        super().__init__()
        self._listed: Sequence[SavedSession] = ()

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="sessions-list", markup=False, compact=True)
        yield Remark(READING, id="sessions-remark")

    def begin(self) -> None:
        """Read the files in a thread: there may be hundreds of MiB of them."""
        super().begin()
        options = self.query_one(SafeOptionList)
        options.clear_options()
        self.set_focus(options)
        self.query_one("#sessions-remark", Remark).say(READING)
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        self.from_thread(self._show, saved_sessions())

    def _show(self, listed: Sequence[SavedSession]) -> None:
        options = self.query_one(SafeOptionList)
        self._listed = listed
        options.add_options(
            Option(line(session, self._width), disabled=session.peek is None) for session in listed
        )
        options.highlighted = 0 if listed else None
        self.query_one("#sessions-remark", Remark).say(with_keys(SESSIONS_HELP if listed else NO_SESSIONS))

    @property
    def _width(self) -> int:
        return max(20, self.query_one(SafeOptionList).content_size.width - 2)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the lines to another width."""
        self.after_paint(self._fit)

    def _fit(self) -> None:
        options = self.query_one(SafeOptionList)
        for index, session in enumerate(self._listed[: len(options.options)]):
            options.replace_option_prompt_at_index(index, line(session, self._width))

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._listed[message.option_index].path)


def line(saved: SavedSession, width: int) -> Content:
    """One session on one line of `width` cells."""
    when = datetime.fromtimestamp(saved.changed).strftime("%Y-%m-%d %H:%M")
    if saved.peek is None:
        return Content.styled(truncate(f"{when}  {visible(saved.problem)}", width), "$ink-muted")
    tokens = f"{saved.tokens:,} token{'' if saved.tokens == 1 else 's'}"
    model, bytes = pad(visible(saved.peek.model), 14), pad(size(saved.size), 8, True)
    left = f"{when}  {model}  {pad(tokens, 15, True)}  {bytes}  "
    parts = ("runs" if saved.peek.in_use else "", saved.made, visible(saved.peek.user_message))
    prompt = truncate_words(" · ".join(filter(None, parts)), max(0, width - len(left)))
    return Content(truncate(left, width) + prompt)  # in the ink of the row, highlighted too

"""Recorded sessions: continued live, saved to a file, and the list of recent ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label

from engine.errors import Cancelled, EngineError, PathError
from engine.files import replacing, shorter
from engine.protocol import ReadLogits
from engine.recording import Entry, placed, save_as
from inspector.display import pad, truncate, truncate_words, visible
from inspector.documents.parts import exhibits_of
from inspector.export.documents import alone, views_csv
from inspector.export.recording import Recording, exported
from inspector.export.recording import line as line_of
from inspector.keys import key_for, with_keys
from inspector.main.dialogs.field import PathDialog
from inspector.main.finder import Findable
from inspector.main.tool import ToolActions, found
from inspector.main.view import View
from inspector.recordings.sessions import SavedSession, saved_sessions, session_peeks
from inspector.scales import counted, size
from inspector.session.client import EngineClient, Request
from inspector.session.playback import Opening, Playback
from inspector.widgets.actions import ActionTable, dialog_table, fields, list_table
from inspector.widgets.fields import Choice
from inspector.widgets.lists import LinesDialog

LOGITS = ("without logits", "with the kept logits")
LOGITS_HELP = (
    "With a step's logits a replay tries other settings, shows raw logits and searches the whole vocabulary"
)
HELP = "A name that ends in .zst compresses it. `inspector replay FILE` shows it again, here or elsewhere."
_REPORT_EVERY = 500
"""Entries between two reports of the progress."""


class RecordingActions(ToolActions):
    """Continues recorded sessions, saves them and lists them."""

    def go_live(self) -> None:
        """Continue live from the recording on show."""
        playback = self.host.playback
        if playback is None or playback.replay is None:
            self.host.answer(f"This session is live already: {key_for('step')} takes the next token")
        elif self.timeline.facts is not None and not self.timeline.facts.ran:
            self.host.answer(
                "A recorded reply has no model to continue with: open its request with --model MODEL"
            )
        else:
            self.host.answer(playback.replay.begin())

    def save_as(self) -> None:
        """Ask for a name, and save the session under it."""
        playback = self.host.playback
        if playback is None or not playback.entries:
            self.host.answer("There is nothing to save yet")
            return
        facts, live = self.timeline.facts, self.controller.stepping and playback.player is None
        bytes = 2 if facts is not None and facts.dtype in ("bfloat16", "float16") else 4
        row = bytes * facts.vocabulary if facts is not None else 0
        of_view: ViewFile | None = None
        if (view := self.host.open_view) is not None:
            of_view = self.host.table.titled(view.TOOL), partial(self._file_of, view)
        dialog = SaveAsDialog(playback, self.controller.client if live else None, row, of_view)
        self.host.open(dialog, lambda answer: None if answer is None else self.host.answer(answer))

    def _file_of(self, view: View, end: str) -> str:
        """The contents of a file of a view, by the end of its name: `svg` or `csv`.

        Raises:
            EngineError: The view has no table.
        """
        recording, name = line_of(Recording(self.timeline)), self.host.table.titled(view.TOOL)
        if end == "svg":
            return alone(self.host.picture(view, f"{name} · {recording.title}"), recording.made)
        tool = next(each for each in self.host.tools if each.id == view.TOOL)
        views = [*exhibits_of(map(found, tool.exports), exported(recording))]
        path = getattr(view, "path", ())  # only views about a token have one
        own = [each for each in views if path and each.node == path[-1].node]
        if not (text := views_csv(own or views)):
            raise PathError(f"{name} has no table now.", "Save it as a picture.")
        return text

    def sessions(self) -> None:
        """List recent sessions, and show the chosen one."""
        self.host.open(SessionsDialog(), lambda saved: None if saved is None else self._show(saved.path))

    def on_disk(self) -> Iterator[Findable]:
        """The saved sessions; each opens as a recording."""
        if self.host.playback is None:
            return
        keys = key_for("sessions")
        for path, changed, peek in session_peeks():
            when = datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")
            label = visible(peek.user_message or peek.prompt) or when
            about = f"A session of {visible(peek.model) or 'no model'}, last written to on {when}."
            where = f"Session {when[5:]}"
            yield Findable(f"session {path.name}", label, about, where, keys, "session", "sessions",
                           partial(self._show, path), foreign=True)  # fmt: skip

    def _show(self, path: Path) -> None:
        playback = self.host.playback
        if playback is None:
            return
        if path == playback.recorder.path:
            self.host.answer("That is the session that is open now")
        else:
            if self.host.narrator is not None:
                self.host.narrator.leave()
            self.host.to_main()
            playback.open(Opening(path))


# ---- saving -----------------------------------------------------------------------------------


WHAT = ("session", "this view, a picture", "this view, a table")
ENDS = ("trace.zst", "svg", "csv")
"""The things that can be saved, and the file name extension of each."""
ViewFile = tuple[str, Callable[[str], str]]
VIEW_HELP = ("", "The view as it stands, as SVG.", "The tables of the view, as CSV for a spreadsheet.")


class SaveAsDialog(PathDialog[str]):
    """Asks for a path and writes there; an existing file is replaced on the second request. Returns the answer.

    Args:
        playback: Provides the entries to save.
        client: Asks the engine for the kept logits; None if there is no live session.
        row: Maximum bytes of one row of logits.
        view: Name of the open view, and a function that makes the contents of its file, given the extension; None if
            no view is open.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table("While something is saved", *fields(), told=False)
    HEADING: ClassVar[str] = "Save"
    APPLY: ClassVar[str] = "Save"
    FIELD: ClassVar[str] = "save-path"

    def __init__(
        self, playback: Playback, client: EngineClient | None, row: int, view: ViewFile | None = None
    ) -> None:
        path = playback.path
        name = path.name.partition(".trace")[0] if path is not None else "session"
        super().__init__(f"{name}.trace.zst", "session.trace.zst", HELP)
        self._playback, self._client, self._row, self._view = playback, client, row, view
        self._names = [name, *([re.sub(r"\W+", "-", view[0].lower())] * 2 if view is not None else [])]
        self._stop: Event | None = None
        """Set to stop reading logits or writing the file; None while neither is under way."""

    def body(self) -> Iterable[Widget]:
        field, remark = super().body()
        if self._view is not None:
            yield Label("what", classes="field-label", markup=False)
            yield Choice(WHAT, id="save-what")
        yield Label("file", classes="field-label", markup=False)
        yield field
        if self._client is not None:
            yield Label("logits", classes="field-label", markup=False, id="save-logits-label")
            yield Choice(LOGITS, id="save-logits")
        yield remark

    def changed(self) -> None:
        if self._stop is None:
            self.say(VIEW_HELP[self._what] or HELP)

    @on(Choice.Changed, "#save-logits")
    def _logits_chosen(self) -> None:
        self.say(f"{LOGITS_HELP}: up to {size(self._row)} each." if self._with_logits else HELP)

    @on(Choice.Changed, "#save-what")
    def _what_chosen(self) -> None:
        self.field.value = f"{self._names[self._what]}.{ENDS[self._what]}"
        for each in self.query("#save-logits, #save-logits-label"):
            each.display = not self._what
        self.say(VIEW_HELP[self._what] or HELP)

    @property
    def _what(self) -> int:
        """Index in `WHAT` of what is saved."""
        return self.query_one("#save-what", Choice).chosen if self._view is not None else 0

    @property
    def _with_logits(self) -> bool:
        return self._client is not None and self.query_one("#save-logits", Choice).chosen == 1

    def let_go(self) -> None:
        """Stop reading logits or writing the file, also if the program ends."""
        if self._stop is not None:
            self._stop.set()

    def apply(self) -> None:
        """Write, unless something is wrong with the name."""
        if self._stop is not None or (place := self.destination()) is None:
            return
        path, force = place
        if self._view is not None and self._what:
            self._write_view(self._view[1], path, force)
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
                self._write(path, force, placed(tuple(self._playback.entries)), stop)

        if self._client is not None and self._with_logits:
            self.say("Reading the kept logits …")
            self._client.do(ReadLogits(), rows_read)
        else:
            self._write(path, force, tuple(self._playback.entries), stop)

    def _write_view(self, made: Callable[[str], str], path: Path, force: bool) -> None:
        try:
            raw = made(ENDS[self._what]).encode()
            with replacing(path, force) as file:
                file.write(raw)
        except EngineError as error:
            self._failed(str(error))
        else:
            self.dismiss(f"Saved {size(len(raw))} to {visible(shorter(path))}")

    @work(thread=True)
    def _write(self, path: Path, force: bool, entries: Sequence[Entry], stop: Event) -> None:
        try:
            written = save_as(path, self._counted(entries, stop), self._playback.recorder.program(), force)
        except Cancelled:
            return
        except EngineError as error:
            self.from_thread(self._failed, str(error))
        else:
            self.from_thread(self.dismiss, f"Saved {size(written)} to {visible(shorter(path))}")

    def _counted(self, entries: Sequence[Entry], stop: Event) -> Iterator[Entry]:
        whole = len(entries)
        for number in range(whole):
            if stop.is_set():
                raise Cancelled
            if number % _REPORT_EVERY == _REPORT_EVERY - 1:
                self.from_thread(self.say, f"Writing: {number / whole:.0%}. Esc stops it.")
            yield entries[number]

    def _failed(self, why: str) -> None:
        self._stop = None
        self.say(why, wrong=True)


# ---- sessions --------------------------------------------------------------------------------

READING = "Reading the list"
SESSIONS_HELP = "⏎ shows it as a recording; there {go_live} continues it live."
NO_SESSIONS = "No session is saved yet. {save_as} saves this one to a file."


class SessionsDialog(LinesDialog[SavedSession]):
    """Lists sessions; returns the chosen one."""

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of sessions", "open")
    KEPT: ClassVar[tuple[str, ...]] = ("_choices",)
    HEADING: ClassVar[str] = "Sessions"

    def __init__(self) -> None:
        super().__init__(remark=READING)

    def begin(self) -> None:
        """Read the files in a thread: there may be hundreds of MiB of them."""
        super().begin()
        self.say(READING)
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        self.from_thread(self._show, saved_sessions())

    def _show(self, listed: Sequence[SavedSession]) -> None:
        others = (at for at, each in enumerate(listed) if each.peek is not None and not each.peek.in_use)
        self.put(listed, next(others, 0))  # the open session comes first, but can't be opened again
        self.say(with_keys(SESSIONS_HELP if listed else NO_SESSIONS))

    def possible(self, choice: SavedSession) -> bool:
        return choice.peek is not None

    def line(self, choice: SavedSession, width: int) -> Content:
        return line(choice, width)


def line(saved: SavedSession, width: int) -> Content:
    """One session on one line of `width` cells."""
    when = datetime.fromtimestamp(saved.changed).strftime("%Y-%m-%d %H:%M")
    if saved.peek is None:
        return Content.styled(truncate(f"{when}  {visible(saved.problem)}", width), "$ink-muted")
    left = f"{when}  {pad(visible(saved.peek.model), 14)}  {pad(counted(saved.tokens, 'token'), 14, True)}  "
    parts = ("open" if saved.peek.in_use else "", saved.made, visible(saved.peek.user_message))
    prompt = truncate_words(" · ".join(filter(None, parts)), max(0, width - len(left)))
    return Content(truncate(left, width) + prompt)  # unstyled: it takes the row's ink, also when highlighted

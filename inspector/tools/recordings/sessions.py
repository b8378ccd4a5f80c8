"""The dialog that lists recent sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets.option_list import Option

from inspector.display import pad, truncate, visible
from inspector.keys import with_keys
from inspector.recordings.sessions import SavedSession, saved_sessions
from inspector.scales import size
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.option_list import SafeOptionList

READING = "Reading the list"
HELP = (
    "⏎ shows it as a recording; there {go_live} goes on with it live. What runs "
    "now is saved and in this list too."
)


class SessionsDialog(Dialog[Path]):
    """Lists sessions; returns the file of the one that is to be shown."""

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In the list of sessions",
        note("up down", hint="choose", worth=5),
        note("enter", hint="open", worth=6),
        told=False,
    )
    KEPT: ClassVar[tuple[str, ...]] = ("_paths",)
    HEADING: ClassVar[str] = "Recent sessions"
    LEAVE: ClassVar[str] = "Close"

    def __init__(self) -> None:
        super().__init__()
        self._paths: list[Path] = []

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="sessions-list", markup=False, compact=True)
        yield Remark(READING, id="sessions-remark")

    def begin(self) -> None:
        """Read the files aside: there may be hundreds of MiB of them."""
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
        self._paths = [session.path for session in listed]
        width = max(20, options.content_size.width - 2)
        options.add_options(Option(line(session, width), disabled=session.peek is None) for session in listed)
        options.highlighted = 0 if listed else None
        self.query_one("#sessions-remark", Remark).say(
            with_keys(HELP) if listed else "No session is saved yet."
        )

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._paths[message.option_index])


def line(saved: SavedSession, width: int) -> Content:
    """One session on one line of `width` cells."""
    when = datetime.fromtimestamp(saved.changed).strftime("%Y-%m-%d %H:%M")
    if saved.peek is None:
        return Content.styled(truncate(f"{when}  {visible(saved.problem)}", width), "$ink-muted")
    tokens = f"{saved.tokens:,} tokens"
    model, bytes = pad(visible(saved.peek.model), 14), pad(size(saved.size), 8, True)
    columns = (when, model, pad(tokens, 15, True), bytes)
    left = "  ".join((*columns, ""))
    told = ("runs" if saved.peek.in_use else "", saved.made, visible(saved.peek.user_message))
    prompt = truncate(" · ".join(filter(None, told)), max(0, width - len(left)))
    return Content(truncate(left, width)) + Content.styled(prompt, "$ink-muted")

"""The dialog that lists recent sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from inspector.display import pad, truncate, visible
from inspector.recordings.sessions import Listed, listed
from inspector.scales import size
from inspector.widgets.dialog import Dialog, Remark

HELP = "⏎ shows it as a recording; there G goes on with it live. What runs now is saved and in this list too."


class SessionsDialog(Dialog[Path]):
    """Lists sessions; returns the file of the one that is to be shown."""

    HEADING: ClassVar[str] = "Recent sessions"
    LEAVE: ClassVar[str] = "Close"

    def __init__(self) -> None:
        super().__init__()
        self._paths: list[Path] = []

    def body(self) -> Iterable[Widget]:
        yield OptionList(id="sessions-list", markup=False, compact=True)
        yield Remark("Reading the list", id="sessions-remark")

    def on_mount(self) -> None:
        """Read the files aside: there may be hundreds of MiB of them."""
        self.query_one(OptionList).focus()
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        self.app.call_from_thread(self._show, listed())

    def _show(self, found: Sequence[Listed]) -> None:
        options = self.query_one(OptionList)
        self._paths = [each.path for each in found]
        width = max(20, options.content_size.width - 2)
        options.add_options(Option(line(each, width), disabled=each.peek is None) for each in found)
        options.highlighted = 0 if found else None
        self.query_one("#sessions-remark", Remark).say(HELP if found else "No session is saved yet.")

    @on(OptionList.OptionSelected)
    def _selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self._paths[message.option_index])


def line(each: Listed, width: int) -> Content:
    """One session on one line of so many cells."""
    when = datetime.fromtimestamp(each.changed).strftime("%Y-%m-%d %H:%M")
    if each.peek is None:
        return Content.styled(truncate(f"{when}  {visible(each.problem)}", width), "dim")
    tokens = f"{each.tokens:,} tokens" + (" · runs" if each.peek.in_use else "")
    columns = (when, pad(visible(each.peek.model), 14), pad(tokens, 15, True), pad(size(each.size), 8, True))
    left = "  ".join((*columns, ""))
    prompt = truncate(visible(each.peek.user_message), max(0, width - len(left)))
    return Content(truncate(left, width)) + Content.styled(prompt, "dim")

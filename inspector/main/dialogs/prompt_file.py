"""The dialog that reads a prompt from a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from textual import on, work
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import EngineError
from inspector.display import visible
from inspector.texts import decoded, read_text_file
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.safety import SafeInput

HELP = "A UTF-8 text file, of 16 MiB at most. It takes the place of the prompt that stands in the dialog."
_NAMES = 10_000
"""Entries of a directory that are looked through."""


class PathSuggester(Suggester):
    """Completes the path of a file; what is proposed is taken with `→`."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """The first name in the alphabet that goes on with what was typed; a directory ends with a slash."""
        return await asyncio.to_thread(completed, value)


def completed(text: str) -> str | None:
    """A path that begins with what was typed, None where there is none that is printable."""
    directory, name = os.path.split(text)
    try:
        with os.scandir(os.path.expanduser(directory) or ".") as entries:
            found = [
                each
                for each in islice(entries, _NAMES)
                if each.name.startswith(name) and each.name.isprintable() and (name or each.name[0] != ".")
            ]
        best = min(found, key=lambda each: each.name, default=None)
        if best is None:
            return None
        return text[: len(text) - len(name)] + best.name + ("/" if best.is_dir() else "")
    except (OSError, ValueError):  # no such directory, or no name at all
        return None


class PromptFileDialog(Dialog[str]):
    """Asks for a path; returns the file's text.

    Args:
        name: The initial path in the field.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among files",
        note("enter", hint="read", worth=6),
        note("right", hint="take what is proposed", worth=5),
        told=False,
    )
    HEADING: ClassVar[str] = "Prompt from a file"
    APPLY: ClassVar[str] = "Read"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.file_name = name
        """As it was typed."""

    def body(self) -> Iterable[Widget]:
        field = SafeInput(self.file_name, "prompt.txt", id="prompt-file")
        field.suggester = PathSuggester()
        yield field
        yield Remark(HELP, id="prompt-file-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#prompt-file", SafeInput).focus()

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#prompt-file-remark", Remark).say(visible(text), wrong)

    @on(Input.Changed, "#prompt-file")
    def _typed(self) -> None:
        self._say(HELP)

    def apply(self) -> None:
        """Read the file, unless none was named."""
        self.file_name = self.query_one("#prompt-file", SafeInput).value.strip()
        if self.file_name:
            self._read(self.file_name)
        else:
            self._say("No file was named. Give a name.", wrong=True)

    @work(thread=True, exclusive=True)
    def _read(self, name: str) -> None:
        try:
            raw = read_text_file(name, "prompt file", "Check the path's spelling.", "Give a regular file.")
            text = decoded(raw, name)
            if not text:
                self.from_thread(self._say, "The file is empty. Give another one.", True)
                return
        except EngineError as error:
            self.from_thread(self._say, str(error), True)
        else:
            self.from_thread(self.dismiss, text)

"""The table of documents; a picture of the screen (`svg`) needs the screen and is made where that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.frozen import frozen
from inspector.tools.export import html, markdown, table, text
from inspector.tools.export.recording import Recording


@frozen
class Format:
    """One kind of document."""

    name: str
    """Also the end of a file's name."""
    label: str
    """A word, for a choice."""
    purpose: str
    """What is in it, as a phrase."""
    make: Callable[[Recording], str]
    """Its text, of the recording's path."""


FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        Format("html", "page", "one page to share: every token with its candidates, branches and charts",
               html.page),
        Format("md", "Markdown", "a report: the text, its figures, surprises, branches and steps",
               markdown.report),
        Format("csv", "CSV", "the tokens of the path as a table, one a row", table.rows),
        Format("txt", "text", "the text, and under it what it was made with if not by the model alone", text.plain),
    )
}  # fmt: skip

"""The net under `visible()`: a terminal obeys nothing in edited text, nor in anything else drawn."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.color import Color
from textual.filter import LineFilter
from textual.widgets import Input, TextArea

from inspector.display import visible
from inspector.keys import key_for
from inspector.widgets.inks import Inked

MOST_TYPED = 200_000
"""Characters that an editor takes: it lays out 1 MB in some 2 s, and again whenever it is opened or resized."""
MOST_IN_LINE = 10_000
"""Characters that a field of one line takes."""
UNKNOWN = "�"
_INKS = {
    "input--cursor": "caret",
    "input--selection": "selection",
    "input--placeholder": "faint",
    "input--suggestion": "faint",
}
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def editable(text: str) -> str:
    """A text as an editor may show it: character for character, so that the cursor stays true."""
    return "".join(char if char.isprintable() or char == "\t" else _one(char) for char in text)


def _one(char: str) -> str:
    shown = visible(char)
    return shown if len(shown) == 1 else UNKNOWN


class ControlFilter(LineFilter):
    """Takes control characters out of every line that goes to the terminal, whichever widget drew it.

    Panels draw through `visible()` and never need it; pasted text in an editor of the toolkit may.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with nothing in them that a terminal obeys; their widths stay."""
        if not any(_OBEYED.search(segment.text) for segment in segments):
            return segments
        return [Segment(_harmless(text), style, control) for text, style, control in segments]


def _harmless(text: str) -> str:
    return _OBEYED.sub(lambda match: UNKNOWN * cell_len(match[0]), text)


class _Editable(Highlighter):
    def highlight(self, text: Text) -> None:
        text.plain = editable(text.plain)


class SafeInput(Input, Inked, inherit_css=False):
    """One line to type in; control characters that were pasted are shown, not obeyed."""

    DEFAULT_CSS = """
    SafeInput { width: 100%; height: 1; background: $foreground 8%; color: $foreground; pointer: text; }
    SafeInput:focus { background-tint: $foreground 5%; }
    SafeInput { overflow: auto; scrollbar-size-horizontal: 0; }
    """

    def __init__(self, value: str = "", placeholder: str = "", id: str | None = None) -> None:
        super().__init__(value, placeholder, _Editable(), id=id, max_length=MOST_IN_LINE)

    def get_component_rich_style(
        self, *names: str, partial: bool = False, default: Style | None = None
    ) -> Style:
        """An ink, not the toolkit's component style: a dialog of twenty lines opens in two thirds of the time."""
        return self.ink(_INKS[names[0]])


class SafeTextArea(TextArea):
    """Several lines to type in; control characters that were pasted are shown, not obeyed."""

    def on_paste(self, event: events.Paste) -> None:
        """Refuse what would be too much to edit."""
        if len(self.document.text) + len(event.text) > MOST_TYPED:
            event.prevent_default()
            event.stop()
            self.app.notify(
                (
                    f"That is more than {MOST_TYPED:,} characters. Put it into a file: {key_for('prompt')}, "
                    f"{key_for('prompt.read_file')} read one."
                ),
                title="Not pasted",
                severity="warning",
                markup=False,
            )

    def get_line(self, line_index: int) -> Text:
        """One line of the document, as it may be drawn."""
        return Text(editable(self.document.get_line(line_index)), end="", no_wrap=True)

"""Fields of a form that are safe for foreign text: they draw no control characters that the terminal would obey."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.highlighter import Highlighter
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style as ContentStyle
from textual.widget import Widget
from textual.widgets import Input, TextArea

from inspector.display import visible
from inspector.keys import key_for
from inspector.widgets.dialog import Entered
from inspector.widgets.inks import Inked

MOST_TYPED = 200_000
"""Maximum characters in an editor: it lays out 1 MB in some 2 s, and again whenever it is opened or resized."""
MOST_IN_LINE = 10_000
"""Maximum characters in a field of one line."""
UNKNOWN = "�"
_INKS = {
    "input--cursor": "caret",
    "input--selection": "selection",
    "input--placeholder": "faint",
    "input--suggestion": "faint",
}
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})
_UNESCAPES = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
GAP = "   "


# ---- typed text ---------------------------------------------------------------------------------


def editable(text: str) -> str:
    """A printable text for an editor, with one character for each, so that the cursor's place stays right."""
    return "".join(char if char.isprintable() or char == "\t" else _one(char) for char in text)


def _one(char: str) -> str:
    shown = visible(char)
    return shown if len(shown) == 1 else UNKNOWN


class _Editable(Highlighter):
    def highlight(self, text: Text) -> None:
        if not text.plain.isprintable():
            text.plain = editable(text.plain)


class SafeInput(Input, Inked, inherit_css=False):
    """A field of one line, which shows pasted control characters as visible signs."""

    DEFAULT_CSS = """
    SafeInput { width: 100%; height: 1; background: $foreground 8%; color: $foreground; pointer: text; }
    SafeInput:focus { background-tint: $foreground 5%; }
    SafeInput { overflow: auto; scrollbar-size-horizontal: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+a", "select_all", "Select all", show=False)]

    def __init__(self, value: str = "", placeholder: str = "", id: str | None = None) -> None:
        super().__init__(value, placeholder, _Editable(), id=id, max_length=MOST_IN_LINE)

    def get_component_rich_style(self, *names: str, **options: object) -> Style:
        """An ink instead of Textual's component style: a dialog of twenty lines opens in two thirds of the time."""
        return self.ink(_INKS[names[0]])


class SafeTextArea(TextArea):
    """An editor of several lines, which shows pasted control characters as visible signs. Enter applies the dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Done", show=False, priority=True),
        Binding("ctrl+j,alt+enter,shift+enter", "newline", "New line", show=False),
        Binding("ctrl+a", "select_all", "Select all", show=False),
    ]

    def put(self, text: str) -> None:
        """Edit another text, with the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_submit(self) -> None:
        """Report enter to the dialog; Textual's editor would begin a new line."""
        self.post_message(Entered())

    def action_newline(self) -> None:
        self.insert("\n")

    def on_paste(self, event: events.Paste) -> None:
        """Refuse a text that is too long to edit."""
        if len(self.document.text) + len(event.text) > MOST_TYPED:
            event.prevent_default()
            event.stop()
            keys = f"{key_for('prompt')}, {key_for('prompt.read_file')}"
            text = f"That is more than {MOST_TYPED:,} characters. Put it into a file: {keys} read one."
            self.app.notify(text, title="Not pasted", severity="warning", markup=False)

    def get_line(self, line_index: int) -> Text:
        """One line of the document, made printable."""
        return Text(editable(self.document.get_line(line_index)), end="", no_wrap=True)


def escaped(text: str) -> str:
    """A text on one line, with a newline as \\n."""
    return text.translate(_ESCAPES)


def unescaped(text: str) -> str:
    """The text for one that was typed on one line, with \\n for a newline; other backslashes stay."""
    return re.sub(r"(?s)\\(.)", lambda typed: _UNESCAPES.get(typed[1], typed[0]), text)


# ---- a choice -----------------------------------------------------------------------------------


def labelled(label: str, chosen: bool, place: int) -> Content:
    """A label of a choice after its mark; a click on it finds its place in the style."""
    content = Content.styled(
        f"{'◉' if chosen else '○'} {label}", "bold $text-primary" if chosen else "$ink-muted"
    )
    return content.stylize(ContentStyle.from_meta({"choice": place}))


def flow(labels: Iterable[Content], width: int) -> list[Content]:
    """Labels in lines, as many side by side as fit; at least one line."""
    lines: list[Content] = []
    for label in labels:
        if lines and lines[-1].cell_length + len(GAP) + label.cell_length <= width:
            lines[-1] += Content(GAP) + label
        else:
            lines.append(label)
    return lines or [Content("")]


class Choice(Widget, can_focus=True):
    """A choice of one among several labels on a line; the chosen one has a mark, not only a colour.

    Args:
        labels: The labels in display order.
        chosen: Place of the label that is chosen at first.
        id: Id of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,up", "turn(-1)", "Before", show=False),
        Binding("right,down,space", "turn(1)", "Next", show=False),
        Binding("enter", "submit", "Done", show=False),
    ]
    chosen: reactive[int] = reactive(0, init=False, layout=True)
    labels: reactive[tuple[str, ...]] = reactive((), init=False, layout=True)

    class Changed(Message):
        """Another label was chosen."""

        def __init__(self, choice: Choice) -> None:
            self.choice = choice
            super().__init__()

        @property
        def control(self) -> Choice:
            """The widget, for selectors."""
            return self.choice

    def __init__(self, labels: Sequence[str], chosen: int = 0, id: str | None = None) -> None:
        super().__init__(id=id)
        self.set_reactive(Choice.labels, tuple(labels))
        self.set_reactive(Choice.chosen, chosen)

    def watch_chosen(self) -> None:
        self.post_message(self.Changed(self))

    def action_turn(self, by: int) -> None:
        """Choose a neighbouring label."""
        self.chosen = (self.chosen + by) % len(self.labels)

    def action_submit(self) -> None:
        """Report enter to the dialog."""
        self.post_message(Entered())

    def on_click(self, event: events.Click) -> None:
        """Choose the label that was clicked."""
        self.chosen = event.style.meta.get("choice", self.chosen)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines that the labels need, without breaking one."""
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        return flow(map(self._label, range(len(self.labels))), width)

    def _label(self, place: int) -> Content:
        return labelled(self.labels[place], place == self.chosen, place)


class Ticks(Choice):
    """Several labels on a line, each of which can be ticked.

    Args:
        labels: The labels in display order.
        without: Places of the labels that are not ticked at first.
        id: Id of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "tick", "Tick", show=False)]

    def __init__(self, labels: Sequence[str], without: Iterable[int] = (), id: str | None = None) -> None:
        super().__init__(labels, id=id)
        self.without = set(without)
        """Places of the labels without a tick."""

    def action_tick(self) -> None:
        """Tick the chosen label, or remove its tick."""
        self.without ^= {self.chosen}
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Tick the label that was clicked, or remove its tick."""
        if (place := event.style.meta.get("choice")) is not None:
            self.chosen = place
            self.action_tick()

    def _label(self, place: int) -> Content:
        here = place == self.chosen and self.has_focus
        style = "bold $text-primary" if here else "$ink-muted" if place in self.without else ""
        content = Content.styled(f"{'○' if place in self.without else '✓'} {self.labels[place]}", style)
        return content.stylize(ContentStyle.from_meta({"choice": place}))

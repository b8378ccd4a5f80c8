"""A choice of a few words on one line; a mark shows what is chosen, not colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget

GAP = "   "


class Choice(Widget, can_focus=True):
    """One of several labels.

    Args:
        labels: In display order.
        chosen: Place of the one that is chosen at first.
        id: Of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,up", "turn(-1)", "Before", show=False),
        Binding("right,down,space", "turn(1)", "Next", show=False),
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
        """Notify the dialog."""
        self.post_message(self.Changed(self))

    def action_turn(self, by: int) -> None:
        """Choose a neighbouring label."""
        self.chosen = (self.chosen + by) % len(self.labels)

    def on_click(self, event: events.Click) -> None:
        """Choose the label that was clicked."""
        self.chosen = event.style.meta.get("choice", self.chosen)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as the labels need, each whole."""
        return len(self._lines(width))

    def render(self) -> Content:
        lines = self._lines(self.content_size.width)
        return Content("\n").join(Content(GAP).join(map(self._label, line)) for line in lines)

    def _lines(self, width: int) -> list[list[int]]:
        """The places of the labels on each line: none parts from its mark."""
        lines: list[list[int]] = []
        room = -1
        for place, label in enumerate(self.labels):
            cells = 2 + cell_len(label)
            if room < len(GAP) + cells:
                lines.append([])
                room = width + len(GAP)
            lines[-1].append(place)
            room -= len(GAP) + cells
        return lines or [[]]

    def _label(self, place: int) -> Content:
        chosen = place == self.chosen
        style = "bold $text-primary" if chosen else "$ink-muted"
        content = Content.styled(f"{'◉' if chosen else '○'} {self.labels[place]}", style)
        return content.stylize(Style.from_meta({"choice": place}))

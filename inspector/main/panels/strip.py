"""One metric over the steps, a column each; hot steps differ in height and in colour."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events

from inspector import scales
from inspector.main.messages import StepClicked
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.charts import area, window

_LABEL = 12


class StepStrip(Canvas):
    """The strip under the table of steps."""

    metric = scales.METRIC["surprisal"]
    """What is drawn; `redraw` after another was set."""

    def _window(self, timeline: Timeline, width: int) -> range:
        """Indices of the steps that have a column."""
        room = max(1, width - _LABEL)
        return window(len(timeline.step_slots), room, timeline.steps_before(timeline.slot))

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        if timeline is None or not self.metric.steps or not timeline.step_slots:
            return []
        items = [timeline.items[timeline.step_slots[index]] for index in self._window(timeline, width)]
        values = [self.metric.value(item) for item in items]
        heights = [None if value is None else self.metric.height(value) for value in values]
        top = self.metric.top or max(self.metric.height(self.metric.steps[-1]), *(h or 0.0 for h in heights))
        inks = [self.data(self.metric.level(value)) for value in values]
        current = next((n for n, item in enumerate(items) if item is timeline.step), -1)
        if current >= 0:
            inks[current] = (
                Style(bgcolor=self.ink("row").bgcolor) + self.ink("accent").without_color + inks[current]
            )
        most = self.metric.format(max((value for value in values if value is not None), default=0.0))
        rows = area(heights, height, top)
        return [self._label(number, most) + _columns(row, inks) for number, row in enumerate(rows)]

    def _label(self, row: int, most: str) -> Row:
        """The metric's name, and under it the largest value shown."""
        text = self.metric.name if row == 0 else f"≤ {most}" if row == 1 else ""
        return [Segment(text[: _LABEL - 1].ljust(_LABEL), self.ink("muted"))]

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or self.timeline is None or at.x < _LABEL:
            return
        shown = self._window(self.timeline, self.size.width)
        if at.x - _LABEL < len(shown):
            self.post_message(StepClicked(shown[at.x - _LABEL]))


def _columns(row: str, inks: list[Style]) -> Row:
    return [Segment(char, ink) for char, ink in zip(row, inks, strict=True)]

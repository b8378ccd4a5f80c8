"""Lists with a highlighted row, and the dialogs around them: one that is drawn here, and Textual's made safe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from rich.segment import Segment
from textual import events, on
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, OptionList
from textual.widgets.option_list import Option

from inspector.widgets.actions import ActionTable, dialog_table, picking, taking
from inspector.widgets.canvas import Canvas, Row, grounded
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput

Result = TypeVar("Result")


# ---- rows that are drawn here -------------------------------------------------------------------


class PickList(Canvas):
    """A list with a highlighted row; its dialog, or a subclass, draws the rows and the head above them."""

    class RowPicked(Message):
        """The highlighted row was clicked: take it."""

    class RowHighlighted(Message):
        """Another row is highlighted, or the rows have changed."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.count = 0
        self.highlighted = 0
        self._top = self._rows = 0
        """Place of the first row in sight, and the lines of the widget with the head."""

    def head(self, width: int) -> Row:
        """The names of the columns."""
        return cast("PickDialog[Any]", self.screen).head(width)

    def row(self, place: int, width: int) -> Row:
        """One row, counted from 0."""
        return cast("PickDialog[Any]", self.screen).row(place, width)

    def lay(self, count: int, highlighted: int = 0) -> None:
        """Show new rows.

        Args:
            count: Number of rows.
            highlighted: Place of the row to highlight.
        """
        self.count, self.highlighted, self._top = count, highlighted, 0
        self.post_message(self.RowHighlighted())
        self.redraw()

    def move(self, by: int) -> None:
        """Move the highlight down by a number of rows (up if negative), up to the last or first one."""
        place = max(0, min(self.count - 1, self.highlighted + by))
        if place != self.highlighted:
            self.highlighted = place
            self.post_message(self.RowHighlighted())
            self.redraw()

    @property
    def page(self) -> int:
        """The number of rows that are visible at once."""
        return max(1, self._rows - 1)

    # ---- events -----------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        inside = event.get_content_offset(self)
        if inside is None or not 1 <= inside.y < self._rows:
            return
        if (place := self._top + inside.y - 1) >= self.count:
            return
        if place == self.highlighted:
            self.post_message(self.RowPicked())
        self.move(place - self.highlighted)

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _scrolled(self, event: events.MouseEvent) -> None:
        event.stop()
        self.move(1 if isinstance(event, events.MouseScrollDown) else -1)

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.count:
            return []
        room, self._rows = max(1, height - 1), height
        self._top = max(min(self._top, self.highlighted), self.highlighted - room + 1, 0)
        rows = [self.head(width)]
        for place in range(self._top, min(self.count, self._top + room)):
            here = place == self.highlighted
            row = [Segment("▌" if here else " ", self.ink("primary")), *self.row(place, width - 1)]
            rows.append(grounded(row, width, self.ink("row")) if here else row)
        return rows


class PickDialog(Dialog[Result]):
    """A dialog that returns a row of its `PickList`; the arrows move in the list wherever the focus is."""

    ACTIONS: ClassVar[ActionTable] = dialog_table("In a list", *picking("", "choose"), taking(), told=False)
    choices: Sequence[Result] = ()
    """The rows that `put` listed."""

    def put(self, choices: Sequence[Result], highlighted: int = 0) -> None:
        """List choices, one in a row.

        Args:
            choices: The choices in their order.
            highlighted: Place of the choice to highlight.
        """
        self.choices = choices
        self.picks.lay(len(choices), highlighted)

    @property
    def picked(self) -> Result | None:
        """The highlighted choice; None if there are none."""
        return self.choices[self.picks.highlighted] if self.choices else None

    def apply(self) -> None:
        if (picked := self.picked) is not None:
            self.dismiss(picked)

    @property
    def typed(self) -> str:
        return self.query_one(SafeInput).value

    @property
    def picks(self) -> PickList:
        return self.query_one(PickList)

    def head(self, width: int) -> Row:
        """The names of the columns; for a list that doesn't draw them itself."""
        raise NotImplementedError

    def row(self, place: int, width: int) -> Row:
        """One row, counted from 0; for a list that doesn't draw it itself."""
        raise NotImplementedError

    @on(PickList.RowHighlighted)
    def _count_rows(self) -> None:
        """Show the highlighted row's number and the number of rows in the frame; without rows, disable the button."""
        shown = self.picks
        self.query_one("#apply", Button).disabled = not shown.count
        where = f"{shown.highlighted + 1:,} of {shown.count:,} · ↑↓ ⏎" if shown.count else ""
        self.query_one("#dialog").border_subtitle = Content(where)

    @on(PickList.RowPicked)
    def _take_row(self) -> None:
        self.apply()


# ---- Textual's options --------------------------------------------------------------------------


class SafeOptionList(OptionList):
    """A list with a highlighted option that may be gone, or not be laid out, because it isn't yet or has no room."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines that the options need at this width, or a lower bound if they are more than the screen has.

        Each option has at least one line. Wrapping a hundred at each width that a layout tries took a palette 30 ms.
        """
        if len(self.options) >= viewport.height:
            return len(self.options)
        return super().get_content_height(container, viewport, max(width, 1))

    @property
    def has_highlighted(self) -> bool:
        """True if the highlighted option is there and laid out."""
        return bool(self.scrollable_content_region) and (self.highlighted or 0) < len(self.options)

    def action_page_up(self) -> None:
        """Highlight the option a page above. Textual's own action assumes that the list was laid out."""
        if self.has_highlighted:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        """Highlight the option a page below. Textual's own action assumes that the list was laid out."""
        if self.has_highlighted:
            super().action_page_down()  # type: ignore[no-untyped-call]

    def action_select(self) -> None:
        """Select the highlighted option, if there is one."""
        if self.highlighted is not None and self.highlighted < len(self.options):
            super().action_select()

    async def on_click(self, event: events.Click) -> None:
        """Select the option that was clicked, if it is still there."""
        option = event.style.meta.get("option")
        if option is None or option >= len(self.options):
            event.prevent_default()


class LinesDialog(Dialog[Result]):
    """Lists choices, one on a line at any width; returns the chosen one.

    Args:
        choices: The choices.
        highlighted: Place of the choice that is highlighted first.
        remark: Text below them, printable; empty for none.
    """

    WIDTH: ClassVar[int] = 84
    """Maximum cells of the dialog, as in `overlays.tcss`."""
    FRAME: ClassVar[int] = 9
    """Cells around a line, with the scroll bar."""
    LEAVE: ClassVar[str] = "Close"

    def __init__(self, choices: Sequence[Result] = (), highlighted: int = 0, remark: str = "") -> None:
        super().__init__()
        self._choices, self._highlighted, self._remark = choices, highlighted, remark

    def line(self, choice: Result, width: int) -> Content:
        """The line of a choice.

        Args:
            choice: The choice.
            width: Cells of the line.
        """
        raise NotImplementedError

    def possible(self, choice: Result) -> bool:
        """True if a choice can be chosen."""
        return True

    def _lines(self) -> Iterable[Content]:
        width = max(20, min(self.WIDTH, self.app.size.width) - self.FRAME)
        return (self.line(each, width) for each in self._choices)

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(markup=False, compact=True)
        if self._remark:
            yield Remark(self._remark)

    def begin(self) -> None:
        """Fill the list, and focus it."""
        super().begin()
        self.put(self._choices, self._highlighted)
        self.set_focus(self.query_one(SafeOptionList))

    def put(self, choices: Sequence[Result], highlighted: int = 0) -> None:
        """List other choices.

        Args:
            choices: The choices in their order.
            highlighted: Place of the choice to highlight.
        """
        self._choices, options = choices, self.query_one(SafeOptionList)
        options.clear_options()
        lines = zip(self._lines(), choices, strict=True)
        options.add_options(Option(line, disabled=not self.possible(each)) for line, each in lines)
        options.highlighted = highlighted if choices else None

    def on_resize(self, event: events.Resize) -> None:
        """Draw the lines for the new width."""
        options = self.query_one(SafeOptionList)
        for place, line in enumerate(self._lines()) if options.options else ():
            options.replace_option_prompt_at_index(place, line)

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._choices[message.option_index])

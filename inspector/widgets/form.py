"""A form: a list of settings with an editable highlighted row, and the dialog around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.css.scalar import Scalar
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Button

from engine.errors import SettingsError
from engine.setting import Setting, TokenId
from inspector.display import pad, visible
from inspector.widgets.actions import Action, both
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import SafeInput, editable, escaped, flow, labelled, unescaped

Result = TypeVar("Result")
LABEL, SHORT = 20, 12
"""Cells of a label with the mark before it, and of a field with its remark on the right."""
NARROW = 80
"""Columns of the screen below which there is no room for help on the right of a field."""
FIELD = "on $foreground 8%"


class FormRow:
    """One setting of a form.

    Args:
        setting: The setting.
        words: The labels of a choice, in display order; empty if the value is typed.
        placeholder: Shown while nothing is typed.
    """

    def __init__(self, setting: Setting, words: Sequence[str] = (), placeholder: str = "") -> None:
        self.setting, self.words, self.placeholder = setting, words, placeholder
        self.more: tuple[str, ...] = ()
        """If the value is several texts: those after the first, which is the one that can be edited."""
        self.text, self.chosen = "", 0
        self.token_id: TokenId | None = None
        """Looks up the token of a text, if the value consists of tokens."""
        self.remark, self.ink = "", ""
        """The remark on the value, printable, and its color; shown instead of the help."""
        self._filled: tuple[str, Any] = ("", None)
        """The text that the row was filled with, and its value."""

    @property
    def escapes(self) -> bool:
        """True if a newline is typed as \\n."""
        return self.setting.form == "text" or self.setting.kind == "texts"

    @property
    def help(self) -> str:
        more = f"; {len(self.more)} more are kept" if self.more else ""
        return self.setting.help + ("; \\n is a newline" if self.escapes else "") + more

    def fill(self, value: Any) -> None:
        if self.words:
            self.chosen = int(value)
            return
        if self.setting.kind == "texts":
            self.more = value[1:]
        text = self.setting.format(value)
        self.text = escaped(text) if self.escapes else text
        self._filled = self.text, value

    def read(self) -> Any:
        """The value; the one that the row was filled with, unless another text was typed.

        Raises:
            SettingsError: The text is not a valid value.
        """
        if self.words:
            return bool(self.chosen)
        if self.text == self._filled[0]:
            return self._filled[1]
        value = self.setting.parse(unescaped(self.text) if self.escapes else self.text, self.token_id)
        return value + self.more if self.setting.kind == "texts" else value


class SettingsForm(Widget, can_focus=True):
    """Settings in groups, one on a line: its label, its value and its help, or what is wrong with it.

    The only field lies over the value of the highlighted row. A choice has no field: the form takes the arrows itself.

    Args:
        groups: Titles, empty for none, and the rows under each.
        explains: Whether the help is on the right of the values, if there is room; otherwise the dialog shows it.
        first: Name of the row that is highlighted first.
    """

    DEFAULT_CSS = "SettingsForm { height: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "move(1)", "Next", show=False),
        Binding("shift+tab", "move(-1)", "Before", show=False),
        Binding("left", "turn(-1)", "Word before", show=False),
        Binding("right,space", "turn(1)", "Next word", show=False),
    ]

    class Highlighted(Message):
        """Another row is highlighted."""

    class Edited(Message):
        """The value of a row was changed by the user."""

        def __init__(self, name: str) -> None:
            self.name = name
            super().__init__()

    def __init__(self, groups: Iterable[tuple[str, Sequence[FormRow]]], explains: bool, first: str) -> None:
        super().__init__()
        self.groups, self.explains = list(groups), explains
        self.rows = {row.setting.name: row for _, rows in self.groups for row in rows}
        self.highlighted = self.rows[first]
        self.field = SafeInput(self.highlighted.text, self.highlighted.placeholder)
        self._places: dict[str, tuple[int, int, int]] = {}
        """Lines of each row by its name: the first, counting a title above it, its own first, and the one after it."""

    def compose(self) -> ComposeResult:
        yield self.field

    def on_mount(self) -> None:
        self.watch(self.field, "value", self._typed, init=False)

    def _typed(self, text: str) -> None:
        row = self.highlighted
        if not row.words and text != row.text:
            row.text = text
            self.post_message(self.Edited(row.setting.name))

    def fill(self, values: Mapping[str, Any]) -> None:
        """Show values, by the names of settings."""
        for name, value in values.items():
            self.rows[name].fill(value)
        self.field.value = self.highlighted.text
        self.lay_out()

    def lay_out(self) -> None:
        """Draw the rows and place the field again: Textual keeps the place of a child without a layout request."""
        self.field.refresh(layout=True)
        self.refresh()

    def say(self, name: str, text: str, ink: str = "$ink-muted") -> None:
        """Show a remark at a row instead of its help.

        Args:
            name: Name of the row.
            text: The remark; printable, empty for the help.
            ink: Its color.
        """
        row = self.rows[name]
        if (text, ink) != (row.remark, row.ink):
            row.remark, row.ink = text, ink
            self.lay_out()
            if row is self.highlighted:
                self.reveal()

    # ---- keys -------------------------------------------------------------------------------

    def highlight(self, name: str) -> None:
        """Highlight a row, and put its value into the field."""
        row = self.highlighted = self.rows[name]
        self.field.display = not row.words
        self.field.placeholder, self.field.value = row.placeholder, row.text
        self.field.select_all()
        self.lay_out()
        self.post_message(self.Highlighted())
        self.take_focus()

    def take_focus(self) -> None:
        """Focus the highlighted row, and scroll to it."""
        self.screen.set_focus(self if self.highlighted.words else self.field, scroll_visible=False)
        self.reveal()

    def reveal(self) -> None:
        """Scroll to the highlighted row, after the next layout."""
        self.call_after_refresh(self._reveal)

    def _reveal(self) -> None:
        above, _, end = self._places[self.highlighted.setting.name]
        place = Region(0, above + self.virtual_region.y, 1, end - above)
        if isinstance(self.parent, VerticalScroll):
            self.parent.scroll_to_region(place, animate=False)

    def action_move(self, by: int) -> None:
        """Move the highlight by a number of rows; the first row follows the last one."""
        names = list(self.rows)
        self.highlight(names[(names.index(self.highlighted.setting.name) + by) % len(names)])

    def action_turn(self, by: int) -> None:
        """Choose a neighbouring word."""
        if self.highlighted.words:
            self.choose(self.highlighted.chosen + by)

    def choose(self, place: int) -> None:
        """Choose a word of the highlighted row."""
        row = self.highlighted
        row.chosen = place % len(row.words)
        self.refresh()
        self.post_message(self.Edited(row.setting.name))

    def on_click(self, event: events.Click) -> None:
        """Highlight the row that was clicked, and choose the word."""
        if name := event.style.meta.get("row"):
            self.highlight(name)
        if (word := event.style.meta.get("choice")) is not None:
            self.choose(word)

    # ---- drawing ----------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines that the rows need; also places the field for the layout that asks for them."""
        height = len(self._lines(width))
        top = self._places[self.highlighted.setting.name][1]
        styles, cells = self.field.styles, self._cells(self.highlighted, width)
        # as properties they would request another layout
        styles.set_rule("margin", Spacing(top, 0, 0, LABEL))
        styles.set_rule("width", Scalar.from_number(cells))
        return height

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    @property
    def helps(self) -> bool:
        """True if the help is on the right of the values now."""
        return self.explains and self.app.size.width >= NARROW

    def _short(self, row: FormRow) -> bool:
        return self.helps and row.setting.kind not in ("text", "word")

    def _cells(self, row: FormRow, width: int) -> int:
        if self._short(row):
            return SHORT
        room = max(SHORT, width - LABEL)
        return min(room, 2 * SHORT) if row.setting.kind in ("int", "float") else room

    def _lines(self, width: int) -> list[Content]:
        lines: list[Content] = []
        spaced = self.explains and self.screen.has_class("-tall")
        for title, rows in self.groups:
            above = len(lines)
            if title:
                lines += [Content("")] * spaced
                lines.append(Content.styled(f" {title}", "bold $text-primary"))
            for row in rows:
                first = len(lines)
                lines += self._row(row, width)
                self._places[row.setting.name] = above, first, len(lines)
                above = len(lines)
        return lines

    def _row(self, row: FormRow, width: int) -> list[Content]:
        """The lines of a row; a remark without room on the right of the value is under it."""
        here, cells, blank = row is self.highlighted, self._cells(row, width), Content("")
        if row.words:
            words = [labelled(word, n == row.chosen, n) for n, word in enumerate(row.words)]
            values = [line.pad_right(cells - line.cell_length) for line in flow(words, cells)]
            values = [line.stylize(FIELD) for line in values] if here else values
        else:
            shown, ink = (editable(row.text), "") if row.text else (row.placeholder, "$ink-faint")
            values = [Content.styled(pad(shown, cells), f"{ink} {FIELD}")]
        said, ink = (row.remark, row.ink) if row.remark else (row.help if self.helps else "", "$ink-muted")
        indent = LABEL + SHORT + 2 if self._short(row) else LABEL if self.helps else 1
        remarks = Content.styled(said, ink).wrap(max(2, width - indent)) if said else []
        if not self._short(row):
            values, remarks = [*values, *[blank] * len(remarks)], [*[blank] * len(values), *remarks]
        head = Content.styled("▌" if here else " ", "$text-primary")
        head += Content.styled(pad(row.setting.label, LABEL - 1), "$ink-muted")
        lines = []
        for value, remark in zip_longest(values, remarks, fillvalue=blank):
            line = head + value if value else blank
            line = line.pad_right(max(0, indent - line.cell_length)) + remark
            lines.append(line.stylize(Style.from_meta({"row": row.setting.name})))
            head = Content(" " * LABEL)
        return lines


def going(help: str = "") -> tuple[Action, Action]:
    """The actions that move from row to row.

    Args:
        help: The sentence about them.
    """
    return both(("dialog.field_above", "dialog.field_below"), ("Field above", "Field below"), help,
                lambda own, by: own.form.action_move(by), hint="field", worth=6, priority=True)  # fmt: skip


class SettingsDialog(Dialog[Result]):
    """A dialog with a form: each value is checked as it is typed.

    Args:
        groups: Titles, and the rows of the form under each.
        settings: An object with the initial values as attributes, by the names of the rows.
        first: Name of the row to begin with.
    """

    EXPLAINS: ClassVar[bool] = False
    """True if the help is on the right of the values, if there is room; otherwise it is in the frame."""
    NO_SETTINGS: ClassVar[tuple[str, ...]] = ()
    """Names of rows that are not attributes of the settings."""

    def __init__(self, groups: Iterable[tuple[str, Sequence[FormRow]]], settings: Result, first: str) -> None:
        super().__init__()
        self.form, self.settings, self.first = SettingsForm(groups, self.EXPLAINS, first), settings, first
        self.faults: dict[str, str] = {}
        """Sentences about the invalid values when the rows were read last, by the names of the rows; printable."""

    @property
    def _names(self) -> list[str]:
        return [name for name in self.form.rows if name not in self.NO_SETTINGS]

    def body(self) -> Iterable[Widget]:
        yield self.form

    def begin(self) -> None:
        """Show the initial values, and highlight the first row."""
        super().begin()
        self.show(self.settings)
        self.form.highlight(self.first)
        self.explain()  # before the first paint
        self.read()

    def show(self, settings: Result) -> None:
        self.form.fill({name: getattr(settings, name) for name in self._names})

    def made(self, values: Mapping[str, Any]) -> Result:
        """The result from the values, by the names of settings.

        Raises:
            SettingsError: The values don't go together.
        """
        raise NotImplementedError

    def remarks(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Remarks on valid values, by the names of rows; printable."""
        return {}

    def read(self) -> Result | None:
        """Read all rows, and show at each what is wrong with it.

        Returns:
            The result; None if a value is invalid.
        """
        values: dict[str, Any] = {}
        faults = self.faults = {}
        for name in self._names:
            try:
                values[name] = self.form.rows[name].read()
            except SettingsError as error:
                faults[name] = visible(str(error))
        result = None
        if not faults:
            try:
                result = self.made(values)
            except SettingsError as error:
                faults[error.field] = visible(str(error))
        remarks = self.remarks(values)
        for name in self._names:
            ink = "$text-error" if name in faults else "$text-warning"
            self.form.say(name, faults.get(name) or remarks.get(name, ""), ink)
        self.query_one("#apply", Button).disabled = result is None
        return result

    @on(SettingsForm.Edited)
    def _edited(self, message: SettingsForm.Edited) -> None:
        self.edited(message.name)

    def edited(self, name: str) -> None:
        """Read the rows again, after the user changed the value of one.

        Args:
            name: Name of the row.
        """
        self.read()

    def on_settings_form_highlighted(self) -> None:
        self.explain()

    def explain(self) -> None:
        """Show the help of the highlighted row in the frame, unless it is on the right of the value."""
        box = self.query_one("#dialog")
        about = "" if self.form.helps else visible(self.form.highlighted.help)
        if about != box.border_subtitle:  # setting it repaints the whole form
            box.border_subtitle = Content(about)

    def apply(self) -> None:
        """Apply the values; or go to the first invalid one, which shows why."""
        if (result := self.read()) is not None:
            self.dismiss(result)
        else:
            self.form.highlight(next(iter(self.faults)))

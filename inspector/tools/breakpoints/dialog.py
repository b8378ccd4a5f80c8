"""The dialog for the breakpoints: where runs stop for the user to look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.containers import Container, HorizontalGroup
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.errors import SettingsError
from engine.setting import Setting
from inspector.display import visible
from inspector.tools.breakpoints import BREAKPOINT_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, escaped, unescaped

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("The token to come", ("entropy_above", "prob_below", "rank_above", "margin_below", "mass_below", "eos")),
    ("The run and its text", ("tokens", "text", "regex", "segment")),
)
"""The conditions in display order."""
_BY_NAME = {each.name: each for each in CONDITIONS}
NARROW = 80
"""Columns below which there is no room next to a field."""
HELP = "An empty field is off. What is set is remembered for the next start."
ALL_HELP = "text and tokens then stay true once they were"
TEXT_HELP = "; \\n is a newline"


class ConditionRow(Container):
    """One condition: its label and its value, and next to or under them what it is, or what is wrong with it.

    Args:
        name: Of the condition.
        label: What it is called.
        value: Where its value is given.
        help: What it is.
        long: Whether the value may take the whole line.
    """

    def __init__(self, name: str, label: str, value: Widget, help: str, long: bool = False) -> None:
        super().__init__(classes="break-row" + (" -long-row" if long else ""))
        self._setting, self._label, self._value, self._help = name, label, value, help

    def compose(self) -> ComposeResult:
        with HorizontalGroup():
            yield Label(self._label, classes="field-label", markup=False)
            yield self._value
        yield Remark(self._help, id=f"remark-{self._setting}")


class BreakpointsDialog(Dialog[Breakpoints]):
    """Asks for breakpoints; each field is checked as it is typed, and an empty one is off.

    Args:
        points: The initial values of the fields.
        problems: What is wrong with the file that keeps them, one sentence each.
    """

    ACTIONS: ClassVar[ActionTable] = BREAKPOINT_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("points", "_problems")
    HEADING: ClassVar[str] = "Breakpoints: where runs stop"
    APPLY: ClassVar[str] = "Apply"
    EXTRA = (("breakpoints.clear", "Clear", "clear"),)

    def __init__(self, points: Breakpoints, problems: Iterable[str] = ()) -> None:
        super().__init__()
        self.points, self._problems = points, " ".join(problems)

    def body(self) -> Iterable[Widget]:
        yield Remark(id="breaks-remark")
        for title, names in GROUPS:
            yield Label(title, classes="group-label", markup=False)
            yield from (self._row(_BY_NAME[name]) for name in names)
        yield Label("Several conditions", classes="group-label", markup=False)
        choice = Choice(("any of them", "all at once"), id="break-all_of")
        yield ConditionRow("all_of", "stop at", choice, ALL_HELP, long=True)

    def _row(self, condition: Setting) -> Widget:
        name = condition.name
        if condition.kind == "flag":
            field: Widget = Choice(("off", "on"), id=f"break-{name}")
        else:
            field = SafeInput("", "off", id=f"break-{name}")
        long = condition.kind in ("text", "word")
        return ConditionRow(name, condition.label, field, _help(condition), long)

    def begin(self) -> None:
        """Begin in the first field."""
        super().begin()
        self.set_focus(self.query_one(f"#break-{GROUPS[0][1][0]}", SafeInput))
        remark = self.query_one("#breaks-remark", Remark)
        remark.say(visible(self._problems) or HELP, wrong=bool(self._problems))
        with self.prevent(Input.Changed, Choice.Changed):
            self._fill(self.points)
        self.read()

    def _fill(self, points: Breakpoints) -> None:
        self.query_one("#break-all_of", Choice).chosen = int(points.all_of)
        for condition in CONDITIONS:
            field, value = self.query_one(f"#break-{condition.name}"), getattr(points, condition.name)
            if isinstance(field, Choice):
                field.chosen = int(value)
            elif isinstance(field, SafeInput):
                field.value = _typed(condition, value)

    def on_descendant_focus(self) -> None:
        """Explain the field in the frame, where there is no room next to it."""
        focused = self.focused  # two that had it in turn may tell so in another order
        name = (focused.id or "").removeprefix("break-") if focused is not None else ""
        help = {condition.name: _help(condition) for condition in CONDITIONS} | {"all_of": ALL_HELP}
        about = help.get(name, "") if self.app.size.width < NARROW else ""
        self.query_one("#dialog").border_subtitle = Content(visible(about))

    # ---- fields -----------------------------------------------------------------------------

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self.read()

    def read(self) -> Breakpoints | None:
        """Read all fields, and show at each what is wrong with it.

        Returns:
            The breakpoints in the fields, None while any field is wrong.
        """
        values: dict[str, Any] = {}
        wrong = False
        for condition in CONDITIONS:
            try:
                values[condition.name] = self._value(condition)
            except SettingsError as error:
                wrong = True
                self._complain(condition, error)
            else:
                self.query_one(f"#remark-{condition.name}", Remark).say(_help(condition))
        self.query_one("#apply", Button).disabled = wrong
        all_of = bool(self.query_one("#break-all_of", Choice).chosen)
        return None if wrong else replace(Breakpoints(all_of=all_of), **values)

    def _complain(self, condition: Setting, error: SettingsError) -> None:
        remark = self.query_one(f"#remark-{condition.name}", Remark)
        remark.say(visible(str(error)), wrong=True)
        if self.query_one(f"#break-{condition.name}").has_focus:
            self.after_paint(remark.scroll_visible, animate=False)

    def _value(self, condition: Setting) -> Any:
        field = self.query_one(f"#break-{condition.name}")
        if isinstance(field, Choice):
            return bool(field.chosen)
        assert isinstance(field, SafeInput)
        return condition.parse(unescaped(field.value) if condition.form == "text" else field.value)

    def clear_all(self) -> None:
        """Turn everything off, in the fields."""
        self._fill(replace(Breakpoints(), all_of=bool(self.query_one("#break-all_of", Choice).chosen)))
        words = "All are off now. Apply keeps them off, esc leaves them as they were."
        self.query_one("#breaks-remark", Remark).say(words)

    # ---- leaving ----------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply the breakpoints, if all of them are right."""
        if (points := self.read()) is not None:
            self.dismiss(points)


def _help(condition: Setting) -> str:
    return condition.help + (TEXT_HELP if condition.form == "text" else "")


def _typed(condition: Setting, value: Any) -> str:
    text = condition.format(value)
    return escaped(text) if condition.form == "text" else text

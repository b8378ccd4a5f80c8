"""The dialog for the breakpoints: where runs stop for the user to look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.setting import Setting
from inspector.display import visible
from inspector.tools.breakpoints import BREAKPOINT_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SettingRow, read_all

ALL_OF = Setting("text and tokens then stay true once they were", "stop at", name="all_of")
GROUPS = (
    ("The token to come", ("entropy_above", "prob_below", "rank_above", "margin_below", "mass_below", "eos")),
    ("The run and its text", ("tokens", "text", "regex", "segment")),
    ("Several conditions", (ALL_OF.name,)),
)
"""The conditions in display order."""
NARROW = 80
"""Columns below which there is no room next to a field."""
HELP = "An empty field is off. What is set is remembered for the next start."


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
        self._rows: dict[str, SettingRow] = {}
        """The rows, by the name of the condition."""

    def body(self) -> Iterable[Widget]:
        yield Remark(id="breaks-remark")
        settings = {each.name: each for each in (*CONDITIONS, ALL_OF)}
        for title, names in GROUPS:
            yield Label(title, classes="group-label", markup=False)
            for setting in map(settings.__getitem__, names):
                field: SafeInput | Choice = SafeInput("", "off", id=f"break-{setting.name}")
                if setting is ALL_OF:
                    field = Choice(("any of them", "all at once"), id="break-all_of")
                elif setting.kind == "flag":
                    field = Choice(("off", "on"), id=f"break-{setting.name}")
                long = setting is ALL_OF or setting.kind in ("text", "word")
                help = setting.help + ("; \\n is a newline" if setting.form == "text" else "")
                row = SettingRow(setting, field, help, "break-row -long-row" if long else "break-row")
                self._rows[setting.name] = row
                yield row

    def begin(self) -> None:
        """Begin in the first field."""
        super().begin()
        self.set_focus(self._rows[GROUPS[0][1][0]].field)
        remark = self.query_one("#breaks-remark", Remark)
        remark.say(visible(self._problems) or HELP, wrong=bool(self._problems))
        with self.prevent(Input.Changed, Choice.Changed):
            self._fill(self.points)
        self.read()

    def _fill(self, points: Breakpoints) -> None:
        for name, row in self._rows.items():
            row.fill(getattr(points, name))

    def on_descendant_focus(self) -> None:
        """Explain the field in the frame, if there is no room next to it."""
        focused = self.focused  # two that had it in turn may tell so in another order
        row = self._rows.get((focused.id or "").removeprefix("break-")) if focused is not None else None
        about = row.help if row is not None and self.app.size.width < NARROW else ""
        self.query_one("#dialog").border_subtitle = Content(visible(about))

    @on(Input.Changed)
    @on(Choice.Changed)
    def read(self) -> Breakpoints | None:
        """Read all fields, and show at each what is wrong with it.

        Returns:
            The breakpoints in the fields, None while any field is wrong.
        """
        values, faults = read_all(self._rows.values())
        for name, row in self._rows.items():
            row.say(faults.get(name, ""))
            if name in faults and row.field.has_focus and row.remark is not None:
                self.after_paint(row.remark.scroll_visible, animate=False)
        self.query_one("#apply", Button).disabled = bool(faults)
        return None if faults else Breakpoints(**values)

    def clear_all(self) -> None:
        """Turn everything off, in the fields."""
        self._fill(replace(Breakpoints(), all_of=self._rows["all_of"].read()))
        words = "All are off now. Apply keeps them off, esc leaves them as they were."
        self.query_one("#breaks-remark", Remark).say(words)

    def apply(self) -> None:
        """Apply the breakpoints, if all of them are right."""
        if (points := self.read()) is not None:
            self.dismiss(points)

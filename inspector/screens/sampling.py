"""The dialog for the sampling settings, made from the table of settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import on
from textual.containers import HorizontalGroup
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from engine.errors import SettingsError
from engine.settings import FIELDS, Field, Settings, changed
from inspector.display import visible
from inspector.screens.dialog import Dialog, Remark
from inspector.screens.safety import Line

GREEDY = "Temperature 0 is greedy: top-p, min-p, top-k and seed change nothing until it is above 0."
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNESCAPES = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


def escaped(text: str) -> str:
    """A text as it can be typed on one line: a newline as \\n."""
    return "".join(_ESCAPES.get(char, char) for char in text)


def unescaped(text: str) -> str:
    """What was typed on one line, with \\n as a newline; other backslashes stay."""
    out, chars = [], iter(text)
    for char in chars:
        follower = next(chars, "") if char == "\\" else ""
        out.append(_UNESCAPES.get(follower, char + follower) if follower else char)
    return "".join(out)


class SamplingDialog(Dialog[Settings]):
    """Asks for sampling settings; each field is checked as it is typed.

    Args:
        settings: What stands in the fields at first.
    """

    HEADING: ClassVar[str] = "Sampling"
    APPLY: ClassVar[str] = "Apply"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.values: dict[str, Any] = {field.name: getattr(settings, field.name) for field in FIELDS}
        """What was read from each field, None where it is wrong."""

    def body(self) -> Iterable[Widget]:
        for field in FIELDS:
            with HorizontalGroup(classes="field-row"):
                yield Label(field.label, classes="field-label", markup=False)
                yield Line(self._text(field), id=f"field-{field.name}")
                yield Remark(self._help(field), id=f"remark-{field.name}")
        yield Remark(GREEDY, id="greedy")

    def on_mount(self) -> None:
        """Begin in the first field."""
        self.query_one(f"#field-{FIELDS[0].name}", Line).focus()
        self._tell()

    def _text(self, field: Field) -> str:
        text = field.format(getattr(self.settings, field.name))
        return escaped(text) if field.kind == "texts" else text

    def _help(self, field: Field) -> str:
        if field.kind != "texts":
            return field.help
        more = len(getattr(self.settings, field.name)) - 1
        return field.help + "; \\n is a newline" + (f"; {more} more are kept" if more > 0 else "")

    def _read(self, field: Field, typed: str) -> Any:
        value = field.parse(unescaped(typed) if field.kind == "texts" else typed)
        return value + getattr(self.settings, field.name)[1:] if field.kind == "texts" else value

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._check(next(field for field in FIELDS if event.input.id == f"field-{field.name}"))
        self._tell()

    def _check(self, field: Field) -> None:
        remark = self.query_one(f"#remark-{field.name}", Remark)
        try:
            self.values[field.name] = self._read(field, self.query_one(f"#field-{field.name}", Line).value)
            remark.say(self._help(field))
        except SettingsError as error:
            self.values[field.name] = None
            remark.say(visible(str(error)), wrong=True)

    def _tell(self) -> None:
        self.query_one("#apply", Button).disabled = None in self.values.values()
        self.query_one("#greedy", Remark).set_class(self.values["temp"] == 0, "-told")

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Apply the settings, if all of them are right."""
        for field in FIELDS:  # the last key typed may not have been told of yet
            self._check(field)
        if None not in self.values.values():
            self.dismiss(changed(self.settings, **self.values))

"""The dialog for the sampling settings, made from the table of settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from textual import on
from textual.containers import HorizontalGroup
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from engine.errors import SettingsError
from engine.settings import FIELDS, Field, Settings, check
from inspector.display import visible
from inspector.screens.dialog import Dialog, Remark
from inspector.screens.safety import Line

GREEDY = "Temperature 0 is greedy: top-p, min-p, top-k, XTC and seed change nothing until it is above 0."
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
        vocabulary: The model's, where it is known: ids must stay below it.
    """

    HEADING: ClassVar[str] = "Sampling"
    APPLY: ClassVar[str] = "Apply"

    def __init__(self, settings: Settings, vocabulary: int | None = None) -> None:
        super().__init__()
        self.settings, self.vocabulary = settings, vocabulary

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
        self.read()

    def _text(self, field: Field) -> str:
        text = field.format(getattr(self.settings, field.name))
        return escaped(text) if field.kind == "texts" else text

    def _help(self, field: Field) -> str:
        if field.kind != "texts":
            return field.help
        more = len(getattr(self.settings, field.name)) - 1
        return field.help + "; \\n is a newline" + (f"; {more} more are kept" if more > 0 else "")

    @on(Input.Changed)
    def read(self) -> Settings | None:
        """Read all fields, and say at each what is wrong with it.

        Returns:
            The settings as they stand in the fields, None while any of them is wrong.
        """
        values = {field.name: self._value(field) for field in FIELDS}
        settings = None if None in values.values() else self._together(values)
        self.query_one("#apply", Button).disabled = settings is None
        self.query_one("#greedy", Remark).set_class(values["temp"] == 0, "-told")
        return settings

    def _value(self, field: Field) -> Any:
        remark = self.query_one(f"#remark-{field.name}", Remark)
        try:
            value = self._parsed(field, self.query_one(f"#field-{field.name}", Line).value)
        except SettingsError as error:
            remark.say(visible(str(error)), wrong=True)
            return None
        remark.say(self._help(field))
        return value

    def _parsed(self, field: Field, typed: str) -> Any:
        value = field.parse(unescaped(typed) if field.kind == "texts" else typed)
        return value + getattr(self.settings, field.name)[1:] if field.kind == "texts" else value

    def _together(self, values: dict[str, Any]) -> Settings | None:
        """The settings, where they go with each other and with the model."""
        try:
            return check(replace(self.settings, **values), self.vocabulary)
        except SettingsError as error:
            self.query_one(f"#remark-{error.field}", Remark).say(visible(str(error)), wrong=True)
            return None

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Apply the settings, if all of them are right."""
        if (settings := self.read()) is not None:
            self.dismiss(settings)

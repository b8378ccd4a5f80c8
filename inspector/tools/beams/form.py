"""The fields of a beam search, side by side; each is checked as it is typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, HorizontalGroup, VerticalGroup
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.beam_settings import WIDEST, BeamSettings, check_beams
from engine.errors import SettingsError
from inspector.display import visible
from inspector.widgets.choice import Choice
from inspector.widgets.dialog import Remark
from inspector.widgets.safety import SafeInput

LABELS = {
    "width": "width",
    "max_tokens": "max tokens",
    "length_penalty": "length penalty",
    "early_stopping": "early stopping",
}
HELPS = {
    "width": f"Beams that are followed at once, 1 to {WIDEST}; 1 is greedy decoding.",
    "max_tokens": "Tokens of a hypothesis at most.",
    "length_penalty": "Score = logprob / tokens ** penalty. 0: the sum, 1: the mean, above 1 length helps.",
    "early_stopping": "On: over once as many finished as the width. Off: not while a live beam may be better.",
}
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "width": (int, "a whole number"),
    "max_tokens": (int, "a whole number"),
    "length_penalty": (float, "a number"),
}


def parsed(name: str, text: str) -> Any:
    """Read one setting as it was typed.

    Raises:
        SettingsError: It is no number, or out of its range.
    """
    reader, kind = READERS[name]
    try:
        value = reader(text)
    except ValueError:
        raise SettingsError(name, f"must be {kind}, not {text.strip() or 'empty'}.") from None
    check_beams(replace(BeamSettings(), **{name: value}))
    return value


class Switch(Choice):
    """Off or on; up and down leave it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Before", show=False),
        Binding("right,space", "turn(1)", "Next", show=False),
        Binding("up", "app.focus_previous", "Field before", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("enter", "submit", "Start", show=False),
    ]

    class SwitchSubmitted(Message):
        """Enter was pressed."""

    def action_submit(self) -> None:
        """Start with the present settings."""
        self.post_message(self.SwitchSubmitted())


class BeamForm(Container):
    """Asks for the settings of a search.

    Args:
        settings: The initial values of the fields.
        id: Of the widget.
    """

    class FormSubmitted(Message):
        """A search is to begin."""

        def __init__(self, settings: BeamSettings) -> None:
            self.settings = settings
            super().__init__()

    def __init__(self, settings: BeamSettings, id: str | None = None) -> None:
        super().__init__(id=id)
        self.settings = settings
        self._wrong: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        with HorizontalGroup(id="beam-fields"):
            for name in READERS:
                yield from self._field(
                    name, SafeInput(f"{getattr(self.settings, name):g}", id=f"beam-{name}")
                )
            early = Switch(("off", "on"), int(self.settings.early_stopping), id="beam-early_stopping")
            yield from self._field("early_stopping", early)
        yield Remark(HELPS["width"], id="beam-remark")

    def _field(self, name: str, field: Widget) -> ComposeResult:
        with VerticalGroup(classes="beam-field", id=f"beam-box-{name}"):
            yield Label(LABELS[name], classes="field-label", markup=False)
            yield field

    def put(self, settings: BeamSettings) -> None:
        """Ask for a search with other settings.

        Args:
            settings: The values of the fields.
        """
        self.settings, self._wrong = settings, {}
        with self.prevent(Input.Changed, Choice.Changed):
            for name in READERS:
                field = self.query_one(f"#beam-{name}", SafeInput)
                field.value = f"{getattr(settings, name):g}"
                field.set_class(False, "-wrong")
            self.query_one("#beam-early_stopping", Switch).chosen = int(settings.early_stopping)
        self.query_one("#beam-remark", Remark).say(HELPS["width"])

    def begin(self) -> None:
        """Put the cursor into the first field."""
        self.query_one("#beam-width", SafeInput).focus()

    # ---- what is typed ----------------------------------------------------------------------

    def read(self) -> BeamSettings | None:
        """The settings in the fields, None while any of them is wrong."""
        values: dict[str, Any] = {}
        self._wrong = {}
        for name in READERS:
            field = self.query_one(f"#beam-{name}", SafeInput)
            try:
                values[name] = parsed(name, field.value)
            except SettingsError as error:
                self._wrong[name] = f"{LABELS[name]} {error}"
            field.set_class(name in self._wrong, "-wrong")
        early = bool(self.query_one("#beam-early_stopping", Switch).chosen)
        return None if self._wrong else BeamSettings(**values, early_stopping=early)

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self.settings = self.read() or self.settings
        self._explain()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Explain the field, or what is wrong with it."""
        self._explain()

    def _explain(self) -> None:
        focused = self.screen.focused
        name = (focused.id or "").removeprefix("beam-") if focused else ""
        wrong = self._wrong.get(name) or next(iter(self._wrong.values()), "")
        help = wrong or HELPS.get(name, "")
        self.query_one("#beam-remark", Remark).say(visible(help), bool(wrong))

    @on(Input.Submitted)
    @on(Switch.SwitchSubmitted)
    def _submitted(self, event: Message) -> None:
        event.stop()
        self.submit()

    def submit(self) -> None:
        """Begin a search, if all fields are right; otherwise go to the first that isn't."""
        settings = self.read()
        if settings is not None:
            self.post_message(self.FormSubmitted(settings))
            return
        self.query_one(f"#beam-{next(iter(self._wrong))}", SafeInput).focus()
        self._explain()

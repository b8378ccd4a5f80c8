"""The dialog for the sampling settings: what would have been picked with them is shown as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, HorizontalGroup
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label

from engine.errors import EngineError, SettingsError
from engine.setting import check, grouped
from engine.settings import BY_NAME, FIELDS, GROUPS, Settings
from inspector.config.presets import Presets
from inspector.display import visible
from inspector.tools.sampler import SAMPLING_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import ActionButton, Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SettingRow, read_all

GREEDY = "Temperature 0 is greedy: top-p, min-p, top-k, XTC and seed change nothing until it is above 0."
AS_SET = "as set"
IN_TITLE = {"token": "walk", "difference": "next difference"}
"""Words of the title for the keys that look elsewhere, by their word in the line of keys."""
PRESETS_HELP = "← → goes through the presets; delete removes one of your own"
SAVE_HELP = "⏎ keeps the values under this name, for every model"


class PresetChoice(Choice):
    """The presets side by side; up and down leave it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Setting above", show=False),
        Binding("down", "app.focus_next", "Setting below", show=False),
    ]


class SamplingDialog(Dialog[Settings]):
    """Asks for sampling settings; each field is checked as it is typed, and tried when all of them are right.

    Args:
        settings: The initial values of the fields.
        vocabulary: Size of the model's vocabulary: ids must stay below it; None if it isn't known.
        presets: All presets.
        attempt: Is given the settings as they are typed, when they are right.
        look: Is given what to look at meanwhile: `walk`, `differing` with -1 or 1, or `recall`; returns `at`.
        at: Number of the older step from which they will be applied, None at the tip.
        above: Rows of a narrator's card, which says what to set: if there is room, the dialog leaves it in sight.
        first: Name of the field to begin with; empty for the first one.
    """

    ACTIONS: ClassVar[ActionTable] = SAMPLING_KEYS
    KEPT: ClassVar[tuple[str, ...]] = (
        "settings", "vocabulary", "presets", "_attempt", "_look", "_at", "_typed", "_doomed", "_above", "_field",
    )  # fmt: skip
    HEADING: ClassVar[str] = "Sampling"
    APPLY: ClassVar[str] = "Apply"
    LEAVE: ClassVar[str] = "Discard"

    def __init__(
        self,
        settings: Settings,
        vocabulary: int | None,
        presets: Presets,
        attempt: Callable[[Settings], None] = lambda _: None,
        look: Callable[[str, int], int | None] = lambda _, __: None,
        at: int | None = None,
        above: int = 0,
        first: str = "",
    ) -> None:
        super().__init__()
        self._above, self._field = above, first or FIELDS[0].name
        self.settings, self.vocabulary, self.presets = settings, vocabulary, presets
        self._attempt, self._look, self._at = attempt, look, at
        self._typed = settings
        """The settings that were typed last, without a preset."""
        self._doomed = ""
        """Preset that a second `delete` takes away."""
        self._about = ""
        """The explanation of the field in the frame."""
        self._rows: dict[str, SettingRow] = {}
        """The rows, by the name of the setting."""

    def body(self) -> Iterable[Widget]:
        with HorizontalGroup(classes="preset-row"):
            yield Label("preset", classes="field-label", markup=False)
            yield PresetChoice((), id="presets")
        yield Remark("", id="preset-remark")
        for title in GROUPS:
            yield Label(title, classes="group-label", markup=False)
            with Container(classes="field-grid"):
                fields, left_half = grouped(FIELDS, title), True
                for field, after in zip_longest(fields, fields[1:]):
                    # one takes a whole line, too, where none comes that takes the other half
                    wide = field.wide or (left_half and after is not None and after.wide)
                    row = SettingRow(field, SafeInput(id=f"field-{field.name}"), classes="field-box")
                    row.set_class(wide, "-wide-field")
                    self._rows[field.name] = row
                    yield row
                    left_half = wide or not left_half
        yield Remark(GREEDY, id="greedy")
        with HorizontalGroup(classes="preset-row"):
            yield Label("save as preset", classes="field-label", markup=False)
            yield SafeInput("", "a name, then ⏎", id="preset-name")

    def begin(self) -> None:
        """Begin in the field that was asked for."""
        super().begin()
        box, title = self.query_one("#dialog"), self.HEADING
        for hint in self.hints():
            if hint.word in IN_TITLE:
                title += f" · {hint.keys} {IN_TITLE[hint.word]}"
        box.border_title = Content(title)
        # rows below it: for the lines of status and keys, and for a narrator's card where there is room
        whole = self.has_class("-short") or self.has_class("-narrow")
        free = 2 + self._above if self.has_class("-wide") else 2 if self._above and not whole else 0
        box.styles.margin = (0, 0, free, 0)
        self._explain(self._field)  # before the focus, which comes after the first paint
        self.set_focus(self._rows[self._field].field)
        self.query_one("#preset-name", SafeInput).clear()
        self._say(" ".join(self.presets.problems), wrong=True)
        self._relabel()
        for name, row in self._rows.items():
            if row.setting.kind == "texts":
                row.more = getattr(self.settings, name)[1:]
        self._fill(self.settings)
        self.entitle()

    def entitle(self) -> None:
        """Show where the settings will be applied."""
        where = "Apply" if self._at is None else f"Apply from step {self._at}"
        self.query_one("#apply", ActionButton).name_it(where)

    # ---- fields -----------------------------------------------------------------------------

    def on_descendant_focus(self) -> None:
        """Explain the field in the frame: there is room for one sentence, and it is that one that is wanted."""
        focused = self.focused  # two that had it in turn may tell so in another order
        self._explain((focused.id or "").removeprefix("field-") if focused is not None else "")

    def _explain(self, name: str) -> None:
        about = {"presets": PRESETS_HELP, "preset-name": SAVE_HELP}.get(name, "")
        if (field := BY_NAME.get(name)) is not None:
            about = field.help
            if field.kind == "texts":
                more = len(getattr(self.settings, name)) - 1
                about += "; \\n is a newline" + (f"; {more} more are kept" if more > 0 else "")
        if about != self._about:  # else the whole form would be painted again
            self._about = about
            self.query_one("#dialog").border_subtitle = Content(visible(about))

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.input.id == "preset-name" or not self.is_current:
            return  # a late message of a change that was applied or discarded tries nothing
        if (settings := self.read()) is not None:
            self._typed = settings
            self._relabel()

    def read(self) -> Settings | None:
        """Read all fields, and show at each what is wrong with it; try the settings when they are right.

        Returns:
            The settings in the fields, None while any of them is wrong.
        """
        values, faults = read_all(self._rows.values())
        settings = None
        if not faults:
            try:  # whether they go with each other and with the model
                settings = check(replace(self.settings, **values), self.vocabulary)
            except SettingsError as error:
                faults[error.field] = visible(str(error))
        for name, row in self._rows.items():
            row.say(faults.get(name, ""))
        self.query_one("#apply", Button).disabled = settings is None
        self.query_one("#greedy", Remark).set_class(values.get("temp") == 0, "-told")
        if settings is not None:
            self._attempt(settings)
        return settings

    # ---- presets ----------------------------------------------------------------------------

    def _relabel(self) -> None:
        """Show the presets there are, and the one that is just what was typed; `as set` if none is."""
        choice, labels = self.query_one("#presets", PresetChoice), (AS_SET, *map(visible, self.presets.names))
        if labels != choice.labels:
            choice.labels = labels
            choice.refresh(layout=True)
        chosen = ("", *self.presets.names).index(self.presets.matching(self._typed))
        choice.set_reactive(Choice.chosen, chosen)  # without a message: it was not chosen by hand
        choice.refresh()

    def _chosen(self) -> str:
        """Name of the preset that is chosen, empty for none."""
        place = self.query_one("#presets", PresetChoice).chosen
        return ("", *self.presets.names)[place]

    @on(Choice.Changed, "#presets")
    def _preset_chosen(self) -> None:
        self._doomed = ""
        name = self._chosen()
        self._say("")
        self._fill(self.presets.apply(name, self._typed) if name else self._typed)

    def _fill(self, settings: Settings) -> None:
        with self.prevent(Input.Changed):
            for name, row in self._rows.items():
                row.fill(getattr(settings, name))
        self.read()

    def _say(self, text: str, wrong: bool = False) -> None:
        remark = self.query_one("#preset-remark", Remark)
        remark.say(visible(text), wrong)
        remark.set_class(bool(text), "-told")

    @on(Input.Submitted, "#preset-name")
    def _save(self, event: Input.Submitted) -> None:
        event.prevent_default()  # which would apply the settings
        if (settings := self.read()) is None:
            self._say("A field is wrong: correct it first.", wrong=True)
            return
        try:
            saved = self.presets.save(event.value, settings)
        except EngineError as error:
            self._say(str(error), wrong=True)
            return
        self._typed = settings
        event.input.value = ""
        self._relabel()
        self._say(saved)

    def delete_preset(self) -> None:
        """Delete the chosen preset, on the second request."""
        name = self._chosen() if self.focused is not None and self.focused.id == "presets" else ""
        if not name:
            return
        try:
            if self.presets.is_own(name) and self._doomed != name:
                self._doomed = name
                self._say(f"Press delete again to delete {name}.", wrong=True)
                return
            self._say(self.presets.delete(name))
            self._typed = self.read() or self._typed
        except EngineError as error:
            self._say(str(error), wrong=True)
        self._relabel()

    # ---- leaving ----------------------------------------------------------------------------

    def look(self, what: str, by: int) -> None:
        """Look at another token meanwhile, or have dropped logits computed again."""
        self._at = self._look(what, by)
        self.entitle()

    def apply(self) -> None:
        """Apply the settings, if all of them are right."""
        if (settings := self.read()) is not None:
            self.dismiss(settings)

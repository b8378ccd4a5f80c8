"""The dialog for the sampling settings: what would have been picked with them is shown as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on
from textual.content import Content
from textual.widgets import Input

from engine.errors import EngineError, SettingsError
from engine.protocol import Tokenize, Tokenized
from engine.setting import Setting, check, grouped
from engine.settings import BY_NAME, FIELDS, GROUPS, Settings, differences
from inspector.display import quoted, visible
from inspector.session.client import Request
from inspector.widgets.actions import Action, ActionTable, applies, both, dialog_table, leaves, note, taking
from inspector.widgets.dialog import ActionButton
from inspector.widgets.form import FormRow, SettingsDialog, going

if TYPE_CHECKING:
    from inspector.views.sampler import SamplerActions

SAMPLING_KEYS = dialog_table(
    "While sampling settings are tried",
    *going("Go from field to field."),
    note("left right", "On the presets: go through them; the fields take their values."),
    Action("sampling.delete_preset", "Delete preset", "Delete a preset of your own: press twice.",
           lambda own: own.delete_preset()),
    *both(("sampling.token_before", "sampling.next_token"), ("Earlier token", "Later token"),
          "Look at the previous or the next token.", lambda own, by: own.look("walk", by), hint="token", worth=3,
          priority=True),
    *both(("sampling.difference_before", "sampling.next_difference"), ("Earlier difference", "Next difference"),
          "Go to the previous or next step that would differ.", lambda own, by: own.look("differing", by),
          hint="difference", worth=2, priority=True),
    Action("sampling.recall", "Recompute", "Compute dropped logits again.",
           lambda own: own.look("recall", 0), hint="recompute", worth=1, priority=True),
    taking(hint="apply", worth=7),
    applies("Continue with the settings from the selected token; not in a replay.",
            written="`{dialog.apply}` or `⏎`"),
    leaves("Discard them; nothing has changed.", hint="discard"),
)  # fmt: skip

GREEDY = "Temperature 0 is greedy: top-p, min-p, top-k, XTC and seed change nothing until it is above 0."
AS_SET = "as set"
IN_TITLE = {"token": "walk", "difference": "next difference"}
"""Words of the title for the keys that look elsewhere, by their word in the line of keys."""
PRESET = Setting("← → goes through the presets; delete removes one of your own", "preset", name="preset")
SAVE_AS = Setting("⏎ keeps the values under this name, for every model", "save as preset", name="preset_name")
_ORDER = [each for title in GROUPS for each in grouped(FIELDS, title)]
"""The settings in display order."""


class SamplingDialog(SettingsDialog[Settings]):
    """Asks for sampling settings, which are tried whenever all of them are valid.

    Args:
        own: Tries the settings as they are typed, and selects other tokens meanwhile.
        settings: The initial values.
        first: Name of the setting to begin with; empty for the first one.
    """

    ACTIONS: ClassVar[ActionTable] = SAMPLING_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("settings", "first", "_above", "_typed")
    NO_SETTINGS: ClassVar[tuple[str, ...]] = (PRESET.name, SAVE_AS.name)
    HEADING: ClassVar[str] = "Settings"
    APPLY: ClassVar[str] = "Apply"
    LEAVE: ClassVar[str] = "Discard"

    def __init__(self, own: SamplerActions, settings: Settings, first: str = "") -> None:
        rows = {each.name: FormRow(each) for each in FIELDS}
        rows["logit_bias"].token_id = self._token_id
        self._tokens: dict[str, int | SettingsError | None] = {}
        """The token of a bias by the bias's text, or why it has none; None while it is looked up."""
        self.preset, self.save_as = FormRow(PRESET, (AS_SET,)), FormRow(SAVE_AS, placeholder="a name, then ⏎")
        groups = [(title, [rows[each.name] for each in grouped(FIELDS, title)]) for title in GROUPS]
        groups = [("", [self.preset]), *groups, ("", [self.save_as])]
        super().__init__(groups, settings, first or FIELDS[0].name)
        self._own, self.presets = own, own.presets
        card = own.host.card
        self._above = card.outer_size.height if card is not None and card.display else 0
        """Rows of a narrator's card, which says what to set."""
        self._typed = settings
        """The settings that were typed last, without a preset."""
        self._doomed = ""
        """Preset that a second `delete` deletes; empty for none."""

    def begin(self) -> None:
        """Begin in the row that was asked for."""
        self._doomed = self.save_as.text = ""
        self._tokens.clear()
        self._relabel()
        super().begin()
        box, title = self.query_one("#dialog"), self.HEADING
        for hint in self.hints():
            if hint.word in IN_TITLE:
                title += f" · {hint.keys} {IN_TITLE[hint.word]}"
        box.border_title = Content(title)
        # rows below it: for the lines of status and keys, and for a narrator's card if there is room
        whole = self.has_class("-short") or self.has_class("-narrow")
        free = 2 + self._above if self.has_class("-wide") else 2 if self._above and not whole else 0
        box.styles.margin = (0, 0, free, 0)
        self._say(" ".join(self.presets.problems), wrong=True)
        self.entitle()

    def rebase(self, settings: Settings) -> None:
        """Begin with other settings, but keep what was typed."""
        typed = {name: value for name, (_, value) in differences(self.settings, self._typed).items()}
        self.settings, self._typed = settings, replace(settings, **typed)
        if self.is_mounted:  # else it begins with them
            self.show(self._typed)
            self.read()
            self._relabel()

    def entitle(self) -> None:
        """Show where the settings will be applied."""
        at = self._own.timeline.older
        self.query_one("#apply", ActionButton).name_it("Apply" if at is None else f"Apply from step {at}")

    # ---- values -----------------------------------------------------------------------------

    def made(self, values: Mapping[str, Any]) -> Settings:
        facts = self._own.timeline.facts
        return check(replace(self.settings, **values), facts.vocabulary if facts else None)

    def remarks(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {_ORDER[-1].name: GREEDY} if values.get("temp") == 0 else {}

    def _token_id(self, text: str) -> int:
        """The token of a text; asks for it, and reads the rows again once it is known."""
        found = self._tokens.get(text)
        if isinstance(found, int):
            return found
        if text not in self._tokens:
            self._tokens[text] = None
            self._own.controller.client.do(Tokenize(text), self._looked_up)
        raise found or SettingsError("logit_bias", f"Looking up {quoted(text)} …")

    def _looked_up(self, request: Request[Tokenize]) -> None:
        if (answer := request.reply(Tokenized)) is not None:
            try:
                tokens = [(piece.id, piece.text) for piece in answer.pieces]
                self._tokens[answer.text] = BY_NAME["logit_bias"].one_token(answer.text, tokens)
            except SettingsError as error:
                self._tokens[answer.text] = error
        elif request.failure is not None:
            failure = request.failure
            self._tokens[request.command.text] = SettingsError("logit_bias", failure.message, failure.hint)
        if not self.left:
            self.edited("logit_bias")

    def read(self) -> Settings | None:
        """Read all rows, and try the settings if they are valid; otherwise say in the status line what is wrong."""
        if (settings := super().read()) is not None:
            self._own.attempt(settings)
        else:
            name, why = next(iter(self.faults.items()))
            why += " The preview shows the last valid values"
            self.form.say(name, f"{why}.", "$text-error")  # a low screen has no room for the status line
            self._own.host.answer(why)
        return settings

    def edited(self, name: str) -> None:
        """Try the settings, with the values of a preset if one was chosen."""
        if not self.is_current or name == SAVE_AS.name:
            return  # a late message, after the settings were applied or discarded
        if name == PRESET.name:
            self._doomed, name = "", self._chosen
            self._say("")
            self.show(self.presets.apply(name, self._typed) if name else self._typed)
            self.read()
        elif (settings := self.read()) is not None:
            self._typed = settings
            self._relabel()

    # ---- presets ----------------------------------------------------------------------------

    def _relabel(self) -> None:
        """Show the presets, and the one that equals the typed settings; `as set` if none does."""
        words = (AS_SET, *map(visible, self.presets.names))
        chosen = ("", *self.presets.names).index(self.presets.matching(self._typed))
        if (words, chosen) != (self.preset.words, self.preset.chosen):
            self.preset.words, self.preset.chosen = words, chosen
            self.form.lay_out()

    @property
    def _chosen(self) -> str:
        """Name of the preset that is chosen, empty for none."""
        return ("", *self.presets.names)[self.preset.chosen]

    def _say(self, text: str, wrong: bool = False) -> None:
        """Show a remark at the row that saves a preset, if that is highlighted, or else at the row of presets."""
        here = self.save_as if self.form.highlighted is self.save_as else self.preset
        for row in (self.preset, self.save_as):
            ink = "$text-error" if wrong else "$ink-muted"
            self.form.say(row.setting.name, visible(text) if row is here else "", ink)

    @on(Input.Submitted)
    def _save(self, event: Input.Submitted) -> None:
        if self.form.highlighted is not self.save_as:
            return
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
        name = self._chosen if self.form.highlighted is self.preset else ""
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
        """Look at another token, or compute dropped logits again."""
        self._own.look(what, by)
        self.entitle()

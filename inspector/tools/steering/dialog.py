"""The dialogs of steering: what a direction is made of, and the file that it is saved to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.files import typed
from inspector.config.directions import END, name_of, read_direction
from inspector.display import visible
from inspector.main.dialogs.destination import Destination, directory_hint
from inspector.state.steering import EXAMPLE, Contrast
from inspector.tools.steering.tool import DIRECTION_DIALOG, SAVING_DIALOG, Source
from inspector.widgets.actions import ActionTable, KeyLine
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, SafeTextArea

KINDS = ("texts", "a branch", "a file")
_TEXTS = "A text on each line. The direction is the mean stream at the ends of the upper texts, less the lower ones'."
_BRANCHES = "The stream at this token, less that at the end of the other one."
_FILE = "One that was saved here, or a safetensors file with one tensor `direction` of one axis."


class DirectionDialog(Dialog[Source]):
    """Asks what a direction is made of.

    Args:
        before: What the one before was made of; None for an example.
        node: The token that is looked at.
        ends: The ends of other branches, and their texts, printable.
    """

    ACTIONS: ClassVar[ActionTable] = DIRECTION_DIALOG
    HEADING: ClassVar[str] = "Direction: what the model is pushed toward, and away from"
    APPLY: ClassVar[str] = "Make it"

    def __init__(self, before: Source | None, node: int, ends: Sequence[tuple[int, str]]) -> None:
        super().__init__()
        texts = isinstance(before, Contrast) and before.toward
        self._before = before if isinstance(before, Contrast) and texts else EXAMPLE
        self._node, self._ends = node, ends

    def body(self) -> Iterable[Widget]:
        yield Label("made of", classes="field-label", markup=False)
        yield Choice(KINDS, 0, id="direction-kind")
        with VerticalGroup(id="direction-texts"):
            yield Label("toward", classes="field-label", markup=False)
            yield SafeTextArea("\n".join(self._before.toward), id="direction-toward", tab_behavior="focus")
            yield Label("away from", classes="field-label", markup=False)
            yield SafeTextArea("\n".join(self._before.away), id="direction-away", tab_behavior="focus")
        with VerticalGroup(id="direction-branches") as branches:
            branches.display = False
            yield Label("other branch or prompt", classes="field-label", markup=False)
            if self._ends:
                yield Choice([text for _, text in self._ends], id="direction-end")
        with VerticalGroup(id="direction-file") as file:
            file.display = False
            yield Label("file", classes="field-label", markup=False)
            yield SafeInput("", f"happy-sad{END}", id="direction-path")
        yield Remark(_TEXTS, id="direction-remark")

    def on_mount(self) -> None:
        """Begin in the first field."""
        self.query_one("#direction-toward", SafeTextArea).focus()

    def on_descendant_focus(self) -> None:
        """The line of keys has those of the field."""
        self.query_one(KeyLine).show()

    @property
    def _kind(self) -> int:
        return self.query_one("#direction-kind", Choice).chosen

    @on(Choice.Changed, "#direction-kind")
    def _chosen(self) -> None:
        for place, name in enumerate(("texts", "branches", "file")):
            self.query_one(f"#direction-{name}").display = place == self._kind
        if self._kind == 1 and not self._ends:
            self._remark(
                "There is no other branch or prompt yet: take another token, or give a prompt.", wrong=True
            )
        else:
            self._remark((_TEXTS, _BRANCHES, _FILE)[self._kind])

    @on(Input.Changed, "#direction-path")
    def _typed(self) -> None:
        self._remark(_FILE)

    def _remark(self, text: str, wrong: bool = False) -> None:
        self.query_one("#direction-remark", Remark).say(text, wrong)

    def apply(self) -> None:
        """Hand on what was given, or tell what is the matter with it."""
        try:
            self.dismiss((self._from_texts, self._from_branch, self._from_file)[self._kind]())
        except EngineError as error:
            self._remark(visible(str(error)), wrong=True)

    def _from_texts(self) -> Source:
        toward, away = (
            tuple(
                line
                for line in self.query_one(f"#direction-{name}", SafeTextArea).text.splitlines()
                if line.strip()
            )
            for name in ("toward", "away")
        )
        if not toward or not away:
            raise EngineError("One of the two has no text.", "Write one on each line of both.")
        return Contrast(name_of(toward, away), toward, away)

    def _from_branch(self) -> Source:
        if not self._ends:
            raise EngineError(
                "There is no other branch or prompt yet.", "Take another token, or give a prompt."
            )
        node, text = self._ends[self.query_one("#direction-end", Choice).chosen]
        return Contrast(" ".join(("less", *text.split()[-2:])), nodes=(self._node, node))

    def _from_file(self) -> Source:
        name = self.query_one("#direction-path", SafeInput).value.strip()
        if not name:
            raise PathError("No file was named.", "Give a name.")
        return read_direction(typed(name))


class SavingDialog(Dialog[tuple[Path, bool]]):
    """Asks for the file that a direction is saved to; one that is there is replaced on the second request.

    Args:
        name: Of the direction.
    """

    ACTIONS: ClassVar[ActionTable] = SAVING_DIALOG
    HEADING: ClassVar[str] = "Save the direction"
    APPLY: ClassVar[str] = "Save"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._called = name
        self._destination = Destination("Save")

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        stem = (
            "".join(each if each.isalnum() or each in "-_" else "-" for each in self._called) or "direction"
        )
        yield SafeInput(f"{stem}{END}", f"direction{END}", id="saving-path")
        yield Remark(visible(directory_hint()), id="saving-remark")

    def on_mount(self) -> None:
        """Begin in the name."""
        self.query_one("#saving-path", SafeInput).focus()

    def apply(self) -> None:
        """Hand on the path, or tell what is the matter with it."""
        try:
            self.dismiss(self._destination.check(self.query_one("#saving-path", SafeInput).value.strip()))
        except PathError as error:
            self.query_one("#saving-remark", Remark).say(visible(str(error)), wrong=True)

"""The dialog that asks for another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import PathError
from engine.paths import typed
from engine.settings import LoadSettings, for_model
from inspector.display import visible
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.safety import SafeInput

HELP = "A directory with config.json and weights, a hub id such as mlx-community/SmolLM-135M-4bit, or pocket."


class ModelDialog(Dialog[LoadSettings]):
    """Asks for a model; everything else that is fixed at loading stays as it was.

    Args:
        load: How the present model was loaded.
    """

    HEADING: ClassVar[str] = "Open a model"
    APPLY: ClassVar[str] = "Open"

    def __init__(self, load: LoadSettings) -> None:
        super().__init__()
        self.load = load

    def body(self) -> Iterable[Widget]:
        yield SafeInput(self.load.model, "pocket", id="model-name")
        yield Remark(HELP, id="model-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#model-name", SafeInput).focus()

    @on(Input.Submitted, "#model-name")
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Open what was typed."""
        name = self.query_one("#model-name", SafeInput).value.strip()
        if not name:
            self.query_one("#model-remark", Remark).say(f"No model was named. {HELP}", wrong=True)
            return
        try:
            typed(name)
        except PathError as error:
            self.query_one("#model-remark", Remark).say(visible(str(error)), wrong=True)
            return
        self.dismiss(for_model(self.load, name))

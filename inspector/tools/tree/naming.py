"""The dialog for what the user writes on a branch or a token: a name, a note, a caption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from engine.records import Marked
from inspector.widgets.dialog import Dialog
from inspector.widgets.safety import SafeInput

FIELDS = (
    ("name", "name: shown in the tree"),
    ("note", "note: for yourself"),
    ("caption", "caption: for an audience, in a replay"),
)


class NamingDialog(Dialog[Marked]):
    """Asks for name, note and caption; an empty field takes what was there away.

    Args:
        mark: As they are now.
        what: The branch or token that they are for, printable.
    """

    HEADING: ClassVar[str] = "Name and note"
    APPLY: ClassVar[str] = "Keep"

    def __init__(self, mark: Marked, what: str) -> None:
        super().__init__()
        self.mark, self.what = mark, what

    def body(self) -> Iterable[Widget]:
        yield Static(Content.styled(self.what, "bold"), id="naming-what")
        for name, label in FIELDS:
            yield Label(label, classes="field-label", markup=False)
            yield SafeInput(getattr(self.mark, name), "none", id=f"naming-{name}")

    def on_mount(self) -> None:
        """Begin in the name."""
        self.query_one("#naming-name", SafeInput).focus()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Keep what was typed."""
        name, note, caption = (
            self.query_one(f"#naming-{field}", SafeInput).value.strip() for field, _ in FIELDS
        )
        self.dismiss(replace(self.mark, name=name, note=note, caption=caption))

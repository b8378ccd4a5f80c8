"""The dialog for what the user writes on a branch or a token: a name, a note, a caption and where that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Static

from engine.protocol import Marked
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import Choice, SafeInput

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
        stages: Where the caption can be shown: ids and titles.
        here: Id of the one that is looked at.
    """

    HEADING: ClassVar[str] = "Name and note"
    APPLY: ClassVar[str] = "Keep"

    def __init__(self, mark: Marked, what: str, stages: Sequence[tuple[str, str]], here: str) -> None:
        super().__init__()
        self.mark, self.what = mark, what
        self.stages = [id for id, _ in stages]
        self._titles = [title for _, title in stages]
        self._here = mark.tool if mark.tool in self.stages else here

    def body(self) -> Iterable[Widget]:
        yield Static(Content.styled(self.what, "bold"), id="naming-what")
        for name, label in FIELDS:
            yield Label(label, classes="field-label", markup=False)
            yield SafeInput(getattr(self.mark, name), "none", id=f"naming-{name}")
        yield Label("panel: that the caption is about", classes="field-label", markup=False)
        yield Choice(self._titles, self.stages.index(self._here), id="naming-tool")

    def on_mount(self) -> None:
        """Begin in the name."""
        self.query_one("#naming-name", SafeInput).focus()

    def apply(self) -> None:
        """Keep what was typed."""
        name, note, caption = (
            self.query_one(f"#naming-{field}", SafeInput).value.strip() for field, _ in FIELDS
        )
        tool = self.stages[self.query_one("#naming-tool", Choice).chosen] if caption else ""
        self.dismiss(replace(self.mark, name=name, note=note, caption=caption, tool=tool))

"""The dialogs of the tree: the filter of its branches, and the name, note and caption of a branch or a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Static

from engine.protocol import Marked
from inspector.main.dialogs.field import FieldDialog
from inspector.scales import counted
from inspector.state.tree_rows import TreeFilter
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog
from inspector.widgets.fields import Choice, SafeInput

KEYS = dialog_table(
    "In a form of the tree",
    note("tab", hint="next field", worth=5),
    note("enter", hint=lambda own: own.APPLY.lower(), worth=8, place=91),
    told=False,
)

# ---- the filter of the branches -----------------------------------------------------------------


class FilterDialog(FieldDialog[TreeFilter]):
    """Asks for a filter; an empty one shows all branches.

    Args:
        wanted: The filter in force.
        fit: Counts the rows that match a filter.
    """

    ACTIONS: ClassVar[ActionTable] = KEYS
    HEADING: ClassVar[str] = "Filter the tree"
    APPLY: ClassVar[str] = "Filter"
    FIELD: ClassVar[str] = "filter-text"

    def __init__(self, wanted: TreeFilter, fit: Callable[[TreeFilter], int]) -> None:
        super().__init__(wanted.text, "any", "")
        self._bookmarked, self._fit = wanted.bookmarked, fit

    def body(self) -> Iterable[Widget]:
        field, remark = super().body()
        yield Label("text of a branch or its notes", classes="field-label", markup=False)
        yield field
        yield Choice(("all branches", "only bookmarked"), int(self._bookmarked), id="filter-marks")
        yield remark

    @property
    def wanted(self) -> TreeFilter:
        """The filter in the fields."""
        return TreeFilter(self.field.value, bool(self.query_one("#filter-marks", Choice).chosen))

    @on(Choice.Changed, "#filter-marks")
    def changed(self) -> None:
        if not (wanted := self.wanted):
            self.say("No filter: all branches are shown.")
            return
        fit = self._fit(wanted)
        found = f"{counted(fit, 'row')} found"
        self.say(f"{found}; the rows above are shown, too.", wrong=not fit)

    def apply(self) -> None:
        self.dismiss(self.wanted)


# ---- name, note and caption of a branch ---------------------------------------------------------

FIELDS = (
    ("name", "name in the tree", "ending A"),
    ("note", "note, for you and for readers of documents", "why this token?"),
    ("caption", "caption for an audience, in a replay", "watch the entropy here"),
)
"""Name, label and example of each field."""


class NamingDialog(Dialog[Marked]):
    """Asks for name, note and caption; an empty field removes the old text.

    Args:
        mark: The present name, note and caption.
        what: The branch or token that they are for, printable.
        stages: Ids and titles of the panels that the caption can be about.
        here: Id of the current panel.
        begins: Name of the field that gets the focus first.
    """

    ACTIONS: ClassVar[ActionTable] = KEYS
    HEADING: ClassVar[str] = "Name and note"
    APPLY: ClassVar[str] = "Save"

    def __init__(
        self, mark: Marked, what: str, stages: Sequence[tuple[str, str]], here: str, begins: str = "name"
    ) -> None:
        super().__init__()
        self.mark, self.what, self._begins = mark, what, begins
        self.stages = dict(stages)
        self._here = mark.tool if mark.tool in self.stages else here

    def body(self) -> Iterable[Widget]:
        yield Static(Content.styled(f"On {self.what}", "bold"), id="naming-what")
        for name, label, example in FIELDS:
            yield Label(label, classes="field-label", markup=False)
            yield SafeInput(getattr(self.mark, name), example, id=f"naming-{name}")
        yield Label("panel the caption refers to", classes="field-label", markup=False)
        yield Choice([*self.stages.values()], [*self.stages].index(self._here), id="naming-tool")

    def on_mount(self) -> None:
        self.query_one(f"#naming-{self._begins}", SafeInput).focus()

    def apply(self) -> None:
        texts = {name: self.query_one(f"#naming-{name}", SafeInput).value.strip() for name, *_ in FIELDS}
        tool = [*self.stages][self.query_one("#naming-tool", Choice).chosen] if texts["caption"] else ""
        self.dismiss(replace(self.mark, **texts, tool=tool))

"""The dialogs of the tree: the filter of its branches, and the name, note and caption of a branch or a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from engine.protocol import Marked
from inspector.state.tree_rows import TreeFilter
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput

# ---- the filter of the branches -----------------------------------------------------------------


class FilterDialog(Dialog[TreeFilter]):
    """Asks for a filter.

    Args:
        wanted: The one in force.
        fit: Counts the branches that fit one.
    """

    HEADING: ClassVar[str] = "Filter the tree"
    APPLY: ClassVar[str] = "Filter"

    def __init__(self, wanted: TreeFilter, fit: Callable[[TreeFilter], int]) -> None:
        super().__init__()
        self._wanted, self._fit = wanted, fit

    def body(self) -> Iterable[Widget]:
        yield Label("text of a branch or its notes", classes="field-label", markup=False)
        yield SafeInput(self._wanted.text, "any", id="filter-text")
        yield Choice(("all branches", "only bookmarked"), int(self._wanted.bookmarked), id="filter-marks")
        yield Remark(id="filter-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#filter-text", SafeInput).focus()
        self._count()

    @property
    def _typed(self) -> TreeFilter:
        text = self.query_one("#filter-text", SafeInput).value
        return TreeFilter(text, bool(self.query_one("#filter-marks", Choice).chosen))

    @on(Input.Changed, "#filter-text")
    @on(Choice.Changed, "#filter-marks")
    def _count(self) -> None:
        wanted = self._typed
        if not wanted:
            remark, fit = "No filter: all branches are shown.", 1
        else:
            fit = self._fit(wanted)
            remark = f"{fit:,} branch{'es fit' if fit != 1 else ' fits'}; those above them are shown, too."
        self.query_one("#filter-remark", Remark).say(remark, wrong=not fit)

    def apply(self) -> None:
        """Use it; an empty one shows all."""
        self.dismiss(self._typed)


# ---- name, note and caption of a branch ---------------------------------------------------------

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
        stages: Ids and titles of the panels that the caption can be about.
        here: Id of the current one.
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

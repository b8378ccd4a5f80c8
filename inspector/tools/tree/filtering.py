"""The dialog for which branches the tree shows; what fits is counted as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Input, Label

from inspector.tools.tree.pruning import TreeFilter
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput

LABELS = ("all branches", "only bookmarked")


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
        yield Choice(LABELS, int(self._wanted.bookmarked), id="filter-marks")
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
            told, fit = "No filter: all branches are shown.", 1
        else:
            fit = self._fit(wanted)
            told = f"{fit:,} branch{'es fit' if fit != 1 else ' fits'}; those above stay in sight."
        self.query_one("#filter-remark", Remark).say(told, wrong=not fit)

    def apply(self) -> None:
        """Use it; an empty one shows all."""
        self.dismiss(self._typed)

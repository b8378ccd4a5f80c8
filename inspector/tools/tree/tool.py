"""The tree as a tool: its panel, what the keys mean in it, and the marks that can be made everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from engine.protocol import Marked, MoveTo
from inspector.display import quoted
from inspector.keys import KEYS, key_for
from inspector.main.arrangement import Place
from inspector.main.messages import ToolMessage
from inspector.main.tool import (
    BRANCH,
    LOOK,
    HelpSection,
    Hint,
    Host,
    Key,
    Needs,
    PanelSpec,
    Tool,
    ToolActions,
    When,
)
from inspector.state.mark_words import written
from inspector.tools.tree.marking import Marking
from inspector.tools.tree.panel import TreePanel
from inspector.tools.tree.pruning import TreeFilter, pruned


class TreeActions(ToolActions):
    """Goes through the tree and writes on it."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.marking = Marking(host.controller, host.answer)

    @property
    def panel(self) -> TreePanel:
        """The panel."""
        return self.host.panel(TreePanel)

    @property
    def _is_current(self) -> bool:
        return self.host.arrangement.current == TREE.id

    def show(self) -> None:
        """Show the branches."""
        self.panel.show(self.timeline)

    def pressed(self, key: str) -> None:
        """The key that follows the tip does so in the tree too, wherever the person is."""
        if key == "tip":
            self.panel.to_tip()

    def toggle(self) -> None:
        """Show the tree of branches, or go back."""
        self.host.toggle(TREE.id)

    # ---- the cursor -------------------------------------------------------------------------

    @property
    def instead(self) -> Mapping[str, Callable[[], None]]:
        """Arrows go from branch to branch and fold, enter goes to a branch's end."""
        panel = self.panel
        moves: dict[str, Callable[[], None]] = {
            "above": lambda: panel.move(-1),
            "below": lambda: panel.move(1),
            "earlier": panel.fold,
            "later": panel.unfold,
            "ten_earlier": lambda: panel.page(-1),
            "ten_later": lambda: panel.page(1),
            "first": panel.to_first,
        }
        return {key: partial(self._answered, move) for key, move in moves.items()} | {"choose": self._choose}

    def _answered(self, move: Callable[[], None]) -> None:
        move()
        self.host.answer()

    def _choose(self) -> None:
        """Go to the end of the branch under the cursor."""
        if (branch := self.panel.branch) is not None:
            self.host.answer(self._go(branch.last))
        else:
            self._answered(self.panel.toggle_fallen)

    def hear(self, message: ToolMessage) -> None:
        """Go to the branch that was clicked."""
        if isinstance(message, TreePanel.BranchChosen) and self.controller.stepping:
            self.host.answer(self._go(message.node))

    def _go(self, node: int) -> str:
        client = self.controller.client
        at_tip = node == self.timeline.tip and not client.outstanding
        self.timeline.select(None)
        if at_tip:
            return f"The path ends here already: {key_for('step')} steps on"
        client.do(MoveTo(node))
        return ""

    # ---- filter -----------------------------------------------------------------------------

    def filter(self) -> None:
        """Ask which branches to show, in the tree."""
        from inspector.tools.tree.filtering import FilterDialog

        if TREE.id not in self.host.shown:
            self.host.toggle(TREE.id)
        self.host.open(FilterDialog(self.panel.filter, self._count), self._filtered)

    def _count(self, wanted: TreeFilter) -> int:
        return pruned(self.timeline, wanted, show_fallen=True).fit

    def _filtered(self, wanted: TreeFilter | None) -> None:
        if wanted is not None:
            self.panel.keep(wanted)
            self.host.answer("" if wanted else "All branches are shown")

    def stop(self) -> bool:
        """Escape takes a filter off, before it closes the tree."""
        if TREE.id not in self.host.shown or not self.panel.filter:
            return False
        self.panel.keep(TreeFilter())
        self.host.answer("All branches are shown again")
        return True

    # ---- marks ------------------------------------------------------------------------------

    def _here(self) -> int | None:
        """Node to write on: the branch under the cursor, or elsewhere the selected token."""
        if self._is_current:
            return self.panel.branch.first if self.panel.branch else None
        timeline = self.timeline
        item = timeline.selected or (timeline.items[-1] if timeline.items else None)
        return item.node if item else None

    def bookmark(self) -> None:
        """Set a bookmark, or take it off."""
        if (node := self._here()) is not None:
            self.host.answer(self.marking.bookmark(node))

    def name(self) -> None:
        """Ask for name, note and caption."""
        from inspector.tools.tree.naming import NamingDialog

        if (node := self._here()) is not None:
            what = f"{'Branch' if self._is_current else 'Token'} {quoted(self.marking.label(node))}"
            stages, here = self.host.stages, self.host.arrangement.current
            self.host.open(NamingDialog(self.marking.at(node), what, stages, here), self._named)

    def _named(self, mark: Marked | None) -> None:
        if mark is not None:
            self.marking.write(mark)
            self.host.answer(
                f"Kept: {written(mark)}" if mark != Marked(mark.node) else "Nothing is written here now."
            )

    def delete(self) -> None:
        """Delete the branch under the tree's cursor."""
        if not self._is_current:
            self.host.answer(
                f"Press {key_for('tree')} for the tree: there {key_for('delete')} deletes the branch under the cursor."
            )
        elif (branch := self.panel.branch) is not None:
            node = branch.first
            if not self.marking.refusal(node):
                self.panel.step_aside()
            self.host.answer(self.marking.delete(node))


TREE = Tool(
    "tree",
    "Tree",
    TreeActions,
    keys=(
        Key("tree", *KEYS["tree"], "Tree", LOOK, "Show the tree of branches. Again, or esc, to go back.",
            TreeActions.toggle, Needs.DISTRIBUTION),
        Key("filter", *KEYS["filter"], "Filter tree", LOOK,
            "Show only those branches of the tree that have a text or a bookmark in them; esc shows all again.",
            TreeActions.filter, Needs.DISTRIBUTION),
        Key("bookmark", *KEYS["bookmark"], "Bookmark", BRANCH,
            "Set a bookmark on the selected token, or in the tree on the branch; again to take it off.",
            TreeActions.bookmark, Needs.DISTRIBUTION),
        Key("name", *KEYS["name"], "Name and note", BRANCH,
            "Write a name, a note and a caption on the selected token, or in the tree on the branch.",
            TreeActions.name, Needs.DISTRIBUTION),
        Key("delete", *KEYS["delete"], "Delete branch", BRANCH,
            f"Delete the branch under the tree's cursor with all below it; {key_for('undo')} brings it back.",
            TreeActions.delete, Needs.DISTRIBUTION),
    ),
    panel=PanelSpec(TreePanel, Place.BELOW, "Tree", "Tree panel", "the tree"),
    hints=(
        Hint(10, ("tree",), "tree", 5),
        Hint(3, ("earlier", "later"), "fold", 7, When.PANEL),
        Hint(4, ("above", "below"), "branch", 12, When.PANEL),
        Hint(5, ("choose",), "go", 12, When.PANEL),
        Hint(6, ("filter",), "filter", 5, When.PANEL),
        Hint(8, ("bookmark",), "bookmark", 6, When.PANEL),
        Hint(9, ("name",), "name", 9, When.PANEL),
        Hint(10, ("tree",), "back", 10, When.PANEL),
        Hint(12, ("delete",), "delete", 10, When.PANEL),
        Hint(13, ("undo",), "undo", 7, When.PANEL),
    ),
    help=(
        HelpSection(
            "In the tree",
            (
                ("`↑` `↓` `pgup` `pgdn`", "Go from branch to branch."),
                ("`home` `end`", "Go to the first branch, to the one that the path ends in."),
                ("`←` `→`", "Fold a branch, or go to the one above; unfold it, or go to the first below."),
                ("`⏎`", "Go to the branch's end, as a second click on it does; show or fold the beams that fell out."),
                ("`F` `esc`", "Show only branches with a text or a bookmark; show all again."),
            ),
        ),
    ),
    situation=f"↑ ↓ to a branch, ⏎ goes to its end, {key_for('tree')} goes back",
)  # fmt: skip

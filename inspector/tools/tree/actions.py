"""The tree: what the keys mean while it is the current panel, and the marks that can be made everywhere."""

from __future__ import annotations

from textual import on

from engine.commands import MoveTo
from engine.records import Marked
from inspector.main.branching import Branching
from inspector.main.layout import TREE
from inspector.main.looking import Looking
from inspector.session.controller import Controller
from inspector.state.branches import PROMPT
from inspector.tools.tree.marking import Marking
from inspector.tools.tree.naming import NamingDialog
from inspector.tools.tree.panel import TreePanel, written

_PAGE = 10
"""Tokens that the page keys walk; in the tree they go by pages."""


class TreeActions(Looking, Branching):
    """Goes through the tree and writes on it."""

    current: int
    """Place in `layout.PANELS` of the panel that the person is at."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.marking = Marking(controller, self.answer)

    @property
    def at_tree(self) -> bool:
        """Whether the arrow keys are the tree's."""
        return self.current == TREE

    # ---- the cursor -------------------------------------------------------------------------

    def action_highlight(self, by: int) -> None:
        """Go to another branch, or highlight another candidate."""
        if not self.at_tree:
            return super().action_highlight(by)
        self.forest.move(by)
        return self.answer()

    def action_walk(self, by: int) -> None:
        """Fold or unfold, or look at a token further back or ahead."""
        if not self.at_tree:
            return super().action_walk(by)
        if abs(by) == _PAGE:
            self.forest.page(by // _PAGE)
        elif by < 0:
            self.forest.fold()
        else:
            self.forest.unfold()
        return self.answer()

    def action_first(self) -> None:
        """Go to the first branch, or look at the first token."""
        if not self.at_tree:
            return super().action_first()
        self.forest.to_first()
        return self.answer()

    def action_tip(self) -> None:
        """Follow the tip, in the tree too."""
        self.forest.to_tip()
        super().action_tip()

    def action_choose(self) -> None:
        """Go to the end of the branch under the cursor, or take the highlighted candidate."""
        if not self.at_tree:
            return super().action_choose()
        branch = self.forest.branch
        return self.answer(self._go(branch.last)) if branch else None

    @on(TreePanel.BranchChosen)
    def _branch_chosen(self, message: TreePanel.BranchChosen) -> None:
        if self.controller.stepping:
            self.answer(self._go(message.node))

    def _go(self, node: int) -> str:
        if node == self.controller.timeline.tip and not self.controller.outstanding:
            self.controller.timeline.select(None)
            return "The path ends here already: space steps on"
        self.controller.timeline.select(None)
        self.controller.do(MoveTo(node))
        return ""

    # ---- marks ------------------------------------------------------------------------------

    def _here(self) -> int | None:
        """Node to write on: the branch under the cursor, or elsewhere the selected token."""
        timeline = self.controller.timeline
        if self.at_tree:
            return self.forest.branch.first if self.forest.branch else None
        item = timeline.selected or (timeline.items[-1] if timeline.items else None)
        return item.node if item else None

    def action_bookmark(self) -> None:
        """Set a bookmark, or take it off."""
        if (node := self._here()) is not None:
            self.answer(self.marking.bookmark(node))

    def action_name(self) -> None:
        """Ask for name, note and caption."""
        if (node := self._here()) is not None:
            what = f"{'Branch' if self.at_tree else 'Token'} {self.marking.label(node)}"
            self.app.push_screen(NamingDialog(self.marking.at(node), what), self._named)

    def _named(self, mark: Marked | None) -> None:
        if mark is not None:
            self.marking.write(mark)
            self.answer(
                f"Kept: {written(mark)}" if mark != Marked(mark.node) else "Nothing is written here now."
            )

    def action_delete_branch(self) -> None:
        """Delete the branch under the tree's cursor."""
        if not self.at_tree:
            self.answer("Press t for the tree: there x deletes the branch under the cursor.")
        elif (branch := self.forest.branch) is not None:
            node = branch.first
            if self.controller.timeline.branches.made(branch) != PROMPT:
                self.forest.step_aside()
            self.answer(self.marking.delete(node))

    def action_undelete(self) -> None:
        """Undo the last deletion."""
        self.answer(self.marking.undo())

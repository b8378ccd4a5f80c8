"""The tree as a tool: its panel, what the keys mean in it, and the marks and deletions that can be made everywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import Deleted, Marked, MoveTo
from inspector.display import quoted, token_label, truncate
from inspector.keys import bare_key_for, key_for
from inspector.main.tool import PanelSpec, Tool, ToolActions, ToolMessage
from inspector.session.client import Request
from inspector.state.branches import PROMPT
from inspector.state.session_tree import SessionTree, counted, written
from inspector.tools.tree.panel import TreePanel
from inspector.tools.tree.view import TreeFilter, TreeView, pruned
from inspector.widgets.actions import Action, ActionTable, Needs, both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

_LABEL = 24
"""Cells that a branch's text gets in an answer."""


class TreeActions(ToolActions):
    """Goes through the tree and writes on it."""

    HEEDS = ("tip",)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._leaving: Request[MoveTo] | None = None
        """The move away from a branch that is to be deleted."""

    @property
    def panel(self) -> TreePanel:
        """The panel."""
        return self.host.panel(TreePanel)

    @property
    def view(self) -> TreeView:
        """Its rows and its cursor."""
        return self.panel.view

    @property
    def is_current(self) -> bool:
        """True if the panel is the current one."""
        return self.host.arrangement.current == TREE.id

    def show(self) -> None:
        """Show the branches; out of sight they follow another path alone, which unfolds those that it goes through."""
        panel = self.panel
        if TREE.id in self.host.shown or not panel.follows(self.timeline):
            panel.show(self.timeline)

    def pressed(self, id: str) -> None:
        """The key that follows the tip does so in the tree too, wherever it is pressed."""
        self.view.follow()

    # ---- the cursor -------------------------------------------------------------------------

    def walk(self, move: Callable[..., None], *by: int) -> None:
        """Move the cursor."""
        move(*by)
        self.host.answer()

    def choose(self) -> None:
        """Go to the end of the branch under the cursor."""
        view = self.view
        if view.cursor is not None:
            self._go(view.cursor.last)
        else:
            self.walk(view.toggle, view.row)

    def hear(self, message: ToolMessage) -> None:
        """Go to the branch that was clicked."""
        if isinstance(message, TreePanel.BranchChosen) and self.controller.stepping:
            self._go(message.node)

    def _go(self, node: int) -> None:
        client = self.controller.client
        at_tip = node == self.timeline.tip and not client.outstanding
        self.timeline.select(None)
        if not at_tip:
            client.do(MoveTo(node))
        self.host.answer(f"The path already ends here: {key_for('step')} takes a step" if at_tip else "")

    # ---- filter -----------------------------------------------------------------------------

    def filter(self) -> None:
        """Ask which branches to show, in the tree."""
        from inspector.tools.tree.dialogs import FilterDialog

        if TREE.id not in self.host.shown:
            self.host.go_to(TREE.id)
        dialog = FilterDialog(self.view.filter, lambda wanted: pruned(self.timeline, wanted, True).fit)
        self.host.open(dialog, self._filtered)

    def _filtered(self, wanted: TreeFilter | None) -> None:
        if wanted is not None:
            self.view.filter = wanted
            self.host.answer("" if wanted else "All branches are shown")

    def stop(self) -> bool:
        """Escape takes a filter off, before it closes the tree."""
        if TREE.id not in self.host.shown or not self.view.filter:
            return False
        self.view.filter = TreeFilter()
        self.host.answer("All branches are shown again")
        return True

    # ---- marks ------------------------------------------------------------------------------

    def _here(self) -> int | None:
        """Node to write on: the branch under the cursor, or elsewhere the selected token."""
        if self.is_current:
            branch = self.view.cursor
            return branch.first if branch else None
        timeline = self.timeline
        item = timeline.selected or (timeline.items[-1] if timeline.items else None)
        return item.node if item else None

    def _label(self, node: int) -> str:
        """The beginning of a branch, short and printable, in quotation marks."""
        branches = self.timeline.tree.branches
        if (branch := branches.of(node)) is None:
            return quoted("")
        text = branches.text(branch, _LABEL + 1) if branch.first == node else branches[node].text
        return quoted(truncate(token_label(text, branches[node].raw), _LABEL))

    def bookmark(self) -> None:
        """Set a bookmark, or take it off."""
        if (node := self._here()) is None:
            return
        mark, label = self.timeline.tree.marks.at(node), self._label(node)
        self.controller.client.receive(replace(mark, bookmarked=not mark.bookmarked))
        again = f"{key_for('bookmark')} removes it again"
        self.host.answer(
            f"The bookmark at {label} is gone." if mark.bookmarked else f"Bookmarked {label}. {again}"
        )

    def name(self) -> None:
        """Ask for name, note and caption."""
        from inspector.tools.tree.dialogs import NamingDialog

        if (node := self._here()) is not None:
            what = f"{'Branch' if self.is_current else 'Token'} {self._label(node)}"
            mark, here = self.timeline.tree.marks.at(node), self.host.arrangement.current
            self.host.open(NamingDialog(mark, what, self.host.stages, here), self._named)

    def _named(self, mark: Marked | None) -> None:
        if mark is not None:
            self.controller.client.receive(mark)
            blank = mark == Marked(mark.node)
            self.host.answer("Nothing is written here now." if blank else f"Kept: {written(mark)}")

    # ---- deletions --------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete the branch under the tree's cursor; if the path runs through it, once the path is elsewhere."""
        if not self.is_current:
            there = f"there {bare_key_for('delete')} deletes the branch under the cursor."
            self.host.answer(f"Press {key_for('tree')} for the tree: {there}")
            return
        view, tree = self.view, self.timeline.tree
        if view.cursor is None:
            return
        node = view.cursor.first
        on_path = self._is_on_path(node)
        if on_path and tree.branches[node].made == PROMPT:
            self.host.answer(
                "The prompt on show can't be deleted. Go to another one first, or press "
                f"{key_for('prompt')} for a new one."
            )
            return
        view.step_aside()
        if not on_path:
            self._delete(node)
            return
        if self._leaving is None or self._leaving.done:
            self.timeline.select(None)
            left = partial(self._left, node, tree)
            self._leaving = self.controller.client.do(MoveTo(tree.branches[node].parent), left)
        self.host.answer()

    def _is_on_path(self, node: int) -> bool:
        """True if the path runs through a node, or will once all outstanding commands are done."""
        branches = self.timeline.tree.branches
        targets = [getattr(command, "node", None) for command in self.controller.client.outstanding]
        return any(
            target is not None and target in branches and branches.leads(node, target)
            for target in (self.timeline.tip, *targets)
        )

    def _left(self, node: int, tree: SessionTree, request: Request[MoveTo]) -> None:
        """Delete a branch once the move away from it is done; do nothing if another tree has begun."""
        if tree is not self.timeline.tree:
            return
        if not self._is_on_path(node):
            self._delete(node)
            return
        why = "the path still runs through it, since the move away from it was stopped."
        self.host.answer(f"Not deleted: {why}")

    def _delete(self, node: int) -> None:
        branches = self.timeline.tree.branches
        if (branch := branches.of(node)) is None:
            self.host.answer()
            return
        count, tokens = branches.size(branch)
        deleted = counted(tokens - branches.place(node), count)
        self.controller.client.receive(Deleted(node))
        self.host.answer(f"Deleted {deleted}. {key_for('undo')} brings them back")


# ---- keys ---------------------------------------------------------------------------------------

_BRANCH = "Go from branch to branch."
_ENDS = "Go to the first branch, or to the one in which the path ends."
_FOLD = "Fold a branch, or go to the one above; unfold it, or go to the first below."
_FILTER = "Show only branches with a text or a bookmark; show all again."
TREE_PANEL = ActionTable(
    "In the tree",
    (
        *both(("above", "below"), ("Branch above", "Branch below"), _BRANCH, lambda own, by: own.walk(own.view.move,
              by), hint="branch", worth=12, place=40),
        *both(("ten_earlier", "ten_later"), ("Page up", "Page down"), _BRANCH,
              lambda own, by: own.walk(own.view.move, by * own.panel.page)),
        Action("first", "First branch", _ENDS, lambda own: own.walk(own.view.put, 0)),
        Action("tip", help=_ENDS),
        Action("earlier", "Fold", _FOLD, lambda own: own.walk(own.view.fold), hint="fold", worth=7, place=30),
        Action("later", "Unfold", _FOLD, lambda own: own.walk(own.view.unfold), hint="fold", worth=7, place=30),
        Action("choose", "Go there",
               "Go to the branch's end, as a second click on it does; show or fold the pruned beams.",
               lambda own: own.choose(), hint="go", worth=12, place=50),
        Action("filter", help=_FILTER, hint="filter", worth=5, place=60),
        Action("stop", help=_FILTER),
        Action("bookmark", hint="bookmark", worth=6, place=80),
        Action("name", hint="name", worth=9, place=90),
        Action("delete", hint="delete", worth=10, place=120),
        Action("undo", hint="undo", worth=7, place=130),
    ),
    when=lambda own: own.is_current, panel="tree",
)  # fmt: skip
"""The meaning of keys while the panel is the current one."""
TREE = Tool(
    "tree",
    "Tree",
    TreeActions,
    actions=(
        Action("tree", "Tree", "Show the tree of branches. Esc goes back.",
            lambda own: own.host.go_to("tree"),
            Needs.DISTRIBUTION, looks=True,
            synonyms="branches, alternatives, versions, all branches, perplexity, token tree", view="tree"),
        Action("filter", "Filter tree",
            "Show only branches of the tree that contain a text or a bookmark; esc shows all again.",
            TreeActions.filter, Needs.DISTRIBUTION, looks=True),
        Action("bookmark", "Bookmark",
            "Set a bookmark on the selected token, or in the tree on the branch; again to remove it.",
            TreeActions.bookmark, Needs.DISTRIBUTION, synonyms="star, remember this token"),
        Action("name", "Name and note",
            "Write a name, a note and a caption on the selected token, or in the tree on the branch.",
            TreeActions.name, Needs.DISTRIBUTION,
            synonyms="add note, annotate, comment, caption, rename branch"),
        Action("delete", "Delete branch",
            "Delete the branch under the tree's cursor and all below it; {undo} brings them back.",
            TreeActions.delete, Needs.DISTRIBUTION),
    ),
    panel=PanelSpec(TreePanel, "Tree", "Tree"),
    contexts=(TREE_PANEL,),
    situation="↑ ↓ to a branch, ⏎ goes to its end, esc goes back",
)  # fmt: skip

"""The tree as a tool: its panel, what the keys mean in it, and the marks and deletions that can be made everywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from engine.protocol import Deleted, Marked, MoveTo
from inspector.display import quoted, token_label, truncate
from inspector.keys import bare_key_for, key_for
from inspector.main.tool import Host, PanelSpec, Tool, ToolActions, ToolMessage
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.state.branches import PROMPT
from inspector.state.session_tree import SessionTree, counted, written
from inspector.tools.tree.panel import TreePanel
from inspector.tools.tree.view import TreeFilter, pruned
from inspector.widgets.actions import Action, ActionTable, Needs, both

_LABEL = 24
"""Cells that a branch's text gets in an answer."""


# ---- what keys do -------------------------------------------------------------------------------


class TreeActions(ToolActions):
    """Goes through the tree and writes on it."""

    HEEDS = ("tip",)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.marking = Marking(host.controller, host.answer)

    @property
    def panel(self) -> TreePanel:
        """The panel."""
        return self.host.panel(TreePanel)

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
        """The key that follows the tip does so in the tree too, wherever the person is."""
        self.panel.to_tip()

    # ---- the cursor -------------------------------------------------------------------------

    def walk(self, move: Callable[..., None], *by: int) -> None:
        """Move the cursor."""
        move(*by)
        self.host.answer()

    def choose(self) -> None:
        """Go to the end of the branch under the cursor."""
        if (branch := self.panel.branch) is not None:
            self.host.answer(self._go(branch.last))
        else:
            self.walk(self.panel.toggle_fallen)

    def hear(self, message: ToolMessage) -> None:
        """Go to the branch that was clicked."""
        if isinstance(message, TreePanel.BranchChosen) and self.controller.stepping:
            self.host.answer(self._go(message.node))

    def _go(self, node: int) -> str:
        client = self.controller.client
        at_tip = node == self.timeline.tip and not client.outstanding
        self.timeline.select(None)
        if at_tip:
            return f"The path already ends here: {key_for('step')} takes a step"
        client.do(MoveTo(node))
        return ""

    # ---- filter -----------------------------------------------------------------------------

    def filter(self) -> None:
        """Ask which branches to show, in the tree."""
        from inspector.tools.tree.dialogs import FilterDialog

        if TREE.id not in self.host.shown:
            self.host.go_to(TREE.id)
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
        if self.is_current:
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
        from inspector.tools.tree.dialogs import NamingDialog

        if (node := self._here()) is not None:
            what = f"{'Branch' if self.is_current else 'Token'} {quoted(self.marking.label(node))}"
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
        if not self.is_current:
            delete = bare_key_for("delete")
            self.host.answer(
                f"Press {key_for('tree')} for the tree: there {delete} deletes the branch under the cursor."
            )
        elif (branch := self.panel.branch) is not None:
            node = branch.first
            if not self.marking.refusal(node):
                self.panel.step_aside()
            self.host.answer(self.marking.delete(node))


class Marking:
    """Makes marks; every method that a key calls returns a sentence for the user.

    Args:
        controller: Takes the marks as records, as it takes the engine's.
        answer: Shows the user what came of a deletion that had to wait.
    """

    def __init__(self, controller: Controller, answer: Callable[[str], None]) -> None:
        self._controller, self._answer = controller, answer
        self._leaving: Request[MoveTo] | None = None
        """The move away from what is to be deleted."""

    def at(self, node: int) -> Marked:
        """The marks of a node."""
        return self._controller.timeline.tree.marks.at(node)

    def label(self, node: int) -> str:
        """The beginning of a branch, short and printable."""
        branches = self._controller.timeline.tree.branches
        branch = branches.of(node)
        if branch is None:
            return ""
        text = branches.text(branch, _LABEL + 1) if branch.first == node else branches[node].text
        return truncate(token_label(text, branches[node].raw), _LABEL)

    def bookmark(self, node: int) -> str:
        """Set a bookmark, or take it off."""
        mark = self.at(node)
        self.write(replace(mark, bookmarked=not mark.bookmarked))
        if mark.bookmarked:
            return f"The bookmark at {quoted(self.label(node))} is gone."
        return f"Bookmarked {quoted(self.label(node))}. {key_for('bookmark')} removes it again"

    def write(self, mark: Marked) -> None:
        """Let these be the marks of their node."""
        self._controller.client.receive(mark)

    # ---- deletions --------------------------------------------------------------------------

    def delete(self, node: int) -> str:
        """Delete a node with all below it; where the path runs through it, once the path is elsewhere."""
        branches = self._controller.timeline.tree.branches
        if node not in branches:
            return ""
        if refusal := self.refusal(node):
            return refusal
        if not self._is_on_path(node):
            return self._delete(node)
        if self._leaving is None or self._leaving.done:
            self._controller.timeline.select(None)
            left = partial(self._left, node, self._controller.timeline.tree)
            self._leaving = self._controller.client.do(MoveTo(branches[node].parent), left)
        return ""

    def refusal(self, node: int) -> str:
        """The reason that a node can't be deleted, empty where it can."""
        if self._controller.timeline.tree.branches[node].made == PROMPT and self._is_on_path(node):
            return (
                "The prompt on show can't be deleted. Go to another one first, or press "
                f"{key_for('prompt')} for a new one."
            )
        return ""

    def _is_on_path(self, node: int) -> bool:
        """True if the path runs through a node, or will once what is out is done."""
        branches = self._controller.timeline.tree.branches
        targets = [getattr(command, "node", None) for command in self._controller.client.outstanding]
        return any(
            target is not None and target in branches and branches.leads(node, target)
            for target in (self._controller.timeline.tip, *targets)
        )

    def _left(self, node: int, tree: SessionTree, request: Request[MoveTo]) -> None:
        """Delete what was to be deleted, once the move away from it is done; nothing where another tree has begun."""
        if tree is not self._controller.timeline.tree:
            return
        if self._is_on_path(node):
            self._answer(
                "Not deleted: the path still runs through it, since the move away from it was stopped."
            )
        else:
            self._answer(self._delete(node))

    def _delete(self, node: int) -> str:
        branches = self._controller.timeline.tree.branches
        branch = branches.of(node)
        if branch is None:
            return ""
        count, tokens = branches.size(branch)
        tokens -= branches.place(node)
        self._controller.client.receive(Deleted(node))
        return f"Deleted {counted(tokens, count)}. {key_for('undo')} brings them back"


# ---- keys ---------------------------------------------------------------------------------------

_BRANCH = "Go from branch to branch."
_ENDS = "Go to the first branch, or to the one in which the path ends."
_FOLD = "Fold a branch, or go to the one above; unfold it, or go to the first below."
_FILTER = "Show only branches with a text or a bookmark; show all again."
TREE_PANEL = ActionTable(
    "In the tree",
    (
        *both(("above", "below"), ("Branch above", "Branch below"), _BRANCH, lambda own, by: own.walk(own.panel.move,
              by), hint="branch", worth=12, place=40),
        *both(("ten_earlier", "ten_later"), ("Page up", "Page down"), _BRANCH,
              lambda own, by: own.walk(own.panel.page, by)),
        Action("first", "First branch", _ENDS, lambda own: own.walk(own.panel.to_first)),
        Action("tip", help=_ENDS),
        Action("earlier", "Fold", _FOLD, lambda own: own.walk(own.panel.fold), hint="fold", worth=7, place=30),
        Action("later", "Unfold", _FOLD, lambda own: own.walk(own.panel.unfold), hint="fold", worth=7, place=30),
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

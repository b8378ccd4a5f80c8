"""Marks as a tool: the keys that go from one to the next, and the list of all."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Key, Needs, Tool, ToolActions


class MarkActions(ToolActions):
    """Goes to branch points, bookmarks, notes and captions."""

    def walk(self, by: int) -> None:
        """Look at the mark before or after."""
        from inspector.tools.marks.places import go

        self.host.answer(go(self.timeline, by))

    def open(self) -> None:
        """List all marks, and go to the one that is chosen."""
        from inspector.tools.marks.dialog import MarksDialog
        from inspector.tools.marks.places import places

        selected = self.timeline.selected
        self.host.open(MarksDialog(places(self.timeline), selected.node if selected else 0), self._chosen)

    def _chosen(self, node: int | None) -> None:
        if node is not None and node in self.timeline.tree.branches:
            self.controller.navigation.go_to(node)
            self.host.answer()


MARKS = Tool(
    "marks",
    "Marks",
    MarkActions,
    keys=(
        Key("previous_mark", *KEYS["previous_mark"], "Mark before", LOOK,
            "Look at the mark before: a branch point of the path, a bookmark, a note or a caption.",
            lambda own: own.walk(-1), Needs.DISTRIBUTION),
        Key("next_mark", *KEYS["next_mark"], "Next mark", LOOK, "Look at the next mark.",
            lambda own: own.walk(1), Needs.DISTRIBUTION),
        Key("marks", *KEYS["marks"], "Marks", LOOK,
            "List all marks: branch points of the path, and bookmarks, notes and captions of every branch; enter goes "
            "there.", MarkActions.open, Needs.DISTRIBUTION),
    ),
    help=(
        HelpSection(
            "In the list of marks",
            (
                ("`↑` `↓` `pgup` `pgdn`", "Go through them: those of the path first, then those of other branches."),
                ("`⏎`", "Go there, as a second click on it does; on another branch the KV cache moves."),
                ("`esc`", "Leave."),
            ),
        ),
    ),
)  # fmt: skip

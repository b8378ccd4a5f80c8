"""Two branches compared."""

from __future__ import annotations

from inspector.tools.compare.comparison import LEFT, RIGHT
from inspector.widgets.actions import Action, back, both, screen_table

ComparedPlace = tuple[int | None, int]
"""A token to go to: the end of its branch, None for the current path, and its slot."""
_WALK = "Walk through the tokens."
_PARTING = "Go to where they part, then to the first token; to the last one."
_SIDE = "Go to the other side."
COMPARE_SCREEN = screen_table(
    "While branches are compared",
    *both(("compare.up", "compare.down"), ("Up", "Down"), _WALK, lambda own, by: own.walk(by), hint="walk", worth=4,
          place=1),
    *both(("compare.page_up", "compare.page_down"), ("Page up", "Page down"), _WALK,
          lambda own, by: own.walk(by * own.table.page), hint="page", worth=1, place=6),
    Action("compare.parting", "Parting", _PARTING, lambda own: own.go_to_parting()),
    Action("compare.end", "End", _PARTING, lambda own: own.walk(len(own.table.lines))),
    *both(("compare.next_meeting", "compare.meeting_before"), ("Next meeting", "Previous meeting"),
          "Go to the next place where they meet or part, or to the previous one.",
          lambda own, by: own.go_to_meeting(by), by=(1, -1), hint="meetings", worth=3, place=5),
    Action("compare.largest", "Largest",
           "Where the tokens are the same, but were made differently: go to the largest difference of a probability "
           "(`◆`), then the next.",
           lambda own: own.go_to_largest(), hint=lambda own: "largest" if own.differing else "", worth=6, place=3),
    Action("compare.other_side", "Other side", _SIDE, lambda own: own.go_to_side(), hint="side", worth=5, place=2),
    *both(("compare.left", "compare.right"), ("Left", "Right"), _SIDE, lambda own, side: own.go_to_side(side),
          by=(LEFT, RIGHT)),
    *both(("compare.branch_before", "compare.next_branch"), ("Previous branch", "Next branch"),
          "Compare with the previous or the next branch.", lambda own, by: own.compare_with(by), hint="other branch",
          worth=7, place=4),
    Action("compare.go", "Go there", "Go to the token under the cursor, on its branch.", lambda own: own.go(),
           hint="go there", worth=6, place=3),
    back("compare.leave", "Go back."),
)  # fmt: skip

"""The keys of the list of segments."""

from __future__ import annotations

from inspector.widgets.actions import Action, back, both, screen_table

SEGMENTS_SCREEN = screen_table(
    "In the segments",
    *both(("segments.above", "segments.below"), ("Previous segment", "Next segment"),
          "Look at the first token of the previous or the next segment.",
          lambda own, by: own.go(by), hint="segment", worth=8),
    Action("segments.fold", "Fold", "Fold the segment in the text, or unfold it; copying leaves out folded segments.",
           lambda own: own.fold(), hint="fold", worth=7),
    Action("segments.wrong", "Where parsing failed",
           "Look at the token where parsing a tool call failed: the first one after this token.",
           lambda own: own.go_wrong(), hint=lambda own: "wrong token" if own.wrong else "", worth=6),
    back("segments.leave", "Go back; folded segments stay folded."),
    text="In a prompt the chat template decides which segment each token belongs to: the program fills it again with "
        "marks around every string. In a reply the marks of the model's family decide; a token that may belong to a "
        "mark is provisional, with `?` in the margin, until the next token decides. `{metric}` colours the text by "
        "segment; `{breakpoints}` makes runs stop where thinking ends or a tool call begins. The program parses tool "
        "calls as mlx_lm's server does.",
)  # fmt: skip

"""Marks and branch points as words and signs; all of them printable."""

from __future__ import annotations

from engine.protocol import Marked
from inspector.display import visible
from inspector.keys import key_for
from inspector.state.timeline import Timeline

STAR, NOTE, CAPTION, BRANCHES = "★", "✎", "❝", "├"


def written(mark: Marked) -> str:
    """Marks on one line: `★ ending A ✎ why this one? ❝ watch the entropy`."""
    parts = [STAR if mark.bookmarked else "", visible(mark.name)]
    parts += [f"{NOTE} {visible(mark.note)}" if mark.note else ""]
    parts += [f"{CAPTION} {visible(mark.caption)}" if mark.caption else ""]
    return " ".join(part for part in parts if part)


def signs(timeline: Timeline, slot: int) -> str:
    """What marks a token of the path in text and steps, a sign each: `★` bookmark, `✎` name or note, `❝` caption,
    `├` other branches in its place. Empty for most."""
    branches = BRANCHES if len(timeline.siblings(slot)) > 1 else ""
    mark = timeline.tree.marks.of.get(timeline.items[slot].node)
    if mark is None:
        return branches
    noted = NOTE if mark.name or mark.note else ""
    return STAR * mark.bookmarked + noted + CAPTION * bool(mark.caption) + branches


def explained(timeline: Timeline, slot: int) -> list[str]:
    """The signs of a token in words, a line each."""
    mark = timeline.tree.marks.at(timeline.items[slot].node)
    lines = [
        f"{STAR} bookmarked" if mark.bookmarked else "",
        f"{NOTE} {visible(mark.name)}" if mark.name else "",
    ]
    lines += [f"{NOTE} {visible(mark.note)}" if mark.note else ""]
    lines += [f"{CAPTION} {visible(mark.caption)}" if mark.caption else ""]
    branches = len(timeline.siblings(slot))
    lines += (
        [
            (
                f"{BRANCHES} one of {branches} branches here: {key_for('previous_branch')} and "
                f"{key_for('next_branch')} go to the others"
            )
        ]
        if branches > 1
        else []
    )
    return [line for line in lines if line]

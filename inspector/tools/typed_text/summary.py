"""What the model thought of a text that the user typed, once all of its tokens were taken."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Step
from inspector import scales
from inspector.display import quoted, token_label, truncate
from inspector.keys import key_for

LABEL = 20
"""Cells of a token's text at most."""


def typed_summary(steps: Sequence[Step], stopped: bool = False) -> str:
    """One sentence on the tokens that were typed; printable.

    Args:
        steps: One for each token.
        stopped: Whether the user stopped it before its end.
    """
    if not steps:
        return (
            f"Stopped: none of it was taken. What was typed is kept: press {key_for('own_text')}"
            if stopped
            else ""
        )
    lead = "Stopped: " if stopped else ""
    bits = scales.bits(sum(step.surprisal_bits for step in steps))
    least = max(steps, key=lambda step: step.surprisal_bits)
    if len(steps) == 1:
        return f"{lead}1 token typed: {_thought(least)}, {bits} bits"
    return f"{lead}{len(steps):,} tokens typed: {bits} bits in all; the least expected was {_thought(least)}"


def _thought(step: Step) -> str:
    label = truncate(token_label(step.text, step.raw), LABEL)
    return f"{quoted(label)} ({scales.tiny(step.prob)}, rank {step.rank:,})"

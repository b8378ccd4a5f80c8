"""The checks of a view of the model's inside, in words."""

from __future__ import annotations

from rich.cells import cell_len

from engine.records import CaptureFacts
from inspector.display import visible
from inspector.scales import milliseconds

CHECKS = {
    "forward": "logits unchanged", "attention": "attention", "rows": "rows sum to 1", "lens": "lens = logits",
    "parts": "parts sum to logits", "session": "as the session computed",
    "experts": "weights make the output", "keys": "same keys", "single": "as one alone",
    "same": "nothing before the difference",
    "restored": "all restored at the end",
}  # fmt: skip
"""What each check says."""


def checks_words(facts: CaptureFacts) -> str:
    """Each check with its error; printable."""
    return visible(
        ", ".join(f"{CHECKS.get(check.name, check.name)} ({check.error:.1g})" for check in facts.checks)
    )


def checked(facts: CaptureFacts, width: int) -> str:
    """The checks of a view, and what it cost, in the longest words that there is room for.

    Args:
        facts: Of the view.
        width: Cells of the line.
    """
    times = facts.ms / facts.step_ms if facts.step_ms else 0.0
    state = "Checked" if facts.failed is None else "Not shown"
    cost = milliseconds(facts.ms)
    short = visible(", ".join(f"{check.name} {check.error:.1g}" for check in facts.checks))
    note = f" · {visible(facts.note)}" if facts.note else ""
    forms = (
        f"{state} · {cost}, {times:.1f} plain steps · {checks_words(facts)}{note}",
        f"{state} · {cost}, {times:.1f} plain steps · {short}{note}",
        f"{state} · {cost}, {times:.1f} plain steps · {short}",
        f"{state} · {cost} · {short}",
    )
    return next((form for form in forms if cell_len(form) <= width), forms[-1])

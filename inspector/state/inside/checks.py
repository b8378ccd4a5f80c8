"""The checks of a view of the model's inside, in words."""

from __future__ import annotations

from engine.protocol import CaptureFacts
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


def checked(facts: CaptureFacts) -> str:
    """The checks of a view, and what it cost."""
    times = facts.ms / facts.step_ms if facts.step_ms else 0.0
    state = "Checked" if facts.failed is None else "Not shown"
    cost = f"{milliseconds(facts.ms)}, {times:.1f} plain steps"
    note = f" · {visible(facts.note)}" if facts.note else ""
    return f"{state} · {cost} · {checks_words(facts)}{note}"

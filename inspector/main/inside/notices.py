"""What the screens that look inside say: checks and costs, and why there is nothing to show."""

from __future__ import annotations

from rich.style import Style

from engine.records import CaptureFacts, Check, Measuring
from inspector.display import visible
from inspector.scales import milliseconds
from inspector.widgets.canvas import Canvas
from inspector.widgets.charts import bar

CHECKS = {
    "forward": "logits unchanged", "attention": "attention", "rows": "rows sum to 1", "lens": "lens = logits",
    "parts": "parts sum to logits", "session": "as the session computed",
    "experts": "weights make the output", "keys": "same keys",
}  # fmt: skip
"""What each check says."""
Notice = list[tuple[str, Style]]


def checked(facts: CaptureFacts) -> str:
    """The checks of a view, and what it cost."""
    checks = ", ".join(f"{CHECKS.get(check.name, check.name)} ({check.error:.1g})" for check in facts.checks)
    times = facts.ms / facts.step_ms if facts.step_ms else 0.0
    state = "Checked" if facts.failed is None else "Not shown"
    cost = f"{milliseconds(facts.ms)}, {times:.1f} plain steps"
    return f"{state}: {visible(checks)} · {cost}" + (f" · {visible(facts.note)}" if facts.note else "")


def under_way(now: Measuring | None) -> str:
    """How far an answer is."""
    if now is None:
        return "Computing"
    filled = bar(now.done / now.total if now.total else 0.0, 16).replace(" ", "·")
    return f"{filled} {visible(now.detail)} {now.done}/{now.total}. esc stops it"


def refused(on: Canvas, failed: Check, family: str) -> Notice:
    """Which check took a view away, by how much, for which architecture."""
    where = f" ({visible(failed.where)})" if failed.where else ""
    name = CHECKS.get(failed.name, failed.name)
    return [
        (f"The check “{name}” failed for the architecture {visible(family)}{where}:", on.ink("bad")),
        (f"off by {failed.error:.2g}, where {failed.bound:.2g} is allowed.", on.ink("bad")),
        ("So this view is not shown. The others may hold: press tab.", on.ink("muted")),
    ]


def nothing_before(on: Canvas) -> Notice:
    """The first token was not chosen by the model."""
    return [
        ("Nothing went through the model before the first token.", on.rich_style),
        ("Press → for the next one.", on.ink("muted")),
    ]


def waiting(on: Canvas, recorded: bool) -> Notice:
    """An answer is on its way; or there is none in a recording."""
    if recorded:
        return [
            ("This view of this token was not recorded.", on.rich_style),
            ("Press esc, then G: the session goes on live, and can be looked into.", on.ink("muted")),
        ]
    return [("The token runs again, on a copy of the KV cache.", on.rich_style)]

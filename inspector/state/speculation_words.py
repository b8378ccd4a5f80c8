"""Speculative decoding in words and figures, for the screen, for `inspector generate` and for documents."""

from __future__ import annotations

from engine.protocol import SpeculationVerified
from inspector.display import visible
from inspector.scales import milliseconds
from inspector.state.speculation import SpeculationTotals

EVEN = 0.03
"""A difference to plain steps that is none: two runs of the same steps differ by as much."""
RULES = (
    ("position draw", "position_draw", "in force: the draw of the position, for the draft and the model"),
    ("rejection", "rejection", "min(1, p/q), else the residual (Leviathan 2023)"),
    ("match", "match", "two draws of their own, equal or not (mlx-lm)"),
)
"""Name, field and meaning of each rule."""


def share(value: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * value:.1f} %"


def verdict(totals: SpeculationTotals) -> str:
    """Whether it paid, and why not, in a sentence; empty while nothing can be said."""
    slower = totals.slower
    if not slower or totals.plain_ms is None:
        return ""
    if abs(slower - 1) < EVEN:
        paid = "As fast as plain steps here"
    elif slower > 1:
        paid = (
            f"{slower:.1f} times slower than plain steps here"
            if slower >= 1.05
            else "Slower than plain steps here"
        )
    else:
        paid = f"{1 / slower:.1f} times faster than plain steps here"
    return f"{paid}: {_why(totals, totals.plain_ms)}."


def _why(totals: SpeculationTotals, plain_ms: float) -> str:
    """What a round costs in plain steps, and what it adds: the first by the second is how many times slower it is."""
    round_, forward, draft = (ms / plain_ms for ms in (totals.round_ms, totals.verify_ms, totals.draft_ms))
    drafting = f", drafting {draft:.2f}" if draft > 0.1 else ""
    return (
        f"a round takes {round_:.2f} steps (its forward {forward:.2f}{drafting}) for "
        f"{totals.tokens_a_forward:.2f} tokens"
    )


def figures(totals: SpeculationTotals) -> list[tuple[str, str]]:
    """What the rounds came to, as names and values."""
    places = [f"{accepted}/{looked}" for accepted, looked in zip(totals.accepted, totals.looked, strict=True)]
    rates = totals.acceptance
    plain = (
        "not measured yet: a run or a comparison does it"
        if totals.plain_ms is None
        else milliseconds(totals.plain_ms)
    )
    found = [
        ("rounds", f"{totals.rounds}, {totals.tokens_a_forward:.2f} tokens a forward"),
        ("accepted", "no draft yet" if rates is None else f"{share(rates)}, by place {', '.join(places)}"),
        (
            "a round",
            f"{milliseconds(totals.round_ms)}: draft {milliseconds(totals.draft_ms)}, verification "
            f"{milliseconds(totals.verify_ms)}, taking {milliseconds(totals.take_ms)}",
        ),
        ("a token", f"{milliseconds(totals.token_ms)}, as a plain step {plain}"),
    ]
    if (saved := totals.saved_ms) is not None:
        found.append(("saved" if saved >= 0 else "lost", milliseconds(abs(saved))))
    return found


def rules(totals: SpeculationTotals) -> list[tuple[str, str, str]]:
    """The rules with the acceptance that each has in expectation over the drafts looked at, and what each is."""
    rates = totals.rates
    return [
        (name, "" if rates is None else share(getattr(rates, field)), what) for name, field, what in RULES
    ]


def proof(found: SpeculationVerified) -> str:
    """What the comparison with plain steps came to, in a sentence."""
    tokens = f"{found.tokens} token" + "s" * (found.tokens != 1)
    logits = f"logits differ by {found.difference:.2g} at most"
    if found.differs is None:
        chosen = f" ({found.chosen} of them were chosen by hand)" if found.chosen else ""
        return f"Equal to plain steps: {tokens}{chosen}; {logits}."
    return (
        f"Differs from plain steps at token {found.tokens}: they take “{visible(found.plain_text)}” "
        f"(id {found.plain}); {logits}."
    )

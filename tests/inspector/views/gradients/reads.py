"""Gradients made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import CaptureFacts, Check, GradientsRead, GradientToken, ReadGradients, floats

FACTS = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("derivative", 1e-5, 1e-2), Check("complete", 2e-3, 5e-2)),
    90.0,
    3.0,
    "llama",
)
VALUES = (0.5, -1.5, 3.0)
"""Of the first tokens of the path; the others have none."""


def read(
    asked: ReadGradients,
    texts: Sequence[str] = (" toys", "[odd]"),
    values: Sequence[float] = VALUES,
    facts: CaptureFacts = FACTS,
    chooses: bool = False,
    notes: tuple[str, ...] = (),
) -> GradientsRead:
    """The answer to a question: two tenths of a percent are missing."""
    integrated, ids = asked.method == "integrated", [asked.token or 7, asked.other]
    tokens = tuple(
        GradientToken(id, text, 0.5, 2.0) for id, text in zip(ids, texts, strict=False) if id is not None
    )
    tried = ((asked.steps, 0.03), (3 * asked.steps, -0.002)) if integrated else ()
    return GradientsRead(
        asked.node, tokens, asked.method, asked.baseline, "Tom" * (asked.baseline == "first"),
        asked.held_experts, chooses, 0,
        floats(values, (len(values),)), sum(values) + 1.0, 1.0 if integrated else 0.0, tried, (), 0, 16, 100, notes,
        facts,
    )  # fmt: skip

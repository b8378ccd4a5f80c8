"""Directions and sweeps made by hand."""

from __future__ import annotations

from engine.protocol import (
    STRENGTHS,
    CaptureFacts,
    Check,
    Direction,
    DirectionMade,
    MakeDirection,
    SteeredStrength,
    StrengthsSwept,
    SweepStrengths,
    floats,
)

FACTS = CaptureFacts((Check("forward", 0.0, 0.0), Check("zero", 0.0, 0.0), Check("single", 0.0, 1e-5, "33 rows")), 9.0,
                     3.0, "llama")  # fmt: skip
FAILED = CaptureFacts((Check("zero", 0.5, 0.0),), 9.0, 3.0, "llama")
UP = Direction("up-down", 1, floats([0.5, -1.25, 3.0], (3,)), "fake", "")


def made(asked: MakeDirection, facts: CaptureFacts = FACTS) -> DirectionMade:
    """Of whatever texts."""
    of = Direction(asked.name, asked.layer, UP.vector, "fake", "")
    return DirectionMade(of, asked.toward, asked.away, asked.nodes, 3.29, 10.0, 12, facts)


def strengths(asked: SweepStrengths, facts: CaptureFacts = FACTS) -> StrengthsSwept:
    """The logits change by as much as the strength; the band is half as wide."""
    found = tuple(
        SteeredStrength(each, each * each / 8, each * each / 40, each * each / 16, each, -abs(each) / 2,
                        abs(each) / 2, 0.25, 0.5, 9, "[odd]", 0.5)
        for each in asked.strengths
    )  # fmt: skip
    return StrengthsSwept(
        asked.node, asked.direction, asked.layer, asked.scope, asked.begin, 1, asked.token or 7, " end",
        asked.other or 9, "[odd]", -1.5, 0.25, 0.5, 3.29, 10.0, found, 32, 0, 33, 400, "", facts,
    )  # fmt: skip


assert 2.0 in STRENGTHS

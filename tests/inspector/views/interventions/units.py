"""Sweeps, effects and patches made by hand: two layers with two heads, an attention and an MLP."""

from __future__ import annotations

from collections.abc import Iterator

from engine.protocol import (
    ActivationsPatched,
    Candidate,
    CandidateChange,
    CaptureFacts,
    Check,
    HeadsSwept,
    Intervene,
    Intervened,
    Intervention,
    PairPatched,
    PairsPatched,
    PatchActivations,
    PatchColumn,
    PatchKind,
    PatchPair,
    PlaceShares,
    SweptUnit,
    floats,
)

FACTS = CaptureFacts((Check("forward", 0.0, 0.0), Check("single", 0.0, 1e-5, "8 rows")), 9.0, 3.0, "llama")
FAILED = CaptureFacts((Check("single", 0.5, 1e-5, "8 rows"),), 9.0, 3.0, "llama")
STRONGEST = Intervention("head", 1, 0)


def listed(layers: int = 2, heads: int = 2) -> Iterator[Intervention]:
    """The units of a model."""
    for layer in range(layers):
        yield from (Intervention("head", layer, head) for head in range(heads))
        yield Intervention("attention", layer)
        yield Intervention("mlp", layer)
        yield Intervention("layer", layer)


def sweep(node: int, facts: CaptureFacts = FACTS, layers: int = 2, heads: int = 2) -> HeadsSwept:
    """L2 h1 takes the token its lead; L1 h2 speaks against it."""
    units = []
    for unit in listed(layers, heads):
        kl, logit = {STRONGEST: (1.25, -2.5), Intervention("head", 0, 1): (0.3, 0.75)}.get(
            unit, (0.001, -0.01)
        )
        units.append(SweptUnit(unit, kl, logit, None, 0.2, 9, "[odd]", 0.5))
    return HeadsSwept(
        node, 7, " end", 0.8, 12.0, None, "", None, 7, " end", tuple(units), (), 8, 1024, 14, "", facts
    )


def candidate(id: int, text: str, prob: float, rank: int) -> Candidate:
    return Candidate(id, text, text.encode(), False, -1.0, prob, rank, prob, None)


def effect(asked: Intervene, facts: CaptureFacts = FACTS) -> Intervened:
    """` end` falls, `[odd]` rises."""
    changes = (
        CandidateChange(candidate(7, " end", 0.8, 1), candidate(7, " end", 0.125, 3), 12.0, 9.5),
        CandidateChange(candidate(9, "[odd]", 0.1, 2), candidate(9, "[odd]", 0.625, 1), 10.0, 11.0),
    )
    return Intervened(
        asked.node,
        asked.interventions,
        asked.scope,
        changes,
        1.25,
        2.5,
        7,
        " end",
        1.5,
        2.25,
        0.0,
        4,
        "",
        facts,
        begin=asked.begin,
    )


def patched(asked: PatchActivations, columns: int = 3, facts: CaptureFacts = FACTS) -> ActivationsPatched:
    """Of two layers and some positions, all of it at the last place, and a quarter the other way at one."""
    shares = [0.0] * (2 * columns)
    shares[1], shares[-1], shares[columns] = 0.75, 1.0, -0.25
    places = tuple(
        PatchColumn(at, at + 1, at, f"w{at}", at + 50, at + at % 2, "[src]") for at in range(columns)
    )
    return ActivationsPatched(
        asked.node, asked.source, asked.part, asked.token, "[tok]", asked.other, " oth", -1.5, 2.5, 1, places,
        (0, 1), floats(shares, (2, columns)), 3, 40, "", facts,
    )  # fmt: skip


PAIR = PatchPair("a [b]", "c", " x", " y")


def over_pairs(part: PatchKind = "layer") -> PairsPatched:
    """Of two pairs, one of which came to nothing."""
    told = PairPatched(PAIR, " x", "[/y]", -1.0, 2.0, 3, 3)
    left = PairPatched(PatchPair("a", "a"), "", "", 0.0, 0.0, 0, 0, "Both [paths] have the same tokens.")
    shares = (
        PlaceShares("last changed", 1, (0.75, 0.25), (0.0, 0.5)),
        PlaceShares("last", 1, (0.0, 1.0), (0.0, 0.0)),
    )
    return PairsPatched(part, (told, left), (0, 1), shares, FACTS)

"""Rounds of speculation made by hand."""

from __future__ import annotations

from engine.protocol import AcceptanceRates, DraftRound, DraftToken, RoundStage, TakenInstead
from engine.settings import SpeculationSettings

RATES = AcceptanceRates(0.5, 0.8, 0.4)


def draft_round(
    node: int, end: int, fates: str = "ARU", stage: RoundStage = "taken", ms: float = 20.0
) -> DraftRound:
    """A round whose drafts are accepted, refused, unseen or only drafted, by the first letter of their fate."""
    drafts = tuple(
        DraftToken(40 + place, f" w{place}", b" w", "accepted", 0.5, 0.25, 2, RATES)
        if fate == "A"
        else DraftToken(40 + place, " [b]ox", b" [b]ox", "refused", 0.4, 0.1, 3, RATES)
        if fate == "R"
        else DraftToken(40 + place, " and", b" and", "unseen" if fate == "U" else "drafted", 0.3)
        for place, fate in enumerate(fates)
    )
    instead = TakenInstead(7, " dog", b" dog", 0.2, 0.6) if "R" in fates else None
    taken = 1 + fates.count("A") if stage == "taken" else 0
    return DraftRound(
        node=node, end=end, stage=stage, settings=SpeculationSettings("self-4bit"), first=5, first_text=" a",
        drafts=drafts, instead=instead, matched=0, taken=taken, verified=1 + len(fates), draft_ms=ms / 2,
        verify_ms=ms / 4, take_ms=ms / 4, ms=ms, rates_ms=0.1, stalled_ms=0.0,
    )  # fmt: skip

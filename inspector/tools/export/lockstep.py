"""What a second model made of the same tokens: figures, the tokens that the two part over, numbers of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import Candidate, LockstepSpan
from inspector.display import token_label, visible
from inspector.scales import bits, count, percent
from inspector.state.divergence import Divergences, mean
from inspector.state.lockstep import LockstepSoFar
from inspector.tools.export.element import element, row, table
from inspector.tools.export.figures import Figure
from inspector.tools.export.numbers import millionths, number
from inspector.tools.export.recording import Recording

CANDIDATES = 6
"""Of each model at a token."""
LISTED = 12
"""Tokens that the two part over most."""


def spans(recording: Recording) -> dict[int, LockstepSpan]:
    """What was read of the exported path, by the last node of each span; nothing without a second model."""
    known = recording.timeline.of(LockstepSoFar)
    if known.opened is None:
        return {}
    return {span.node: span for span in known.along(recording.items) if span is not None}


def column(recording: Recording, places: Mapping[int, int]) -> dict[str, Any]:
    """The numbers of each token, by its row; empty without a second model.

    Of each: KL in bits, both probabilities and ranks, and both models' candidates, each a label and a probability.
    """
    found = {
        places[node]: [
            number(span.kl_bits, 4), _share(span.logprob, span), _share(span.other_logprob, span), span.rank,
            span.other_rank, _listed(span.candidates), _listed(span.other_candidates),
        ]
        for node, span in spans(recording).items()
        if node in places
    }  # fmt: skip
    if not found:
        return {}
    return {"names": list(_names(recording)), "rows": found}


def _names(recording: Recording) -> tuple[str, str]:
    facts, opened = recording.timeline.facts, recording.timeline.of(LockstepSoFar).opened
    return visible(facts.name) if facts else "first model", visible(
        opened.title
    ) if opened else "second model"


def _share(logprob: float | None, span: LockstepSpan) -> float | int | None:
    """The probability that a model gives the span's tokens together."""
    return None if logprob is None or not span.whole else millionths(math.exp(min(0.0, logprob)))


def _listed(candidates: tuple[Candidate, ...]) -> list[list[Any]]:
    return [[token_label(each.text, each.raw), millionths(each.prob)] for each in candidates[:CANDIDATES]]


def figures(recording: Recording) -> Iterator[Figure]:
    """What the two came to over the path."""
    found = spans(recording)
    if not found:
        return
    first, second = _names(recording)
    yield "models", f"{first} (P) and {second} (Q)"
    known = Divergences()
    known.add(found.values())
    if known.kl:
        together = mean(known.kl)
        yield "mean KL(P||Q)", f"{bits(together.value)} bits over {count(len(known.kl))} tokens"
    if known.tops:
        yield "same top token", f"{100 * known.same_top.value:.1f} %"
    if all(known.scored):
        yield "perplexity", " and ".join(f"{each.value:.2f}" for each in known.perplexities)


def section(recording: Recording) -> Element | None:
    """The figures and the tokens that the two part over most, for print and where no script runs."""
    pairs = list(figures(recording))
    if not pairs:
        return None
    listed = sorted(spans(recording).values(), key=_apart, reverse=True)[:LISTED]
    rows = [
        row(token_label(span.text, span.raw), "" if span.kl_bits is None else bits(span.kl_bits),
            _percent(span.logprob, span), _percent(span.other_logprob, span), _first(span.candidates),
            _first(span.other_candidates))
        for span in listed
        if _apart(span) > 0
    ]  # fmt: skip
    terms = (element("div", element("dt", name), element("dd", value)) for name, value in pairs)
    head = ("token", "KL bits", "P", "Q", "P has first", "Q has first")
    return element(
        "article", element("h3", "Beside a second model"), element("dl", *terms, class_="figures"),
        table("Where the two part most", head, rows, class_="figured") if rows else None, class_="looked",
    )  # fmt: skip


def _apart(span: LockstepSpan) -> float:
    """How far the two are apart at a span: the divergence, or else the change of the logprob."""
    for value in (span.kl_bits, span.logprob_change):
        if value is not None and not math.isnan(value):
            return abs(value)
    return 0.0


def _percent(logprob: float | None, span: LockstepSpan) -> str:
    return "" if logprob is None or not span.whole else percent(math.exp(min(0.0, logprob)))


def _first(candidates: tuple[Candidate, ...]) -> str:
    return (
        f"{token_label(candidates[0].text, candidates[0].raw)} {percent(candidates[0].prob)}"
        if candidates
        else ""
    )

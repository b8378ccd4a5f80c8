"""Both models' figures and candidates over one text, for an export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from engine.protocol import Candidate, LockstepSpan
from inspector.blocks.page import element, likeliest, millionths, number, row, table
from inspector.display import token_label, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import bits, count, left_over, percent
from inspector.state.second_model import Divergences, SecondModelSoFar, mean

CANDIDATES = 6
"""Candidates of each model at a token."""
LISTED = 12
"""Maximum number of tokens listed at which the two models differ most."""


def _spans(of: Exported) -> dict[int, LockstepSpan]:
    """The spans of the exported path, by their last nodes; empty if none were read."""
    found = of.timeline.of(SecondModelSoFar).along(of.items)
    return {span.node: span for span in found if span is not None}


def _column(of: Exported) -> Mapping[str, Any]:
    """The numbers of each token, by its row; empty without a second model.

    These are KL in bits, both probabilities and ranks, and both models' candidates, each a label and a probability.
    """
    found = {
        of.places[node]: [
            number(span.kl_bits, 4), *(None if prob is None else millionths(prob) for prob in _probs(span)),
            span.rank, span.other_rank, _listed(span.candidates), _listed(span.other_candidates),
        ]
        for node, span in _spans(of).items()
        if node in of.places
    }  # fmt: skip
    return {"second": {"names": list(_names(of)), "rows": found}} if found else {}


def _names(of: Exported) -> tuple[str, str]:
    facts, opened = of.timeline.facts, of.timeline.of(SecondModelSoFar).described
    first = visible(facts.name) if facts else "first model"
    return first, visible(opened.title) if opened else "second model"


def _probs(span: LockstepSpan) -> list[float | None]:
    """The probability that each model gives the span's tokens together."""
    both = span.logprob, span.other_logprob
    return [math.exp(min(0.0, each)) if each is not None and span.whole else None for each in both]


def _listed(candidates: tuple[Candidate, ...]) -> list[list[Any]]:
    if not (first := candidates[:CANDIDATES]):
        return []
    listed = [[token_label(each.text, each.raw), millionths(each.prob)] for each in first]
    return [*listed, ["others", millionths(left_over(each.prob for each in first))]]


def _figures(of: Exported) -> Iterator[tuple[str, str]]:
    first, second = _names(of)
    yield "models", f"{first} (A) and {second} (B)"
    known = Divergences(_spans(of).values())
    if known.kl:
        tokens = count(len(known.kl))
        yield "mean KL(A||B)", f"{bits(mean(known.kl).value)} bits over {tokens} tokens"
    if known.tops:
        yield "same top token", f"{100 * known.same_top.value:.1f} %"
    if all(known.scored):
        yield "perplexity", " and ".join(f"{each.value:.2f}" for each in known.perplexities[::-1])


def _section(of: Exported) -> Iterator[Element]:
    """The figures, and the tokens at which the two models differ most, for print and for pages without scripts."""
    listed = sorted(_spans(of).values(), key=_apart, reverse=True)[:LISTED]
    rows = [
        row(token_label(span.text, span.raw), "" if span.kl_bits is None else bits(span.kl_bits),
            *("" if prob is None else percent(prob) for prob in _probs(span)), likeliest(span.candidates),
            likeliest(span.other_candidates))
        for span in listed
        if _apart(span) > 0
    ]  # fmt: skip
    terms = (element("div", element("dt", name), element("dd", value)) for name, value in _figures(of))
    yield element("dl", *terms, class_="figures")
    head = ("token", "KL bits", "A", "B", "A has first", "B has first")
    if rows:
        yield table("Where the two differ most", head, rows, class_="figured")


def _apart(span: LockstepSpan) -> float:
    """The distance of the two models at a span: the KL divergence, or else the change of the logprob."""
    for value in (span.kl_bits, span.logprob_change):
        if value is not None and not math.isnan(value):
            return abs(value)
    return 0.0


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    if _spans(of):
        yield Exhibit("beside", "Second model", partial(_section, of))


SECOND_MODEL_PART = ExportPart("second model", _exhibits, _column)

"""Activation patching over a set of pairs of texts: the mean share of each layer at each class of positions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import get_args

from msgspec.structs import replace

from engine.errors import Cancelled, EngineError, PromptError, StepError
from engine.inside.capture import together
from engine.inside.patching import patch_activations
from engine.model.load import Loaded
from engine.protocol import (
    MOST_PAIRS,
    PAIR_TOKENS,
    ActivationsPatched,
    Measuring,
    PairPatched,
    PairsPatched,
    PatchKind,
    PatchPair,
    PatchPairs,
    PatchPlace,
    PlaceShares,
)
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.session import Session
from engine.settings import Settings
from engine.task import Stopped, never

LIKELY = 5
"""Ranks, after either text, of the tokens that are followed where none are named."""
PLACES: tuple[PatchPlace, ...] = get_args(PatchPlace)


def patch_pairs(
    loaded: Loaded, pairs: Sequence[PatchPair], part: PatchKind = "layer", stopped: Stopped = never
) -> Iterator[Measuring | PairsPatched]:
    """Patch each pair in a session of its own, and take the means.

    Args:
        loaded: The model.
        pairs: Texts; one that can't be patched is left out, and the reason kept.
        part: What is put in.
        stopped: Polled before each chunk and forward.

    Yields:
        The progress, then the result.

    Raises:
        StepError: There are too many pairs, or none that could be patched.
        Cancelled: `stopped` returned True.
    """
    if not 1 <= len(pairs) <= MOST_PAIRS:
        raise StepError(f"{len(pairs):,} pairs were given.", f"Give 1 to {MOST_PAIRS}.")
    begun = time.perf_counter()
    told: list[PairPatched] = []
    found: list[ActivationsPatched] = []
    for place, pair in enumerate(pairs):
        yield (now := Measuring(PatchPairs.kind, place, len(pairs), f"pair {place + 1}"))
        try:
            for last in _patched(loaded, pair, part, stopped):
                if isinstance(last, Measuring):
                    yield replace(now, detail=f"{now.detail}, {last.detail}")
                else:
                    found.append(last[0])
                    told.append(last[1])
        except Cancelled:
            raise
        except EngineError as error:
            told.append(PairPatched(pair, "", "", 0.0, 0.0, 0, 0, str(error)))
    if not found:
        raise StepError(f"No pair could be patched. The first: {told[0].failure}", "Give other texts.")
    layers = found[0].layers
    every = (_over(place, layers, found) for place in PLACES)
    facts = replace(
        together([each.facts for each in found]), ms=(time.perf_counter() - begun) * 1000, note=""
    )
    yield PairsPatched(part, tuple(told), layers, tuple(each for each in every if each.pairs), facts)


def _patched(
    loaded: Loaded, pair: PatchPair, part: PatchKind, stopped: Stopped
) -> Iterator[Measuring | tuple[ActivationsPatched, PairPatched]]:
    """One pair, and what is told of it, after the progress."""
    session = Session(loaded, Settings())
    node, own, tokens = _read(session, pair.text, stopped)
    source, given, source_tokens = _read(session, pair.source, stopped)
    if bool(pair.token) != bool(pair.other):
        raise PromptError("Only one of the two answers was given.", "Give both, or none.")
    token, other = (
        (_single(session, pair.token), _single(session, pair.other)) if pair.token else _telling(own, given)
    )
    for last in patch_activations(session, node, source, token, other, part, stopped):
        if isinstance(last, Measuring):
            yield last
        else:
            answers, differences = (last.text, last.other_text), (last.difference, last.source_difference)
            yield last, PairPatched(pair, *answers, *differences, tokens, source_tokens)


def _read(session: Session, text: str, stopped: Stopped) -> tuple[int, Row, int]:
    """The node of a text's last token, the log-probabilities after it, and its tokens."""
    ids = session.tokens.encode(text)
    if not 1 <= len(ids) <= PAIR_TOKENS:
        raise PromptError(f"A text has {len(ids):,} tokens.", f"Give one of 1 to {PAIR_TOKENS}.")
    for _ in session.prefill(text, ids, echo=False, stopped=stopped):
        pass
    return session.node, checked_logprobs(session.logits), len(ids)


def _single(session: Session, text: str) -> int:
    """The id of a text that is one token."""
    ids = session.tokens.encode(text, bare=True)
    if len(ids) != 1:
        raise PromptError(
            f"{text!r} is {len(ids)} tokens, not one.", "Give an answer that is a single token."
        )
    return ids[0]


def _telling(own: Row, given: Row) -> tuple[int, int]:
    """Of the likeliest tokens the one whose probability the source raises most, and the one that it lowers most."""
    likely = {int(id) for row in (own, given) for id in row.argsort()[-LIKELY:]}
    gains = {id: float(given[id]) - float(own[id]) for id in sorted(likely)}
    return max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)


# ---- classes of positions -----------------------------------------------------------------------


def places_of(patched: ActivationsPatched) -> dict[PatchPlace, list[int]]:
    """The columns of each class of positions; those before the first difference are of none."""
    columns = [at for at, column in enumerate(patched.columns) if column.position >= patched.first]
    last = columns[-1:]
    changed = [at for at in columns[:-1] if patched.columns[at].id != patched.columns[at].source_id]
    same = [at for at in columns[:-1] if at not in changed]
    return {"changed": changed[:-1], "last changed": changed[-1:], "after": same, "last": last}


def _over(place: PatchPlace, layers: Sequence[int], found: Sequence[ActivationsPatched]) -> PlaceShares:
    """The means of one class over all that have it."""
    shares = [
        [fmean(each.shares.row(row)[at] for at in columns) for row in range(len(layers))]
        for each in found
        if (columns := places_of(each)[place])
    ]
    by_layer = list(zip(*shares, strict=True))
    spreads = tuple(stdev(each) if len(each) > 1 else 0.0 for each in by_layer)
    return PlaceShares(place, len(shares), tuple(map(fmean, by_layer)), spreads)

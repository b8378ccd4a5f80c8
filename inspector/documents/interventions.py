"""Interventions: the candidates under them, the units that matter most when switched off alone, and a direction."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.protocol import CandidateChange, DirectionMade, HeadsSwept, Intervened, SweptUnit
from inspector.blocks.blocks import Block, Column, Table, TableRow, number, sentence, sentences
from inspector.display import token_label, visible
from inspector.scales import bits, count, left_over, percent, signed
from inspector.state.inside import interventions_words, sides, steered_words

STRONGEST = 12
"""Units in a table."""


def heading(tried: Intervened) -> str:
    """The interventions."""
    return f"With {interventions_words(tried.interventions)}"


def candidates(tried: Intervened) -> Iterator[Block]:
    """The candidates as the model has them, and under the interventions."""
    scope = steered_words(tried.scope, tried.begin)
    entropy = f"from {bits(tried.entropy_before_bits)} to {bits(tried.entropy_after_bits)} bits"
    yield sentence(
        f"{scope[0].upper()}{scope[1:]}. KL {bits(tried.kl_bits)} bits; the model's entropy goes {entropy}."
    )
    most = f"{tried.largest_change:.2f} ({token_label(tried.largest_change_text)})"
    yield sentence(f"Largest change of a logit: {most}.")
    before = left_over(each.before.prob for each in tried.candidates)
    after = left_over(each.after.prob for each in tried.candidates)
    others = TableRow(("others", percent(before), percent(after)), "muted")
    ranks = number("rank"), number("rank then")
    columns = Column("candidate"), *map(number, sides(tried.interventions)), number("logit"), *ranks
    yield Table(columns, [*map(_candidate, tried.candidates), others])
    yield from sentences([tried.note], "")


def _candidate(each: CandidateChange) -> TableRow:
    before, after = each.before, each.after
    label, ranks = token_label(before.text, before.raw), (count(before.rank), count(after.rank))
    return TableRow((label, percent(before.prob), percent(after.prob), signed(each.logit_change), *ranks))


def strongest(swept: HeadsSwept) -> Iterator[Block]:
    """The units that move the probabilities most when they are switched off alone."""
    units = [each for each in swept.by_kl if math.isfinite(each.kl_bits)]
    name = token_label(swept.text)
    scope = " in the whole context" if swept.scope == "context" else ""
    shown = f"the strongest {min(STRONGEST, len(units))} of {count(len(units))} units{scope}"
    yield sentence(f"Followed: {name} ({percent(swept.prob)}). Listed are {shown}.")
    columns = (
        Column("off"),
        number("KL bits"),
        number(f"logit of {name}"),
        number("probability"),
        Column("then leads"),
    )
    yield Table(columns, [*map(_unit, units[:STRONGEST])])
    yield from sentences(map(visible, swept.missing))


def _unit(each: SweptUnit) -> TableRow:
    leads = f"{token_label(each.top_text)} {percent(each.top_prob)}"
    label = visible(each.intervention.label)
    return TableRow((label, bits(each.kl_bits), signed(each.logit_change), percent(each.prob), leads))


def direction(read: DirectionMade) -> Iterator[Block]:
    """A direction: its texts and its length."""
    made = read.direction
    stream = f"the stream after L{made.layer + 1} at the last token"
    texts = f"the mean of {len(read.toward)} texts less that of {len(read.away)}"
    yield sentence(f"{visible(made.label)} #{made.digest}: {stream}, {texts}")
    share = read.norm / read.stream_norm if read.stream_norm else 0
    yield sentence(f"length {read.norm:.2f}, {share:.2f} of the streams'")

"""Interventions: the candidates under them, the strongest units, activation patching, and a direction."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.protocol import (
    ActivationsPatched,
    CandidateChange,
    DirectionMade,
    HeadsSwept,
    Intervened,
    PairPatched,
    PairsPatched,
    PatchColumn,
    SweptUnit,
)
from inspector.blocks.blocks import Block, Column, Table, TableRow, number, sentence, sentences
from inspector.display import quoted, token_label, truncate, visible
from inspector.scales import bits, count, left_over, percent, signed
from inspector.state.inside import interventions_words, sides, steered_words
from inspector.state.patching import alignment_words

STRONGEST = 12
"""Units, or places, in a table."""
PAIR = 60
"""Cells of the text of a pair."""


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


def patched(read: ActivationsPatched) -> Iterator[Block]:
    """The places that go most of the way to the source."""
    cells = [
        (share, layer, column)
        for place, layer in enumerate(read.layers)
        for column, share in zip(read.columns, read.shares.row(place), strict=False)
        if math.isfinite(share)
    ]
    listed = sorted(cells, key=lambda cell: -abs(cell[0]))[:STRONGEST]
    token, other = (quoted(token_label(text)) for text in (read.text, read.other_text))
    differences = f"{signed(read.difference)} here, {signed(read.source_difference)} in the other text"
    yield from sentences([
        f"Logit of {token} less that of {other}: {differences}. 100 %: what was put in goes all of the way.",
        f"Listed are the strongest {len(listed)} of {count(len(cells))} places.", alignment_words(read), read.note,
    ], "")  # fmt: skip
    columns = Column("layer"), number("position"), Column("here"), Column("put in"), number("of the way")
    yield Table(columns, [_place(*cell) for cell in listed])


def _place(share: float, layer: int, column: PatchColumn) -> TableRow:
    texts = token_label(column.text), token_label(column.source_text)
    return TableRow(
        (
            f"L{layer + 1}",
            f"token {column.position + 1}",
            *texts,
            f"{signed(100 * share).removeprefix('+')} %",
        )
    )


def over_pairs(read: PairsPatched) -> Iterator[Block]:
    """The mean share by layer and place, then the pairs."""
    done = sum(not each.failure for each in read.pairs)
    yield sentence(
        "Mean share of the way to the source, and its standard deviation, by layer and place, over "
        f"{done} of {len(read.pairs)} pairs."
    )
    rows = [
        TableRow(
            (f"L{layer + 1}", *(f"{each.means[at]:.2f} ± {each.spreads[at]:.2f}" for each in read.places))
        )
        for at, layer in enumerate(read.layers)
    ]
    yield Table((Column("layer"), *(number(f"{each.place} ({each.pairs})") for each in read.places)), rows)
    yield Table((Column("text"), Column("source"), Column("logits")), [*map(_pair, read.pairs)])


def _pair(each: PairPatched) -> TableRow:
    texts = (truncate(visible(text), PAIR) for text in (each.pair.text, each.pair.source))
    differences = f"{signed(each.difference)}, {signed(each.source_difference)}"
    logits = f"{token_label(each.token)} less {token_label(each.other)}: {differences}"
    return TableRow((*texts, visible(each.failure) or logits))


def direction(read: DirectionMade) -> Iterator[Block]:
    """A direction: its texts and its length."""
    made = read.direction
    stream = f"the stream after L{made.layer + 1} at the last token"
    texts = f"the mean of {len(read.toward)} texts less that of {len(read.away)}"
    yield sentence(f"{visible(made.label)} #{made.digest}: {stream}, {texts}")
    share = read.norm / read.stream_norm if read.stream_norm else 0
    yield sentence(f"length {read.norm:.2f}, {share:.2f} of the streams'")

"""Steering: the effect of each strength of a direction against random directions, and the candidates with one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

from msgspec import Struct

from engine.protocol import (
    CandidateChange,
    DirectionMade,
    Intervened,
    Intervention,
    SteeredStrength,
    StrengthsSwept,
)
from inspector.blocks.blocks import (
    Bar,
    Block,
    Column,
    Dot,
    Table,
    TableRow,
    Text,
    number,
    sentence,
)
from inspector.blocks.page import elements
from inspector.display import quoted, token_label, visible
from inspector.documents.interventions import changed_to, others, probs_of
from inspector.documents.parts import Exhibit, Exported, ExportPart, looked_at
from inspector.scales import bits, percent, signed, times
from inspector.state.inside import Answers, interventions_words, sides, steered_words

BAND = Column("random", short="band", cells=(12, 999))
COLUMNS = (
    number("strength", short="x"),
    number("KL bits"),
    BAND,
    number("logits"),
    BAND,
    Column("leads", priority=2),
)


def heading(swept: StrengthsSwept) -> str:
    """The direction as it is added."""
    unit = Intervention("direction", swept.layer, None, 1.0, swept.direction)
    return f"Steered by {visible(unit.label)}, {steered_words(swept.scope, swept.begin)}"


def document(swept: StrengthsSwept) -> Iterator[Block]:
    """All strengths, for a page or a terminal; nothing if no number is finite."""
    shown = [each for each in swept.strengths if math.isfinite(each.kl_bits) and math.isfinite(each.change)]
    if not shown:
        return
    length = f"length at x1 {swept.norm:.2f}, {swept.share:.2f} of the stream's"
    yield sentence(f"{heading(swept)} ({swept.steered} of the path's positions); {length}.")
    *_, token, other = _followed(swept)
    unsteered = f"{signed(swept.difference)} unsteered"
    yield sentence(f"Logits: change of the logit of {token} minus that of {other}, {unsteered}.")
    yield Table(COLUMNS, [*map(_strength, shown)], curve="the strength")
    band = f"{swept.random} random directions of the same length (seed {swept.seed})"
    yield sentence(f"Random: the 5th to the 95th percentile of {band}; * where the logits change by more.")


def head(unit: Intervention, reach: str, swept: StrengthsSwept | None) -> Iterator[Block]:
    """The direction as it is added now, and the logits that are followed."""
    label, long = interventions_words((unit,)), []
    if swept is not None:
        added = f"{abs(unit.scale) * swept.share:.2f} of the stream's length"
        long = [f"{label}, {reach} · {added} is added", f"{label}, {reach} · {added}"]
    yield sentence(*long, f"{label}, {reach}", label, tone="accent")
    if swept is None:
        return
    own, others, token, other = _followed(swept)
    yield sentence(
        f"Logit of {token} minus that of {other}", f"Logit of {own} minus {others}", f"{own} − {others}", tone="muted",
    )  # fmt: skip


def curve(swept: StrengthsSwept | None, strength: float) -> Iterator[Block]:
    """A row for each strength: the effect of the direction as a dot on the band of random ones.

    Args:
        swept: All strengths; None until they are known.
        strength: The present strength.
    """
    if swept is None:
        yield sentence("Next, all strengths are tried beside random directions.", tone="muted")
        return
    every = swept.strengths
    at = min(range(len(every)), key=lambda place: abs(every[place].strength - strength), default=None)
    yield Table(COLUMNS, [*map(_strength, every)], at)
    ones = f"● this direction   ░░ 90 % of {swept.random} random ones"
    yield sentence(
        f"{ones} of the same length: an effect outside the band is no accident", f"{ones} as long",
        "● this   ░░ random ones", tone="muted",
    )  # fmt: skip


def _followed(swept: StrengthsSwept) -> tuple[str, str, str, str]:
    """The two tokens whose logits are followed, and both with their probabilities."""
    token, other = (quoted(token_label(text)) for text in (swept.text, swept.other_text))
    return token, other, f"{token} ({percent(swept.prob)})", f"{other} ({percent(swept.other_prob)})"


def _strength(each: SteeredStrength) -> TableRow:
    kl = Dot(each.kl_bits, each.kl_low, each.kl_high, f"{bits(each.kl_low)} to {bits(each.kl_high)}")
    band = f"{signed(each.change_low)} to {signed(each.change_high)}{' *' if each.beyond else ''}"
    change = Dot(each.change, each.change_low, each.change_high, band)
    label = token_label(each.top_text)
    leads = Text(f"{label} {percent(each.top_prob)}", short=label)
    return TableRow((times(each.strength), bits(each.kl_bits), kl, signed(each.change), change, leads))


def candidates(tried: Intervened, strength: float) -> Iterator[Block]:
    """The candidates without and with the direction; if there is no room for all, the likeliest in either case."""
    probs = probs_of(tried)
    likely = sorted(range(len(probs)), key=lambda place: -max(probs[place]))
    own, changed = sides(tried.interventions)
    columns = (
        Column(f"With {times(strength)}: KL {bits(tried.kl_bits)} bits"), number(own, tone="muted"),
        number(f"{changed} "), Column(cells=(4, 24), priority=2, top=1.0),
    )  # fmt: skip
    yield Table(columns, [*map(_candidate, tried.candidates)], rest=others(probs, after=" "), keep=likely)


def _candidate(each: CandidateChange) -> TableRow:
    before, after = each.before, each.after
    label = token_label(before.text, before.raw)
    return TableRow((label, percent(before.prob), changed_to(before.prob, after.prob), Bar(after.prob)))


def direction(read: DirectionMade) -> Iterator[Block]:
    """A direction: its texts and its length."""
    made = read.direction
    stream = f"the stream after L{made.layer + 1} at the last token"
    texts = f"the mean of {len(read.toward)} texts minus that of {len(read.away)}"
    yield sentence(f"{visible(made.label)} #{made.digest}: {stream}, {texts}")
    share = read.norm / read.stream_norm if read.stream_norm else 0
    yield sentence(f"length {read.norm:.2f}, {share:.2f} of the streams'")


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    yield from looked_at(
        StrengthsSwept, lambda read, place: f"steered-{place}", heading, lambda read, path: document(read)
    )(of)
    for read in of.timeline.of(Answers).found(DirectionMade):
        pairs = zip_longest(map(visible, read.toward), map(visible, read.away), fillvalue="")
        texts = Table((Column("toward"), Column("away from")), [*map(TableRow, pairs)])
        title = f"How {visible(read.direction.label)} #{read.direction.digest} was made"
        yield Exhibit("direction", title, partial(elements, [*direction(read), texts], read.facts))


STEERED_PART = ExportPart("steering", _exhibits)
# ---- where a direction comes from ---------------------------------------------------------------


class Contrast(Struct, frozen=True):
    """Source of a direction: two kinds of text, or two nodes."""

    name: str
    toward: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()


EXAMPLE = Contrast(
    "happy-sad",
    (
        "Lily was very happy. She smiled and",
        "Tom was so happy that he laughed and",
        "They were happy and glad. They",
    ),
    ("Lily was very sad. She cried and", "Tom was so sad that he wept and", "They were sad and upset. They"),
)
"""Values that the fields begin with, as an example."""

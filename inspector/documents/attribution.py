"""Contributions to a logit, or to the difference of two: what each part and head of the model adds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from engine.protocol import AttributionRead
from inspector.blocks.blocks import (
    GAP,
    Bar,
    Block,
    Column,
    Dot,
    Table,
    TableRow,
    Text,
    number,
    sentence,
    sentences,
)
from inspector.display import quoted, token_label, visible
from inspector.documents.parts import ExportPart, looked_at
from inspector.keys import with_keys
from inspector.scales import count, percent, signed
from inspector.state.attribution import ContributionRow, head_rows, part_rows

MOST = 24
"""Parts on a page: the largest, if a model has more."""
STRONGEST = 8
"""Heads that a page names."""
HEADS = 4
"""Heads of an attention that the sentence about it names at most."""
DIRECT = (
    "Direct effect alone: what a part does through later layers is in their bars. "
    "Switching it off, {interventions}, shows the total effect."
)
SHORT = {"attention": "attn", "embedding": "embed", "recurrence": "recur"}


def heading(read: AttributionRead) -> str:
    """The question."""
    names = [quoted(token_label(each.text)) for each in read.tokens]
    return f"Why {names[0]} rather than {names[1]}" if len(names) > 1 else f"What made {names[0]}"


def document(read: AttributionRead) -> Iterator[Block]:
    """The largest parts and heads, for a page; nothing if no part is known."""
    parts = [part for part in part_rows(read) if math.isfinite(part.value)]
    if not parts:
        return
    kept = sorted(sorted(parts, key=lambda part: -abs(part.value))[:MOST], key=lambda part: part.part)
    left = [part.value for part in parts if part not in kept]
    others = [TableRow((f"{count(len(left))} others", signed(math.fsum(left))), "muted")] if left else []
    yield from bars(read, kept, others=others)
    every = [head for part in parts for head in head_rows(read, part) if math.isfinite(head.value)]
    yield from sentences([_strongest(every, STRONGEST)], "")


def bars(
    read: AttributionRead,
    rows: Sequence[ContributionRow],
    at: int | None = None,
    by_size: bool = False,
    others: Sequence[TableRow] = (),
) -> Iterator[Block]:
    """A row for each part or head, and their sum.

    Args:
        read: The answer.
        rows: In the order in which they are shown.
        at: The index of the selected row; None for none.
        by_size: Whether they are sorted: then there is no running sum.
        others: A row about those that have none.
    """
    names = [token_label(each.text) for each in read.tokens]
    ends: tuple[tuple[str, ...], ...] = ("lowers it",), ("raises it",)
    if len(names) == 2:
        ends = (f"for {names[1]}", names[1]), (f"for {names[0]}", names[0])
    columns = [Column("part"), number("logits"), Column(cells=(20, 999), ease=40, ends=ends)]
    if not by_size:
        columns += [number("so far", 2, "muted"), Column(cells=(22, 22), priority=1)]
    made = [*(_row(row, by_size) for row in rows), *others]
    foot = TableRow(("= sum", _plain(read.total), sentence(*_sums(read), tone="strong")), "strong")
    yield sentence(*(_tokens(read, figures) for figures in (3, 2, 1)), priority=4)
    yield GAP
    yield Table(tuple(columns), made, at, foot, least=5)
    yield GAP
    if at is not None and rows:
        yield sentence(*(_about(read, rows[at], most) for most in range(HEADS, -1, -1)), lines=2, priority=3)
    yield from sentences(map(visible, read.notes), priority=2)
    yield sentence(with_keys(DIRECT), tone="muted", priority=1)


def _plain(value: float) -> str:
    """Logits without a plus: `13.95`, `−2.14`."""
    return signed(value).removeprefix("+")


@lru_cache(maxsize=8192)  # a large model has thousands of heads, and each key draws them again
def _row(row: ContributionRow, by_size: bool) -> TableRow:
    within = row.within and not by_size
    first, _, word = row.name.rpartition(" ")
    name = Text(row.name, short=f"{first} {SHORT.get(word, word)}".strip())
    if within:
        name = Text(f"{'└' if row.last else '├'} {row.name.partition(' ')[2]}")
    after = () if row.after is None else (_plain(row.after), Dot(row.after))
    return TableRow((name, signed(row.value), Bar(row.value, within), *after), "muted" if within else "")


def _tokens(read: AttributionRead, figures: int) -> tuple[str | Text, ...]:
    """The tokens, each with so many figures."""
    pieces: list[str | Text] = []
    for place, token in enumerate(read.tokens):
        known = percent(token.prob), f"logit {_plain(token.logit)}", f"rank {count(token.rank)}"
        pieces += [Text("   against   ", "muted")] if place else []
        pieces.append(Text(quoted(token_label(token.text)), "warn" if place else "primary"))
        pieces.append(" " + ", ".join(known[:figures]))
    return tuple(pieces)


def _sums(read: AttributionRead) -> Sequence[str]:
    """Sentences about the sum of the parts, the longest first."""
    two, reached = len(read.tokens) == 2, _plain(read.reached)
    capped = f" before {'their' if two else 'its'} softcap" if read.softcap else ""
    # the logits' own numbers are above: rounded, they may not subtract
    words = f"the logits{capped} differ by {reached}" if two else f"the logit{capped} is {reached}"
    after = f", {_plain(read.tokens[0].logit)} after it" if capped and not two else ""
    long, short = f"sums to {_plain(read.total)}, {words}", "the logits" if two else "the logit"
    least = f"{'before the softcap' if capped else short}: {reached}"
    return f"{long}{after}", long, *([words] if two else []), least, reached


def _about(read: AttributionRead, row: ContributionRow, most: int) -> str:
    """The logits that a row adds to each token, and its strongest heads, at most so many."""
    pairs = zip(row.logits, read.tokens, strict=True)
    adds = ", ".join(f"{signed(value)} to {quoted(token_label(token.text))}" for value, token in pairs)
    between = f"; the difference {signed(row.value)}" if len(read.tokens) == 2 else ""
    heads = [] if row.within else [*head_rows(read, row)]
    return f"{row.name}: {adds}{between}. {_strongest(heads, most, row.name)}".rstrip()


def _strongest(heads: Sequence[ContributionRow], most: int, of: str = "") -> str:
    found = sorted(heads, key=lambda head: -abs(head.value))[:most]
    names = (head.name.partition(" ")[2] if of else head.name for head in found)
    words = ", ".join(f"{name} {signed(head.value)}" for name, head in zip(names, found, strict=True))
    return f"Heads: {words}." if words else ""


CONTRIBUTIONS_PART = ExportPart(
    "contributions",
    looked_at(AttributionRead, "contributions", heading, lambda read, path: document(read), explains=True),
)

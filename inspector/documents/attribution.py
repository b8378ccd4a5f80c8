"""Contributions to a logit, or to the difference of two: what each part and head of the model adds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from engine.protocol import AttributionRead, Contribution
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

MOST = 24
"""Maximum number of parts on a page, which are then the largest."""
STRONGEST = 8
"""Maximum number of heads that a page names."""
HEADS = 4
"""Maximum number of heads that the sentence about an attention names."""
DIRECT = (
    "Direct effects only. What a part does through later layers counts in their bars; for the total effect, switch it "
    "off"
)
SHORT = {"attention": "attn", "embedding": "embed", "recurrence": "recur"}
SEEN = 0.005
"""The smallest number that two decimals show."""
_WORDS = {"embedding": "embedding", "attention": "attention", "mlp": "MLP", "recurrence": "recurrence",
          "residual": "residual", "layer": "whole", "constant": "constant"}  # fmt: skip


# ---- the writers to the residual stream ---------------------------------------------------------


class ContributionRow(Struct, frozen=True):
    """A writer to the residual stream: a part of the model, or a head of one."""

    name: str
    """`embedding`, `L6 attention`, `L6 h1`; layers and heads counted from 1. Printable."""
    logits: tuple[float, ...]
    """Its contribution to the logit of each token."""
    value: float
    """The contributions as one number: see `AttributionRead.bar`."""
    part: int
    """Index of the part in the record."""
    head: int | None = None
    """Index of a head from 0; -1 for what an attention adds outside its heads; None for a part."""
    after: float | None = None
    """The logit, or the difference, once this part has written; None for heads."""
    last: bool = False
    """True if it is the last head of its attention."""

    @property
    def key(self) -> tuple[int, int | None]:
        """Identifies the row in any order of rows."""
        return self.part, self.head


def heads_of(read: AttributionRead, part: Contribution) -> int:
    """Number of a part's heads; 0 if they can't be told apart."""
    shape = part.heads.shape
    return shape[0] if len(shape) == 2 and shape[1] == len(read.tokens) and part.heads.fits else 0


def part_rows(read: AttributionRead) -> list[ContributionRow]:
    """A row for each part, in the order in which they write; a constant of 0 is left out."""
    rows, after = [], 0.0
    twice = Counter((part.layer, part.kind) for part in read.parts)
    for place, part in enumerate(read.parts):
        if len(part.logits) != len(read.tokens) or (part.kind == "constant" and not any(part.logits)):
            continue
        value = read.bar(part.logits)
        after += value
        name = writer_name(part.kind, part.layer, part.name, twice[part.layer, part.kind] > 1)
        rows.append(ContributionRow(name, part.logits, value, place, None, after))
    return rows


def head_rows(read: AttributionRead, row: ContributionRow) -> Iterator[ContributionRow]:
    """The rows of a part's heads, and of what it adds outside them; empty if they can't be told apart."""
    part = read.parts[row.part]
    heads, layer = heads_of(read, part), f"L{(part.layer or 0) + 1}"
    rest = read.bar(part.rest) if len(part.rest) == len(read.tokens) else 0.0
    with_rest = heads > 0 and abs(rest) >= SEEN
    for head in range(heads):
        logits, last = part.head(head), head == heads - 1 and not with_rest
        yield ContributionRow(f"{layer} h{head + 1}", logits, read.bar(logits), row.part, head, last=last)
    if with_rest:
        yield ContributionRow(f"{layer} no head", part.rest, rest, row.part, -1, last=True)


def rows_of(
    read: AttributionRead, unfolded: Collection[int] = (), by_size: bool = False
) -> list[ContributionRow]:
    """The rows of a view.

    Args:
        read: The contributions.
        unfolded: Indices of the parts whose heads have their own rows.
        by_size: Whether the largest come first, whatever their sign, instead of the order in which they write. Heads
            then replace their attention, so that all rows sum to the logit.
    """
    rows: list[ContributionRow] = []
    for row in part_rows(read):
        heads = list(head_rows(read, row)) if row.part in unfolded else []
        rows += heads if by_size and heads else [row, *heads]
    return sorted(rows, key=lambda row: -abs(row.value)) if by_size else rows


def writer_name(kind: str, layer: int | None, name: str, ambiguous: bool = False) -> str:
    """The name of a writer to the residual stream: `embedding`, `L6 attention`, `L3 MLP`; printable.

    Args:
        kind: The kind of the writer in records.
        layer: Index from 0; None if it belongs to no layer.
        name: The layer's attribute for it.
        ambiguous: Whether the layer has several of the kind.
    """
    word = _WORDS.get(kind) or visible(name) or "other"
    if ambiguous and name and kind in _WORDS:
        word = f"{word} {visible(name)}"
    return word if layer is None else f"L{layer + 1} {word}"


# ---- the document -------------------------------------------------------------------------------


def heading(read: AttributionRead) -> str:
    names = [quoted(token_label(each.text)) for each in read.tokens]
    return f"Why {' rather than '.join(names)}"


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
        rows: The rows in display order.
        at: The index of the selected row; None for none.
        by_size: Whether the rows are sorted by size; there is no running sum then.
        others: Rows about the parts that have none.
    """
    ends = ends_of([token_label(each.text) for each in read.tokens])
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
    key = with_keys(" ({interventions})") if at is not None else ""  # only in a panel, which has that key
    yield sentence(f"{DIRECT}{key}.", tone="muted", priority=1)


def ends_of(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The meaning of bars to the left and to the right of zero, in a logit or in the difference of two.

    Args:
        names: Labels of the one or two tokens.
    """
    if len(names) < 2:
        return ("lowers it",), ("raises it",)
    first, second = map(quoted, names)
    return (f"for {second}", second), (f"for {first}", first)


def _plain(value: float) -> str:
    """Logits without a plus: `13.95`, `−2.14`."""
    return signed(value).removeprefix("+")


@lru_cache(maxsize=8192)  # a large model has thousands of heads, and each key draws them again
def _row(row: ContributionRow, by_size: bool) -> TableRow:
    within = row.head is not None and not by_size
    layer, _, word = row.name.rpartition(" ")
    name = Text(row.name, short=f"{layer} {SHORT.get(word, word)}".strip())
    if within:
        name = Text(f"{'└' if row.last else '├'} {row.name.partition(' ')[2]}")
    after = () if row.after is None else (_plain(row.after), Dot(row.after))
    return TableRow((name, signed(row.value), Bar(row.value, within), *after), "muted" if within else "")


def _tokens(read: AttributionRead, figures: int) -> tuple[str | Text, ...]:
    pieces: list[str | Text] = []
    for place, token in enumerate(read.tokens):
        known = percent(token.prob), f"logit {_plain(token.logit)}", f"rank {count(token.rank)}"
        pieces += [Text("   against   ", "muted")] if place else []
        pieces.append(Text(quoted(token_label(token.text)), "warn" if place else "primary"))
        pieces.append(" " + ", ".join(known[:figures]))
    return tuple(pieces)


def _sums(read: AttributionRead) -> Sequence[str]:
    two, reached = len(read.tokens) == 2, _plain(read.reached)
    capped = f" before {'their' if two else 'its'} softcap" if read.softcap else ""
    # the rounded logits above may have another difference
    words = f"the logits{capped} differ by {reached}" if two else f"the logit{capped} is {reached}"
    after = f", {_plain(read.tokens[0].logit)} after it" if capped and not two else ""
    long, short = f"sums to {_plain(read.total)}, {words}", "the logits" if two else "the logit"
    least = f"{'before the softcap' if capped else short}: {reached}"
    return f"{long}{after}", long, *([words] if two else []), least, reached


def _about(read: AttributionRead, row: ContributionRow, most: int) -> str:
    """The logits that a row adds to each token, and at most `most` of its strongest heads."""
    pairs = zip(row.logits, read.tokens, strict=True)
    adds = ", ".join(f"{signed(value)} to {quoted(token_label(token.text))}" for value, token in pairs)
    between = f"; the difference {signed(row.value)}" if len(read.tokens) == 2 else ""
    heads = [*head_rows(read, row)] if row.head is None else []
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

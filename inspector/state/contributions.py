"""Contributions to a logit, for screen and command line: which tokens are compared, the writers by name, as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self

from msgspec import Struct

from engine.protocol import AttributionRead, Candidate, Contribution
from inspector.display import token_label, visible
from inspector.state.timeline import Timeline

SEEN = 0.005
"""The least number that two decimals show."""
_WORDS = {"embedding": "embedding", "attention": "attention", "mlp": "MLP", "recurrence": "recurrence",
          "residual": "residual", "layer": "whole", "constant": "constant"}  # fmt: skip


def ranked(timeline: Timeline) -> tuple[int, ...]:
    """The tokens that can be looked at in the selected slot: the one that was taken, then the candidates by rank."""
    best = [candidate.id for candidate in sorted(timeline.candidates, key=lambda each: each.rank)]
    taken = [timeline.taken] if timeline.taken is not None else []
    return tuple(dict.fromkeys([*taken, *best]))


def compared(timeline: Timeline, token: int | None = None, against: int | None = None) -> tuple[int, ...]:
    """The two tokens whose logits are compared in the selected slot.

    Args:
        timeline: What is known of the slot.
        token: The first one; None for the one that was taken, or that the sampler picked.
        against: The second one, which the first is not; None for the best other candidate.

    Returns:
        Two ids; one where no other candidate is known, none where no token is.
    """
    known = ranked(timeline)
    if token is None:
        token = next((id for id in known if id != against), None)
    if token is None:
        return ()
    if against is None:
        best = sorted(timeline.candidates, key=lambda each: each.rank)
        against = next((each.id for each in best if each.id != token), None)
    return (token,) if against is None else (token, against)


def told_here(timeline: Timeline, tokens: Sequence[int]) -> set[int]:
    """Those of some tokens, each explained in the place of the selected slot, whose explanations belong to the slot:
    its own token, or else candidates that no branch took there.

    Args:
        timeline: What is known of the slot.
        tokens: Their ids.
    """
    if (own := timeline.taken) is not None and own in tokens:
        return {own}
    return {each for each in tokens if timeline.tree.taken_by(timeline.before, each) is None}


class TokenChoices(Struct):
    """The one or two tokens that a person looks at in a slot, kept from opening to opening."""

    place: tuple[int, int | None] | None = None
    """The token before the slot at which tokens were chosen, and the slot's: elsewhere they are the usual ones."""
    token: int | None = None
    """The token whose logit it is; None for the one that was taken."""
    against: int | None = None
    """The one that it is compared with; None for the best other candidate."""
    alone: bool = False
    """True if one token is looked at by itself."""

    def at(self, timeline: Timeline) -> Self:
        """These choices, the tokens forgotten if they were chosen in another slot, or for another token in it."""
        if (place := (timeline.before, timeline.taken)) != self.place:
            self.place, self.token, self.against = place, None, None
        return self

    def begin(self, timeline: Timeline, highlighted: Candidate | None) -> Self:
        """These choices at the selected token: against the highlighted candidate, where that is another one."""
        self.at(timeline)
        if highlighted is not None and highlighted.id not in compared(timeline)[:1]:
            self.against = highlighted.id
        return self

    def tokens(self, timeline: Timeline) -> tuple[int, ...]:
        """The token whose logit is wanted, and the one that it is compared with."""
        tokens = compared(timeline, self.token, self.against)
        return tokens[:1] if self.alone else tokens

    def follow_other(self, timeline: Timeline, by: int) -> None:
        """Look at the logit of another candidate; what it is compared with stays, where it can."""
        tokens = self.tokens(timeline)
        others = [id for id in ranked(timeline) if self.alone or id not in tokens[1:]]
        if tokens and others:
            if not self.alone and len(tokens) == 2:
                self.against = tokens[1]
            self.token = _next(others, tokens[0], by)

    def compare_with(self, timeline: Timeline, by: int) -> None:
        """Compare with another candidate."""
        self.alone = False
        tokens = self.tokens(timeline)
        if others := [id for id in ranked(timeline) if id not in tokens[:1]]:
            self.token, self.against = tokens[0], _next(others, tokens[-1], by)


def _next(ids: Sequence[int], now: int, by: int) -> int:
    return ids[(ids.index(now) + by) % len(ids)] if now in ids else ids[0]


def label_of(timeline: Timeline, id: int, told: Iterable[tuple[int, str]] = ()) -> str:
    """The label of a token that could come in the selected slot; printable.

    Args:
        timeline: What is known of the slot.
        id: Of the token.
        told: Ids and texts of others that are known.
    """
    texts = {id: token_label(text) for id, text in told}
    texts |= {each.id: token_label(each.text, each.raw) for each in timeline.candidates}
    if (selected := timeline.selected) is not None:
        texts[selected.id] = token_label(selected.text, selected.raw)
    return texts.get(id, f"token {id}")


class ContributionRow(Struct, frozen=True):
    """One writer: a part, or a head of one."""

    name: str
    """`embedding`, `L6 attention`, `L6 h1`; layers and heads counted from 1. Printable."""
    logits: tuple[float, ...]
    """What it adds to the logit of each token."""
    value: float
    """One number of these: see `AttributionRead.bar`."""
    part: int
    """Place in the record."""
    kind: str
    """As the record has it, or `head`, or `rest` for what an attention adds without any head."""
    head: int | None = None
    """From 0."""
    after: float | None = None
    """Where the logit, or the difference, is once this part has written; None for heads."""
    last: bool = False
    """True if it is the last head of its attention."""

    @property
    def key(self) -> tuple[int, int | None]:
        """The same in every order."""
        return self.part, -1 if self.kind == "rest" else self.head

    @property
    def within(self) -> bool:
        """True if it is a share of an attention."""
        return self.kind in ("head", "rest")


def heads_of(read: AttributionRead, part: Contribution) -> int:
    """Heads of a part that can be told apart, 0 for none."""
    shape = part.heads.shape
    return shape[0] if len(shape) == 2 and shape[1] == len(read.tokens) and part.heads.fits else 0


def part_rows(read: AttributionRead) -> list[ContributionRow]:
    """A row for each part, in the order in which they write; a constant of nothing is left out."""
    rows, after = [], 0.0
    twice = Counter((part.layer, part.kind) for part in read.parts)
    for place, part in enumerate(read.parts):
        if len(part.logits) != len(read.tokens) or (part.kind == "constant" and not any(part.logits)):
            continue
        value = read.bar(part.logits)
        after += value
        name = _name(part, twice[part.layer, part.kind] > 1)
        rows.append(ContributionRow(name, part.logits, value, place, part.kind, None, after))
    return rows


def head_rows(read: AttributionRead, row: ContributionRow) -> Iterator[ContributionRow]:
    """The rows of a part's heads, and of what it adds without any, where that can be seen."""
    part = read.parts[row.part]
    count = heads_of(read, part)
    layer = f"L{(part.layer or 0) + 1}"
    rest = read.bar(part.rest) if len(part.rest) == len(read.tokens) else 0.0
    with_rest = count > 0 and abs(rest) >= SEEN
    for head in range(count):
        logits = part.head(head)
        last = head == count - 1 and not with_rest
        yield ContributionRow(
            f"{layer} h{head + 1}", logits, read.bar(logits), row.part, "head", head, last=last
        )
    if with_rest:
        yield ContributionRow(f"{layer} no head", part.rest, rest, row.part, "rest", last=True)


def rows_of(
    read: AttributionRead, unfolded: Collection[int] = (), by_size: bool = False
) -> list[ContributionRow]:
    """The rows of a view.

    Args:
        read: The contributions.
        unfolded: Parts, by place, whose heads are rows of their own: under their attention, or in its place.
        by_size: The largest first, whatever its sign; otherwise in the order in which they write. Then heads are in
            their attention's place: all rows sum to the logit.
    """
    rows: list[ContributionRow] = []
    for row in part_rows(read):
        heads = list(head_rows(read, row)) if row.part in unfolded else []
        rows += heads if by_size and heads else [row, *heads]
    return sorted(rows, key=lambda row: -abs(row.value)) if by_size else rows


def _name(part: Contribution, ambiguous: bool) -> str:
    return writer_name(part.kind, part.layer, part.name, ambiguous)


def writer_name(kind: str, layer: int | None, name: str, ambiguous: bool = False) -> str:
    """The name of what writes to the residual stream: `embedding`, `L6 attention`, `L3 MLP`; printable.

    Args:
        kind: As records have it.
        layer: From 0; None for what belongs to no layer.
        name: The layer's attribute that holds it.
        ambiguous: Whether the layer has several of the kind.
    """
    word = _WORDS.get(kind) or visible(name) or "other"
    if ambiguous and name and kind in _WORDS:
        word = f"{word} {visible(name)}"
    return word if layer is None else f"L{layer + 1} {word}"

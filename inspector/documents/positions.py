"""Other positions for a token: each trial, and the candidates before and after one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct

from engine.protocol import PositionChange, PositionTried, PositionUse, Rotation, TokenShift, TryPosition
from inspector.blocks.blocks import GAP, Block, Column, Table, TableRow, Text, number, sentence
from inspector.blocks.page import elements
from inspector.display import token_label
from inspector.documents.interventions import moved, others
from inspector.documents.parts import Exhibit, Exported, ExportPart, of_both
from inspector.scales import count, percent
from inspector.state.inside import Answers

LATER = 32
"""Maximum number of later tokens that the selected token sees without the mask."""
OFFSETS = (-1, 1, 100, 100)
"""The default offsets: three of the token, one of the path."""
COLUMNS = (
    Column("What if"), number("logits moved", short="logits"), number("KL bits"),
    Column("likeliest", priority=1),
)  # fmt: skip
PROBS = Column(cells=(4, 30), priority=2, top=1.0)


# ---- what is tried ------------------------------------------------------------------------------


class PositionTrial(Struct, frozen=True):
    """One change, at one token.

    Args:
        position: The position of the token, from 0.
        change: What is changed.
        offset: Number that is added to positions.
        later: Number of later tokens that are run with it.
        until: The node of the last of these tokens.
    """

    position: int
    change: PositionChange
    offset: int = 0
    later: int = 0
    until: int | None = None

    def question(self, node: int) -> tuple[Hashable, TryPosition]:
        """The key of the trial at a token, equal to that of its answer, and the command."""
        command = TryPosition(node, self.change, self.offset, until=self.until)
        return (node, self.change, self.offset, self.later), command

    @property
    def given(self) -> int:
        """The position that the token is given."""
        return self.position + self.offset

    def label(self, short: bool) -> str:
        """The label of its row, below the head `What if`."""
        match self.change:
            case "token":
                position = "" if short else "its position is "
                return f"{position}{count(self.given)}, not {count(self.position)}"
            case "path":
                more = f"{count(abs(self.offset))} {'higher' if self.offset >= 0 else 'lower'}"
                return f"all: {more}" if short else f"all positions are {more}"
            case "mask":
                later = f"{self.later or 'no'} later token{'s' * (self.later > 1)}"
                return "no mask" if short else f"no causal mask: it sees {later}"

    def words(self, use: PositionUse) -> str:
        """The result of the trial, in a sentence or two."""
        match self.change:
            case "mask" if self.later:
                return (
                    "Without the mask the answer leaks: the token sees what comes after it. In training that "
                    "would be cheating; in generation there is nothing to see."
                )
            case "mask":
                return (
                    "Nothing comes after it yet, but the tokens before it saw those after them. "
                    "Press ← for a token that sees its own answer."
                )
            case "path" if use.way == "learned":
                return "Each position has a learned vector of its own, so that other positions change everything."
            case "path":
                return (
                    "Queries and keys rotate alike, and only the angle between them matters: the distance. "
                    "So moving all positions by the same number changes next to nothing."
                )
            case "token":
                why = "Every" if self.given else "As if the offset had been lost: every"
                return (
                    f"{why} distance is off by {count(abs(self.offset))}. Nothing fails and the text stays fluent, so "
                    "the bug is silent."
                )


def trials(position: int, offsets: Sequence[int], later: int, until: int | None) -> list[PositionTrial]:
    """The trials at a token.

    Args:
        position: The position of the token.
        offsets: The offsets of the rows that can be changed: three of the token, one of the path.
        later: Number of later tokens that it sees without the mask.
        until: The node of the last of these tokens.
    """
    return [
        PositionTrial(position, "token", -position),
        *(PositionTrial(position, "token", offset) for offset in offsets[:-1]),
        PositionTrial(position, "path", offsets[-1]),
        PositionTrial(position, "mask", 0, later, until if later else None),
    ]


def trial_of(answer: PositionTried) -> PositionTrial:
    """The trial that an answer belongs to."""
    return PositionTrial(answer.use.position, answer.change, answer.offset, answer.later)


# ---- how a token is given its position -----------------------------------------------------------


def facts_line(use: PositionUse, short: bool) -> str:
    """A sentence on the position embedding of the token."""
    if short:
        way = {"rotary": "RoPE", "learned": "learned table", "own": "its own way", "none": "none"}[use.way]
        return f"Position {count(use.position)}: {way}"
    start = (
        f"This token is at position {count(use.position)}, counted from 0: its offset, the number of tokens before it "
        "in the KV cache. "
    )
    match use.way:
        case "rotary":
            turns = "; ".join(_rotation(one, len(use.rotations) > 1) for one in use.rotations)
            still = len(use.unturned)
            without = (
                f"; {'1 layer rotates' if still == 1 else f'{still} layers rotate'} nothing" if still else ""
            )
            return f"{start}RoPE rotates its query and key by an angle for each position: {turns}{without}."
        case "learned":
            row = f"Row {count(use.position)} of a learned table of {count(use.table)} positions"
            return f"{start}{row} is added to its vector."
        case _:
            return f"{start}The model uses it in its own way."


def _rotation(one: Rotation, several: bool) -> str:
    layers = f" in {len(one.layers)} layers" if several else ""
    base = f"base {count(round(one.base))}" if one.base is not None else "a list of frequencies"
    scale = f", positions times {one.scale:g}" if one.scale != 1 else ""
    return f"{one.dims} numbers of a head{layers}, {base}{scale}"


# ---- the document -------------------------------------------------------------------------------


Tried = tuple[PositionTrial, PositionTried | None, bool]
"""A trial, its answer, and whether the trial failed."""


def document(read: PositionTried) -> Iterator[Block]:
    yield sentence(f"What if {trial_of(read).label(False)}? {facts_line(read.use, True)}")
    most = f"{read.largest_change:.2f} ({token_label(read.largest_text)})"
    yield sentence(f"KL {read.kl_bits:.3f} bits, largest logit change {most}")
    yield _candidates(read.tokens)


def compared(read: Sequence[PositionTried]) -> Iterator[Block]:
    """A row for each trial of a token."""
    yield sentence(facts_line(read[0].use, False))
    yield _table([(trial_of(each), each, False) for each in read])


def view(rows: Sequence[Tried], at: int, use: PositionUse, instead: Sequence[Block]) -> Iterator[Block]:
    """All trials, and the candidates of the selected one.

    Args:
        rows: The trials.
        at: The index of the selected trial.
        use: How the model uses the token's position.
        instead: Shown instead of the selected trial's result if it has no answer.
    """
    trial, answer, _ = rows[at]
    yield sentence(facts_line(use, False), facts_line(use, True), lines=6)
    yield GAP
    yield _table(rows, at)
    yield GAP
    if answer is not None and answer.tokens:
        yield _candidates(answer.tokens)
        yield GAP
    yield from instead if answer is None else [sentence(trial.words(use), tone="muted")]


def _table(rows: Sequence[Tried], at: int | None = None) -> Table:
    return Table(COLUMNS, [_trial(*each) for each in rows], at, least=len(rows))


def _trial(trial: PositionTrial, answer: PositionTried | None, over: bool) -> TableRow:
    name = Text(trial.label(False), short=trial.label(True))
    if answer is None:
        return TableRow((name, Text("not here" if over else "…", "muted")))
    most = answer.largest_change
    first = min(answer.tokens, key=lambda token: token.rank_after, default=None)
    moved = f"{most:.2f}" if most >= 0.005 else f"{most:.0e}"
    likeliest = f"{token_label(first.text)} {percent(first.after)}" if first is not None else ""
    return TableRow((name, moved, f"{answer.kl_bits:.3f}", likeliest))


def _candidates(tokens: Sequence[TokenShift]) -> Table:
    rest = others([(each.before, each.after) for each in tokens], ("",), " ")
    columns = Column(), number("before"), PROBS, number("after "), PROBS
    rows = [TableRow(moved(token_label(each.text), each.before, each.after)) for each in tokens]
    return Table(columns, rows, rest=rest)


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        tried = sorted(of.timeline.of(Answers).found(PositionTried, second), key=lambda each: each.node)
        for node, answers in groupby(tried, key=lambda each: each.node):
            read = list(answers)
            make = partial(elements, [*compared(read)], read[0].facts)
            yield Exhibit("positions", "What if the token had another position", make, node)

    return of_both(of, exhibits)


POSITIONS_PART = ExportPart("positions", _exhibits)

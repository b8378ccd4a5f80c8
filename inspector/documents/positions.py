"""Other positions of a token: each trial, and the candidates before and after one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

from engine.protocol import PositionTried, PositionUse, TokenShift
from inspector.blocks.blocks import GAP, Bar, Block, Column, Table, TableRow, Text, number, sentence
from inspector.blocks.page import elements
from inspector.display import token_label
from inspector.documents.parts import Exhibit, Exported, ExportPart, of_both
from inspector.scales import left_over, percent
from inspector.state.inside import Answers
from inspector.state.positions import PositionTrial, facts_line, trial_of

Tried = tuple[PositionTrial, PositionTried | None, bool]
"""A trial, its answer, and whether there will be none."""
COLUMNS = (
    Column("What if"), number("logit moved", short="logit"), number("KL bits", short="KL"),
    Column("likeliest", priority=1),
)  # fmt: skip
PROBS = Column(cells=(4, 30), priority=2, top=1.0)


def document(read: PositionTried) -> Iterator[Block]:
    """One trial."""
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
        at: The index of the selected one.
        use: How the token gets its position.
        instead: Shown instead of its words if it has no answer.
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
    """The candidates before and after, and the sum of the others."""

    def others(seen: Collection[int]) -> TableRow:
        before = left_over(tokens[place].before for place in seen)
        after = left_over(tokens[place].after for place in seen)
        return TableRow(("others", percent(before), "", f"{percent(after)} "), "muted")

    columns = Column(), number("before"), PROBS, number("after "), PROBS
    return Table(columns, [*map(_candidate, tokens)], rest=others)


def _candidate(token: TokenShift) -> TableRow:
    up = token.rank_before - token.rank_after
    after = f"{percent(token.after)}{'↑' if up > 0 else '↓' if up < 0 else ' '}"
    return TableRow(
        (token_label(token.text), percent(token.before), Bar(token.before), after, Bar(token.after))
    )


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        tried = sorted(of.timeline.of(Answers).found(PositionTried, second), key=lambda each: each.node)
        for node, answers in groupby(tried, key=lambda each: each.node):
            read = list(answers)
            make = partial(elements, [*compared(read)], read[0].facts)
            yield Exhibit("positions", "What if the token stood elsewhere", make, node)

    return of_both(of, exhibits)


POSITIONS_PART = ExportPart("positions", _exhibits)

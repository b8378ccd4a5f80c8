"""What stands under the map: the candidates with and without the units chosen, side by side, and what it means."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import CandidateChange, Intervened, Scope
from inspector.display import pad, quoted, token_label
from inspector.keys import with_keys
from inspector.scales import bits, count, milliseconds, percent
from inspector.state.inside import interventions_words
from inspector.tools.interventions.measures import figure
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

NARROW, WIDE = 60, 100
SCOPES: dict[Scope, tuple[str, str]] = {
    "token": (
        "this token",
        "This token's forward alone is changed: the KV of the tokens before it stays the model's own. "
        "{interventions.hold} holds this for all tokens that follow.",
    ),
    "context": (
        "whole context",
        "The whole path runs anew through the changed model, so that its KV is changed too. "
        "{interventions.hold} holds from this token on alone.",
    ),
}
"""Each scope's name, and what it means; `{step}` is the key of that action."""
TOTAL = (
    "This is the total effect: later layers react to what is missing, and may make up for it. "
    "What a unit adds by itself, its direct effect, is in Contributions."
)


def effect(on: Canvas, answer: Intervened, width: int, height: int) -> list[Row]:
    """The rows of an answer: all of them, with as many candidates as fit, three at least.

    Args:
        on: Where they are drawn.
        answer: Its checks passed.
        width: Cells.
        height: Rows that there is room for.
    """
    head = [Segment(line, on.ink("accent")) for line in wrapped(_figures(answer, width), width)]
    words: list[Row] = [
        [Segment(line, on.ink("muted"))]
        for text in (answer.note, f"{with_keys(SCOPES[answer.scope][1])} {_cost(answer)}", TOTAL)
        if text
        for line in wrapped(text, width)
    ]
    room = height - len(head) - len(words) - 1
    listed = answer.candidates[: max(3, min(len(answer.candidates), room))]
    return [*([part] for part in head), *_candidates(on, listed, width), *words]


def _figures(answer: Intervened, width: int) -> str:
    """Of the whole distribution."""
    scope = SCOPES[answer.scope][0]
    if width < NARROW:
        return f"{interventions_words(answer.interventions)}: KL {bits(answer.kl_bits)}"
    if width < WIDE:
        entropy = f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)}"
        what = f"{interventions_words(answer.interventions)}, {scope}"
        return f"{what}: KL {answer.kl_bits:.3f} bits, model entropy {entropy}"
    largest = quoted(token_label(answer.largest_change_text))
    below = " (rounding explains it)" if answer.largest_change <= answer.rounding else ""
    return (
        f"{interventions_words(answer.interventions)}, {scope}: KL {answer.kl_bits:.3f} bits · model entropy "
        f"{bits(answer.entropy_before_bits)} → {bits(answer.entropy_after_bits)} bits · largest logit change "
        f"{answer.largest_change:.2f} ({largest}){below}"
    )


def _cost(answer: Intervened) -> str:
    tokens = "1 token" if answer.tokens_run == 1 else f"{count(answer.tokens_run)} tokens"
    return f"It ran {tokens}, {milliseconds(answer.facts.ms)}."


def _candidates(on: Canvas, listed: Sequence[CandidateChange], width: int) -> list[Row]:
    """Candidates with their probability, rank and logit on both sides."""
    wide = width >= NARROW
    label = min(
        14, max((cell_len(token_label(each.before.text, each.before.raw)) for each in listed), default=0)
    )
    figures = 22 if wide else 0
    each_side = (width - label - figures - 5) // 2
    length = min(24, max(0, each_side - 10))
    side = length + 10 if wide else 10
    ranks = f"{'rank':>13}{'logit':>9}" if wide else ""
    head = f"{pad('', label + 2)}{pad('   with it', side)} {pad('   without', side)}{ranks}"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for change in listed:
        arrow = "↑" if change.ranks_up > 0 else "↓" if change.ranks_up < 0 else " "
        row: Row = [Segment(f"  {pad(token_label(change.before.text, change.before.raw), label)}")]
        for candidate, mark in ((change.before, " "), (change.after, arrow)):
            row += [Segment(f"{percent(candidate.prob):>8}"), Segment(mark, on.ink("accent"))]
            if wide:
                row.append(Segment(bar(candidate.prob, length) + "  ", on.data(candidate.prob)))
            else:
                row.append(Segment("  "))
        if wide:
            row.append(
                Segment(f"{_ranks(change):>12}{figure(change.logit_change, 5, True):>9}", on.rich_style)
            )
        rows.append(row)
    return rows


def _ranks(change: CandidateChange) -> str:
    if not change.ranks_up:
        return f"#{count(change.before.rank)}"
    return f"#{count(change.before.rank)}→#{count(change.after.rank)}"

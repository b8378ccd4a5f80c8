"""Gradients of a logit, or of the difference of two: the share of each token of the context."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from engine.protocol import GradientBaseline, GradientsRead
from inspector.blocks.blocks import Bar, Block, Column, HeatText, Table, TableRow, number, sentence, sentences
from inspector.display import quoted, token_label, visible
from inspector.documents.attribution import ends_of
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import count, signed
from inspector.state.session_tree import Item, place_name

LISTED = 12
"""Maximum number of tokens in the table of a page or a terminal: the largest."""
COLORED = 512
"""Maximum number of tokens in the colored text of a page: the last ones."""
COLUMNS = Column("token"), number("place"), number("share"), number("logits")
MEANINGS = {
    "input": "A number is a slope at this text: how fast the logit rises (+) or falls (−) as the token's vector grows; "
    "a share is its part of all their sizes. It does not say what another word would change.",
    "integrated": "A number is how far the token's vector moves the logit, up (+) or down (−), between the baseline "
    "and this text; a share is its part of all their sizes. It does not say what another word would change.",
}
"""Meaning of a number, by the method."""
JUMPS = "This model chooses experts: where it chooses others on the way from the baseline, the jump is in no share."
METHODS = {"input": "gradient × input", "integrated": "integrated gradients"}
BASELINES = {
    "mean": "the mean of all tokens",
    "first": "the first token",
    "token": "a given token",
    "zero": "zeros",
}


# ---- the shares, and words for them -------------------------------------------------------------


class TokenShare(Struct, frozen=True):
    """The share of one token of the context."""

    place: int
    """Index in the path, from 0."""
    label: str
    """Printable."""
    value: float
    """Logits."""
    share: float
    """Share of the sum of all sizes, with its sign."""


def shares_of(read: GradientsRead, path: Sequence[Item]) -> list[TokenShare]:
    """The shares in the order of the text.

    Args:
        read: The gradients.
        path: The tokens up to the selected one; their number may not match if the answer is from a file.
    """
    values = [value if math.isfinite(value) else 0.0 for value in read.values]
    whole = math.fsum(map(abs, values)) or 1.0
    pairs = zip(path[max(0, read.first) :], values, strict=False)
    return [
        TokenShare(place, token_label(item.text, item.raw), value, value / whole)
        for place, (item, value) in enumerate(pairs, max(0, read.first))
    ]


def largest(shares: Sequence[TokenShare]) -> list[TokenShare]:
    """The shares, the largest first, whatever their sign."""
    return sorted(shares, key=lambda each: (-abs(each.value), each.place))


def baseline_of(text: str) -> tuple[GradientBaseline, str]:
    """A baseline by its name, `mean`, `first` or `zero`, or by the text of a token; and that text."""
    for name in ("mean", "first", "zero"):
        if text == name:
            return name, ""
    return "token", text


def asked_words(read: GradientsRead) -> str:
    """The token or the two tokens that the gradients are about; printable."""
    return " rather than ".join(quoted(token_label(each.text)) for each in read.tokens[:2])


def method_words(read: GradientsRead) -> str:
    """The method with its baseline, steps and held experts: `integrated gradients from ..., 32 steps`; printable."""
    if read.method == "input":
        return METHODS["input"]
    base = BASELINES[read.baseline]
    if read.baseline_text:
        base = f"{quoted(token_label(read.baseline_text))} everywhere"
    held = ", with the text's experts held, which is another question" if read.held_experts else ""
    return f"{METHODS['integrated']} from {base}, {count(read.steps)} steps{held}"


def complete_words(read: GradientsRead) -> str:
    """A sentence on the sum of the shares, and how far it is from what they should add up to."""
    what = "logit difference" if len(read.tokens) > 1 else "logit"
    if read.residual is None:
        total, value = signed(read.total), signed(read.value)
        return (
            f"The logits add up to {total}. With {METHODS['input']} they need not equal the {what}, {value}."
        )
    before = "; ".join(f"{count(steps)} steps {percent_off(error)}" for steps, error in read.tried[:-1])
    return (
        f"The logits add up to {signed(read.total)}; the {what} changes by {signed(read.reached)}, from "
        f"{signed(read.base_value)} at the baseline to {signed(read.value)} at this text: "
        f"{percent_off(read.tried[-1][1])}"
        f"{f' ({before})' if before else ''}."
    )


def percent_off(error: float) -> str:
    """A residual: `0.12 % missing`, `1.3 % too much`."""
    if not math.isfinite(error):
        return "not a number" if math.isnan(error) else "a share of 0 can't be given"
    return f"{abs(error):.2%} {'too much' if error > 0 else 'missing'}".replace("%", " %", 1)


# ---- the document -------------------------------------------------------------------------------


def heading(read: GradientsRead) -> str:
    return f"Tokens behind {asked_words(read)}: {method_words(read)}"


def document(read: GradientsRead, path: Sequence[Item]) -> Iterator[Block]:
    """The text with its shares, then the largest, and the sum of the others; nothing if there are no shares."""
    shares = shares_of(read, path)
    if not shares:
        return
    pieces = ((visible(path[each.place].text), each.share, f"{signed(each.value)} logits") for each in shares)
    yield HeatText((*pieces,)[-COLORED:])
    yield sentence(f"{asked_words(read)}: {method_words(read)}.")
    yield from listed(read, path, largest(shares), most=LISTED)


def listed(
    read: GradientsRead,
    path: Sequence[Item],
    shares: Sequence[TokenShare],
    at: int | None = None,
    most: int | None = None,
) -> Iterator[Block]:
    """A row for each share, and sentences about them.

    Args:
        read: The answer.
        path: The tokens of its path.
        shares: The shares, the largest first.
        at: The index of the selected row; None for none.
        most: Maximum number of rows; the others are summed in one more row. None for all.
    """
    rows = [_row(each.label, place_name(path[each.place]), each.share, each.value) for each in shares[:most]]
    if left := shares[most:] if most is not None else []:
        sums = math.fsum(each.share for each in left), math.fsum(each.value for each in left)
        rows.append(_row(f"{count(len(left))} others", "", *sums, tone="muted"))
    ends = ends_of([token_label(each.text) for each in read.tokens[:2]])
    yield Table((*COLUMNS, Column(cells=(4, 999), priority=2, ends=ends)), rows, at, least=6)
    jumps = read.chooses and not read.held_experts and read.method == "integrated"
    said = [complete_words(read), JUMPS * jumps, *map(visible, read.notes), MEANINGS[read.method]]
    method = method_words(read)
    yield from sentences([f"{method[0].upper()}{method[1:]}.", *said] if at is not None else said)


def _row(label: str, place: str, share: float, value: float, tone: str = "") -> TableRow:
    cells = label, place, f"{signed(100 * share, 1)} %", signed(value), Bar(value)
    return TableRow(cells[:-1] if tone else cells, "muted" if tone else "")


GRADIENTS_PART = ExportPart(
    "gradients", looked_at(GradientsRead, "gradients", heading, document, explains=True)
)

"""Gradients in words and as rows, for screen, command line, page and program."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from engine.protocol import GradientBaseline, GradientsRead
from inspector.display import quoted, token_label, visible
from inspector.scales import count, signed
from inspector.state.session_tree import Item

MEANINGS = {
    "input": "A share says how fast the logit rises (+) or falls (−) as the token's vector grows: a slope at this "
    "text, not what another word there would change.",
    "integrated": "A share says how far the token's vector moves the logit, up (+) or down (−), on the way from the "
    "baseline to the text: not what another word there would change.",
}
"""What a number means."""
JUMPS = (
    "The model chooses experts: where others are chosen on the way from the baseline, a jump is in no share."
)
METHODS = {"input": "gradient x input", "integrated": "integrated gradients"}
BASELINES = {
    "mean": "the mean of all tokens",
    "first": "the first token",
    "token": "a given token",
    "zero": "zeros",
}


class TokenShare(Struct, frozen=True):
    """The share of one token of the context."""

    place: int
    """In the path, from 0."""
    label: str
    """Printable."""
    value: float
    """In logits."""
    share: float
    """Of the sizes of all of them, with its sign."""


def shares_of(read: GradientsRead, path: Sequence[Item]) -> list[TokenShare]:
    """The shares in the order of the text.

    Args:
        read: The gradients.
        path: The tokens up to the one that is looked at; a file may have others.
    """
    values = [value if math.isfinite(value) else 0.0 for value in read.values]
    whole = math.fsum(map(abs, values)) or 1.0
    pairs = zip(path[max(0, read.first) :], values, strict=False)
    return [
        TokenShare(place, token_label(item.text, item.raw), value, value / whole)
        for place, (item, value) in enumerate(pairs, max(0, read.first))
    ]


def largest(shares: Sequence[TokenShare]) -> list[TokenShare]:
    """The largest first, whatever their sign."""
    return sorted(shares, key=lambda each: (-abs(each.value), each.place))


def baseline_of(text: str) -> tuple[GradientBaseline, str]:
    """The baseline that a person named, and the text of its token: `mean`, `first`, `zero`, or the text of a token."""
    for name in ("mean", "first", "zero"):
        if text == name:
            return name, ""
    return "token", text


def asked_words(read: GradientsRead) -> str:
    """The logit, or the difference, that is looked at; printable."""
    names = [quoted(token_label(each.text)) for each in read.tokens]
    return f"{names[0]} against {names[1]}" if len(names) > 1 else "".join(names)


def method_words(read: GradientsRead) -> str:
    """The method with its baseline, steps and what is held: `integrated gradients from ..., 32 steps`; printable."""
    if read.method == "input":
        return METHODS["input"]
    base = BASELINES[read.baseline]
    if read.baseline_text:
        base = f"{quoted(token_label(read.baseline_text))} everywhere"
    held = ", experts held as in the text, which is another question" if read.held_experts else ""
    return f"{METHODS['integrated']} from {base}, {count(read.steps)} steps{held}"


def complete_words(read: GradientsRead) -> str:
    """How far the shares are from what they have to sum to."""
    if read.residual is None:
        total, value = signed(read.total), signed(read.value)
        return f"The shares sum to {total}; those of gradient x input need not sum to the value, {value}."
    before = "; ".join(f"{count(steps)} steps {percent_off(error)}" for steps, error in read.tried[:-1])
    return (
        f"The shares sum to {signed(read.total)} and should to {signed(read.reached)}, from {signed(read.base_value)} "
        f"at the baseline to {signed(read.value)} at the text: {percent_off(read.tried[-1][1])}"
        f"{f' ({before})' if before else ''}."
    )


def percent_off(error: float) -> str:
    """A residual: `0.12 % missing`, `1.3 % too much`."""
    if not math.isfinite(error):
        return "not a number" if math.isnan(error) else "a share of 0 can't be given"
    size = f"{abs(error):.2%}".replace("%", " %")
    return f"{size} {'too much' if error > 0 else 'missing'}"


def notes_of(read: GradientsRead) -> list[str]:
    """Remarks on the shares; printable."""
    free = read.chooses and not read.held_experts and read.method == "integrated"
    return [*([JUMPS] if free else []), *map(visible, read.notes)]

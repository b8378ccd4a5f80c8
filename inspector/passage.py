"""Tokens as programs and notebooks read them: steps, candidates, and their HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.protocol import Distribution
from engine.protocol import Step as StepRecord
from inspector import display
from inspector.border import checked
from inspector.state.session_tree import Item


def quoted(text: str) -> str:
    """A text as it can be shown, whatever is in it."""
    return display.quoted(display.visible(text))


# ---- in a notebook -----------------------------------------------------------------------------
# Small, escaped, and with no colours but half-transparent grounds, so that it reads on light and dark pages.


MOST_SHOWN = 500
"""Tokens of a text."""


def _escaped(text: str) -> str:
    from html import escape  # 1.3 ms, which the first screen doesn't need

    return escape(text)


def _cell(item: Item) -> str:
    """One token, the more surprising the darker its ground; one of a prompt is pale."""
    if not isinstance(item, StepRecord):
        return f'<span style="opacity: 0.6">{_escaped(item.text)}</span>'
    best = "&#10;".join(_escaped(f"{quoted(each.text)} {each.prob:.1%}") for each in top(item.choice, 5))
    style = f"background: rgba(220, 90, 30, {min(0.6, 0.06 * item.surprisal_bits):.2f})"
    return f'<span title="{best}" style="{style}">{_escaped(item.text)}</span>'


def tokens_html(items: Sequence[Item]) -> str:
    """The last tokens of a text, the more surprising the darker their ground."""
    spans = "".join(["… "] * (len(items) > MOST_SHOWN) + [_cell(item) for item in items[-MOST_SHOWN:]])
    return f'<div style="font-family: monospace; white-space: pre-wrap">{spans}</div>'


class Markup(str):
    """A cell that is HTML already."""


def bar(share: float) -> Markup:
    """A share of 1 as a bar and a percentage."""
    return Markup(
        f'<span style="display: inline-block; width: {100 * share:.0f}px; height: 0.7em; '
        f'background: rgba(60, 150, 120, 0.7)"></span> {share:.1%}'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; its cells are escaped, but for `Markup`."""

    def row(cells: Sequence[object], kind: str) -> str:
        texts = (each if isinstance(each, Markup) else _escaped(display.visible(str(each))) for each in cells)
        inner = "".join(f'<{kind} style="text-align: left">{text}</{kind}>' for text in texts)
        return f"<tr>{inner}</tr>"

    return f"<table>{row(heads, 'th')}{''.join(row(each, 'td') for each in rows)}</table>"


# ---- tokens in a row ---------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A token that could be next."""

    text: str
    prob: float
    """Probability by the model."""
    id: int


def top(distribution: Distribution, count: int) -> list[Candidate]:
    """The first candidates of a distribution; none for a count below 1."""
    return [Candidate(each.text, each.prob, each.id) for each in distribution.candidates[: max(0, count)]]


class Step:
    """A token that was taken, and what was known when it was.

    `record` has all that the engine said of it (`engine.protocol.Step`). `segment` is whose it is: `thinking`,
    `answer`, `tool call`, or `markup` for the marks between them, which the tokens after it may decide; None if
    it is not known.
    """

    __slots__ = ("_session", "record", "segment")

    def __init__(self, record: StepRecord, segment: str | None = None, session: object | None = None) -> None:
        self.record, self.segment = record, segment
        self._session = session  # stands for it: a step that is kept keeps no session

    @property
    def index(self) -> int:
        """Its place in the completion, from 0."""
        return self.record.index

    @property
    def text(self) -> str:
        """The characters that it finished."""
        return self.record.text

    @property
    def id(self) -> int:
        """Its token id."""
        return self.record.id

    @property
    def prob(self) -> float:
        """The model's probability of it, 0 to 1, before the sampler."""
        return self.record.prob

    @property
    def logprob(self) -> float:
        """The natural logarithm of that."""
        return self.record.logprob

    @property
    def rank(self) -> int:
        """Its rank by the model, from 1."""
        return self.record.rank

    @property
    def sampler_prob(self) -> float:
        """The probability with which the sampler draws it."""
        return self.record.sampler_prob

    @property
    def entropy_bits(self) -> float:
        """The entropy of the model's distribution that it was taken from."""
        return self.record.choice.entropy_bits

    @property
    def surprisal_bits(self) -> float:
        """-log2 of `prob`."""
        return self.record.surprisal_bits

    @property
    def ms(self) -> float:
        """Milliseconds that the step took."""
        return self.record.ms.total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and other.record is self.record

    def __hash__(self) -> int:
        return hash(self.record.node)

    def is_of(self, session: object) -> bool:
        """True if it is a step of the session that an object stands for."""
        return self._session is session

    @checked
    def top(self, count: int = 5) -> list[Candidate]:
        """The most probable tokens in its place, best first.

        Args:
            count: How many; as many as the setting `candidates` are known.
        """
        return top(self.record.choice, count)

    def _repr_html_(self) -> str:
        return table(("token", "model", "id"), [(each.text, bar(each.prob), each.id) for each in self.top(8)])

    def __repr__(self) -> str:
        return f"<Step {self.index} {quoted(self.text)} {self.prob:.1%} rank {self.rank}>"

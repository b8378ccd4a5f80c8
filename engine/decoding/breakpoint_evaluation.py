"""Whether a run stops: its breakpoints, evaluated after each of its steps.

What is asked of the distribution is read off the row that the step brought, only where a condition wants it. Text is
looked at as it comes: a step costs the end of the text, not all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import regex

from engine.breakpoints import REACH, Breakpoints, check_breakpoints, percent
from engine.errors import SettingsError
from engine.model.tokens import decode
from engine.sampling.ranking import Row, rank_of
from engine.session.node_logits import NodeLogits
from engine.session.readings import entropy_bits
from engine.session.session import Session

PATIENCE_MS = 50
"""A regular expression that takes longer over one step stops the run: some would take for ever."""


class BreakpointEvaluator:
    """Evaluates sets of breakpoints over one run.

    Args:
        session: Stands where the run begins.
        sets: Any of them stops the run.

    Raises:
        SettingsError: A condition is out of its range, or a regular expression can't be compiled.
    """

    def __init__(self, session: Session, sets: Iterable[Breakpoints] = ()) -> None:
        self._session = session
        self._sets = [check_breakpoints(points) for points in sets if points.active]
        self._newest = Newest(session) if any(points.text or points.regex for points in self._sets) else None
        self._patterns = {points.regex: _compiled(points.regex) for points in self._sets if points.regex}
        self._came: dict[str, str] = {}
        """What of texts and patterns came true in this run, as sentences."""
        self.taken = 0
        """Steps of the run so far."""
        self._node = session.node
        self.held: tuple[str, ...] = ()
        """The conditions that held after the last step, as sentences with their figures; empty where it goes on."""

    def stands_in(self, session: Session) -> bool:
        """Whether a session stands where these were evaluated last, so that its run goes on from there."""
        return session is self._session and session.node == self._node

    def after(self, look: NodeLogits) -> bool:
        """Take in one step.

        Args:
            look: What the step brought.

        Returns:
            Whether the run stops there.
        """
        if not self._sets:
            return False
        self._node, self.taken = look.node, self.taken + 1
        if self._newest is not None:
            self._newest.add(self._session.tree[look.node].token)
        found: list[str] = []
        for points in self._sets:
            found += self._held(points, look)
        self.held = tuple(dict.fromkeys(found))
        return bool(found)

    def _held(self, points: Breakpoints, look: NodeLogits) -> list[str]:
        """Sentences of the conditions that hold; none where all must and one doesn't."""
        told = [_EVALUATED[each.name](self, getattr(points, each.name), look) for each in points.active]
        return [] if points.all_of and not all(told) else [each for each in told if each]

    # ---- the token to come ------------------------------------------------------------------

    def _entropy(self, limit: float, look: NodeLogits) -> str:
        bits = entropy_bits(look.logprobs)
        return f"entropy {_beside(bits, limit)} bits is above {limit:g}" if bits > limit else ""

    def _prob(self, limit: float, look: NodeLogits) -> str:
        prob = math.exp(float(look.logprobs[look.sampled.picked]))
        return f"probability {_share_beside(prob, limit)} is below {percent(limit)}" if prob < limit else ""

    def _rank(self, limit: int, look: NodeLogits) -> str:
        rank = rank_of(look.logprobs, look.sampled.picked)
        return f"rank {rank:,} is above {limit:,}" if rank > limit else ""

    def _margin(self, limit: float, look: NodeLogits) -> str:
        lead = margin(look.logprobs)
        if lead >= limit:
            return ""
        return f"margin {_share_beside(lead, limit)} between first and second is below {percent(limit)}"

    def _eos(self, _: bool, look: NodeLogits) -> str:
        tokens, picked = self._session.tokens, look.sampled.picked
        return f"end of sequence comes next: {tokens.text(picked)[0]}" if picked in tokens.eos_ids else ""

    # ---- the run so far ---------------------------------------------------------------------

    def _tokens(self, limit: int, _: NodeLogits) -> str:
        if self.taken < limit:
            return ""
        return "1 token was taken" if self.taken == 1 else f"{self.taken:,} tokens were taken"

    def _text(self, wanted: str, _: NodeLogits) -> str:
        assert self._newest is not None
        if wanted not in self._came and self._newest.contains(wanted):
            self._came[wanted] = f"the text came to contain “{wanted}”"
        return self._came.get(wanted, "")

    def _regex(self, pattern: str, _: NodeLogits) -> str:
        assert self._newest is not None
        key = f"/{pattern}/"
        if key in self._came:
            return self._came[key]
        try:
            match = self._newest.match(self._patterns[pattern])
        except TimeoutError:
            return f"/{pattern}/ took more than {PATIENCE_MS} ms at this text: make it simpler"
        if match:
            self._came[key] = f"the text came to match /{pattern}/ with “{match}”"
        return self._came.get(key, "")


_EVALUATED: dict[str, Callable[[BreakpointEvaluator, Any, NodeLogits], str]] = {
    "entropy_above": BreakpointEvaluator._entropy,
    "prob_below": BreakpointEvaluator._prob,
    "rank_above": BreakpointEvaluator._rank,
    "margin_below": BreakpointEvaluator._margin,
    "tokens": BreakpointEvaluator._tokens,
    "eos": BreakpointEvaluator._eos,
    "text": BreakpointEvaluator._text,
    "regex": BreakpointEvaluator._regex,
}
"""By the condition's name: a sentence where it holds, else nothing."""


class Newest:
    """The end of a completion's text, and what the newest token added to it.

    Args:
        session: Stands at a token of the path.
    """

    def __init__(self, session: Session) -> None:
        at = session.tree[session.node]
        length = at.depth - at.start
        self._raw = session.tokens.raw
        self._cut = length > REACH
        """Whether the completion began before what is held."""
        before = b"".join(map(self._raw, session.tree.tail(session.node, min(length, REACH))))
        self._text, self._pending = decode(b"", before)
        self._seen = len(self._text)
        """Characters before those of the newest token."""

    def add(self, token: int) -> None:
        """Take in the next token; what it leaves unfinished counts when it is finished."""
        text, self._pending = decode(self._pending, self._raw(token))
        if len(self._text) > 2 * REACH:
            self._text, self._cut = self._text[-REACH:], True
        self._seen = len(self._text)
        self._text += text

    def contains(self, wanted: str) -> bool:
        """Whether the newest token completed a text."""
        return self._text.find(wanted, max(0, self._seen - len(wanted) + 1)) >= 0

    def match(self, pattern: Any) -> str:
        """The first match that takes in something of the newest token; empty where there is none.

        Args:
            pattern: Compiled by `regex`.

        Raises:
            TimeoutError: It takes too long.
        """
        return next(self._matches(pattern), "")

    def _matches(self, pattern: Any) -> Iterator[str]:
        # The very beginning is the completion's where nothing was cut: `^` holds there and nowhere else.
        begin = max(int(self._cut), self._seen - REACH)
        for match in pattern.finditer(self._text, begin, overlapped=True, timeout=PATIENCE_MS / 1000):
            if match.end() > max(self._seen, match.start()):
                yield match[0]


def margin(logprobs: Row) -> float:
    """How much more probable the first token is than the second, 0 to 1."""
    best = int(logprobs.argmax())
    # looking twice is thirty times faster than sorting out the two
    second = max(part.max(initial=-np.inf) for part in (logprobs[:best], logprobs[best + 1 :]))
    return math.exp(float(logprobs[best])) - math.exp(float(second))


def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise SettingsError(
            "regex", f"regular expression can't be read: {error}.", "Write another."
        ) from None


def _beside(value: float, limit: float) -> str:
    """A figure with as many decimals as it takes to tell it from a limit, two at least."""
    return next((text for n in range(2, 8) if float(text := f"{value:.{n}f}") != limit), f"{value:.8g}")


def _share_beside(share: float, limit: float) -> str:
    """A share of 1 as a percentage that can be told from a limit."""
    figures = (f"{share * 100:.{n}g}" for n in range(3, 10))
    other = float(f"{limit * 100:.12g}")
    return next((text for text in figures if float(text) != other), f"{share * 100:.9g}") + " %"

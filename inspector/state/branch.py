"""One branch of the token tree: what is known of its tokens, and their logprobs added up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.frozen import frozen
from engine.protocol import PromptToken, Step
from inspector.state.beams import BeamNode

ROOT = 0
"""Node before the first token."""
PROMPT = "prompt"
_WORDS = {"inserted": "typed"}


@frozen
class Token:
    """What a fold needs to know of one node, wherever it comes from."""

    node: int
    parent: int
    text: str
    """The characters that it finished."""
    raw: bytes = b""
    """Its bytes, shown where a branch finished no character at all."""
    logprob: float | None = None
    """None where it isn't known."""
    made: str = "sampled"
    """How it entered the tree: `prompt`, `sampled`, `greedy`, `chosen`, `typed`, `beam`, `re-rolled`."""


def token(item: PromptToken | Step | BeamNode, parent: int) -> Token:
    """What a fold needs to know of a token, a step or a beam.

    Args:
        item: From the engine.
        parent: Node before it.
    """
    if isinstance(item, BeamNode):
        return Token(item.node, parent, item.text, b"", item.logprob, "beam")
    return Token(item.node, parent, item.text, item.raw, item.logprob, made(item))


def made(item: PromptToken | Step) -> str:
    """How a token entered the tree, in one word."""
    if isinstance(item, PromptToken):
        return PROMPT
    if item.origin == "sampled" and item.choice.reroll > 0:
        return "re-rolled"
    return _WORDS.get(item.origin, item.origin)


@dataclass(slots=True)
class Sums:
    """Logprobs of some tokens, added up."""

    tokens: int = 0
    known: int = 0
    """Tokens whose logprob is known."""
    logprob: float = 0.0
    """Of those that are known, together."""

    @property
    def mean(self) -> float | None:
        """Logprob of a token, None where none is known."""
        return self.logprob / self.known if self.known else None

    @property
    def perplexity(self) -> float | None:
        """exp(-mean), None where no logprob is known."""
        if self.mean is None:
            return None
        return math.exp(-self.mean) if self.mean > -700 else math.inf

    def add(self, other: Sums, sign: int = 1) -> None:
        """Put others to these, or with -1 take them away."""
        self.tokens += sign * other.tokens
        self.known += sign * other.known
        self.logprob += sign * other.logprob


@dataclass(slots=True, eq=False)
class Branch:
    """One run of tokens. The object of a run may change when it is cut or joined; `first` identifies it."""

    nodes: list[int]
    sums: Sums
    parent: Branch | None = None
    children: list[Branch] = field(default_factory=list)
    """In the order of their first nodes: oldest first."""

    @property
    def first(self) -> int:
        return self.nodes[0]

    @property
    def last(self) -> int:
        return self.nodes[-1]


def sums_of(tokens: Iterable[Token]) -> Sums:
    """The logprobs of some tokens, added up."""
    total = Sums()
    for token in tokens:
        total.tokens += 1
        if token.logprob is not None:
            total.known += 1
            total.logprob += token.logprob
    return total

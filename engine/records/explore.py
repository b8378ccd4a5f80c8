"""What might come, and what could be put here: look-ahead, the vocabulary at a step, typed text, breakpoints."""

from __future__ import annotations

from dataclasses import dataclass

from engine.records.steps import Candidate


@dataclass(frozen=True, slots=True)
class AheadLine:
    """One candidate, and what greedy decoding would bring after it."""

    id: int
    """The candidate."""
    ids: tuple[int, ...]
    """The tokens after it, an end-of-sequence token included."""
    text: str
    """The characters that these tokens finish, after those of the candidate; without an end-of-sequence token."""
    logprob: float
    """Of the candidate and all tokens after it together, float32 log-softmax of the model's own logits."""
    ended: bool
    """Whether an end-of-sequence token was reached."""


@dataclass(frozen=True, slots=True)
class LookedAhead:
    """How far a look ahead has come: told after every token, all lines anew."""

    node: int
    """The candidates stand after it."""
    lines: tuple[AheadLine, ...]
    """In the order in which the candidates were asked for."""
    tokens: int
    """How many each line is to have, unless it ends before."""
    last: bool
    ms: float
    """Since the look began."""
    note: str = ""
    """Why the lines go through the model one after another, or the path had to be computed again, if so."""


@dataclass(frozen=True, slots=True)
class TokensFound:
    """Tokens of the vocabulary that a search found, with what model and sampler make of them after one node."""

    node: int
    query: str
    matches: tuple[Candidate, ...]
    """The most probable first, at most as many as were asked for."""
    total: int
    """How many match in all."""
    mass: float
    """Probability of all that match together, by the model."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a text as the tokenizer cuts it."""

    id: int
    text: str
    """The characters that it finishes; empty while they are unfinished."""
    raw: bytes
    special: bool


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A text was cut into tokens; nothing was taken."""

    text: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class BreakpointHit:
    """A run stopped because of its breakpoints."""

    node: int
    """Where the session stands."""
    conditions: tuple[str, ...]
    """Those that held, each as a sentence with its figures: `entropy 3.21 bits is above 3.00`."""

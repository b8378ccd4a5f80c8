"""Exploring: look-ahead, searches of the vocabulary at a step, typed text, breakpoints."""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.steps import Candidate


@frozen
class AheadLine:
    """One candidate, and the tokens that greedy decoding would take after it."""

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


@frozen
class LookedAhead(Answer):
    """The state of a look-ahead: emitted after every token, with all lines so far."""

    node: int
    """The node before the candidates."""
    lines: tuple[AheadLine, ...]
    """In the order of the candidates in the command."""
    tokens: int
    """How many each line will have, unless it ends before."""
    last: bool
    ms: float
    """Since the look-ahead began."""
    note: str = ""
    """Why the lines run through the model one after another, or the path was recomputed; empty if neither."""


@frozen
class TokensFound(Answer):
    """Tokens of the vocabulary that a search found, with what model and sampler make of them after one node."""

    node: int
    query: str
    matches: tuple[Candidate, ...]
    """The most probable first, at most the requested number."""
    total: int
    """How many match in all."""
    mass: float
    """Probability of all that match together, by the model."""
    note: str = ""
    """That these numbers are of another cut into chunks than the path's, a sentence; empty where they aren't."""


@frozen
class Piece:
    """One token of a text as the tokenizer cuts it."""

    id: int
    text: str
    """The characters that it finishes; empty while they are unfinished."""
    raw: bytes
    special: bool


@frozen
class Tokenized(Answer):
    """A text was cut into tokens; nothing was taken."""

    text: str
    pieces: tuple[Piece, ...]


@frozen
class PromptPreview(Answer):
    """A prompt as it would be prefilled, the chat template filled and cut into tokens; nothing was taken."""

    tokens: int
    """Of the prompt."""
    special: int
    """Special tokens among them."""
    shared: int
    """First tokens that are those of the current path."""
    first: tuple[Piece, ...]
    """The first tokens; all of them, where `last` is empty."""
    last: tuple[Piece, ...]
    """The last tokens of a prompt that is too long to be handed out as a whole."""
    notes: tuple[str, ...]
    """Requests that can't be met."""


@frozen
class BreakpointHit:
    """A run stopped because of its breakpoints."""

    node: int
    """The session's current node."""
    conditions: tuple[str, ...]
    """Those that held, each as a sentence with its figures: `entropy 3.21 bits is above 3.00`."""

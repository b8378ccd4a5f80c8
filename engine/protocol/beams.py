"""Commands and records of beam searches."""

from __future__ import annotations

from typing import Literal

from engine.beam_settings import BeamSettings
from engine.frozen import frozen
from engine.protocol.base import Command, Record
from engine.protocol.floats import Endless


@frozen
class SearchBeams(Command):
    """Search with beams from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or paused after `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: int | None = None
    """Steps to take, None for all."""


@frozen
class GoOnBeams(Command):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: int | None = None
    """Steps to take, None for all."""


@frozen
class Beam:
    """A live hypothesis of a beam search, after one of its steps."""

    node: int
    parent: int
    """Node of the beam that it grew from."""
    place: int
    """Among the live beams of its step, 0 the best."""
    parent_place: int
    """Of the beam that it grew from, among those of the step before."""
    id: int
    """The token that it grew by."""
    text: str
    """The characters that this token finished."""
    logprob: Endless
    """Of this token: float32 log-softmax of the model's own logits, no sampler."""
    total_logprob: Endless
    """Of all tokens since the search began."""
    score: Endless
    """total_logprob / length ** length_penalty."""
    length: int
    """Tokens since the search began."""


@frozen
class Hypothesis:
    """A continuation that a beam search finished, or greedy decoding."""

    node: int
    """Its last token's."""
    ids: tuple[int, ...]
    """Its tokens, an end-of-sequence token included."""
    text: str
    """Without the end-of-sequence token."""
    logprob: Endless
    """Of all its tokens."""
    score: Endless
    length: int
    reason: Literal["eos", "length"]
    end: str = ""
    """How its end-of-sequence token is written: a model may have several, which end the same text."""


@frozen
class BeamOpened(Record):
    """A beam search began."""

    node: int
    """The session's current node, before and after."""
    width: int
    length_penalty: float
    early_stopping: bool
    max_tokens: int
    """The requested number, or fewer where the context window ends before."""
    note: str = ""
    """Why the beams run through the model one after another, empty if they run at once."""


@frozen
class BeamStep(Record):
    """Every live beam grew by a token."""

    step: int
    """From 1."""
    live: tuple[Beam, ...]
    """Best first; empty once the search is over and only greedy decoding continues."""
    pruned: tuple[Beam, ...]
    """Beams of the step before that no live beam or hypothesis extends."""
    finished: tuple[Hypothesis, ...]
    """The best so far, at most as many as the width, best first."""
    greedy: Beam | None
    """The tip of greedy decoding; its place is -1 unless it is a live beam. None once it ended before."""
    rows: int
    """Sequences that the model ran for the next step."""
    ms: float
    last: bool
    """True if `BeamEnded` follows."""


@frozen
class BeamEnded(Record):
    """A beam search is over."""

    ranking: tuple[Hypothesis, ...]
    """Best score first."""
    greedy: Hypothesis
    """The result of greedy decoding; with the same node where the ranking has it, too."""
    left: tuple[Beam, ...]
    """Beams that were live when the finished ones were good enough."""
    steps: int
    """Of the search; greedy decoding may have continued longer."""
    reason: Literal["finished", "length"]
    """`finished` where enough hypotheses did, `length` where max tokens were reached."""
    ms: float

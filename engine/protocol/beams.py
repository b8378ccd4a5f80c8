"""Commands and records of beam searches."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.beam_settings import BeamSettings
from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite


class SearchBeams(Command, frozen=True):
    """Search with beams from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or paused after `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: Count | None = None
    """Steps to take, None for all."""


class GoOnBeams(Command, frozen=True):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: Count | None = None
    """Steps to take, None for all."""


class Beam(Struct, frozen=True):
    """A live hypothesis of a beam search, after one of its steps."""

    node: Count
    parent: Count
    """Node of the beam that it grew from."""
    place: Count
    """Among the live beams of its step, 0 the best."""
    parent_place: Count
    """Of the beam that it grew from, among those of the step before."""
    id: Count
    """The token that it grew by."""
    text: str
    """The characters that this token finished."""
    logprob: float
    """Of this token: float32 log-softmax of the model's own logits, no sampler."""
    total_logprob: float
    """Of all tokens since the search began."""
    score: float
    """total_logprob / length ** length_penalty."""
    length: Count
    """Tokens since the search began."""


class Hypothesis(Struct, frozen=True):
    """A continuation that a beam search finished, or greedy decoding."""

    node: Count
    """Its last token's."""
    ids: tuple[Count, ...]
    """Its tokens, an end-of-sequence token included."""
    text: str
    """Without the end-of-sequence token."""
    logprob: float
    """Of all its tokens."""
    score: float
    length: Count
    reason: Literal["eos", "length"]
    end: str = ""
    """How its end-of-sequence token is written: a model may have several, which end the same text."""


class BeamOpened(Record, frozen=True):
    """A beam search began."""

    node: Count
    """The session's current node, before and after."""
    width: Count
    length_penalty: Finite
    early_stopping: bool
    max_tokens: Count
    """The requested number, or fewer where the context window ends before."""
    note: str = ""
    """Why the beams run through the model one after another, empty if they run at once."""


class BeamStep(Record, frozen=True):
    """Every live beam grew by a token."""

    step: Count
    """From 1."""
    live: tuple[Beam, ...]
    """Best first; empty once the search is over and only greedy decoding continues."""
    pruned: tuple[Beam, ...]
    """Beams of the step before that no live beam or hypothesis extends."""
    finished: tuple[Hypothesis, ...]
    """The best so far, at most as many as the width, best first."""
    greedy: Beam | None
    """The tip of greedy decoding; its place is -1 unless it is a live beam. None once it ended before."""
    rows: Count
    """Sequences that the model ran for the next step."""
    ms: Finite
    last: bool
    """True if `BeamEnded` follows."""


class BeamEnded(Record, frozen=True):
    """A beam search is over."""

    ranking: tuple[Hypothesis, ...]
    """Best score first."""
    greedy: Hypothesis
    """The result of greedy decoding; with the same node where the ranking has it, too."""
    left: tuple[Beam, ...]
    """Beams that were live when the finished ones were good enough."""
    steps: Count
    """Of the search; greedy decoding may have continued longer."""
    reason: Literal["finished", "length"]
    """`finished` where enough hypotheses did, `length` where max tokens were reached."""
    ms: Finite

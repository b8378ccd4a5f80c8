"""A second model beside the session's: the distributions of both along one text.

P is the first model (the session's, or the one named first), Q the second. KL(P||Q) is in nats in these records and in
recordings; the screen shows it in bits (`kl_bits`), like entropies.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Count, Finite, OneProcess, Record
from engine.protocol.model import ModelFacts
from engine.protocol.steps import Candidate
from engine.settings import LoadSettings, Settings


class OpenLockstep(OneProcess, frozen=True):
    """Load a second model beside the first; answered by `LockstepMemory`, `Measuring` and `LockstepOpened`.

    If a second model is already open, it is dropped first, with `LockstepClosed`.
    """

    against: LoadSettings
    """Load settings of the second model; if they equal the first one's and `bits` is None, both share the weights."""
    bits: Count | None = None
    """Bits to quantize the second model to while it loads, as in mlx_lm.convert; None to load it as it is."""
    group_size: Count = 64
    """Number of weights that share a scale, if `bits` is set."""
    system: str | None = None
    """System prompt of the second model, instead of the conversation's; None to use the conversation's."""


class CloseLockstep(OneProcess, frozen=True):
    """Drop the second model; answered by `LockstepClosed`."""


class DiffText(OneProcess, frozen=True):
    """Read a text with both models; answered by `LockstepRead` records and one `LockstepEnded`."""

    text: str
    window: Count | None = None
    """Maximum number of each model's tokens in a window, at least 16; None for as many as fit both context windows."""
    candidates: Count = 0
    """Number of most probable tokens to list for each model before each span."""


class ReadLockstep(OneProcess, frozen=True):
    """Read the path to a node with both models, except for the part that was read before; answered by `LockstepRead`
    records."""

    node: Count
    candidates: Count = 12
    """Number of most probable tokens to list for each model before each span."""


class ExplainSecond(OneProcess, frozen=True):
    """Explain the sampler stage by stage on the second model's distribution after a node, with the session's settings
    and draw; answered by `Explained`."""

    node: Count
    settings: Settings | None = None
    """Settings to use; None for the last ones that the session used at the node."""
    reroll: Count = 0
    """Number of repeats of the draw."""


class FollowSecond(OneProcess, frozen=True):
    """Take the second model's pick after a node; answered by `LockstepRead` records and a `Step`."""

    stoppable: ClassVar[bool] = True
    node: Count


class PartWays(OneProcess, frozen=True):
    """Let both models continue from a node with their own picks.

    Answered by `LockstepRead` and `Measuring` records and one `WaysParted`.
    """

    node: Count
    tokens: Count = 40
    """Maximum number of tokens that each model decodes."""


Alignment = Literal["ids", "bytes"]
"""`ids`: both models have the same tokens, which are compared one by one. `bytes`: each model tokenizes the text with
its own tokenizer, and they are compared between common token borders."""


class LockstepMemory(Record, frozen=True):
    """The memory that a second model needs; emitted before it is loaded."""

    first_bytes: Count
    """Bytes of the first model's weights in memory."""
    second_bytes: Count
    """Bytes of the second model's weights, estimated from the headers of its files; 0 if both share their weights."""
    free_bytes: Count | None
    """Bytes that are free on the models' device before loading; None if the system doesn't report it."""


class LockstepOpened(Record, frozen=True):
    """A second model is ready beside the first."""

    facts: ModelFacts
    """Facts about the second model, without its special tokens and its chat template."""
    title: str
    """Name of the second model, and its differences from the first."""
    aligned: Alignment
    notes: tuple[str, ...] = ()
    """Reasons why some values can't be compared, and notes on loading the second model: one sentence each."""


class LockstepClosed(Record, frozen=True):
    """The second model was dropped."""

    title: str
    """Title of the dropped model; empty if there was none."""


class LockstepSpan(Struct, frozen=True):
    """A piece of text between two token borders that both models share: usually one token of each."""

    node: Count
    """Node of the first model's last token in the session's tree; -1 for a text outside the tree."""
    position: Count
    """Position of the first model's first token in the text, from 0."""
    tokens: Count
    """Number of the first model's tokens; 0 for the distributions after the last token."""
    other_tokens: Count
    text: str
    """Characters that the first model's tokens complete."""
    raw: bytes
    logprob: float | None
    """Sum of the first model's logprobs of the scored tokens, natural logarithm; None if none is scored."""
    other_logprob: float | None
    scored: Count
    """Number of tokens with a logprob by the first model; the first token of a text has none."""
    other_scored: Count
    entropy_bits: Finite | None
    """Entropy of the first model's distribution before the span; None at the beginning of the text."""
    other_entropy_bits: Finite | None
    kl_nats: float | None
    """KL(P||Q) of the distributions before the span; None if the vocabularies differ or a distribution is missing."""
    rank: Count | None
    """Rank of the token by the first model; None if the vocabularies differ or the token isn't scored."""
    other_rank: Count | None
    same_top: bool | None
    """True if both have the same most probable token; None if the vocabularies differ or a distribution is missing."""
    candidates: tuple[Candidate, ...] = ()
    """The first model's most probable tokens before the span, best first; `sampler_prob` equals `prob`."""
    other_candidates: tuple[Candidate, ...] = ()

    @property
    def whole(self) -> bool:
        """True if both models score all tokens of the span, so that both logprobs cover the same bytes."""
        return bool(self.tokens) and (self.scored, self.other_scored) == (self.tokens, self.other_tokens)

    @property
    def kl_bits(self) -> float | None:
        """KL divergence in bits."""
        return None if self.kl_nats is None else self.kl_nats / math.log(2)

    @property
    def logprob_change(self) -> float | None:
        """The second model's logprob minus the first's; None unless both score the whole span."""
        if not self.whole or self.logprob is None or self.other_logprob is None:
            return None
        return self.other_logprob - self.logprob

    @property
    def rank_change(self) -> int | None:
        """The second model's rank minus the first's: positive if the token ranks lower in the second."""
        return None if self.rank is None or self.other_rank is None else self.other_rank - self.rank


class LockstepRead(Record, frozen=True):
    """Spans of a text read with both models, in order; they replace earlier spans from `since` on."""

    node: Count
    """Last node of the path that is read, in the session's tree; -1 for a text outside the tree."""
    since: Count
    """Position of the first of these spans."""
    spans: tuple[LockstepSpan, ...]
    done: Count
    """Number of the first model's tokens that are read, out of `total`."""
    total: Count
    ms: Finite
    """Time of the first model's forward passes for these spans."""
    other_ms: Finite
    ahead: LockstepSpan | None = None
    """Both distributions after the path's last token, in the last record of the path; otherwise None."""
    other_pick: Count | None = None
    """Id of the token that the sampler picks from the second distribution in `ahead`, with the same settings and draw;
    None if the tokenizers differ."""


class LockstepEnded(Record, frozen=True):
    """A text was read with both models."""

    window: Count
    """Maximum number of the first model's tokens in a window; 0 if the text was read in a single window."""
    context: Count
    """Minimum number, from the second window on, of the first model's tokens before a scored token."""
    kv_bytes: Count
    """Maximum bytes of the first model's cache at the end of a window."""
    other_kv_bytes: Count
    peak_bytes: Count
    """Peak memory of both models together, as reported by MLX."""


class WayPart(Struct, frozen=True):
    """A piece of two continuations: the same text in both, or different texts."""

    text: str
    """Text of the first model's continuation."""
    other_text: str
    same: bool


class WaysParted(Record, frozen=True):
    """Continuations of both models after one node, each model with its own picks, under the same settings and draws."""

    node: Count
    tokens: Count
    """Maximum number of tokens that each model decodes."""
    ids: tuple[Count, ...]
    other_ids: tuple[Count, ...]
    parts: tuple[WayPart, ...]
    """Pieces of both continuations, in order."""
    parted: Count | None
    """Number of the first model's tokens before the first difference; None if there is no difference."""
    meetings: Count
    """Number of later pieces of at least three words in which both texts are the same again."""
    ms: Finite

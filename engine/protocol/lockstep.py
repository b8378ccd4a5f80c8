"""Two models in lockstep: the second one beside the session's, and both distributions along one text.

The first model is P, the second Q: the session's own, or the one that is named first, is P. KL(P||Q) is in nats
here, as recordings hold it, and shown in bits (`kl_bits`), as entropies are.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Record
from engine.protocol.model import ModelFacts
from engine.protocol.steps import Candidate
from engine.settings import LoadSettings, Settings


class OpenLockstep(Command, frozen=True):
    """Load a second model beside the first; answered by `LockstepMemory`, `Measuring` and `LockstepOpened`."""

    over_ranks: ClassVar[bool] = False
    against: LoadSettings
    """The second model; with the first one's settings it shares the first one's weights."""
    bits: Count | None = None
    """Quantize it while it is loaded, as mlx_lm.convert does; None for what its files hold."""
    group_size: Count = 64
    """Weights that share a scale, where it is quantized."""
    system: str | None = None
    """The system prompt that the second model gets in the place of the conversation's; None for the same one."""


class CloseLockstep(Command, frozen=True):
    """Drop the second model; answered by `LockstepClosed`."""

    over_ranks: ClassVar[bool] = False


class DiffText(Command, frozen=True):
    """Read a text in both models; answered by `LockstepRead` records and one `LockstepEnded`."""

    over_ranks: ClassVar[bool] = False
    text: str
    window: Count | None = None
    """Tokens of the first model's in a window; None for all that fits the context windows of both."""
    candidates: Count = 0
    """Most probable tokens of each that are listed at each place."""


class ReadLockstep(Command, frozen=True):
    """Read what was not yet read of the path to a node in both models; answered by `LockstepRead` records."""

    over_ranks: ClassVar[bool] = False
    node: Count
    candidates: Count = 12
    """Most probable tokens of each that are listed at each place."""


class ExplainSecond(Command, frozen=True):
    """Explain what the sampler makes of the second model's distribution after a node, with the settings and the draw
    that the first model's had; answered by `Explained`."""

    over_ranks: ClassVar[bool] = False
    node: Count
    settings: Settings | None = None
    """With which the token after it was, or will be, picked; None for those that the session was at the node with."""
    reroll: Count = 0
    """How often that draw was repeated."""


class FollowSecond(Command, frozen=True):
    """Take the token after a node that the second model picks; answered by a `Step`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: Count


class PartWays(Command, frozen=True):
    """Let both models go on from a node with their own picks; answered by `Measuring` records and `WaysParted`."""

    over_ranks: ClassVar[bool] = False
    node: Count
    tokens: Count = 40
    """Decoded by each at most."""


Alignment = Literal["ids", "bytes"]
"""`ids`: both have the same tokens, compared one by one. `bytes`: each cuts the text with its own tokenizer, and they
are compared between the places where both have a border."""


class LockstepMemory(Record, frozen=True):
    """The memory that a second model will need; emitted before it is loaded."""

    first_bytes: Count
    """Weights of the first model, as they are in memory."""
    second_bytes: Count
    """Weights of the second, estimated from the headers of its files; 0 where both share their weights."""
    free_bytes: Count | None
    """Of the machine before it is loaded; None where the system doesn't report it."""


class LockstepOpened(Record, frozen=True):
    """A second model is ready beside the first."""

    facts: ModelFacts
    """Of the second, without its special tokens and its template."""
    title: str
    """What it is: its name, and how it differs from the first."""
    aligned: Alignment
    notes: tuple[str, ...] = ()
    """What can't be compared and why: one sentence each."""


class LockstepClosed(Record, frozen=True):
    """There is no second model any more."""

    title: str
    """What it was; empty where there was none."""


class LockstepSpan(Struct, frozen=True):
    """A piece of the text that both models have between two borders: as a rule one token of each."""

    node: Count
    """Of the last token of the first model's, in the session's tree; -1 for a text outside of it."""
    position: Count
    """Of its first token of the first model's, in the text."""
    tokens: Count
    """Of the first model's; 0 for what may follow the last one."""
    other_tokens: Count
    text: str
    """The characters that its tokens finish."""
    raw: bytes
    logprob: float | None
    """Of its scored tokens together in the first model, natural logarithm; None where none is scored."""
    other_logprob: float | None
    scored: Count
    """Of its tokens in the first model: the first of a text has nothing before it, and no score."""
    other_scored: Count
    entropy_bits: Finite | None
    """Of the first model's distribution before it; None where nothing is before it."""
    other_entropy_bits: Finite | None
    kl_nats: float | None
    """KL(P||Q) of the distributions before it; None where they are over different tokens."""
    rank: Count | None
    """Of the token in the first model's distribution; None for several tokens."""
    other_rank: Count | None
    same_top: bool | None
    """True if both have the same most probable token; None where they have different tokens."""
    candidates: tuple[Candidate, ...] = ()
    """The most probable tokens before it by the first model, best first; `sampler_prob` equals `prob`."""
    other_candidates: tuple[Candidate, ...] = ()

    @property
    def whole(self) -> bool:
        """True if all its tokens are scored by both, so that their logprobs are about the same bytes."""
        return bool(self.tokens) and (self.scored, self.other_scored) == (self.tokens, self.other_tokens)

    @property
    def kl_bits(self) -> float | None:
        """The divergence in bits."""
        return None if self.kl_nats is None else self.kl_nats / math.log(2)

    @property
    def logprob_change(self) -> float | None:
        """The second model's logprob less the first's; None where not both score the whole span."""
        if not self.whole or self.logprob is None or self.other_logprob is None:
            return None
        return self.other_logprob - self.logprob

    @property
    def rank_change(self) -> int | None:
        """The second model's rank less the first's: positive where it is less likely to the second one."""
        return None if self.rank is None or self.other_rank is None else self.other_rank - self.rank


class LockstepRead(Record, frozen=True):
    """Some spans of a text in both models, in its order; those from `since` on replace what was read there before."""

    node: Count
    """End of the path that is read, in the session's tree; -1 for a text outside of it."""
    since: Count
    """Position of the first of these spans."""
    spans: tuple[LockstepSpan, ...]
    done: Count
    """Tokens of the first model's that are read, out of `total`."""
    total: Count
    ms: Finite
    """Forwards of the first model for these spans."""
    other_ms: Finite
    ahead: LockstepSpan | None = None
    """Both distributions after the last token, where these spans reach it."""
    other_pick: Count | None = None
    """The token that the sampler takes from the second model's distribution there, with the same settings and draw."""


class LockstepEnded(Record, frozen=True):
    """A text was read in both models."""

    window: Count
    """Tokens of a window at most; 0 where the text was read in one."""
    context: Count
    """Tokens before a scored one at least, from the second window on."""
    kv_bytes: Count
    """Of the first model's cache at the end of a window, at most."""
    other_kv_bytes: Count
    peak_bytes: Count
    """Memory at its peak, as MLX reports it, both models included."""


class WayPart(Struct, frozen=True):
    """A piece of two continuations: the same text in both, or different texts."""

    text: str
    """Of the first model's way."""
    other_text: str
    same: bool


class WaysParted(Record, frozen=True):
    """Both models went on from one token, each with its own picks, the same settings and the same draws."""

    node: Count
    tokens: Count
    """Decoded by each at most."""
    ids: tuple[Count, ...]
    other_ids: tuple[Count, ...]
    parts: tuple[WayPart, ...]
    """Both ways in order."""
    parted: Count | None
    """How many tokens of the first model's way come before the first difference; None where there is none."""
    meetings: Count
    """How often they meet again after it."""
    ms: Finite

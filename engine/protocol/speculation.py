"""Commands and records of speculative decoding."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.breakpoints import Breakpoints
from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite
from engine.speculation_settings import SpeculationSettings


class LoadDraft(Command, frozen=True):
    """Have a draft ready; answered by `DraftLoading` records and `DraftReady`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings


class TakeRound(Command, frozen=True):
    """Take a round of speculative decoding; answered by a `Step` a token, and `DraftRound`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    inside: bool = False
    """Only the next stage of the round: propose, verify, take. Each is answered by a `DraftRound`."""


class RunRounds(Command, frozen=True):
    """Take rounds until a stop, a breakpoint or a cancel, each of which holds inside a round, too."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    until: Breakpoints | None = None
    """As for `Run`."""
    over_sure: bool = False
    """As for `Run`."""
    plain: Count = 0
    """Plain steps to take first: what the rounds are measured against."""


class VerifySpeculation(Command, frozen=True):
    """Decode what follows a node again by plain steps, in separate caches; answered by `SpeculationVerified`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: Count
    """On the path to the current node, which ends the stretch."""


DraftFate = Literal["drafted", "accepted", "refused", "unseen"]
"""`drafted`: not verified yet. `refused`: the sampler took another token. `unseen`: behind a refused token or a stop,
so that nobody looked at it."""
RoundStage = Literal["proposed", "verified", "taken"]


class DraftLoading(Record, frozen=True):
    """The draft's model is being loaded."""

    lasting: ClassVar[bool] = False
    name: str
    done: Count
    total: Count
    """0 where that is not known."""


class DraftReady(Record, frozen=True):
    """A draft is ready to propose tokens."""

    settings: SpeculationSettings
    weight_bytes: Count
    """Of its model; 0 without one."""
    ms: Finite
    """Of loading it; 0 where it was there."""
    note: str = ""


class AcceptanceRates(Struct, frozen=True):
    """The probability that a drafted token is accepted, before it is drawn, by three rules.

    Each is computed from the two distributions after the same path; nothing ran again. See `engine.decoding.
    speculative.rules`.
    """

    position_draw: Finite
    """The rule in force: draft and target draw with the random number of the position."""
    rejection: Finite
    """Accept with probability min(1, p/q), else draw from the residual (Leviathan et al. 2023)."""
    match: Finite
    """The draft samples a token, the target another one: accept where they are equal (mlx_lm)."""


class DraftToken(Struct, frozen=True):
    """One token of a draft."""

    id: Count
    text: str
    """The characters that it would finish; empty while they are unfinished."""
    raw: bytes
    fate: DraftFate
    draft_prob: Finite | None = None
    """The draft's own probability of it, after the sampler; None where the draft has no probabilities."""
    target_prob: Finite | None = None
    """The probability with which the session's sampler draws it; None if nobody looked."""
    rank: Count | None = None
    """By the model's own logits, 1 for the most probable; None where nobody looked."""
    rates: AcceptanceRates | None = None
    """None where nobody looked."""


class TakenInstead(Struct, frozen=True):
    """The token that the sampler took in the place of the refused one: the next round, or step, begins with it."""

    id: Count
    text: str
    raw: bytes
    draft_prob: Finite | None
    target_prob: Finite


class DraftRound(Record, frozen=True):
    """One round of speculative decoding: tokens were drafted, verified in one forward, and taken as far as they hold.

    It follows the `Step` records of its tokens. A round that is gone through in stages has a record for each.
    """

    node: Count
    """The node that it began at."""
    end: Count
    """The node of the last token taken; `node` while none is."""
    stage: RoundStage
    settings: SpeculationSettings
    first: Count
    """Id of the token that was known before: the sampler had picked it after `node`."""
    first_text: str
    drafts: tuple[DraftToken, ...]
    """Empty where the draft proposed nothing: then the round is a plain step."""
    instead: TakenInstead | None
    """None where no draft was refused."""
    matched: Count
    """Of a lookup: tokens at the end of the text that stood there before; 0 for models."""
    taken: Count
    """Tokens that the round added: the first and the accepted ones."""
    verified: Count
    """Tokens of the forward that verified them."""
    draft_ms: Finite
    verify_ms: Finite
    """The forward, and the sampler at each of its tokens as far as they held."""
    take_ms: Finite
    """Nodes, records and readings of the tokens taken, and the removal of the others' KV."""
    ms: Finite
    """All of it, without `rates_ms`."""
    rates_ms: Finite
    """For the acceptance rates, which plain speculation doesn't compute."""
    stalled_ms: Finite
    """Garbage collection and drawing of the screen meanwhile, which are no part of the times above."""
    note: str = ""
    """Why the verification costs more here, if it does."""


class SpeculationVerified(Record, frozen=True):
    """A stretch of text was decoded again by plain steps, in separate caches."""

    begin: Count
    """The node before the stretch."""
    end: Count
    """Its last node."""
    tokens: Count
    """Of the stretch, as far as they were compared."""
    chosen: Count
    """Tokens that a person chose, which no sampler took: they are run and not compared."""
    differs: Count | None
    """The first node with another token than a plain step takes; None where all are equal."""
    plain: Count | None
    """Id of the token that a plain step takes there; None where all are equal."""
    plain_text: str
    difference: float
    """The largest absolute difference of the logits, over all nodes whose logits are kept."""
    plain_ms: Finite
    """Of a plain step here: forward and sampler, the median."""

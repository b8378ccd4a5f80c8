"""Commands and records of models that several processes compute."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.measuring import Measure


@frozen
class MeasureRanks(Measure):
    """What each rank holds, and its time in compute and communication; answered by one `RanksMeasured`.

    Refused where the model runs in this process alone.
    """

    rounds: int = 5
    """Counted rounds, after one that warms up."""


Sharding = Literal["tensor", "pipeline"]
"""`tensor`: every rank has a part of each weight of all layers. `pipeline`: every rank has some whole layers."""


@frozen
class RankFacts:
    """One process of several that compute a model together, at one moment."""

    rank: int
    """From 0, which has the screen, samples and decides."""
    host: str
    """Name of its machine."""
    pid: int
    first_layer: int
    """From 0, in the order in which tokens go through the layers."""
    layers: int
    """How many it has: all with `tensor`."""
    weight_bytes: int
    """Of its own weights. What every rank has whole (embedding, norms, head) counts on each."""
    memory_bytes: int
    """Of the process, resident; on macOS its peak so far, 0 where the system doesn't report it."""
    kv_used_bytes: int
    """Of the session's live cache on this rank: bytes that hold tokens or state."""
    kv_allocated_bytes: int
    """Bytes that this cache has allocated."""


@frozen
class RanksLoaded(Record):
    """A model was loaded over several processes; follows its `ModelFacts`, which are of the whole model."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    """In their order; nothing is in the caches yet."""


@frozen
class RankTime:
    """Where the time of one token's forward went on one rank, with a fence before and after each communication."""

    rank: int
    compute_ms: float
    """Of the best round."""
    communication_ms: float
    """Of the same round, waiting for other ranks included."""
    compute_spread_ms: float
    """Between the least and the greatest of all counted rounds."""
    communication_spread_ms: float


@frozen
class RanksMeasured(Record):
    """The contents of the ranks now, and the time of one more token on each; the session did not change."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    tokens: int
    """That the cache held before the token."""
    rounds: int
    """Counted, after one that warms up."""
    step_ms: float
    """Of one token without fences, the best of as many rounds, on rank 0."""
    step_spread_ms: float
    times: tuple[RankTime, ...]
    """By rank."""
    slowest: int
    """The rank that computes longest: the others wait for it."""

"""Commands and records of models that several processes compute."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.measuring import Measure
from engine.protocol.numbers import Count, Finite


class MeasureRanks(Measure, frozen=True):
    """What each rank holds, and its time in compute and communication; answered by one `RanksMeasured`.

    Refused where the model runs in this process alone.
    """

    rounds: Count = 5
    """Counted rounds, after one that warms up."""


Sharding = Literal["tensor", "pipeline"]
"""`tensor`: every rank has a part of each weight of all layers. `pipeline`: every rank has some whole layers."""


class RankFacts(Struct, frozen=True):
    """One process of several that compute a model together, at one moment."""

    rank: Count
    """From 0, which has the screen, samples and decides."""
    host: str
    """Name of its machine."""
    pid: Count
    first_layer: Count
    """From 0, in the order in which tokens go through the layers."""
    layers: Count
    """How many it has: all with `tensor`."""
    weight_bytes: Count
    """Of its own weights. What every rank has whole (embedding, norms, head) counts on each."""
    memory_bytes: Count
    """Of the process, resident; on macOS its peak so far, 0 where the system doesn't report it."""
    kv_used_bytes: Count
    """Of the session's live cache on this rank: bytes that hold tokens or state."""
    kv_allocated_bytes: Count
    """Bytes that this cache has allocated."""


class RanksLoaded(Record, frozen=True):
    """A model was loaded over several processes; follows its `ModelFacts`, which are of the whole model."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    """In their order; nothing is in the caches yet."""


class RankTime(Struct, frozen=True):
    """Where the time of one token's forward went on one rank, with a fence before and after each communication."""

    rank: Count
    compute_ms: Finite
    """Of the best round."""
    communication_ms: Finite
    """Of the same round, waiting for other ranks included."""
    compute_spread_ms: Finite
    """Between the least and the greatest of all counted rounds."""
    communication_spread_ms: Finite


class RanksMeasured(Record, frozen=True):
    """The contents of the ranks now, and the time of one more token on each; the session did not change."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    tokens: Count
    """That the cache held before the token."""
    rounds: Count
    """Counted, after one that warms up."""
    step_ms: Finite
    """Of one token without fences, the best of as many rounds, on rank 0."""
    step_spread_ms: Finite
    times: tuple[RankTime, ...]
    """By rank."""
    slowest: Count
    """The rank that computes longest: the others wait for it."""

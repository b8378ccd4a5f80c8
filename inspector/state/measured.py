"""The measurements of the model, from the records as they come, live or recorded. Pure."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from engine.protocol import (
    KVCompared,
    Measure,
    ModelFacts,
    Profiled,
    PromptOpened,
    RaceEnded,
    RaceOpened,
    RaceStep,
    RanksLoaded,
    RanksMeasured,
    Record,
    RooflineMeasured,
)
from inspector.state.capability import CapabilityState, ReplayStop, measurable


class RaceSoFar(Struct):
    """One race; one that was paused and taken up again goes on."""

    opened: RaceOpened
    """How it began; where it goes to, and how it was measured, as reported last."""
    steps: list[RaceStep] = field(default_factory=list)
    """Their sums go on over pauses."""
    before: tuple[float, float] = 0.0, 0.0
    """Milliseconds with the cache and without, of the steps before the last pause."""

    @property
    def tokens(self) -> int:
        """Of the sequence so far."""
        return self.steps[-1].tokens if self.steps else self.opened.first

    def go_on(self, opened: RaceOpened) -> bool:
        """Take up again what was paused; returns whether it is the same race. Steps beyond that place run again."""
        if opened.node != self.opened.node or not self.opened.first < opened.first <= self.tokens:
            return False
        self.steps = [step for step in self.steps if step.tokens <= opened.first]
        self.before = self.steps[-1].cached_total_ms, self.steps[-1].uncached_total_ms
        self.opened = replace(opened, first=self.opened.first)
        return True

    def take(self, step: RaceStep) -> None:
        """Take in the next step; another one is of a race that was forgotten."""
        if step.tokens == self.tokens + 1:
            cached, uncached = self.before
            cached, uncached = step.cached_total_ms + cached, step.uncached_total_ms + uncached
            self.steps.append(replace(step, cached_total_ms=cached, uncached_total_ms=uncached))


class Measured(Struct, CapabilityState):
    """The last measurement of each kind."""

    TAKES = (
        RaceOpened, RaceStep, RaceEnded, Profiled, RooflineMeasured, KVCompared, RanksLoaded, RanksMeasured,
        ModelFacts, PromptOpened,
    )  # fmt: skip
    FAILS = (Measure,)
    STOPS: ClassVar = {
        RaceOpened: ReplayStop.BEGINS,
        RaceStep: ReplayStop.FIRST,
        Profiled: ReplayStop.EACH,
        RooflineMeasured: ReplayStop.EACH,
        KVCompared: ReplayStop.FIRST_AND_LAST,
    }
    SHOWN_BY: ClassVar = {
        RaceStep: "A race is here: {race} shows it",
        Profiled: "A step was taken apart here: {profile} shows it",
        RooflineMeasured: "The roofline was measured here: {profile} shows it",
        KVCompared: "Quantized KV was compared here: {compare_kv} shows it",
    }

    race: RaceSoFar | None = None
    profiled: Profiled | None = None
    roofline: RooflineMeasured | None = None
    compared: KVCompared | None = None
    loaded: RanksLoaded | None = None
    """How the model is divided over ranks; None where one process computes it."""
    rank_count: int = 1
    """How many processes compute the model."""
    ranks: RanksMeasured | None = None

    def apply(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case ModelFacts():
                self.loaded, self.rank_count, self.ranks = None, 1, None
            case PromptOpened(new_tree=True):  # what is left holds for any tree of the model
                self.race = self.profiled = self.roofline = self.compared = self.ranks = None
            case RaceOpened():
                if self.race is None or not self.race.go_on(record):
                    self.race = RaceSoFar(record)
            case RaceStep() if self.race is not None:
                self.race.take(record)
            case Profiled():
                self.profiled = record
            case RooflineMeasured():
                self.roofline = record
            case KVCompared():
                self.compared = record
            case RanksLoaded():
                self.loaded, self.rank_count, self.ranks = record, len(record.ranks), None
            case RanksMeasured():
                self.ranks = record
            case _:
                pass

    @classmethod
    def sound(cls, record: Record) -> bool:
        """Tell whether a measurement can be drawn: what others are divided by is above zero."""
        above: tuple[float, ...] = ()
        match record:
            case KVCompared(costs=costs):  # how far logits change may be no number
                return all(measurable((each.bits, each.used_bytes, each.allocated_bytes)) for each in costs)
            case RaceStep():
                above = record.cached_ms, record.uncached_ms, record.cached_total_ms, record.uncached_total_ms
            case Profiled():
                above = record.fenced_ms, record.unfenced_ms
            case RooflineMeasured(decode=decode, prefill=prefill):
                works = [work for work in (decode, prefill) if work is not None]
                above = (
                    record.bandwidth_gbs,
                    record.matmul_gflops,
                    *(min(work.ms, work.flops) for work in works),
                )
            case RanksLoaded(ranks=ranks) | RanksMeasured(ranks=ranks):
                above = (len(ranks),)
            case RaceOpened() | RaceEnded():
                pass
            case _:
                return True
        return measurable(record) and all(each > 0 for each in above)

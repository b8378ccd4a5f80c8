"""The measurements of the model, built from live or recorded records."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from engine import protocol
from engine.protocol import ModelFacts, PromptOpened, Record
from inspector.state.capability import CapabilityState, ReplayStop, measurable


class RaceSoFar(Struct):
    """One race; a paused one can be continued."""

    opened: protocol.RaceOpened
    """The record of its beginning, updated with the end and the method reported last."""
    steps: list[protocol.RaceStep] = field(default_factory=list)
    """Steps so far; their totals continue over pauses."""
    before: tuple[float, float] = 0.0, 0.0
    """Milliseconds with and without the cache of all steps before the last pause."""

    @property
    def tokens(self) -> int:
        """Tokens of the sequence so far."""
        return self.steps[-1].tokens if self.steps else self.opened.first

    def go_on(self, opened: protocol.RaceOpened) -> bool:
        """Continue after a pause, without the steps that will run again; returns False if it is a different race."""
        if opened.node != self.opened.node or not self.opened.first < opened.first <= self.tokens:
            return False
        self.steps = [step for step in self.steps if step.tokens <= opened.first]
        self.before = self.steps[-1].cached_total_ms, self.steps[-1].uncached_total_ms
        self.opened = replace(opened, first=self.opened.first)
        return True

    def take(self, step: protocol.RaceStep) -> None:
        """Add a step if it is the next one; a step of a forgotten race is ignored."""
        if step.tokens == self.tokens + 1:
            cached, uncached = self.before
            cached, uncached = step.cached_total_ms + cached, step.uncached_total_ms + uncached
            self.steps.append(replace(step, cached_total_ms=cached, uncached_total_ms=uncached))


class Measured(Struct, CapabilityState):
    """The last measurement of each kind."""

    FAILS = (protocol.Measure,)
    STOPS: ClassVar = {
        protocol.RaceOpened: (ReplayStop.BEGINS, ""),
        protocol.RaceStep: (ReplayStop.FIRST, "A race is here: {race} shows it"),
        protocol.Profiled: (ReplayStop.EACH, "A step was taken apart here: {profile} shows it"),
        protocol.RooflineMeasured: (ReplayStop.EACH, "The roofline was measured here: {profile} shows it"),
        protocol.KVCompared: (
            ReplayStop.FIRST_AND_LAST,
            "Quantized KV was compared here: {compare_kv} shows it",
        ),
    }

    race: RaceSoFar | None = None
    profiled: protocol.Profiled | None = None
    roofline: protocol.RooflineMeasured | None = None
    compared: protocol.KVCompared | None = None
    loaded: protocol.RanksLoaded | None = None
    """Division of the model over ranks; None if one process computes it."""
    ranks: protocol.RanksMeasured | None = None

    def apply(self, record: Record) -> None:
        match record:
            case ModelFacts():
                self.loaded = self.ranks = None
            case PromptOpened(new_tree=True):  # what is left holds for any tree of the model
                self.race = self.profiled = self.roofline = self.compared = self.ranks = None
            case protocol.RaceOpened():
                if self.race is None or not self.race.go_on(record):
                    self.race = RaceSoFar(record)
            case protocol.RaceStep() if self.race is not None:
                self.race.take(record)
            case protocol.Profiled():
                self.profiled = record
            case protocol.RooflineMeasured():
                self.roofline = record
            case protocol.KVCompared():
                self.compared = record
            case protocol.RanksLoaded():
                self.loaded, self.ranks = record, None
            case protocol.RanksMeasured():
                self.ranks = record

    @classmethod
    def sound(cls, record: Record) -> bool:
        """True if a measurement can be drawn: all numbers can have been measured, and divisors are above zero."""
        divisors: tuple[float, ...] = ()
        match record:
            case protocol.KVCompared(costs=costs):  # the change of the logits may be NaN or infinite
                return all(measurable((each.bits, each.used_bytes, each.allocated_bytes)) for each in costs)
            case protocol.RaceStep():
                step = record.cached_ms, record.uncached_ms
                divisors = *step, record.cached_total_ms, record.uncached_total_ms
            case protocol.Profiled():
                divisors = record.fenced_ms, record.unfenced_ms
            case protocol.RooflineMeasured(decode=decode, prefill=prefill):
                works = (min(work.ms, work.flops) for work in (decode, prefill) if work is not None)
                divisors = (record.bandwidth_gbs, record.matmul_gflops, *works)
            case protocol.RanksLoaded(ranks=ranks) | protocol.RanksMeasured(ranks=ranks):
                divisors = (len(ranks),)
            case protocol.RaceOpened() | protocol.RaceEnded():
                pass
            case _:
                return True
        return measurable(record) and all(each > 0 for each in divisors)

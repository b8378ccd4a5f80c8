"""Two models over one text: the figures of llama.cpp's KL tool with its names, KL in bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import nlargest
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from engine.protocol import LockstepEnded, LockstepMemory, LockstepOpened, LockstepRead, LockstepSpan, Record
from engine.setting import MOST_FLOAT, Setting, SettingsStruct
from inspector.blocks.blocks import Fact
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.cli.exit import BAD_INPUT, BROKEN, OK, UNDECIDED
from inspector.cli.writers.generation import Report
from inspector.display import token_label, visible
from inspector.scales import milliseconds, size
from inspector.state.second_model import Divergences, Mean, mean, percentile

WORST = 5
"""Number of places with the largest divergence that are shown."""
AROUND = 6
"""Number of tokens shown before such a place."""
PERCENTILES = (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 0.001)


# ---- a gate: bounds on the figures of a comparison -----------------------------------------------

Verdict = Literal["holds", "undecided", "broken", "unknown"]
WORDS: dict[Verdict, str] = {
    "holds": "holds", "broken": "BROKEN", "unknown": "can't be decided",
    "undecided": "within two standard errors: a longer text decides",
}  # fmt: skip


class Bounds(SettingsStruct, frozen=True):
    """Bounds on how far the second model may differ from the first; None if a figure is not bounded."""

    max_kld: Annotated[Annotated[float, Meta(ge=0, le=MOST_FLOAT)] | None, Setting("", "BITS")] = None
    """Mean KL divergence, in bits/token."""
    min_same_top: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Setting("", "SHARE")] = None
    """Share of places where both have the same most probable token, 0 to 1."""
    max_ppl_ratio: Annotated[Annotated[float, Meta(ge=1, le=MOST_FLOAT)] | None, Setting("", "X")] = None
    """Ratio of the perplexities, the larger by the smaller: one that is much smaller is another model, too."""


NO_BOUNDS = Bounds()


class Judged(Struct, frozen=True):
    """One figure, its bound and the verdict."""

    name: str
    bound: float
    verdict: Verdict
    value: Mean | None
    """The figure; None if it could not be computed."""


def judge(bounds: Bounds, figures: Divergences, complete: bool) -> list[Judged]:
    """Check the figures of a comparison against bounds.

    Args:
        bounds: Figures without a bound are left out.
        figures: The figures of everything that was read.
        complete: Whether the whole text was read; otherwise each verdict is `unknown`.
    """
    kl = mean(figures.kl) if complete and figures.kl else None
    top = figures.same_top if complete and figures.tops else None
    log, ratio = (figures.log_ratio, figures.ratio) if complete and figures.by_ids else (None, None)
    differing = top and Mean(1 - top.value, top.error)
    apart = log and Mean(abs(log.value), log.error)
    found = (
        ("mean KLD", kl, bounds.max_kld, kl, bounds.max_kld or 0.0),
        ("same top", top, bounds.min_same_top, differing, 1 - (bounds.min_same_top or 0.0)),
        ("PPL ratio", ratio, bounds.max_ppl_ratio, apart, math.log(bounds.max_ppl_ratio or 1.0)),
    )
    return [
        Judged(name, bound, _verdict(held, most), shown)
        for name, shown, bound, held, most in found
        if bound is not None
    ]


def _verdict(held: Mean | None, most: float) -> Verdict:
    """The verdict on a value that must not be above `most`; NaN is `unknown`."""
    if held is None or math.isnan(held.value):
        return "unknown"
    if abs(held.value - most) < 2 * held.error:
        return "undecided"
    return "holds" if held.value <= most else "broken"


# ---- the figures ---------------------------------------------------------------------------------


class KLSpread(Struct, frozen=True):
    """The KL divergences of a text, in bits."""

    mean: Mean
    min: float
    percentiles: dict[str, float]
    """Percentiles by name, such as `p99.9`."""
    max: float


class DiffSummary(Struct, frozen=True, tag_field="event", kw_only=True):
    """The figures of everything that was read; the first model's come before the second's."""

    complete: bool
    spans: int
    scored: tuple[int, int]
    logprobs: tuple[float, float]
    bytes: int
    """Bytes of the spans that both score; the figures below are about these spans, too."""
    bits_per_byte: tuple[Mean, ...] | None
    """Bits per byte of the first, of the second, and their difference."""
    perplexity: Mean | None = None
    other_perplexity: Mean | None = None
    log_ratio: Mean | None = None
    ratio: Mean | None = None
    """The second perplexity over the first."""
    correlation: float | None = None
    probability_change: Mean | None = None
    rms_probability_change: Mean | None = None
    same_top: Mean | None = None
    kl_bits: KLSpread | None
    gate: tuple[Judged, ...]
    """The bounds, and whether they hold."""
    worst: tuple[LockstepSpan, ...]
    """The spans at which they differ most."""
    ms: float
    other_ms: float


class DiffReading(Report):
    """The figures of a comparison so far.

    Args:
        texts: Number of texts that are read.
        bounds: Bounds on the figures.
    """

    measures = "second model: "

    def __init__(self, texts: int = 1, bounds: Bounds = NO_BOUNDS) -> None:
        self._spans: list[LockstepSpan] = []
        self._texts, self._read = texts, 0
        self._bounds = bounds
        self.memory: LockstepMemory | None = None
        self.opened: LockstepOpened | None = None
        self.ended: LockstepEnded | None = None
        self.total = 0
        self.ms = self.other_ms = 0.0

    def take(self, record: Record) -> None:
        match record:
            case LockstepMemory():
                self.memory = record
            case LockstepOpened():
                self.opened = record
            case LockstepEnded():
                self._read += 1
                self.ended = record if self._read == self._texts else None
            case LockstepRead():
                self._spans += record.spans
                self.total = record.total
                self.ms += record.ms
                self.other_ms += record.other_ms

    @property
    def figures(self) -> Divergences:
        """The figures of what was read so far."""
        return Divergences(self._spans)

    @property
    def judged(self) -> list[Judged]:
        """The verdict on each figure that has a bound."""
        return judge(self._bounds, self.figures, self.ended is not None)

    @property
    def status(self) -> int:
        """The exit status: a broken bound comes first, then a figure that could not be computed."""
        verdicts = {each.verdict for each in self.judged}
        found = {"broken": BROKEN, "unknown": BAD_INPUT, "undecided": UNDECIDED}
        return next((status for verdict, status in found.items() if verdict in verdicts), OK)

    def end(self, summary: Summary) -> DiffSummary:
        """The figures as values."""
        made = self.figures
        ordered, by_ids = sorted(made.kl), dict[str, Any]()
        shares = {f"p{100 * share:g}": percentile(ordered, share) for share in PERCENTILES if ordered}
        if made.by_ids:
            by_ids = {name: getattr(made, name) for name in ("log_ratio", "ratio", "correlation", "same_top")}
            by_ids["other_perplexity"], by_ids["perplexity"] = made.perplexities
            by_ids |= {"probability_change": mean(made.changes), "rms_probability_change": made.rms_change}
        return DiffSummary(
            complete=self.ended is not None,
            spans=len(made.spans),
            scored=made.scored,
            logprobs=made.totals,
            bytes=made.bytes,
            bits_per_byte=made.bits_per_byte if made.logprobs and made.bytes else None,
            **by_ids,
            kl_bits=KLSpread(mean(made.kl), ordered[0], shares, ordered[-1]) if ordered else None,
            gate=tuple(self.judged),
            worst=tuple(made.spans[place] for place in worst_places(made)),
            ms=self.ms,
            other_ms=self.other_ms,
        )

    def early(self, record: Record) -> Fact:
        """The memory that both models need, and the free memory, before the second is loaded."""
        if not isinstance(record, LockstepMemory):
            return super().early(record)
        second = f"about {size(record.second_bytes)}" if record.second_bytes else "the same weights"
        free = "" if record.free_bytes is None else f"; {size(record.free_bytes)} are free"
        return "memory", f"the first model has {size(record.first_bytes)}, the second needs {second}{free}"

    def progress(self, record: Record) -> str | None:
        if isinstance(record, LockstepRead):
            return f"read {record.done}/{record.total} tokens"
        return super().progress(record)

    def rest(self) -> Iterator[str]:
        """The figures, and the bounds."""
        if self.total:
            lines = [*report(self)]
            width = max(len(name) for name, value in lines if value)
            text = "\n".join(f"{name:<{width}}: {value}" if value else name for name, value in lines)
            yield text.lstrip("\n")

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        against = [("against", self.opened.title)] if self.opened else []
        return [*super().costs(summary, request), *against, *cost(self)]


# ---- the table --------------------------------------------------------------------------------


def report(reading: DiffReading) -> Iterator[Fact]:
    """The figures, and the bounds if some were given, as names and values; a heading has no value."""
    made = reading.figures
    broken = "" if reading.ended else " before it was stopped"
    if not made.logprobs:
        yield "tokens", f"none that both score{broken}"
    sections = {
        "Perplexity statistics" if made.by_ids else "Between common borders": _perplexity(made, broken),
        "KL divergence statistics": _kl(made),
        "Token probability statistics": _tokens(made),
        "Where they differ most": _worst(made),
        "Gate": map(_judged, reading.judged),
    }
    for title, facts in sections.items():
        if listed := [*facts]:
            yield f"\n====== {title} ======", ""
            yield from listed


def _judged(judged: Judged) -> Fact:
    """One bound, and whether it holds."""
    known = _with_error(judged.value).strip() if judged.value is not None else "no figure"
    bound = {"same top": "at least"}.get(judged.name, "at most")
    either = " or its inverse" if judged.name == "PPL ratio" else ""
    return f"{judged.name}, {bound} {judged.bound:g}{either}", f"{known}: {WORDS[judged.verdict]}"


def _perplexity(made: Divergences, broken: str) -> Iterator[Fact]:
    if not made.logprobs:
        return
    if made.by_ids:
        theirs, mine = made.perplexities
        yield "Mean PPL(Q)", _with_error(theirs)
        yield "Mean PPL(base)", _with_error(mine)
        if made.correlation is not None:
            yield "Cor(ln(PPL(Q)), ln(PPL(base)))", f"{100 * made.correlation:6.2f}%"
        yield "Mean ln(PPL(Q)/PPL(base))", _with_error(made.log_ratio)
        yield "Mean PPL(Q)/PPL(base)", _with_error(made.ratio)
        yield "Mean PPL(Q)-PPL(base)", _with_error(made.perplexity_change)
    first, second = made.scored
    counts = f"{first}" if first == second else f"{first} and {second} in {len(made.logprobs)} spans"
    yield "Tokens scored", f"{counts}, {made.bytes} bytes{broken}"
    yield "Logprob of base, of Q", f"{made.totals[0]:.4f}, {made.totals[1]:.4f}"
    if made.bytes:
        base, other, change = made.bits_per_byte
        yield "Bits per byte of base, of Q", f"{base.value:.4f}, {other.value:.4f}"
        yield "Bits per byte, Q less base", _with_error(change)


def _kl(made: Divergences) -> Iterator[Fact]:
    if not (ordered := sorted(made.kl)):
        return
    yield "Mean    KLD", _with_error(mean(made.kl)) + " bits"
    yield "Maximum KLD", f"{ordered[-1]:10.6f}"
    for share in PERCENTILES:
        name = "Median " if share == 0.5 else f"{100 * share:4.1f}%  "
        yield f"{name} KLD", f"{percentile(ordered, share):10.6f}"
    yield "Minimum KLD", f"{ordered[0]:10.6f}"


def _tokens(made: Divergences) -> Iterator[Fact]:
    if not (ordered := sorted(made.changes)):
        return
    for name, share in (
        ("Mean    Δp", mean(made.changes)), ("Maximum Δp", ordered[-1]), ("Median  Δp", percentile(ordered, 0.5)),
        ("Minimum Δp", ordered[0]), ("RMS Δp", made.rms_change), ("Same top p", made.same_top),
    ):  # fmt: skip
        if isinstance(share, Mean):
            yield name, f"{100 * share.value:6.3f} ± {100 * share.error:.3f} %"
        else:
            yield name, f"{100 * share:6.3f} %"


def worst_places(made: Divergences) -> list[int]:
    """The places with the largest KL divergence above 0; if it is not known, the largest change of logprob per byte."""
    spans = made.spans

    def apart(place: int) -> float:
        span = spans[place]
        if span.kl_bits is not None:
            return span.kl_bits
        return abs(span.logprob_change or 0.0) / max(1, len(span.raw)) if not made.kl else 0.0

    return nlargest(WORST, filter(apart, range(len(spans))), key=apart)


def _worst(made: Divergences) -> Iterator[Fact]:
    for place in worst_places(made):
        span, around = made.spans[place], made.spans[max(0, place - AROUND) : place]
        before = "".join(each.text for each in around if each.position < span.position)  # not of another text
        value = f"{span.logprob_change or 0:+.3f} nats over {len(span.raw)} bytes"
        if span.kl_bits is not None:
            value = f"KLD {span.kl_bits:.4f}, rank {span.rank} → {span.other_rank}"
        yield f"{span.position + 1:>6}", f"{value:<32} …{visible(before)}▕{token_label(span.text, span.raw)}"


def cost(reading: DiffReading) -> Iterator[Fact]:
    """Time and memory of both models."""
    yield "took", f"{milliseconds(reading.ms)} of base, {milliseconds(reading.other_ms)} of Q"
    ended, memory, opened = reading.ended, reading.memory, reading.opened
    if opened is None or memory is None:
        return
    shared = "" if memory.second_bytes else ", one for both"
    kv = "" if ended is None else (
        f"; KV at most {size(ended.kv_bytes)} and {size(ended.other_kv_bytes)}; {size(ended.peak_bytes)} at the peak"
    )  # fmt: skip
    yield "memory", f"{size(memory.first_bytes)} and {size(opened.facts.weight_bytes)} of weights{shared}{kv}"
    if ended is not None and ended.window:
        more = f"from the second on each token has {ended.context} or more before it"
        yield "windows", f"of {ended.window} tokens at most; {more}"


def _with_error(of: Mean) -> str:
    return f"{of.value:10.6f}" + (f" ± {of.error:10.6f}" if math.isfinite(of.value) else "")

"""What a panel shows, as lines of plain text: for screen readers, and where there is no screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from engine.protocol import BeamEnded, Distribution, RaceStep, Record
from inspector.display import token_label, visible
from inspector.scales import bits, milliseconds, percent, size
from inspector.state.timeline import Timeline

CANDIDATES, STEPS, CONTINUATIONS = 5, 8, 3
LONGEST = 600
"""Characters of the text so far: its end."""


def text_so_far(timeline: Timeline) -> str:
    """The text on show, printable; its end, where it is long."""
    text = "".join(each.text for each in timeline.items)
    return visible(text if len(text) <= LONGEST else f"…{text[-LONGEST:]}")


def panel(
    show: str, timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool
) -> Iterator[str]:
    """What a panel or tool shows.

    Args:
        show: Its id.
        timeline: The session's.
        slot: The token that is looked at; None for the one to come.
        since: What happened in this beat.
        told: Whether what was picked may be told.
    """
    yield from PANELS_AS_TEXT.get(show, _candidates)(timeline, slot, since, told)


def _candidates(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    distribution = timeline.next
    about = "Most probable next"
    if slot is not None and slot in timeline.completion_slots:
        step = timeline.completion[timeline.completion_slots.index(slot)]
        distribution, about = step.choice, f"Most probable for token {step.index + 1}"
    if distribution is None:
        return
    yield f"{about} (entropy {bits(distribution.entropy_bits)}):"
    for place, each in enumerate(distribution.candidates[:CANDIDATES], 1):
        own, sampled = percent(each.prob), percent(each.sampler_prob)
        after = "" if own == sampled else f", {sampled} after the sampler"
        yield f"  {place}. {token_label(each.text, each.raw)}, {own}{after}"
    if told:
        yield from _picked(distribution)


def _picked(distribution: Distribution) -> Iterator[str]:
    picked = next(each for each in distribution.candidates if each.id == distribution.picked)
    name = token_label(picked.text, picked.raw)
    if distribution.draw is None or distribution.draw_from is None or distribution.draw_to is None:
        yield f"Picked: {name}, the most probable after the penalties."
    else:
        share = f"{distribution.draw_from:.3f} to {distribution.draw_to:.3f}"
        yield f"Picked: {name}. The draw {distribution.draw:.3f} fell into its share, {share}."


def _steps(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    for step in timeline.completion[-STEPS:]:
        name, entropy = token_label(step.text, step.raw), bits(step.choice.entropy_bits)
        yield f"  {step.index + 1}. {name}, {percent(step.prob)}, entropy {entropy}"


def _text(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    return iter(())


def _kv(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    if timeline.kv is not None:
        yield f"The KV cache holds {timeline.kv.offset} tokens in {size(timeline.kv.used_bytes)}."


def _timing(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    for step in timeline.completion[-STEPS:]:
        yield f"  {step.index + 1}. {token_label(step.text, step.raw)}, {milliseconds(step.ms.total)}"


def _race(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    steps = [each for each in since if isinstance(each, RaceStep)]
    for each in (steps[0], steps[-1]) if steps else ():
        times = f"{milliseconds(each.cached_ms)} with the cache, {milliseconds(each.uncached_ms)} without"
        yield f"  At {each.tokens} tokens a step takes {times}; the cache has {size(each.kv_bytes)}."


def _beams(timeline: Timeline, slot: int | None, since: Sequence[Record], told: bool) -> Iterator[str]:
    ended = next((each for each in reversed(since) if isinstance(each, BeamEnded)), None)
    if ended is not None:
        for place, each in enumerate(ended.ranking[:CONTINUATIONS], 1):
            yield f"  {place}. {visible(each.text)}, logprob {each.logprob:.3f}"
        yield f"  Greedy: {visible(ended.greedy.text)}, logprob {ended.greedy.logprob:.3f}"


PANELS_AS_TEXT: Mapping[str, Callable[[Timeline, int | None, Sequence[Record], bool], Iterator[str]]] = {
    "text": _text,
    "steps": _steps,
    "kv": _kv,
    "timing": _timing,
    "race": _race,
    "beams": _beams,
}
"""By id; for others the candidates."""

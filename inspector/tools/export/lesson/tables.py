"""What tools found in a beat, as tables: steps, memory, a race, beams, where heads look, and what layers predict."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from engine.protocol import AttentionRead, BeamEnded, Hypothesis, LensRead, RaceStep, Record, Step
from inspector.display import token_label, visible
from inspector.lessons.expressions import Expression
from inspector.lessons.lesson import Beat
from inspector.scales import bits, count, milliseconds, percent, size
from inspector.state.inside import Looks
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export.element import element, row, table

STEPS = 60
"""The last ones of a completion."""
PLACES = 6
"""That a head looks at most."""
Found = Callable[[Timeline, Sequence[Record], Beat], Iterator[Element]]
"""Makes tables of what is on show, what happened since the beat began, and what its beat asks."""


def steps(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The completion, a token a row."""
    head = ("step", "token", "probability", "surprisal", "model entropy", "rank", "time")
    rows = [_step(each) for each in timeline.completion[-STEPS:]]
    if rows:
        yield table("Steps", head, rows, class_="plain")


def _step(step: Step) -> Element:
    return row(
        str(step.index + 1), _label(step), percent(step.prob), bits(step.surprisal_bits),
        bits(step.choice.entropy_bits), count(step.rank), milliseconds(step.ms.total),
    )  # fmt: skip


def memory(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """What the KV cache holds."""
    kv = timeline.kv
    if kv is not None:
        held = (
            ("tokens", count(kv.offset)),
            ("in use", size(kv.used_bytes)),
            ("allocated", size(kv.allocated_bytes)),
        )
        yield table("KV cache", ("", ""), [row(*each) for each in held], class_="plain")


def race(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """Both lanes of a race: each step's time as a line, and the first and the last steps."""
    steps = [each for each in since if isinstance(each, RaceStep)]
    if not steps:
        return
    most = max(max(each.cached_ms, each.uncached_ms) for each in steps) or 1.0
    lanes = (
        ("uncached", [each.uncached_ms for each in steps]),
        ("cached", [each.cached_ms for each in steps]),
    )
    lines = (element("path", class_=name, d=_line(values, most)) for name, values in lanes)
    yield element(
        "svg", *lines, viewBox="0 0 100 50", preserveAspectRatio="none", class_="race", aria_hidden="true"
    )
    yield element(
        "p", "Time of a step as the text grows: dashed without the cache, solid with it.", class_="hint"
    )
    chosen = sorted({0, len(steps) // 2, len(steps) - 1})
    rows = [_lanes(steps[place]) for place in chosen]
    yield table("Both lanes", ("tokens", "with cache", "without", "KV"), rows, class_="plain")
    last = steps[-1]
    same = (
        "The same tokens in both lanes"
        if all(each.equal for each in steps)
        else "The lanes took other tokens"
    )
    yield element("p", f"All steps: {milliseconds(last.cached_total_ms)} with the cache, "
                       f"{milliseconds(last.uncached_total_ms)} without. {same}.", class_="hint")  # fmt: skip


def _lanes(step: RaceStep) -> Element:
    return row(
        count(step.tokens), milliseconds(step.cached_ms), milliseconds(step.uncached_ms), size(step.kv_bytes)
    )


def _line(values: Sequence[float], most: float) -> str:
    across = max(1, len(values) - 1)
    points = (
        f"{100 * place / across:.2f} {49 - 48 * value / most:.2f}" for place, value in enumerate(values)
    )
    return "M" + "L".join(points)


def beams(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The ranking of a beam search, and greedy decoding."""
    ended = next((each for each in reversed(since) if isinstance(each, BeamEnded)), None)
    if ended is not None:
        ranked = [_beam(str(place), each) for place, each in enumerate(ended.ranking, 1)]
        rows = [*ranked, _beam("greedy", ended.greedy)]
        yield table("Beam search", ("rank", "text", "logprob", "score", "tokens"), rows, class_="plain")


def _beam(place: str, found: Hypothesis) -> Element:
    text = visible(found.text + found.end)
    said = element("span", text, class_="said")
    return row(place, said, f"{found.logprob:.3f}", f"{found.score:.3f}", count(found.length))


def attention(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """Where the heads look that the beat asks about, from the last token."""
    read = timeline.of(Looks).attention.get(timeline.tip)
    for layer, head in _heads(beat) if read is not None else ():
        found = (
            next((each for each in read.layers if each.layer == layer - 1), None)
            if read is not None
            else None
        )
        if read is not None and found is not None and 1 <= head <= found.heads:
            yield _head(read, timeline.items, layer, head, found.over(head - 1, read.tokens))


def _heads(beat: Beat) -> list[tuple[int, int]]:
    """Layer and number of each head that a beat names, from 1."""
    found = []
    for expression in expressions(beat):
        for call in expression.calls("head"):
            given = [*call.args, *(each.value for each in call.keywords)]
            numbers = [each.value for each in given if isinstance(each, ast.Constant)]
            if len(numbers) == 2 and all(isinstance(each, int) for each in numbers):
                found.append((int(str(numbers[0])), int(str(numbers[1]))))
    return list(dict.fromkeys(found))


def expressions(beat: Beat) -> Iterator[Expression]:
    """All expressions of a beat."""
    if beat.question is not None:
        yield beat.question.answer
        yield from beat.question.text.expressions
    for template in (*beat.text, *beat.why):
        yield from template.expressions
    yield from (expression for _, expression in beat.keep)
    if beat.number is not None:
        yield beat.number


def _head(
    read: AttentionRead, path: Sequence[Item], layer: int, head: int, weights: Sequence[float]
) -> Element:
    places = sorted(range(len(weights)), key=lambda place: -weights[place])[:PLACES]
    rows = [
        row(_label(path[place]), count(place + 1), percent(weights[place]))
        for place in places
        if place < len(path)
    ]
    return table(
        f"Where layer {layer}, head {head} looks", ("token", "place", "weight"), rows, class_="plain"
    )


def lens(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """What each layer would predict after the last token."""
    read = timeline.of(Looks).lens.get(timeline.tip)
    if read is not None and read.columns:
        rows = list(_layers(read))
        yield table(
            "What each layer would predict next", ("layer", "token", "probability"), rows, class_="plain"
        )


def _layers(read: LensRead) -> Iterator[Element]:
    for layer, cell in reversed(list(enumerate(read.columns[-1].cells))):
        if cell.top:
            first = cell.top[0]
            name = str(layer) if layer else "embedding"
            yield row(
                name,
                token_label(first.text),
                percent(first.prob),
                class_="leads" if cell.final_rank == 1 else None,
            )


def _label(item: Item) -> str:
    return token_label(item.text, item.raw)


ON_SHOW: Mapping[str, Found] = {"steps": steps, "time": steps, "kv": memory}
"""By the panel: what is there before the learner acts, too."""
ONCE_DONE: Mapping[str, Found] = {"race": race, "beams": beams, "attention": attention, "lens": lens}
"""By the tool: what it found; before the reveal it would tell the answer."""

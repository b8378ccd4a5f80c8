"""The panels of a lesson's page: the candidates of one token with the draw, and what tools found in a beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from engine.frozen import frozen
from engine.protocol import BeamEnded, Candidate, Distribution, Hypothesis, LensCell, RaceStep, Record, Step
from inspector.display import token_label, visible
from inspector.lessons.lesson import Beat
from inspector.scales import bits, count, milliseconds, others_prob, percent, size
from inspector.state.inside import Looks
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export.markup import element, hint, row, table

ROWS = 10
"""The most probable ones; the one that was taken is shown, whatever its rank."""


@frozen
class TokenChoice:
    """What one token is, or will be, taken from."""

    title: str
    candidates: tuple[Candidate, ...]
    others: int
    """Tokens that are not among them."""
    others_prob: float
    taken: int | None
    """Id of the one that was, or will be, taken; None where it is to be predicted."""
    distribution: Distribution | None = None
    """None in the prompt, where nothing is drawn."""


def of_next(distribution: Distribution, concealed: bool) -> TokenChoice:
    """What follows the last token.

    Args:
        distribution: Of it.
        concealed: Whether the one that is picked is to be predicted.
    """
    return _drawn("What can come next", distribution, None if concealed else distribution.picked)


def of_token(item: Item, vocabulary: int) -> TokenChoice:
    """What a token of the text was taken from."""
    if isinstance(item, Step):
        title = f"What could have come at step {item.index + 1}, where {_label(item)} was taken"
        return _drawn(title, item.choice, item.id)
    title = f"What the model expected in the place of {_label(item)}"
    others = max(0, vocabulary - len(item.candidates))
    return TokenChoice(title, item.candidates, others, others_prob(item), item.id)


def _drawn(title: str, of: Distribution, taken: int | None) -> TokenChoice:
    return TokenChoice(title, of.candidates, of.others, of.others_prob, taken, of)


def candidates_section(choice: TokenChoice, stages: bool) -> Element:
    """The table, the draw, and what each stage of the sampler left."""
    shown = [each for each in choice.candidates if each.rank <= ROWS or each.id == choice.taken][: ROWS + 1]
    of = choice.distribution
    # without a draw one token has all of what the sampler leaves: that would tell what is to be predicted
    drawn = of is not None and (choice.taken is not None or of.draw is not None)
    shares = [each.prob for each in shown] + [each.sampler_prob for each in shown if drawn]
    rows = [_candidate_row(each, max(shares, default=1.0) or 1.0, choice.taken, drawn) for each in shown]
    left = [each for each in choice.candidates if each not in shown]
    others, mass = choice.others + len(left), choice.others_prob + sum(each.prob for each in left)
    if others > 0:
        rows.append(row("", f"{count(others)} others", "", percent(mass), "", class_="others"))
    head = ("", "candidate", "", "model", "sampler" if drawn else "")
    candidates = table(choice.title, head, rows, class_="candidates")
    if of is None:
        return element("section", candidates)
    return element("section", candidates, _draw(of, choice.taken), _stages(of) if stages else None)


def _candidate_row(each: Candidate, most: float, taken: int | None, drawn: bool) -> Element:
    own = each.id == taken
    sampler = "" if not drawn else visible(each.cut_by) if each.cut_by else percent(each.sampler_prob)
    made = row(
        element("span", "▶", role="img", aria_label="taken") if own else "",
        token_label(each.text, each.raw),
        _bar(each, most, drawn),
        percent(each.prob),
        sampler,
        class_="taken" if own else "cut" if each.cut_by else None,
    )
    made[1].set("class", "label")
    made[2].set("class", "bar")
    return made


def _bar(each: Candidate, most: float, drawn: bool) -> Element:
    """Two bars in one: what the model gives, and below it what the sampler draws with."""
    model = element("rect", class_="model", y=1, height=7 if drawn else 12, width=_part(each.prob, most))
    sampler = element("rect", class_="sampler", y=9, height=4, width=_part(each.sampler_prob, most))
    return element("svg", model, sampler if drawn else None,
                   viewBox="0 0 100 14", preserveAspectRatio="none", aria_hidden="true")  # fmt: skip


def _part(share: float, most: float) -> str:
    return f"{100 * share / most:.2f}"


def _draw(distribution: Distribution, taken: int | None) -> Element | None:
    """The line from 0 to 1 that the random number fell on, cut into the shares of the candidates."""
    draw, low, high = distribution.draw, distribution.draw_from, distribution.draw_to
    if draw is None or low is None or high is None:
        return None
    known = taken == distribution.picked
    words = f"The draw {draw:.3f} fell on {low:.3f} to {high:.3f}" if known else f"The draw is {draw:.3f}"
    words += f", drawn again {distribution.reroll}×" if distribution.reroll else ""
    shapes = [element("rect", class_="rest", x=0.5, y=8, width=999, height=10)]
    edge = 0.0
    shares = (each.sampler_prob for each in distribution.candidates if each.sampler_prob > 0)
    for place, share in enumerate(sorted(shares, reverse=True)):
        name = "odd" if place % 2 else "even"
        shapes.append(element("rect", class_=name, x=_at(edge), y=8, width=_at(share), height=10))
        edge += share
    if known:
        width = _at(max(0.0015, high - low))
        shapes.append(element("rect", class_="taken", x=_at(low), y=8, width=width, height=10))
    shapes.append(element("rect", class_="drawn", x=f"{draw * 1000 - 1.5:.2f}", y=0, width=3, height=26))
    line = element("svg", *shapes, viewBox="0 0 1000 26", preserveAspectRatio="none", aria_hidden="true")
    return element("div", element("p", words), line, class_="draw")


def _at(share: float) -> str:
    return f"{share * 1000:.2f}"


def _stages(distribution: Distribution) -> Element | None:
    if not distribution.stages:
        return None
    lines = []
    for stage in distribution.stages:
        took = f", took out {percent(stage.removed_mass)}" if stage.removed_mass else ""
        words = f" left {count(stage.kept)} token{'s' * (stage.kept != 1)}{took}"
        lines.append(element("li", element("b", visible(stage.name)), words))
    heading = element("p", "The sampler's stages, in their order")
    return element("div", heading, element("ol", *lines), class_="stages")


# ---- what tools found in a beat, as tables ---------------------------------------------------

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
    if (kv := timeline.kv) is not None:
        rows = (row("tokens", count(kv.offset)), row("in use", size(kv.used_bytes)),
                row("allocated", size(kv.allocated_bytes)))  # fmt: skip
        yield table("KV cache", ("", ""), rows, class_="plain")


def race(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """Both lanes of a race: each step's time as a line, and the first and the last steps."""
    steps = [each for each in since if isinstance(each, RaceStep)]
    if not steps:
        return
    most = max(max(each.cached_ms, each.uncached_ms) for each in steps) or 1.0
    lanes = {"uncached": [each.uncached_ms for each in steps], "cached": [each.cached_ms for each in steps]}
    lines = (element("path", class_=name, d=_line(values, most)) for name, values in lanes.items())
    yield element("svg", *lines, viewBox="0 0 100 50", preserveAspectRatio="none", class_="race",
                  aria_hidden="true")  # fmt: skip
    yield hint("Time of a step as the text grows: dashed without the cache, solid with it.")
    rows = [_lanes(steps[place]) for place in sorted({0, len(steps) // 2, len(steps) - 1})]
    yield table("Both lanes", ("tokens", "with cache", "without", "KV"), rows, class_="plain")
    last, equal = steps[-1], all(each.equal for each in steps)
    same = "The same tokens in both lanes" if equal else "The lanes took other tokens"
    yield hint(f"All steps: {milliseconds(last.cached_total_ms)} with the cache, "
               f"{milliseconds(last.uncached_total_ms)} without. {same}.")  # fmt: skip


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
    said = element("span", visible(found.text + found.end), class_="said")
    return row(place, said, f"{found.logprob:.3f}", f"{found.score:.3f}", count(found.length))


def attention(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """Where the heads look that the beat asks about, from the last token."""
    read = timeline.of(Looks).attention.get(timeline.tip)
    if read is None:
        return
    layers = {each.layer + 1: each for each in read.layers}
    for layer, head in (each for each in beat.calls("head") if len(each) == 2):
        if layer in layers and 1 <= head <= layers[layer].heads:
            yield _head(timeline.items, layer, head, layers[layer].over(head - 1, read.tokens))


def _head(path: Sequence[Item], layer: int, head: int, weights: Sequence[float]) -> Element:
    places = sorted(range(len(weights)), key=lambda place: -weights[place])[:PLACES]
    rows = [row(_label(path[at]), count(at + 1), percent(weights[at])) for at in places if at < len(path)]
    head_names = ("token", "place", "weight")
    return table(f"Where layer {layer}, head {head} looks", head_names, rows, class_="plain")


def lens(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """What each layer would predict after the last token."""
    read = timeline.of(Looks).lens.get(timeline.tip)
    if read is not None and read.columns:
        cells = reversed(list(enumerate(read.columns[-1].cells)))
        rows = [_layer(layer, cell) for layer, cell in cells if cell.top]
        head = ("layer", "token", "probability")
        yield table("What each layer would predict next", head, rows, class_="plain")


def _layer(layer: int, cell: LensCell) -> Element:
    leads = "leads" if cell.final_rank == 1 else None
    first = cell.top[0]
    return row(str(layer or "embedding"), token_label(first.text), percent(first.prob), class_=leads)


def _label(item: Item) -> str:
    return token_label(item.text, item.raw)


ON_SHOW: Mapping[str, Found] = {"steps": steps, "time": steps, "kv": memory}
"""By the panel: what is there before the learner acts, too."""
ONCE_DONE: Mapping[str, Found] = {"race": race, "beams": beams, "attention": attention, "lens": lens}
"""By the tool: what it found; before the reveal it would tell the answer."""

"""Attention: the weights of all heads as strips, the heads by a score, one head, the strongest weights, an export."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.segment import Segment

from engine.protocol import AttentionLayer, AttentionRead, Candidate, HeadScore, HeadsScored, Record
from inspector.blocks.blocks import (
    GAP,
    Bar,
    Block,
    Column,
    Drawn,
    HeatText,
    Rows,
    Strip,
    Table,
    TableRow,
    Text,
    number,
    sentence,
    sentences,
)
from inspector.blocks.page import row, table
from inspector.blocks.paint import Painter, part_shown
from inspector.display import pad, quoted, token_label, visible
from inspector.documents.parts import Exhibit, Exported, ExportPart, looked_at
from inspector.scales import bits, count, counted, percent
from inspector.state.inside import Answers
from inspector.state.session_tree import Item, place_name, quoted_label
from inspector.state.timeline import Timeline
from inspector.widgets.charts import in_sight
from inspector.widgets.rows import Row

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from inspector.lessons.lesson import Beat

# ---- weights of a head --------------------------------------------------------------------------

MEAN, MAX = -2, -1
"""Numbers that stand for all heads of a layer: their mean, and the largest of their weights for each token."""
NAMES = {MEAN: "avg", MAX: "max"}
RESTS = 0.5
"""The share of a row from which a head is said to rest on the first token, or on its sink."""


class Head(NamedTuple):
    """A head of a layer, or the mean or maximum of its heads; layers and heads count from 0."""

    layer: int
    head: int

    @property
    def name(self) -> str:
        """The name, counted from 1: `L6 h2`, `L6 avg`."""
        return f"L{self.layer + 1} {NAMES.get(self.head) or f'h{self.head + 1}'}"

    @property
    def title(self) -> str:
        """The name in words."""
        whole = {MEAN: "the mean of its heads", MAX: "the maximum of its heads"}
        return f"layer {self.layer + 1}, {whole.get(self.head) or f'head {self.head + 1}'}"


def columns(layer: AttentionLayer) -> tuple[int, ...]:
    """The columns of a layer: its heads, their mean, their maximum."""
    return (*range(layer.heads), MEAN, MAX)


MOST_WHOLE = 64
"""Maximum number of means and maxima that are kept."""
_WHOLE: dict[tuple[int, int, int], tuple[AttentionLayer, tuple[float, ...]]] = {}
"""The last means and maxima, by `id()` of a layer, `MEAN` or `MAX`, and number of tokens. The layer is kept, so that
its id isn't reused: a hash of its weights would take as long as reading them."""


def weights_of(layer: AttentionLayer, head: int, tokens: int) -> tuple[float, ...]:
    """The weights of a head, or the mean or maximum of all heads, over a path.

    Args:
        layer: The weights of its layer.
        head: From 0, or `MEAN`, `MAX`.
        tokens: The length of the path.
    """
    row: tuple[float, ...]
    if head >= 0:
        row = layer.over(head, tokens)
    elif (known := _WHOLE.get(key := (id(layer), head, tokens))) is not None:
        row = known[1]
    else:
        rows = zip(*map(layer.over, range(layer.heads), repeat(tokens)), strict=True)
        row = tuple(map(max if head == MAX else fmean, rows))
        _WHOLE[key] = layer, row
        if len(_WHOLE) > MOST_WHOLE:
            del _WHOLE[next(iter(_WHOLE))]
    return row if math.isfinite(sum(row)) else (0.0,) * tokens  # a file may have NaN


def sink_of(layer: AttentionLayer, head: int) -> float:
    """The share that the sink of a head takes; 0 if it has none."""
    if len(layer.sinks) <= max(head, 0):
        return 0.0
    return layer.sinks[head] if head >= 0 else (max if head == MAX else fmean)(layer.sinks)


def entropy_bits(weights: Sequence[float], sink: float = 0.0) -> float:
    """Entropy of a row of weights, with the sink's share as one more outcome."""
    return sum((-share * math.log2(share) for share in (*weights, sink) if share > 0), 0.0)


def rows_of(read: AttentionRead) -> list[tuple[Head, tuple[float, ...]]]:
    """Every head with its weights over the path."""
    return [
        (Head(layer.layer, head), layer.over(head, read.tokens))
        for layer in read.layers
        for head in range(layer.heads)
    ]


def most_focused(read: AttentionRead) -> Head | None:
    """The head to begin with: of the heads with half of their attention on one token, the one that looks furthest back.

    The first token is left out, since idle heads rest on it. Without such a head, it is the one with the largest
    weight; None if there are no heads.
    """
    found = []
    for head, weights in rows_of(read):
        weight = max(weights[1:], default=1.0)
        back = 1 - weights.index(weight, 1) if weight >= RESTS and len(weights) > 1 else 0
        found.append((weight >= RESTS, back, weight, head))
    return max(found)[-1] if found else None


# ---- the roles of heads -------------------------------------------------------------------------

NAMED = 0.4
"""The mean share from which a head is named by its role, as in ARENA's exercises."""
LISTED = 4
"""Maximum number of heads listed for a role."""


class Order(NamedTuple):
    """An order of heads, by a score or by place.

    Args:
        name: Its name.
        meaning: The meaning of the score.
        score: Gives the score of a head; None if the text has nothing to score.
        role: The role of heads with a high score: `induction`; empty if they have none.
    """

    name: str
    meaning: str
    score: Callable[[HeadScore], float | None]
    role: str = ""


ORDERS = (
    Order("by place", "a row for each layer, a column for each head", lambda each: None),
    Order("previous token", "mean share on the token right before", lambda each: each.previous, "previous-token"),
    Order("induction", "mean share on what followed earlier occurrences of the token that looks",
          lambda each: each.induction, "induction"),
    Order("duplicate token", "mean share on earlier occurrences of the token that looks",
          lambda each: each.duplicate, "duplicate-token"),
    Order("first token", "mean share on the first token", lambda each: each.first),
    Order("widest", "mean entropy of where it looks, in bits", lambda each: each.entropy_bits),
)  # fmt: skip
"""The orders, as a key steps through them."""
ROLES = tuple(order for order in ORDERS if order.role)


def names_of(score: HeadScore) -> tuple[str, ...]:
    """The roles of a head whose scores are above the threshold: `previous-token`."""
    return tuple(order.role for order in ROLES if (order.score(score) or 0.0) >= NAMED)


def measured_on(scored: HeadsScored) -> str:
    """The texts that heads were scored on."""
    if (texts := scored.texts) is None:
        return f"{count(scored.tokens)} tokens of this path"
    random = f"{counted(texts.count, 'text')} of {count(texts.length)} random tokens"
    return f"{random}, each repeated once (seed {texts.seed})"


def best_of(order: Order, heads: Sequence[HeadScore]) -> list[tuple[float, HeadScore]]:
    """The heads that have a role's score, the highest first."""
    found = [(value, each) for each in heads if (value := order.score(each)) is not None]
    return sorted(found, key=lambda pair: -pair[0])


def found_words(scored: HeadsScored) -> tuple[str, ...]:
    """A sentence for each role: the heads above the threshold, or that there is none."""
    return tuple(_role_words(order, scored) for order in ROLES)


def _role_words(order: Order, scored: HeadsScored) -> str:
    best, role = best_of(order, scored.heads), order.role
    heads = [f"L{each.layer + 1} h{each.head + 1} ({percent(value)})" for value, each in best]
    above = sum(value >= NAMED for value, _ in best)
    if not best:
        why = "nothing to score: no token occurs again" if scored.heads else "no head whose weights are known"
        return f"{role.capitalize()} heads: {why}."
    if not above:
        where = "in this model" if scored.texts is not None else "on this text"
        return f"No {role} head {where}: at most {heads[0]}, named from {percent(NAMED)} on."
    more = f" and {above - LISTED} more" if above > LISTED else ""
    listed = ", ".join(heads[: min(above, LISTED)])
    # its attention on one text doesn't make it a head of that role
    what = "attention on this text" if scored.texts is None else f"head{'s' * (above > 1)}"
    return f"{role.capitalize()} {what}: {listed}{more}."


def ranked(scores: Sequence[HeadScore], order: int) -> list[HeadScore]:
    """The heads, the highest score first; by place if there are no scores."""
    return sorted(scores, key=lambda each: -(ORDERS[order].score(each) or 0.0))


# ---- all heads ----------------------------------------------------------------------------------

LABEL = 4
"""Cells of a layer's name."""
TALL = 3
"""Maximum lines of a layer."""
STRIPS = sentence("Each strip is the text up to this token: where a head looks.", tone="muted", priority=2)
LEGEND = Drawn(lambda painter, width, height: [painter.shades.legend(width)], (1, 1))
"""The meaning of the colors of strips."""
QUIET = sentence(
    "Attention is not an explanation: it shows where a head looks, not what decides.", tone="muted"
)


def maps(read: AttentionRead, chosen: Head) -> Iterator[Block]:
    """A row for each layer, the last one on top, and a column for each head, then their mean and maximum."""
    layers = len(read.layers)
    yield Drawn(partial(_maps, read, chosen), (min(layers, 3) + 1, layers + 1), roomy=(TALL - 1) * layers)
    yield from (GAP, STRIPS, LEGEND)


def _maps(read: AttentionRead, chosen: Head, painter: Painter, width: int, height: int) -> list[Row]:
    """As many layers and heads as fit around the chosen one, which is framed."""
    on, layers = painter.on, [*reversed(read.layers)]
    heads = columns(max(layers, key=attrgetter("heads")))
    here = heads.index(chosen.head) if chosen.head in heads else 0
    cells = max(3, min(12, (width - LABEL - 1) // len(heads) - 1))
    shown = [heads[at] for at in in_sight(len(heads), max(1, (width - LABEL - 1) // (cells + 1)), here)]
    at = next((place for place, each in enumerate(layers) if each.layer == chosen.layer), 0)
    count, room = len(layers), max(1, height - 1)
    seen = [count - 1 - place for place in in_sight(count, room - (count > room), at)]
    single = "heads", [head for head in shown if head >= 0], len(heads) - len(NAMES)
    part = part_shown(width, ("layers", seen, count), single) if room > 2 else ""
    room -= bool(part)
    rows: list[Row] = [[Segment(" " * LABEL, on.ink("muted"))]]
    for head in shown:
        name = pad(NAMES.get(head) or f"h{head + 1}", cells)
        rows[0] += [Segment(" "), Segment(name, on.ink("strong" if head == heads[here] else "muted"))]
    tall = max(1, min(TALL, room // count))
    for place in in_sight(count, room // tall, at):
        layer, edges = layers[place], [Segment(" ")] * len(shown)
        if place == at:
            left, accent = shown.index(heads[here]), on.ink("accent")
            edges[left : left + 2] = Segment("▐", accent), Segment("▌", accent)
        strips, own = Row(), columns(layer)
        for edge, head in zip(edges, shown, strict=False):
            shares = weights_of(layer, head, read.tokens) if head in own else ()
            strips += [edge, *painter.shades.strip(shares, cells)]
        strips += edges[len(shown) :]
        label = Segment(pad(f"L{layer.layer + 1}", LABEL), on.ink("strong" if place == at else "muted"))
        rows += [[label, *strips], *[[Segment(" " * LABEL), *strips]] * (tall - 1)]
    return [*rows, [Segment(part, on.ink("warn"))]] if part else rows


def _strip(read: AttentionRead, layer: AttentionLayer, head: int) -> Strip:
    return Strip(partial(weights_of, layer, head, read.tokens))


def ranking(read: AttentionRead, scored: HeadsScored, order: int, chosen: Head) -> Iterator[Block]:
    """The heads by a score, the highest first, each with its weights from this token.

    Args:
        read: The weights.
        scored: The scores.
        order: The index in `ORDERS`, not the first.
        chosen: The selected head.
    """
    best, layers = ranked(scored.heads, order), {layer.layer: layer for layer in read.layers}
    score, meaning = ORDERS[order].score, f"{ORDERS[order].meaning}; over {measured_on(scored)}."
    yield sentence(meaning[:1].upper() + meaning[1:], tone="muted", priority=4)
    if ORDERS[order].role:
        yield sentence(_role_words(ORDERS[order], scored), tone="strong", priority=3)
    if best and score(best[0]) is None:
        yield sentence("No token of this text occurs again: there is nothing to score.", tone="warn")
    last = order == len(ORDERS) - 1

    def row(each: HeadScore) -> TableRow:
        layer, value = layers.get(each.layer), score(each)
        strip = _strip(read, layer, each.head) if layer is not None and each.head < layer.heads else ""
        figure = "" if value is None else bits(value) if last else percent(value)
        return TableRow((Head(each.layer, each.head).name, strip, figure, Bar(value or 0.0)))

    at = next((place for place, each in enumerate(best) if (each.layer, each.head) == chosen), 0)
    top = max((score(each) or 0.0 for each in best), default=0.0)
    shown = (
        Column("head", tone="muted", cells=(8, 8)), Column(cells=(3, 24)),
        Column("bits" if last else "share", "right", cells=(8, 8)), Column(cells=(10, 10), priority=2, top=top),
    )  # fmt: skip
    yield Table(shown, Rows(best, row), at)
    yield from (GAP, STRIPS, LEGEND)


# ---- one head -----------------------------------------------------------------------------------

LEAST = 0.001
"""Minimum weight of a token in the list."""
BRIEF = 2
"""Number of tokens in the list on a narrow screen."""


def details(
    path: Sequence[Item],
    layer: AttentionLayer,
    chosen: Head,
    known: tuple[HeadScore, HeadsScored] | None,
    answer: Candidate | None,
) -> Iterator[Block]:
    """The strongest tokens of a head, remarks, and the next token.

    Args:
        path: The tokens up to the selected one.
        layer: The weights of the head's layer.
        chosen: The head.
        known: The head's scores, and those of all heads; None until they are computed.
        answer: The first candidate for the next token; None if it isn't known.
    """
    label = quoted(_label(path, len(path) - 1))
    yield sentence(f"{chosen.title.capitalize()} looks from {label} at", tone="strong")
    yield _looked_at(weights_of(layer, chosen.head, len(path)), path)
    yield GAP
    yield from _remarks(path, layer, chosen)
    if known is not None:
        yield sentence(_over_text(*known), tone="muted", priority=2)
    yield from (GAP, *_next(answer), QUIET)


def brief(
    path: Sequence[Item], layer: AttentionLayer, chosen: Head, answer: Candidate | None
) -> Iterator[Block]:
    """See `details`; in a few lines for a narrow screen, without the head's name, which the text above shows."""
    yield _looked_at(weights_of(layer, chosen.head, len(path)), path, BRIEF)
    yield from (*_next(answer), QUIET, *_remarks(path, layer, chosen))


def _label(path: Sequence[Item], place: int) -> str:
    return token_label(path[place].text, path[place].raw) if place < len(path) else ""


def _placed(path: Sequence[Item], place: int) -> str:
    """A token with its place."""
    return f"{_label(path, place)} ({place_name(path[place]) if place < len(path) else place + 1})"


def _looked_at(weights: Sequence[float], path: Sequence[Item], most: int | None = None) -> Table:
    """The tokens with the largest weights: weight, token, distance; and the sum of the others."""
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    listed = [place for place in order if weights[place] >= LEAST][:most] or order[:1]

    def row(place: int) -> TableRow:
        weight, back = weights[place], len(path) - 1 - place
        label = Text(_label(path, place), "strong" if weight >= RESTS else "")
        where = f"{back} back" if back else "itself"
        return TableRow((percent(weight), Bar(weight), label, where))

    def others(seen: Collection[int]) -> TableRow | None:
        left = sorted({*order} - {listed[at] for at in seen})
        words = sentence(counted(len(left), "other"), tone="muted")
        sums = percent(math.fsum(weights[place] for place in left))
        return TableRow((sums, "", words), "muted") if left else None

    drawn = Column(cells=(8, 8), priority=1, top=1.0)
    shown = number(""), drawn, Column(), Column(tone="muted")
    return Table(shown, [*map(row, listed)], rest=None if most else others, least=most or 3)


def _remarks(path: Sequence[Item], layer: AttentionLayer, chosen: Head) -> Iterator[Block]:
    weights, sink = weights_of(layer, chosen.head, len(path)), sink_of(layer, chosen.head)
    if len(weights) > 1 and weights[0] >= RESTS and chosen.head >= 0:
        rests = f"Rests on the first token ({percent(weights[0])})"
        yield sentence(f"{rests}: an attention sink, the head has little to do here.", tone="warn")
    if layer.sinks:
        takes = f"Its sink takes {percent(sink)}: a share that goes to no token."
        yield sentence(takes, tone="warn" if sink >= RESTS else "muted")
    if (hidden := len(path) - layer.weights.shape[-1]) > 0:
        yield sentence(f"It can't see {hidden:,} earlier tokens: they are outside its window.", tone="muted")
    if chosen.head >= 0:
        spread = entropy_bits(weights, sink)
        equal = f"{2 ** min(spread, 64):.1f}"
        like = "like one token" if equal == "1.0" else f"like {equal} equal tokens"
        yield sentence(f"Spread: {bits(spread)} bits ({like})", tone="muted")


def _over_text(known: HeadScore, scored: HeadsScored) -> str:
    shares = {"previous": known.previous, "induction": known.induction, "duplicate": known.duplicate,
              "first": known.first}  # fmt: skip
    listed = " · ".join(f"{name} {percent(share)}" for name, share in shares.items() if share is not None)
    what = "head" if scored.texts is not None else "attention"
    named = f" ({' and '.join(names_of(known))} {what})" if names_of(known) else ""
    return f"Over {measured_on(scored)}: {listed}{named}"


def _next(answer: Candidate | None) -> Iterator[Block]:
    if answer is not None:
        label, prob = Text(quoted_label(answer), "strong"), f" {percent(answer.prob)}"
        yield sentence(
            *((Text(words, "muted"), label, prob) for words in ("The model's next token: ", "Next: "))
        )


# ---- pages, terminals and notebooks -------------------------------------------------------------

STRONGEST, ROLE_HEADS, TOP = 8, 3, 3
"""Maximum number of heads on a page, heads of each role, and tokens in the row of a head."""


def document(read: AttentionRead, path: Sequence[Item]) -> Iterator[Block]:
    """The text colored by the mean of all heads, and the heads with the strongest weights."""
    every = (weights for _, weights in rows_of(read))
    means = zip(path, map(fmean, zip(*every, strict=True)), strict=False)
    yield HeatText(tuple((visible(item.text), mean, "mean of all heads") for item, mean in means))
    yield from strongest(read, path)


def strongest(read: AttentionRead, path: Sequence[Item], most: int | None = STRONGEST) -> Iterator[Block]:
    """The heads with the strongest weights on tokens other than the first, on which many heads rest.

    Args:
        read: The weights.
        path: The tokens up to the one that the heads look from.
        most: Maximum number of heads; None for all, by layer.
    """
    yield sentence(
        "The heads that look most at another token than the first. Where a head looks does not show what it takes "
        "from there."
    )
    heads = rows_of(read)
    if most is not None:
        heads = sorted(heads, key=lambda each: -max(each[1][1:], default=0.0))[:most]
    rows = []
    for head, weights in heads:
        best = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)[:TOP]
        cells = (cell for place in best for cell in (_placed(path, place), percent(weights[place])))
        rows.append(TableRow((head.name, *cells)))
    pairs = (Column("looks at"), number("weight"), *(Column("then"), number("weight")) * (TOP - 1))
    yield Table((Column("head"), *pairs), rows)
    yield from sentences(map(visible, read.missing))


def roles(scored: HeadsScored) -> Iterator[Block]:
    """The heads with the highest score of each role, with some other scores."""
    yield from sentences([f"Over {measured_on(scored)}.", *found_words(scored)], "")
    rows = [
        TableRow((
            f"{order.role} head", Head(each.layer, each.head).name, percent(value), "named so" * (value >= NAMED),
            percent(each.first), bits(each.entropy_bits),
        ))
        for order in ROLES
        for value, each in best_of(order, scored.heads)[:ROLE_HEADS]
    ]  # fmt: skip
    shown = Column("as a"), Column("head"), number("share of its attention", short="its share"), Column()
    others = number("on the first token", 2, short="on the first"), number("entropy bits", 2, short="entropy")
    yield Table((*shown, *others), rows)


# ---- in an export -------------------------------------------------------------------------------

LEAST_EXPORTED = 0.004
"""Smaller weights are left out: they would not color a token."""
PLACES = 6
"""Maximum number of tokens listed for a head in a lesson."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def kind(scored: HeadsScored, before: int) -> str:
        texts = scored.texts
        return "heads" if texts is None else f"heads-{texts.count}-{texts.length}-{texts.seed}"

    def heading(scored: HeadsScored) -> str:
        return f"What the heads do, over {measured_on(scored)}"

    yield from looked_at(AttentionRead, "attention", lambda read: "Where the model looked", strongest)(of)
    yield from looked_at(HeadsScored, kind, heading, lambda scored, path: roles(scored))(of)


def _data(of: Exported) -> Mapping[str, Any]:
    """The row of each token whose attention was read, with its heads; and the index of the head to begin with: the one
    that was looked at last, or else the one that the screen would begin with."""
    answers = of.timeline.of(Answers)
    read = [each for each in answers.found(AttentionRead) if each.node in of.places]
    chosen = answers.head or (most_focused(read[-1]) if read else None)
    heads = [head for head, _ in rows_of(read[-1])] if read else []
    return {
        "inside": [[of.places[each.node], _heads(each)] for each in read],
        "head": heads.index(Head(*chosen)) if chosen in heads else 0,
    }


def _heads(read: AttentionRead) -> list[list[int]]:
    """The layer and number of each head, from 1, then pairs of an index in the path and a weight in per mille."""
    return [
        [head.layer + 1, head.head + 1]
        + [
            number
            for place, weight in enumerate(weights)
            if weight >= LEAST_EXPORTED
            for number in (place, round(weight * 1000))
        ]
        for head, weights in rows_of(read)
    ]


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The weights, from the last token, of the heads that a lesson's card asks about."""
    found = timeline.of(Answers).found(AttentionRead)
    read = next((each for each in found if each.node == timeline.tip), None)
    layers = {each.layer + 1: each for each in read.layers} if read is not None else {}
    for layer, head in (each for each in beat.calls("head") if len(each) == 2):
        if read is None or layer not in layers or not 1 <= head <= layers[layer].heads:
            continue
        weights = layers[layer].over(head - 1, read.tokens)
        places = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)[:PLACES]
        rows = (row(_label(timeline.items, at), count(at + 1), percent(weights[at]))
                for at in places if at < len(timeline.items))  # fmt: skip
        names = "token", "place", "weight"
        yield table(f"Where layer {layer}, head {head} looks", names, rows, class_="plain")


ATTENTION_PART = ExportPart("attention", _exhibits, _data, _beat)

"""What attention's screen shares with its tool: its keys, the chosen head, and the weights of heads over a path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from statistics import fmean
from typing import NamedTuple

from engine.protocol import AttentionLayer, AttentionRead, HeadScore, HeadsScored, RepeatedTexts, TriangleRead
from inspector.display import quoted, token_label
from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import OfferedHeat
from inspector.session.client import EngineClient
from inspector.session.requests import Replies
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, both

# ---- weights of a head --------------------------------------------------------------------------

MEAN, MAX = -2, -1
"""In the place of a head: the mean of a layer's heads, and for each token the largest of their weights."""
NAMES = {MEAN: "avg", MAX: "max"}
RESTS = 0.5
"""The share of a row from which on a head is said to rest on the first token, or on its sink."""


class Head(NamedTuple):
    """A head of a layer, or what stands for all heads of it; both count from 0."""

    layer: int
    head: int

    @property
    def name(self) -> str:
        """Counted from 1: `L6 h2`, `L6 avg`."""
        return f"L{self.layer + 1} {NAMES.get(self.head) or f'h{self.head + 1}'}"

    @property
    def title(self) -> str:
        """The same in words."""
        whole = {MEAN: "the mean of its heads", MAX: "the maximum of its heads"}
        return f"layer {self.layer + 1}, {whole.get(self.head) or f'head {self.head + 1}'}"


def columns(layer: AttentionLayer) -> tuple[int, ...]:
    """The columns of a layer: its heads, their mean, their maximum."""
    return (*range(layer.heads), MEAN, MAX)


MOST_WHOLE = 64
"""Means and maxima over the heads of a layer that are kept."""
_WHOLE: dict[tuple[int, int, int], tuple[AttentionLayer, tuple[float, ...]]] = {}
"""Those that were made last. By `id()` of a layer, which is kept alive so that the id stays its own: a hash of its
weights would take as long as to read them."""


def weights_of(layer: AttentionLayer, head: int, tokens: int) -> tuple[float, ...]:
    """The weights of a head, or of what stands for all of them, over a path.

    Args:
        layer: Its weights.
        head: From 0, or `MEAN`, `MAX`.
        tokens: Of the path.
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
    return row if math.isfinite(sum(row)) else (0.0,) * tokens  # a file may say anything


def sink_of(layer: AttentionLayer, head: int) -> float:
    """The share that the sink of a head takes; 0 where there is none."""
    if len(layer.sinks) <= max(head, 0):
        return 0.0
    return layer.sinks[head] if head >= 0 else (max if head == MAX else fmean)(layer.sinks)


def stretches(weights: Sequence[float], count: int) -> list[float]:
    """The path in at most `count` stretches of equal length: of each the largest weight, since peaks are looked for.

    Where there is room for several cells a token, each token has as many.
    """
    tokens, found = len(weights), list[float]()
    if 0 < tokens <= count:
        for weight in weights:
            found += [weight] * (count // tokens)
        return found
    for place in range(count):
        first, end = place * tokens // count, (place + 1) * tokens // count
        found.append(max(weights[first:end], default=0.0))
    return found


def entropy_bits(weights: Sequence[float], sink: float = 0.0) -> float:
    """Entropy of a row of weights, its sink's share as one more outcome."""
    entropy = 0.0
    for share in (*weights, sink):
        if share > 0:
            entropy -= share * math.log2(share)
    return entropy


def most_focused(read: AttentionRead) -> Head | None:
    """The head to begin with: of those with half of their attention on one token the one whose token is furthest back.

    The first token is left out, since heads rest there that have nothing to do. Without such a head it is the one with
    the largest weight.
    """
    found = []
    for layer in read.layers:
        for head in range(layer.heads):
            row = layer.over(head, read.tokens)
            weight = max(row[1:], default=1.0)
            back = 1 - row.index(weight, 1) if weight >= RESTS and len(row) > 1 else 0
            found.append((weight >= RESTS, back, weight, Head(layer.layer, head)))
    return max(found)[-1] if found else None


# ---- orders of heads ----------------------------------------------------------------------------


class Order(NamedTuple):
    """An order of heads."""

    name: str
    meaning: str


ORDERS = (
    Order("by place", "a row for each layer, a column for each head"),
    Order("previous token", "mean share on the token right before"),
    Order("same token again", "induction: mean share on what followed earlier occurrences of the token that looks"),
    Order("duplicate token", "mean share on earlier occurrences of the token that looks"),
    Order("first token", "mean share on the first token"),
    Order("widest", "mean entropy of where it looks, in bits"),
)  # fmt: skip
"""In the order in which a key goes through them."""


def score(of: HeadScore, order: int) -> float | None:
    """The score that an order sorts by; None where the text has nothing to score."""
    return (None, of.previous, of.induction, of.duplicate, of.first, of.entropy_bits)[order]


def ranked(scores: Sequence[HeadScore], order: int) -> list[HeadScore]:
    """The heads, the highest score first; without a score by place."""
    return sorted(scores, key=lambda each: -(score(each, order) or 0.0))


# ---- the choice and the answers -----------------------------------------------------------------


class AttentionControl:
    """The chosen head, how heads are sorted, and the answers of the engine.

    Args:
        client: Of the engine.
    """

    def __init__(self, client: EngineClient) -> None:
        self.rows = Replies(client, AttentionRead)
        """The weights of all heads, by node."""
        self.triangles = Replies(client, TriangleRead)
        self.scores = Replies(client, HeadsScored)
        """These and the triangles by the last node of their path; scores over repeated texts by those."""
        self.order = 0
        """Place in `ORDERS`."""
        self.texts: RepeatedTexts | None = None
        """What heads are scored over; None for the path."""
        self.triangle = False
        """True if the whole triangle of the head is on show."""
        self.squeezed = False
        """True if it is squeezed into the panel, where it is larger."""
        self.fits = True
        """True if the one on show has room."""
        self._chosen: Head | None = None
        self._heat: tuple[AttentionRead, Head, OfferedHeat] | None = None
        """What was offered last, and what it was made of."""

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.rows, self.triangles, self.scores):
            answers.drop()

    def chosen(self, read: AttentionRead) -> tuple[Head, AttentionLayer] | None:
        """The chosen head, as far as an answer has it, the first time one that looks at something; and its layer, or
        the nearest that has an attention."""
        if self._chosen is None:
            self._chosen = most_focused(read)
        if self._chosen is None or not read.layers:
            return None
        nearest, wanted = read.layers[0], self._chosen
        for layer in read.layers[1:]:
            if abs(layer.layer - wanted.layer) < abs(nearest.layer - wanted.layer):
                nearest = layer
        head = wanted.head if wanted.head in columns(nearest) else nearest.heads - 1
        return Head(nearest.layer, head), nearest

    def heat(self, timeline: Timeline) -> OfferedHeat | None:
        """The weights of the chosen head over the path: from the selected token, or the one that was looked at last."""
        nodes = (node for node in (timeline.before, *reversed(self.rows.keys)) if isinstance(node, int))
        known = (self.rows.get(node) for node in nodes if node in timeline.tree.nodes)
        read = next((each for each in known if each is not None and each.facts.failed is None), None)
        if read is None or (chosen := self.chosen(read)) is None:
            return None
        head, layer = chosen
        if self._heat is None or self._heat[0] is not read or self._heat[1] != head:
            path = timeline.tree.path(read.node)
            weights = weights_of(layer, head.head, len(path))
            shares = {item.node: weight for item, weight in zip(path, weights, strict=False)}
            token = quoted(token_label(path[-1].text, path[-1].raw))
            self._heat = read, head, OfferedHeat(f"{head.name} from {token}", shares)
        return self._heat[2]

    @property
    def head(self) -> int:
        """The number of the chosen head, whatever its layer; the first where none was chosen."""
        return self._chosen.head if self._chosen is not None else 0

    def choose(self, head: Head) -> None:
        """Choose a head, over the text and among all."""
        self._chosen, self.triangle, self.order = head, False, 0

    def turn_head(self, read: AttentionRead, by: int) -> None:
        """Choose the next head of the layer, its mean or its maximum; they go round."""
        if (chosen := self.chosen(read)) is not None:
            now, layer = chosen
            own = columns(layer)
            self._chosen = Head(now.layer, own[(own.index(now.head) + by) % len(own)])

    def turn_layer(self, read: AttentionRead, by: int) -> None:
        """Choose the same head of a later layer, or of an earlier one."""
        if (chosen := self.chosen(read)) is not None:
            now, _ = chosen
            layers = list(dict.fromkeys(layer.layer for layer in read.layers))  # some have several attentions
            place = layers.index(now.layer) + by
            self._chosen = Head(layers[max(0, min(len(layers) - 1, place))], now.head)

    def turn_rank(self, scores: tuple[HeadScore, ...], by: int) -> None:
        """Choose the next head in the order of the scores."""
        best = [Head(each.layer, each.head) for each in ranked(scores, self.order)]
        place = best.index(self._chosen) + by if self._chosen in best else 0
        if best:
            self._chosen = best[max(0, min(len(best) - 1, place))]

    def sort(self) -> None:
        """Sort the heads in the next way."""
        self.order = (self.order + 1) % len(ORDERS)

    def turn_texts(self) -> None:
        """Score heads over repeated texts, or over the path; where they are in their places they are sorted first."""
        self.texts = RepeatedTexts() if self.texts is None or not self.order else None
        self.order = self.order or 1

    def turn_triangle(self) -> None:
        """Show the triangle, then all of it where it doesn't fit, then this token alone."""
        squeeze = self.triangle and not self.squeezed and not self.fits
        self.triangle, self.squeezed = squeeze or not self.triangle, squeeze

    def first_of(self, scores: tuple[HeadScore, ...]) -> None:
        """Choose the head with the highest score, where there is one."""
        best = ranked(scores, self.order)[0] if scores else None
        if best is not None and score(best, self.order) is not None:
            self._chosen = Head(best.layer, best.head)


# ---- keys ---------------------------------------------------------------------------------------


ATTENTION_SCREEN = inside_table(
    "While attention is looked at",
    *walking("Look from another token; the head stays."),
    *both(("attention.later_layer", "attention.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a later layer, or an earlier one. In a ranking: the previous or the next head.",
          lambda own, by: own.turn_layer(by), by=(1, -1), worth=8,
          hint=lambda own: "rank" if own.control.order and not own.control.triangle else "layer"),
    *both(("attention.head_before", "attention.next_head"), ("Previous head", "Next head"),
          "Choose the previous or the next head. After the last head come mean and maximum.",
          lambda own, by: own.turn_head(by), hint="head", worth=8),
    Action("attention.sort", "Sort",
           "Sort the heads: by place, previous token, same token again (induction), duplicate token, first token, "
           "widest.",
           lambda own: own.sort(), hint="sort", worth=5),
    Action("attention.texts", "Standard texts",
           "Score heads over repeated random tokens, the same for all models; again for this text.",
           lambda own: own.turn_texts(), worth=5,
           hint=lambda own: "this text" if own.control.texts is not None and own.control.order
           else "standard texts"),
    Action("attention.triangle", "All tokens",
           "Show where the head looks from each token; if not all fit, press again to see them at once.",
           lambda own: own.control.turn_triangle(), worth=6,
           hint=lambda own: "all tokens" if not own.control.triangle
           else "one token" if own.control.fits or own.control.squeezed else "squeeze"),
    SCROLLS,
    text="The numbers under the text and the colours are shares of the head's attention, in percent. The view begins "
    "with the head that looks most at a single token, neither the first nor the last two. Where a head looks does "
    "not explain what the model says.",
)  # fmt: skip

"""What the functions of lessons give of beam searches and of the inside of the model, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.frozen import frozen
from engine.protocol import AttentionLayer, Hypothesis, LensCell, LensRead
from inspector.lessons.expressions import SubjectKind
from inspector.lessons.kinds import count, measured, token, written
from inspector.lessons.margins import near_top
from inspector.lessons.values import Value
from inspector.state.beams import BeamNode
from inspector.state.session_tree import Item

# ---- beams ------------------------------------------------------------------------------------


@frozen
class Searched:
    """A continuation of a beam search."""

    best: Hypothesis
    greedy: Hypothesis
    nodes: Mapping[int, BeamNode]
    """Of all searches since the prompt was read, by number."""

    @property
    def shared(self) -> int:
        """Tokens until it parts from greedy decoding."""
        pairs = zip(self.best.ids, self.greedy.ids, strict=False)
        return next((place for place, (own, other) in enumerate(pairs) if own != other), self._shorter)

    @property
    def _shorter(self) -> int:
        return min(self.best.length, self.greedy.length)

    def parted(self, hypothesis: Hypothesis) -> BeamNode:
        """The token of one of the two where they part.

        Raises:
            LookupError: They don't.
        """
        if self.shared == self._shorter:
            raise LookupError("it doesn't part from greedy decoding")
        node = self.nodes[hypothesis.node]
        while node.length > self.shared + 1:
            node = self.nodes[node.parent]
        return node


BEAMS = SubjectKind(
    "a continuation of a beam search",
    "text",
    {
        "text": ("its text", lambda of: Value("text", of.best.text)),
        "logprob": ("the sum of its logprobs", lambda of: measured("number", of.best.logprob)),
        "score": ("its score", lambda of: measured("number", of.best.score)),
        "length": ("how many tokens", lambda of: count(of.best.length)),
        "greedy_logprob": ("the sum of greedy decoding's logprobs", lambda of: measured("number", of.greedy.logprob)),
        "greedy_text": ("greedy decoding's text", lambda of: Value("text", of.greedy.text)),
        "times_greedy": ("how many times as probable it is as greedy decoding's text",
                         lambda of: Value("times", math.exp(of.best.logprob - of.greedy.logprob))),
        "shared": ("tokens until it parts from greedy decoding", lambda of: count(of.shared)),
        "parts": ("its token where they part", lambda of: token(of.parted(of.best).text)),
        "parts_prob": ("the probability of that token",
                       lambda of: measured("probability", math.exp(of.parted(of.best).logprob))),
        "greedy_parts": ("the token that greedy decoding takes there", lambda of: token(of.parted(of.greedy).text)),
        "greedy_parts_prob": ("the probability of that token",
                              lambda of: measured("probability", math.exp(of.parted(of.greedy).logprob))),
        "is_greedy": ("whether it is what greedy decoding gives",
                      lambda of: Value("truth", of.best.ids == of.greedy.ids)),
    },
)  # fmt: skip

# ---- inside -----------------------------------------------------------------------------------


@frozen
class LensLayer:
    """What one layer would predict at the token that is looked at."""

    read: LensRead
    layer: int


@frozen
class HeadRow:
    """Where one head looks."""

    layer: AttentionLayer
    head: int
    tokens: int
    path: tuple[Item, ...]

    @property
    def most(self) -> int:
        """Position that it looks at most."""
        weights = self.layer.over(self.head, self.tokens)
        return max(range(len(weights)), key=lambda place: weights[place])


HEAD = SubjectKind(
    "a head",
    "text",
    {
        "text": ("the token that it looks at most",
                 lambda of: token(written(of.path[of.most]), fragile=near_top(of.layer.over(of.head, of.tokens)))),
        "weight": ("the weight on it",
                   lambda of: measured("probability", of.layer.over(of.head, of.tokens)[of.most])),
        "place": ("its place in the text, from 1", lambda of: count(of.most + 1)),
    },
)  # fmt: skip


def _lens_leads(of: LensLayer) -> Value:
    column = of.read.columns[-1]
    return count(column.leads_from)


LENS = SubjectKind(
    "the lens at a layer",
    "top",
    {
        "top": ("the token that it would predict",
                lambda of: token(_cell(of).top[0].text, fragile=near_top([each.prob for each in _cell(of).top]))),
        "prob": ("its probability", lambda of: measured("probability", _cell(of).top[0].prob)),
        "entropy": ("how unsure it is", lambda of: measured("bits", _cell(of).entropy_bits)),
        "layers": ("how many layers the model has", lambda of: count(len(of.read.columns[-1].cells) - 1)),
        "leads_from": ("the layer from which on the final token leads, from 1; 0 for the embedding", _lens_leads),
    },
)  # fmt: skip


def _cell(of: LensLayer) -> LensCell:
    cells = of.read.columns[-1].cells
    if not 0 <= of.layer < len(cells):
        raise LookupError(f"the model has {len(cells) - 1} layers")
    return cells[of.layer]

"""What was chosen in the attention view, kept from token to token and from opening to opening, and what is known."""

from __future__ import annotations

from engine.protocol import AttentionLayer, AttentionRead, HeadScore, HeadsScored, TriangleRead
from inspector.session.client import EngineClient
from inspector.session.requests import Replies
from inspector.tools.attention.weights import ORDERS, Head, columns, ranked, score, telling


class AttentionControl:
    """The chosen head, how heads are sorted, and the answers of the engine.

    Args:
        client: Of the engine.
    """

    def __init__(self, client: EngineClient) -> None:
        self.rows = Replies(client, AttentionRead, lambda answer: answer.node)
        """Where all heads look, by node."""
        self.triangles = Replies(
            client, TriangleRead, lambda answer: (answer.node, answer.layer, answer.head)
        )
        self.scores = Replies(client, HeadsScored, lambda answer: (answer.node,))
        """These and the triangles by the last node of their path."""
        self.order = 0
        """Place in `ORDERS`."""
        self.triangle = False
        """Whether the whole triangle of the head is on show."""
        self.squeezed = False
        """Whether it is squeezed into the panel, where it is larger."""
        self._chosen: Head | None = None

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.rows, self.triangles, self.scores):
            answers.drop()

    def chosen(self, read: AttentionRead) -> Head | None:
        """The chosen head, as far as an answer has it; the first time one that looks at something."""
        if self._chosen is None:
            self._chosen = telling(read)
        if self._chosen is None or not read.layers:
            return None
        layer = self.layer(read, self._chosen)
        return Head(
            layer.layer, self._chosen.head if self._chosen.head in columns(layer) else layer.heads - 1
        )

    @staticmethod
    def layer(read: AttentionRead, head: Head) -> AttentionLayer:
        """The layer of a head, or the nearest that has an attention."""
        return min(read.layers, key=lambda layer: abs(layer.layer - head.layer))

    def choose(self, head: Head) -> None:
        """Choose a head, over the text and among all."""
        self._chosen, self.triangle, self.order = head, False, 0

    def turn_head(self, read: AttentionRead, by: int) -> None:
        """Choose the next head of the layer, its mean or its maximum; they go round."""
        if (now := self.chosen(read)) is not None:
            own = columns(self.layer(read, now))
            self._chosen = Head(now.layer, own[(own.index(now.head) + by) % len(own)])

    def turn_layer(self, read: AttentionRead, by: int) -> None:
        """Choose the same head of a later layer, or of an earlier one."""
        if (now := self.chosen(read)) is not None:
            layers = [layer.layer for layer in read.layers]
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

    def turn_triangle(self, fits: bool) -> None:
        """Show the triangle, then all of it where it doesn't fit, then this token alone.

        Args:
            fits: Whether it has room as it is on show.
        """
        squeeze = self.triangle and not self.squeezed and not fits
        self.triangle, self.squeezed = squeeze or not self.triangle, squeeze

    def first_of(self, scores: tuple[HeadScore, ...]) -> None:
        """Choose the head with the highest score, where there is one."""
        best = ranked(scores, self.order)[0] if scores else None
        if best is not None and score(best, self.order) is not None:
            self._chosen = Head(best.layer, best.head)

"""The chosen head, the answers about attention, and the keys."""

from __future__ import annotations

from engine.protocol import AttentionLayer, AttentionRead, HeadScore, HeadsScored, RepeatedTexts, TriangleRead
from inspector.display import quoted, token_label
from inspector.documents.attention import ORDERS, Head, columns, most_focused, ranked, score, weights_of
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.main.tool import OfferedHeat
from inspector.session.client import EngineClient
from inspector.session.requests import Replies
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, both

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


ATTENTION_SCREEN = look_table(
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

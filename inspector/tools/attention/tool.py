"""Attention as a tool: its keys, the chosen head, and the answers of the engine."""

from __future__ import annotations

from engine.protocol import AttentionLayer, AttentionRead, HeadScore, HeadsScored, RepeatedTexts, TriangleRead
from inspector.display import quoted, token_label
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import SCROLLS, inside_table, no_attention, walking
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.session.client import EngineClient
from inspector.session.requests import LookReplies
from inspector.state.heads import ORDERS, Head, columns, most_focused, ranked, score, weights_of
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, Needs, both

# ---- the choice and the answers -----------------------------------------------------------------


class AttentionControl:
    """The chosen head, how heads are sorted, and the answers of the engine.

    Args:
        client: Of the engine.
    """

    def __init__(self, client: EngineClient) -> None:
        self.rows = LookReplies(client, AttentionRead, lambda answer: answer.node)
        """The weights of all heads, by node."""
        self.triangles = LookReplies(
            client, TriangleRead, lambda answer: (answer.node, answer.layer, answer.head)
        )
        self.scores = LookReplies(client, HeadsScored, lambda answer: (answer.texts or answer.node,))
        """These and the triangles by the last node of their path; scores over repeated texts by those."""
        self.order = 0
        """Place in `ORDERS`."""
        self.texts: RepeatedTexts | None = None
        """What heads are scored over; None for the path."""
        self.triangle = False
        """True if the whole triangle of the head is on show."""
        self.squeezed = False
        """True if it is squeezed into the panel, where it is larger."""
        self._chosen: Head | None = None
        self._heat: tuple[AttentionRead, Head, OfferedHeat] | None = None
        """What was offered last, and what it was made of."""

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.rows, self.triangles, self.scores):
            answers.drop()

    def chosen(self, read: AttentionRead) -> Head | None:
        """The chosen head, as far as an answer has it; the first time one that looks at something."""
        if self._chosen is None:
            self._chosen = most_focused(read)
        if self._chosen is None or not read.layers:
            return None
        layer = self.layer(read, self._chosen)
        head = self._chosen.head if self._chosen.head in columns(layer) else layer.heads - 1
        return Head(layer.layer, head)

    def heat(self, timeline: Timeline) -> OfferedHeat | None:
        """The weights of the chosen head over the path: from the selected token, or the one that was looked at last."""
        nodes = (node for node in (timeline.before, *reversed(self.rows.keys)) if isinstance(node, int))
        known = (self.rows.get(node) for node in nodes if node in timeline.tree.nodes)
        read = next((each for each in known if each is not None and each.facts.failed is None), None)
        if read is None or (head := self.chosen(read)) is None:
            return None
        if self._heat is None or self._heat[0] is not read or self._heat[1] != head:
            path = timeline.tree.path(read.node)
            weights = weights_of(self.layer(read, head), head.head, len(path))
            shares = {item.node: weight for item, weight in zip(path, weights, strict=False)}
            token = quoted(token_label(path[-1].text, path[-1].raw))
            self._heat = read, head, OfferedHeat(f"{head.name} from {token}", shares)
        return self._heat[2]

    @staticmethod
    def layer(read: AttentionRead, head: Head) -> AttentionLayer:
        """The layer of a head, or the nearest that has an attention."""
        return min(read.layers, key=lambda layer: abs(layer.layer - head.layer))

    @property
    def head(self) -> int:
        """The number of the chosen head, whatever its layer; the first where none was chosen."""
        return self._chosen.head if self._chosen is not None else 0

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


# ---- keys ---------------------------------------------------------------------------------------


class AttentionActions(ToolActions):
    """Opens the view, and keeps the chosen head and the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = AttentionControl(host.controller.client)

    def open(self) -> None:
        """Look at the heads of the selected token."""
        from inspector.tools.attention.screen import AttentionScreen

        self.open_screen(AttentionScreen(self.host, self.control))

    def heat(self) -> OfferedHeat | None:
        """Where the chosen head looks."""
        return self.control.heat(self.timeline)

    def point(self, *place: int) -> None:
        """Choose a head of a layer; of a layer alone the head that is chosen in another."""
        layer, *head = place
        self.control.choose(Head(layer - 1, head[0] - 1 if head else self.control.head))


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
           lambda own: own.turn_texts(), hint=lambda own: own.other_texts, worth=5),
    Action("attention.triangle", "All tokens",
           "Show where the head looks from each token; if not all fit, press again to see them at once.",
           lambda own: own.turn_triangle(), hint=lambda own: own.next_view, worth=6),
    SCROLLS,
    text="The numbers under the text and the colours are shares of the head's attention, in percent. The view begins "
    "with the head that looks most at a single token, neither the first nor the last two. Where a head looks does "
    "not explain what the model says.",
)  # fmt: skip


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.attention.evidence import ATTENTION_PART

    return (ATTENTION_PART,)


ATTENTION = Tool(
    "attention",
    "Attention",
    AttentionActions,
    screen=True,
    actions=(
        Action("attention", "Attention", "Show where each attention head of each layer looks from this token.",
            AttentionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.rows.any,
            looks=True, lacks=no_attention,
            synonyms="attention map, attention head, attention heads, attention weights, attention pattern, "
            "which words the model looks at, induction head, "
            "previous-token head, duplicate-token head", view="attention"),
    ),
    owners=(ATTENTION_SCREEN,),
    exports=_exports,
)  # fmt: skip

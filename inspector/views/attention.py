"""Attention: all heads as small maps, one of them over the text, and its weights from every token."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.geometry import clamp

from engine.protocol import (
    TRIANGLE_TOKENS,
    AttentionLayer,
    AttentionRead,
    Command,
    HeadScore,
    HeadsScored,
    ReadAttention,
    ReadTriangle,
    RepeatedTexts,
    ScoreHeads,
    TriangleRead,
)
from inspector.blocks.blocks import Beside, Block, Drawn, sentences
from inspector.blocks.paint import Painter
from inspector.display import first_fitting, visible
from inspector.documents.attention import (
    ORDERS,
    QUIET,
    Head,
    brief,
    columns,
    details,
    maps,
    most_focused,
    ranked,
    ranking,
    weights_of,
)
from inspector.documents.triangle import Triangle
from inspector.keys import key_for
from inspector.main.inside_view import (
    SCROLLS,
    TITLED,
    InsideView,
    attention_from,
    label_at,
    look_table,
    noticed,
    page,
    told,
    walking,
    why_missing,
)
from inspector.main.tool import OfferedHeat
from inspector.scales import size
from inspector.session.requests import Replies
from inspector.state.inside import Answers
from inspector.state.session_tree import Item
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row, centred

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

Known = TypeVar("Known", TriangleRead, HeadsScored)
DETAILS = (36, 46)
"""Minimum and maximum cells of the lines about a head, beside the maps."""
SIDE = 70
"""Cells from which there is room for these lines."""
LOW = 16
"""Lines below which the weights from all tokens are shown without them."""
TEXT_ROWS = 8
"""Maximum rows of the text, its frame included."""


ATTENTION_KEYS = look_table(
    "While attention is looked at",
    *walking("Look from another token; the head stays."),
    *both(("attention.later_layer", "attention.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a later layer, or an earlier one. In a ranking: the previous or the next head.",
          lambda own, by: own.turn_layer(by), by=(1, -1), worth=8,
          hint=lambda own: "rank" if own.order and not own.triangle else "layer"),
    *both(("attention.head_before", "attention.next_head"), ("Previous head", "Next head"),
          "Choose the previous or the next head. After the last head come mean and maximum.",
          lambda own, by: own.turn_head(by), hint="head", worth=8),
    Action("attention.sort", "Sort",
           "Sort the heads: by place, previous token, induction (what followed the same token before), duplicate "
           "token, first token, widest.",
           lambda own: own.sort(), hint="sort", worth=5),
    Action("attention.texts", "Standard texts",
           "Score heads over repeated random tokens, the same for all models; again for this text.",
           lambda own: own.turn_texts(), worth=5,
           hint=lambda own: "this text" if own.texts is not None and own.order else "standard texts"),
    Action("attention.triangle", "All tokens",
           "Show where the head looks from each token; if not all fit, press again to see them at once.",
           lambda own: own.turn_triangle(), worth=6,
           hint=lambda own: "all tokens" if not own.triangle
           else "one token" if own.fits or own.squeezed else "squeeze"),
    page("scores", lambda own: "why there" if own.single is not None else ""),
    SCROLLS,
    text="The numbers under the text and the colours are shares of the head's attention, in percent. The view begins "
    "with the head that looks furthest back, of those with half of their attention on one token, the first apart. "
    "Where a head looks does not explain what the model says.",
)  # fmt: skip


class AttentionView(InsideView[AttentionRead]):
    """The weights of all heads from one token."""

    TOOL: ClassVar[str] = "attention"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = ATTENTION_KEYS

    def __init__(self, host: MainScreen) -> None:
        client = host.controller.client
        super().__init__(host, Replies(client, AttentionRead))
        self._triangles = Replies(client, TriangleRead)
        self._scores = Replies(client, HeadsScored)
        self.order = 0
        """The order of the heads, an index into `ORDERS`."""
        self.texts: RepeatedTexts | None = None
        """The texts that heads are scored over; None for the path."""
        self.triangle = False
        """True if the weights of the head from all tokens are shown."""
        self.squeezed = False
        """True if these weights are squeezed into the panel."""
        self.fits = True
        """True if each of their rows and columns has its own cell."""
        self._wanted: Head | None = None
        """The chosen head. It is kept at other tokens, whose answers may not have it."""
        self.at: tuple[Head, AttentionLayer] | None = None
        """The head on show, which is the answer's nearest to the chosen one, and its layer: see `look`."""
        self.scored: HeadsScored | None = None
        """The scores of all heads over the path or the standard texts; None until they are known."""
        self.read: TriangleRead | None = None
        """The weights of the head from all tokens."""
        self.over_path: tuple[Replies[Any], Hashable, Command] | None = None
        """The question whose answer is shown instead of the maps: its replies, its key and its command."""
        self._sorts = False
        """True if the first head of the order is chosen as soon as the scores are known."""
        self._before: Head | None = None
        """The head that the user chose last, or that was shown before the heads were sorted."""

    def point(self, *place: int) -> None:
        """Choose a layer and a head, both from 1; without a head, the head's number stays."""
        layer, *head = place
        number = head[0] - 1 if head else self._wanted.head if self._wanted is not None else 0
        self._wanted, self.triangle, self.order = Head(layer - 1, number), False, 0

    def offered(self, answer: AttentionRead, path: Sequence[Item]) -> OfferedHeat | None:
        """The weights of the chosen head."""
        if (found := self._found(answer)) is None:
            return None
        head, layer = found
        weights = weights_of(layer, head.head, len(path))
        shares = {item.node: weight for item, weight in zip(path, weights, strict=False)}
        return OfferedHeat(f"{head.name} from {label_at(path)}", shares)

    # ---- the selected head ----------------------------------------------------------------------

    def _found(self, read: AttentionRead) -> tuple[Head, AttentionLayer] | None:
        """The chosen head, or the nearest that an answer has, and its layer; at first the most focused head."""
        self._wanted = wanted = self._wanted or most_focused(read)
        if wanted is None or not read.layers:
            return None
        layer = min(read.layers, key=lambda each: abs(each.layer - wanted.layer))
        return Head(layer.layer, wanted.head if wanted.head in columns(layer) else layer.heads - 1), layer

    @property
    def chosen(self) -> Head | None:
        """The head on show."""
        return self.at[0] if self.at is not None else None

    @property
    def single(self) -> Head | None:
        """The head on show; None if it is a mean or a maximum."""
        chosen = self.chosen
        return chosen if chosen is not None and chosen.head >= 0 else None

    def look(self) -> None:
        """See `InsideView`; after sorting, choose the first head once the scores are known."""
        super().look()
        self.scored = self._over(self._scores) if self.texts is None else self._scores.get((self.texts,))
        if self._sorts and self.scores:
            self._sorts, best = False, ranked(self.scores, self.order)[0]
            if ORDERS[self.order].score(best) is not None:
                self._wanted = Head(best.layer, best.head)
        self.at = self._found(self.answer) if self.answer is not None else None
        self.read = self.over_path = None
        if (head := self.single) is not None:
            self.timeline.of(Answers).head = head
        if self.triangle and head is not None:
            self.read = self._over(self._triangles, *head)
            node = self.read.node if self.read is not None else self.end
            self.over_path = self._triangles, (node, *head), ReadTriangle(self.end, *head)
        elif self.order and not self.triangle:
            node = self.scored.node if self.scored is not None else self.end
            self.over_path = self._scores, (self.texts or node,), ScoreHeads(self.end, self.texts)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadAttention(self.node)

    def ask(self) -> None:
        super().ask()
        if self.over_path is not None:
            answers, key, question = self.over_path
            answers.want(key, question)

    def drop(self) -> None:
        for answers in (self.answers, self._triangles, self._scores):
            answers.drop()

    @property
    def end(self) -> int:
        """The last token to ask about: weights and scores are asked for it and all tokens before it."""
        items = self.timeline.items
        fits = max(self.timeline.slot, min(len(items), TRIANGLE_TOKENS))
        return items[fits - 1].node if items else self.node

    def _over(self, answers: Replies[Known], *head: int) -> Known | None:
        """An answer about a path with the token: up to `end`, or else one that ended earlier."""
        nodes: list[int] = [self.end]
        if answers.any:
            nodes += [item.node for item in self.timeline.items[max(0, self.timeline.slot - 1) :]]
        found = [answers.get((node, *head)) for node in nodes]
        return next((answer for answer in found if answer is not None), None)

    @property
    def scores(self) -> tuple[HeadScore, ...]:
        """The scores, if their checks passed."""
        return self.scored.heads if self.scored is not None and self.scored.facts.failed is None else ()

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to a third of the screen: the maps can use the other rows."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: AttentionRead | None) -> str:
        if self.triangle and (head := self.chosen) is not None:
            known, read = "", self.read
            if read is not None:
                known = f": {read.tokens:,} tokens, {size(read.nbytes)} of 16 bits"
            long, short = f"Where {head.name} looks from each token{known}", f"{head.name}, all tokens"
            return first_fitting(self.area.width - TITLED, long, f"{short}{known}", short)
        if self.order:
            known = ""
            if (scored := self.scored) is not None:
                known = f", over {f'{scored.tokens:,}' if self.texts is None else 'random'} tokens"
            return f"Heads sorted by: {ORDERS[self.order].name}{known}"
        if answer is None or not answer.layers:
            return "Where each head looks"
        most = max(map(attrgetter("heads"), answer.layers))
        return f"Where each head looks: {len(answer.layers)} layers of {most} heads"

    def heat(self, answer: AttentionRead) -> tuple[str, Sequence[float], Collection[int]]:
        if self.at is None:
            return "", (), ()
        head, layer = self.at
        title = attention_from(head.name, self.path, self.timeline.selected, self.area.width - TITLED)
        return title, weights_of(layer, head.head, answer.tokens), ()

    def situation(self) -> str:
        if self.over_path is not None:
            return told(*self.over_path[:2], self.app.size.width - 2)
        return super().situation()

    def draw(self, answer: AttentionRead, on: Canvas, width: int, height: int) -> list[Row]:
        if self.at is None:
            return centred([(visible(line), on.ink("muted")) for line in answer.missing], width, height)
        chosen, layer = self.at
        main = [*self._main(answer, chosen, on)]
        if self.triangle and (width < SIDE or height < LOW):
            return Painter(on).draw([*main, QUIET], width, height)
        known = None
        if (scored := self.scored) is not None:
            own = (each for each in self.scores if (each.layer, each.head) == chosen)
            known = next(((each, scored) for each in own), None)
        first = min(self.candidates, key=attrgetter("rank"), default=None)
        missing = [*sentences(map(visible, answer.missing))]
        side = [*details(self.path, layer, chosen, known, first), *missing]
        short = [*brief(self.path, layer, chosen, first), *missing]
        return Painter(on).draw([Beside(main, side, SIDE, DETAILS, short)], width, height)

    def _main(self, answer: AttentionRead, chosen: Head, on: Canvas) -> Iterable[Block]:
        """The maps, the ranking or the weights from all tokens; or the reason why they aren't there."""
        if self.triangle and self.single is None:
            said = "A single head can be shown from all tokens: choose one with [ or ]."
            return [noticed([(said, on.ink("muted"))], middle=True)]
        if self.over_path is None:
            return maps(answer, chosen)
        answers, key, _ = self.over_path
        found = answers.get(key)
        why = why_missing(on, found.facts if found is not None else None, answers.failure(key))
        if self.read is not None and not why:
            return [Drawn(partial(self._triangle, self.read), (6, self.read.tokens + 5))]
        if self.scored is not None and self.scores and not self.triangle:
            return ranking(answer, self.scored, self.order, chosen)
        runs = "The whole path goes through the model again."
        if self.texts is not None and not self.triangle:
            runs = "Repeated random tokens go through the model."
        live = f"Press esc, then {key_for('go_live')} to continue live."
        unrecorded = ("This was not recorded.", on.rich_style), (live, on.ink("muted"))
        return [noticed(why or ([(runs, on.rich_style)] if self.live else [*unrecorded]), middle=True)]

    def _triangle(self, read: TriangleRead, painter: Painter, width: int, height: int) -> list[Row]:
        drawn = Triangle(read, self.timeline.items, len(self.path) - 1, painter, self.squeezed)
        rows = drawn.rows(width, height)
        self.fits = drawn.fits
        return rows

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose the same head of a later layer, or of an earlier one; in a ranking the head before or after."""
        if self.order and self.scores and not self.triangle:
            best = [Head(each.layer, each.head) for each in ranked(self.scores, self.order)]
            place = best.index(self._wanted) - by if self._wanted in best else 0
            self._before = self._wanted = best[clamp(place, 0, len(best) - 1)]
        elif self.answer is not None and self.at is not None:
            layers = [
                *dict.fromkeys(layer.layer for layer in self.answer.layers)
            ]  # some have several attentions
            place = clamp(layers.index(self.at[0].layer) + by, 0, len(layers) - 1)
            self._wanted = Head(layers[place], self.at[0].head)

    def turn_head(self, by: int) -> None:
        """Choose the next head of the layer, its mean or its maximum; after the last comes the first."""
        if self.at is not None:
            head, own = self.at[0], columns(self.at[1])
            self._before = self._wanted = Head(head.layer, own[(own.index(head.head) + by) % len(own)])

    def sort(self) -> None:
        """Sort the heads in the next order; the first of them is chosen."""
        self._sort((self.order + 1) % len(ORDERS))

    def _sort(self, order: int) -> None:
        if not self.order:
            self._before = self._wanted
        elif not order:
            self._wanted = self._before or self._wanted
        self.order, self.triangle, self._sorts = order, False, bool(order)

    def turn_texts(self) -> None:
        """Score heads over repeated texts, or over the path; sort the heads by their scores."""
        self.texts = RepeatedTexts() if self.texts is None or not self.order else None
        self._sort(self.order or 1)

    def turn_triangle(self) -> None:
        """Show the weights from all tokens, then squeezed if they don't fit, then those from this token alone."""
        squeeze = self.triangle and not self.squeezed and not self.fits
        self.triangle, self.squeezed = squeeze or not self.triangle, squeeze

    def back(self) -> None:
        """Go back: from a ranking, or from the weights from all tokens, to the maps of all heads."""
        if self.triangle or self.order:
            self._triangles.drop()
            self._scores.drop()
            self.texts = None
            self._sort(0)
        else:
            super().back()

    def goes_to(self, action: str) -> None:
        """Open the view of scores on the head."""
        if action == "scores" and (head := self.single) is not None:
            self.host.point(action, head.layer + 1, head.head + 1)

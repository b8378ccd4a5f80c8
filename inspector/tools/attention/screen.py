"""The screen of attention: all heads as small maps, one of them over the text, and its whole triangle."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.style import Style

from engine.protocol import (
    TRIANGLE_TOKENS,
    AttentionRead,
    Command,
    Failure,
    HeadScore,
    HeadsScored,
    ReadAttention,
    ReadTriangle,
    ScoreHeads,
    TriangleRead,
)
from inspector.blocks.blocks import Beside, Block, Drawn, sentences
from inspector.blocks.paint import Painter
from inspector.display import quoted, token_label, visible
from inspector.documents.attention import ORDERS, QUIET, Head, brief, details, maps, ranking, weights_of
from inspector.documents.triangle import Triangle
from inspector.keys import key_for
from inspector.main.inside_view import TITLED, InsideView, noticed, refused, told
from inspector.scales import size
from inspector.session.requests import Replies
from inspector.tools.attention.control import ATTENTION_SCREEN, AttentionControl
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, centred

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

Known = TypeVar("Known", TriangleRead, HeadsScored)
DETAILS = (36, 46)
"""Cells of the lines about a head, beside the maps, at least and at most."""
SIDE = 70
"""Cells from which on there is room for it."""
LOW = 16
"""Lines below which there is no room for everything."""
TEXT_ROWS = 8
"""Rows of the text at most, its frame included."""


class AttentionScreen(InsideView[AttentionRead]):
    """Looks at the heads of one token.

    Args:
        host: The main screen.
        control: The chosen head, and what is known.
    """

    TOOL: ClassVar[str] = "attention"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = ATTENTION_SCREEN

    def __init__(self, host: MainScreen, control: AttentionControl) -> None:
        super().__init__(host, control.rows)
        self.control = control
        self._sorted = True
        """True if the choice followed the last change of the order."""
        control.fits = True

    # ---- what is asked --------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadAttention(self.node)

    def ask(self) -> None:
        control = self.control
        control.rows.want(*self.question())
        if control.order and self._scored is None:
            control.scores.want(self._scores_key, ScoreHeads(self.end, control.texts))
        if (
            control.triangle
            and (head := self._single) is not None
            and self._over(control.triangles, *head) is None
        ):
            control.triangles.want((self.end, *head), ReadTriangle(self.end, *head))

    def drop(self) -> None:
        self.control.drop()
        super().drop()

    @property
    def end(self) -> int:
        """The last token of the path whose rows and scores are wanted: those of the tokens before it are among them."""
        items = self.timeline.items
        fits = max(self.timeline.slot, min(len(items), TRIANGLE_TOKENS))
        return items[fits - 1].node if items else self.node

    def _over(self, answers: Replies[Known], *head: int) -> Known | None:
        """An answer about a path that the token is in: the one on show, or one that ended before."""
        if (answer := answers.get((self.end, *head))) is not None:
            return answer
        for item in self.timeline.items[max(0, self.timeline.slot - 1) :]:
            if (answer := answers.get((item.node, *head))) is not None:
                return answer
        return None

    @property
    def _scores_key(self) -> Hashable:
        """What the scores that are wanted are about."""
        scored = self._scored
        return (self.control.texts or (scored.node if scored is not None else self.end),)

    @property
    def _scored(self) -> HeadsScored | None:
        """The scores of all heads over what they are wanted over, where they are known."""
        control = self.control
        return self._over(control.scores) if control.texts is None else control.scores.get((control.texts,))

    @property
    def _single(self) -> Head | None:
        """The chosen head; None where it is a mean or a maximum."""
        chosen = self.chosen
        return chosen if chosen is not None and chosen.head >= 0 else None

    @property
    def chosen(self) -> Head | None:
        """The head that is looked at."""
        found = self.control.chosen(self.answer) if self.answer is not None else None
        return found[0] if found is not None else None

    @property
    def scores(self) -> tuple[HeadScore, ...]:
        """Of all heads, where they were computed and hold."""
        scored = self._scored
        return scored.heads if scored is not None and scored.facts.failed is None else ()

    # ---- what is shown --------------------------------------------------------------------------

    def look(self) -> None:
        """See `InsideView`; the first head of a new order is chosen once their scores are known."""
        super().look()
        if not self._sorted and self.scores:
            self._sorted = True
            self.control.first_of(self.scores)

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to a third of the screen: the maps can use the others."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: AttentionRead | None) -> str:
        chosen = self.control.chosen(answer) if answer is not None else None
        if self.control.triangle and chosen is not None:
            head, _ = chosen
            read = self._over(self.control.triangles, *head)
            known = f": {read.tokens:,} tokens, {size(read.nbytes)} of 16 bits" if read is not None else ""
            short = f"{head.name}, all tokens"
            forms = (f"Where {head.name} looks from each token{known}", f"{short}{known}")
            return next((form for form in forms if len(form) <= self.area.width - TITLED), short)
        if self.control.order:
            scored = self._scored
            what = (
                "random"
                if self.control.texts is not None
                else f"{scored.tokens:,}"
                if scored is not None
                else ""
            )
            known = f", over {what} tokens" if scored is not None else ""
            return f"Heads sorted by: {ORDERS[self.control.order].name}{known}"
        if answer is None or not answer.layers:
            return "Where each head looks"
        most = max(map(attrgetter("heads"), answer.layers))
        return f"Where each head looks: {len(answer.layers)} layers of {most} heads"

    def heat(self, answer: AttentionRead) -> tuple[str, Sequence[float], Collection[int]]:
        chosen = self.control.chosen(answer)
        if chosen is None:
            return "", (), ()
        head, layer = chosen
        label = quoted(token_label(self.path[-1].text, self.path[-1].raw))
        weights = weights_of(layer, head.head, answer.tokens)
        return f"{head.name} looks from {label}: % under each token", weights, ()

    def situation(self) -> str:
        control = self.control
        if control.triangle and (head := self._single) is not None:
            whole = self._over(control.triangles, *head)
            return told(
                control.triangles, (whole.node if whole else self.end, *head), self.app.size.width - 2
            )
        if control.order and not control.triangle:
            return told(control.scores, self._scores_key, self.app.size.width - 2)
        return super().situation()

    def draw(self, answer: AttentionRead, on: Canvas, width: int, height: int) -> list[Row]:
        found = self.control.chosen(answer)
        if found is None:
            return centred([(visible(line), on.ink("muted")) for line in answer.missing], width, height)
        chosen, layer = found
        main = [*self._main(answer, chosen, on)]
        if self.control.triangle and (width < SIDE or height < LOW):
            return Painter(on).draw([*main, QUIET], width, height)
        first = min(self.candidates, key=attrgetter("rank"), default=None)
        missing = [*sentences(map(visible, answer.missing))]
        known = self._known(chosen) if self.control.scores.any else None
        side = [*details(self.path, layer, chosen, known, first), *missing]
        short = [*brief(self.path, layer, chosen, first), *missing]
        return Painter(on).draw([Beside(main, side, SIDE, DETAILS, short)], width, height)

    def _main(self, answer: AttentionRead, chosen: Head, on: Canvas) -> Iterable[Block]:
        """The maps, the ranking or the triangle; or why it isn't there."""
        control = self.control
        if control.triangle:
            if (head := self._single) is None:
                texts = [("A triangle is drawn of a single head: choose one with [ or ].", on.ink("muted"))]
                return [noticed(texts, middle=True)]
            read = self._over(control.triangles, *head)
            if read is None or read.facts.failed is not None:
                return [self._absent(control.triangles, (read.node if read else self.end, *head), on)]
            return [Drawn(partial(self._triangle, read), (6, read.tokens + 5))]
        if control.order:
            if not self.scores or (scored := self._scored) is None:
                return [self._absent(control.scores, self._scores_key, on)]
            return ranking(answer, scored, control.order, chosen)
        return maps(answer, chosen)

    def _triangle(self, read: TriangleRead, painter: Painter, width: int, height: int) -> list[Row]:
        drawn = Triangle(read, self.timeline.items, len(self.path) - 1, painter, self.control.squeezed)
        rows = drawn.rows(width, height)
        self.control.fits = drawn.fits
        return rows

    def _absent(self, answers: Replies[Any], key: Hashable, on: Canvas) -> Drawn:
        """The reason why an answer about the whole path isn't there."""
        answer, failure = answers.get(key), answers.failure(key)
        texts: list[tuple[str, Style]] = [(self._runs, on.rich_style)]
        if answer is not None:
            texts = refused(on, answer.facts.failed, answer.facts.family)
        elif isinstance(failure, Failure):
            texts = [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        elif self.host.controller.transport.recorded:
            texts = [
                ("This was not recorded.", on.rich_style),
                (f"Press esc, then {key_for('go_live')} to continue live.", on.ink("muted")),
            ]
        return noticed(texts, middle=True)

    @property
    def _runs(self) -> str:
        """What runs for an answer that isn't there yet."""
        if self.control.texts is not None and not self.control.triangle:
            return "Repeated random tokens go through the model."
        return "The whole path goes through the model again."

    def _known(self, chosen: Head) -> tuple[HeadScore, HeadsScored] | None:
        """A head's scores, and those that they are among; None until they are computed, or where they don't hold."""
        scored = self._scored
        if scored is None or scored.facts.failed is not None:
            return None
        return next(((each, scored) for each in scored.heads if (each.layer, each.head) == chosen), None)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose another layer, or another place in the ranking."""
        if self.control.order and self.scores and not self.control.triangle:
            self.control.turn_rank(self.scores, -by)
        elif self.answer is not None:
            self.control.turn_layer(self.answer, by)

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer."""
        if self.answer is not None:
            self.control.turn_head(self.answer, by)

    def sort(self) -> None:
        """Sort the heads in the next way; the first of them is chosen."""
        self.control.sort()
        self.control.triangle, self._sorted = False, False

    def goes_to(self, action: str) -> None:
        """It is asked why the chosen head looks there."""
        if action == "scores" and (head := self._single) is not None:
            self.host.point(action, head.layer + 1, head.head + 1)

    def turn_texts(self) -> None:
        """Score the heads over standard texts, or over this one."""
        self.control.turn_texts()
        self.control.triangle, self._sorted = False, False

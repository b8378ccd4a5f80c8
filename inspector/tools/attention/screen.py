"""The screen of attention: all heads as small maps, one of them over the text, and its whole triangle."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import repeat, zip_longest
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style

from engine.protocol import (
    TRIANGLE_TOKENS,
    AttentionLayer,
    AttentionRead,
    Candidate,
    Command,
    Failure,
    HeadScore,
    HeadsScored,
    ReadAttention,
    ReadTriangle,
    ScoreHeads,
    TriangleRead,
)
from inspector.display import pad, quoted, token_label, visible
from inspector.keys import key_for
from inspector.main.inside.screen import TITLED, InsideScreen, refused, told
from inspector.main.tool import Host
from inspector.scales import bits, percent, size
from inspector.session.requests import Replies
from inspector.state.attribution import measured_on, names_of
from inspector.state.session_tree import Item
from inspector.tools.attention.control import (
    ATTENTION_SCREEN,
    ORDERS,
    RESTS,
    AttentionControl,
    Head,
    entropy_bits,
    sink_of,
    weights_of,
)
from inspector.tools.attention.maps import Triangle, head_maps, ranking, said
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, centred, strip_of
from inspector.widgets.charts import bar

Known = TypeVar("Known", TriangleRead, HeadsScored)
DETAILS = (36, 46)
"""Cells of the lines about a head, beside the maps, at least and at most."""
SIDE = 70
"""Cells from which on there is room for it."""
MAPS = 14
"""Lines of the maps at least, where they are below it instead and can be scrolled to."""
TEXT_ROWS = 8
"""Rows of the text at most, its frame included."""


class AttentionScreen(InsideScreen[AttentionRead]):
    """Looks at the heads of one token.

    Args:
        host: The main screen.
        control: The chosen head, and what is known.
    """

    TOOL: ClassVar[str] = "attention"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = ATTENTION_SCREEN

    def __init__(self, host: Host, control: AttentionControl) -> None:
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
        """See `InsideScreen`; the first head of a new order is chosen once their scores are known."""
        super().look()
        if not self._sorted and self.scores:
            self._sorted = True
            self.control.first_of(self.scores)

    def text_rows(self, needed: int) -> int:
        """See `InsideScreen`; up to a third of the screen: the maps can use the others."""
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
        first = min(self.candidates, key=attrgetter("rank"), default=None)
        details = HeadDetails(on, self.path, layer, chosen, first)
        if self.control.triangle and (width < SIDE or height < LOW):
            quiet = said(QUIET, on.ink("muted"), width)
            room = height - len(quiet) if height > LOW // 2 else height  # else the page scrolls to it
            return [*self._main(answer, chosen, on, width, room), *quiet]
        side_width = width if width < SIDE else max(DETAILS[0], min(DETAILS[1], width * 2 // 5))
        missing: list[Row] = []
        for text in answer.missing:
            missing += said(visible(text), on.ink("muted"), side_width)
        if width < SIDE:
            brief = [*details.brief(width), *missing]
            if (
                height <= len(brief) + MAPS
            ):  # the page scrolls, and the text above has the shares of this head
                return [*self._main(answer, chosen, on, width, max(height, MAPS)), [], *brief]
            return [*brief, [], *self._main(answer, chosen, on, width, height - len(brief) - 1)]
        main = self._main(answer, chosen, on, width - side_width - 2, height)
        known = self._known(chosen) if self.control.scores.any else None
        side = [*details.rows(side_width, height - len(missing), known), *missing]
        return _beside(main, side, width - side_width, on.rich_style)

    def _main(self, answer: AttentionRead, chosen: Head, on: Canvas, width: int, height: int) -> list[Row]:
        """The maps, the ranking or the triangle; or why it isn't there."""
        control = self.control
        if control.triangle:
            if (head := self._single) is None:
                texts = [("A triangle is drawn of a single head: choose one with [ or ].", on.ink("muted"))]
                return centred(texts, width, height)
            read = self._over(control.triangles, *head)
            if read is None or read.facts.failed is not None:
                key = (read.node if read else self.end, *head)
                return self._absent(control.triangles, key, on, width, height)
            drawn = Triangle(read, self.timeline.items, len(self.path) - 1, on, control.squeezed)
            rows = drawn.rows(width, height)
            self.control.fits = drawn.fits
            return rows
        if control.order:
            if not self.scores or (scored := self._scored) is None:
                return self._absent(control.scores, self._scores_key, on, width, height)
            return ranking(answer, scored, control.order, chosen, on, width, height)
        return head_maps(answer, chosen, on, width, height)

    def _absent(self, answers: Replies[Any], key: Hashable, on: Canvas, width: int, height: int) -> list[Row]:
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
        return centred(texts, width, height)

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


def _beside(left: Sequence[Row], right: Sequence[Row], width: int, base: Style) -> list[Row]:
    """Two blocks of rows side by side.

    Args:
        left: Rows of less than `width` cells.
        right: Rows that begin after them.
        width: Cells of the left block and what is between.
        base: Of the cells without text.
    """
    none: Row = []
    pairs = zip_longest(left, right, fillvalue=none)
    return [[*strip_of(one, width, base), *other] for one, other in pairs]


# ---- one head -----------------------------------------------------------------------------------

BAR = 8
WIDE = 42
"""Cells from which on there is room for bars."""
LOW = 16
"""Lines below which there is no room for everything."""
LEAST = 0.001
"""The least weight of a token in the list."""
QUIET = "Attention is not an explanation: it shows where a head looks, not what decides."


class HeadDetails:
    """The lines beside the maps: the strongest tokens of a head, its remarks, and what the model ranks next.

    Args:
        on: Has the inks.
        path: The tokens up to that one.
        layer: The head's.
        chosen: The head.
        says: What the model ranks first after the token.
    """

    def __init__(
        self,
        on: Canvas,
        path: Sequence[Item],
        layer: AttentionLayer,
        chosen: Head,
        says: Candidate | None,
    ) -> None:
        self._on, self._path, self._layer, self._chosen = on, path, layer, chosen
        self._says = says
        self._weights = weights_of(layer, chosen.head, len(path))
        self._order = sorted(range(len(self._weights)), key=self._weights.__getitem__, reverse=True)
        """Places of the tokens, the largest weight first."""

    def rows(self, width: int, height: int, known: tuple[HeadScore, HeadsScored] | None) -> list[Row]:
        """All of it, with as many tokens as there is room for; where there is little, without what the rest implies.

        Args:
            width: Cells.
            height: Lines.
            known: The head's scores, and those that they are among; None until they are computed.
        """
        on, low = self._on, height < LOW
        remarks: list[Row] = []
        for text, style in self._remarks():
            remarks += said(text, style, width)
        if known is not None and not low:
            remarks += said(self._over_text(*known), on.ink("muted"), width)
        end = [*self._answer(width), *said(QUIET, on.ink("muted"), width)]
        gap: list[Row] = [] if low else [[]]
        room = max(3, height - 1 - len(remarks) - len(end) - 2 * len(gap))
        looks = token_label(self._path[-1].text, self._path[-1].raw)
        title = Segment(f"{self._chosen.title.capitalize()} looks from {looks} at", on.ink("strong"))
        return [[title], *self._tokens(width, room), *gap, *remarks, *(gap if remarks else []), *end]

    def brief(self, width: int) -> list[Row]:
        """The lines for a low screen, without the head's name: the text above has it."""
        rows = [*map(self._token, self._order[:2], repeat(width)), *self._answer(width)]
        for text, style in ((QUIET, self._on.ink("muted")), *self._remarks()):
            rows += said(text, style, width)
        return rows

    def _tokens(self, width: int, count: int) -> list[Row]:
        """The tokens with the largest weights: weight, token, position, distance; and what the others have."""
        order = self._order
        shown = [place for place in order[: max(1, count - 1)] if self._weights[place] >= LEAST] or order[:1]
        rows = [self._token(place, width) for place in shown]
        if others := len(order) - len(shown):
            rest = percent(sum(self._weights[place] for place in order[len(shown) :]))
            sum_up = f"{rest:>8}  {others:,} other{'s' if others > 1 else ''}"
            rows.append([Segment(sum_up, self._on.ink("muted"))])
        return rows

    def _token(self, place: int, width: int) -> Row:
        on, weight, item = self._on, self._weights[place], self._path[place]
        back = len(self._path) - 1 - place
        cells = BAR if width >= WIDE else 0
        where = f"{place + 1:>6}  {f'{back} back' if back else 'itself':<8}"
        room = max(4, width - 10 - cells - bool(cells) - len(where))
        token = pad(token_label(item.text, item.raw), room)
        row: Row = [
            Segment(f"{percent(weight):>8}  ", on.rich_style),
            Segment(token, on.ink("strong") if weight >= RESTS else on.rich_style),
            Segment(where, on.ink("muted")),
        ]
        return [row[0], Segment(bar(weight, cells) + " ", on.data(weight)), *row[1:]] if cells else row

    def _remarks(self) -> list[tuple[str, Style]]:
        """Sentences about the row."""
        on, sink = self._on, sink_of(self._layer, self._chosen.head)
        found: list[tuple[str, Style]] = []
        if len(self._weights) > 1 and self._weights[0] >= RESTS and self._chosen.head >= 0:
            first = percent(self._weights[0])
            text = f"Rests on the first token ({first}): an attention sink, it has little to do here."
            found.append((text, on.ink("warn")))
        if self._layer.sinks:
            text = f"Its sink takes {percent(sink)}: a share that goes to no token."
            found.append((text, on.ink("warn" if sink >= RESTS else "muted")))
        if (hidden := len(self._path) - self._layer.weights.shape[-1]) > 0:
            text = f"It can't see {hidden:,} earlier tokens: they are outside its window."
            found.append((text, on.ink("muted")))
        if self._chosen.head >= 0:
            spread = entropy_bits(self._weights, sink)
            text = f"Spread: {bits(spread)} bits, as over {2 ** min(spread, 64):.1f} tokens evenly."
            found.append((text, on.ink("muted")))
        return found

    @staticmethod
    def _over_text(known: HeadScore, scored: HeadsScored) -> str:
        shares = {"previous": known.previous, "induction": known.induction, "duplicate": known.duplicate,
                  "first": known.first}  # fmt: skip
        listed = " · ".join(f"{name} {percent(share)}" for name, share in shares.items() if share is not None)
        what = "head" if scored.texts is not None else "attention"
        named = f" ({' and '.join(names_of(known))} {what})" if names_of(known) else ""
        return f"Over {measured_on(scored)}: {listed}{named}"

    def _answer(self, width: int) -> list[Row]:
        """The model's next token."""
        if self._says is None:
            return []
        label = token_label(self._says.text, self._says.raw)
        parts = [
            Segment("The model's next token: ", self._on.ink("muted")),
            Segment(label, self._on.ink("strong")),
            Segment(f" {percent(self._says.prob)}", self._on.rich_style),
        ]
        if Segment.get_line_length(parts) > width:
            parts[0] = Segment("Next: ", self._on.ink("muted"))
        return [parts]

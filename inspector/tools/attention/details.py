"""What the chosen head looks at: its strongest tokens, what is known of the head, and what the model said."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import AttentionLayer, Candidate, HeadScore
from inspector.display import pad, token_label
from inspector.scales import bits, percent
from inspector.state.session_tree import Item
from inspector.tools.attention.weights import RESTS, Head, entropy_bits, sink_of, weights_of
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

BAR = 8
WIDE = 42
"""Cells from which on there is room for bars."""
LOW = 16
"""Lines below which there is no room for everything."""
LEAST = 0.001
"""The least weight of a token in the list."""
QUIET = "Attention is not explanation: it tells where a head looks, not what decides."


class HeadDetails:
    """What is told of one head at one token.

    Args:
        on: Has the inks.
        path: The tokens up to that one.
        layer: The head's.
        chosen: The head.
        known: Its scores, None until they are computed.
        says: What the model ranks first after the token.
    """

    def __init__(
        self,
        on: Canvas,
        path: Sequence[Item],
        layer: AttentionLayer,
        chosen: Head,
        known: HeadScore | None,
        says: Candidate | None,
    ) -> None:
        self._on, self._path, self._layer, self._chosen = on, path, layer, chosen
        self._known, self._says = known, says
        self._weights = weights_of(layer, chosen.head, len(path))

    def rows(self, width: int, height: int) -> list[Row]:
        """All of it, with as many tokens as there is room for; where there is little, without what the rest implies."""
        on, low = self._on, height < LOW
        remarks = [line for text, style in self._remarks(low) for line in self._wrapped(text, style, width)]
        end = [*self._answer(width), *self._wrapped(QUIET, on.ink("muted"), width)]
        gap: list[Row] = [] if low else [[]]
        room = max(3, height - 1 - len(remarks) - len(end) - 2 * len(gap))
        title = Segment(
            f"{self._chosen.title.capitalize()} looks from {self._label(-1)} at", on.ink("strong")
        )
        return [[title], *self.tokens(width, room), *gap, *remarks, *(gap if remarks else []), *end]

    def brief(self, width: int) -> list[Row]:
        """The same where there are a few lines alone: the text above says which head it is."""
        order = sorted(range(len(self._weights)), key=self._weights.__getitem__, reverse=True)
        rows = [self._token(place, width) for place in order[:2]]
        remarks = [(QUIET, self._on.ink("muted")), *self._remarks(True)]
        told = [line for text, style in remarks for line in self._wrapped(text, style, width)]
        return [*rows, *self._answer(width), *told]

    def tokens(self, width: int, count: int) -> list[Row]:
        """The tokens with the largest weights: weight, token, position, distance; and what the others have."""
        order = sorted(range(len(self._weights)), key=self._weights.__getitem__, reverse=True)
        shown = [place for place in order[: max(1, count - 1)] if self._weights[place] >= LEAST] or order[:1]
        rows = [self._token(place, width) for place in shown]
        if others := len(order) - len(shown):
            rest = percent(sum(self._weights[place] for place in order[len(shown) :]))
            sum_up = f"{rest:>8}  {others:,} other{'s' if others > 1 else ''}"
            rows.append([Segment(sum_up, self._on.ink("muted"))])
        return rows

    def _token(self, place: int, width: int) -> Row:
        on, weight = self._on, self._weights[place]
        back = len(self._path) - 1 - place
        cells = BAR if width >= WIDE else 0
        where = f"{place + 1:>6}  {f'{back} back' if back else 'itself':<8}"
        token = pad(self._label(place), max(4, width - 10 - cells - bool(cells) - len(where)))
        row: Row = [
            Segment(f"{percent(weight):>8}  ", on.rich_style),
            Segment(token, on.ink("strong") if weight >= RESTS else on.rich_style),
            Segment(where, on.ink("muted")),
        ]
        return [row[0], Segment(bar(weight, cells) + " ", on.data(weight)), *row[1:]] if cells else row

    def _label(self, place: int) -> str:
        item = self._path[place]
        return token_label(item.text, item.raw)

    def _remarks(self, low: bool) -> list[tuple[str, Style]]:
        """What is to be known of the row, and of the head over the whole text."""
        on, sink = self._on, sink_of(self._layer, self._chosen.head)
        found: list[tuple[str, Style]] = []
        if len(self._weights) > 1 and self._weights[0] >= RESTS and self._chosen.head >= 0:
            share = percent(self._weights[0])
            found.append(
                (
                    f"Rests on the first token ({share}): an attention sink, it has little to do here.",
                    on.ink("warn"),
                )
            )
        if self._layer.sinks:
            found.append(
                (
                    f"Its sink takes {percent(sink)}: a share that no token has.",
                    on.ink("warn" if sink >= RESTS else "muted"),
                )
            )
        hidden = len(self._path) - self._layer.weights.shape[-1]
        if hidden > 0:
            found.append(
                (f"It can't see {hidden:,} earlier tokens: they are outside its window.", on.ink("muted"))
            )
        if self._chosen.head >= 0:
            width = entropy_bits(self._weights, sink)
            found.append(
                (
                    f"Spread: {bits(width)} bits, as over {2 ** min(width, 64):.1f} tokens evenly.",
                    on.ink("muted"),
                )
            )
        if self._known is not None and not low:
            found.append((self._over_text(self._known), on.ink("muted")))
        return found

    def _over_text(self, known: HeadScore) -> str:
        induction = "" if known.induction is None else f" · induction {percent(known.induction)}"
        return f"Over the text: previous {percent(known.previous)}{induction} · first {percent(known.first)}"

    def _answer(self, width: int) -> list[Row]:
        """What the model says after the token."""
        if self._says is None:
            return []
        label = token_label(self._says.text, self._says.raw)
        parts = [
            Segment("The model's next token: ", self._on.ink("muted")),
            Segment(label, self._on.ink("strong")),
            Segment(f" {percent(self._says.prob)}", self._on.rich_style),
        ]
        if sum(cell_len(part.text) for part in parts) > width:
            parts[0] = Segment("Next: ", self._on.ink("muted"))
        return [parts]

    @staticmethod
    def _wrapped(text: str, style: Style, width: int) -> list[Row]:
        return [[Segment(line, style)] for line in wrapped(text, width)]

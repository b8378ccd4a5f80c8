"""The screen of why a head looks there: a key of one head, and what its score is made of, as bars around zero."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment

from engine.protocol import Command, ReadScore, ScoreRead
from inspector.display import pad, quoted, token_label, visible
from inspector.main.inside.screen import InsideScreen
from inspector.scales import count, signed
from inspector.state.attribution import (
    ScoreShare,
    by_weight,
    compared_to,
    head_name,
    in_words,
    key_shares,
    over_path,
    pair_shares,
    query_shares,
)
from inspector.tools.scores.control import SCORES_SCREEN, ScoresActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, paragraph, strip_of
from inspector.widgets.charts import AXIS, bar_texts, spread

NUMBER = 7
"""Cells of a number: `−123.45`."""
TEXT_ROWS = 6
"""Rows of the text at most, its frame included."""
BESIDE = 76
"""Cells from which on the writers of the key and of the query stand side by side."""
GAP = 3
"""Cells between them."""
LEAST = 3
"""Rows of a list at least, its heading aside; the view scrolls where there is no room for so many."""
LOW = 18
"""Rows below which it has no empty lines, and says less."""
NAMED = 24
"""Cells of a writer's name at most; a pair's has both."""
PAIRS = "Query × key"
"""The heading of the pairs."""
FROZEN = "Norms are held as they are, so that parts sum to the score. It shows direct effects: who wrote what, not why."


class ScoresScreen(InsideScreen[ScoreRead]):
    """Divides the scores of one head.

    Args:
        tool: Has what is chosen, and the answers.
    """

    TOOL: ClassVar[str] = "scores"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = SCORES_SCREEN

    def __init__(self, tool: ScoresActions) -> None:
        super().__init__(tool.host, tool.answers)
        self.tool = tool
        self.order: list[int] = []
        """The keys of the answer by their places in the path, the heaviest first."""
        self.key: int | None = None
        """The key that is looked at, by its place in the path; None while nothing is known."""
        self.against: int | None = None
        """The key that it is compared with; None for the mean."""

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """See `InsideScreen`; in a recording about another head of the token, if it has not the chosen one."""
        layer, head = self.tool.layer, self.tool.head
        if self.host.controller.transport.recorded and not self.answers.get((self.node, layer, head)):
            known = [key[1:] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
            same = [key for key in known if layer in (None, key[0]) and head in (None, key[1])]
            layer, head = same[-1] if same else (layer, head)
        return (self.node, layer, head), ReadScore(self.node, layer, head)

    def look(self) -> None:
        """See `InsideScreen`; keys that were chosen at another token are forgotten."""
        super().look()
        tool = self.tool
        if self.node != tool.node:
            tool.node, tool.key, tool.against = self.node, None, None
        self.order = order = by_weight(self.answer) if self.answer is not None else []
        self.key = tool.key if tool.key in order else next(iter(order), None)
        kept = self.answer is not None and tool.against in self.answer.keys
        self.against = tool.against if kept and tool.against != self.key else None

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideScreen`; up to a third of the screen."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: ScoreRead | None) -> str:
        return f"Why {head_name(answer)} looks there" if answer is not None else "Why a head looks there"

    def heat(self, answer: ScoreRead) -> tuple[str, Sequence[float], Collection[int]]:
        """See `InsideScreen`; the key that is looked at is marked, and the one that it is compared with."""
        last = self.path[-1]
        marked = [place for place in (self.key, self.against) if place is not None]
        meaning = (
            f"{head_name(answer)} looks from {quoted(token_label(last.text, last.raw))}: % under each token"
        )
        return meaning, over_path(answer, len(self.path)), marked

    def draw(self, answer: ScoreRead, on: Canvas, width: int, height: int) -> list[Row]:
        """The sentence, the figures behind it, and the lists, as long as there is room for."""
        key, against = self.key, self.against
        if key is None or key >= len(self.path):
            return [[Segment("The record holds no keys that fit together.", on.ink("bad"))]]
        labels = [token_label(item.text, item.raw) for item in self.path]
        says = in_words(answer, labels, key, against)
        above = [
            *paragraph(on.ink("strong"), width, says),
            *paragraph(on.ink("muted"), width, _about(answer, labels, key, against)),
        ]
        low = height < LOW
        gap: list[Row] = [] if low else [[]]
        below = paragraph(on.ink("muted"), width, *map(visible, answer.notes), *([] if low else [FROZEN]))
        room = height - len(above) - len(below) - 2 * len(gap)
        of_key = f"In the key {quoted(labels[key])}", key_shares(answer, key, against)
        of_query = f"In the query {quoted(labels[-1])}", query_shares(answer, key, against)
        pairs = PAIRS, pair_shares(answer, key, against)
        lists: list[Row] = []
        if width < BESIDE:
            some = [each for each in (of_key, of_query, pairs) if each[1]]
            rows = max(LEAST, room // max(1, len(some)) - 1)
            lists += (row for each in some for row in _list(on, *each, width, rows))
        else:
            half = (width - GAP) // 2
            pair_rows = min(len(pairs[1]), max(LEAST, room // 3))
            rows = max(LEAST, room - 1 - (pair_rows + 1 + len(gap) if pair_rows else 0))
            one, other = _list(on, *of_key, half, rows), _list(on, *of_query, half, rows)
            for left, right in zip_longest(one, other, fillvalue=list[Segment]()):
                lists.append([*strip_of(left, half + GAP, on.rich_style), *right])
            if pair_rows:
                lists += [*gap, *_list(on, *pairs, width, pair_rows)]
        return [*above, *gap, *lists, *gap, *below]

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[int, int]:
        """The head that is looked at, or asked for."""
        if self.answer is not None:
            return self.answer.layer, self.answer.head
        return self.tool.layer or 0, self.tool.head or 0

    def turn_layer(self, by: int) -> None:
        """Choose the same head of another layer."""
        layer, head = self._now
        depth = self.facts.layers if self.facts is not None else 1
        self.tool.layer, self.tool.head = max(0, min(depth - 1, layer + by)), head

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer; they go round."""
        layer, head = self._now
        heads = (self.facts.heads if self.facts is not None else None) or head + 2
        self.tool.layer, self.tool.head = layer, (head + by) % heads

    def turn_key(self, by: int) -> None:
        """Look at the key that is the next lighter one, or heavier."""
        if self.key in self.order:
            place = self.order.index(self.key) + by
            self.tool.key = self.order[max(0, min(len(self.order) - 1, place))]

    def compare_with(self, by: int) -> None:
        """Compare with the next lighter key; first with the heaviest other one."""
        if others := [place for place in self.order if place != self.key]:
            now = others.index(self.against) + by if self.against in others else 0
            self.tool.against = others[now % len(others)]

    def against_mean(self) -> None:
        """Compare with the mean of all keys."""
        self.tool.against = None

    def choose_token(self, place: int) -> None:
        """Look at a token that was clicked as a key, if the head's weight on it is kept."""
        if (answer := self.answer) is not None and place in answer.keys:
            self.tool.key = place
        else:
            self.say("The head's weight on that token is not among those recorded")

    def goes_to(self, action: str) -> None:
        """The view of attention opens on the head."""
        if action == "attention":
            layer, head = self._now
            self.host.point(action, layer + 1, head + 1)


def _about(read: ScoreRead, labels: Sequence[str], key: int, against: int | None) -> str:
    """The score, what it is compared with, and how many keys there are."""
    scores = read.scores.row()
    if len(scores) != len(read.keys):
        return ""
    kept = f"{count(len(read.keys))} keys"
    if len(read.keys) < read.visible:
        kept = f"{kept} of {count(read.visible)} (the heaviest, the first, the last)"
    other = f"the mean of {kept}" if against is None else f"token {against + 1} {quoted(labels[against])}"
    score, whole = signed(scores[read.keys.index(key)]), signed(compared_to(read, scores, key, against))
    before = " before the softcap" if read.softcap else ""
    return f"Token {key + 1}: score {score}{before}, {whole} against {other}."


def _list(on: Canvas, title: str, shares: Sequence[ScoreShare], width: int, rows: int) -> list[Row]:
    """A heading, the largest shares as bars, and what the others sum to."""
    cut = len(shares) > rows
    shown = shares[: max(1, rows - 1)] if cut else shares
    others = f"{len(shares) - len(shown)} others"
    longest = max(len(text) for text in (others, *(each.name for each in shown)))
    names = min(longest, max(8, min(2 * NAMED, width // 2)))
    to = spread([each.value for each in shown], max(4, width - names - NUMBER - 3))
    made: list[Row] = [[Segment(pad(title, width), on.ink("muted"))]]
    for each in shown:
        left, right = bar_texts(each.value, False, to)
        made.append([
            Segment(f"{pad(each.name, names)} {signed(each.value):>{NUMBER}} ", on.rich_style),
            Segment(left, on.ink("warn")), Segment(AXIS, on.ink("muted")), Segment(right, on.ink("primary")),
        ])  # fmt: skip
    if cut:
        told = f"{pad(others, names)} {signed(sum(each.value for each in shares[len(shown) :])):>{NUMBER}}"
        if title == PAIRS:  # of pairs only the largest are known
            told = f"{len(shares) - len(shown)} more"
        made.append([Segment(told, on.ink("muted"))])
    return made

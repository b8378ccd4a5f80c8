"""The screen of why a head looks there: a key of one head, and what its score is made of, as bars around zero."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style

from engine.protocol import Command, ReadScore, ScoreRead
from inspector.display import pad, quoted, token_label, visible
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.scales import count, signed
from inspector.session.requests import Replies
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
from inspector.tools.scores.control import SCORES_SCREEN, ScoreChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, strip_of, wrapped
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
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "scores"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = SCORES_SCREEN

    def __init__(self, host: Host, answers: Replies[ScoreRead], choices: ScoreChoices) -> None:
        super().__init__(host, answers)
        self._choices = choices

    @property
    def choices(self) -> ScoreChoices:
        """The choices at the present token."""
        return self._choices.at(self.node)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        layer, head = self._asked
        return (self.node, layer, head), ReadScore(self.node, layer, head)

    @property
    def _asked(self) -> tuple[int | None, int | None]:
        """The head that is wanted; in a recording another one of the token, where it has not that one."""
        wanted = self.choices.layer, self.choices.head
        if not self.host.controller.transport.recorded or self.answers.get((self.node, *wanted)):
            return wanted
        known = [key[1:] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
        same = [key for key in known if wanted[0] in (None, key[0]) and wanted[1] in (None, key[1])]
        return same[-1] if same else wanted

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideScreen`; up to a third of the screen."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: ScoreRead | None) -> str:
        return f"Why {head_name(answer)} looks there" if answer is not None else "Why a head looks there"

    def heat(self, answer: ScoreRead) -> tuple[str, Sequence[float], Collection[int]]:
        """See `InsideScreen`; the key that is looked at is marked, and the one that it is compared with."""
        label = self._label(len(self.path) - 1)
        marked = [place for place in (self.key, self.against) if place is not None]
        meaning = f"{head_name(answer)} looks from {label}: % under each token"
        return meaning, over_path(answer, len(self.path)), marked

    def _label(self, place: int) -> str:
        item = self.path[place]
        return quoted(token_label(item.text, item.raw))

    @property
    def key(self) -> int | None:
        """The key that is looked at, by its place in the path; None where nothing is known."""
        answer = self.answer
        if answer is None:
            return None
        order = by_weight(answer)
        return self.choices.key if self.choices.key in order else next(iter(order), None)

    @property
    def against(self) -> int | None:
        """The key that it is compared with; None for the mean."""
        answer = self.answer
        known = answer is not None and self.choices.against in answer.keys
        return self.choices.against if known and self.choices.against != self.key else None

    def draw(self, answer: ScoreRead, on: Canvas, width: int, height: int) -> list[Row]:
        key = self.key
        if key is None or key >= len(self.path):
            return [[Segment("The record holds no keys that fit together.", on.ink("bad"))]]
        labels = [token_label(item.text, item.raw) for item in self.path]
        drawn = Shares(answer, labels, key, self.against, on)
        return drawn.draw(width, height)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose the same head of another layer."""
        layer, head = self._now
        depth = self.facts.layers if self.facts is not None else 1
        self.choices.layer, self.choices.head = max(0, min(depth - 1, layer + by)), head

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer; they go round."""
        layer, head = self._now
        heads = (self.facts.heads if self.facts is not None else None) or head + 2
        self.choices.layer, self.choices.head = layer, (head + by) % heads

    @property
    def _now(self) -> tuple[int, int]:
        """The head that is looked at, or asked for."""
        answer = self.answer
        if answer is not None:
            return answer.layer, answer.head
        return self.choices.layer or 0, self.choices.head or 0

    def turn_key(self, by: int) -> None:
        """Look at the key that is the next lighter one, or heavier."""
        if (answer := self.answer) is not None and (order := by_weight(answer)) and self.key is not None:
            place = order.index(self.key) + by
            self.choices.key = order[max(0, min(len(order) - 1, place))]

    def compare_with(self, by: int) -> None:
        """Compare with the next lighter key; first with the heaviest other one."""
        if (answer := self.answer) is None:
            return
        others = [place for place in by_weight(answer) if place != self.key]
        if others:
            now = others.index(self.against) + by if self.against in others else 0
            self.choices.against = others[now % len(others)]

    def against_mean(self) -> None:
        """Compare with the mean of all keys."""
        self.choices.against = None

    def choose_token(self, place: int) -> None:
        """Look at a token that was clicked as a key, where the head's weight on it is kept."""
        if (answer := self.answer) is not None and place in answer.keys:
            self.choices.key = place
        else:
            self.say("The head's weight on that token is not among those recorded")

    def goes_to(self, action: str) -> None:
        """The view of attention opens on the head."""
        if action == "attention":
            layer, head = self._now
            self.host.point(action, layer + 1, head + 1)


class Shares:
    """What a key's score is made of, against the mean over the keys or against another key.

    Args:
        read: The answer.
        labels: Of the path's tokens, printable.
        key: The key, by its place in the path.
        against: The one that it is compared with; None for the mean.
        on: Where it is drawn.
    """

    def __init__(
        self, read: ScoreRead, labels: Sequence[str], key: int, against: int | None, on: Canvas
    ) -> None:
        self.read, self.labels, self.key, self.against, self.on = read, labels, key, against, on

    def draw(self, width: int, height: int) -> list[Row]:
        """The sentence, what it is about, and the lists, as long as there is room for.

        Args:
            width: Cells.
            height: Rows.
        """
        on = self.on
        says = in_words(self.read, self.labels, self.key, self.against)
        above: list[Row] = [
            *([Segment(line, on.ink("strong"))] for line in wrapped(says, width)),
            *([Segment(line, on.ink("muted"))] for line in wrapped(self._about(), width)),
        ]
        low = height < LOW
        gap: list[Row] = [] if low else [[]]
        notes = [*map(visible, self.read.notes), *([] if low else [FROZEN])]
        below = [[Segment(line, on.ink("muted"))] for note in notes for line in wrapped(note, width)]
        room = height - len(above) - len(below) - 2 * len(gap)
        return [*above, *gap, *self._lists(width, room, gap), *gap, *below]

    def _about(self) -> str:
        """The score, what it is compared with, and how many keys there are."""
        read, scores = self.read, self.read.scores.row()
        if len(scores) != len(read.keys):
            return ""
        whole = compared_to(read, scores, self.key, self.against)
        score = scores[read.keys.index(self.key)]
        kept = f"{count(len(read.keys))} keys"
        if len(read.keys) < read.visible:
            kept = f"{kept} of {count(read.visible)} (the heaviest, the first, the last)"
        mean = f"the mean of {kept}"
        if self.against is not None:
            mean = f"token {self.against + 1} {quoted(self.labels[self.against])}"
        before = " before the softcap" if read.softcap else ""
        return f"Token {self.key + 1}: score {signed(score)}{before}, {signed(whole)} against {mean}."

    def _lists(self, width: int, room: int, gap: Sequence[Row]) -> list[Row]:
        """What the key's writers, the query's and pairs of both make: side by side, or one below the other."""
        query = self.labels[-1] if self.labels else ""
        of_key = (
            f"In the key {quoted(self.labels[self.key])}",
            key_shares(self.read, self.key, self.against),
        )
        of_query = f"In the query {quoted(query)}", query_shares(self.read, self.key, self.against)
        pairs = PAIRS, pair_shares(self.read, self.key, self.against)
        if width < BESIDE:
            lists = [each for each in (of_key, of_query, pairs) if each[1]]
            rows = max(LEAST, room // max(1, len(lists)) - 1)
            return [row for each in lists for row in self._list(*each, width, rows)]
        half = (width - GAP) // 2
        pair_rows = min(len(pairs[1]), max(LEAST, room // 3))
        rows = max(LEAST, room - 1 - (pair_rows + 1 + len(gap) if pair_rows else 0))
        one, other = self._list(*of_key, half, rows), self._list(*of_query, half, rows)
        none: Row = []
        beside = [
            [*strip_of(left, half + GAP, self.on.rich_style), *right]
            for left, right in zip_longest(one, other, fillvalue=none)
        ]
        below = [*gap, *self._list(*pairs, width, pair_rows)] if pair_rows else []
        return [*beside, *below]

    def _list(self, title: str, shares: Sequence[ScoreShare], width: int, rows: int) -> list[Row]:
        """A heading, the largest shares as bars, and what the others sum to."""
        on = self.on
        cut = len(shares) > rows
        shown = shares[: max(1, rows - 1)] if cut else shares
        others = f"{len(shares) - len(shown)} others"
        longest = max(len(text) for text in (others, *(each.name for each in shown)))
        names = min(longest, max(8, min(2 * NAMED, width // 2)))
        to = spread([each.value for each in shown], max(4, width - names - NUMBER - 3))
        made: list[Row] = [[Segment(pad(title, width), on.ink("muted"))]]
        for each in shown:
            left, right = bar_texts(each.value, False, to)
            made.append(
                [
                    Segment(f"{pad(each.name, names)} {signed(each.value):>{NUMBER}} ", on.rich_style),
                    Segment(left, self._side(False)),
                    Segment(AXIS, on.ink("muted")),
                    Segment(right, self._side(True)),
                ]
            )
        if cut:
            rest = signed(sum(each.value for each in shares[len(shown) :]))
            told = f"{pad(others, names)} {rest:>{NUMBER}}"
            if title == PAIRS:  # of pairs only the largest are known
                told = f"{len(shares) - len(shown)} more"
            made.append([Segment(told, on.ink("muted"))])
        return made

    def _side(self, raises: bool) -> Style:
        """The ink of a direction."""
        return self.on.ink("primary" if raises else "warn")

"""What could come next, or could have come: the model's belief, what the sampler made of it, and the draw."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message

from engine.records import Candidate, Distribution, PromptToken, Step
from inspector import scales
from inspector.display import pad, token_label, visible
from inspector.panels.canvas import Canvas, Row, centred, panel_css, waiting
from inspector.panels.charts import bar
from inspector.panels.draw import draw_line
from inspector.timeline import Item, Phase, Timeline

_MARK, _PERCENT, _SAMPLER, _RANK, _ID = 3, 8, 9, 7, 8
"""Cells of the columns, their left gap included (the marks have none)."""
_WORDS = 22
"""Cells that a token's text gets at most, and about half of that at least before a column is dropped."""
_BY_HAND = {"chosen": ", chosen by hand", "inserted": ", inserted"}
"""Why another token stands there than the sampler picked."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns fit, and how wide those are that give way."""

    token: int
    bar: int
    sampler: bool
    rank: bool
    id: bool


def columns(width: int, sampler: bool) -> Columns:
    """The columns for a width: the id goes first, then the rank, then what the sampler made of it.

    Args:
        width: Cells at hand.
        sampler: Whether there is a sampler's column at all.
    """
    extra = {"sampler": _SAMPLER if sampler else 0, "rank": _RANK, "id": _ID}
    for dropped in ("", "id", "rank", "sampler"):
        extra.pop(dropped, None)
        free = width - _MARK - _PERCENT - sum(extra.values())
        if free >= 20:
            break
    token = max(6, min(_WORDS, free // 2))
    return Columns(
        token, max(0, free - token - 1), sampler and "sampler" in extra, "rank" in extra, "id" in extra
    )


class CandidatesPanel(Canvas, can_focus=True):
    """The candidates of the selected slot, best first, and the draw among them."""

    DEFAULT_CSS = panel_css("CandidatesPanel")
    HELP = """\
# Next token
What the model expected at the selected slot: **model** is its own probability, **sampler** the one after every stage of
the sampler. A grey row was cut; the stage that cut it stands in place of the probability.

- `▶` marks the token that stands there, or that **space** will take
- **↑ ↓** or a click highlights a row; **⏎** or a second click takes it, on a branch of its own
- *others* is the rest of the vocabulary; the last line shows where the draw fell on the sampler's distribution
- *bits of choice* is the entropy of what is drawn from: 1 bit is a coin toss, 0 is no choice
"""

    highlighted: int = 0
    """Row that Enter takes; it begins at the token that stands there."""

    class CandidateChosen(Message):
        """The highlighted candidate was clicked again: take it."""

        def __init__(self, id: int) -> None:
            self.id = id
            super().__init__()

    class CandidateHighlighted(Message):
        """Another row was highlighted."""

        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._rows: tuple[Candidate, ...] = ()
        self._of: object = None
        self._top = 0

    # ---- what is shown ----------------------------------------------------------------------

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate, None where there is none."""
        return self._rows[self.highlighted] if self.highlighted < len(self._rows) else None

    def move(self, delta: int) -> None:
        """Highlight the row so many below (above if negative), as far as there are any."""
        self._highlight(max(0, min(len(self._rows) - 1, self.highlighted + delta)))

    def highlight(self, id: int) -> None:
        """Highlight the candidate with this id, where it is one."""
        self._highlight(next((n for n, c in enumerate(self._rows) if c.id == id), self.highlighted))

    def show(self, timeline: Timeline) -> None:
        """Show the candidates of the selected slot."""
        source = (timeline.before, timeline.taken, timeline.candidates)
        if source != self._of:
            self._of = source
            self._rows = rows_of(timeline)
            taken = timeline.taken
            self.highlighted = next((n for n, c in enumerate(self._rows) if c.id == taken), 0)
            self._top = 0
        super().show(timeline)

    def _highlight(self, index: int) -> None:
        if index != self.highlighted and 0 <= index < len(self._rows):
            self.highlighted = index
            self.post_message(self.CandidateHighlighted(index))
            self.redraw()

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._top = 0
        super().on_resize(event)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or not 1 <= at.y <= self._room(self.size.height):
            return
        index = self._top + at.y - 1
        if index == self.highlighted and index < len(self._rows):
            self.post_message(self.CandidateChosen(self._rows[index].id))
        else:
            self._highlight(index)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-1)

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        self._entitle(timeline)
        if timeline is None or not self._rows:
            reason, advice = _why_empty(timeline)
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        room = self._room(height)
        self._top = max(min(self._top, self.highlighted), self.highlighted - room + 1, 0)
        distribution, item = timeline.distribution, timeline.selected
        fit = columns(width, distribution is not None)
        shown = range(self._top, min(len(self._rows), self._top + room))
        rows = [self._head(fit), *(self._row(n, fit, width, timeline.taken) for n in shown)]
        if len(rows) < height:
            rows.append(self._others(fit, distribution, item))
        if len(rows) < height:
            rows += [[] for _ in range(min(1, height - len(rows) - 1))]
            rows.append(self._draw_line(distribution, timeline.taken, width))
        if len(rows) < height and distribution is not None:
            rows.append(self._stages(distribution))
        return rows

    def _room(self, height: int) -> int:
        """How many candidates stand between the head and the two lines below."""
        return max(1, height - 3)

    def _head(self, fit: Columns) -> Row:
        text = " " * _MARK + pad("token", fit.token + 1 + fit.bar) + pad("model", _PERCENT, right=True)
        text += pad("sampler", _SAMPLER, right=True) if fit.sampler else ""
        text += pad("rank", _RANK, right=True) if fit.rank else ""
        return [Segment(text + (pad("id", _ID, right=True) if fit.id else ""), self.ink("muted"))]

    def _row(self, index: int, fit: Columns, width: int, taken: int | None) -> Row:
        candidate = self._rows[index]
        cut = candidate.cut_by is not None
        looked_at = index == self.highlighted or candidate.id == taken
        ink = self.ink("muted" if looked_at else "faint") if cut else self.rich_style
        words = self.ink("special") if candidate.special and not cut else ink
        row = [
            Segment("▌" if index == self.highlighted else " ", self.ink("primary")),
            Segment("▶ " if candidate.id == taken else "  ", self.ink("accent")),
            Segment(pad(token_label(candidate.text, candidate.raw), fit.token) + " ", words),
            Segment(bar(candidate.prob, fit.bar), ink if cut else ink + self.data()),
            Segment(pad(scales.percent(candidate.prob), _PERCENT, right=True), ink),
            *self._numbers(candidate, fit, ink),
        ]
        if index != self.highlighted:
            return row
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True)
        return [Segment(text, (style or Style()) + ground) for text, style, _ in _filled(row, width)]

    def _numbers(self, candidate: Candidate, fit: Columns, ink: Style) -> Row:
        row: Row = []
        if fit.sampler:
            after = visible(candidate.cut_by) if candidate.cut_by else scales.percent(candidate.sampler_prob)
            row.append(Segment(" " + pad(after, _SAMPLER - 1, right=True), ink))
        muted = ink if candidate.cut_by else self.ink("muted")
        if fit.rank:
            row.append(Segment(pad(scales.count(candidate.rank), _RANK, right=True), muted))
        if fit.id:
            row.append(Segment(pad(str(candidate.id), _ID, right=True), muted))
        return row

    def _others(self, fit: Columns, distribution: Distribution | None, item: Item | None) -> Row:
        """The rest of the vocabulary in one row."""
        muted = self.ink("muted")
        mass = distribution.others_prob if distribution else max(0.0, 1 - sum(c.prob for c in self._rows))
        vocabulary = self.timeline.facts.vocabulary if self.timeline and self.timeline.facts else 0
        number = vocabulary - len(self._rows) if vocabulary else distribution.others if distribution else 0
        label = f"{scales.count(max(0, number))} others"
        row = [
            Segment(" " * _MARK + pad(label, fit.token + 1 + fit.bar), muted),
            Segment(pad(scales.percent(mass), _PERCENT, right=True), muted),
        ]
        if fit.sampler and distribution:
            cut = not distribution.others_sampler_prob and distribution.draw is not None
            after = "cut" if cut else scales.percent(distribution.others_sampler_prob)
            row.append(Segment(" " + pad(after, _SAMPLER - 1, right=True), muted))
        return row

    def _draw_line(self, distribution: Distribution | None, taken: int | None, width: int) -> Row:
        muted = self.ink("muted")
        if distribution is None:
            return [Segment(" " * _MARK + "the prompt stands here: nothing was drawn", muted)]
        inks = {name: self.ink(name) for name in ("muted", "accent", "strong", "faint")} | {
            "data": self.data()
        }
        by_hand = taken != distribution.picked
        lead = Segment(" " * _MARK, muted)
        return [lead, *draw_line(distribution, by_hand, width - len(lead.text), inks)]

    def _stages(self, distribution: Distribution) -> Row:
        """The stages of the sampler in their order, and how many tokens were left by those that cut."""
        muted = self.ink("muted")
        row = [Segment(" " * _MARK + "stages ", muted)]
        left = distribution.others + len(distribution.candidates)
        for number, stage in enumerate(distribution.stages):
            row.append(Segment((" → " if number else "") + visible(stage.name), muted))
            if stage.kept != left:
                row += [Segment(" keeps ", muted), Segment(scales.count(stage.kept))]
            left = stage.kept
        return row if distribution.stages else []

    def _entitle(self, timeline: Timeline | None) -> None:
        """Whose candidates these are, and how much choice there is."""
        if timeline is None or not self._rows:
            self.title(Content("Next token"))
            return
        item, distribution = timeline.selected, timeline.distribution
        if distribution is None:
            entropy = item.entropy_bits if isinstance(item, PromptToken) else None
            found = f" · {scales.bits(entropy)} bits expected" if entropy is not None else ""
            self.title(Content(f"Prompt token {timeline.slot + 1}{found}"))
            return
        name = (
            f"Step {item.index + 1}{_BY_HAND.get(item.origin, '')}"
            if isinstance(item, Step)
            else "Next token"
        )
        self.title(
            Content(f"{name} · {scales.bits(distribution.sampler_entropy_bits)} bits of choice"),
            Content(f"{scales.bits(distribution.entropy_bits)} bits before the sampler{self._hidden()}"),
        )

    def _hidden(self) -> str:
        more = len(self._rows) - self._room(self.size.height)
        return f" · {more} more rows ↑↓" if more > 0 else ""


def rows_of(timeline: Timeline) -> tuple[Candidate, ...]:
    """The candidates of the selected slot, and the token that stands there where it is not among them."""
    found, item = timeline.candidates, timeline.selected
    if not found or item is None or any(candidate.id == item.id for candidate in found):
        return found
    if item.prob is None or item.logprob is None or item.rank is None:
        return found
    sampler = item.sampler_prob if isinstance(item, Step) else item.prob
    own = Candidate(
        item.id, item.text, item.raw, item.special, item.logprob, item.prob, item.rank, sampler, None
    )
    return (*found, own)


def _why_empty(timeline: Timeline | None) -> tuple[str, str]:
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return waiting(timeline, "The candidates for each token appear here.")
    if timeline.following:
        return waiting(timeline, "The candidates for the first token appear here.")
    if timeline.slot == 0:
        return (
            "This is the first token: the model had nothing to expect it from.",
            "Press → for the next one.",
        )
    if timeline.prompt is not None and not timeline.prompt.echo:
        return (
            "Prompt logprobs are off, so what the model thought of the prompt is not known.",
            "They are on for prompts of up to 2,048 tokens, unless --no-prompt-logprobs turns them off.",
        )
    return (
        "This token of the prompt has not gone through the model yet.",
        "Its candidates come with its chunk.",
    )


def _filled(row: Row, width: int) -> Row:
    """A row made as wide as the panel, so that its ground reaches the edge."""
    missing = width - Segment.get_line_length(row)
    return [*row, Segment(" " * missing)] if missing > 0 else row

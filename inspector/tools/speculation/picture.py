"""The picture of one round: what was known before, each draft and its fate, and what was taken in its place."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment

from engine.frozen import frozen
from engine.protocol import DraftRound, DraftToken, TakenInstead
from inspector.display import pad, token_label, truncate, visible
from inspector.scales import count, milliseconds, percent
from inspector.state.speculation import FATE_SIGNS, Speculation, figures, rules, verdict
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import FACT_NAME, Canvas, Row, centred, fact_rows, wrapped
from inspector.widgets.charts import bar, shares
from inspector.widgets.inks import panel_css

_INKS = {"drafted": "faint", "accepted": "good", "refused": "bad", "unseen": "faint"}
_WIDE = 76
"""Cells from which what became of a draft is written beside it."""
_SLIM = 44
"""Cells below which a token has less room."""


@frozen
class _Line:
    """One token of the round."""

    sign: str
    ink: str
    label: str
    draft: str
    model: str
    words: str


class RoundPicture(Canvas):
    """The latest round, token by token."""

    DEFAULT_CSS = panel_css("RoundPicture")

    def put(self, timeline: Timeline, idle: str) -> None:
        """Show the latest round of a timeline, or what to do where there is none."""
        self.timeline, self._idle = timeline, idle
        latest = timeline.of(Speculation).latest
        stage = "" if latest is None else f" · {latest.stage}"
        self.border_title = f"The round{stage}"
        self.redraw()

    _idle = ""

    def draw(self, width: int, height: int) -> list[Row]:
        latest = self.timeline.of(Speculation).latest if self.timeline is not None else None
        if self.timeline is None or latest is None:
            about = "A draft guesses the next tokens, one forward of the model checks them all."
            return centred([(about, self.rich_style), (self._idle, self.ink("muted"))], width, height)
        lines = _lines(latest)
        rows: list[Row] = [self._text(self.timeline, width), self._head(width)]
        rows += [self._row(line, width) for line in lines]
        rows += [[], *self._times(latest, width)]
        if latest.note:
            rows += [[Segment(line, self.ink("warn"))] for line in wrapped(visible(latest.note), width)]
        return rows[:height]

    def _text(self, timeline: Timeline, width: int) -> Row:
        """The end of the text, and dim behind it what is no token of it."""
        ghosts = truncate(timeline.of(Speculation).ghost_words(timeline.tip), width // 2)
        text = visible("".join(item.text for item in timeline.items[-width:]))
        room = max(4, width - cell_len(ghosts) - 1)
        shown = text if cell_len(text) <= room else "…" + _end(text, room - 1)
        return [Segment(shown, self.rich_style), Segment(f" {ghosts}", self.ink("faint"))]

    def _head(self, width: int) -> Row:
        words, label = "what became of it" if width >= _WIDE else "", _label_cells(width)
        return [Segment(f"  {'token':<{label}} {'draft':>8} {'model':>8}  {words}", self.ink("muted"))]

    def _row(self, line: _Line, width: int) -> Row:
        ink, cells = self.ink(line.ink), _label_cells(width)
        row = [
            Segment(f"{line.sign} ", ink),
            Segment(
                pad(truncate(line.label, cells), cells), ink if line.ink != "good" else self.ink("strong")
            ),
            Segment(f" {line.draft:>8} {line.model:>8}  ", self.rich_style),
        ]
        room = width - sum(cell_len(part.text) for part in row)
        words = truncate(line.words, room) if width >= _WIDE else ""
        return [*row, Segment(words, self.ink("muted"))]

    def _times(self, latest: DraftRound, width: int) -> list[Row]:
        parts = (("draft", latest.draft_ms), ("verify", latest.verify_ms), ("take", latest.take_ms))
        if not latest.ms:
            return []
        room = max(6, min(40, width - 4))
        cells = shares([ms / latest.ms for _, ms in parts], room)
        glyphs, levels = "░█▒", (0.75, 0.35, 0.55)
        drawn = [
            Segment(glyph * n, self.data(level))
            for glyph, n, level in zip(glyphs, cells, levels, strict=True)
        ]
        named = [(glyph, *part) for glyph, part in zip(glyphs, parts, strict=True)]
        # a stage to come took no time yet
        words = " · ".join(f"{glyph} {name} {milliseconds(ms)}" for glyph, name, ms in named if ms)
        plain = self.timeline.of(Speculation).totals.plain_ms if self.timeline else None
        beside = f" · plain step {milliseconds(plain)}" if plain else ""
        return [drawn, [Segment(truncate(words + beside, width), self.ink("muted"))]]


class SpeculationTotalsView(Canvas):
    """What the rounds came to, whether they paid, and what other rules would accept."""

    DEFAULT_CSS = panel_css("SpeculationTotalsView")
    _state: Speculation | None = None

    def put(self, state: Speculation) -> None:
        """Show some rounds."""
        self._state = state
        self.border_title = "All rounds"
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        muted = self.ink("muted")
        if self._state is None or not self._state.rounds:
            words = "Tokens a forward, acceptance by place in the draft and the time against plain steps come here."
            return centred([(words, muted)], width, height)
        totals = self._state.totals
        rows: list[Row] = [
            [Segment(line, self.ink("strong"))] for line in wrapped(verdict(totals), width) if line
        ]
        rows += fact_rows(figures(totals), width, muted, self.rich_style)
        if totals.rates is not None and height > len(rows) + 3:
            rows.append([Segment("Expected acceptance of these drafts, by rule", muted)])
            for name, value, what in rules(totals):
                level = getattr(totals.rates, name.replace(" ", "_"))
                drawn = bar(level, 12)
                row = [
                    Segment(f"{name:<{FACT_NAME}} ", muted),
                    Segment(drawn, self.data(0.5)),
                    Segment(f" {value:>7}  "),
                ]
                room = width - FACT_NAME - 1 - 12 - 10
                rows.append([*row, Segment(truncate(what, max(0, room)), self.ink("faint"))])
        return rows[:height]


def _lines(latest: DraftRound) -> list[_Line]:
    """The tokens of a round: what was known, the drafts, and what was taken in the place of the refused one."""
    known = token_label(latest.first_text) if latest.first_text else f"id {latest.first}"
    lines = [_Line("●", "accent", known, "", "", "known before: the sampler's pick")]
    for draft in latest.drafts:
        lines.append(_drafted(draft))
        if draft.fate == "refused" and latest.instead is not None:
            lines.append(_instead(latest.instead))
    if not latest.drafts:
        lines.append(_Line("–", "faint", "", "", "", _nothing(latest)))
    return lines


def _nothing(latest: DraftRound) -> str:
    if latest.settings.draft == "lookup":
        return "no draft: the last tokens stood nowhere before. A plain step"
    return "no draft: nothing can follow here. A plain step"


def _drafted(draft: DraftToken) -> _Line:
    probs = _percent(draft.draft_prob), _percent(draft.target_prob)
    words = {
        "drafted": "not verified yet",
        "accepted": "accepted: the draw's token",
        "refused": "refused: not the draw's",
        "unseen": "not looked at",
    }[draft.fate]
    if draft.rank is not None:
        words += f" · rank {count(draft.rank)}"
    return _Line(
        FATE_SIGNS[draft.fate],
        _INKS[draft.fate],
        _label(draft),
        *probs,
        words,
    )


def _instead(instead: TakenInstead) -> _Line:
    return _Line(
        "→",
        "accent",
        token_label(instead.text, instead.raw),
        _percent(instead.draft_prob),
        _percent(instead.target_prob),
        "taken instead: the draw's token",
    )


def _label(draft: DraftToken) -> str:
    return token_label(draft.text, draft.raw)


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _label_cells(width: int) -> int:
    """Cells of a token."""
    return 16 if width >= _SLIM else 10


def _end(text: str, cells: int) -> str:
    """The end of a printable text, at most so many cells of it."""
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= cells:
        start -= 1
    return text[start:]

"""The screen of speculative decoding: one round, its totals, and the keys that take rounds."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult

from engine.protocol import DraftRound, DraftToken, Record, SpeculationVerified, TakenInstead
from engine.settings import LoadSettings
from inspector.display import (
    joined_to_fit,
    pad,
    token_label,
    truncate,
    truncate_start,
    truncate_words,
    visible,
)
from inspector.keys import key_for
from inspector.main.dialogs import Downloads
from inspector.main.dialogs.model import ModelDialog
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.recordings.sessions import recent_models
from inspector.scales import count, milliseconds, percent
from inspector.state.speculation import FATE_SIGNS, Speculation, figures, proof, rules, verdict
from inspector.state.timeline import Timeline
from inspector.tools.speculation.control import SPECULATION_SCREEN, SpeculationControl
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import FACT_NAME, PanelCanvas, Row, centred, fact_rows, wrapped
from inspector.widgets.charts import bar, shares

_INKS = {"drafted": "faint", "accepted": "good", "refused": "bad", "unseen": "faint"}
_WIDE = 76
"""Cells from which what became of a draft is written beside it."""
_FATE = 12
"""Cells from which on a word tells what became of it."""
_SLIM = 50
"""Cells below which a token has less room."""
_NEXT = {"proposed": "verify", "verified": "take"}
"""By the stage that a round is in, what n does."""


# ---- the round ----------------------------------------------------------------------------------


class _Line(Struct, frozen=True):
    """One token of the round."""

    sign: str
    ink: str
    label: str
    draft: str
    model: str
    words: str


class RoundPicture(PanelCanvas):
    """The latest round, token by token."""

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
        left, times = height - len(rows), self._times(latest, width)
        rows += [[], *times] if left > len(times) else times[-left:] if left > 0 else []
        if latest.note:
            rows += [[Segment(line, self.ink("warn"))] for line in wrapped(visible(latest.note), width)]
        return rows[:height]

    def _text(self, timeline: Timeline, width: int) -> Row:
        """The end of the text, and dim behind it what is no token of it."""
        ghosts = truncate(timeline.of(Speculation).ghost_words(timeline.tip), width // 2)
        text = visible("".join(item.text for item in timeline.items[-width:]))
        room = max(4, width - cell_len(ghosts) - 1)
        return [
            Segment(truncate_start(text, room), self.rich_style),
            Segment(f" {ghosts}", self.ink("faint")),
        ]

    def _head(self, width: int) -> Row:
        label = _label_cells(width)
        words = "its fate" if width >= label + 40 else "outcome" if width >= label + 33 else ""
        return [Segment(f"  {'token':<{label}} {'draft':>8} {'sampler':>8}  {words}", self.ink("muted"))]

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
        words = line.words if width >= _WIDE else line.words.partition(":")[0] if room >= _FATE else ""
        words = truncate_words(words, room)
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
        words = [f"{glyph} {name} {milliseconds(ms)}" for glyph, name, ms in named if ms]
        plain = self.timeline.of(Speculation).totals.plain_ms if self.timeline else None
        words += [f"plain step {milliseconds(plain)}"] if plain else []
        told = [joined_to_fit(words, width)]
        if len(told[0].split(" · ")) < sum(
            bool(ms) for _, _, ms in named
        ):  # no sign in the bar without its meaning
            told = words
        return [drawn, *([Segment(line, self.ink("muted"))] for line in told)]


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
        return "no draft: the last tokens did not occur before. A plain step"
    return "no draft: nothing can follow here. A plain step"


def _drafted(draft: DraftToken) -> _Line:
    probs = _percent(draft.draft_prob), _percent(draft.target_prob)
    words = {
        "drafted": "not verified yet",
        "accepted": "accepted: the draw's token",
        "refused": "refused: not the draw's",
        "unseen": "not checked",
    }[draft.fate]
    if draft.rank is not None:
        words += f" · rank {count(draft.rank)}"
    return _Line(FATE_SIGNS[draft.fate], _INKS[draft.fate], token_label(draft.text, draft.raw), *probs, words)


def _instead(instead: TakenInstead) -> _Line:
    return _Line(
        "→",
        "accent",
        token_label(instead.text, instead.raw),
        _percent(instead.draft_prob),
        _percent(instead.target_prob),
        "taken instead: the draw's token",
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _label_cells(width: int) -> int:
    """Cells of a token."""
    return 16 if width >= _SLIM else 10


# ---- all rounds ---------------------------------------------------------------------------------


class SpeculationTotalsView(PanelCanvas):
    """The totals of the rounds, whether they paid, and the acceptance by other rules."""

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
        rows += fact_rows(figures(totals), width, muted, self.rich_style, height - len(rows))
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
                room = width - sum(segment.cell_length for segment in row)
                short = what if cell_len(what) <= room else what.partition(":")[0]
                rows.append([*row, Segment(truncate(short, max(0, room)), self.ink("faint"))])
        return rows[:height]


# ---- the screen ---------------------------------------------------------------------------------


class SpeculationScreen(ToolScreen[None]):
    """Takes rounds of the session itself: their tokens are the text's.

    Args:
        host: The main screen.
        control: Knows the engine and the settings.
    """

    TOOL: ClassVar[str] = "speculation"
    ACTIONS: ClassVar[ActionTable] = SPECULATION_SCREEN
    MEASURES: ClassVar[str] = "Speculation"
    TELLING: ClassVar[tuple[type[Record], ...]] = (DraftRound, SpeculationVerified)
    AUTO_FOCUS = ""

    picture = getters.query_one("#speculation-round", RoundPicture)
    totals = getters.query_one("#speculation-totals", SpeculationTotalsView)

    def __init__(self, host: Host, control: SpeculationControl) -> None:
        super().__init__(host, control.job)
        self.control = control

    def body(self) -> ComposeResult:
        yield RoundPicture(id="speculation-round")
        yield SpeculationTotalsView(id="speculation-totals")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.picture.put(self.host.controller.timeline, self._idle())
        self.totals.put(self.control.state)
        settings, facts = self.control.settings, self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        drafts = f"draft {visible(settings.name)}, {settings.num_draft_tokens} tokens a round"
        recorded = "recorded · " if self.recorded else ""
        self.write(
            f"Speculation · {recorded}{drafts} · {name}",
            self.control.state.failure is not None,
        )

    def _idle(self) -> str:
        if self.recorded:
            return self.needs_model
        step, inside, run = map(key_for, ("speculation.round", "speculation.inside", "speculation.run"))
        return f"Press {step} for a round, {inside} for its first stage, {run} to run."

    def situation(self) -> str:
        """The state of the rounds, and the keys that matter now; printable."""
        state, latest = self.control.state, self.control.state.latest
        if state.loading is not None:
            return (
                f"Loading the draft: {visible(state.loading.name)} {state.loading.done}/{state.loading.total}"
            )
        if self.recorded:
            rounds = len(state.rounds)
            return f"Recorded, {rounds} round{'s' * (rounds != 1)}. {self.needs_model}"
        if state.failure is not None:
            return visible(f"{state.failure.message} {state.failure.hint}".strip())
        if self.control.job.running:
            return f"At work. Press {key_for('speculation.run')} to pause"
        if latest is not None and latest.stage in _NEXT:
            step, inside = key_for("speculation.round"), key_for("speculation.inside")
            verb = _NEXT[latest.stage]
            return f"The drafts are {latest.stage}. Press {inside} to {verb} them, {step} for all the rest"
        if state.verified is not None and latest is not None and state.verified.end == latest.end:
            return proof(state.verified)
        finished = self.host.controller.timeline.finished.get(self.host.controller.timeline.tip)
        if finished is not None:
            why = f"{finished.reason} {visible(finished.detail)}".strip()
            run = key_for("speculation.run")
            return f"Ended: {why}. Press {key_for('speculation.verify')} to compare with plain steps, {run} to continue"
        verify = f"Press {key_for('speculation.verify')} to compare with plain steps"
        return verify if state.rounds else self._idle()

    # ---- keys -------------------------------------------------------------------------------

    def take(self, inside: bool) -> None:
        """Take a round, or the next stage of one."""
        self._begin()
        self.control.step(inside)

    def take_rounds(self) -> None:
        """Take rounds until something stops them, or pause."""
        self._begin()
        self.control.run()

    def _begin(self) -> None:
        """Rounds go on from the tip, whatever was looked at."""
        self.host.controller.timeline.select(None)
        self.control.state.failure = None

    def change_draft(self) -> None:
        """Take the next kind of draft."""
        self.control.state.failure = None
        self.control.change_draft()

    def ask_model(self) -> None:
        """Ask for a model that drafts."""
        load = self.host.controller.setup.load
        drafting = LoadSettings(self.control.drafting_model or load.model)
        facts = self.host.controller.timeline.facts
        room = facts.room if facts is not None else None
        dialog = DraftModelDialog(drafting, None, recent_models, Downloads(self.host), room=room)
        self.host.open(dialog, self._named)

    def _named(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.control.state.failure = None
            self.control.take_model(load.model)
            self.say()

    def verify(self) -> None:
        """Decode all since the first round again by plain steps."""
        if not self.control.compare():
            self.say(f"There is no round to compare yet. Press {key_for('speculation.round')} for one")

    def count_anew(self) -> None:
        """Count from the next round on."""
        self.control.state.forget()
        self.say("The figures were reset: they count from the next round on")


class DraftModelDialog(ModelDialog):
    """Asks for a model that drafts: its tokens must be those of the session's."""

    HEADING: ClassVar[str] = "A model that drafts"
    APPLY: ClassVar[str] = "Draft with it"

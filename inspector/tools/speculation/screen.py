"""The screen of speculative decoding: one round, its totals, and the keys that take rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.app import ComposeResult

from engine.protocol import DraftRound, Record, SpeculationVerified, VerifySpeculation
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
from inspector.main.view import View
from inspector.recordings.sessions import recent_models
from inspector.scales import count, milliseconds, percent
from inspector.state.speculation import FATE_SIGNS, figures, proof, rules, verdict
from inspector.tools.speculation.control import SPECULATION_SCREEN, SpeculationActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import FACT_NAME, Canvas, DrawnPanel, Row, centred, fact_rows, wrapped
from inspector.widgets.charts import bar, shares

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

_INKS = {"drafted": "faint", "accepted": "good", "refused": "bad", "unseen": "faint"}
_WIDE = 76
"""Cells from which the fate of a draft is written beside it."""
_FATE = 12
"""Cells from which on a word tells its fate."""
_SLIM = 50
"""Cells below which a token has less room."""
_NEXT = {"proposed": "verify", "verified": "take"}
"""The verb for the key of the next stage, by the stage of the round."""
_FATES = {
    "drafted": "not verified yet",
    "accepted": "accepted: the draw's token",
    "refused": "refused: not the draw's",
    "unseen": "not checked",
}


# ---- the screen ---------------------------------------------------------------------------------


class SpeculationScreen(View[None]):
    """Takes rounds of the session itself: their tokens are those of the text.

    Args:
        host: The main screen.
        control: Takes the rounds, and has the settings.
    """

    TOOL: ClassVar[str] = "speculation"
    ACTIONS: ClassVar[ActionTable] = SPECULATION_SCREEN
    MEASURES: ClassVar[str] = "Speculation"
    TELLING: ClassVar[tuple[type[Record], ...]] = (DraftRound, SpeculationVerified)

    def __init__(self, host: MainScreen, control: SpeculationActions) -> None:
        super().__init__(host, control.job)
        self.control = control

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="speculation-round")
        yield DrawnPanel(id="speculation-totals")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        latest = self.control.state.latest
        stage = "" if latest is None else f" · {latest.stage}"
        self.query_one("#speculation-round", DrawnPanel).put(f"The round{stage}", self._round)
        self.query_one("#speculation-totals", DrawnPanel).put("All rounds", self._totals)
        settings, facts = self.control.settings, self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        drafts = f"draft {visible(settings.name)}, {settings.num_draft_tokens} tokens a round"
        recorded = "recorded · " if self.recorded else ""
        self.write(f"Speculation · {recorded}{drafts} · {name}", self.control.state.failure is not None)

    def _round(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The latest round, token by token."""
        state, timeline, muted = self.control.state, self.host.controller.timeline, on.ink("muted")
        if (latest := state.latest) is None:
            about = "A draft guesses the next tokens, one forward of the model checks them all."
            return centred([(about, on.rich_style), (self._idle(), muted)], width, height)
        ghosts = truncate(state.ghost_words(timeline.tip), width // 2)
        text = visible("".join(item.text for item in timeline.items[-width:]))
        text = truncate_start(text, max(4, width - cell_len(ghosts) - 1))
        label = 16 if width >= _SLIM else 10
        fate = "its fate" if width >= label + 40 else "outcome" if width >= label + 33 else ""
        rows: list[Row] = [
            [Segment(text, on.rich_style), Segment(f" {ghosts}", on.ink("faint"))],
            [Segment(f"  {'token':<{label}} {'draft':>8} {'sampler':>8}  {fate}", muted)],
        ]
        for sign, ink, name, (draft, model), words in _lines(latest):
            row = [
                Segment(f"{sign} ", on.ink(ink)),
                Segment(pad(name, label), on.ink("strong" if ink == "good" else ink)),
                Segment(f" {draft:>8} {model:>8}  ", on.rich_style),
            ]
            room = width - sum(part.cell_length for part in row)
            words = words if width >= _WIDE else words.partition(":")[0] if room >= _FATE else ""
            rows.append([*row, Segment(truncate_words(words, room), muted)])
        left, times = height - len(rows), _times(on, latest, state.totals.plain_ms, width)
        rows += [[], *times] if left > len(times) else times[-left:] if left > 0 else []
        if latest.note:
            rows += [[Segment(line, on.ink("warn"))] for line in wrapped(visible(latest.note), width)]
        return rows[:height]

    def _totals(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The totals of the rounds, whether they paid, and the acceptance by other rules."""
        muted = on.ink("muted")
        if not self.control.state.rounds:
            words = "Tokens a forward, acceptance by place in the draft and the time against plain steps come here."
            return centred([(words, muted)], width, height)
        totals = self.control.state.totals
        rows: list[Row] = [
            [Segment(line, on.ink("strong"))] for line in wrapped(verdict(totals), width) if line
        ]
        rows += fact_rows(figures(totals), width, muted, on.rich_style, height - len(rows))
        if totals.rates is not None and height > len(rows) + 3:
            rows.append([Segment("Expected acceptance of these drafts, by rule", muted)])
            for name, value, what in rules(totals):
                row = [
                    Segment(f"{name:<{FACT_NAME}} ", muted),
                    Segment(bar(getattr(totals.rates, name.replace(" ", "_")), 12), on.data(0.5)),
                    Segment(f" {value:>7}  "),
                ]
                room = width - sum(segment.cell_length for segment in row)
                short = what if cell_len(what) <= room else what.partition(":")[0]
                rows.append([*row, Segment(truncate(short, max(0, room)), on.ink("faint"))])
        return rows[:height]

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
        run, verify = key_for("speculation.run"), key_for("speculation.verify")
        if self.control.job.running:
            return f"At work. Press {run} to pause"
        if latest is not None and latest.stage in _NEXT:
            step, inside = key_for("speculation.round"), key_for("speculation.inside")
            verb = _NEXT[latest.stage]
            return f"The drafts are {latest.stage}. Press {inside} to {verb} them, {step} for all the rest"
        if state.verified is not None and latest is not None and state.verified.end == latest.end:
            return proof(state.verified)
        timeline = self.host.controller.timeline
        finished = timeline.finished.get(timeline.tip)
        if finished is not None:
            why = f"{finished.reason} {visible(finished.detail)}".strip()
            return f"Ended: {why}. Press {verify} to compare with plain steps, {run} to continue"
        return f"Press {verify} to compare with plain steps" if state.rounds else self._idle()

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
        """Rounds continue from the tip, whatever was looked at."""
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
        if (begin := self.control.state.begin) is None:
            self.say(f"There is no round to compare yet. Press {key_for('speculation.round')} for one")
        else:
            self.control.job.start(VerifySpeculation(begin))

    def count_anew(self) -> None:
        """Count from the next round on."""
        self.control.state.forget()
        self.say("The figures were reset: they count from the next round on")


def _lines(latest: DraftRound) -> Iterator[tuple[str, str, str, tuple[str, str], str]]:
    """The tokens of a round: the known one, the drafts, and the one that was taken instead of a refused one.

    Yields:
        The sign and its ink, the token's label, its probabilities by draft and by model, and its fate.
    """
    known = token_label(latest.first_text) if latest.first_text else f"id {latest.first}"
    yield "●", "accent", known, ("", ""), "known before: the sampler's pick"
    for each in latest.drafts:
        rank = f" · rank {count(each.rank)}" if each.rank is not None else ""
        probs = _percent(each.draft_prob), _percent(each.target_prob)
        label = token_label(each.text, each.raw)
        yield FATE_SIGNS[each.fate], _INKS[each.fate], label, probs, _FATES[each.fate] + rank
        if each.fate == "refused" and (instead := latest.instead) is not None:
            probs = _percent(instead.draft_prob), _percent(instead.target_prob)
            yield (
                "→",
                "accent",
                token_label(instead.text, instead.raw),
                probs,
                "taken instead: the draw's token",
            )
    if not latest.drafts:
        lookup = latest.settings.draft == "lookup"
        why = "the last tokens did not occur before" if lookup else "nothing can follow here"
        yield "–", "faint", "", ("", ""), f"no draft: {why}. A plain step"


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _times(on: Canvas, latest: DraftRound, plain_ms: float | None, width: int) -> list[Row]:
    """The time of each stage of a round, as a bar and in words."""
    if not latest.ms:
        return []
    parts = (
        ("░", "draft", latest.draft_ms, 0.75),
        ("█", "verify", latest.verify_ms, 0.35),
        ("▒", "take", latest.take_ms, 0.55),
    )
    cells = shares([ms / latest.ms for _, _, ms, _ in parts], max(6, min(40, width - 4)))
    drawn = [Segment(part[0] * n, on.data(part[3])) for part, n in zip(parts, cells, strict=True)]
    stages = [
        f"{glyph} {name} {milliseconds(ms)}" for glyph, name, ms, _ in parts if ms
    ]  # one to come has no time yet
    words = [*stages, *([f"plain step {milliseconds(plain_ms)}"] if plain_ms else [])]
    line = joined_to_fit(words, width)
    # no sign in the bar without its meaning
    told = words if len(line.split(" · ")) < len(stages) else [line]
    return [drawn, *([Segment(each, on.ink("muted"))] for each in told)]


class DraftModelDialog(ModelDialog):
    """Asks for a model that drafts: its tokens must be those of the session's."""

    HEADING: ClassVar[str] = "A model that drafts"
    APPLY: ClassVar[str] = "Draft with it"

"""Speculative decoding: one round with the outcome of its drafts, the totals of all rounds, and whether they paid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from textual.app import ComposeResult

from engine import protocol
from engine.protocol import DraftRound, LoadDraft, Record, SpeculationVerified
from engine.settings import DRAFT_KINDS, MOST_DRAFTS, DraftKind, LoadSettings, SpeculationSettings
from inspector.display import (
    first_fitting,
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
from inspector.scales import count, counted, milliseconds, percent
from inspector.session.requests import failure_words
from inspector.state.conditions import ending
from inspector.state.speculation import FATE_SIGNS, RULES, Speculation, figures, proof, share, verdict
from inspector.widgets.actions import Action, ActionTable, Needs, back, both, screen_table
from inspector.widgets.canvas import FACT_NAME, Canvas, DrawnPanel, Row, centred, fact_rows, paragraph
from inspector.widgets.charts import bar, shares

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

PLAIN_STEPS = 5
"""Plain steps that a run begins with if none was measured yet."""
_OUTCOME = 12
"""Cells from which a token's outcome is written in words."""
_SLIM = 50
"""Cells below which a token has less room."""
_NEXT = {"proposed": "verify", "verified": "take"}
"""The verb for the key of the next stage, by the stage of the round."""
_OUTCOMES = {
    "drafted": ("faint", "not verified yet"),
    "accepted": ("good", "accepted: the draw's token"),
    "refused": ("bad", "refused: not the draw's"),
    "unseen": ("faint", "not checked"),
}
"""Ink and words of each outcome."""
ABOUT = (
    "A cheap draft guesses the next tokens, and one forward pass of the model checks them all: which were accepted, "
    "and whether that was faster than plain steps."
)

DRAFT_KEYS = screen_table(
    "With drafts",
    Action("speculation.round", "Round", "Take a round, or the rest of one; during a run, pause.",
           lambda own: own.take(inside=False), Needs.ENGINE, hint="round", worth=11, place=1),
    Action("speculation.inside", "Next stage", "Go to the next stage of a round: propose, verify, take.",
           lambda own: own.take(inside=True), Needs.ENGINE, hint="stage", worth=9, place=2),
    Action("speculation.run", "Run", "Take rounds until a stop or a breakpoint; again to pause.",
           lambda own: own.run(), Needs.ENGINE, worth=8, place=3,
           hint=lambda own: "pause" if own.job.running else "run"),
    Action("speculation.draft", "Other draft",
           "Draft by lookup, by the model itself in 4 bits, or by the model that you named.",
           lambda own: own.change_draft(), Needs.ENGINE, hint="other draft", worth=7, place=5),
    Action("speculation.model", "Draft model", "Name a model for drafting; it must have the same tokens as this one.",
           lambda own: own.ask_model(), Needs.ENGINE, hint="draft model", worth=4, place=7),
    *both(("speculation.fewer", "speculation.more"), ("Fewer", "More"), "Draft fewer tokens for a round, or more.",
          lambda own, by: own.change_number(by), needs=Needs.ENGINE, hint="number", worth=5, place=6),
    Action("speculation.verify", "Compare",
           "Decode the same tokens again by plain steps, in separate caches, and compare.",
           lambda own: own.verify(), Needs.ENGINE, worth=6, place=4,
           hint=lambda own: "compare" if own.state.rounds else ""),
    Action("speculation.anew", "Start over", "Reset the counts, from the next round on.", lambda own: own.start_over(),
           Needs.ENGINE, hint=lambda own: "start over" if own.state.rounds else "", worth=3, place=8),
    back("speculation.leave", "Go back; a run under way pauses.", worth=10),
    text="A drafted token is accepted if the draw of its position takes the same token from the model's "
        "distribution, so the text is that of plain steps. `✓` accepted, `✗` refused, `?` after a refused one: not "
        "checked, `→` taken instead. The tokens taken are ordinary steps; refused drafts stand dim after the text "
        "until the next round.",
)  # fmt: skip


class DraftsView(View):
    """Takes rounds in the session itself: their tokens become its text. The timeline has the results."""

    TOOL: ClassVar[str] = "speculation"
    ACTIONS: ClassVar[ActionTable] = DRAFT_KEYS
    MEASURES: ClassVar[str] = "Drafting"
    STARTS = (LoadDraft, protocol.TakeRound, protocol.RunRounds, protocol.VerifySpeculation)
    TELLING = (DraftRound, SpeculationVerified)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._asked = self.controller.speculation
        self.drafting_model = self._asked.draft_model
        """The draft model that was named last; empty for none."""
        if (latest := self.state.latest) is not None:
            self._receive(latest)
        self.controller.client.listen(self._receive, DraftRound)

    def _receive(self, record: Record) -> None:
        """Continue with the settings of rounds that a lesson or a script took."""
        if isinstance(record, DraftRound) and not (self.job.answered or self.recorded):
            self._asked = record.settings
            self.drafting_model = record.settings.draft_model or self.drafting_model

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="drafts-round")
        yield DrawnPanel(id="drafts-totals")

    @property
    def state(self) -> Speculation:
        """The rounds, live or recorded up to the replay's present place."""
        return self.timeline.of(Speculation)

    @property
    def settings(self) -> SpeculationSettings:
        """The settings of the next round; in a replay, of the latest one."""
        latest = self.state.latest
        return latest.settings if self.recorded and latest is not None else self._asked

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        latest, settings = self.state.latest, self.settings
        self.set_class(latest is None, "-empty")
        stage = "" if latest is None else f" · {latest.stage}"
        self.query_one("#drafts-round", DrawnPanel).put(f"The round{stage}", self._round)
        self.query_one("#drafts-totals", DrawnPanel).put("All rounds", self._totals)
        drafts = f"{visible(settings.name)}, {counted(settings.num_draft_tokens, 'token')} a round"
        recorded = "recorded · " if self.recorded else ""
        self.write(f"Drafts · {recorded}{drafts} · {self.model_name}", self.state.failure is not None)

    def _round(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The latest round, token by token."""
        state, timeline, muted = self.state, self.timeline, on.ink("muted")
        if (latest := state.latest) is None:
            return self.empty(on, width, height, ABOUT)
        ghosts = truncate(state.ghost_words(timeline.tip), width // 2)
        text = visible("".join(item.text for item in timeline.items[-width:]))
        text = truncate_start(text, max(4, width - cell_len(ghosts) - 1))
        label = 16 if width >= _SLIM else 10
        outcome = "outcome" if width >= label + 33 else ""
        rows: list[Row] = [
            [Segment(text, on.rich_style), Segment(f" {ghosts}", on.ink("faint"))],
            [Segment(f"  {'token':<{label}} {'draft':>8} {'sampler':>8}  {outcome}", muted)],
        ]
        for sign, ink, name, draft, model, words in _lines(latest):
            row = [
                Segment(f"{sign} ", on.ink(ink)),
                Segment(pad(name, label), on.ink("strong" if ink == "good" else ink)),
                Segment(f" {draft:>8} {model:>8}  ", on.rich_style),
            ]
            room = width - sum(part.cell_length for part in row)
            forms = words, words.partition(" · ")[0], words.partition(":")[0]
            words = first_fitting(room, *forms) if room >= _OUTCOME else ""
            rows.append([*row, Segment(truncate_words(words, room), muted)])
        left, times = height - len(rows), _times(on, latest, state.totals.plain_ms, width)
        rows += [[], *times] if left > len(times) else times[-left:] if left > 0 else []
        if latest.note:
            rows += paragraph(on.ink("warn"), width, visible(latest.note))
        return rows[:height]

    def _totals(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The totals of the rounds, whether they paid, and the acceptance by other rules."""
        muted = on.ink("muted")
        if not self.state.rounds:
            words = "Here come tokens a forward pass, acceptance by place in the draft, and time against plain steps."
            return centred([(words, muted)], width, height)
        totals = self.state.totals
        rows = paragraph(on.ink("strong"), width, verdict(totals)) if verdict(totals) else []
        rows += fact_rows(figures(totals), width, muted, on.rich_style, height - len(rows))
        if totals.rates is not None and height > len(rows) + 3:
            rows.append([Segment("Expected acceptance of these drafts, by rule", muted)])
            for name, field, what in RULES:
                rate = getattr(totals.rates, field)
                row = [
                    Segment(f"{name:<{FACT_NAME}} ", muted),
                    Segment(bar(rate, 12), on.data(0.5)),
                    Segment(f" {share(rate):>7}  "),
                ]
                room = width - sum(segment.cell_length for segment in row)
                short = what if cell_len(what) <= room else what.partition(":")[0]
                rows.append([*row, Segment(truncate(short, max(0, room)), on.ink("faint"))])
        return rows[:height]

    def situation(self) -> str:
        """The state of the rounds, and the keys that matter now; printable."""
        state, latest = self.state, self.state.latest
        if (loading := state.loading) is not None:
            return f"Loading the draft: {visible(loading.name)} {loading.done}/{loading.total}"
        if self.recorded:
            return f"Recorded, {counted(len(state.rounds), 'round')}. {self.needs_model}"
        if state.failure is not None:
            return failure_words(state.failure)
        step, inside = key_for("speculation.round"), key_for("speculation.inside")
        run, verify = key_for("speculation.run"), key_for("speculation.verify")
        if self.job.running:
            return f"Running. Press {run} to pause"
        if latest is not None and (verb := _NEXT.get(latest.stage)):
            return f"The drafts are {latest.stage}. Press {inside} to {verb} them, {step} for all the rest"
        if state.verified is not None and latest is not None and state.verified.end == latest.end:
            return proof(state.verified)
        if not state.rounds:
            return f"Press {step} for a round of this text, {inside} for its first stage, {run} to run"
        if (finished := self.timeline.finished.get(self.timeline.tip)) is not None:
            why = ending(finished)
            return f"{why[0].upper()}{why[1:]}. Press {verify} to compare with plain steps, {run} to continue"
        return f"Press {verify} to compare with plain steps"

    # ---- rounds -----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Go to the last token, from which rounds continue."""
        self.timeline.select(None)
        self.state.failure = None

    def take(self, inside: bool) -> None:
        """Take a round, or the next stage of one; pause a run that is under way."""
        self._begin()
        if not self.job.stop():
            self.job.start(protocol.TakeRound(self._asked, inside))

    def run(self) -> None:
        """Take rounds until something stops them, or pause."""
        self._begin()
        if not self.job.stop():
            points = self.controller.runs.breakpoints.points
            plain = 0 if self.state.plain else PLAIN_STEPS
            self.job.start(protocol.RunRounds(self._asked, points if points.active else None, plain=plain))

    def verify(self) -> None:
        """Decode all tokens since the first round again by plain steps."""
        if (begin := self.state.begin) is None:
            self.say(f"There is no round to compare yet. Press {key_for('speculation.round')} for one")
        else:
            self.job.start(protocol.VerifySpeculation(begin))

    def start_over(self) -> None:
        """Start the figures again with the next round."""
        self.state.forget()
        self.say("The figures start over with the next round")

    # ---- settings ---------------------------------------------------------------------------

    def change_draft(self) -> None:
        """Change to the next kind of draft; to a draft model only if one was named."""
        kinds = [kind for kind in DRAFT_KINDS if kind != "model" or self.drafting_model]
        self._draft_by(kinds[(kinds.index(self._asked.draft) + 1) % len(kinds)])

    def change_number(self, by: int) -> None:
        """Draft more tokens for a round, or fewer."""
        number = max(1, min(MOST_DRAFTS, self._asked.num_draft_tokens + by))
        self._asked = replace(self._asked, num_draft_tokens=number)

    def ask_model(self) -> None:
        """Ask for a draft model."""
        drafting = LoadSettings(self.drafting_model or self.controller.setup.load.model)
        room = self.timeline.facts.room if self.timeline.facts is not None else None
        dialog = DraftModelDialog(drafting, None, recent_models, Downloads(self.host), room=room)
        self.host.open(dialog, self._named)

    def _named(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.drafting_model = load.model
            self._draft_by("model")
            self.say()

    def _draft_by(self, kind: DraftKind) -> None:
        self.state.failure = None
        self.job.stop()
        model = self.drafting_model if kind == "model" else ""
        self._asked = replace(self._asked, draft=kind, draft_model=model)
        if kind != "lookup":  # loading takes long: begin while the settings are still chosen
            self.job.start(LoadDraft(self._asked))


def _lines(latest: DraftRound) -> Iterator[tuple[str, str, str, str, str, str]]:
    """The tokens of a round: the known one, the drafts, and the one that was taken instead of a refused draft.

    Yields:
        The sign and its ink, the token's label, its probabilities by draft and by model, and its outcome.
    """
    known = token_label(latest.first_text) if latest.first_text else f"id {latest.first}"
    yield "●", "accent", known, "", "", "known before: the sampler's pick"
    for each in latest.drafts:
        ink, outcome = _OUTCOMES[each.fate]
        rank = f" · rank {count(each.rank)}" if each.rank is not None else ""
        yield FATE_SIGNS[each.fate], ink, *_figures(each), outcome + rank
        if each.fate == "refused" and latest.instead is not None:
            yield "→", "accent", *_figures(latest.instead), "taken instead: the draw's token"
    if not latest.drafts:
        lookup = latest.settings.draft == "lookup"
        why = "nothing repeats here" if lookup else "nothing can follow here"
        yield "–", "faint", "", "", "", f"no draft: {why}. A plain step"


def _figures(token: protocol.DraftToken | protocol.TakenInstead) -> tuple[str, str, str]:
    """The label of a token, and its probabilities by draft and by model."""
    draft, model = ("–" if each is None else percent(each) for each in (token.draft_prob, token.target_prob))
    return token_label(token.text, token.raw), draft, model


def _times(on: Canvas, latest: DraftRound, plain_ms: float | None, width: int) -> list[Row]:
    if not latest.ms:
        return []
    parts = (
        ("░", "draft", latest.draft_ms, 0.75),
        ("█", "verify", latest.verify_ms, 0.35),
        ("▒", "take", latest.take_ms, 0.55),
    )
    cells = shares([ms / latest.ms for _, _, ms, _ in parts], max(6, min(40, width - 4)))
    drawn = [Segment(part[0] * n, on.data(part[3])) for part, n in zip(parts, cells, strict=True)]
    # a stage to come has no time yet
    stages = [f"{glyph} {name} {milliseconds(ms)}" for glyph, name, ms, _ in parts if ms]
    words = [*stages, *([f"plain step {milliseconds(plain_ms)}"] if plain_ms else [])]
    line = joined_to_fit(words, width)
    # every sign in the bar needs its legend
    lines = words if len(line.split(" · ")) < len(stages) else [line]
    return [drawn, *([Segment(each, on.ink("muted"))] for each in lines)]


class DraftModelDialog(ModelDialog):
    """Asks for a draft model, which must have the same tokens as the session's model."""

    HEADING: ClassVar[str] = "A model that drafts"
    APPLY: ClassVar[str] = "Draft with it"

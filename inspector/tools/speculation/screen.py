"""The screen of speculative decoding: one round, its totals, and the keys that take rounds."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.widgets import Static

from engine.protocol import DraftRound, Record, SpeculationVerified
from engine.settings import LoadSettings
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.dialogs.model import ModelDialog
from inspector.main.downloads import Downloads
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.recordings.sessions import recent_models
from inspector.state.speculation import proof
from inspector.tools.speculation.control import SpeculationControl
from inspector.tools.speculation.picture import RoundPicture, SpeculationTotalsView
from inspector.tools.speculation.tool import SPECULATION_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine

_NEXT = {"proposed": "verify", "verified": "take"}
"""By the stage that a round is in, what n does."""


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

    def compose(self) -> ComposeResult:
        yield Static(id="speculation-place")
        yield RoundPicture(id="speculation-round")
        yield SpeculationTotalsView(id="speculation-totals")
        yield Static(id="speculation-status")
        yield KeyLine(id="speculation-keys")

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
            "speculation",
            f"Speculation · {recorded}{drafts} · {name}",
            self.control.state.failure is not None,
        )

    def _idle(self) -> str:
        if self.recorded:
            return self.needs_model
        step, inside, run = map(key_for, ("speculation.round", "speculation.inside", "speculation.run"))
        return f"Press {step} for a round, {inside} for its first stage, {run} to run."

    def situation(self) -> str:
        """What is going on, and what to do about it; printable."""
        state, latest = self.control.state, self.control.state.latest
        if state.loading is not None:
            return (
                f"Loading the draft: {visible(state.loading.name)} {state.loading.done}/{state.loading.total}"
            )
        if self.recorded:
            return f"Recorded, {len(state.rounds)} rounds. {self.needs_model}"
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
            return f"Ended: {why}. Press {key_for('speculation.verify')} to compare with plain steps, {run} to go on"
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
        room = facts.free_bytes if facts is not None else None
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
        self.say("Rounds are counted from the next one on")


class DraftModelDialog(ModelDialog):
    """Asks for a model that drafts: its tokens must be those of the session's."""

    HEADING: ClassVar[str] = "A model that drafts"
    APPLY: ClassVar[str] = "Draft with it"

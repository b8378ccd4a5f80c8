"""The screen of speculative decoding: one round, its totals, and the keys that take rounds."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from engine.protocol import DraftRound, Record, SpeculationVerified
from engine.settings import LoadSettings
from inspector.display import visible
from inspector.main.dialogs.model import ModelDialog
from inspector.main.downloads import Downloads
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.recordings.sessions import recent_models
from inspector.state.speculation import proof
from inspector.tools.speculation.control import SpeculationControl
from inspector.tools.speculation.picture import RoundPicture, SpeculationTotalsView

Hint = tuple[str, str, int]
_NEXT = {"proposed": "verify", "verified": "take"}
"""By the stage that a round is in, what n does."""


class SpeculationScreen(ToolScreen[None]):
    """Takes rounds of the session itself: their tokens are the text's.

    Args:
        host: The main screen.
        control: Knows the engine and the settings.
    """

    TOOL: ClassVar[str] = "speculation"
    KEYS: ClassVar[str] = "#speculation-keys"
    MEASURES: ClassVar[str] = "Speculation"
    TELLING: ClassVar[tuple[type[Record], ...]] = (DraftRound, SpeculationVerified)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "step(False)", "Round", tooltip="Take a round, or the rest of one."),
        Binding("n", "step(True)", "Inside", tooltip="Propose, verify, take: the next stage of a round."),
        Binding("r", "run", "Run", tooltip="Take rounds until a stop or a breakpoint, or pause."),
        Binding(
            "d",
            "draft",
            "Draft",
            tooltip="Draft by lookup, by the model's own 4 bits, or by the model named.",
        ),
        Binding("o", "model", "Draft model", tooltip="Name a model that drafts."),
        Binding("right,plus", "number(1)", "More", tooltip="Draft more tokens for a round."),
        Binding("left,minus", "number(-1)", "Fewer", tooltip="Draft fewer tokens for a round."),
        Binding(
            "v", "compare", "Verify", tooltip="Decode the same stretch again by plain steps, and compare."
        ),
        Binding("c", "forget", "Count anew", tooltip="Count rounds from the next one on."),
        Binding("escape,exclamation_mark,q", "leave", "Back", tooltip="Go back; a run under way pauses."),
    ]
    AUTO_FOCUS = ""

    picture = getters.query_one("#speculation-round", RoundPicture)
    totals = getters.query_one("#speculation-totals", SpeculationTotalsView)

    def __init__(self, host: Host, control: SpeculationControl) -> None:
        super().__init__(host)
        self.control = control

    def compose(self) -> ComposeResult:
        yield Static(id="speculation-place")
        yield RoundPicture(id="speculation-round")
        yield SpeculationTotalsView(id="speculation-totals")
        yield Static(id="speculation-status")
        yield Static(id="speculation-keys")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.picture.put(self.host.controller.timeline, self._idle())
        self.totals.put(self.control.state)
        settings, facts = self.control.settings, self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        drafts = f"draft {visible(settings.name)}, {settings.num_draft_tokens} tokens a round"
        recorded = "recorded · " if self.recorded else ""
        self.query_one("#speculation-place", Static).update(
            Content(f"Speculation · {recorded}{drafts} · {name}")
        )
        status = self.query_one("#speculation-status", Static)
        status.update(Content(self.said or self.situation()))
        status.set_class(bool(self.said) or self.control.state.failure is not None, "-answer")
        self.show_keys(self._hints())

    def _idle(self) -> str:
        return (
            self.needs_model if self.recorded else "Press space for a round, n for its first stage, r to run."
        )

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
            return "At work. Press r to pause"
        if latest is not None and latest.stage in _NEXT:
            return f"The drafts are {latest.stage}. Press n to {_NEXT[latest.stage]} them, space for all the rest"
        if state.verified is not None and latest is not None and state.verified.end == latest.end:
            return proof(state.verified)
        finished = self.host.controller.timeline.finished.get(self.host.controller.timeline.tip)
        if finished is not None:
            why = f"{finished.reason} {visible(finished.detail)}".strip()
            return f"Ended: {why}. Press v to compare with plain steps, r to go on"
        return "Press v to compare with plain steps" if state.rounds else self._idle()

    def _hints(self) -> tuple[Hint, ...]:
        ends: tuple[Hint, ...] = (("T", "theme", 1), ("?", "help", 2), ("esc", "back", 10))
        if self.recorded:
            return (*self.replay_keys(), *ends)
        run = "pause" if self.control.job.running else "run"
        proof_key: tuple[Hint, ...] = (("v", "verify", 6),) if self.control.state.rounds else ()
        return (
            ("space", "round", 11),
            ("n", "inside", 9),
            ("r", run, 8),
            *proof_key,
            ("d", "draft", 7),
            ("←→", "number", 5),
            ("o", "draft model", 4),
            ("c", "anew", 3),
            *ends,
        )

    # ---- keys -------------------------------------------------------------------------------

    def action_step(self, inside: bool) -> None:
        """Take a round, or the next stage of one."""
        if not self.refused():
            self._begin()
            self.control.step(inside)

    def action_run(self) -> None:
        """Take rounds until something stops them, or pause."""
        if not self.refused():
            self._begin()
            self.control.run()

    def _begin(self) -> None:
        """Rounds go on from the tip, whatever was looked at."""
        self.host.controller.timeline.select(None)
        self.control.state.failure = None
        self.say()

    def action_draft(self) -> None:
        """Take the next kind of draft."""
        if not self.refused():
            self.control.state.failure = None
            self.control.change_draft()
            self.say()

    def action_model(self) -> None:
        """Ask for a model that drafts."""
        if not self.refused():
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

    def action_number(self, by: int) -> None:
        """Draft more tokens for a round, or fewer."""
        if not self.refused():
            self.control.change_number(by)
            self.say()

    def action_compare(self) -> None:
        """Decode all since the first round again by plain steps."""
        if not self.refused():
            self.say(
                "" if self.control.compare() else "There is no round to compare yet. Press space for one"
            )

    def action_forget(self) -> None:
        """Count from the next round on."""
        if not self.refused():
            self.control.state.forget()
            self.say("Rounds are counted from the next one on")

    def action_leave(self) -> None:
        """Go back; a run pauses."""
        self.control.job.stop()
        self.dismiss(None)


class DraftModelDialog(ModelDialog):
    """Asks for a model that drafts: its tokens must be those of the session's."""

    HEADING: ClassVar[str] = "A model that drafts"
    APPLY: ClassVar[str] = "Draft with it"

"""The main screen: the panels, and what each key does to them and to the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import Provider
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from engine.stalls import drawing
from inspector.main.caption import CaptionLine
from inspector.main.dialogs.help import HelpDialog
from inspector.main.keyline import KeyLine
from inspector.main.keys import actions_looking, actions_needing_prompt, bindings
from inspector.main.layout import (
    CANDIDATES,
    DECK,
    MINIMUM,
    PANELS,
    SAMPLER,
    STEPS,
    TEXT,
    TREE,
    Layout,
    layout_for,
    panels_shown,
)
from inspector.main.opening import OpeningPanel, stands
from inspector.main.palette import KeyCommands
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.panels.header import HeaderLine
from inspector.main.panels.kv import KVPanel
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.main.panels.timing import TimingPanel
from inspector.main.setting_up import SettingUp
from inspector.main.status import StatusLine, pace_text
from inspector.main.stepping import Stepping
from inspector.session.controller import Controller
from inspector.state.timeline import Phase
from inspector.tools.beams.actions import BeamActions
from inspector.tools.breakpoints.actions import BreakActions
from inspector.tools.compare.actions import Comparing
from inspector.tools.costs.actions import CostActions
from inspector.tools.export.actions import Exporting
from inspector.tools.find.actions import Finding
from inspector.tools.lookahead.actions import LookingAhead
from inspector.tools.recordings.actions import TraceActions
from inspector.tools.sampler.panel import SamplerPanel
from inspector.tools.tree.actions import TreeActions
from inspector.tools.tree.panel import TreePanel


class MainScreen(
    TraceActions,
    BeamActions,
    TreeActions,
    LookingAhead,
    Stepping,
    CostActions,
    BreakActions,
    Comparing,
    Finding,
    Exporting,
    SettingUp,
):
    """The panels around one timeline.

    Args:
        controller: Knows the timeline and the engine.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings()
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {KeyCommands}
    AUTO_FOCUS = "#opening"
    NEEDS_PROMPT: ClassVar[frozenset[str]] = actions_needing_prompt()
    LOOKING: ClassVar[frozenset[str]] = actions_looking()

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.current = 0
        """Place in `PANELS` of the panel that the person is at."""
        self.other, self.deck = CANDIDATES, STEPS
        """The ones last visited beside the text, and below the candidates."""
        self.enlarged = False
        self.why = False
        """Whether the sampler stands in the place of candidates, KV cache and time."""
        self.wooded = False
        """Whether the tree stands in the place of the steps, or of the deck."""
        self._arranged: tuple[Layout, frozenset[int], bool, bool] | None = None

    def compose(self) -> ComposeResult:
        yield HeaderLine(id="header")
        with Container(id="panels"):
            yield OpeningPanel(id="opening", classes="panel")
            yield TextPanel(id="text", classes="panel")
            yield CandidatesPanel(id="candidates", classes="panel")
            yield SamplerPanel(id="sampler", classes="panel")
            yield StepsPanel(id="steps", classes="panel")
            yield TreePanel(id="tree", classes="panel")
            yield KVPanel(id="kv", classes="panel")
            yield TimingPanel(id="timing", classes="panel")
        yield CaptionLine(id="caption")
        yield StatusLine(id="status")
        yield KeyLine(id="keyline")
        yield Static(Content("This terminal is too small: {} columns by {} rows at least.".format(*MINIMUM)),
                     id="too-small")  # fmt: skip

    # ---- showing ----------------------------------------------------------------------------

    def _compositor_refresh(self) -> None:
        """Paint what changed. The toolkit's own: steps are told how long it took, since it holds them up."""
        with drawing:
            super()._compositor_refresh()

    def show(self) -> None:
        """Show everything anew, now."""
        self._stale = False
        timeline = self.controller.timeline
        self.header.show(timeline, self.controller.settings)
        if stands(self.controller):
            self.opening.show(self.controller)
        self.timing.kept_bytes = self.controller.load.kept_logits_mib * 2**20
        for panel in (self.text, self.candidates, self.steps, self.forest, self.kv, self.timing):
            panel.show(timeline)
        self._show_sampler()
        self.query_one(CaptionLine).show(self.controller.replay, timeline)
        self.status.show(self.controller, self._whereabouts(), self.at_tree)
        self.keyline.show(timeline.phase, self.at_tree, timeline.recorded)
        self._arrange()
        self.ask_ahead()  # of what is on screen now

    def _show_sampler(self) -> None:
        """Show the sampler, where it is on screen, and ask what it lacks."""
        questions, timeline = self.controller.questions, self.controller.timeline
        questions.watching = self.attempt.open or SAMPLER in self._places()
        if questions.watching:
            questions.ask(timeline)
            self.sampler.show(timeline, questions.used(timeline), self.candidates.candidate)

    def _whereabouts(self) -> str:
        if self.arrangement is Layout.SINGLE:
            return f"{self.current + 1}/{len(PANELS)} {PANELS[self.current][1]}"
        slowed = self.controller.pace is not None and not self.controller.timeline.running
        return f"pace {pace_text(self.controller.pace)}" if slowed else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Grey the keys that mean nothing yet."""
        controller = self.controller
        goes_on = action in ("step", "run") and controller.prefilling.waits(controller.timeline)
        if controller.replay is not None:
            return None if self.means_nothing(action) else True
        if action in self.NEEDS_PROMPT and not controller.stepping and not goes_on:
            return None
        if action == "facts" and self.controller.timeline.facts is None:
            return None
        return True

    def means_nothing(self, action: str) -> bool:
        """Whether an action means nothing while a recording is on show."""
        if action not in self.NEEDS_PROMPT or self.controller.stepping:
            return False
        if self.controller.timeline.phase is Phase.RETURNING:
            return action not in self.LOOKING
        return action not in ("step", "run", "take_back")

    # ---- panels -----------------------------------------------------------------------------

    @property
    def arrangement(self) -> Layout:
        """How the panels are arranged now."""
        return layout_for(*self.app.size, self.enlarged)

    def on_resize(self) -> None:
        """Another size may be another arrangement."""
        self.changed()

    def _arrange(self) -> None:
        layout, waiting, shown = self.arrangement, stands(self.controller), self._places()
        arranged = (layout, shown, waiting, self.attempt.open)
        if arranged != self._arranged:
            self._arranged = arranged
            self._place(layout, shown, waiting)
        self._focus_current()

    def _places(self) -> frozenset[int]:
        """Places of the panels that are, or are about to be, on screen."""
        why = (self.why or self.attempt.open) and not stands(self.controller)
        shown = panels_shown(self.arrangement, self.current, self.other, self.deck, why, self.wooded)
        low = self.attempt.open and self.arrangement is Layout.STACK and self.app.size.height < 32
        return shown - {TEXT} if low else shown

    def _place(self, layout: Layout, shown: frozenset[int], waiting: bool) -> None:
        for kind in Layout:
            self.set_class(kind is layout, f"-{kind.value}")
        self.set_class(waiting, "-waiting")
        self.set_class(self.attempt.open, "-trying")
        self.set_class(TREE in shown and SAMPLER not in shown, "-wooded")
        for place, (name, _) in enumerate(PANELS):
            self.query_one(f"#{name}").display = place in shown and not (waiting and place == TEXT)
        self.opening.display = waiting and TEXT in shown

    def _focus_current(self) -> None:
        name = "opening" if self.current == TEXT and stands(self.controller) else PANELS[self.current][0]
        if self.focused is None or self.focused.id != name:
            self.set_focus(self.query_one(f"#{name}"), scroll_visible=False)

    def action_panel(self, place: int) -> None:
        """Go to a panel."""
        grid = self.arrangement is Layout.GRID
        self.why = place == SAMPLER or (self.why and place in ({TEXT, STEPS, TREE} if grid else {TEXT}))
        self.wooded = place == TREE or (self.wooded and place not in ({STEPS} if grid else DECK))
        self.current = place
        self.other = place if place != TEXT else self.other
        self.deck = place if place in DECK else self.deck
        self.answer()

    def action_why(self) -> None:
        """Show why this token was chosen, or go back."""
        if not self.why:
            self.action_panel(SAMPLER)
        else:
            self.why, self.current, self.other = False, TEXT, CANDIDATES
            self.answer()

    def action_tree(self) -> None:
        """Show the tree of branches, or go back."""
        if TREE not in self._places():
            self.action_panel(TREE)
        else:
            self.wooded, self.current = False, TEXT
            self.other = CANDIDATES if self.other == TREE else self.other
            self.answer()

    def action_panel_after(self, by: int) -> None:
        """Go to a neighbouring panel."""
        self.action_panel((self.current + by) % len(PANELS))

    def action_enlarge(self) -> None:
        """Give the current panel the whole screen, or back."""
        self.enlarged = not self.enlarged
        self.answer("Enlarged: f or esc goes back, tab to the next panel" if self.enlarged else "")

    def on_descendant_focus(self) -> None:
        """A click into a panel goes to it."""
        names = [name for name, _ in PANELS]
        if (
            self.focused is not None
            and self.focused.id in names
            and self.current != names.index(self.focused.id)
        ):
            self.action_panel(names.index(self.focused.id))

    def action_stop(self) -> None:
        """Stop what the engine is doing, or else leave the enlarged panel, then the sampler; notices go too."""
        self.app.clear_notifications()
        if not self.stop_replay() and not self.controller.stop():
            if self.stop_looking():
                return
            if self.enlarged:
                self.action_enlarge()
            elif self.why:
                self.action_why()
            elif TREE in self._places():
                self.action_tree()
        self.answer()

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpDialog())

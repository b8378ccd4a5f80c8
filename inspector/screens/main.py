"""The main screen: the panels, and what each key does to them and to the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import Provider
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from engine.settings import LoadSettings
from inspector.panels.candidates import CandidatesPanel
from inspector.panels.header import HeaderLine
from inspector.panels.kv import KVPanel
from inspector.panels.sampler import SamplerPanel
from inspector.panels.steps import StepsPanel
from inspector.panels.text import TextPanel
from inspector.panels.timing import TimingPanel
from inspector.scales import METRICS
from inspector.screens.attempt import Attempt
from inspector.screens.controller import Controller, Prompt
from inspector.screens.facts import FactsDialog
from inspector.screens.help import HelpDialog
from inspector.screens.jump import JumpDialog
from inspector.screens.keyline import KeyLine
from inspector.screens.keys import actions_needing_prompt, bindings
from inspector.screens.layout import (
    CANDIDATES,
    MINIMUM,
    PANELS,
    SAMPLER,
    STEPS,
    TEXT,
    Layout,
    layout_for,
    panels_shown,
)
from inspector.screens.model import ModelDialog
from inspector.screens.opening import OpeningPanel, stands
from inspector.screens.palette import KeyCommands
from inspector.screens.prompt import Draft, PromptDialog
from inspector.screens.status import StatusLine, pace_text


class MainScreen(Screen[None]):
    """The panels around one timeline.

    Args:
        controller: Knows the timeline and the engine.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings()
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {KeyCommands}
    AUTO_FOCUS = "#opening"
    NEEDS_PROMPT: ClassVar[frozenset[str]] = actions_needing_prompt()

    header = getters.query_one("#header", HeaderLine)
    opening = getters.query_one("#opening", OpeningPanel)
    text = getters.query_one("#text", TextPanel)
    candidates = getters.query_one("#candidates", CandidatesPanel)
    sampler = getters.query_one("#sampler", SamplerPanel)
    steps = getters.query_one("#steps", StepsPanel)
    kv = getters.query_one("#kv", KVPanel)
    timing = getters.query_one("#timing", TimingPanel)
    status = getters.query_one("#status", StatusLine)
    keyline = getters.query_one("#keyline", KeyLine)

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller
        self.draft = controller.prompt
        """What stands in the prompt dialog when it is opened."""
        self.current = 0
        """Place in `PANELS` of the panel that the person is at."""
        self.other, self.deck = CANDIDATES, STEPS
        """The ones last visited beside the text, and below the candidates."""
        self.enlarged = False
        self.why = False
        """Whether the sampler stands in the place of candidates, KV cache and time."""
        self.attempt = Attempt(controller, self._answer)
        """Sampling settings that are tried in a dialog beside the sampler."""
        self._stale = False
        self._arranged: tuple[Layout, frozenset[int], bool, bool] | None = None

    def compose(self) -> ComposeResult:
        yield HeaderLine(id="header")
        with Container(id="panels"):
            yield OpeningPanel(id="opening", classes="panel")
            yield TextPanel(id="text", classes="panel")
            yield CandidatesPanel(id="candidates", classes="panel")
            yield SamplerPanel(id="sampler", classes="panel")
            yield StepsPanel(id="steps", classes="panel")
            yield KVPanel(id="kv", classes="panel")
            yield TimingPanel(id="timing", classes="panel")
        yield StatusLine(id="status")
        yield KeyLine(id="keyline")
        yield Static(Content("This terminal is too small: {} columns by {} rows at least.".format(*MINIMUM)),
                     id="too-small")  # fmt: skip

    # ---- showing ----------------------------------------------------------------------------

    def changed(self) -> None:
        """Have everything shown anew: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self.show)

    def show(self) -> None:
        """Show everything anew, now."""
        self._stale = False
        timeline = self.controller.timeline
        self.header.show(timeline, self.controller.settings)
        if stands(self.controller):
            self.opening.show(self.controller)
        for panel in (self.text, self.candidates, self.steps, self.kv, self.timing):
            panel.show(timeline)
        self._show_sampler()
        self.status.show(self.controller, self._whereabouts())
        self.keyline.show(timeline.phase)
        self._arrange()

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
        if action in self.NEEDS_PROMPT and not self.controller.stepping:
            return None
        if action == "facts" and self.controller.timeline.facts is None:
            return None
        return True

    def _answer(self, answer: str = "") -> None:
        self.status.say(answer)
        self.changed()

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
        shown = panels_shown(self.arrangement, self.current, self.other, self.deck, why)
        low = self.attempt.open and self.arrangement is Layout.STACK and self.app.size.height < 32
        return shown - {TEXT} if low else shown

    def _place(self, layout: Layout, shown: frozenset[int], waiting: bool) -> None:
        for kind in Layout:
            self.set_class(kind is layout, f"-{kind.value}")
        self.set_class(waiting, "-waiting")
        self.set_class(self.attempt.open, "-trying")
        for place, (name, _) in enumerate(PANELS):
            self.query_one(f"#{name}").display = place in shown and not (waiting and place == TEXT)
        self.opening.display = waiting and TEXT in shown

    def _focus_current(self) -> None:
        name = "opening" if self.current == TEXT and stands(self.controller) else PANELS[self.current][0]
        if self.focused is None or self.focused.id != name:
            self.set_focus(self.query_one(f"#{name}"), scroll_visible=False)

    def action_panel(self, place: int) -> None:
        """Go to a panel."""
        beside = TEXT, STEPS if self.arrangement is Layout.GRID else TEXT
        self.why = place == SAMPLER or (self.why and place in beside)
        self.current = place
        self.other = place if place != TEXT else self.other
        self.deck = place if STEPS <= place < SAMPLER else self.deck
        self._answer()

    def action_why(self) -> None:
        """Show why this token was chosen, or go back."""
        if not self.why:
            self.action_panel(SAMPLER)
        else:
            self.why, self.current, self.other = False, TEXT, CANDIDATES
            self._answer()

    def action_recall(self) -> None:
        """Have dropped logits computed again."""
        self._answer(self.controller.recall())

    def action_panel_after(self, by: int) -> None:
        """Go to a neighbouring panel."""
        self.action_panel((self.current + by) % len(PANELS))

    def action_enlarge(self) -> None:
        """Give the current panel the whole screen, or back."""
        self.enlarged = not self.enlarged
        self._answer("Enlarged: f or esc goes back, tab to the next panel" if self.enlarged else "")

    def on_descendant_focus(self) -> None:
        """A click into a panel goes to it."""
        names = [name for name, _ in PANELS]
        if (
            self.focused is not None
            and self.focused.id in names
            and self.current != names.index(self.focused.id)
        ):
            self.action_panel(names.index(self.focused.id))

    # ---- step and run -----------------------------------------------------------------------

    def action_step(self) -> None:
        """Step, walk forward or pause."""
        self._answer(self.controller.step())

    def action_run(self) -> None:
        """Run or pause."""
        self._answer(self.controller.run())

    def action_stop(self) -> None:
        """Stop what the engine is doing, or else leave the enlarged panel, then the sampler; notices go too."""
        self.app.clear_notifications()
        if not self.controller.stop():
            if self.enlarged:
                self.action_enlarge()
            elif self.why:
                self.action_why()
        self._answer()

    def action_pace(self, by: int) -> None:
        """Change the pace of runs."""
        self.controller.change_pace(by)
        self._answer(
            "" if self.controller.timeline.running else f"Runs go at {pace_text(self.controller.pace)}"
        )

    # ---- look around ------------------------------------------------------------------------

    def action_walk(self, by: int) -> None:
        """Look at a token further back or ahead."""
        self.controller.walk(by)
        self._answer()

    def action_first(self) -> None:
        """Look at the first token of the completion, then of the prompt."""
        self.controller.first()
        self._answer()

    def action_tip(self) -> None:
        """Follow the tip."""
        self.controller.tip()
        self._answer()

    def action_jump(self) -> None:
        """Ask for a step and look at it."""
        steps = self.controller.steps_range()
        if steps is None:
            self._answer("No step was taken yet. Press space to take one")
        else:
            self.app.push_screen(JumpDialog(*steps), self._jump)

    def _jump(self, number: int | None) -> None:
        if number is not None:
            self.controller.jump(number)
            self._answer()

    def action_highlight(self, by: int) -> None:
        """Highlight another candidate."""
        self.candidates.move(by)
        self.changed()

    def action_metric(self, by: int) -> None:
        """Colour text and steps by another metric."""
        metric = METRICS[(METRICS.index(self.text.metric) + by) % len(METRICS)]
        self.text.metric = self.steps.metric = metric
        self._answer("Colour off" if metric == "off" else f"Colour by {metric}")

    @on(TextPanel.SlotSelected)
    @on(StepsPanel.SlotSelected)
    def _slot_selected(self, message: TextPanel.SlotSelected | StepsPanel.SlotSelected) -> None:
        self.controller.timeline.select(message.slot)
        self._answer()

    # ---- branch -----------------------------------------------------------------------------

    def action_choose(self) -> None:
        """Take the highlighted candidate where the person looks."""
        candidate = self.candidates.candidate
        if candidate is None:
            self._answer("No candidates were recorded here. Press end for the tip")
        else:
            self._answer(self.controller.choose(candidate.id))

    @on(CandidatesPanel.CandidateChosen)
    @on(SamplerPanel.CandidateChosen)
    def _candidate_chosen(
        self, message: CandidatesPanel.CandidateChosen | SamplerPanel.CandidateChosen
    ) -> None:
        if self.controller.stepping:
            self._answer(self.controller.choose(message.id))

    @on(SamplerPanel.CandidateClicked)
    def _candidate_clicked(self, message: SamplerPanel.CandidateClicked) -> None:
        self.candidates.highlight(message.id)
        self.changed()

    def action_take_back(self) -> None:
        """Take back the last token."""
        self._answer(self.controller.take_back())

    def action_branch(self, by: int) -> None:
        """Go to a neighbouring branch."""
        self._answer(self.controller.branch(by))

    def action_reroll(self) -> None:
        """Draw again."""
        self._answer(self.controller.reroll())

    def action_verify(self) -> None:
        """Compare the cache with a fresh prefill."""
        self._answer(self.controller.verify())

    # ---- set up -----------------------------------------------------------------------------

    def action_prompt(self) -> None:
        """Ask for a prompt."""
        timeline = self.controller.timeline
        self.app.push_screen(PromptDialog(self.draft, timeline.facts, timeline.prompt), self._prompted)

    def _prompted(self, draft: Draft | None) -> None:
        if draft is not None:
            self.draft = draft.prompt
            if draft.submitted:
                self._give(draft.prompt)

    def _give(self, prompt: Prompt) -> None:
        self.controller.give(prompt)
        self._answer()

    def action_sampling(self) -> None:
        """Ask for sampling settings, and show what they would have picked as they are typed."""
        self.app.push_screen(self.attempt.dialog(), self.attempt.end)
        self._answer()

    def action_open(self) -> None:
        """Ask for a model."""
        self.app.push_screen(ModelDialog(self.controller.load), self._open)

    def _open(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.controller.open(load)
            self._answer()

    def action_facts(self) -> None:
        """Show the facts about the model."""
        if (facts := self.controller.timeline.facts) is not None:
            self.app.push_screen(FactsDialog(facts))

    # ---- screen -----------------------------------------------------------------------------

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpDialog())

"""The screen of the beam search: settings, the beams after each step, and the tree that they grow into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from engine import protocol
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.state.beams import BeamHistory
from inspector.tools.beams.control import BeamControl
from inspector.tools.beams.cursor import follow
from inspector.tools.beams.entries import BeamEntry, compare_with_greedy, entries, passing
from inspector.tools.beams.excerpt import pieces
from inspector.tools.beams.form import BeamForm
from inspector.tools.beams.phrases import counts, greedy_sentence, name_of, settings_phrase
from inspector.tools.beams.status import begun_after, situation
from inspector.tools.beams.table import BeamTable
from inspector.tools.beams.text_panel import BeamTextPanel
from inspector.tools.beams.tool import BEAM_FORM, BEAM_SCREEN
from inspector.tools.beams.tree import BeamTree
from inspector.widgets.actions import ActionTable, KeyLine

ABOUT = (
    "Several continuations at once, the best of them kept",
    "",
    "At each step every beam grows by every token.",
    "As many as the width stay, and the others fall out.",
    "What comes of it is ranked beside greedy decoding.",
    "",
)
GO = next(each for each in BEAM_SCREEN.actions if each.id == "beams.go")
LOW, TALL = 22, 32
"""Rows from which the list is above the tree, and from which the text of a beam has room too."""


class BeamScreen(ToolScreen[int]):
    """Searches with beams; returns the node of the beam that is to be gone to, None to stay.

    Args:
        host: The main screen.
        control: Knows the engine and the settings last requested.
    """

    KEPT: ClassVar[tuple[str, ...]] = (
        "host", "control", "at", "node", "listed", "said", "_place", "_view", "_rows", "_setting",
    )  # fmt: skip
    TOOL: ClassVar[str] = "beams"
    ACTIONS: ClassVar[ActionTable] = BEAM_SCREEN
    MEASURES: ClassVar[str] = "A search"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (protocol.BeamStep, protocol.BeamEnded)
    AUTO_FOCUS = ""

    form = getters.query_one("#beam-form", BeamForm)
    table = getters.query_one("#beam-table", BeamTable)
    reading = getters.query_one("#beam-reading", BeamTextPanel)
    lattice = getters.query_one("#beam-lattice", BeamTree)

    def __init__(self, host: Host, control: BeamControl) -> None:
        super().__init__(host)
        self.control = control
        self.at: int | None = None
        """The step shown, None for the last one."""
        self.node: int | None = None
        """Of the highlighted beam, None for the best one, whichever that is."""
        self.listed: list[BeamEntry] = []
        self._place = 0
        self._view = 0
        self._rows = 0
        self._setting = False
        """Whether the form was asked for; without a search it is there anyway."""

    def compose(self) -> ComposeResult:
        yield Static(id="beam-place")
        yield BeamForm(self.control.settings, id="beam-form")
        yield Static(id="beam-asked")
        yield BeamTable(id="beam-table")
        yield BeamTree(id="beam-lattice")
        yield BeamTextPanel(id="beam-reading")
        yield Static(id="beam-against")
        yield Static(id="beam-status")
        yield KeyLine(id="beam-keys")

    def begin(self) -> None:
        """Begin with the settings, where there is no search."""
        super().begin()
        self.form.put(self.control.settings)
        self.host.controller.timeline.of(BeamHistory).refused = None  # it was reported then
        if self.setting:
            self.call_after_refresh(self.form.begin)

    def on_resize(self, event: events.Resize) -> None:
        """Another size may have room for both list and tree."""
        self.changed()

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The form's come first while it is shown."""
        return (BEAM_FORM, *super().tables)

    # ---- showing ----------------------------------------------------------------------------

    @property
    def setting(self) -> bool:
        """Whether the form is shown: never in a replay, where nothing can be begun."""
        return (self._setting or self.control.search is None) and not self.recorded

    @property
    def step(self) -> int:
        """The step that is shown, 0 while there is none."""
        steps = len(self.control.search.steps) if self.control.search else 0
        return steps if self.at is None else min(self.at, steps)

    def show(self) -> None:
        """Show everything, now."""
        if not (self.is_current and self.query("#beam-keys")):
            return  # it is left, or not there yet: records come all the time
        beams = self.host.controller.timeline.of(BeamHistory)
        self.listed = entries(beams, self.step) if self.step else []
        self._place, self.node = follow(self.listed, self.node, beams)
        self._arrange()
        if self.listed:
            self.table.put(self.listed, self._place, self._title(), counts(self.listed))
        else:
            self.table.explain((*ABOUT, self._advice()))
        self.lattice.put(beams, self.listed, self.step, self._place)
        if (entry := self.entry) is not None:
            self.reading.put(pieces(entry, passing(self.listed)), f"Text of {name_of(entry)}")
        self._write()

    def _title(self) -> str:
        search = self.control.search
        if search is not None and search.ended is not None and self.step == len(search.steps):
            return "Ranking"
        return f"Beams after step {self.step}"

    def _advice(self) -> str:
        if self.recorded:
            return f"No step of one was recorded up to here. {self.needs_model}."
        return (
            f"Press ⏎ to start, then {key_for('beams.step')} for one step, {key_for('beams.run')} to run."
            if self.setting
            else "The first step is under way."
        )

    @property
    def entry(self) -> BeamEntry | None:
        """The highlighted beam."""
        return self.listed[self._place] if self.listed else None

    def _write(self) -> None:
        """The lines around the panels."""
        width, entry = self.size.width - 2, self.entry
        search, beams = self.control.search, self.host.controller.timeline.of(BeamHistory)
        self.query_one("#beam-place", Static).update(begun_after(self.control, self.setting, width))
        settings = settings_phrase(search, width < 64) if search else ""
        self.query_one("#beam-asked", Static).update(Content(settings))
        against = greedy_sentence(entry, compare_with_greedy(beams, entry, self.step)) if entry else ""
        self.query_one("#beam-against", Static).update(Content(against))
        needs = self.needs_model if self.recorded else ""
        sentence = situation(self.control, self.setting, self.at, needs, self.keeps(GO))
        status = self.query_one("#beam-status", Static)
        status.update(Content(self.said or sentence.text))
        status.set_class(sentence.wrong or bool(self.said), "-answer")

    @property
    def views(self) -> tuple[frozenset[str], ...]:
        """What `tab` goes through, at this size."""
        height = self.app.size.height
        single = (frozenset({"list"}), frozenset({"tree"}), frozenset({"text"}))
        if height < LOW:
            return single
        return (frozenset({"list", "tree", "text"} if height >= TALL else {"list", "tree"}), *single[::-1])

    def _arrange(self) -> None:
        """Decide what is on screen. The list never shrinks while one search is shown, so that nothing jumps."""
        view = self.views[self._view % len(self.views)] if self.listed else frozenset({"list"})
        self.form.display = self.setting
        if not self.setting and self.form.has_focus_within:
            self.set_focus(None)  # a lesson began the search
        self.query_one("#beam-asked").display = not self.setting
        self.table.display, self.lattice.display = "list" in view, "tree" in view
        self.reading.display = "text" in view
        search = self.control.search
        over = search is not None and search.ended is not None and self.at is None
        self._rows = max(0 if over else self._rows, len(self.listed))
        most = max(6, self.room // 2 - 2)
        self.table.styles.height = min(self._rows + 3, most) if len(view) > 1 else "1fr"
        self.reading.styles.height = 6 if len(view) > 1 else "1fr"

    # ---- searching --------------------------------------------------------------------------

    @on(BeamForm.FormSubmitted)
    def _begin(self, message: BeamForm.FormSubmitted) -> None:
        self.control.begin(message.settings)
        self._setting, self.at, self.node, self._rows = False, None, None, 0
        self.set_focus(None)
        self.say()

    def set_up(self) -> None:
        """Set up another search."""
        self._setting = True
        self.call_after_refresh(self.form.begin)

    def step_replay(self) -> None:
        """As on every screen; at an older step of the search it walks forward, as `take_step` does."""
        if self.at is not None:
            self.look(1)
        else:
            super().step_replay()

    def take_step(self) -> None:
        """Take a step, walk forward at an older one, or pause."""
        if self.at is not None:
            self.look(1)
        else:
            self.control.step()
            self.say(self._idle())

    def run_search(self) -> None:
        """Search to the end, or pause."""
        self.at = None
        self.control.run()
        self.say(self._idle())

    def _idle(self) -> str:
        """Why nothing happens, where nothing does."""
        search = self.control.search
        over = search is not None and search.over and not self.control.busy
        return f"This search is over. Press {key_for('beams.new')} to set up another one" if over else ""

    # ---- looking ----------------------------------------------------------------------------

    def highlight(self, by: int) -> None:
        """Highlight another beam."""
        if self.listed:
            place = max(0, min(len(self.listed) - 1, self._place + by))
            self.node = self.listed[place].node if place else None

    @on(BeamTable.BeamClicked)
    def _pointed(self, message: BeamTable.BeamClicked) -> None:
        if self.entry is not None and message.node == self.entry.node:
            self.go()
        elif any(entry.node == message.node for entry in self.listed):
            self.node = message.node
            self.say()

    def look(self, by: int) -> None:
        """See the search as it was some steps before or after."""
        steps = len(self.control.search.steps) if self.control.search else 0
        at = max(1, min(steps, self.step + by))
        self.at = at if at < steps else None

    def to_last(self) -> None:
        """Show the last step of the search."""
        self.at = None

    def turn(self, by: int) -> None:
        """Change between list, tree and text; among the settings, go to another field."""
        if not self.setting:
            self._view += by
        elif by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    # ---- leaving ----------------------------------------------------------------------------

    def go(self) -> None:
        """Leave for the highlighted beam."""
        if self.entry is not None:
            self.control.pause()
            self.dismiss(self.entry.node)

    def leave(self) -> None:
        """Leave the settings for the search that there is, or go back; what runs is paused."""
        if self.setting and self.control.search is not None:
            self._setting = False
            self.set_focus(None)
            return
        self.control.pause()
        self.dismiss(None)

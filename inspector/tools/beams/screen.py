"""The screen of the beam search: the form of its settings, then the beams after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import events, getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, HorizontalGroup, VerticalGroup
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from engine import protocol
from engine.errors import SettingsError
from engine.protocol import Step
from engine.settings import BEAM_SETTINGS, BeamSettings
from inspector.display import quoted, token_label, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import milliseconds
from inspector.state.beams import BeamHistory, BeamSearch
from inspector.state.branches import ROOT
from inspector.state.timeline import Timeline
from inspector.tools.beams.control import BEAM_FORM, BEAM_SCREEN, BeamControl
from inspector.tools.beams.entries import (
    BeamEntry,
    compare_with_greedy,
    counts,
    entries,
    follow,
    greedy_sentence,
    name_of,
    passing,
    pieces,
    settings_phrase,
)
from inspector.tools.beams.panels import BeamTable, BeamTextPanel, BeamTree
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput

_LEAST_BEGUN = 12
"""Cells of the text before the beams below which less is told of the token that they replace."""

# ---- the settings -------------------------------------------------------------------------------

TYPED = ("width", "max_tokens", "length_penalty")
"""The settings that are typed, in the order of their fields."""


class Switch(Choice):
    """Off or on; up and down leave it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Before", show=False),
        Binding("right,space", "turn(1)", "Next", show=False),
        Binding("up", "app.focus_previous", "Previous field", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("enter", "submit", "Start", show=False),
    ]

    class SwitchSubmitted(Message):
        """Enter was pressed."""

    def action_submit(self) -> None:
        """Start with the present settings."""
        self.post_message(self.SwitchSubmitted())


class BeamForm(Container):
    """Asks for the settings of a search."""

    class FormSubmitted(Message):
        """A search is to begin."""

        def __init__(self, settings: BeamSettings) -> None:
            self.settings = settings
            super().__init__()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wrong: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        with HorizontalGroup(id="beam-fields"):
            for name in TYPED:
                yield from self._field(name, SafeInput(id=f"beam-{name}"))
            yield from self._field("early_stopping", Switch(("off", "on"), id="beam-early_stopping"))
        yield Remark(id="beam-remark")

    def _field(self, name: str, field: Widget) -> ComposeResult:
        with VerticalGroup(classes="beam-field", id=f"beam-box-{name}"):
            yield Label(BEAM_SETTINGS[name].label, classes="field-label", markup=False)
            yield field

    def put(self, settings: BeamSettings) -> None:
        """Fill the fields."""
        self._wrong = {}
        with self.prevent(Input.Changed, Choice.Changed):
            for name in TYPED:
                field = self.query_one(f"#beam-{name}", SafeInput)
                field.value = f"{getattr(settings, name):g}"
                field.set_class(False, "-wrong")
            self.query_one("#beam-early_stopping", Switch).chosen = int(settings.early_stopping)
        self.query_one("#beam-remark", Remark).say(BEAM_SETTINGS["width"].help)

    def begin(self) -> None:
        """Put the cursor into the first field."""
        self.query_one("#beam-width", SafeInput).focus()

    # ---- what is typed ----------------------------------------------------------------------

    def read(self) -> BeamSettings | None:
        """The settings in the fields, None while any of them is wrong."""
        values: dict[str, Any] = {}
        self._wrong = {}
        for name in TYPED:
            field = self.query_one(f"#beam-{name}", SafeInput)
            try:
                values[name] = BEAM_SETTINGS[name].parse(field.value)
            except SettingsError as error:
                self._wrong[name] = str(error)
            field.set_class(name in self._wrong, "-wrong")
        early = bool(self.query_one("#beam-early_stopping", Switch).chosen)
        return None if self._wrong else BeamSettings(**values, early_stopping=early)

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self.read()
        self._explain()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Explain the field, or what is wrong with it."""
        self._explain()

    def _explain(self) -> None:
        focused = self.screen.focused
        name = (focused.id or "").removeprefix("beam-") if focused else ""
        wrong = self._wrong.get(name) or next(iter(self._wrong.values()), "")
        help = wrong or (BEAM_SETTINGS[name].help if name in BEAM_SETTINGS else "")
        self.query_one("#beam-remark", Remark).say(visible(help), bool(wrong))

    @on(Input.Submitted)
    @on(Switch.SwitchSubmitted)
    def _submitted(self, event: Message) -> None:
        event.stop()
        self.submit()

    def submit(self) -> None:
        """Begin a search, if all fields are right; otherwise go to the first that isn't."""
        settings = self.read()
        if settings is not None:
            self.post_message(self.FormSubmitted(settings))
            return
        self.query_one(f"#beam-{next(iter(self._wrong))}", SafeInput).focus()
        self._explain()


# ---- the search ---------------------------------------------------------------------------------

ABOUT = (
    "Several continuations at once, the best of them kept",
    "",
    "At each step every beam grows by every token.",
    "The search keeps as many as the width says, and prunes the others.",
    "The results are ranked beside greedy decoding.",
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
        """True if the form was asked for; without a search it is there anyway."""

    def body(self) -> ComposeResult:
        yield BeamForm(id="beam-form")
        yield Static(id="beam-asked")
        yield BeamTable(id="beam-table")
        yield BeamTree(id="beam-lattice")
        yield BeamTextPanel(id="beam-reading")
        yield Static(id="beam-against")

    def begin(self) -> None:
        """Begin with the settings, where there is no search."""
        super().begin()
        self.form.put(self.control.settings)
        self.host.controller.timeline.of(BeamHistory).refused = None  # it was reported then
        if self.setting:
            self.after_paint(self.form.begin)

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The form's come first while it is shown."""
        return (BEAM_FORM, *super().tables)

    # ---- showing ----------------------------------------------------------------------------

    @property
    def setting(self) -> bool:
        """True if the form is shown: never in a replay, where nothing can be begun."""
        return (self._setting or self.control.search is None) and not self.recorded

    @property
    def step(self) -> int:
        """The step that is shown, 0 while there is none."""
        steps = len(self.control.search.steps) if self.control.search else 0
        return steps if self.at is None else min(self.at, steps)

    def show(self) -> None:
        """Show everything, now."""
        if not self.screen.is_current:
            return
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
        if not self.setting:
            return "The first step is under way."
        return f"Press ⏎ to start, then {key_for('beams.step')} for one step, {key_for('beams.run')} to run."

    @property
    def entry(self) -> BeamEntry | None:
        """The highlighted beam."""
        return self.listed[self._place] if self.listed else None

    def _write(self) -> None:
        """The lines around the panels."""
        width, entry = self.area.width - 2, self.entry
        search, beams = self.control.search, self.host.controller.timeline.of(BeamHistory)
        settings = settings_phrase(search, width < 64) if search else ""
        self.query_one("#beam-asked", Static).update(Content(settings))
        against = greedy_sentence(entry, compare_with_greedy(beams, entry, self.step)) if entry else ""
        self.query_one("#beam-against", Static).update(Content(against))
        self.write(self._begun_after(width), failed=bool(self._failure()))

    @property
    def views(self) -> tuple[frozenset[str], ...]:
        """The panels that `tab` goes through, at this size."""
        height = self.area.height + 2
        single = (frozenset({"list"}), frozenset({"tree"}), frozenset({"text"}))
        if height < LOW:
            return single
        return (frozenset({"list", "tree", "text"} if height >= TALL else {"list", "tree"}), *single[::-1])

    def _arrange(self) -> None:
        """Decide what is on screen. The list never shrinks while one search is shown, so that nothing jumps."""
        view = self.views[self._view % len(self.views)] if self.listed else frozenset({"list"})
        self.form.display = self.setting
        if not self.setting and self.form.has_focus_within:
            self.screen.set_focus(None)  # a lesson began the search
        self.query_one("#beam-asked").display = not self.setting
        self.table.display, self.lattice.display = "list" in view, "tree" in view
        self.reading.display = "text" in view
        search = self.control.search
        over = search is not None and search.ended is not None and self.at is None
        self._rows = max(0 if over else self._rows, len(self.listed))
        most = max(6, self.room // 2 - 2)
        self.table.styles.height = min(self._rows + 3, most) if len(view) > 1 else "1fr"
        self.reading.styles.height = 6 if len(view) > 1 else "1fr"

    # ---- the lines around the panels --------------------------------------------------------

    def situation(self) -> str:
        """The state of the search, and what to do about it."""
        search = self.control.search
        if self.recorded:
            return self._recorded(search)
        if failure := self._failure():
            return failure
        if self.setting or search is None:
            return "⏎ starts a search with these settings"
        if self.at is not None:
            return f"Looking at step {self.at} of {len(search.steps)}. end goes back to the last one"
        if search.ended is None:
            return self._under_way(search)
        why = "max tokens" if search.ended.reason == "length" else "what finished is good enough"
        over = f"Over after {search.ended.steps} steps, {milliseconds(search.ended.ms)}: {why}"
        goes = "⏎ goes to the highlighted beam, " if self.keeps(GO) else ""  # or continues with a lesson
        return f"{over}. {goes}{key_for('beams.new')} sets up another search"

    def _failure(self) -> str:
        """The failure by which no search was begun, or by which the one that is shown broke off; empty for none."""
        beams = self.host.controller.timeline.of(BeamHistory)
        what, failure = "No search was begun", beams.refused
        if failure is None and beams.search is not None and not self.setting:
            what, failure = "The search broke off", beams.search.failure
        if failure is None or self.recorded:
            return ""
        return visible(f"{what}: {failure.message} {failure.hint}".strip())

    def _recorded(self, search: BeamSearch | None) -> str:
        if search is None:
            return f"No search was recorded up to here. {self.needs_model}"
        if self.at is not None:
            return f"Recorded, at step {self.at}. {self.needs_model}"
        over = ", over" if search.ended is not None else ""
        return f"Recorded, step {len(search.steps)} of at most {search.opened.max_tokens}{over}. {self.needs_model}"

    def _under_way(self, search: BeamSearch) -> str:
        step, most = len(search.steps), search.opened.max_tokens
        if self.control.running:
            return f"Searching: step {step} of at most {most}. {key_for('beams.step')} pauses"
        if search.step is None:
            return "Beginning"
        alone = "" if search.step.live else " Only greedy decoding continues."
        note = f" {visible(search.opened.note)}" if search.opened.note else ""
        cost = milliseconds(search.step.ms)
        keys = f"{key_for('beams.step')} steps, {key_for('beams.run')} runs to the end"
        return f"Step {step} of at most {most}, {cost}.{alone} {keys}.{note}"

    def _begun_after(self, width: int) -> Content:
        """The text after which beams begin, or began: as much of its end as fits."""
        timeline, search = self.host.controller.timeline, self.control.search
        node = self.control.start if self.setting or search is None else search.opened.node
        head, tail = (
            ("Beams begin after ", _replaced(timeline)) if self.setting else ("Beams began after ", "")
        )
        if width - cell_len(head) - cell_len(tail) < _LEAST_BEGUN:
            tail = tail.partition(", step")[0]
        text = Content(_end_of(timeline, node, width - cell_len(head) - cell_len(tail) - 1))
        mark, instead = Content.styled("▌", "$primary"), Content.styled(tail, "$text-warning")
        return Content.styled(head, "bold") + text + mark + instead

    # ---- searching --------------------------------------------------------------------------

    @on(BeamForm.FormSubmitted)
    def _begin(self, message: BeamForm.FormSubmitted) -> None:
        self.control.begin(message.settings)
        self._setting, self.at, self.node, self._rows = False, None, None, 0
        self.screen.set_focus(None)
        self.say()

    def set_up(self) -> None:
        """Set up another search."""
        self._setting = True
        self.after_paint(self.form.begin)

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
        """The reason why a key did nothing; empty where it did something."""
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
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

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
            self.screen.set_focus(None)
            return
        self.control.pause()
        self.dismiss(None)


def _replaced(timeline: Timeline) -> str:
    """Which older token the beams would replace."""
    item = timeline.selected
    if timeline.following or item is None or timeline.before == ROOT:
        return ""
    what = f"step {item.index + 1}" if isinstance(item, Step) else f"prompt token {timeline.slot + 1}"
    return f" in place of {quoted(token_label(item.text, item.raw))}, {what}"


def _end_of(timeline: Timeline, node: int, cells: int) -> str:
    """The end of a path's text as far as it fits, in whole tokens."""
    end, room = "", cells - 1
    while (item := timeline.tree.nodes.get(node)) is not None:
        text = visible(item.text)
        if cell_len(text) > room:
            return "…" + end
        end, room, node = text + end, room - cell_len(text), timeline.tree.parent[node]
    return end

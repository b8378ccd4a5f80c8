"""Beam search: the form of its settings; the list, the tree and the text of the beams."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Container, HorizontalGroup, VerticalGroup
from textual.content import Content
from textual.widgets import Input, Label, Static

from engine.errors import SettingsError
from engine.protocol import BeamEnded, BeamStep, GoOnBeams, MoveTo, SearchBeams
from engine.settings import BEAM_SETTINGS, BeamSettings
from inspector.display import pad, visible
from inspector.documents.beams import (
    BeamEntry,
    beside_greedy,
    counts,
    entries,
    excerpt,
    follow,
    lattice,
    name_of,
    passing,
    pieces,
    settings_phrase,
    state_phrase,
)
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import counted, decimal, milliseconds
from inspector.session.requests import failure_words
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.beams import BeamHistory, BeamSearch
from inspector.state.branches import ROOT
from inspector.state.session_tree import numbered, quoted_label
from inspector.state.timeline import Timeline
from inspector.widgets.actions import HELP, Action, ActionTable, Needs, back, both, note, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, SafeInput
from inspector.widgets.token_lines import NEWLINE, Wrap

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

_BAR = 6
_SHORT = 56
"""Cells of the list below which a state has one or two words."""
_HEADS = ("", "#", "score", "", "logprob", "tokens")
_FORMS = (
    (100, (2, 4, 9, _BAR + 2, 10, 8), 32),
    (70, (2, 4, 9, 0, 10, 0), 24),
    (_SHORT, (2, 3, 9, 0, 0, 0), 24),
    (0, (2, 3, 8, 0, 0, 0), 10),
)
"""Minimum width of the list, cells of the mark and of each figure (0 to leave it out), and maximum cells of the
state."""
ABOUT = (
    "Beam search follows several continuations and keeps the most probable.",
    "",
    "At each step every token extends every beam: the best ones stay, the others are pruned.",
    "At the end they are ranked, beside greedy decoding.",
    "",
)
LOW, TALL = 22, 32
"""Rows from which the list is above the tree, and from which there is also room for a beam's text."""
LIST, TREE, TEXT = "list", "tree", "text"
"""The panels."""
LEAST_BEGUN = 12
"""Cells of the text before the beams below which the token that they replace is described in fewer words."""

# ---- keys ---------------------------------------------------------------------------------------

_LOOK_BACK = "See the search one step earlier or later, or ten steps."
_LOOK_ENDS = "See it after its first step, or as it is now."


_LEAVE = back("beams.leave", "Go back; the search is kept, and `{beams}` continues it.")


def _viewing(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, except while the form is shown."""
    return lambda own: "" if own.setting else word


BEAM_KEYS = screen_table(
    "In a beam search",
    Action("beams.step", "Step", "Extend every beam by a token, the first time from the selected one; while the search "
           "runs, pause.", lambda own: own.take_step(), Needs.ENGINE, worth=10,
           hint=lambda own: "" if own.editing else "start" if own.setting else "pause" if own.running else "step"),
    Action("beams.run", "Run", "Search to the end; again to pause.", lambda own: own.run(), Needs.ENGINE,
           worth=9, hint=lambda own: "" if own.editing or own.running else "run"),
    *both(("beams.above", "beams.below"), ("Beam above", "Beam below"), "Highlight another beam.",
          lambda own, by: own.highlight(by), hint=_viewing("beam"), worth=6),
    Action("beams.go", "Go there", "Go to the highlighted beam: it is a branch of the tree. Before a search: change "
           "its settings.", lambda own: own.go(), worth=7,
           hint=lambda own: "" if own.editing else "settings" if own.setting else "go there"),
    *both(("beams.step_before", "beams.next_step"), ("Previous step", "Next step"), _LOOK_BACK, lambda own,
          by: own.look(by), hint=_viewing("steps"), worth=5),
    *both(("beams.ten_before", "beams.ten_after"), ("Ten before", "Ten after"), _LOOK_BACK, lambda own,
          by: own.look(by), by=(-10, 10)),
    Action("beams.first", "First step", _LOOK_ENDS, lambda own: own.look(-own.step)),
    Action("beams.last", "Last step", _LOOK_ENDS, lambda own: own.look(own.steps)),
    *both(("beams.next_view", "beams.view_before"), ("Next view", "Previous view"),
          "Change between list, tree and text.",
          lambda own, by: own.turn(by), by=(1, -1), hint=_viewing("view"), worth=7, place=2, one=True),
    Action("beams.new", "New search", "Set up another search; `{beams.step}` starts it.", lambda own: own.set_up(),
           Needs.ENGINE, hint=_viewing("new"), worth=6, place=1),
    replace(HELP, hint=_viewing("help"), worth=1),
    _LEAVE,
    priority=False,
)  # fmt: skip
BEAM_FORM = ActionTable(
    "In the settings of a beam search",
    (
        Action("beams.start", "Start", run=lambda own: own.submit(), hint="start", worth=9),
        *both(("beams.field_above", "beams.field_below"), ("Field above", "Field below"), "",
              lambda own, by: own.app.action_focus_next() if by > 0 else own.app.action_focus_previous(), hint="field",
              worth=7),
        note("left right", hint="on or off", worth=4),
        replace(_LEAVE, hint="done"),
    ),
    when=lambda own: own.editing, priority=True, told=False,
)  # fmt: skip
GO = next(each for each in BEAM_KEYS.actions if each.id == "beams.go")


TYPED = ("width", "max_tokens", "length_penalty")
"""The settings that are typed, in the order of their fields."""


# ---- the list and the text of a beam ------------------------------------------------------------


def likelihood(entry: BeamEntry, best: float) -> float:
    """The probability of a beam relative to one of the same length with the best score, 0 to 1.

    For beams of the same length this is the ratio of their probabilities; for others, a lower score gives less.
    """
    total, score = entry.last.total, entry.last.score
    if score == 0:
        return 1.0
    return math.exp(min(0.0, total - best * total / score))


# ---- the search ---------------------------------------------------------------------------------


class BeamsView(View):
    """Searches with beams, and goes to the end of one; the session stays where it is until then."""

    TOOL: ClassVar[str] = "beams"
    ACTIONS: ClassVar[ActionTable] = BEAM_KEYS
    DIALOGS: ClassVar[tuple[ActionTable, ...]] = (BEAM_FORM,)
    MEASURES: ClassVar[str] = "A search"
    STARTS = (SearchBeams, GoOnBeams)
    TELLING = (BeamStep, BeamEnded)

    form = getters.query_one("#beam-form", Container)
    early = getters.query_one("#beam-early_stopping", Choice)
    table = getters.query_one("#beam-table", DrawnPanel)
    tree_panel = getters.query_one("#beam-lattice", DrawnPanel)
    reading = getters.query_one("#beam-reading", DrawnPanel)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.settings = BeamSettings()
        """The settings used last."""
        self.at: int | None = None
        """The step shown; None for the last one."""
        self.node: int | None = None
        """Last node of the highlighted beam; None for the best one."""
        self.listed: list[BeamEntry] = []
        self._ends: dict[str, list[int | None]] = {}
        """The last node of the beam in each row, by the id of a panel that can be clicked."""
        self._place = self._top = self._view = self._rows = 0
        self._wrong: dict[str, str] = {}
        """Errors by setting."""
        self._setting = False
        """True if the form was asked for; without a search it is always shown. A key or a click opens its fields."""

    def body(self) -> ComposeResult:
        with Container(id="beam-form"):
            with HorizontalGroup(id="beam-fields"):
                for name in (*TYPED, "early_stopping"):
                    with VerticalGroup(classes="beam-field", id=f"beam-box-{name}"):
                        yield Label(BEAM_SETTINGS[name].label, classes="field-label", markup=False)
                        id = f"beam-{name}"
                        yield SafeInput(id=id) if name in TYPED else Choice(("off", "on"), id=id)
            yield Remark(id="beam-remark")
        yield Static(id="beam-asked")
        yield DrawnPanel(id="beam-table")
        yield DrawnPanel(id="beam-lattice")
        yield DrawnPanel(id="beam-reading")
        yield Static(id="beam-against")

    def begin(self) -> None:
        """Show the last step; begin with the settings if there is no search."""
        self.at, self._rows, self._setting = None, 0, False
        with self.prevent(Input.Changed, Choice.Changed):
            for name in TYPED:
                self._field(name).value = f"{getattr(self.settings, name):g}"
            self.early.chosen = int(self.settings.early_stopping)
        self.beams.refused = None  # it was reported when it occurred

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The form's keys come first while one of its fields is open."""
        return (BEAM_FORM, *super().tables)

    # ---- the search -------------------------------------------------------------------------

    @property
    def beams(self) -> BeamHistory:
        """Every token that a beam reached."""
        return self.timeline.of(BeamHistory)

    @property
    def search(self) -> BeamSearch | None:
        """The search that was begun last."""
        return self.beams.search

    @property
    def running(self) -> bool:
        """True if a search runs to its end."""
        return any(
            isinstance(each, SearchBeams | GoOnBeams) and each.steps is None for each in self.job.commands
        )

    @property
    def start(self) -> int:
        """Node after which a search would begin: beams replace the selected token."""
        timeline = self.timeline
        if timeline.following or not timeline.items:
            return timeline.tip
        return timeline.before or timeline.items[0].node

    @property
    def setting(self) -> bool:
        """True if the form is shown: never in a replay, where no search can begin."""
        return (self._setting or self.search is None) and not self.recorded

    @property
    def editing(self) -> bool:
        """True if a field of the form is open."""
        return self.form.has_focus_within

    @property
    def steps(self) -> int:
        """Number of steps of the search so far."""
        return len(self.search.steps) if self.search else 0

    @property
    def step(self) -> int:
        """The step that is shown; 0 while there is none."""
        return self.steps if self.at is None else min(self.at, self.steps)

    @property
    def entry(self) -> BeamEntry | None:
        """The highlighted beam."""
        return self.listed[self._place] if self.listed else None

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        search, width = self.search, self.area.width - 2
        self.listed = entries(self.beams, self.step) if self.step else []
        self._place, self.node = follow(self.listed, self.node, self.beams)
        self._arrange()
        ended = search is not None and search.ended is not None and self.step == self.steps
        title = "Ranking" if ended else f"Beams after step {self.step}"
        self.table.put(title if self.listed else "Beams", self._table, counts(self.listed))
        ends = "■ end token · ✗ pruned" if self.listed else ""
        self.tree_panel.put("Tree of the search", partial(self._tree, self.step), ends)
        entry = self.entry
        self.reading.put(f"Text of {name_of(entry)}" if entry else "", self._text)
        settings = settings_phrase(search, width < 64) if search else ""
        self.query_one("#beam-asked", Static).update(Content(settings))
        against = beside_greedy(self.beams, entry, self.step) if entry else ""
        self.query_one("#beam-against", Static).update(Content(against))
        self.write(self._begun_after(width), failed=bool(self._failure()))

    def _arrange(self) -> None:
        """Decide which panels are shown. The list never shrinks while one search is shown, so that nothing jumps."""
        views = self.views
        view = views[self._view % len(views)] if self.listed else (LIST,)
        self.form.display = self.setting
        if not self.setting and self.editing:
            self.screen.set_focus(None)  # a lesson began the search
        self.query_one("#beam-asked").display = not self.setting
        for name, panel in ((LIST, self.table), (TREE, self.tree_panel), (TEXT, self.reading)):
            panel.display = name in view
        over = self.search is not None and self.search.ended is not None and self.at is None
        self._rows = max(0 if over else self._rows, len(self.listed))
        most = max(6, self.room // 2 - 2)
        self.table.styles.height = min(self._rows + 3, most) if len(view) > 1 else "1fr"
        self.reading.styles.height = 6 if len(view) > 1 else "1fr"

    @property
    def views(self) -> Sequence[Sequence[str]]:
        """The panels that `tab` goes through, at this size."""
        if self.room < LOW:
            return (LIST,), (TREE,), (TEXT,)
        return (LIST, TREE, TEXT) if self.room >= TALL else (LIST, TREE), (TEXT,), (TREE,), (LIST,)

    def _table(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The list of beams and hypotheses, with a cursor; or why there is none."""
        if not self.listed:
            advice = f"No step of one was recorded up to here. {self.needs_model}."
            if self.setting:
                step, run = key_for("beams.step"), key_for("beams.run")
                advice = f"Press {step} for a step, {run} to search to the end."
            elif not self.recorded:
                advice = "The first step is under way."
            about = [(line, on.ink("muted")) for line in (*ABOUT[1:], advice)]
            return centred([(ABOUT[0], on.ink("strong")), *about], width, height)
        cells, most = next((cells, most) for least, cells, most in _FORMS if width >= least)
        states = [state_phrase(entry, width < _SHORT) for entry in self.listed]
        standing = min(most, max(map(cell_len, states)) + 2)
        names = "".join(pad(name, room, right=True) for name, room in zip(_HEADS, cells, strict=True) if room)
        rows: list[Row] = [[Segment(f"{names}  {pad('', standing)}text", on.ink("muted"))]]
        fit = max(1, height - 1)
        self._top = max(0, min(self._top, self._place, len(self.listed) - fit), self._place - fit + 1)
        for entry, state in [*zip(self.listed, states, strict=True)][self._top : self._top + fit]:
            row = self._row(on, entry, cells, pad(state, standing - 2), width)
            if entry is self.entry:
                row.append(Segment(" " * (width - Segment.get_line_length(row))))
                row = [*Segment.apply_style(row, post_style=Style(bgcolor=on.ink("row").bgcolor))]
            rows.append(row)
        self._ends["beam-table"] = [None, *(entry.node for entry in self.listed[self._top :])]
        return rows

    def _row(self, on: Canvas, entry: BeamEntry, cells: Sequence[int], state: str, width: int) -> Row:
        good, last = on.ink("good"), entry.last
        out = on.ink("faint") if entry.kind == "fell" else Style()
        best = max(each.last.score for each in self.listed)
        place = str(entry.place or ("✗" if entry.kind == "fell" else "·"))
        if entry.kind == "finished" and self.listed[0].kind == "live":
            place = f"■{place}"  # live beams are numbered separately
        figures = (
            ("▶ " if entry is self.entry else "  ", on.ink("accent")),
            (place, out or on.ink("strong")),
            (decimal(last.score, 4), out),
            (bar(likelihood(entry, best), _BAR), out or (good if entry.greedy else on.ink("primary"))),
            (decimal(last.total, 3), out),
            (str(last.length), out),
        )
        columns = zip(figures, cells, strict=True)
        row = [Segment(pad(text, room, right=True), ink) for (text, ink), room in columns if room]
        row.append(Segment(f"  {state}  ", out or (good if entry.kind == "finished" else on.ink("muted"))))
        for text, own in excerpt(pieces(entry, passing(self.listed)), width - Segment.get_line_length(row)):
            row.append(Segment(text, out or on.ink("strong" if own else "muted")))
        return row

    def _tree(self, step: int, on: Canvas, width: int, height: int) -> list[Row]:
        """The last steps of the search up to the listed one as a tree that grows to the right."""
        entry = self.entry
        lines = lattice(self.beams, self.listed, step, height, width, entry.node) if entry else []
        self._ends["beam-lattice"] = [node for _, node in lines]
        return [[Segment(text, on.ink(ink) if ink else Style()) for text, ink in bits] for bits, _ in lines]

    def _text(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The text of the highlighted beam; the tokens that differ from the others are bold."""
        if (entry := self.entry) is None:
            return []
        text, wrap = pieces(entry, passing(self.listed)), Wrap(width - 1)
        for piece, _ in text:
            wrap.append(piece.split(NEWLINE))
        rows: list[Row] = [
            [Segment(each.text, on.ink("strong" if text[each.slot][1] else "muted")) for each in line.pieces]
            for line in wrap.lines
        ]
        if len(rows) > height > 1:
            rows = [[Segment("… the end of it:", on.ink("muted"))], *rows[1 - height :]]
        return rows[-height:]

    # ---- the lines around the panels --------------------------------------------------------

    def situation(self) -> str:
        """The state of the search, and the keys that matter."""
        search, step, new = self.search, self.steps, key_for("beams.new")
        if self.recorded:
            shown = f"Recorded, at step {self.at}"
            if search is None:
                shown = "No search was recorded up to here"
            elif self.at is None:
                over = ", over" if search.ended is not None else ""
                shown = f"Recorded, step {step} of at most {search.opened.max_tokens}{over}"
            return f"{shown}. {self.needs_model}"
        if failure := self._failure():
            return failure
        if self.editing:
            return "⏎ starts a search with these settings"
        if self.setting or search is None:
            edits = ", ⏎ changes the settings" if self.keeps(GO) else ""  # or continues with a lesson
            return f"{key_for('beams.step').capitalize()} starts, {key_for('beams.run')} searches to the end{edits}"
        if self.at is not None:
            return f"Step {self.at} of {step}. End returns to the last one"
        if (ended := search.ended) is not None:
            why = "max tokens reached" if ended.reason == "length" else "no live beam can become better"
            done = f"Done: {counted(ended.steps, 'step')}, {milliseconds(ended.ms)}"
            return f"{done}, {why}. {new} sets up another search"
        most, steps = search.opened.max_tokens, key_for("beams.step")
        if self.running:
            return f"Searching: step {step} of at most {most}. {steps} pauses"
        if search.step is None:
            return "Beginning"
        alone = "" if search.step.live else " Only greedy decoding continues."
        note = f" {visible(search.opened.note)}" if search.opened.note else ""
        keys = f"{steps} steps, {key_for('beams.run')} runs to the end"
        return f"Step {step} of at most {most}, {milliseconds(search.step.ms)}.{alone} {keys}.{note}"

    def _failure(self) -> str:
        """Why no search was begun, or why the one on show broke off; empty without a failure."""
        what, failure = "No search was begun", self.beams.refused
        if failure is None and self.search is not None and not self.setting:
            what, failure = "The search broke off", self.search.failure
        return "" if failure is None or self.recorded else f"{what}: {failure_words(failure)}"

    def _begun_after(self, width: int) -> Content:
        """The text after which beams begin, or began: the part of its end that fits."""
        head, tail, node = "Beams began after ", "", self.search.opened.node if self.search else self.start
        if self.setting:
            head, tail, node = "Beams begin after ", _replaced(self.timeline), self.start
        if width - cell_len(head) - cell_len(tail) < LEAST_BEGUN:
            tail = tail.partition(", step")[0]
        text = Content(_end_of(self.timeline, node, width - cell_len(head) - cell_len(tail) - 1))
        mark, instead = Content.styled("▌", "$primary"), Content.styled(tail, "$text-warning")
        return Content.styled(head, "bold") + text + mark + instead

    # ---- the settings -----------------------------------------------------------------------

    def set_up(self) -> None:
        self._setting = True

    def _field(self, name: str) -> SafeInput:
        return self.query_one(f"#beam-{name}", SafeInput)

    @on(Input.Changed)
    @on(Choice.Changed)
    @on(events.DescendantFocus)
    def _explain(self) -> None:
        """Explain the field that has the focus, or what is wrong."""
        self._read()
        name = (self.focused.id or "").removeprefix("beam-") if self.focused else ""
        wrong = self._wrong.get(name) or next(iter(self._wrong.values()), "")
        help = wrong or (BEAM_SETTINGS[name].help if name in BEAM_SETTINGS else "")
        self.query_one("#beam-remark", Remark).say(visible(help), bool(wrong))

    def _read(self) -> BeamSettings | None:
        """The settings in the fields; None while any of them is wrong."""
        values: dict[str, Any] = {}
        self._wrong = {}
        for name in TYPED:
            try:
                values[name] = BEAM_SETTINGS[name].parse(self._field(name).value)
            except SettingsError as error:
                self._wrong[name] = str(error)
            self._field(name).set_class(name in self._wrong, "-wrong")
        return None if self._wrong else BeamSettings(**values, early_stopping=bool(self.early.chosen))

    def submit(self, steps: int | None = 1) -> None:
        """Begin a search and leave the session where it is; if a field is wrong, go to the first such field.

        Args:
            steps: Steps to take; None for all.
        """
        if (settings := self._read()) is None:
            self._field(next(iter(self._wrong))).focus()
            self._explain()
            return
        self.settings = settings
        self.job.stop()
        start, tip, do = self.start, self.timeline.tip, self.controller.client.do
        if start != tip:
            do(MoveTo(start))
        self.job.start(SearchBeams(settings, steps=steps))
        if start != tip:
            do(MoveTo(tip))
        self._setting, self.at, self.node, self._rows = False, None, None, 0
        self.screen.set_focus(None)

    # ---- searching --------------------------------------------------------------------------

    def step_replay(self) -> None:
        """See `View`; at an earlier step of the search, go one step forward, as `take_step` does."""
        if self.at is not None:
            self.look(1)
        else:
            super().step_replay()

    def take_step(self) -> None:
        """Take a step; at an earlier one go one forward, during a run pause. If the settings are shown, use them."""
        if self.setting:
            self.submit()
        elif self.at is not None:
            self.look(1)
        else:
            self._advance(1)

    def run(self) -> None:
        """Search to the end, or pause; if the settings are shown, begin with them."""
        if self.setting:
            self.submit(None)
        else:
            self.at = None
            self._advance(None)

    def _advance(self, steps: int | None) -> None:
        """Take `steps` steps, all if None, or pause a run; say so if the search is over."""
        over = self.search is not None and self.search.over
        if self.running:
            self.job.stop()
        elif not over and (steps is None or len(self.job.commands) < MAX_QUEUED_STEPS):
            self.job.start(GoOnBeams(steps=steps))
        done = over and not self.job.running
        self.say(f"This search is over. Press {key_for('beams.new')} to set up another one" if done else "")

    # ---- looking ----------------------------------------------------------------------------

    def highlight(self, by: int) -> None:
        if self.listed:
            place = max(0, min(len(self.listed) - 1, self._place + by))
            self.node = self.listed[place].node if place else None

    @on(events.Click, "#beam-table, #beam-lattice")
    def _clicked(self, event: events.Click) -> None:
        """Highlight the clicked beam; if it is highlighted already, go to it."""
        if (panel := event.widget) is None:
            return
        row = event.get_content_offset_capture(panel).y
        ends = self._ends.get(panel.id or "", [])
        node = ends[row] if 0 <= row < len(ends) else None
        if self.entry is not None and node == self.entry.node:
            self.go()
        elif any(entry.node == node for entry in self.listed):
            self.node = node
            self.say()

    def look(self, by: int) -> None:
        """Show the search some steps later, or earlier."""
        at = max(1, min(self.steps, self.step + by))
        self.at = at if at < self.steps else None

    def turn(self, by: int) -> None:
        """Change between list, tree and text."""
        self._view += by

    # ---- leaving ----------------------------------------------------------------------------

    def go(self) -> None:
        """Leave for the end of the highlighted beam; before a search, open its settings."""
        if self.setting:
            self._field("width").focus()
        elif (entry := self.entry) is not None:
            self.job.stop()
            self.dismiss()
            self.timeline.select(None)
            self.controller.client.do(MoveTo(entry.node))
            self.host.answer()

    def leave(self) -> None:
        """Close the open field, or leave the settings for the present search, or pause the search and go back."""
        if self.editing:
            self.screen.set_focus(None)
        elif self.setting and self.search is not None:
            self._setting = False
        else:
            super().leave()

    def waiting(self) -> str:
        """The search that is paused, and the key that continues it."""
        waits = self.search is not None and not self.search.over and not self.recorded
        return f"The beam search is paused: {key_for('beams')} continues it" if waits else ""


def _replaced(timeline: Timeline) -> str:
    """The end of a sentence: the earlier token that the beams would replace; empty if there is none."""
    item = timeline.selected
    if timeline.following or item is None or timeline.before == ROOT:
        return ""
    return f" in place of {quoted_label(item)}, {numbered(item)}"


def _end_of(timeline: Timeline, node: int, cells: int) -> str:
    """As much of the end of a path's text as fits, in whole tokens."""
    end, room = "", cells - 1
    while (item := timeline.tree.nodes.get(node)) is not None:
        text = visible(item.text)
        if cell_len(text) > room:
            return "…" + end
        end, room, node = text + end, room - cell_len(text), timeline.tree.parent[node]
    return end

"""The screen of a batch: a lane for each prompt, stepped together; its panels, and the dialog of its prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine.errors import EngineError
from engine.protocol import (
    BatchCompared,
    BatchEnded,
    BatchStep,
    Candidate,
    Distribution,
    LanesPrefilled,
    LaneStarted,
    Record,
    through_template,
)
from inspector.config.presets import FORM
from inspector.display import pad, quoted, token_label, truncate, truncate_words, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import milliseconds, percent, size
from inspector.state.batch import (
    EXAMPLES,
    BatchSoFar,
    LaneSoFar,
    compared_words,
    difference_words,
    ending,
    held_words,
    totals_words,
)
from inspector.tools.batch.control import BATCH_SCREEN, BatchControl
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.canvas import PanelCanvas, Row, centred, fact_rows
from inspector.widgets.charts import bar
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import TypedTextArea

# ---- the lanes ----------------------------------------------------------------------------------

MARKS = {"waiting": "·", "prefill": "▒", "live": "●", "ended": "■"}
ABOUT = (
    "Several prompts at once: a lane for each, one forward for all",
    "",
    "Shorter prompts get padding before them (░), which the masks hide.",
    "A lane that ends makes room for one that waits; in a static batch it keeps its row until all have ended.",
    "",
)
PADDING = "░"
MOST_PADDING = 12
"""Cells of padding that are drawn at most: its number stands behind them."""
LEAST_TEXT = 8
MOST_LINES = 4
"""Lines of a lane at most, where there is room."""
HEAD, END = 7, 12
"""Cells of a lane's number and state, and of how it ended."""
NARROW = 56
"""Cells below which the words of these are short."""


class LaneList(PanelCanvas):
    """All lanes; the highlighted one stays in sight."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown_batch: BatchSoFar | None = None
        self.place, self.advice = 0, ""
        self._top = 0

    def put(self, batch: BatchSoFar | None, place: int, advice: str) -> None:
        """Show a batch.

        Args:
            batch: None for none.
            place: Number of the highlighted lane.
            advice: What to press where there is none.
        """
        self.shown_batch, self.place, self.advice = batch, place, advice
        if batch is None:
            self.title(Content("Lanes"))
        else:
            live, waiting = len(batch.live), sum(lane.state == "waiting" for lane in batch.lanes)
            ended = len(batch.lanes) - live - waiting
            counts = [f"{live} live", *([f"{waiting} wait"] if waiting else []), f"{ended} ended"]
            kv = Content(f"KV {held_words(batch)}") if live else None
            self.title(Content(f"Lanes · {', '.join(counts)}"), kv)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.shown_batch is None:
            about = [(line, self.ink("muted")) for line in ABOUT]
            return centred([*about, (self.advice, self.rich_style)], width, height)
        lanes = self.shown_batch.lanes
        lines = max(1, min(MOST_LINES, height // max(1, len(lanes))))
        fit = max(1, height // lines)
        self._top = max(0, min(self._top, self.place, len(lanes) - fit), self.place - fit + 1)
        shown = lanes[self._top : self._top + fit]
        return [row for lane in shown for row in self._lane(lane, width, lines)]

    def _lane(self, lane: LaneSoFar, width: int, lines: int) -> list[Row]:
        """A lane on as many lines: its number and state, its text, its tokens and how it ended."""
        mark = self.ink({"live": "good", "ended": "faint"}.get(lane.state, "muted"))
        head = [
            Segment("▶" if lane.number == self.place else " ", self.ink("accent")),
            Segment(f"{lane.number:>3} ", self.ink("muted")),
            Segment(MARKS[lane.state] + " ", mark),
        ]
        roomy = width >= NARROW
        count = f" {len(lane.tokens):>4} tok " if roomy else f" {len(lane.tokens)} "
        wide = self._end_cells(END if roomy else END // 2)
        end = truncate(_end(lane), wide)
        tail = [
            Segment(count, self.ink("muted")),
            Segment(pad(end, wide), self.ink("warn" if lane.ended else "muted")),
        ]
        room = max(LEAST_TEXT, width - HEAD - len(count) - wide)
        first, *more = laid_out(self._parts(lane), room, lines, self.ink("faint"))
        filled = Segment(" " * (room - sum(segment.cell_length for segment in first)))
        indented = [[Segment(" " * HEAD), *row] for row in more]
        return [[*head, *first, filled, *tail], *indented, *([] for _ in range(lines - 1 - len(more)))]

    def _end_cells(self, most: int) -> int:
        """Cells of the column that tells how lanes ended: it leaves the texts what it doesn't need."""
        lanes = self.shown_batch.lanes if self.shown_batch is not None else ()
        return min(most, max((END // 2, *(cell_len(_end(lane)) for lane in lanes))))

    def _parts(self, lane: LaneSoFar) -> list[tuple[str, Style]]:
        """Padding, prompt and what was decoded, the last token of a lane that goes on by itself."""
        padding = PADDING * min(lane.padding, MOST_PADDING)
        padding += f"{lane.padding} " if lane.padding > MOST_PADDING else ""
        prompt, said = visible(lane.opened.text), visible(lane.text)
        if self.shown_batch is not None and self.shown_batch.opened.node is not None:
            padding, prompt = "", f"draw {lane.opened.reroll} "
        parts = [(padding, self.ink("faint")), (prompt, self.ink("muted"))]
        last = visible(lane.said[-1].text) if lane.said and lane.state == "live" else ""
        if not said.endswith(last):  # a mark that joins what is before it
            last = ""
        return [*parts, (said[: len(said) - len(last)], self.rich_style), (last, self.ink("accent"))]


def _end(lane: LaneSoFar) -> str:
    """How a lane ended, or what it waits for; empty while it goes on."""
    return ending(lane) if lane.state != "live" else ""


def laid_out(parts: Sequence[tuple[str, Style]], room: int, lines: int, cut: Style) -> list[Row]:
    """Texts on some lines; where they don't fit, their beginning is left out.

    Args:
        parts: Texts and their styles, printable.
        room: Cells of a line.
        lines: How many there are, 1 or more.
        cut: Style of the mark of what was left out.

    Returns:
        A line or more.
    """
    chars = [(char, style) for text, style in parts for char in text[-(room * lines + 1) :]]
    rows = _broken(chars, room)
    while len(rows) > lines:
        chars = [("…", cut), *_from_a_word(chars[max(2, (len(rows) - lines - 1) * room // 2) :], room)]
        rows = _broken(chars, room)
    return [list(Segment.simplify(Segment(char, style) for char, style in row)) for row in rows]


def _from_a_word(chars: Sequence[tuple[str, Style]], room: int) -> Sequence[tuple[str, Style]]:
    """Characters from the beginning of a word on, where one begins within a line."""
    blank = next((n for n, (char, _) in enumerate(chars[:room]) if char == " "), -1)
    return chars[blank + 1 :]


def _broken(chars: Sequence[tuple[str, Style]], room: int) -> list[list[tuple[str, Style]]]:
    """Characters in lines of `room` cells, broken behind a blank where one is near the end."""
    rows: list[list[tuple[str, Style]]] = [[]]
    used = 0
    for char in chars:
        if used + (cells := cell_len(char[0])) > room:
            blank = next((n for n in range(len(rows[-1]), 0, -1) if rows[-1][n - 1][0] == " "), 0)
            cut = blank if blank > room * 2 // 3 else len(rows[-1])
            rows[-1], after = rows[-1][:cut], rows[-1][cut:]
            rows.append(after)
            used = sum(cell_len(each) for each, _ in after)
        rows[-1].append(char)
        used += cells
    return rows


# ---- one lane, and all of them ------------------------------------------------------------------

LABEL = 16
"""Cells of a candidate's text and the blank behind it; half of them where there is little room."""
FIGURES = 21
"""Cells of a candidate's probabilities, and of its mark."""


class LaneDetail(PanelCanvas):
    """One lane: what its next token is drawn from, what it holds, and how it compares with its prompt alone."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lane: LaneSoFar | None = None

    def put(self, lane: LaneSoFar | None) -> None:
        """Show a lane; None for none."""
        self.lane = lane
        self.title(Content(f"Lane {lane.number} · {ending(lane)}" if lane is not None else "Lane"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        lane = self.lane
        if lane is None:
            words = "Each lane has candidates and a draw of its own."
            return centred([(words, self.ink("muted"))], width, height)
        rows = self._choice(lane, width)
        facts = []
        if lane.opened.ids:
            settings = (f"seed {lane.opened.seed}", *lane.opened.settings)
            facts.append(("settings", visible(", ".join(settings))))
            facts.append(("prompt", f"{len(lane.opened.ids)} tokens, {lane.padding} of padding"))
        if lane.kv is not None:
            facts.append(("KV", f"{size(lane.kv.used_bytes)}, {size(lane.kv.padding_bytes)} of padding"))
        if lane.started is not None:
            last = f", last after {milliseconds(lane.ended.ms)}" if lane.ended else ""
            facts.append(("tokens", f"{len(lane.tokens)}, first after {milliseconds(lane.started.ms)}{last}"))
        if lane.compared is not None:
            facts.append(("alone", difference_words(lane.compared)))
        return [*rows, *fact_rows(facts, width, self.ink("muted"), self.rich_style)][:height]

    def _choice(self, lane: LaneSoFar, width: int) -> list[Row]:
        """The candidates of the next token, or of the last one where there is none."""
        choice = lane.next or (lane.choice(len(lane.tokens) - 1) if lane.tokens else None)
        if choice is None:
            return []
        what = "next token" if lane.next else "last token"
        drawn = "greedy" if choice.draw is None else f"draw {choice.draw:.3f}"
        picked = next((each.text for each in choice.candidates if each.id == choice.picked), "")
        head = f"{what}: {quoted(token_label(picked))}, {drawn}, {choice.entropy_bits:.2f} bits"
        return [
            [Segment(truncate_words(head, width), self.ink("muted"))],
            *(self._candidate(each, choice, width) for each in choice.candidates),
        ]

    def _candidate(self, each: Candidate, choice: Distribution, width: int) -> Row:
        picked = each.id == choice.picked
        wide = LABEL if width >= 2 * LABEL + FIGURES else LABEL // 2
        label, room = pad(token_label(each.text, each.raw), wide - 1) + " ", max(0, width - wide - FIGURES)
        figures = f"{percent(each.prob):>9}{percent(each.sampler_prob) if each.cut_by is None else 'cut':>9}"
        ink = "strong" if picked else "" if each.cut_by is None else "faint"
        return [
            Segment("▶ " if picked else "  ", self.ink("accent")),
            Segment(label, self.ink(ink) if ink else self.rich_style),
            Segment(pad(bar(each.prob, room), room), self.data(each.prob)),
            Segment(figures, self.ink("muted")),
        ]


class BatchFigures(PanelCanvas):
    """The totals of all lanes: row-steps, time, and all at once against one after another."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown_batch: BatchSoFar | None = None

    def put(self, batch: BatchSoFar | None) -> None:
        """Show a batch; None for none."""
        self.shown_batch = batch
        self.title(Content("All lanes"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.shown_batch is None:
            words = "Row-steps of tokens, of padding, and after a lane's end; all at once against one after another."
            return centred([(words, self.ink("muted"))], width, height)
        facts = [*compared_words(self.shown_batch), *totals_words(self.shown_batch)]
        if self.shown_batch.opened.note:
            facts.append(("note", self.shown_batch.opened.note))
        return fact_rows(facts, width, self.ink("muted"), self.rich_style)[:height]


# ---- the prompts --------------------------------------------------------------------------------

KEYS = "A prompt on each line: ⏎ applies, ctrl+n begins a line."
OWN = f"One with settings of its own: {FORM}"


class TypedPrompts(Struct, frozen=True):
    """The typed text, and whether it is to be used."""

    text: str
    submitted: bool

    @property
    def prompts(self) -> list[str]:
        """One a line; empty lines are none."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]


class BatchDialog(Dialog[TypedPrompts]):
    """Asks for prompts.

    Args:
        text: The initial value of the field.
        check: Raises `EngineError` where the lines can't be prompts.
        begins: Whether they begin a batch; else they are added to one.
        how: How they are given to the model, and how many run at once, in a sentence.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among the prompts of a batch",
        note("enter", hint="use", worth=6),
        note("ctrl+n", hint="new line", worth=5),
        told=False,
    )
    HEADING: ClassVar[str] = "Prompts of a batch"
    APPLY: ClassVar[str] = "Use"

    def __init__(self, text: str, check: Callable[[Sequence[str]], object], begins: bool, how: str) -> None:
        super().__init__()
        self._text, self._check, self._begins, self._how = text, check, begins, how

    def body(self) -> Iterable[Widget]:
        yield Remark(("They begin another batch. " if self._begins else "They join the others. ") + self._how)
        yield TypedTextArea(self._text, id="batch-prompts", soft_wrap=True, tab_behavior="focus")
        yield Remark(OWN)
        yield Remark(KEYS, id="batch-remark")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        area = self.query_one("#batch-prompts", TypedTextArea)
        self.set_focus(area)
        area.move_cursor(area.document.end)
        self._count()

    @property
    def typed(self) -> TypedPrompts:
        """The text in the field."""
        return TypedPrompts(self.query_one("#batch-prompts", TypedTextArea).text, True)

    @on(TextArea.Changed, "#batch-prompts")
    def _count(self) -> None:
        count = len(self.typed.prompts)
        self.query_one("#apply", Button).disabled = not count
        counted = f"{count} prompt{'s' * (count != 1)}. {KEYS}" if count else KEYS
        self.query_one("#batch-remark", Remark).say(counted)

    @on(TypedTextArea.TextSubmitted)
    def apply(self) -> None:
        """Use what was typed, unless it is nothing."""
        remark = self.query_one("#batch-remark", Remark)
        if not self.typed.prompts:
            remark.say("Nothing was typed. Type a prompt on each line.", wrong=True)
            return
        try:
            self._check(self.typed.prompts)
        except EngineError as error:
            remark.say(visible(str(error)), wrong=True)
        else:
            self.dismiss(self.typed)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss(TypedPrompts(self.typed.text, False))


# ---- the screen ---------------------------------------------------------------------------------

REPLACED = "Draws took the place of this batch"
LOW = 20
"""Rows below which one panel is shown at a time."""


class BatchScreen(ToolScreen[int]):
    """Steps a batch; returns the number of the lane that the session is to go to, None to stay.

    Args:
        host: The main screen.
        control: Knows the engine and the batch.
    """

    TOOL: ClassVar[str] = "batch"
    ACTIONS: ClassVar[ActionTable] = BATCH_SCREEN
    MEASURES: ClassVar[str] = "A batch"
    TELLING: ClassVar[tuple[type[Record], ...]] = (BatchStep, LanesPrefilled, LaneStarted, BatchCompared)
    OUTDATES: ClassVar[tuple[type[Record], ...]] = (BatchEnded,)
    AUTO_FOCUS = ""

    lanes = getters.query_one("#batch-lanes", LaneList)
    detail = getters.query_one("#batch-lane", LaneDetail)
    figures = getters.query_one("#batch-all", BatchFigures)

    def __init__(self, host: Host, control: BatchControl) -> None:
        super().__init__(host, control.job)
        self.control = control
        self.place = 0
        self._view = 0
        self._typed = ""

    def body(self) -> ComposeResult:
        yield LaneList(id="batch-lanes")
        with Container(id="batch-below"):
            yield LaneDetail(id="batch-lane")
            yield BatchFigures(id="batch-all")

    @property
    def current(self) -> BatchSoFar | None:
        """The one that is shown."""
        return self.control.batch

    @property
    def lane(self) -> LaneSoFar | None:
        """The highlighted one."""
        lanes = self.current.lanes if self.current is not None else []
        return lanes[min(self.place, len(lanes) - 1)] if lanes else None

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        batch, lane = self.current, self.lane
        self.place = lane.number if lane is not None else 0
        self._arrange()
        press = f"Press {key_for('batch.new')} to give prompts, one a line."
        self.lanes.put(batch, self.place, self.needs_model if self.recorded else press)
        self.detail.put(lane)
        self.figures.put(batch)
        self._write()

    def _arrange(self) -> None:
        """Show one panel at a time where there is little room."""
        views = (self.lanes, self.detail, self.figures)
        shown = views[self._view % 3] if self.low else None
        for panel in views:
            panel.display = shown in (None, panel)
        self.query_one("#batch-below").display = shown is not self.lanes

    def _write(self) -> None:
        """The lines around the panels."""
        facts, batch = self.host.controller.timeline.facts, self.current
        name = visible(facts.name) if facts else ""
        step = f"step {batch.steps}" if batch is not None else ""
        parts = ("Batch", "recorded" if self.recorded else "", step, self._kind(), name)
        self.write(" · ".join(filter(None, parts)))

    def _kind(self) -> str:
        """The kind of the batch, in words, and its lanes at once."""
        batch = self.current
        if batch is not None and batch.opened.node is not None:
            return f"draws of one prompt, {batch.opened.size} at once"
        of = self.control if batch is None else batch.opened
        return f"{'static' if of.static else 'continuous'}, {of.size} at once"

    def situation(self) -> str:
        """The state of the batch, and what to do about it."""
        job, batch = self.control.job, self.current
        if self.recorded:
            return f"Recorded, step {batch.steps}. {self.needs_model}" if batch else self.needs_model
        if job.failure is not None:
            return visible(f"{job.failure.message} {job.failure.hint}".strip())
        if job.progress is not None:
            return f"{visible(job.progress.detail)}, {job.progress.done} of {job.progress.total}"
        if job.running:
            return "The lanes run" if batch is not None and batch.live else "The prompts go through the model"
        if batch is None:
            new, static = key_for("batch.new"), key_for("batch.static")
            return f"Press {new} to give prompts, {static} for static, ← → for lanes at once"
        if batch.replaced:
            new, opens = key_for("batch.new"), key_for("batch.open")
            return f"{REPLACED}. {new} begins another batch, {opens} opens this lane"
        if batch.over:
            alone = "" if batch.compared else f"{key_for('batch.alone')} runs each prompt alone, "
            add, new = key_for("batch.add"), key_for("batch.new")
            return f"All lanes have ended. {alone}{add} adds prompts, {new} begins another batch"
        step, run = key_for("batch.step"), key_for("batch.run")
        return f"{len(batch.live)} lanes are running. Press {step} for one step of all, {run} to run"

    @property
    def low(self) -> bool:
        """True if there is room for one panel at a time."""
        return self.room < LOW

    # ---- keys -------------------------------------------------------------------------------

    def take_step(self) -> None:
        """Let every lane grow by a token, or pause."""
        self.control.step()
        self._ask_first()

    def run_lanes(self) -> None:
        """Run to the end, or pause."""
        self.control.run()
        self._ask_first()

    def _ask_first(self) -> None:
        if not self._replaced() and self.current is None:
            self.say(f"Press {key_for('batch.new')} to give prompts first")

    def _replaced(self) -> bool:
        """Say so where nothing can be done with the batch any more; returns whether that is the case."""
        replaced = self.current is not None and self.current.replaced
        if replaced:
            self.say(f"{REPLACED}. Press {key_for('batch.new')} to begin another")
        return replaced

    def highlight(self, by: int) -> None:
        """Highlight another lane."""
        if self.current is not None:
            self.place = max(0, min(len(self.current.lanes) - 1, self.place + by))

    def turn(self) -> None:
        """Show the next panel, where one is shown at a time."""
        self._view += 1

    def begin_another(self) -> None:
        """Ask for the prompts of another batch."""
        own = self.host.controller.setup.prompt.text
        self._ask(self._typed or "\n".join([" ".join(own.split()) or EXAMPLES[0], *EXAMPLES]), begins=True)

    def add(self) -> None:
        """Ask for prompts to add, or for those of a batch, where there is none to add to."""
        if self.current is None or self.current.replaced:
            self.begin_another()
        else:
            self._ask("", begins=False)

    def _ask(self, text: str, begins: bool) -> None:
        prompt, facts = self.host.controller.setup.prompt, self.host.controller.timeline.facts
        own = facts is not None and through_template(facts, prompt.chat, prompt.system, prompt.options)
        how = "Each goes through the chat template" if own else "Each is raw text"
        kind = "static" if self.control.static else "continuous"
        at_once = f", {self.control.size} lanes at once, {kind}" if begins else ""
        self.host.open(
            BatchDialog(text, self.control.lane_prompts, begins, f"{how}{at_once}."),
            lambda typed: self._asked(typed, begins),
        )

    def _asked(self, typed: TypedPrompts | None, begins: bool) -> None:
        if typed is None:
            return
        if begins:
            self._typed = typed.text
        if typed.submitted:
            self.place = 0 if begins else self.place
            lanes = self.control.lane_prompts(typed.prompts)
            self.control.begin(lanes) if begins else self.control.add(lanes)
        self.say()

    def take_out(self) -> None:
        """Take the highlighted lane out."""
        lane = self.lane
        if lane is None or lane.ended is not None:
            self.say(
                "This lane has ended. Highlight a running one with ↑ ↓" if lane else "There is no lane yet"
            )
        elif not self._replaced():
            self.control.remove(lane.number)

    def compare(self) -> None:
        """Run each prompt alone, or stop that."""
        if self._replaced():
            return
        if self.current is None or not self.current.over:
            self.say(f"Run the batch to its end first: {key_for('batch.run')}")
        else:
            self.control.compare()

    def change_kind(self) -> None:
        """Have the next batch keep rows until all lanes have ended, or give them on."""
        self.control.static = not self.control.static
        if self.current is not None:
            kind = "static: rows stay until all lanes have ended" if self.control.static else "continuous"
            self.say(f"The next batch is {kind}. Press {key_for('batch.new')} to begin it")

    def change_size(self, by: int) -> None:
        """Have the next batch run more lanes at once, or fewer."""
        self.control.resize(by)
        if self.current is not None:
            self.say(
                f"The next batch runs {self.control.size} at once. Press {key_for('batch.new')} to begin it"
            )

    def open_lane(self) -> None:
        """Open the highlighted lane in the session."""
        if (lane := self.lane) is None:
            self.begin_another()
        elif not lane.tokens:
            self.say(f"This lane has no token yet. Press {key_for('batch.step')} for one step of all")
        else:
            self.control.job.stop()
            self.dismiss(lane.number)

"""A batch: a lane for each prompt, stepped together; its panels, and the dialog of its prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine import protocol
from engine.errors import EngineError
from engine.protocol import LanePrompt, Record, through_template
from inspector.config.presets import FORM, lanes
from inspector.display import first_fitting, pad, quoted, token_label, truncate_words, visible
from inspector.keys import key_for
from inspector.main.view import View, neighbor
from inspector.scales import counted, percent
from inspector.session.requests import failure_words
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.batch import (
    EXAMPLES,
    Batches,
    BatchSoFar,
    LaneSoFar,
    compared_words,
    ending,
    held_words,
    lane_words,
    totals_words,
)
from inspector.widgets.actions import (
    NEW_LINE,
    Action,
    ActionTable,
    Needs,
    back,
    both,
    dialog_table,
    note,
    screen_table,
)
from inspector.widgets.canvas import Canvas, DrawnPanel, Row
from inspector.widgets.charts import bar, places
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeTextArea

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the lanes ----------------------------------------------------------------------------------

MARKS = {"waiting": "·", "prefill": "▒", "live": "●", "ended": "■"}
ABOUT = (
    "Several prompts at once, a lane for each and one forward pass for all: what each writes, and what padding and "
    "finished lanes cost."
)
PADDED = (
    "Shorter prompts get padding before them (░), which the masks hide.",
    "A lane that ends makes room for one that waits; in a static batch it keeps its row until all have ended.",
)
PADDING = "░"
MOST_PADDING = 12
"""Maximum cells of padding; the number of longer padding stands before them."""
LEAST_TEXT = 8
MOST_LINES = 4
"""Maximum lines of a lane."""
HEAD, END = 7, 12
"""Cells of a lane's number and state, and of how it ended."""
NARROW = 56
"""Cells of a line below which these are shorter."""
LABEL = 16
"""Cells of a candidate's text and the blank after it; half as many if there is little room."""
FIGURES = 21
"""Cells of a candidate's probabilities, and of its mark."""


def lane_rows(
    on: Canvas, batch: BatchSoFar, lane: LaneSoFar, highlighted: bool, width: int, lines: int
) -> list[Row]:
    """A lane: its number and state, its text, its number of tokens and how it ended.

    Args:
        on: Provides the inks.
        batch: The batch of the lane.
        lane: The lane to draw.
        highlighted: Whether to mark it as the highlighted one.
        width: Cells of a line.
        lines: Number of lines, 1 or more.
    """
    muted, roomy = on.ink("muted"), width >= NARROW
    mark = on.ink({"live": "good", "ended": "faint"}.get(lane.state, "muted"))
    head = [
        Segment("▶" if highlighted else " ", on.ink("accent")),
        Segment(f"{lane.number:>3} ", muted),
        Segment(MARKS[lane.state] + " ", mark),
    ]
    count = f" {len(lane.tokens):>4} tok " if roomy else f" {len(lane.tokens)} "
    # cells that no lane's end needs are left to the texts
    ends = max((END // 2, *(cell_len(_end(each)) for each in batch.lanes)))
    wide = min(END if roomy else END // 2, ends)
    tail = [Segment(count, muted), Segment(pad(_end(lane), wide), on.ink("warn" if lane.ended else "muted"))]
    room = max(LEAST_TEXT, width - HEAD - len(count) - wide)
    first, *more = laid_out(_parts(on, batch, lane), room, lines, on.ink("faint"))
    filled = Segment(" " * (room - sum(segment.cell_length for segment in first)))
    indented = [[Segment(" " * HEAD), *row] for row in more]
    return [[*head, *first, filled, *tail], *indented, *([] for _ in range(lines - 1 - len(more)))]


def _end(lane: LaneSoFar) -> str:
    """The end of a lane, or what it waits for; empty while it runs."""
    return ending(lane) if lane.state != "live" else ""


def _parts(on: Canvas, batch: BatchSoFar, lane: LaneSoFar) -> list[tuple[str, Style]]:
    """Padding, prompt and decoded text, the last token of a running lane by itself."""
    padding = f"{PADDING * min(lane.padding, MOST_PADDING)} " if lane.padding else ""
    padding = f"{lane.padding} {padding}" if lane.padding > MOST_PADDING else padding
    prompt, said = visible(lane.opened.text), visible(lane.text)
    if batch.opened.node is not None:
        padding, prompt = "", f"draw {lane.opened.reroll} "
    last = visible(lane.said[-1].text) if lane.said and lane.state == "live" else ""
    if not said.endswith(last):  # a combining mark, joined to the text before it
        last = ""
    decoded = (said[: len(said) - len(last)], on.rich_style), (last, on.ink("accent"))
    return [(padding, on.ink("faint")), (prompt, on.ink("muted")), *decoded]


def laid_out(parts: Sequence[tuple[str, Style]], room: int, lines: int, cut: Style) -> list[Row]:
    """Texts broken into lines; if they don't fit, their beginning is left out.

    Args:
        parts: Texts and their styles, printable.
        room: Cells of a line.
        lines: Maximum number of lines, 1 or more.
        cut: Style of the ellipsis for the part left out.

    Returns:
        One line or more.
    """
    chars = [(char, style) for text, style in parts for char in text[-(room * lines + 1) :]]
    rows = _broken(chars, room)
    while len(rows) > lines:
        chars = chars[max(2, (len(rows) - lines - 1) * room // 2) :]
        blank = next((n for n, (char, _) in enumerate(chars[:room]) if char == " "), -1)
        # begin at a word, if one begins within a line
        chars = [("…", cut), *chars[blank + 1 :]]
        rows = _broken(chars, room)
    return [list(Segment.simplify(Segment(char, style) for char, style in row)) for row in rows]


def _broken(chars: Sequence[tuple[str, Style]], room: int) -> list[list[tuple[str, Style]]]:
    """Characters in lines of `room` cells, broken after a blank if one is near the end."""
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


def candidate_rows(on: Canvas, lane: LaneSoFar, width: int) -> list[Row]:
    """The candidates of a lane's next token, or of its last one if there is none."""
    choice = lane.next or (lane.choice(len(lane.tokens) - 1) if lane.tokens else None)
    if choice is None:
        return []
    what = "next" if lane.next else "last"
    drawn = "greedy" if choice.draw is None else f"draw {places(choice)[0]}"
    picked = next((each.text for each in choice.candidates if each.id == choice.picked), "")
    drawn = f"{quoted(token_label(picked))}, {drawn}, {choice.entropy_bits:.2f} bits"
    head = first_fitting(width, f"{what} token: {drawn}", f"{what}: {drawn}")
    wide = LABEL if width >= 2 * LABEL + FIGURES else LABEL // 2
    room = max(0, width - wide - FIGURES)
    rows: list[Row] = [[Segment(truncate_words(head, width), on.ink("muted"))]]
    for each in choice.candidates:
        taken, cut = each.id == choice.picked, each.cut_by is not None
        ink = on.ink("strong") if taken else on.ink("faint") if cut else on.rich_style
        share = "cut" if cut else percent(each.sampler_prob)
        rows.append([
            Segment("▶ " if taken else "  ", on.ink("accent")),
            Segment(pad(token_label(each.text, each.raw), wide - 1) + " ", ink),
            Segment(pad(bar(each.prob, room), room), on.data(each.prob)),
            Segment(f"{percent(each.prob):>9}{share:>9}", on.ink("muted")),
        ])  # fmt: skip
    return rows


# ---- the prompts --------------------------------------------------------------------------------

KEYS = "A prompt on each line: ⏎ applies, ctrl+j begins a line."
OWN = f"One with settings of its own: {FORM}"


def typed_prompts(text: str) -> list[str]:
    """The prompts of a text, one on each line; empty lines are skipped."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class BatchDialog(Dialog[tuple[str, tuple[LanePrompt, ...]]]):
    """Asks for prompts; returns the typed text and the prompts to use, empty if the dialog was left.

    Args:
        text: The initial value of the field.
        read: Makes prompts from lines; raises `EngineError` if a line isn't a prompt.
        begins: Whether the prompts begin a batch; otherwise they are added to one.
        how: A sentence on how the model gets the prompts, and how many run at once.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among the prompts of a batch",
        note("enter", hint="use", worth=6),
        NEW_LINE,
        told=False,
    )
    HEADING: ClassVar[str] = "Prompts of a batch"
    APPLY: ClassVar[str] = "Use"

    def __init__(
        self, text: str, read: Callable[[Sequence[str]], tuple[LanePrompt, ...]], begins: bool, how: str
    ) -> None:
        super().__init__()
        self._text, self._read, self._begins, self._how = text, read, begins, how

    def body(self) -> Iterable[Widget]:
        yield Remark(("They start a new batch. " if self._begins else "They join the others. ") + self._how)
        yield SafeTextArea(self._text, id="batch-prompts", soft_wrap=True, tab_behavior="focus")
        yield Remark(OWN)
        yield Remark(KEYS, id="batch-remark")

    def begin(self) -> None:
        """Begin in the text, all of it selected so that typing replaces it."""
        super().begin()
        area = self.query_one("#batch-prompts", SafeTextArea)
        self.set_focus(area)
        area.select_all()
        self._count()

    @property
    def typed(self) -> str:
        return self.query_one("#batch-prompts", SafeTextArea).text

    @on(TextArea.Changed, "#batch-prompts")
    def _count(self) -> None:
        count = len(typed_prompts(self.typed))
        self.query_one("#apply", Button).disabled = not count
        said = f"{counted(count, 'prompt')}. {KEYS}" if count else KEYS
        self.query_one("#batch-remark", Remark).say(said)

    def apply(self) -> None:
        """Use the typed prompts, or say what is wrong with them."""
        wrong = "Nothing was typed. Type a prompt on each line."
        if lines := typed_prompts(self.typed):
            try:
                self.dismiss((self.typed, self._read(lines)))
                return
            except EngineError as error:
                wrong = visible(str(error))
        self.query_one("#batch-remark", Remark).say(wrong, wrong=True)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss((self.typed, ()))


# ---- the view ---------------------------------------------------------------------------------

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Lanes at once."""
REPLACED = "Draws took the place of this batch"
LOW = 20
"""Rows below which one panel is shown at a time."""

BATCH_KEYS = screen_table(
    "In a batch",
    Action("batch.step", "Step", "Extend every lane by a token; while they run, pause.",
           lambda own: own.step(), Needs.ENGINE, worth=9,
           hint=lambda own: "step" if own.continues else "" if own.so_far else "example"),
    Action("batch.run", "Run", "Run until all lanes have ended; again to pause.",
           lambda own: own.run(), Needs.ENGINE, worth=8,
           hint=lambda own: "" if not own.continues else "pause" if own.running else "run"),
    *both(("batch.above", "batch.below"), ("Lane above", "Lane below"),
          "Highlight another lane: its candidates, its draw and its KV are shown.", lambda own, by: own.highlight(by),
          hint=lambda own: "lane" if own.so_far and not own.recorded else "", worth=4),
    Action("batch.open", "Open", "Open the highlighted lane in the session, with all the panels.",
           lambda own: own.open_lane(), Needs.ENGINE, hint=lambda own: "open" if own.so_far else "", worth=6),
    Action("batch.add", "Add", "Add prompts while the others continue.", lambda own: own.add(), Needs.ENGINE,
           hint=lambda own: "add" if own.grows else "", worth=6),
    Action("batch.take_out", "Take out", "Remove the highlighted lane while the others continue.",
           lambda own: own.take_out(), Needs.ENGINE, hint=lambda own: "take out" if own.grows else "", worth=5),
    Action("batch.alone", "Compare", "Once all have ended: run each prompt alone, and compare ids and times.",
           lambda own: own.compare(), Needs.ENGINE, worth=7, place=-1,
           hint=lambda own: "compare" if own.grows and own.so_far.over and not own.so_far.compared else ""),
    Action("batch.new", "New batch",
           "Start a new batch: a prompt on each line, or an object with settings of its own.",
           lambda own: own.begin_another(), Needs.ENGINE, hint="new", worth=8),
    Action("batch.static", "Static",
           "The next batch is static (rows stay until all lanes have ended), or continuous.",
           lambda own: own.change_kind(), Needs.ENGINE, hint="static", worth=3),
    *both(("batch.fewer", "batch.more"), ("Fewer", "More"),
          "The next batch: fewer lanes at once, or more; the others wait.", lambda own, by: own.change_size(by),
          needs=Needs.ENGINE, hint=lambda own: "" if own.so_far else "at once", worth=5),
    Action("batch.turn", "Next panel", "Where there is room for one panel: lanes, lane, or all lanes.",
           lambda own: own.turn(), hint=lambda own: "panel" if own.low and own.so_far else "", worth=8),
    back("batch.leave", "Go back; the batch pauses, and `{batch}` continues it.", worth=9),
)  # fmt: skip


def _kind(static: bool) -> str:
    return "static" if static else "continuous"


class BatchView(View):
    """Steps a batch of prompts, and opens a lane in the session. The timeline has the batch."""

    TOOL: ClassVar[str] = "batch"
    WHOLE: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = BATCH_KEYS
    MEASURES: ClassVar[str] = "A batch"
    STARTS = (
        protocol.StartBatch,
        protocol.AdvanceBatch,
        protocol.CompareBatch,
        protocol.AddLanes,
        protocol.RemoveLane,
    )
    TELLING = (protocol.BatchStep, protocol.LanesPrefilled, protocol.LaneStarted, protocol.BatchCompared)
    OUTDATES = (protocol.BatchEnded,)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.lanes_at_once, self.static = 8, False
        """The size and kind of the next batch."""
        self.prompts: list[LanePrompt] = []
        """The prompts of the batch that this view began, by lane number."""
        self.place = self._top = self._view = 0
        self._typed = ""
        self.controller.client.listen(self._receive, protocol.BatchOpened)

    def _receive(self, record: Record) -> None:
        if isinstance(record, protocol.BatchOpened) and record.node is None and not self.job.answered:
            self.prompts = []  # this view did not begin the batch

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="batch-lanes")
        with Container(id="batch-below"):
            yield DrawnPanel(id="batch-lane")
            yield DrawnPanel(id="batch-all")

    # ---- the batch --------------------------------------------------------------------------

    @property
    def so_far(self) -> BatchSoFar | None:
        """The last batch of prompts; in a recording that has only draws, the batch of their continuations."""
        batches = self.timeline.of(Batches)
        return batches.last or (batches.continued if self.recorded else None)

    @property
    def grows(self) -> bool:
        """True if there is a batch and the engine still has it: continuations of draws replace a batch of prompts."""
        return self.so_far is not None and self.so_far is self.timeline.of(Batches).current

    @property
    def continues(self) -> bool:
        """True if lanes are running or waiting."""
        return self.so_far is not None and self.grows and not self.so_far.over

    @property
    def running(self) -> bool:
        """True if anything but single steps is under way."""
        return any(
            not isinstance(each, protocol.AdvanceBatch) or each.steps is None for each in self.job.commands
        )

    @property
    def lane(self) -> LaneSoFar | None:
        """The highlighted lane."""
        known = self.so_far.lanes if self.so_far is not None else []
        return known[min(self.place, len(known) - 1)] if known else None

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        batch, lane = self.so_far, self.lane
        self.place = lane.number if lane is not None else 0
        every, detail, figures = panels = [
            self.query_one(id, DrawnPanel) for id in ("#batch-lanes", "#batch-lane", "#batch-all")
        ]
        shown = every if batch is None else panels[self._view % 3] if self.low else None
        for panel in panels:
            panel.display = shown in (None, panel)
        self.query_one("#batch-below").display = shown is not every
        title, kv, step, kind = "Lanes", "", "", f"{_kind(self.static)}, {self.lanes_at_once}"
        if batch is not None:
            opened, step = batch.opened, f"step {batch.steps}"
            kind = f"{_kind(opened.static) if opened.node is None else 'draws of one prompt'}, {opened.size}"
            live, waiting = len(batch.live), sum(each.state == "waiting" for each in batch.lanes)
            wait, ended = f"{waiting} wait, " if waiting else "", len(batch.lanes) - live - waiting
            title = f"Lanes · {live} live, {wait}{ended} ended"
            kv = f"KV {held_words(batch)}" if live else ""
        every.put(title, self._lanes, kv)
        detail.put(f"Lane {lane.number} · {ending(lane)}" if lane is not None else "Lane", self._lane)
        figures.put("All lanes", self._figures)
        parts = ("Batch", "recorded" if self.recorded else "", step, f"{kind} at once", self.model_name)
        self.write(" · ".join(filter(None, parts)))

    def _lanes(self, on: Canvas, width: int, height: int) -> list[Row]:
        """All lanes; the highlighted one stays in sight."""
        if (batch := self.so_far) is None:
            return self.empty(on, width, height, ABOUT, *PADDED)
        lines = max(1, min(MOST_LINES, height // max(1, len(batch.lanes))))
        fit = max(1, height // lines)
        self._top = max(0, min(self._top, self.place, len(batch.lanes) - fit), self.place - fit + 1)
        shown = batch.lanes[self._top : self._top + fit]
        return [
            row
            for lane in shown
            for row in lane_rows(on, batch, lane, lane.number == self.place, width, lines)
        ]

    def _lane(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The highlighted lane: the draw of its next token, its KV, and how it compares with its prompt alone."""
        if (lane := self.lane) is None:
            return []
        return [*candidate_rows(on, lane, width), *on.facts(lane_words(lane), width)][:height]

    def _figures(self, on: Canvas, width: int, height: int) -> list[Row]:
        """Work spent on tokens, on padding and on finished lanes; batched against one at a time."""
        if (batch := self.so_far) is None:
            return []
        note = [("note", batch.opened.note)] if batch.opened.note else []
        return on.facts([*compared_words(batch), *totals_words(batch), *note], width)[:height]

    def situation(self) -> str:
        """The state of the batch, and what to do about it."""
        job, batch = self.job, self.so_far
        add, new = key_for("batch.add"), key_for("batch.new")
        if self.recorded:
            return f"Recorded, step {batch.steps}. {self.needs_model}" if batch else self.needs_model
        if job.failure is not None:
            return failure_words(job.failure)
        if job.progress is not None:
            return f"{visible(job.progress.detail)}, {job.progress.done} of {job.progress.total}"
        if job.running:
            return "The lanes run" if batch is not None and batch.live else "The prompts go through the model"
        if batch is None:
            return f"Press {key_for('batch.step')} for an example of {len(EXAMPLES) + 1} prompts, {new} for your own"
        if not self.grows:
            return f"{REPLACED}. {new} starts another batch, {key_for('batch.open')} opens this lane"
        if batch.over:
            alone = "" if batch.compared else f"{key_for('batch.alone')} runs each prompt alone, "
            return f"All lanes have ended. {alone}{add} adds prompts, {new} starts over"
        step, run = key_for("batch.step"), key_for("batch.run")
        return f"{counted(len(batch.live), 'lane')} running. Press {step} for one step of all, {run} to run"

    @property
    def low(self) -> bool:
        """True if there is room for one panel at a time."""
        return self.room < LOW

    # ---- keys -------------------------------------------------------------------------------

    def step(self) -> None:
        """Extend every lane by a token, or pause; without a batch, begin that of the example."""
        if self.running:
            self.job.stop()
        elif self.so_far is None:
            self._begin_example()
        elif self._can_advance() and len(self.job.commands) < MAX_QUEUED_STEPS:
            self.job.start(protocol.AdvanceBatch(steps=1))

    def run(self) -> None:
        """Run to the end, or pause."""
        if self.job.stop():
            return
        if self.so_far is None:
            self._begin_example()
        if self.so_far is None or self._can_advance():
            self.job.start(protocol.AdvanceBatch())

    def _can_advance(self) -> bool:
        """True if lanes are running or waiting; says so if draws replaced the batch."""
        return not self._replaced() and self.continues

    def _replaced(self) -> bool:
        """Say so if the engine has dropped the batch; returns whether it has."""
        if self.so_far is None or self.grows:
            return False
        self.say(f"{REPLACED}. Press {key_for('batch.new')} to begin another")
        return True

    def highlight(self, by: int) -> None:
        if self.so_far is not None:
            self.place = max(0, min(len(self.so_far.lanes) - 1, self.place + by))

    def turn(self) -> None:
        """Show the next panel, if one is shown at a time."""
        self._view += 1

    @property
    def _example(self) -> str:
        """The session's prompt and two more, a line each."""
        own = " ".join(self.controller.setup.prompt.text.split())
        return "\n".join([own if own and not own.startswith("{") else EXAMPLES[0], *EXAMPLES])

    def _begin_example(self) -> None:
        self._asked((self._example, self.lane_prompts(typed_prompts(self._example))), begins=True)

    def begin_another(self) -> None:
        """Ask for the prompts of another batch."""
        self._ask(self._typed or self._example, begins=True)

    def add(self) -> None:
        """Ask for prompts to add, or for those of a new batch if there is none to add to."""
        if self.grows:
            self._ask("", begins=False)
        else:
            self.begin_another()

    def _ask(self, text: str, begins: bool) -> None:
        own, facts = self.controller.setup.prompt, self.timeline.facts
        chat = facts is not None and through_template(facts, own.chat, own.system, own.options)
        how = "Each goes through the chat template" if chat else "Each is raw text"
        at_once = f", {self.lanes_at_once} lanes at once, {_kind(self.static)}" if begins else ""
        dialog = BatchDialog(text, self.lane_prompts, begins, f"{how}{at_once}.")
        self.host.open(dialog, lambda typed: self._asked(typed, begins))

    def _asked(self, typed: tuple[str, tuple[LanePrompt, ...]] | None, begins: bool) -> None:
        """Begin a batch of the prompts that were typed, up to the end of its prefill, or add them to the batch."""
        text, prompts = typed or (self._typed, ())
        if begins:
            self._typed = text
        if prompts and (begins or not self.grows):
            self.place = 0
            self.job.stop()
            self.prompts = [*prompts]
            self.job.start(protocol.StartBatch(prompts, self.lanes_at_once, self.static, steps=0))
        elif prompts:
            self.prompts += prompts
            self.job.failures.clear()
            self.job.start(protocol.AddLanes(prompts))
            if not self.continues:
                self.job.start(protocol.AdvanceBatch(steps=0))
        self.say()

    def lane_prompts(self, lines: Sequence[str]) -> tuple[LanePrompt, ...]:
        """Prompts given to the model as the session's is: through the chat template, or as raw text.

        Raises:
            PromptError: A line names an unknown setting, or has an invalid value.
        """
        own = self.controller.setup.prompt
        return lanes(lines, LanePrompt("", own.chat, own.system, own.options), self.controller.setup.settings)

    def take_out(self) -> None:
        """Take the highlighted lane out while the others continue."""
        if (lane := self.lane) is None:
            self.say("There is no lane yet")
        elif lane.ended is not None:
            self.say("This lane has ended. Highlight a running one with ↑ ↓")
        elif not self._replaced():
            self.job.start(protocol.RemoveLane(lane.number))

    def compare(self) -> None:
        """Run each prompt alone, or stop that."""
        if self._replaced():
            return
        if self.so_far is None or not self.so_far.over:
            self.say(f"Run the batch to its end first: {key_for('batch.run')}")
        elif not self.job.stop():
            self.job.start(protocol.CompareBatch())

    def change_kind(self) -> None:
        """Make the next batch static, so that rows stay until all lanes have ended, or continuous."""
        self.static = not self.static
        rows = ": rows stay until all lanes have ended" if self.static else ""
        self._announce(f"is {_kind(self.static)}{rows}")

    def change_size(self, by: int) -> None:
        """Let the next batch run more lanes at once, or fewer."""
        self.lanes_at_once = neighbor(SIZES, self.lanes_at_once, by)
        self._announce(f"runs {self.lanes_at_once} at once")

    def _announce(self, change: str) -> None:
        """Say what changes in the next batch, if the view shows an earlier one."""
        if self.so_far is not None:
            self.say(f"The next batch {change}. Press {key_for('batch.new')} to begin it")

    def open_lane(self) -> None:
        """Go to the end of the highlighted lane in the session, by its prompt and its token ids."""
        if (lane := self.lane) is None:
            self.begin_another()
            return
        if not lane.tokens:
            self.say(f"This lane has no token yet. Press {key_for('batch.step')} for one step of all")
            return
        self.leave()
        self.timeline.select(None)
        self.controller.client.pause()
        known = self.prompts[lane.number] if lane.number < len(self.prompts) else LanePrompt(lane.opened.text)
        prompt = protocol.Prefill(known.text, known.chat, known.system, options=known.options)
        client, ids = self.controller.client, tuple(token.id for token in lane.tokens)

        def take(record: Record) -> None:
            if isinstance(record, protocol.Prefilled):
                client.do(protocol.Take(record.next.node, ids))

        reads = self.timeline.prompts.by_end.values()
        same = (
            each.prefilled for each in reads if tuple(t.id for t in each.opened.tokens) == lane.opened.ids
        )
        if (read := next(filter(None, same), None)) is not None:
            take(read)  # one change to undo
        else:
            self.controller.setup.give(prompt, take)
        self.host.answer()

    def waiting(self) -> str:
        """The batch that is paused, and the key that continues it."""
        waits = self.continues and not self.recorded
        return f"The batch is paused: {key_for('batch')} continues it" if waits else ""

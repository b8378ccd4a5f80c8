"""The second model: the text as both models see it, their candidates at the cursor, and the dialog that opens one."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import nlargest
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content

from engine.errors import PathError
from engine.files import typed
from engine.protocol import (
    CloseLockstep,
    FollowSecond,
    LockstepMemory,
    LockstepOpened,
    LockstepRead,
    LockstepSpan,
    ModelFacts,
    OpenLockstep,
    PartWays,
    ReadLockstep,
    Record,
    Resampled,
    Take,
    WaysParted,
)
from engine.settings import LoadSettings
from inspector.display import joined_to_fit, pad, token_label, token_lines, truncate, visible
from inspector.keys import bare_key_for, key_for
from inspector.main.dialogs import Downloads
from inspector.main.dialogs.model import ModelDialog, Offer
from inspector.main.tool import ToolActions
from inspector.main.view import View
from inspector.recordings.sessions import recent_models
from inspector.scales import FREE, bits, counted, decimal, left_over, percent, size
from inspector.session.client import Request
from inspector.state.second_model import Divergences, SecondModelSoFar, mean
from inspector.state.session_tree import numbered
from inspector.widgets.actions import Action, ActionTable, Needs, back, both, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.token_lines import TextPiece, Wrap, heat_style, link_of, swatches

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the text, colored by how far the two are apart ---------------------------------------------

FLIP = "≠"
"""The mark under a token before which the two models have different top tokens."""
TITLED = 6
"""Cells of a frame's top line that its title can't use."""
SLIM = 54
"""Cells of the answer below which the legend in the frame has no room for the unit."""
LISTED = 10
LOW = 16
"""Lines of a screen below which there is no room for the list of the largest differences."""
NARROW = 24
"""Cells from which a list has room for the ranks of the other model."""
WORD = re.compile(r"\s*\S+|\s+")


class Coloring(Struct, frozen=True):
    """A number of a span that the text is colored by."""

    name: str
    unit: str
    value: Callable[[LockstepSpan], float | None]
    steps: tuple[float, ...]
    """Sizes from which a token has the next color."""
    form: str
    """The format of the number."""

    def number(self, span: LockstepSpan | None) -> float:
        """The number; NaN if it isn't known."""
        value = None if span is None else self.value(span)
        return math.nan if value is None else value

    def step(self, span: LockstepSpan | None) -> int:
        """The color step of a span, 0 to 5."""
        return sum(abs(self.number(span)) >= edge for edge in self.steps)

    def written(self, span: LockstepSpan | None) -> str:
        """The number for the row under the tokens; empty if it isn't known, or too small."""
        if not self.step(span):
            return ""
        value = self.number(span)
        return format(value, self.form).replace("-", "−") if math.isfinite(value) else "∞"


COLORINGS = (
    Coloring("KL(A||B)", "bits", lambda span: span.kl_bits, (0.01, 0.05, 0.2, 0.5, 1.5), ".2f"),
    Coloring("change of logprob", "nats, B − A",
             lambda span: span.logprob_change, (0.05, 0.2, 0.5, 1.0, 2.0), "+.1f"),
    Coloring("change of rank", "B − A", lambda span: span.rank_change, (1, 2, 5, 20, 100), "+.0f"),
)  # fmt: skip
BY_BYTES = 1
"""Index of the only coloring for models with different tokens."""


# ---- the view -----------------------------------------------------------------------------------


def _looking(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model, or a recording."""
    return lambda own: word if own.recorded or own.opened is not None else ""


def _compared(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a second model."""
    return lambda own: word if own.opened is not None else ""


SECOND_MODEL_KEYS = screen_table(
    "While a second model is compared",
    Action("second_model.open", "Open a second model",
           "Choose the second model: this one in 8 or 4 bits or with an adapter, one on the disk, or another. The "
           "session stays as it is.",
           lambda own: own.ask_model(), Needs.ENGINE, worth=5, place=9, hint=_compared("another B")),
    Action("close_second", run=lambda own: own.say(own.close_second()), worth=8, place=9,
           hint=lambda own: "stop" if own.opening else _compared("close B")(own)),
    Action("second_model.follow_first", "Step with A",
           "Step with A: append the token that the session's model picks; at an earlier token, go one forward.",
           lambda own: own.follow_first(), Needs.ENGINE, hint=_compared("step with A"), worth=8, place=3),
    Action("second_model.follow_second", "Step with B", "Step with B: append the token that the second model picks.",
           lambda own: own.follow_second(), Needs.ENGINE, hint=_compared("step with B"), worth=8, place=4),
    Action("second_model.ways", "Let them diverge",
           "Let each model continue on its own from the cursor, and show where they diverge; again for the "
           "candidates.",
           lambda own: own.part(), worth=7, place=5,
           hint=lambda own: "" if own.recorded or not own.opened else "candidates" if own.way else "let them diverge"),
    Action("second_model.branch", "Branches",
           "Open a second model; while the two continuations are shown, make both branches of the tree, and compare "
           "them.",
           lambda own: own.branch(), Needs.ENGINE, worth=9, place=1,
           hint=lambda own: "make both branches" if own.way else "open a second model" if own.unopened else ""),
    *both(("earlier", "later"), ("Previous token", "Next token"), "Look at another token.",
          lambda own, by: own.walk(by), hint=_looking("token"), worth=6, place=6),
    Action("first", "First token", "Look at another token.", lambda own: own.look_at(0)),
    Action("tip", "Last token", "Look at another token.", lambda own: own.look_at(None)),
    Action("second_model.measure", "Measure", "Colour by KL(A||B), by the change of logprob or by the change of rank.",
           lambda own: own.change_measure(), hint=_looking("measure"), worth=5, place=6),
    *both(("second_model.next_flip", "second_model.flip_before"), ("Next flip", "Previous flip"),
          "Go to the next token with another top token (`≠`), or to the previous one.",
          lambda own, by: own.go_to_flip(by), by=(1, -1), hint=_looking("flip ≠"), worth=6, place=7, one=True),
    Action("second_model.largest", "Largest", "Go to the largest; again, to the next largest.",
           lambda own: own.go_to_largest(), hint=_looking("largest"), worth=6, place=7),
    *both(("second_model.why_first", "second_model.why_second"), ("Why A", "Why B"),
          "Show why the session's model takes its token here, or why the second one would, with the same draw.",
          lambda own, by: own.look_into(by, "why"), by=(0, 1), hint=_compared("why A, B"), worth=6, place=8,
          needs=Needs.ENGINE),
    *both(("second_model.inside_first", "second_model.inside_second"), ("Inside A", "Inside B"),
          "Look inside the session's model at this token, or inside the second one: the layers first, the other views "
          "from there.",
          lambda own, by: own.look_into(by, "lens"), by=(0, 1), hint=_compared("inside A, B"), worth=6, place=8,
          needs=Needs.ENGINE),
    back("second_model.leave", "Go back: from the continuations to the candidates, else out. The second model stays.",
         worth=10),
    text="A is the session's model, B the second one. `--second-model MODEL`, `--second-model-bits 4`, "
    "`--second-model-adapter DIR` or `--second-model-system-prompt TEXT` open it at the start, too. KL(A||B) is in "
    "bits, over the whole vocabulary (llama.cpp prints nats). Where the two cut the text into different tokens, only "
    "logprobs between common borders are compared.",
)  # fmt: skip


class SecondModelView(View):
    """Shows the path as two models see it; opens the second model, and has it read the path."""

    TOOL: ClassVar[str] = "second_model"
    ACTIONS: ClassVar[ActionTable] = SECOND_MODEL_KEYS
    MEASURES: ClassVar[str] = "Comparing"
    STARTS = (OpenLockstep, CloseLockstep, ReadLockstep, FollowSecond, PartWays)
    TELLING = (LockstepOpened, LockstepRead, WaysParted)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._against: OpenLockstep | None = None
        """The second model that was chosen last."""
        self._fingerprint: str | None = None
        """The fingerprint of the first model at that time."""
        self._asked: tuple[LockstepOpened, int] | None = None
        """The last question: it isn't asked again if it failed."""

        self._stopped = False
        """True if loading the last second model was stopped."""
        self._measure = 0
        self._ways = False
        """True if the two continuations are shown, once they are known."""
        self.controller.client.listen(self._receive, ModelFacts, Resampled, LockstepOpened)

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="second-model-text")
        yield DrawnPanel(id="second-model-largest", classes="-line")
        with Container(id="second-model-sides"):
            yield DrawnPanel(id="second-model-first")
            yield DrawnPanel(id="second-model-second")

    def begin(self) -> None:
        """Draw the legend again when the theme changes."""
        self.watch(self.app, "theme", self.changed, init=False)

    # ---- the second model -----------------------------------------------------------------------

    def _receive(self, record: Record) -> None:
        """Open the second model again if the first one is loaded again; read the path again if tokens were drawn again;
        show the notes of a newly opened model."""
        match record:
            case Resampled():
                self._asked = None
            case LockstepOpened() if record.notes:
                self.host.answer(visible(" ".join(record.notes)))
            case ModelFacts() if record.fingerprint == self._fingerprint:
                if self._against is not None and not self.controller.transport.recorded:
                    self._load(self._against)

    def open_second(self, against: OpenLockstep) -> None:
        """Open a second model, now and whenever the present first one is loaded again."""
        self._against, facts = against, self.timeline.facts
        self._fingerprint = facts.fingerprint if facts is not None else None
        self._load(against)

    def _load(self, against: OpenLockstep) -> None:
        self._stopped, self._asked = False, None
        self.job.start(against)

    @property
    def opening(self) -> Request[OpenLockstep] | None:
        """The request that is loading a second model, if any."""
        return next(iter(self.controller.client.under_way(OpenLockstep)), None)

    def _read(self) -> None:
        """Have the second model read the rest of the path on show."""
        timeline, opened = self.timeline, self.opened
        if self.recorded or opened is None or not timeline.items or timeline.prompts.reading:
            return
        asked = opened, timeline.tip
        if not self.job.running and timeline.tip not in self.found.ahead and self._asked != asked:
            self._asked = asked
            self.job.start(ReadLockstep(timeline.tip))

    # ---- what is shown --------------------------------------------------------------------------

    @property
    def found(self) -> SecondModelSoFar:
        """The second model and its readings so far, live or recorded."""
        return self.timeline.of(SecondModelSoFar)

    @property
    def opened(self) -> LockstepOpened | None:
        return self.found.opened

    @property
    def unopened(self) -> bool:
        """True if there is no second model, and none is being loaded."""
        return not self.recorded and self.opened is None and self.opening is None

    @property
    def by_bytes(self) -> bool:
        """True if the two models have different tokens."""
        return self.opened is not None and self.opened.aligned == "bytes"

    @property
    def measure(self) -> Coloring:
        """The number that the text is colored by."""
        return COLORINGS[BY_BYTES if self.by_bytes else self._measure]

    @property
    def spans(self) -> list[LockstepSpan | None]:
        """The span of each token of the path, as far as it was read."""
        return self.found.along(self.timeline.items)

    @property
    def here(self) -> LockstepSpan | None:
        """The span at the cursor; at the end of the path, the two distributions there."""
        return self.found.at(self.timeline.items, self.timeline.slot)

    @property
    def largest(self) -> Sequence[tuple[int, LockstepSpan]]:
        """The tokens that differ most by the measure, the largest first, each with the slot of its last token."""
        measure = self.measure
        last = {span.node: (slot, span) for slot, span in enumerate(self.spans) if span is not None}
        differing = [each for each in last.values() if measure.step(each[1])]
        return nlargest(LISTED, differing, key=lambda each: abs(measure.number(each[1])))

    @property
    def way(self) -> WaysParted | None:
        """Both continuations from the cursor, if they are shown and known."""
        return self.found.ways.get(self.timeline.before) if self._ways else None

    def show(self) -> None:
        """Show everything, now; have the second model read what isn't known yet."""
        self._read()
        timeline, measure, width = self.timeline, self.measure, self.area.width
        instead, largest = self._instead(), self.query_one("#second-model-largest", DrawnPanel)
        title = Content("Text")
        if instead is None:
            named = measure.name if width < SLIM else f"{measure.name}, {measure.unit}"
            title = Content(f"{named} from ") + swatches(measure.steps, largest.dark, largest.colorful)
        self.query_one("#second-model-text", DrawnPanel).put(title, self._text, self._sum(width - TITLED))
        largest.put("", self._differing)
        largest.display = instead is None and bool(self.largest) and self.app.size.height >= LOW
        facts, opened = timeline.facts, self.opened
        names = visible(facts.name) if facts else "", visible(opened.title) if opened else ""
        self.query_one("#second-model-sides").display = instead is None or opened is not None
        for second, id in enumerate(("#second-model-first", "#second-model-second")):
            name, cells = f"{'AB'[second]} {names[second]}", width // 2 - TITLED
            name = name if cell_len(name) <= cells else joined_to_fit(name.split(", "), cells)
            self.query_one(id, DrawnPanel).put(name, partial(self._side, second), self._side_words(second))
        told = f" · A {names[0]} · B {names[1]}" if opened is not None else ""
        self.write(f"Second model{' · recorded' if self.recorded else ''}{told}")

    def _text(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The path, each token in the color of the measure, its number under it; or why there is none."""
        if (instead := self._instead()) is not None:
            reason, advice = instead
            return centred([(reason, on.rich_style), (advice, on.ink("muted"))], width, height)
        items, cursor, measure, doubled = self.timeline.items, self.timeline.slot, self.measure, height >= 2
        spans, wrap = self.spans, Wrap(width - 1, doubled)
        for item, span in zip(items, spans, strict=True):
            number = ""
            if doubled and span is not None and span.node == item.node:  # the last token of its span
                number = measure.written(span) + (FLIP if span.same_top is False else "")
            wrap.append(token_lines(item.text, item.raw), "", truncate(number, width - 2))
        lines, room = wrap.lines, max(1, height // (2 if doubled else 1))
        last = len(lines) - 1
        at = wrap.line_of[cursor] if cursor < len(wrap.line_of) else last
        top = max(0, min(at - room // 2, last + 1 - room))
        plain = on.rich_style

        def colored(piece: TextPiece) -> list[Segment]:
            blank, linked = Segment(" " * (piece.blank + piece.edge), plain), link_of(piece)
            if piece.slot == cursor:
                return [Segment(piece.text, on.ink("cursor") + linked), blank]
            heat = heat_style(measure.step(spans[piece.slot]), on.dark, on.colorful)
            core = piece.text.lstrip(" ")
            begin = Segment(piece.text[: len(piece.text) - len(core)], plain + linked)
            return [begin, Segment(core, plain + heat + linked), blank]

        rows: list[Row] = []
        for line in lines[top : top + room]:
            rows.append([part for piece in line.pieces for part in colored(piece)])
            if doubled:
                under = ((pad(each.under, each.cells), each.slot == cursor) for each in line.pieces)
                rows.append([Segment(text, on.ink("accent" if here else "muted")) for text, here in under])
        if cursor >= len(items) and rows and top + room > last:
            rows[-2 if doubled else -1].append(Segment(" ", on.ink("cursor")))
        return rows

    def _differing(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The tokens at which the two models differ most, as many as fit into a line."""
        row: Row = [Segment(f"differ most ({key_for('second_model.largest')}): ", on.ink("muted"))]
        room = width - row[0].cell_length
        for slot, span in self.largest:
            item = self.timeline.items[slot]
            label = truncate(token_label(item.text, item.raw), 16)
            flip = FLIP if span.same_top is False else ""
            text = f"{numbered(item).removeprefix('step ')} {label} {self.measure.written(span)}{flip}"
            if (room := room - cell_len(text) - 2) < 0:
                break
            ink = on.ink("cursor") if slot == self.timeline.slot else on.rich_style
            row += [Segment(text, ink + Style.from_meta({"slot": slot})), Segment("  ", on.rich_style)]
        return [row]

    def _side(self, second: int, on: Canvas, width: int, height: int) -> list[Row]:
        """One model's candidates at the cursor and the probability of all others, or its continuation from there."""
        if (way := self.way) is not None:
            return _way_rows(on, way, bool(second), width)
        here, muted, wide = self.here, on.ink("muted"), width >= NARROW
        lists = (here.candidates, here.other_candidates) if here is not None else ((), ())
        if not lists[second]:
            return centred([(self._why(), muted)], width, height)
        unknown = self.timeline.following or (second and self.by_bytes)
        taken, ranks = self.timeline.taken, {each.id: each.rank for each in lists[1 - second]}
        label = max(6, min(20, width - (19 if wide else 10)))
        cells = max(0, min(16, width - label - 19))
        other = f"{pad('', cells)} {'in A' if second else 'in B':>6}" if wide else ""
        rows: list[Row] = [[Segment(f"  {pad('token', label)}{'p':>8}  {other}", muted)]]
        shown = lists[second][: max(1, height - 2)]
        for each in shown:
            share, rank = min(1.0, max(0.0, each.prob)), ranks.get(each.id)
            chosen = each.id == taken and not unknown
            name = truncate(token_label(each.text, each.raw), label - 1)
            row = [
                Segment("▶ " if chosen else "  ", on.ink("accent")),
                Segment(pad(name, label), on.ink("strong") if chosen else on.rich_style),
                Segment(f"{percent(share):>8}  ", on.rich_style),
                Segment(bar(share, cells) if cells else "", on.data(share)),
            ]
            if wide:
                ink = muted if rank in (None, each.rank) else on.ink("warn")
                row.append(Segment(f" {'–' if rank is None else f'#{rank}':>6}", ink))
            rows.append(row)
        rest = percent(left_over(min(1.0, max(0.0, each.prob)) for each in shown))
        return [*rows, [Segment(f"  {pad('others', label)}{rest:>8}", muted)]]

    def _side_words(self, second: int) -> str:
        """The figure of one model at the cursor, or of its continuation from there."""
        if (way := self.way) is not None:
            return f"continues for {len(way.other_ids if second else way.ids)}"
        here = self.here
        entropy = None if here is None else here.other_entropy_bits if second else here.entropy_bits
        return "" if entropy is None else f"entropy {bits(entropy)} bits"

    def _instead(self) -> tuple[str, str] | None:
        """Why there is no text, and what to do."""
        if not self.timeline.items:
            return "There is no text yet.", f"Press esc, then {key_for('prompt')} to write a prompt."
        if self.opened is not None and self.opening is None:
            return None
        if self.recorded:
            advice = f"{key_for('step').capitalize()} shows what came next."
            return "No second model was recorded up to here.", advice
        if self.opening is not None:
            memory = needs(self.opening.reply(LockstepMemory))
            advice = f"{memory}{bare_key_for('close_second')} stops it."
            return "The second model is loading; your session stays as it is.", advice
        other = f"{key_for('second_model.branch')} chooses another one."
        if (failure := self.job.failures.get(OpenLockstep.kind)) is not None:
            return visible(failure.message), visible(f"{failure.hint} {other}".strip())
        if self._stopped:
            return "Loading was stopped: no second model is open.", other
        return (
            "No second model is open. With one, both models read this text, and you see where they differ.",
            f"{key_for('second_model.branch')} opens one: this model in 8 or 4 bits or with an adapter, a model on the "
            "disk, or another. You see its memory first; your session stays as it is.",
        )

    def _sum(self, cells: int) -> str:
        """The figures of the whole path, as many as fit."""
        figures = Divergences({span.node: span for span in self.spans if span is not None}.values())
        if figures.kl and figures.tops:
            same = f"same top token in {100 * figures.same_top.value:.1f} %"
            parts = counted(len(figures.kl), "token"), f"mean KL {mean(figures.kl).value:.3g} bits", same
            return joined_to_fit(parts, cells)
        return counted(len(figures.spans), "span") if figures.spans else ""

    def _why(self) -> str:
        """Why there is nothing at the cursor."""
        if self.timeline.slot == 0:
            return "There is nothing before the first token."
        return "Not recorded here." if self.recorded else "Not read yet."

    def situation(self) -> str:
        """The work under way or the failure, else the cursor's figures."""
        job, failure = self.job, self.job.failure
        if failure is not None and not self.recorded:
            return visible(f"{failure.message} {failure.hint}".strip())
        if job.progress is not None:
            total = f" {job.progress.done}/{job.progress.total}" if job.progress.total else ""
            return f"{visible(job.progress.detail)}{total}"
        if (way := self.way) is not None:
            return ways_words(way)
        if self.opened is not None and self.here is not None:
            return span_words(self.here)
        if self.recorded:
            return f"Recorded. {self.needs_model}"
        if self.opening is not None:
            return f"The second model is loading; {bare_key_for('close_second')} stops it"
        return "" if self.opened is None else self._why()

    # ---- keys -------------------------------------------------------------------------------------

    def walk(self, by: int) -> None:
        self.timeline.walk(by)
        self._moved()

    def look_at(self, slot: int | None) -> None:
        self.timeline.select(slot)
        self._moved()

    def _moved(self) -> None:
        self.job.failures.clear()
        self.host.changed()

    def change_measure(self) -> None:
        if self.by_bytes:
            self.say("The two models have different tokens: only their logprobs can be compared")
        else:
            self._measure = (self._measure + 1) % len(COLORINGS)

    def go_to_flip(self, by: int) -> None:
        """Go to the next token before which the top tokens differ, or to the one before."""
        flips = (slot for slot, span in enumerate(self.spans) if span is not None and span.same_top is False)
        if found := [slot for slot in flips if (slot - self.timeline.slot) * by > 0]:
            self.look_at(found[0] if by > 0 else found[-1])
        else:
            self.say(f"At no {'later' if by > 0 else 'earlier'} token do the top tokens differ")

    def go_to_largest(self) -> None:
        """Go to the token with the largest value of the measure; from one of the list, to the next largest."""
        if slots := [slot for slot, _ in self.largest]:
            here = slots.index(self.timeline.slot) if self.timeline.slot in slots else -1
            self.look_at(slots[(here + 1) % len(slots)])
        else:
            self.say("No token differs by this measure yet")

    def on_click(self, event: events.Click) -> None:
        """Look at the token that was clicked, in the text or in the list."""
        if isinstance(slot := event.style.meta.get("slot"), int):
            self.look_at(slot)

    def follow_first(self) -> None:
        """Append the first model's pick; at an earlier token, go one forward."""
        if not self._lacks():
            self.say(self.controller.transport.step())

    def follow_second(self) -> None:
        """Append the second model's pick."""
        if self._lacks():
            return
        if self.by_bytes:
            ways = f"{key_for('second_model.ways')} shows its own continuation"
            self.say(f"B has other tokens: its pick is no token of A. {ways}")
        else:
            self.timeline.select(None)
            self.job.start(FollowSecond(self.timeline.before))

    def part(self) -> None:
        """Let each model continue on its own from the cursor, or show the candidates again."""
        self._ways = self.way is None
        if not self._ways or self.way is not None:
            return
        if self.recorded:
            self.say(self.needs_model)
        elif not self._lacks():
            self.job.start(PartWays(self.timeline.before))

    def branch(self) -> None:
        """Make branches of the two continuations on show, and compare them; without a second model, ask for one."""
        if self.unopened:
            self.ask_model()
        elif (way := self.way) is None:
            ways = f"{key_for('second_model.ways')} first: each model continues on its own from here"
            self.say(f"Press {ways}, and ⏎ makes both branches")
        elif self._lacks():
            return
        elif self.by_bytes:
            self.say("B has other tokens: its continuation can't be a branch of A's tree")
        elif way.parted is None:
            self.say("Both continue in the same way: there is nothing to compare")
        else:
            self.dismiss()
            self._compare_ways(way, way.parted)
            self.host.answer("Both continuations become branches of the tree")

    def _compare_ways(self, way: WaysParted, parted: int) -> None:
        """Make branches of both continuations, A's last so that the session is on it; then compare them."""

        def taken(request: Request[Take]) -> None:
            if any(each.cancelled or each.failure for each in (first, request)):
                return
            path = [item.node for item in self.timeline.items]
            if way.node in path:  # so that the branch that diverges there is compared
                self.timeline.select(path.index(way.node) + 1 + parted)
            self.host.press("compare")

        first = self.controller.client.do(Take(way.node, way.other_ids))
        self.controller.client.do(Take(way.node, way.ids), taken)

    def ask_model(self) -> None:
        if why := self.controller.transport.bound:
            self.say(why)
            return
        dialog = SecondModelDialog(self.controller.setup.load, self.timeline.facts, Downloads(self.host))

        def chosen(load: LoadSettings | None) -> None:
            if load is not None:
                self.open_second(OpenLockstep(load, dialog.bits))
                self.say()

        self.host.open(dialog, chosen)

    def close_second(self) -> str:
        """Close the second model, or stop its loading; returns what to say."""
        if self.opening is not None:
            self._stopped = self.job.stop()
            return ""
        if self.recorded or self.opened is None:
            return f"No second model is open: {key_for('second_model')} opens one"
        self._against, self._ways = None, False
        self.job.start(CloseLockstep())
        return f"Closed the second model, {visible(self.opened.title)}"

    def look_into(self, second: int, action: str) -> None:
        """Close the view, and look at the token on the main screen, or inside one of the models.

        Args:
            second: 1 for the second model, 0 for the session's.
            action: Id of an action of the main screen.
        """
        if self._lacks():
            return
        if second and self.by_bytes:
            why = "B has other tokens, so it has no such token."
            self.say(f"{why} Open it as the session's model to look inside it")
            return
        self.found.looking = bool(second)
        self.leave()
        if action == "why" and "sampler" in self.host.shown:
            self.host.changed()
        else:
            self.host.press(action)

    def _lacks(self) -> bool:
        """Say what is missing for a key; returns whether anything is."""
        if self.opened is None or not self.timeline.before:
            self.say("No second model is open" if self.opened is None else "Go to a later token first")
            return True
        return False

    def back(self) -> None:
        if self.way is not None:
            self._ways = False
        else:
            super().back()

    def leave(self) -> None:
        """Leave; stop what is under way, except loading a second model."""
        if self.opening is None and self.job.stop():
            self._asked = None  # the next opening asks again
        self.dismiss()


def _way_rows(on: Canvas, ways: WaysParted, second: bool, width: int) -> list[Row]:
    """The continuation of one model; what both have is in plain ink."""
    wrap = Wrap(width - 1)
    texts = ((each.other_text if second else each.text, each.same) for each in ways.parts)
    parts = [(word, same) for text, same in texts for word in WORD.findall(text)]
    for word, _ in parts:  # so that lines break between words
        wrap.append([visible(line) for line in word.split("\n")])
    styles = on.ink("accent") + Style(underline=True), on.rich_style
    return [
        [
            Segment("".join(piece.text for piece in pieces), styles[parts[slot][1]])
            for slot, pieces in groupby(line.pieces, key=lambda piece: piece.slot)
        ]
        for line in wrap.lines
    ]


def needs(memory: LockstepMemory | None) -> str:
    """The memory that a second model takes beside the first, and the free memory; empty until it is known."""
    if memory is None:
        return ""
    free = f"; {size(memory.free_bytes)} were free" if memory.free_bytes is not None else ""
    if not memory.second_bytes:
        return f"It shares the weights of the first one{free}. "
    return f"It takes about {size(memory.second_bytes)} beside {size(memory.first_bytes)}{free}. "


def span_words(span: LockstepSpan) -> str:
    """The figures of one place in a line."""
    parts = []
    if span.kl_bits is not None:
        parts.append(f"KL {span.kl_bits:.4f} bits")
    if span.rank is not None and span.other_rank is not None:
        parts.append(f"rank {span.rank} → {span.other_rank}")
    if span.same_top is not None:
        parts.append("same top token" if span.same_top else f"{FLIP} different top tokens")
    if span.logprob is not None and span.other_logprob is not None:
        label = token_label(span.text, span.raw)
        parts.append(f"{label} logprob {decimal(span.logprob)} → {decimal(span.other_logprob)}")
    if span.tokens > 1 or span.other_tokens > 1:
        parts.append(f"{counted(span.tokens, 'token')} of A, {span.other_tokens} of B: no KL")
    return " · ".join(parts) or "There is nothing before the first token."


def ways_words(way: WaysParted) -> str:
    """A sentence on where two continuations diverge and match again."""
    if way.parted is None:
        return f"Both continue in the same way for {counted(len(way.ids), 'token')}"
    first = "at the first token" if way.parted == 0 else f"after {counted(way.parted, 'token')}"
    again = "no 3 words in a row match"
    if way.meetings:
        again = f"{counted(way.meetings, 'match')} of 3 words or more"
    return f"They diverge {first}; {again} after that, within {max(len(way.ids), len(way.other_ids))} tokens"


# ---- the choice of the second model -------------------------------------------------------------

BITS = (8, 4)
GROUP_SIZE = 64
"""The default of `OpenLockstep`."""
ADAPTER = "adapter_config.json"
"""The file that identifies an adapter's directory."""


class SecondModelDialog(ModelDialog):
    """Asks for a second model beside the session's, which stays as it is.

    Args:
        load: How the session's model was loaded.
        facts: Facts about that model; None if none is loaded.
        downloads: Downloads models; continues after the dialog is left.
    """

    HEADING: ClassVar[str] = "Second model"
    APPLY: ClassVar[str] = "Open"
    WAYS: ClassVar[str] = "Type to filter, or a model's directory, a hub id, or an adapter's directory."

    def __init__(self, load: LoadSettings, facts: ModelFacts | None, downloads: Downloads) -> None:
        room = facts.room if facts is not None else None
        super().__init__(load, None, recent_models, downloads, room)
        self._facts = facts
        self.bits: int | None = None
        """The bits in which the session's model was chosen; None if another model was."""

    def besides(self) -> Iterator[Offer]:
        if (facts := self._facts) is None:
            return
        wide = 4 if facts.dtype == "float32" else 2
        how = f"{facts.name} quantized while it is loaded, in groups of {GROUP_SIZE}, as mlx_lm.convert does"
        for width in () if facts.quantized else BITS:
            needed = int(facts.parameters * (width / 8 + 2 * wide / GROUP_SIZE))
            told = ("memory", f"about {size(needed)} {_beside(facts)}"), ("how", how)
            yield Offer(f"this model in {width} bits", told, self.load, width)
        # with an adapter, once its directory is typed, and without the one that it has
        name, memory = self.typed, ("memory", f"about {size(facts.weight_bytes)} {_beside(facts)}")
        if name and _holds_adapter(name):
            with_it = replace(self.load, adapter_path=name)
            yield Offer(f"this model with the adapter {name}", (memory,), with_it)
        elif not name:
            yield Offer("this model with an adapter …", (("how", _HOW),), None)
        if self.load.adapter_path is not None:
            without = replace(self.load, adapter_path=None)
            yield Offer("this model without its adapter", (memory,), without)

    def take(self, offer: Offer) -> None:
        if offer.load is None:
            self.say(_HOW)
            return
        self.bits = offer.bits
        self.dismiss(offer.load)


_HOW = "Type the adapter's directory: the one that mlx_lm.lora wrote, with adapters.safetensors."


def _beside(facts: ModelFacts) -> str:
    free = f"; {size(facts.free_bytes)} are {FREE[facts.memory_of]}" if facts.free_bytes is not None else ""
    return f"beside the {size(facts.weight_bytes)} of {facts.name}{free} (an estimate)"


def _holds_adapter(name: str) -> bool:
    try:
        return os.path.lexists(typed(name) / ADAPTER)
    except PathError:
        return False


# ---- a program that begins with a second model ----------------------------------------------------


class SecondModelAtStart(ToolActions):
    """Opens a second model once the first one is loaded.

    Args:
        host: The main screen.
        against: The second model.
    """

    def __init__(self, host: MainScreen, against: OpenLockstep) -> None:
        super().__init__(host)
        self._against = against
        self.controller.client.listen(self._first_opened, ModelFacts)

    def _first_opened(self, record: Record) -> None:
        if not self.controller.transport.recorded:
            self.controller.client.ignore(self._first_opened)
            view = self.host.view_at("inspector.views.second_model:SecondModelView")
            cast("SecondModelView", view).open_second(self._against)
